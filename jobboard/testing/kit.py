"""The kit for tests of programs that post and work on jobs: what was posted, and the work on all of it."""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast, overload

from jobboard.backends.memory import ManualClock
from jobboard.board import JobBoard
from jobboard.conductor import Conductor
from jobboard.conductor.events import JOB_FAILED
from jobboard.job import Job
from jobboard.priorities import JobPriority
from jobboard.states import COMPLETE, SCHEDULED, TRASHED

if TYPE_CHECKING:
    # Programs that tests start import eventually(), and not asyncio for it.
    from jobboard.aio import AsyncConductor, AsyncJobBoard

DELAYS = 1000
"""The number of due times for which :func:`drain` moves the clock. More are taken for a handler that never ends."""

SHOWN = 10
"""The number of other jobs that an error shows."""


def assert_posted(
    board: JobBoard | AsyncJobBoard,
    name: str,
    *,
    details: Mapping[str, Any] | None = None,
    key: str | None = None,
    group: str | None = None,
    priority: int | str | JobPriority | None = None,
    count: int | None = None,
) -> list[Job]:
    """Return the jobs of this name that were posted, in the order of their posts. Fail if there is none.

    Jobs in any state count: trashed ones too, and consumed ones where ``keep_done`` keeps their outcome.

    :param details: only jobs with exactly these details.
    :param key: only jobs with this key.
    :param group: only jobs of this group.
    :param priority: only jobs of this priority.
    :param count: the exact number of these jobs; None for at least one.
    :raises AssertionError: there is another number of them.
    """
    board = cast("JobBoard", getattr(board, "sync", board))
    wanted: dict[str, Any] = {"details": details, "key": key, "group": group}
    wanted["priority"] = None if priority is None else int(JobPriority.convert(priority))
    wanted = {field: value for field, value in wanted.items() if value is not None}
    there = [*board.find(), *board.find(states=[TRASHED, COMPLETE])]
    there.sort(key=lambda job: (job.created_on, job.sequence))
    found = [job for job in there if job.name == name and all(getattr(job, field) == wanted[field] for field in wanted)]
    if len(found) == count or (count is None and found):
        return found
    such = "".join(f", {field}={value!r}" for field, value in wanted.items())
    others = [f"  {job.name!r}{_shown(job, wanted or ('details',))}" for job in there if job not in found]
    number = "at least 1" if count is None else count
    lines = [f"{name!r}{such}: {len(found)} posted, not {number}; other jobs: {len(others)}", *others[:SHOWN]]
    raise AssertionError("\n".join(lines + ["  ..."] * (len(others) > SHOWN)))


def _shown(job: Job, fields: Iterable[str]) -> str:
    return "".join(f", {field}={getattr(job, field)!r}" for field in fields)


@overload
def drain(conductor: Conductor, *, scheduled: bool = False) -> None: ...
@overload
def drain(conductor: AsyncConductor, *, scheduled: bool = False) -> Coroutine[Any, Any, None]: ...
def drain(conductor: Conductor | AsyncConductor, *, scheduled: bool = False) -> Coroutine[Any, Any, None] | None:
    """Run a conductor until nothing can be done, then raise what a handler has raised: ``drain(conductor)``, or ``await
    drain(conductor)`` of an AsyncConductor.

    The first error is raised; its notes count the others. Retry and Reject are none. Jobs that follow are done as well.
    A failed job comes back after its backoff, and so is left.

    :param scheduled: move the :class:`~jobboard.backends.memory.ManualClock` of the conductor's board to the due time
        of each delayed job, the soonest first, and do these jobs too: failed jobs until they have no attempt left.
    :raises ValueError: ``scheduled``, and the board has no such clock.
    :raises AssertionError: 1,000 due times have passed, and there is another delayed job.
    """
    twin = cast("Conductor", getattr(conductor, "sync", conductor))
    clock = twin.board.options.get("clock")
    if scheduled and not isinstance(clock, ManualClock):
        raise ValueError(
            f"drain(scheduled=True) moves a clock, and {twin.board} has none to move: use the fixture memory_board, or "
            'fetch {"board": "memory", "clock": ManualClock()}'
        )
    if twin is not conductor:
        return _drain_async(cast("AsyncConductor", conductor), clock if scheduled else None)
    with _raising(twin):
        twin.run(until_empty=True)
        for _ in _due_times(twin, clock if scheduled else None):
            twin.run(until_empty=True)
    return None


async def _drain_async(conductor: AsyncConductor, clock: ManualClock | None) -> None:
    with _raising(conductor.sync):
        await conductor.run(until_empty=True, signals=False)
        for _ in _due_times(conductor.sync, clock):
            await conductor.run(until_empty=True, signals=False)


@contextlib.contextmanager
def _raising(conductor: Conductor) -> Iterator[None]:
    """Raise the first error of the conductor's handlers within the block, at its end."""
    failures: list[BaseException] = []

    def note(event: str, told: dict[str, Any]) -> None:
        failures.append(told["error"])

    conductor.notifier.register(JOB_FAILED, note)
    try:
        yield
    finally:
        conductor.notifier.deregister(JOB_FAILED, note)
    if failures:
        first, *others = failures
        if others:
            first.add_note(f"{len(others)} more failed, the last with {others[-1]!r}")
        raise first


def _due_times(conductor: Conductor, clock: ManualClock | None) -> Iterator[None]:
    """Move the clock to the due time of the next delayed job that the conductor handles, again and again."""
    handlers, board = conductor.handlers, conductor.board
    names = list(handlers) if isinstance(handlers, Mapping) else None
    if clock is None:
        return
    for _ in range(DELAYS):
        with board.borrowed(lambda: None):
            job = next(board.find(names=names, states=[SCHEDULED]), None)
        if job is None or job.due is None:
            return
        # Boards count whole microseconds, and the clock rounds.
        clock.advance(max(0.0, job.due.timestamp() - clock()) + 1e-6)
        yield
    raise AssertionError(f"a job is still delayed after {DELAYS} due times: does its handler post it for ever?")
