"""Fixtures over the author's ``make_board``, and helpers of the suite's tests."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import pytest

from jobboard import codec
from jobboard.board import JobBoard
from jobboard.job import Job
from jobboard.states import Record
from jobboard.testing import eventually
from jobboard.testing.conformance.harness import Harness

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


def claim_one(
    board: JobBoard, name: str = "resize", who: str = "anna", expiry: float | None = None, **arguments: Any
) -> Job:
    """Return a new job that is claimed."""
    job = board.post(name, **arguments)
    board.claim(job, who, expiry)
    return job


def trash_one(board: JobBoard, name: str = "bad", **arguments: Any) -> Job:
    """Return a new job that lies in the trash."""
    job = claim_one(board, name, **arguments)
    board.trash(job, "anna", reason="no use")
    return job


def uuids(jobs: Any) -> list[str]:
    return [job.uuid for job in jobs]


def assert_order(board: JobBoard, got: list[T], expected: list[T]) -> None:
    """``got`` is as expected: exactly where the board serves in exact order, in some order elsewhere."""
    if board.characteristics.exact_order:
        assert got == expected
    else:
        assert sorted(map(str, got)) == sorted(map(str, expected))


# Short forms of the harness, for tests of the library itself.


def replaced(board: JobBoard, primitive: str, by: Callable[..., Any]) -> contextlib.AbstractContextManager[None]:
    return Harness(board).replaced(primitive, by)


def lost_reply(board: JobBoard) -> contextlib.AbstractContextManager[None]:
    return Harness(board).lost_reply()


def engine_of(board: JobBoard) -> Any:
    """Return the engine of a board, for a call with a nonce of the test's own, or for upkeep. See :class:`Harness`."""
    return Harness(board).engine


def record_of(board: JobBoard, job: Job | str) -> Record | None:
    return Harness(board).record(job)


def plant(board: JobBoard, posting: bytes | str, version: int = codec.VERSION) -> str:
    return Harness(board).plant(posting, version)[0]


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

    def join(self, seconds: float) -> None:
        """Wait at most so long for the end of the call."""
        self._thread.join(seconds)

    def wait(self, seconds: float = LIMIT) -> Any:
        """Return the result of the call, or raise its error."""
        self.join(seconds)
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

        with Harness(board).replaced("wait", wait):
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
