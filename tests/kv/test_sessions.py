"""Sessions and events of the store, over a driver in memory whose session ends at will."""

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from jobboard.backends.memory import MemoryDriver, forget
from jobboard.board import JobBoard
from jobboard.exceptions import ClaimLost
from jobboard.job import Posting
from jobboard.kv import layout
from jobboard.kv.driver import ALIVE, MISSED, Op
from jobboard.kv.store import KVStore
from jobboard.primitives import Characteristics
from jobboard.runtime import boottime
from jobboard.testing import eventually
from jobboard.testing.conformance.support import LIMIT, EventLog, claim_one, engine_of, take, uuids
from jobboard.testing.drivers import names, walked

from .conftest import change, driver_of

_names = itertools.count(1)


class SessionDriver(MemoryDriver):
    """A driver whose session keeps the claims."""

    keeps = "session"
    margin = 20 * 10**6

    def open(self, *args: Any) -> Characteristics:
        return replace(super().open(*args), remote_events=True)

    def change(self) -> str:
        """Begin another session, while the session before still lives. Return the session before."""
        before, self._session = self.session(), None
        return before

    def lose(self) -> None:
        """End the session, as a server does."""
        self.end(self.change())

    def end(self, session: str) -> None:
        self.commit([Op("remove", f"{ALIVE}/{session}")])
        self._shelf.tell(MISSED)


class SessionStore(KVStore):
    driver = SessionDriver


@pytest.fixture
def make() -> Iterator[Callable[..., Any]]:
    name = f"sessions {next(_names)}"
    with contextlib.ExitStack() as stack:
        stack.callback(forget, name)

        def board(**options: Any) -> JobBoard:
            # No beat comes by itself within a test.
            made = JobBoard(name, {"board": "memory", "claim_ttl": 600, **options}, store=SessionStore)
            made.connect()
            stack.callback(made.close)
            return made

        yield board


def held(jobs: list[Any]) -> list[tuple[str, int]]:
    return [(job.uuid, job.claim.token) for job in jobs]


def holders_of(board: Any) -> set[str]:
    return {name.split(".")[0] for name in walked(driver_of(board), layout.KEPT, 500)}


def beat(board: Any, jobs: list[Any]) -> Any:
    return engine_of(board).renew(board.engine.handle, held(jobs), 10**9)


@pytest.mark.parametrize(("count", "lives"), [(1, False), (1, True), (250, True)])
def test_a_beat_moves_all_claims_of_the_session_before(make: Callable[..., Any], count: int, lives: bool) -> None:
    """The session before may have ended, or may still live."""
    board, other = make(), make()
    board.post_many([Posting("a")] * count)
    jobs = [job for _ in range(0, count, 100) for job in board.claim_many("anna", 100)]
    assert len(jobs) == count
    driver = driver_of(board)
    before = driver.change()
    if not lives:
        driver.end(before)
    renewed = beat(board, jobs)
    assert (renewed.lost, renewed.unkept) == ([], [])
    assert holders_of(board) == {driver.session()} != {before}
    if lives:
        driver.end(before)
    assert other.claim_next("bert") is None
    assert names(driver_of(other), layout.HOLDERS) == [driver.session()], "the session before holds nothing"
    assert other.stats().claimed == count
    commits: list[int] = []
    driver.commit, commit = lambda ops: commits.append(len(ops)) or commit(ops), driver.commit
    assert beat(board, jobs).lost == []
    assert commits == [], "the next beat has nothing to move"


@pytest.mark.rule("No more claims live than a concurrency limit allows.")
@pytest.mark.parametrize("nth", range(1, 6))
def test_a_slot_has_one_holder_where_a_session_ends_during_a_claim(make: Callable[..., Any], nth: int) -> None:
    """The session ends before the nth request of the claim. The slot goes to the claim, or stays with its holder."""
    board, other = make(), make()
    board.set_limit("a", concurrency=1)
    board.post_many([Posting("a")] * 2)
    assert other.claim_next("bert", names=["none"]) is None
    held_before = take(board)
    driver, requests = driver_of(other), itertools.count(1)

    def counting(request: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **more: Any) -> Any:
            if next(requests) == nth:
                driver_of(board).lose()
            return request(*args, **more)

        return counted

    driver.read, driver.commit = counting(driver.read), counting(driver.commit)
    mine = other.claim_next("bert")
    if next(requests) <= nth:
        assert nth > 3, "the claim takes several requests"
        driver_of(board).lose()
    lost = beat(board, [held_before]).lost
    assert (mine is None) == (lost == [])
    assert board.stats().claimed == 1


@pytest.mark.rule("A look on kv passes over no job that another call sweeps during the look.")
@pytest.mark.parametrize("nth", [2, 3])
def test_a_job_that_is_swept_during_a_look_keeps_its_place(make: Callable[..., Any], nth: int) -> None:
    """Another call sweeps the claim of an ended session between two readings of a look."""
    owner, board, other = make(), make(), make()
    first, _, _ = owner.post_many([Posting("a"), Posting("a"), Posting("b")])
    assert take(owner) == first
    driver_of(owner).lose()
    driver, requests = driver_of(board), itertools.count(1)
    read = driver.read

    def reading(*args: Any, **options: Any) -> Any:
        if next(requests) == nth:
            assert take(other, names=["b"]).name == "b"
        return read(*args, **options)

    driver.read = reading
    assert take(board) == first


def test_a_claim_is_never_stored_for_an_ended_session(make: Callable[..., Any]) -> None:
    """The session ends before the commit, which is refused and repeated in the next session."""
    board, other = make(), make()
    board.post_many([Posting("a")] * 2)
    take(board)
    driver = driver_of(board)
    commit = driver.commit

    def losing(ops: Any) -> Any:
        driver.commit = commit
        driver.lose()
        return commit(ops)

    driver.commit = losing
    second = take(board)
    assert board.find_owner(second) == "anna"
    assert holders_of(board) >= {driver.session()}
    assert other.claim_many("bert", 5) != [second]
    assert other.find_owner(second) == "anna"


@pytest.mark.rule(
    "A job that others see in the trash, as its last claim has lapsed, is not ended or extended by an "
    "act decided before."
)
@pytest.mark.parametrize("verb", ["consume", "abandon", "trash", "extend", "renew"])
def test_a_worn_out_job_stays_in_the_trash(make: Callable[..., Any], verb: str) -> None:
    """The session ends before the commit of an act on the last allowed claim. Others see the job in the trash."""
    board, other = make(), make()
    board.post("a", max_attempts=1)
    job = take(board)
    driver = driver_of(board)
    commit, session = driver.commit, driver.change()

    def late(ops: Any) -> Any:
        driver.commit = commit
        driver.end(session)
        assert uuids(other.trashed()) == [job.uuid]
        return commit(ops)

    driver.commit = late
    if verb == "renew":
        assert beat(board, [job]).lost == held([job])
    else:
        with pytest.raises(ClaimLost):
            getattr(board, verb)(job, "anna")
    assert uuids(other.trashed()) == [job.uuid]
    assert board.stats().claimed == 0


@pytest.mark.rule("A closed board leaves no lease.")
def test_a_closed_board_holds_nothing(make: Callable[..., Any]) -> None:
    board, other = make(), make()
    board.post("a")
    take(board)
    session = driver_of(board).session()
    board.close()
    assert take(other).attempts == 1, "a claim that is given back uses up no attempt"
    assert other.claim_next("bert") is None
    driver = driver_of(other)
    assert session not in (*names(driver, layout.HOLDERS), *names(driver, ALIVE), *holders_of(other))


def test_a_damaged_claim_of_an_ended_session_goes_to_the_trash(make: Callable[..., Any]) -> None:
    board, other = make(), make()
    job = board.post("a", key="k")
    take(board)
    driver = driver_of(board)
    change(driver, "put", layout.job_path(job.uuid), b"\xc1")
    driver.lose()
    assert other.claim_next("bert") is None
    assert uuids(other.trashed()) == [job.uuid]
    assert (
        walked(driver, layout.KEPT, 10) == walked(driver, layout.LIVE, 10) == walked(driver, layout.HOLDERS, 10) == []
    )


def test_a_read_only_board_writes_nothing_behind_an_ended_session(make: Callable[..., Any]) -> None:
    board, reader = make(), make(read_only=True)
    job = claim_one(board, "a")
    board.consume(job, "anna")
    driver = driver_of(board)
    driver.lose()
    before = names(driver, layout.HOLDERS)
    assert list(reader.wait(timeout=0.01)) == [] if reader.job_count else True
    reader.engine.peek(None)
    assert names(driver, layout.HOLDERS) == before != []
    board.engine.peek(None)
    assert names(driver, layout.HOLDERS) == []


# Events


def test_jobs_of_other_boards_are_heard_once(make: Callable[..., Any]) -> None:
    """The board reports its own acts by itself, and does not hear them again."""
    board, other = make(), make()
    here = other.post("here before")
    events = EventLog(board)
    mine = board.post("mine")
    jobs = other.post_many([Posting("a")] * 120)
    eventually(lambda: all(events.of(job) == ["POSTED"] for job in jobs), LIMIT)
    other.consume(take(other, "bert"), "bert")
    eventually(lambda: events.of(here) == ["REMOVAL"], LIMIT)
    other.cancel(jobs[0])
    board.cancel(mine)
    eventually(lambda: events.of(jobs[0]) == ["POSTED", "TRASHED", "REMOVAL"], LIMIT)
    events.expect(mine, "POSTED", "TRASHED", "REMOVAL")
    last = other.post("last")
    eventually(lambda: events.of(last) == ["POSTED"], LIMIT)
    events.expect(mine, "POSTED", "TRASHED", "REMOVAL")
    assert events.of(here) == ["REMOVAL"]


def test_a_slow_listing_delays_no_event(make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The listing may have waited for a connection, and the board may be small."""
    board, other = make(), make()
    late = [0.0]
    monkeypatch.setattr("jobboard.runtime.boottime", lambda: boottime() + late[0])
    events = EventLog(board)
    driver = driver_of(board)
    read = driver.read

    def waiting(*args: Any, **more: Any) -> Any:
        late[0] = late[0] or LIMIT
        return read(*args, **more)

    driver.read = waiting
    eventually(lambda: late[0], LIMIT)
    job = other.post("a")
    eventually(lambda: events.of(job) == ["POSTED"], LIMIT)


@pytest.mark.rule("A board hears what other processes do.")
def test_the_listener_ends_with_the_last_registration(make: Callable[..., Any]) -> None:
    def listeners() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name == "jobboard-listener"}

    board, other = make(), make()
    heard: list[Any] = []

    def hear(event: str, details: Any) -> None:
        heard.append(details["job"])

    before = listeners()
    board.notifier.register("POSTED", hear)
    # Those of other tests may still be about to end.
    assert len(listeners() - before) == 1
    first = other.post("a")
    eventually(lambda: heard == [first], LIMIT)
    board.notifier.deregister("POSTED", hear)
    eventually(lambda: listeners() <= before, LIMIT)
    board.notifier.register("POSTED", hear)
    second = other.post("a")
    eventually(lambda: heard == [first, second], LIMIT)
