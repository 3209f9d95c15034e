"""Conductors under test: listeners, handlers that hang, outages, refusals, and runs on a thread."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import jobboard
from jobboard.aio import AsyncConductor, AsyncJobBoard
from jobboard.conductor import Conductor
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.outcomes import RetryPolicy
from jobboard.primitives import Finish
from jobboard.testing.requests import ENDS, Request, ends_claim, requests
from tests.support import handlers

MakeBoard = Callable[..., Any]

WAIT = 30
"""Seconds after which a handler that a test holds up fails."""

LATE = RetryPolicy(base=1000, cap=3600)
"""Failed jobs stay away for the rest of the test."""


class Observed(Protocol):
    """A conductor of either kind."""

    @property
    def notifier(self) -> Any: ...


def listen(conductor: Observed) -> list[tuple[str, dict[str, Any]]]:
    """Return a list to which the conductor adds its events. The list is complete once ``run()`` has returned."""
    heard: list[tuple[str, dict[str, Any]]] = []
    conductor.notifier.register("*", lambda event, details: heard.append((event, details)))
    return heard


def fail(error: BaseException) -> None:
    raise error


class Hanging:
    """A handler that works until the test opens its gate, whatever it is told."""

    def __init__(self) -> None:
        self.jobs: list[jobboard.Job] = []
        self.gate = threading.Event()
        self.begun = threading.Semaphore(0)
        self.ended = threading.Semaphore(0)

    def __call__(self, job: jobboard.Job) -> None:
        self.jobs.append(job)
        self.begun.release()
        assert self.gate.wait(WAIT)
        self.ended.release()

    def await_begin(self, jobs: int = 1) -> None:
        for _ in range(jobs):
            assert self.begun.acquire(timeout=WAIT)


class Outage:
    """Has requests of a board fail while it is ``on``.

    :param after: a request is carried out, and its answer is lost.
    """

    def __init__(self, board: Any, *kinds: Request, after: bool = False) -> None:
        self.failed = Counter[Request]()
        self.on = False
        for kind in kinds:
            requests(board).around(kind, functools.partial(self._broken, kind, after))

    def _broken(self, kind: Request, after: bool, request: Callable[..., Any], *args: Any, **extra: Any) -> Any:
        if not self.on:
            return request(*args, **extra)
        # A fast path that leaves the call to the engine has sent nothing, so no answer is lost.
        if after and not (answer := request(*args, **extra)):
            return answer
        self.failed[kind] += 1
        raise ConnectionFailure("the server has gone away", outcome="unknown" if after else "none")


class Refusal:
    """Has the backend of a board refuse to end jobs of a name while it is ``on``."""

    def __init__(self, board: Any, name: str, verb: str = "consume") -> None:
        self.met = 0
        self.on = True

        def is_refused(item: Any) -> bool:
            if isinstance(item, Finish):
                return item.name == name and item.end.verb == verb
            if not ends_claim(item) or item.before.record.name != name:
                return False
            return (item.after is None) == (verb == "consume")

        def refuse(request: Callable[..., Any], items: Any, *args: Any, **extra: Any) -> Any:
            if self.on and any(map(is_refused, items)):
                self.met += 1
                raise JobFailure("it lacks the right to")
            return request(items, *args, **extra)

        requests(board).around(ENDS, refuse)


def errors_of(run: Callable[[], object]) -> list[BaseException]:
    """Return the error that ``run`` raises on a thread of its own, if any. Fail if ``run`` does not return."""
    raised: list[BaseException] = []

    def call() -> None:
        try:
            run()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            raised.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(WAIT)
    assert not thread.is_alive()
    return raised


def run_async(conductor: AsyncConductor, max_dispatches: int | None = None) -> None:
    """Run a conductor for asyncio on a loop of its own."""
    asyncio.run(conductor.run(max_dispatches, signals=False))


class OnALoop(AsyncConductor):
    """A conductor for asyncio whose ``run`` blocks, as that of a Conductor does."""

    def run(self, max_dispatches: int | None = None) -> None:  # type: ignore[override]
        asyncio.run(super().run(max_dispatches, signals=False))


async def until_there(job: jobboard.Job) -> None:
    handlers.note(job, "begun")
    while not Path(job.details["notes"] + ".go").exists():
        await asyncio.sleep(0.01)


def conductor_of(board: Any, kind: str, slots: int) -> tuple[Any, Callable[..., object]]:
    """Return a conductor, and a handler that works until a file of the test is there."""
    if kind == "coroutines":
        return OnALoop("one", AsyncJobBoard(board), max_simultaneous_jobs=slots), until_there
    workers: Any = kind
    return Conductor("one", board, max_simultaneous_jobs=slots, workers=workers), handlers.until_there


def has_ended(pid: int) -> bool:
    """Return whether a process is gone, or a zombie that nobody has waited for."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


def counts_of(board: jobboard.JobBoard) -> tuple[int, int]:
    """Return how many handlers of the board's only conductor run, and how many hang."""
    [entity] = board.entities("conductor")
    return entity.metadata["running"], entity.metadata["hung"]


def assert_not_kept(board: Any, job: jobboard.Job) -> None:
    """The board renews the job's claim no longer."""
    assert board.claims.held() == []
    assert job.claim is not None
