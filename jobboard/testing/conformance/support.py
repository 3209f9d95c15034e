"""Fixtures over the author's ``make_board``, and helpers of the suite's tests."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar
from uuid import uuid4

import pytest

from jobboard import codec
from jobboard.board import JobBoard
from jobboard.exceptions import ConnectionFailure
from jobboard.job import Job
from jobboard.primitives import Draft, Nonce
from jobboard.states import Record
from jobboard.testing import eventually

T = TypeVar("T")

SHORT = 0.05
"""A lease or a delay that is meant to end within the test, in seconds. No test relies on one that still runs."""

HELD = 1.5
"""A lease whose heartbeat or end a test waits for, in seconds. No test relies on its being renewed in time."""

STEADY = 3.0
"""A lease that has to be renewed in time, in seconds: a busy machine may stop a process for two thirds of it."""

HOLDS = 1.5
"""The number of its leases for which a test watches a claim: it has been renewed three times by then."""

LONG = 600.0
"""A lease or a delay that does not end within the test."""

LIMIT = 20.0
"""The seconds for which a test waits for an event that has to come."""

PATIENCE = 2 * LIMIT
"""The timeout of a call that has to be woken. It looks once more when that ends: too late for the test by then."""

_numbers = itertools.count(1)


class MakeBoard(Protocol):
    """The fixture that a backend's author provides."""

    def __call__(self, name: str = "board", **options: Any) -> JobBoard: ...


@pytest.fixture
def board(make_board: MakeBoard) -> JobBoard:
    """Return a connected board without jobs."""
    return make_board()


@pytest.fixture
def other(board: JobBoard, make_board: MakeBoard) -> JobBoard:
    """Another handle on the same board."""
    return make_board()


def take(board: JobBoard, who: str = "anna", **arguments: Any) -> Job:
    """Claim the next job; there has to be one."""
    job = board.claim_next(who, **arguments)
    assert job is not None, "there is no job to claim"
    assert job.claim is not None
    return job


def let_lapse(board: JobBoard, job: Job, who: str = "anna") -> None:
    """Claim a job and wait until the lease has run out."""
    board.claim(job, who, expiry=SHORT)
    until_free(board, job)


def until_free(board: JobBoard, job: Job) -> None:
    """Wait, on a handle of its own, until nobody has claimed the job."""
    watched = board.get(job.uuid)
    eventually(lambda: board.find_owner(watched) is None, LIMIT)


def trash_one(board: JobBoard, name: str = "bad", **arguments: Any) -> Job:
    """Return a new job that lies in the trash."""
    job = board.post(name, **arguments)
    board.claim(job, "anna")
    board.trash(job, "anna", reason="no use")
    return job


# Below the board. Only these functions, and those that break a call further down, reach its engine and its store, whose
# calls the author of a backend knows. What users can do is tested by the verbs of the board.


def engine_of(board: JobBoard) -> Any:
    """Return the engine, for calls with a nonce of the test's own."""
    return board.engine.raw


def calls_of(board: JobBoard) -> Any:
    """Return the engine's calls as the board makes them, with its own nonces and repetitions."""
    return board.engine


def store_of(board: JobBoard) -> Any:
    """Return the store, for tests that count, stop or damage its work."""
    return board.engine.store


def server_time(board: JobBoard) -> int:
    """Return the server's time in µs since 1970."""
    return int(board.engine.raw.now())


def wire_of(board: JobBoard) -> codec.Wire:
    """Return the encoding of postings in the store."""
    return board.engine.wire


def record_of(board: JobBoard, job: Job | str) -> Record | None:
    """Return the stored job, with its token, owner and lease."""
    [seen] = engine_of(board).read([job if isinstance(job, str) else job.uuid])
    record: Record | None = seen.record
    return record


def uuids(jobs: Any) -> list[str]:
    return [job.uuid for job in jobs]


def assert_order(board: JobBoard, got: list[T], expected: list[T]) -> None:
    """``got`` is as expected: exactly where the board serves in exact order, in some order elsewhere."""
    if board.characteristics.exact_order:
        assert got == expected
    else:
        assert sorted(map(str, got)) == sorted(map(str, expected))


def plant(board: JobBoard, posting: bytes | str, version: int = codec.VERSION, name: str = "poison") -> str:
    """Store a posting as it stands, past every check; the job's uuid."""
    number = next(_numbers)
    uuid = f"00000000-0000-4000-8000-{number:012d}"
    draft = Draft(uuid, name, 0, None, version, posting, None, None, None)
    board.engine.raw.insert(first_call(), [draft])
    return uuid


def first_call() -> Nonce:
    """Return the nonce of the first call of a new handle."""
    return Nonce(uuid4().hex, 1, 1)


@contextlib.contextmanager
def replaced(board: JobBoard, primitive: str, by: Callable[..., Any]) -> Iterator[None]:
    """Call ``by(original, *args, **kwargs)`` in place of a primitive of this handle's engine, or of its store."""
    owner = engine_of(board) if hasattr(engine_of(board), primitive) else store_of(board)
    original = getattr(owner, primitive)
    owner.__dict__[primitive] = lambda *args, **kwargs: by(original, *args, **kwargs)
    try:
        yield
    finally:
        del owner.__dict__[primitive]


@contextlib.contextmanager
def lost_reply(board: JobBoard, primitive: str, meanwhile: Callable[[], object] | None = None) -> Iterator[None]:
    """Carry out the next call of a primitive, and break the connection before its reply comes.

    :param meanwhile: what happens before the caller hears of it.
    """
    told: list[bool] = []

    def lose(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        answer = original(*args, **kwargs)
        if told:
            return answer
        told.append(True)
        if meanwhile is not None:
            meanwhile()
        raise ConnectionFailure("the connection broke", outcome="unknown")

    with replaced(board, primitive, lose):
        yield
    assert told, f"{primitive} was not called"


class Background:
    """A call on a thread of its own."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self.result: Any = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.result = self._call()
        except BaseException as error:  # noqa: BLE001 - raised again by wait()
            self.error = error

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def wait(self, seconds: float = LIMIT) -> Any:
        """Return the result of the call, or raise its error."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), f"not done within {seconds} s"
        if self.error is not None:
            raise self.error
        return self.result


class Waiter(Background):
    """A call that waits on a board: running it returns once it is asleep, or nearly so.

    A waiter that is not asleep yet finds what comes at its next look, so a test that wakes it too early still passes;
    but it wakes a sleeper nearly always, which is what it is about.
    """

    def __init__(self, board: JobBoard, call: Callable[[], Any]) -> None:
        asleep = threading.Event()

        def wait(original: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
            asleep.set()
            original(*args, **kwargs)

        with replaced(board, "wait", wait):
            super().__init__(call)
            eventually(lambda: asleep.is_set() or not self.running, LIMIT)


class EventLog:
    """The events of a board's notifier, in order."""

    def __init__(self, board: JobBoard, event: str = "*") -> None:
        self.seen: list[tuple[str, str]] = []
        board.notifier.register(event, self._hear)

    def _hear(self, event: str, details: dict[str, Any]) -> None:
        self.seen.append((event, details["job"].uuid))

    def of(self, job: Job | str) -> list[str]:
        uuid = job if isinstance(job, str) else job.uuid
        return [event for event, about in self.seen if about == uuid]

    def expect(self, job: Job | str, *events: str) -> None:
        """Exactly these have come about the job, within the limit."""
        with contextlib.suppress(AssertionError):
            eventually(lambda: self.of(job) == list(events), LIMIT)
        assert self.of(job) == list(events)
