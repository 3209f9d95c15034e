"""What is known of a board, kept in order: against a plain model, and how much work a large board takes."""

import random
import uuid
from typing import Any

import pytest

from jobboard.backends.zookeeper.paths import Node
from jobboard.backends.zookeeper.ready import Ready
from jobboard.job import boottime
from jobboard.states import CLAIMED
from jobboard.testing.conformance.support import LONG, take

pytestmark = pytest.mark.backends("zookeeper")


class Counted(Node):
    """A node that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __lt__(self, other: Any) -> bool:
        Counted.compared += 1
        return tuple.__lt__(self, other)


def nodes(count: int, names: str = "ab") -> list[Node]:
    made = []
    for number in range(count):
        key = str(uuid.UUID(int=number))
        made.append(Counted(number, f"1.{key}.{number:010d}", number % 3, key, random.choice(names), 1 + number % 2))
    return made


@pytest.mark.parametrize("seed", range(5))
def test_ready_against_a_model(seed: int) -> None:
    random.seed(seed)
    ready, model, every = Ready(), set[Node](), nodes(3000, "abc")
    for _ in range(60):
        size = random.choice([1, 2, 5, 40, 500])
        came, went = random.sample(every, size), random.sample(every, size)
        ready.update(came, [])
        ready.update([], went)
        model = (model | set(came)) - set(went)
        assert len(ready) == len(model)
        for names in (None, ["a"], ["a", "c", "nobody"]):
            expected = [n for n in model if (names is None or n.job in names) and n.version <= 1]
            assert list(ready.in_order(names, 1)) == sorted(expected, key=lambda node: (node.rank, node.number))
        if model:
            node = random.choice(sorted(model))
            ranked = sorted(each for each in model if each.rank == node.rank and not each < node)
            assert ready.following(node, 7) == ranked[:7]
            assert ready.first(node.rank) == min(each for each in model if each.rank == node.rank)


def test_a_large_listing_is_sorted_once() -> None:
    every = nodes(50_000)
    random.shuffle(every)
    ready = Ready()
    Counted.compared = 0
    ready.update(every, [])
    assert Counted.compared < 50_000 * 20
    Counted.compared = 0
    ready.update([], random.sample(every, 25_000))
    assert Counted.compared < 25_000 * 2
    # One by one, at either end.
    Counted.compared = 0
    for _ in range(1000):
        ready.update([], [next(ready.in_order(None, 9))])
    assert Counted.compared < 1000 * 20


def test_a_name_that_nobody_has_posted_is_not_searched_for() -> None:
    ready = Ready()
    ready.update(nodes(20_000), [])
    assert list(ready.in_order(["a", "z"], 9)) == list(ready.in_order(["a"], 9))
    Counted.compared = 0
    assert list(ready.in_order(["z"], 9)) == []
    assert next(ready.in_order(["b"], 9)).job == "b"
    assert Counted.compared == 0


def test_a_page_sorts_nothing(make_board: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many pages there are."""
    from jobboard.backends.zookeeper import watches

    board, other = make_board(), make_board()
    posted = board.post_many([{"name": "resize", "priority": "HIGH" if n % 3 else "LOW"} for n in range(1200)])
    sorts = []
    monkeypatch.setattr(watches, "sorted", lambda *a, **k: sorts.append(1) or sorted(*a, **k), raising=False)
    view = other.engine._opened.view
    walked: list[Node] = []
    view.look()
    while page := view.page((walked[-1].rank, walked[-1].sequence) if walked else (-1, -1), 50, None):
        walked += page
    assert [node.uuid for node in walked] == [job.uuid for job in sorted(posted, key=lambda j: j._record.priority)]
    assert len(sorts) <= 5
    assert len(list(board.iterjobs())) == 1200


def test_what_one_posts_and_consumes_is_not_kept(make_board: Any) -> None:
    board = make_board()
    for _ in range(12):
        board.post_many([{"name": "resize"}] * 200)
        assert len(list(board.iterjobs())) == 200
        board.consume_many(board.claim_many("anna", 200), "anna")
    view = board.engine._opened.view
    assert len(view._walks[2] or []) <= 1200
    assert list(board.iterjobs()) == []
    late = board.post("late")
    assert list(board.iterjobs()) == [late]


@pytest.mark.parametrize("expiry", [None, LONG])
def test_what_is_known_may_be_old(make_board: Any, expiry: float | None) -> None:
    """As it is for who claims at once again: what others have posted meanwhile is served in its turn."""
    board, other = make_board(), make_board()
    low = board.post_many([{"name": "low", "priority": "LOW"}] * 3)
    view = board.engine._opened.view
    assert take(board) == low[0]
    for _ in range(3):
        high = other.post("high", priority="HIGH")
        view._looked, view._dirty = boottime() + LONG, False
        assert take(board, expiry=expiry) == high
    view._looked, view._dirty = boottime() + LONG, False
    assert [take(board), take(board), board.claim_next("anna")] == [*low[1:], None]


def test_a_lease_that_another_ended_before_it_was_listed(make_board: Any) -> None:
    """Both what was made and what was deleted lie between two looks of this process."""
    board, other = make_board(), make_board()
    job = board.post("resize")
    there = other.get(job.uuid)
    board.claim(job, "anna", LONG)
    other.release(there)
    assert take(board, "bert") == job


def test_trashed_twice_under_one_name(make_board: Any) -> None:
    board = make_board()
    job = board.post("resize")
    board.cancel(job)
    view = board.engine._opened.view
    [trashed] = board.trashed()
    name = view.trashed_place(job.uuid).name
    board.restore(job)
    assert name not in view._trash.names
    assert list(board.trashed()) == []
    board.claim(job, "anna")
    assert job.state == CLAIMED
    assert trashed == job


def test_the_trash_page_by_page_while_it_shrinks(make_board: Any) -> None:
    """What others take out between the list and the reading does not end the walk."""
    board, other = make_board(), make_board()
    jobs = board.post_many([{"name": "resize"}] * 8)
    for job in jobs:
        board.cancel(job)
    store = board.engine._opened
    read, gone = store.read_trash, []

    def meanwhile(places: Any) -> Any:
        if not gone:
            gone.append(places[0].node.uuid)
            other.purge(next(job for job in jobs if job.uuid == gone[0]))
        return read(places)

    store.read_trash = meanwhile
    page = board.engine.trash_page(None, 4)
    assert len(page) == 4
    assert gone[0] not in [record.uuid for record in page]
    rest = board.engine.trash_page(page[-1], 4)
    assert {record.uuid for record in [*page, *rest]} == {job.uuid for job in jobs} - set(gone)


def test_no_path_is_made_twice(make_board: Any, caller: Any) -> None:
    """A znode that is made anew counts its versions from 0: what was read of an earlier one must not fit it."""
    board, other = make_board(), make_board()
    paths = board.engine._opened.paths
    made: list[str] = []

    def note() -> None:
        folders = [*paths.jobs, paths.trash]
        made.extend(f"{folder}/{name}" for folder in folders for name in caller.get_children(folder))

    job = board.post("resize.now")
    note()
    for _ in range(3):
        board.claim(job, "anna")
        board.trash(job, "anna")
        note()
        other.restore(other.get(job.uuid))
        note()
        other.cancel(job)
        note()
        board.restore(job)
        note()
    assert len(made) == len(set(made)) == 13
    again, sequence = board.get(job.uuid), job.sequence
    assert (again.name, again.sequence) == ("resize.now", sequence)


def test_one_that_was_restored_is_known_at_its_new_place(make_board: Any) -> None:
    board, other = make_board(), make_board()
    first, job, last = board.post_many([{"name": "resize"}] * 3)
    assert take(board) == first
    theirs = other.get(job.uuid)
    for _ in range(3):
        other.cancel(theirs)
        other.restore(theirs)
        assert len(list(board.iterjobs())) == 3
        assert board.engine._opened.view.place(job.uuid) == other.engine._opened.view.place(job.uuid)
    assert board.claim_many("anna", 3) == [job, last]
    assert board.engine._opened.view.spread == 1
