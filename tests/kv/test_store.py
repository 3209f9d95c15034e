"""The store over a driver: its requests, its leftovers, its tags, and damaged records.

Tests of rules that no driver can break run on the driver in memory alone."""

import functools
import itertools
import logging
import re
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from jobboard import codec
from jobboard.engine import GATE, Change, Hears, Mark, Side, Stale, Store, Stored
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.job import Posting
from jobboard.kv import layout
from jobboard.kv.driver import Driver, Op
from jobboard.primitives import Draft
from jobboard.states import SCHEDULED, TRASHED, UNCLAIMED, claim
from jobboard.testing import eventually
from jobboard.testing.conformance.harness import Harness
from jobboard.testing.conformance.support import LIMIT, LONG, SHORT, Waiter, engine_of, let_lapse, take, uuids
from jobboard.testing.conformance.wire import QUIET
from jobboard.testing.drivers import names, values, walked
from tests.support.jobs import make_draft

from .conftest import DRIVERS, change, driver_class, driver_of

pytestmark = [pytest.mark.backends("memory"), pytest.mark.any_driver]

on_each_driver = pytest.mark.backends(*DRIVERS)
on_each_store = pytest.mark.backends(*DRIVERS, "redis")
"""Tests of the contract of stores, which Redis keeps without a driver."""

INDEXES = (layout.READY, layout.LIVE, layout.TIMED, layout.KEPT, layout.TRASH, layout.DONE, layout.OVER)
FOLDERS = ("job", "side/key", "side/purged", "side/entity", "side/scope", "side/schedule", "side/outcome")


def everything(board: Any) -> dict[str, list[str]]:
    """Return the names of all jobs and side records, answers left out, by index and folder."""
    driver = driver_of(board)
    return {place: found for place in (*INDEXES, *FOLDERS) if (found := walked(driver, place, 500))}


# Requests


@pytest.fixture
def asked(backend: str, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count requests to drivers, and the names and records of their answers. A heartbeat counts, too: boards with a
    ``claim_ttl`` of ``QUIET`` have none within a test."""
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


@on_each_driver
def test_no_count_is_negative_while_jobs_are_posted(
    make_board: Any, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The live jobs and the ready jobs are counted one after the other."""
    board = make_board()
    made = driver_class(backend)
    count = made.count

    def counting(self: Driver, place: str) -> int | None:
        counted = count(self, place)
        if place == layout.LIVE:
            board.post("resize")
        return counted

    monkeypatch.setattr(made, "count", counting)
    stats = board.stats()
    assert (stats.claimed, stats.unclaimed) == (0, 1)


def test_requests_of_a_verb_do_not_grow_with_the_board(make_board: Any, asked: Counter[str]) -> None:
    """Neither ready nor claimed nor delayed jobs add requests."""
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
    """A handle learns the rules from its first look, which reads the names, the jobs, and under limits the scopes."""
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
    for call in (lambda: new.claim_next("bert"), lambda: board.engine.peek(None).any):
        asked.clear()
        assert not call()
        assert asked["reads"] <= 4, "the claims in the full scope are read, too"
        assert asked["commits"] == 0


def test_a_take_by_name_reads_the_index_in_pages(make_board: Any, asked: Counter[str]) -> None:
    board = make_board(claim_ttl=QUIET)
    board.post_many([Posting("other", group=f"g{number}") for number in range(450)])
    wanted = board.post("wanted")
    assert board.claim_next("anna", names=["none"]) is None, "the board knows the gate from now on"
    asked.clear()
    assert board.claim_next("anna", names=["wanted"]) == wanted
    assert asked["reads"] <= 4
    assert asked["names"] < 500
    assert asked["records"] < 20


def test_a_page_of_a_rare_state_reads_a_part_of_the_board(make_board: Any, asked: Counter[str]) -> None:
    board = make_board(claim_ttl=QUIET)
    for _ in range(3):
        board.post_many([Posting("resize")] * 500)
    delayed = board.post("late", delay=LONG)
    asked.clear()
    page = board.engine.page(None, 10, None, frozenset({SCHEDULED}))
    assert asked["records"] < 1_100
    assert len(page) == 1
    assert page[0].state == UNCLAIMED, "the page ends with the last job that was read"
    assert list(board.iterjobs(states=[SCHEDULED])) == [delayed]


# Leftovers


@pytest.mark.rule("Tidying leaves no empty folder, in short steps.")
@on_each_driver
def test_ended_jobs_leave_nothing_behind(make_board: Any) -> None:
    """Keys, priorities, groups, delays, failures, the trash, schedules and outcomes are all removed."""
    board = make_board(keep_done=SHORT)
    board.post_many([Posting("resize", key=f"k{n}", group="g", priority=n % 3) for n in range(150)])
    board.post_many([Posting("crop", key=f"c{n}", key_for=SHORT, delay=SHORT / 2) for n in range(150)])
    board.schedule("nightly", every=3600, name="nightly")
    board.unschedule("nightly")
    board.cancel(board.post("bad", key="bad"))
    [bad] = board.trashed()
    board.restore(bad)
    board.abandon(take(board, names=["bad"]), "anna", delay=SHORT, error="no")
    left = 301
    while left:
        jobs = board.claim_many("anna", 100, timeout=LIMIT, expiry=LONG if left % 2 else None)
        board.consume_many(jobs, "anna")
        left -= len(jobs)

    def tidied() -> bool:
        while engine_of(board).tidy(1.0):
            pass
        return everything(board) == {}

    eventually(tidied, LIMIT)
    answers = names(driver_of(board), "side/answer", 1_000)
    assert len(answers) < 5, "each call that runs at the same time has one, for an hour"


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


def test_a_deleted_gate_is_created_again(make_board: Any) -> None:
    board, other = make_board(), make_board()
    change(driver_of(board), "delete", layout.GATE_PATH)
    board.post_many([Posting("a")] * 3)
    assert take(board)
    assert take(other)
    change(driver_of(board), "delete", layout.GATE_PATH)
    board.pause()
    assert other.claim_next("bert") is None


@pytest.mark.rule("Outcomes are dropped in steps.")
@pytest.mark.rule("A batch of outcomes is dropped by one commit.")
def test_outcomes_are_dropped_in_short_steps(make_board: Any) -> None:
    board = make_board(keep_done=SHORT)
    board.post_many([Posting("a")] * 120)
    for _ in range(2):
        board.consume_many(board.claim_many("anna", 60), "anna")
    eventually(lambda: not list(board.outcomes()))
    store, driver = board.engine.store, driver_of(board)
    assert store.tidy(0)
    assert len(names(driver, layout.DONE)) >= 60, "one step drops a part"
    while store.tidy(0):
        pass
    assert everything(board) == {}


@pytest.mark.rule("Outcomes page on behind an outcome that is gone.")
def test_a_walk_of_outcomes_goes_on_behind_a_deleted_one(make_board: Any) -> None:
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


# Tags


def stored(store: Store, uuid: str) -> Stored:
    [job] = store.read([uuid]).jobs
    assert job is not None
    return job


def draft(uuid: str) -> Draft:
    return make_draft(uuid, "msgpack")


def assert_stale(store: Store, before: Stored) -> None:
    """Assert that the commit refuses every change of this version, and changes nothing."""
    uuid = before.record.uuid
    now = store.read([uuid]).jobs
    for after in (before.record, None):
        with pytest.raises(Stale) as stale:
            store.commit([Change(before, after)])
        assert stale.value.uuids <= {uuid}
    assert store.read([uuid]).jobs == now


@pytest.mark.rule("No version of a job or a side record has the tag of another.")
@pytest.mark.rule("A tag of another life of a job or side record fits nothing.")
@on_each_store
def test_a_tag_of_a_purged_job_never_returns(make_board: Any) -> None:
    """A job of the same uuid, name and content, purged and posted as often as before, has other tags."""
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


@on_each_store
def test_a_commit_returns_the_jobs_that_a_reading_returns(make_board: Any) -> None:
    store, uuid = make_board().engine.store, uuid4().hex
    [posted] = store.commit([Change(None, draft(uuid))]).jobs
    assert store.read([uuid]).jobs == [posted] == store.look(1, None, 1).ready
    until = store.now() + 60_000_000 if store.traits.keeps == "lease" else None
    _, after = claim(posted.record, store.now(), "anna", "a handle", until)
    [claimed] = store.commit([Change(posted, after)]).jobs
    assert store.read([uuid]).jobs == [claimed] != [posted]
    assert len({posted.tag, claimed.tag, *(job and job.tag for job in store.read([uuid]).jobs)}) == 2


@pytest.mark.rule("No version of a job or a side record has the tag of another.")
@pytest.mark.rule("A tag of another life of a job or side record fits nothing.")
@on_each_store
def test_a_tag_of_a_deleted_side_record_never_returns(make_board: Any) -> None:
    store, other = make_board().engine.store, make_board().engine.store
    for kind in ("key", "schedule"):
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


# Waiting


class Bell(Hears):
    """A bell that rings without end, unless ``rings`` is false."""

    def __init__(self) -> None:
        self.rings = True
        self.rests: list[float] = []

    def nap(self, seconds: float) -> bool:
        return self.rings

    def sleep_unless_closed(self, seconds: float) -> None:
        self.rests.append(seconds)


@pytest.mark.rule("A waiter that is woken again and again rests 20 ms between two looks.")
def test_a_waiter_looks_at_once_and_then_every_20_ms(make_board: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bell that goes on ringing delays the second look. The first look after some quiet comes at once."""
    clock = [1_000.0]
    monkeypatch.setattr("jobboard.runtime.boottime", lambda: clock[0])
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
    assert rested(0) == [], "the time of the wait is over"


# Looks and takes of others


@pytest.fixture
def meanwhile(backend: str, monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """Acts of others between the listing of a look and its reading of the listed jobs."""
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


@pytest.mark.parametrize("is_done", [False, True], ids=["claimed", "consumed"])
def test_a_look_whose_jobs_others_have_taken_is_repeated(
    make_board: Any, meanwhile: list[Callable[[], object]], is_done: bool
) -> None:
    board, other = make_board(), make_board()
    assert board.claim_next("anna") is None, "the board knows the gate from now on, and looks once"
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


def test_a_look_is_given_up_after_some_repetitions(
    make_board: Any, meanwhile: list[Callable[[], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobboard.engine.tries.STORE", 5)
    board, other = make_board(retry_for=0), make_board()
    board.post("a")

    def snatch() -> None:
        other.post("a")
        other.consume(take(other, "bert"), "bert")

    meanwhile.extend([snatch] * 100)
    with pytest.raises(ConnectionFailure, match="others had taken all"):
        board.claim_next("anna")
    assert 50 < len(meanwhile) < 100


@pytest.mark.rule("A look on kv passes over no job that another call sweeps during the look.")
@on_each_driver
@pytest.mark.parametrize("due", [1, 5])
@pytest.mark.parametrize("nth", [2, 3])
def test_a_job_that_is_swept_during_a_look_keeps_its_place(make_board: Any, nth: int, due: int) -> None:
    """Another call sweeps the job between two readings of a look. Neither of them shows the job."""
    board, other = make_board(), make_board()
    jobs = [board.post("a", priority="HIGH", delay=SHORT) for _ in range(due)]
    board.post_many([Posting("a"), Posting("b")])
    eventually(lambda: {job.state for job in jobs} == {UNCLAIMED})
    driver, requests = driver_of(board), itertools.count(1)
    read = driver.read

    def reading(*args: Any, **options: Any) -> Any:
        if next(requests) == nth:
            assert take(other, names=["b"]).name == "b"
        return read(*args, **options)

    driver.read = reading
    assert take(board) == jobs[0]


def test_a_name_of_a_due_time_without_its_job_stops_nothing(make_board: Any) -> None:
    board = make_board()
    gone, fine = board.post("a", delay=SHORT), board.post("b")
    eventually(lambda: gone.state == UNCLAIMED)
    change(driver_of(board), "delete", layout.job_path(gone.uuid))
    assert take(board) == fine
    assert board.claim_next("anna") is None


@pytest.mark.rule("A repeated claim counts its lease from the earliest time that the server may have shown.")
def test_a_repeated_claim_counts_its_lease_from_the_earliest_time(
    make_board: Any, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time that the repetition reads may be behind the server's clock."""
    lag, made = 5 * 10**6, driver_class(backend)
    read, now = made.read, made.now

    def lagging(*args: Any, **options: Any) -> Any:
        found = read(*args, **options)
        return found._replace(now=found.now - lag)

    monkeypatch.setattr(made, "precision", lag)
    monkeypatch.setattr(made, "read", lagging)
    monkeypatch.setattr(made, "now", lambda self, exact=False: now(self) - (0 if exact else lag))
    board = make_board()
    job = board.post("a")
    with Harness(board).lost_reply():
        claim = board.claim(job, "anna", expiry=LONG)
    assert claim.expires_in() <= LONG


def test_a_waiter_looks_again_after_its_first_watch(
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


# Damage


def ready(board: Any) -> Any:
    return board.post("a", key="k", group="g")


def claimed(board: Any, expiry: float | None = LONG) -> Any:
    job = ready(board)
    board.claim(job, "bert", expiry=expiry)
    return job


def kept(board: Any) -> Any:
    return claimed(board, None)


def delayed(board: Any) -> Any:
    return board.post("a", delay=SHORT)


def lapsed(board: Any) -> Any:
    return claimed(board, SHORT)


@pytest.mark.rule("A job of garbage, and stray znodes, are set aside.")
@pytest.mark.rule("A damaged record is passed over.")
@on_each_driver
@pytest.mark.parametrize("make", [ready, delayed, lapsed])
def test_a_take_moves_a_damaged_job_to_the_trash(
    make_board: Any, make: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The trashed job has the reason, and no name of the indexes but its place in the trash."""
    board = make_board()
    job = make(board)
    driver = driver_of(board)
    change(driver, "put", layout.job_path(job.uuid), b"\xc1")
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
def test_a_damaged_job_is_read_as_trashed_and_can_be_purged(make_board: Any, make: Callable[[Any], Any]) -> None:
    board, other = make_board(), make_board()
    job = make(board)
    change(driver_of(board), "put", layout.job_path(job.uuid), b"\xc1")
    fine = board.post("b", delay=LONG)
    assert job.state == TRASHED
    assert list(other.iterjobs()) == [fine]
    other.purge(job)
    found = everything(board)
    assert job.uuid not in str({place: some for place, some in found.items() if place != "side/purged"})


@on_each_driver
def test_the_doctor_names_damaged_records_and_a_cure(make_board: Any) -> None:
    """The doctor reports jobs in every state, by their names on the server."""
    board = make_board(keep_done=LONG)
    driver, usual = driver_of(board), list(board.examine())
    trashed = board.post("a")
    board.cancel(trashed)
    jobs = [trashed, kept(board), board.post("b"), board.post("b", delay=LONG)]
    assert list(board.examine()) == usual
    for job in jobs:
        change(driver, "put", layout.job_path(job.uuid), b"\xc1")
    found = {odd.place: odd for odd in board.examine() if odd not in usual}
    assert {driver.place(layout.job_path(job.uuid)) for job in jobs} == found.keys()
    for job in jobs:
        assert f"jobboard trash purge {job.uuid}" in found[driver.place(layout.job_path(job.uuid))].advice
        board.purge(job)
    assert list(board.examine()) == usual


def test_malformed_names_of_an_index_are_passed_over(make_board: Any, caplog: pytest.LogCaptureFixture) -> None:
    board = make_board()
    driver_of(board).commit([Op("add", f"{index}/000.no job at all") for index in (layout.READY, layout.LIVE)])
    job = board.post("a")
    with caplog.at_level(logging.WARNING, "jobboard"):
        assert list(board.iterjobs()) == [job]
        assert take(board) == job
    assert "no job at all" in caplog.text


@pytest.mark.rule("A damaged time stops the board with an error that names the key, its value and the value to write.")
@pytest.mark.parametrize("index", [layout.TIMED, layout.OVER])
@pytest.mark.parametrize("name", ["!", "stray", f"{7:018d}", f"{7:018d}.{7:016d}"])
def test_a_malformed_time_is_an_error_that_says_what_to_delete(make_board: Any, index: str, name: str) -> None:
    board = make_board()
    driver, job = driver_of(board), board.post("a", delay=LONG)
    driver.commit([Op("add", f"{index}/{name}")])
    call = engine_of(board).tidy if index == layout.OVER else functools.partial(board.claim_next, "anna")
    with pytest.raises(JobFailure, match=re.escape(driver.place(f"{index}/{name}"))):
        call()
    driver.commit([Op("remove", f"{index}/{name}")])
    call()
    assert list(board.iterjobs()) == [job]


@on_each_driver
def test_a_name_whose_record_was_deleted_stops_nothing(make_board: Any, caplog: pytest.LogCaptureFixture) -> None:
    board = make_board()
    gone, fine = board.post("a"), board.post("b")
    driver = driver_of(board)
    change(driver, "delete", layout.job_path(gone.uuid))
    assert take(board) == fine
    with caplog.at_level(logging.WARNING, "jobboard"):
        assert board.claim_next("anna") is None
    assert gone.uuid in caplog.text


@pytest.mark.rule("The trash shows a job once that another call sweeps during the reading.")
@pytest.mark.parametrize("nth", range(1, 5))
def test_the_trash_shows_a_job_once_that_is_swept_meanwhile(make_board: Any, nth: int) -> None:
    board, other = make_board(), make_board()
    job = board.post("a", max_attempts=1)
    let_lapse(board, job)
    driver, requests = driver_of(board), itertools.count(1)
    read = driver.read

    def reading(*args: Any, **options: Any) -> Any:
        if next(requests) == nth:
            assert other.claim_next("bert") is None
        return read(*args, **options)

    driver.read = reading
    assert uuids(board.trashed()) == [job.uuid]


def test_the_trash_has_the_newest_first_with_fresh_lapses(make_board: Any) -> None:
    board = make_board()
    first, second, third = board.post_many([Posting("a", max_attempts=1)] * 3)
    board.cancel(first)
    board.claim(second, "anna", expiry=SHORT)
    eventually(lambda: board.stats().trashed == 2)
    board.cancel(third)
    assert uuids(board.trashed()) == uuids([third, second, first])
    page = board.engine.trash_page(None, 1)
    rest = board.engine.trash_page(page[-1], 5)
    assert [record.uuid for record in (*page, *rest)] == uuids([third, second, first])
    assert board.stats().claimed == 0
