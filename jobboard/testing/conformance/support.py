"""What the tests of the suite share: fixtures over the author's ``make_board``, and small helpers."""

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
"""A lease that is renewed, in seconds: a busy machine may stop a process for longer than a third of a second."""

HOLDS = 1.75
"""For how many of its leases a test looks on: to stand for so long, it has been renewed three times at least."""

LONG = 600.0
"""A lease or a delay that does not end within the test."""

LIMIT = 10.0
"""How long a test waits for what has to happen."""

PATIENCE = 2 * LIMIT
"""The timeout of a call that has to be woken. It looks once more when that ends: too late for the test by then."""

_numbers = itertools.count(1)


class MakeBoard(Protocol):
    """The fixture that a backend's author provides."""

    def __call__(self, name: str = "board", **options: Any) -> JobBoard: ...


@pytest.fixture
def board(make_board: MakeBoard) -> JobBoard:
    """A connected board without jobs."""
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
    """A new job that lies in the trash."""
    job = board.post(name, **arguments)
    board.claim(job, "anna")
    board.trash(job, "anna", reason="no use")
    return job


def record_of(board: JobBoard, job: Job | str) -> Record | None:
    """The job as it is stored, with what a user does not see: token, owner and lease."""
    [seen] = board.engine.raw.read([job if isinstance(job, str) else job.uuid])
    return seen.record


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
    board.engine.raw.insert([draft], first_call())
    return uuid


def first_call() -> Nonce:
    """The first call of a handle that nobody else has."""
    return Nonce(uuid4().hex, 1, 1)


@contextlib.contextmanager
def replaced(board: JobBoard, primitive: str, by: Callable[..., Any]) -> Iterator[None]:
    """Call ``by(original, *args, **kwargs)`` in place of a primitive of this handle's engine."""
    engine = board.engine.raw
    original = getattr(engine, primitive)
    engine.__dict__[primitive] = lambda *args, **kwargs: by(original, *args, **kwargs)
    try:
        yield
    finally:
        del engine.__dict__[primitive]


@contextlib.contextmanager
def lost_reply(board: JobBoard, primitive: str, meanwhile: Callable[[], object] | None = None) -> Iterator[None]:
    """The next call of a primitive is carried out, but the connection breaks before its reply comes.

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
        """Its result; raises what it raised."""
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

        def wait(original: Callable[..., Any], *args: Any) -> None:
            asleep.set()
            original(*args)

        with replaced(board, "wait", wait):
            super().__init__(call)
            eventually(lambda: asleep.is_set() or not self.running, LIMIT)


class EventLog:
    """What a board's notifier tells, in order."""

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
