"""What the store makes of a driver, on each driver: what it asks, what it leaves behind, and what it tells apart."""

import logging
import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from jobboard import codec
from jobboard.engine import GATE, Change, Hears, Mark, Side, Stale, Store, Stored
from jobboard.exceptions import ConnectionFailure
from jobboard.job import Entity, Posting
from jobboard.kv import layout
from jobboard.kv.driver import Driver, Op, Range
from jobboard.primitives import Draft
from jobboard.states import CLAIMED, LIVE, SCHEDULED, TRASHED, UNCLAIMED
from jobboard.testing import eventually
from jobboard.testing.conformance.support import LIMIT, LONG, SHORT, Waiter, take, uuids
from jobboard.testing.conformance.wire import QUIET
from jobboard.testing.drivers import at_once, names, values, walked

from .conftest import DRIVERS, driver_class, driver_of

pytestmark = [pytest.mark.backends(*DRIVERS), pytest.mark.any_driver]

INDEXES = (layout.READY, layout.LIVE, layout.TIMED, layout.KEPT, layout.TRASH, layout.DONE, layout.OVER)
FOLDERS = ("job", "side/key", "side/purged", "side/entity", "side/scope", "side/schedule", "side/outcome")


def everything(board: Any) -> dict[str, list[str]]:
    """The names of what there is of jobs, and of side records but for answers."""
    driver = driver_of(board)
    return {place: found for place in (*INDEXES, *FOLDERS) if (found := walked(driver, place, 500))}


# What it asks of a driver


@pytest.fixture
def asked(backend: str, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many requests there were to drivers, and how many names and records these have told. A heartbeat counts, too:
    boards with a ``claim_ttl`` of ``QUIET`` have none within a test."""
    tally: Counter[str] = Counter()
    made = driver_class(backend)
    read, commit = made.read, made.commit

    def reading(self: Driver, paths: Any, ranges: Any = (), fresh: bool = True) -> Any:
        found = read(self, paths, ranges, fresh)
        tally.update(reads=1, records=len(paths), names=sum(map(len, found.names)))
        return found

    def committing(self: Driver, ops: Any) -> Any:
        tally.update(commits=1)
        return commit(self, ops)

    monkeypatch.setattr(made, "read", reading)
    monkeypatch.setattr(made, "commit", committing)
    return tally


def test_what_a_verb_asks_does_not_grow_with_the_board(make_board: Any, asked: Counter[str]) -> None:
    """Neither with the jobs that are ready, nor with those that are claimed or delayed."""
    board = make_board(claim_ttl=QUIET)
    for _ in range(2):
        board.post_many([Posting("resize", delay=LONG)] * 150)
        board.post_many([Posting("resize")] * 400)
        board.claim_many("anna", 100, expiry=LONG)
        take(board)
        asked.clear()
        board.post("resize")
        assert asked == {"commits": 1}
        asked.clear()
        job = take(board)
        assert (asked["reads"], asked["commits"]) == (1, 1)
        assert asked["names"] < 30
        assert asked["records"] < 30
        asked.clear()
        board.consume(job, "anna")
        assert asked == {"commits": 1}
        asked.clear()
        jobs = board.claim_many("anna", 50)
        assert asked["reads"] <= 2
        assert asked["commits"] == 1
        board.consume_many(jobs, "anna")


def test_a_look_is_not_repeated_where_the_rules_would_not_change_it(make_board: Any, asked: Counter[str]) -> None:
    """A handle learns the rules from its first look: the names, the jobs, and under limits the scopes."""
    board, new = make_board(claim_ttl=QUIET), make_board(claim_ttl=QUIET)
    board.post_many([Posting("resize")] * 4)
    asked.clear()
    assert take(new)
    assert asked["reads"] == 2
    new = make_board(claim_ttl=QUIET)
    board.set_limit("resize", concurrency=2)
    for each in (board, new):
        asked.clear()
        assert take(each)
        assert asked["reads"] == 3
        assert asked["commits"] == 1
    for call in (lambda: new.claim_next("bert"), lambda: board.engine.raw.peek(None, 9).any):
        asked.clear()
        assert not call()
        assert asked["reads"] <= 4, "the claims in the full scope are read, too"
        assert asked["commits"] == 0


def test_names_are_looked_for_by_the_page(make_board: Any, asked: Counter[str]) -> None:
    board = make_board(claim_ttl=QUIET)
    board.post_many([Posting("other", group=f"g{number}") for number in range(450)])
    wanted = board.post("wanted")
    assert board.claim_next("anna", names=["none"]) is None, "it knows the gate from now on"
    asked.clear()
    assert board.claim_next("anna", names=["wanted"]) == wanted
    assert asked["reads"] <= 4
    assert asked["names"] < 500
    assert asked["records"] < 20


def test_a_page_of_a_rare_state_ends(make_board: Any, asked: Counter[str]) -> None:
    """Whoever looks for the only job that is delayed is not made to wait until the whole board is read."""
    board = make_board(claim_ttl=QUIET)
    for _ in range(3):
        board.post_many([Posting("resize")] * 500)
    delayed = board.post("late", delay=LONG)
    asked.clear()
    page = board.engine.raw.page(None, 10, None, frozenset({SCHEDULED}))
    assert asked["records"] < 1_100
    assert len(page) == 1
    assert page[0].state == UNCLAIMED, "it says how far it has looked"
    assert list(board.iterjobs(states=[SCHEDULED])) == [delayed]


# What it leaves behind


def test_nothing_is_left_of_what_has_ended(make_board: Any) -> None:
    """Of jobs with keys, priorities, groups, delays, failures, of the trash, of entities, schedules and outcomes."""
    board = make_board(keep_done=SHORT)
    board.post_many([Posting("resize", key=f"k{n}", group="g", priority=n % 3) for n in range(500)])
    board.post_many([Posting("crop", key=f"c{n}", key_for=SHORT, delay=SHORT / 2) for n in range(500)])
    board.schedule("nightly", every=3600, name="nightly")
    board.unschedule("nightly")
    board.cancel(board.post("bad", key="bad"))
    [bad] = board.trashed()
    board.restore(bad)
    board.abandon(take(board, names=["bad"]), "anna", delay=SHORT, error="no")
    left = 1_001
    while left:
        jobs = board.claim_many("anna", 100, timeout=LIMIT, expiry=LONG if left % 2 else None)
        board.consume_many(jobs, "anna")
        left -= len(jobs)

    def tidied() -> bool:
        while board.engine.raw.tidy(1.0):
            pass
        return everything(board) == {}

    eventually(tidied, LIMIT)
    driver = driver_of(board)
    answers = names(driver, "side/answer", 1_000)
    assert len(answers) < 5, "one for each call that ran at once, and for an hour"


def test_a_gate_is_emptied_and_not_deleted(make_board: Any) -> None:
    board, other = make_board(), make_board()
    before = board.engine.store.read([], [GATE]).sides[0]
    board.pause(["a"])
    board.resume()
    after = board.engine.store.read([], [GATE]).sides[0]
    assert after.value is None
    assert after.tag != before.tag, "a claim that was decided before the pause is refused"
    assert values(driver_of(board), layout.GATE_PATH) == [b""]
    other.post("a")
    assert take(board)


def test_a_gate_that_was_deleted_is_made_anew(make_board: Any) -> None:
    board, other = make_board(), make_board()
    driver_of(board).commit([Op("delete", layout.GATE_PATH)])
    board.post_many([Posting("a")] * 3)
    assert take(board)
    assert take(other)
    driver_of(board).commit([Op("delete", layout.GATE_PATH)])
    board.pause()
    assert other.claim_next("bert") is None


def test_outcomes_are_dropped_in_steps(make_board: Any) -> None:
    board = make_board(keep_done=SHORT)
    board.post_many([Posting("a")] * 120)
    for _ in range(2):
        board.consume_many(board.claim_many("anna", 60), "anna")
    eventually(lambda: not list(board.outcomes()))
    store, driver = board.engine.store, driver_of(board)
    assert store.tidy(0)
    assert len(names(driver, layout.DONE)) >= 60, "a step is short"
    while store.tidy(0):
        pass
    assert everything(board) == {}


def test_outcomes_go_on_behind_one_that_is_gone(make_board: Any) -> None:
    board = make_board(keep_done=LONG)
    jobs = board.post_many([Posting("a")] * 9)
    for _ in jobs:
        board.consume(take(board), "anna")
    store: Store = board.engine.store
    first, place = store.sides("outcome", None, 4)
    assert [side.key for side in first.sides] == uuids(jobs[:4:-1])
    last = first.sides[-1]
    store.commit([], [Mark(last, None)])
    for behind in (place, last):
        assert [side.key for side in store.sides("outcome", behind, 10)[0].sides] == uuids(jobs[4::-1])


# What it tells apart: no tag is ever had twice


def stored(store: Store, uuid: str) -> Stored:
    [job] = store.read([uuid]).jobs
    assert job is not None
    return job


def draft(uuid: str) -> Draft:
    return Draft(uuid, "a", 100, None, codec.VERSION, codec.encode(codec.Content({}), "msgpack"), None, None, None)


def assert_stale(store: Store, before: Stored) -> None:
    """Nothing can be done with what was read before, and nothing is done."""
    uuid = before.record.uuid
    now = store.read([uuid]).jobs
    for after in (before.record, None):
        with pytest.raises(Stale) as stale:
            store.commit([Change(before, after)])
        assert stale.value.uuids <= {uuid}
    assert store.read([uuid]).jobs == now


def test_a_job_that_is_restored_and_trashed_again_is_another(make_board: Any) -> None:
    board, other = make_board(), make_board()
    job = board.post("a")
    board.cancel(job)
    trashed = stored(board.engine.store, job.uuid)
    other.restore(other.get(job.uuid))
    assert_stale(board.engine.store, trashed)
    restored = stored(board.engine.store, job.uuid)
    other.cancel(other.get(job.uuid))
    assert_stale(board.engine.store, trashed)
    assert_stale(board.engine.store, restored)


def test_a_job_that_is_purged_and_posted_again_is_another(make_board: Any) -> None:
    """Of the same uuid, name and content, in the same state, made and deleted as often as before."""
    board, other = make_board(), make_board()
    store, uuid = board.engine.store, uuid4().hex
    seen = []
    for each in (board, other, board, other):
        each.engine.store.commit([Change(None, draft(uuid))])
        seen.append(stored(store, uuid))
        each.cancel(each.get(uuid))
        seen.append(stored(store, uuid))
        each.purge(each.get(uuid))
        with pytest.raises(Stale):
            store.commit([Change(seen[-1], seen[-1].record)])
        assert store.read([uuid]).jobs == [None]
    other.engine.store.commit([Change(None, draft(uuid))])
    for each in seen:
        assert_stale(store, each)
    tags = [each.tag for each in (*seen, stored(store, uuid))]
    assert not any(one == two for at, one in enumerate(tags) for two in tags[:at])


def test_a_new_job_that_is_there_already_is_refused(make_board: Any) -> None:
    board, uuid = make_board(), uuid4().hex
    board.engine.store.commit([Change(None, draft(uuid))])
    with pytest.raises(Stale) as stale:
        board.engine.store.commit([Change(None, draft(uuid4().hex)), Change(None, draft(uuid))])
    assert stale.value.uuids <= {uuid}
    assert len(list(board.iterjobs())) == 1


@pytest.mark.parametrize("kind", ["key", "entity", "scope", "schedule", "purged", "answer"])
def test_a_side_record_that_is_deleted_and_made_again_is_another(make_board: Any, kind: str) -> None:
    store, other = make_board().engine.store, make_board().engine.store
    seen: list[Side] = []
    for each in (store, other, store):
        [absent] = each.read([], [(kind, "k")]).sides
        assert absent.value is None
        seen += each.commit([], [Mark(absent, b"same")]).sides
        seen += each.commit([], [Mark(seen[-1], b"same")]).sides
        each.commit([], [Mark(seen[-1], None)])
    [absent] = store.read([], [(kind, "k")]).sides
    [now] = other.commit([], [Mark(absent, b"same")]).sides
    for side in (*seen, absent):
        for value in (b"other", None) if side.tag is not None else (b"other",):
            with pytest.raises(Stale) as stale:
                store.commit([], [Mark(side, value)])
            assert stale.value.sides <= {(kind, "k")}
    assert store.read([], [(kind, "k")]).sides == [now]


# The order of posts


def test_posts_by_turns_are_served_in_turn(make_board: Any) -> None:
    boards = [make_board(), make_board()]
    posted = []
    for number in range(20):
        each = boards[number % 2]
        posted += each.post_many([Posting("a")] * (1 + number % 3))
    assert uuids(boards[0].iterjobs()) == uuids(posted)
    assert uuids(boards[1].claim_many("anna", 100)) == uuids(posted)


def test_those_who_post_at_once_keep_their_own_order(make_board: Any) -> None:
    boards = [make_board() for _ in range(3)]
    posted: list[list[str]] = [[] for _ in boards]

    def post(which: int) -> None:
        for _ in range(15):
            posted[which].append(boards[which].post("a").uuid)

    at_once(*(lambda which=which: post(which) for which in range(3)))  # type: ignore[misc]
    last = boards[0].post("a")
    served = uuids(boards[1].iterjobs())
    assert len(served) == len(set(served)) == 46
    assert served[-1] == last.uuid
    for some in posted:
        assert [uuid for uuid in served if uuid in some] == some


# Waiting


class Bell(Hears):
    """Rings without end, unless it is told not to; nobody sleeps by it."""

    def __init__(self) -> None:
        self.rings = True
        self.rests: list[float] = []

    def nap(self, seconds: float) -> bool:
        return self.rings

    def rest(self, seconds: float) -> None:
        self.rests.append(seconds)


@pytest.mark.backends("memory")
def test_a_waiter_looks_at_once_and_then_every_20_ms(make_board: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second look is put off where the bell goes on ringing, and not the first one after some quiet."""
    clock = [1_000.0]
    monkeypatch.setattr("jobboard.kv.store.boottime", lambda: clock[0])
    waiting: Store = make_board().engine.store
    bell = waiting.hears = Bell()

    def rested(later: float, limit: float = LONG) -> list[float]:
        clock[0] += later
        bell.rests.clear()
        waiting.wait(None, codec.VERSION, limit, True)
        return bell.rests

    assert rested(1) == []
    assert rested(0.005) == [pytest.approx(0.015)]
    assert rested(0.015, limit=0.001) == [0.001]
    assert rested(0.03) == []
    bell.rings = False
    assert rested(0) == [], "its time has ended"


# Looks that others beat


@pytest.fixture
def meanwhile(backend: str, monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """What happens between the listing of a look and the reading of the jobs that it has listed."""
    acts: list[Callable[[], object]] = []
    made = driver_class(backend)
    read, busy = made.read, threading.Lock()

    def reading(self: Driver, paths: Any, ranges: Any = (), fresh: bool = True) -> Any:
        if acts and not ranges and len(paths) and paths[0].startswith("job/") and busy.acquire(blocking=False):
            try:
                acts.pop(0)()
            finally:
                busy.release()
        return read(self, paths, ranges, fresh)

    monkeypatch.setattr(made, "read", reading)
    return acts


@pytest.mark.parametrize("is_done", [False, True])
def test_a_look_whose_jobs_are_all_gone_is_made_again(
    make_board: Any, meanwhile: list[Callable[[], object]], is_done: bool
) -> None:
    """Whether another has only claimed them, or is done with them already."""
    board, other = make_board(), make_board()
    assert board.claim_next("anna") is None, "it knows the gate from now on, and looks once"
    first = board.post("a")
    late: list[Any] = []

    def snatch() -> None:
        job = take(other, "bert")
        if is_done:
            other.consume(job, "bert")
        late.append(other.post("a"))

    meanwhile.append(snatch)
    assert [take(board)] == late
    assert late != [first]
    assert meanwhile == []


def test_a_look_is_not_made_again_for_ever(
    make_board: Any, meanwhile: list[Callable[[], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobboard.kv.store.TRIES", 5)
    board, other = make_board(retry_for=0), make_board()
    board.post("a")

    def snatch() -> None:
        other.post("a")
        other.consume(take(other, "bert"), "bert")

    meanwhile.extend([snatch] * 100)
    with pytest.raises(ConnectionFailure, match="others had taken all"):
        board.claim_next("anna")
    assert 50 < len(meanwhile) < 100


def test_what_rings_before_the_first_watch_is_not_slept_through(
    make_board: Any, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    board, other = make_board(), make_board()
    made, mine, late = driver_class(backend), driver_of(board), []
    watch = made.watch

    def watching(self: Driver) -> None:
        if self is mine and not late:
            late.append(other.post("a"))
        watch(self)

    monkeypatch.setattr(made, "watch", watching)
    waiter = Waiter(board, lambda: board.claim_next("anna", timeout=LONG))
    assert waiter.wait() == late[0]


# What is damaged


def ready(board: Any) -> Any:
    return board.post("a", key="k", group="g")


def claimed(board: Any) -> Any:
    job = ready(board)
    board.claim(job, "bert", expiry=LONG)
    return job


def kept(board: Any) -> Any:
    job = ready(board)
    board.claim(job, "bert")
    return job


def delayed(board: Any) -> Any:
    return board.post("a", delay=SHORT)


def lapsed(board: Any) -> Any:
    job = ready(board)
    board.claim(job, "bert", expiry=SHORT)
    return job


@pytest.mark.parametrize("make", [ready, delayed, lapsed])
@pytest.mark.parametrize("garbage", [b"\xc1", b"", b"\x93\x01\x02\x03"], ids=bytes.hex)
def test_a_damaged_job_goes_to_the_trash(
    make_board: Any, make: Callable[[Any], Any], garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """With the reason, and under none of the names that it had; and the job behind it is served."""
    board = make_board()
    job = make(board)
    driver = driver_of(board)
    driver.commit([Op("put", layout.job_path(job.uuid), garbage)])
    fine = board.post("b")
    with caplog.at_level(logging.WARNING, "jobboard"):
        assert take(board) == fine
        eventually(lambda: board.claim_next("anna") is None and walked(driver, layout.TIMED, 10) == [])
    assert job.uuid in caplog.text
    [trashed] = board.trashed()
    assert (trashed.uuid, board.stats().trashed, board.job_count) == (job.uuid, 1, 1)
    assert "can't be decoded" in trashed.error
    found = everything(board)
    assert [name for index in (layout.READY, layout.TIMED) for name in found.get(index, [])] == []
    assert len(found[layout.LIVE]) == 1
    board.purge(trashed)
    board.consume(fine, "anna")
    assert [place for place in everything(board) if not place.startswith("side/")] == []


@pytest.mark.parametrize("make", [ready, claimed, kept, delayed])
def test_a_damaged_job_is_read_as_trashed(make_board: Any, make: Callable[[Any], Any]) -> None:
    """Whatever it was. It is passed over by those who read the board, and can be purged with all that leads to it."""
    board, other = make_board(), make_board()
    job = make(board)
    driver_of(board).commit([Op("put", layout.job_path(job.uuid), b"\xc1")])
    fine = board.post("b", delay=LONG)
    assert job.state == TRASHED
    assert list(other.iterjobs()) == [fine]
    other.purge(job)
    found = everything(board)
    assert job.uuid not in str({place: some for place, some in found.items() if place != "side/purged"})


def test_a_damaged_job_in_the_trash_keeps_its_place(make_board: Any) -> None:
    board = make_board()
    jobs = board.post_many([Posting("a")] * 3)
    for job in jobs:
        board.cancel(job)
    driver_of(board).commit([Op("put", layout.job_path(jobs[1].uuid), b"\xc1")])
    assert uuids(board.trashed()) == uuids(jobs[::-1])
    [last] = board.engine.raw.trash_page(board.engine.raw.trash_page(None, 2)[-1], 2)
    assert last.uuid == jobs[0].uuid
    board.purge(jobs[1])
    assert uuids(board.trashed()) == uuids([jobs[2], jobs[0]])


def test_the_doctor_names_damaged_records_and_where_they_are(make_board: Any) -> None:
    """Jobs in every state, and side records of every kind; what it says to do helps."""
    board = make_board(keep_done=LONG)
    driver, usual = driver_of(board), list(board.examine())
    board.schedule("nightly", every=LONG, name="nightly")
    board.register_entity(Entity("conductor", "one"))
    board.set_limit("a", concurrency=1)
    board.consume(claimed(board), "bert")
    purged, trashed = board.post_many([Posting("a")] * 2)
    for job in (purged, trashed):
        board.cancel(job)
    board.purge(purged)
    jobs = [trashed, kept(board), board.post("b"), board.post("b", delay=LONG)]
    assert list(board.examine()) == usual
    for folder in FOLDERS:
        for name in walked(driver, folder, 500):
            driver.commit([Op("put", f"{folder}/{name}", b"\xc1")])
    damaged = [f"{folder}/{name}" for folder in FOLDERS for name in walked(driver, folder, 500)]
    assert {path.rpartition("/")[0] for path in damaged} == set(FOLDERS)
    found = {odd.place: odd for odd in board.examine() if odd not in usual}
    assert {driver.place(path) for path in damaged} == found.keys()
    assert all(odd.reason and odd.advice for odd in found.values())
    for job in jobs:
        assert f"jobboard trash purge {job.uuid}" in found[driver.place(layout.job_path(job.uuid))].advice
        board.purge(job)
    driver.commit([Op("delete", path) for path in damaged if not path.startswith("job/")])
    assert list(board.examine()) == usual


def test_names_that_are_none_are_passed_over(make_board: Any, caplog: pytest.LogCaptureFixture) -> None:
    board = make_board()
    driver_of(board).commit([Op("add", f"{index}/000.no job at all") for index in (layout.READY, layout.LIVE)])
    job = board.post("a")
    with caplog.at_level(logging.WARNING, "jobboard"):
        assert list(board.iterjobs()) == [job]
        assert take(board) == job
    assert "no job at all" in caplog.text


def test_the_trash_is_read_newest_first_with_claims_that_have_just_ended(make_board: Any) -> None:
    board = make_board()
    first, second, third = board.post_many([Posting("a", max_attempts=1)] * 3)
    board.cancel(first)
    board.claim(second, "anna", expiry=SHORT)
    eventually(lambda: board.stats().trashed == 2)
    board.cancel(third)
    assert uuids(board.trashed()) == uuids([third, second, first])
    page = board.engine.raw.trash_page(None, 1)
    rest = board.engine.raw.trash_page(page[-1], 5)
    assert [record.uuid for record in (*page, *rest)] == uuids([third, second, first])
    assert board.stats().claimed == 0


def test_jobs_of_far_days_are_in_order(make_board: Any) -> None:
    board = make_board()
    far = board.post("a", due=datetime(2250, 1, 1, tzinfo=UTC))
    near = board.post("a", delay=SHORT)
    assert take(board, timeout=LIMIT) == near
    assert {job.uuid: job.seen_state for job in board.iterjobs()} == {near.uuid: CLAIMED, far.uuid: SCHEDULED}
    assert driver_of(board).read([], [Range(layout.TIMED, 5)]).names[0][-1].endswith(far.uuid)
    assert board.stats().on_board == len(list(board.iterjobs(states=LIVE))) == 2
