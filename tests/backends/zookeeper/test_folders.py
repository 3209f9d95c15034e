"""Folders that stay small, costs that don't grow, and tags that never come again."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

from jobboard import codec
from jobboard.backends.zookeeper.paths import FULL, place_of
from jobboard.engine import Change, Stale
from jobboard.job import Posting
from jobboard.primitives import Arrival, Draft
from jobboard.testing import eventually
from jobboard.testing.conformance.support import LONG, Background, take

pytestmark = [pytest.mark.backends("zookeeper"), pytest.mark.timeout(240)]

MANY = 1_000_000 if "JOBBOARD_TEST_FULL" in os.environ else 20_000


def counted(board: Any, act: Any) -> tuple[int, int]:
    """Requests, and the bytes of their changes."""
    connection = board.engine._opened.connection
    before, commit = connection.sent, connection.commit
    sizes: list[int] = []

    def committed(ops: Any) -> Any:
        answers = commit(ops)
        sizes.extend(op.size for op in ops)
        return answers

    connection.commit = committed
    try:
        act()
    finally:
        del connection.commit
    return connection.sent - before, sum(sizes)


def folders(caller: KazooClient, path: str) -> Iterator[tuple[str, int]]:
    names = caller.get_children(path)
    yield path, len(names)
    if len(path.split("/")) < 7:
        for name in names:
            yield from folders(caller, f"{path}/{name}")


@pytest.mark.parametrize("state", ["ready", "claimed", "delayed"])
def test_costs_do_not_grow(make_board: Any, caller: KazooClient, state: str) -> None:
    board = make_board(claim_ttl=60)
    delay = LONG if state == "delayed" else None
    spent = []
    for many in (100, MANY // (1 if state == "ready" else 4)):
        board.post_many(Posting("resize", delay=delay) for _ in range(many))
        if state == "claimed":
            while board.claim_many("bert", 1000):
                pass
        fresh = make_board(claim_ttl=60)
        job = fresh.post("resize", priority="HIGH")
        post = counted(fresh, lambda fresh=fresh: fresh.post("resize"))
        first = counted(fresh, lambda fresh=fresh, job=job: fresh.claim(job, "anna"))
        fresh.consume(job, "anna")
        late = make_board(claim_ttl=60)
        taken = []
        claim = counted(late, lambda late=late, taken=taken: taken.append(take(late)))
        end = counted(late, lambda late=late, taken=taken: late.consume(taken[0], "anna"))
        opening = counted(late, lambda late=late: (late.close(), late.connect()))
        spent.append((post, first, claim, end, opening))
    for small, large in zip(*spent, strict=True):
        # But for folders that are made, and what is tried again then.
        assert large[0] <= small[0] + 30, spent
        assert large[1] <= small[1] * 2 + 1000, spent
    root = board.engine._opened.paths.root
    trees = [f"{root}/{tree}" for tree in ("ready", "busy", "later", "timed")]
    assert max(size for tree in trees for _, size in folders(caller, tree)) <= 2 * FULL


def test_empty_folders_go(make_board: Any, caller: KazooClient) -> None:
    board = make_board()
    board.post_many([Posting("resize")] * 3 * FULL)
    while jobs := board.claim_many("anna", 100):
        board.consume_many(jobs, "anna")
    board.engine._opened.sync()
    root = board.engine._opened.paths.root
    assert [len(caller.get_children(f"{root}/{tree}/100/0000000")) for tree in ("ready", "busy")] == [1, 1]


def test_a_folder_that_is_there_before_it_is_begun(make_board: Any, caller: KazooClient) -> None:
    board = make_board()
    board.post_many([Posting("resize")] * FULL)
    root = board.engine._opened.paths.root
    for tree in ("ready", "busy"):
        caller.ensure_path(f"{root}/{tree}/100/0000000/001")
    jobs = board.post_many([Posting("resize")] * FULL)
    assert [place_of(job.sequence)[0] for job in jobs] == [1] * FULL
    assert [job.uuid for job in board.iterjobs()][FULL:] == [job.uuid for job in jobs]


def test_two_priorities_in_turn_make_no_folder_anew(make_board: Any) -> None:
    board = make_board(claim_ttl=60)
    board.post_many([Posting("a"), Posting("b", priority="HIGH")] * 30)

    def both() -> None:
        for name in ("a", "b"):
            board.consume(take(board, names=[name]), "anna")

    for _ in range(5):
        both()
    requests, _ = counted(board, lambda: [both() for _ in range(20)])
    assert requests <= 100, "four for each two jobs, and some that read ahead"


def draft(uuid: str) -> Draft:
    posting = codec.encode(codec.Content({}, None), "msgpack")
    return Draft(uuid, "resize", 100, None, codec.VERSION, posting, None, None, None, Arrival("m", 0, (), 1, None, 0))


def test_a_tag_of_another_life_fits_nothing(make_board: Any) -> None:
    """The job has come, gone and come again under one uuid; all its versions are counted from 0 again."""
    store = make_board().engine._opened
    uuid = "00000000-0000-4000-8000-000000000001"
    [first] = store.commit([Change(None, draft(uuid))]).jobs
    store.commit([Change(first, None)])
    [second] = store.commit([Change(None, draft(uuid))]).jobs
    assert first.tag.version == second.tag.version
    assert first.tag != second.tag
    extended = first.record._replace(who="other")
    for after in (None, extended):
        with pytest.raises(Stale):
            store.commit([Change(first, after)])
    assert store.read([uuid]).jobs == [second]
    store.commit([Change(second, second.record._replace(who="other"))])


def test_a_tag_of_an_earlier_claim_fits_nothing(make_board: Any) -> None:
    """Where one session claims a job again, all of it lies where it did before: the version tells them apart."""
    board = make_board(claim_ttl=60)
    job, store = board.post("resize"), board.engine._opened
    board.claim(job, "anna")
    [first] = store.read([job.uuid]).jobs
    board.release(board.get(job.uuid))
    board.claim(board.get(job.uuid), "anna")
    [second] = store.read([job.uuid]).jobs
    assert (first.tag.entry, first.tag.listed) == (second.tag.entry, second.tag.listed)
    for after in (None, first.record, first.record._replace(who="bert")):
        with pytest.raises(Stale):
            store.commit([Change(first, after)])
    assert store.read([job.uuid]).jobs == [second]
    store.commit([Change(second, None)])


def test_a_tag_of_a_side_record_that_was_made_again(make_board: Any) -> None:
    from jobboard.engine import Mark

    store = make_board().engine._opened
    [absent] = store.read([], [("key", "k")]).sides
    [first] = store.commit([], [Mark(absent, b"1")]).sides
    store.commit([], [Mark(first, None)])
    [second] = store.commit([], [Mark(absent, b"2")]).sides
    assert first.tag.version == second.tag.version
    for value in (None, b"3"):
        with pytest.raises(Stale):
            store.commit([], [Mark(first, value)])
    assert store.read([], [("key", "k")]).sides == [second]


@pytest.mark.parametrize("kind", ["answer", "key", "entity"])
def test_a_tag_of_an_earlier_value_fits_nothing(make_board: Any, kind: str) -> None:
    """An answer's least of all: a try that comes late knows the one before its repetition's."""
    from jobboard.engine import Mark

    store = make_board().engine._opened
    uuid = "00000000-0000-4000-8000-000000000001"
    [absent] = store.read([], [(kind, "k")]).sides
    [first] = store.commit([], [Mark(absent, b"1")]).sides
    [second] = store.commit([], [Mark(first, b"2")]).sides
    for late in (absent, first):
        with pytest.raises(Stale):
            store.commit([Change(None, draft(uuid))], [Mark(late, b"3")])
    assert store.read([uuid], [(kind, "k")])[1:] == ([None], [second])


def test_a_claim_outlives_neither_its_keeper_nor_is_it_kept_by_another(make_board: Any, caller: KazooClient) -> None:
    board, other = make_board(claim_ttl=60), make_board(claim_ttl=60)
    job, theirs = board.post("resize"), board.post("resize")
    board.claim(job, "anna")
    other.claim(theirs, "bert")
    store = board.engine._opened
    mine, kept = (stored for stored in store.read([job.uuid, theirs.uuid]).jobs)
    assert (mine.alive, kept.alive) == (True, True)
    keeper = mine.tag.listed.split("/")[1]
    caller.delete(f"{store.paths.alive}/{keeper}")
    assert [stored.alive for stored in store.read([job.uuid, theirs.uuid]).jobs] == [False, True]
    [overdue] = other.engine._opened.look(1, None, codec.VERSION).overdue
    assert overdue.record.uuid == job.uuid
    # Its next beat takes it up again, under another keeper.
    board._session.beat_soon()
    board._renew_held(board._session)
    [again] = store.read([job.uuid]).jobs
    assert again.alive
    assert again.tag.listed.split("/")[1] != keeper
    with pytest.raises(Stale):
        other.engine._opened.commit([Change(overdue, overdue.record._replace(who=None))])


def test_a_post_of_ones_own_that_a_look_has_met_hides_no_other(make_board: Any, monkeypatch: Any) -> None:
    """It is committed between the bell and the list that one look reads, and told to the view after that look."""
    board, other = make_board(), make_board()
    other.post("first")
    assert take(board).name == "first"
    other.post("second")
    view, posted = board.engine._opened.view, []
    refresh = view._lists.refresh

    def meanwhile() -> None:
        if not posted:
            posted.append(Background(lambda: board.post("mine")))
            eventually(lambda: "mine" in {job.name for job in other.iterjobs(ensure_fresh=True)})
        refresh()

    monkeypatch.setattr(view._lists, "refresh", meanwhile)
    assert take(board).name == "second"
    assert posted[0].wait().name == "mine"
    other.post("third")
    assert [take(board).name for _ in range(2)] == ["mine", "third"]
