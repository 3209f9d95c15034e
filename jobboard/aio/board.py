"""The jobboard for asyncio: the verbs of :class:`~jobboard.board.JobBoard` as coroutines.

A verb is its sync twin, called on a thread: :func:`_verb` makes the one from the other, signature and all. What is
written out here is what differs: waiting, and the cancellation of what claims.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from jobboard import arguments, outcomes
from jobboard.aio.lines import Catch, WaitingLine
from jobboard.aio.notifier import AsyncNotifier
from jobboard.aio.threads import Threads, outlast, see_through
from jobboard.aio.together import Together
from jobboard.backends import NAMESPACE
from jobboard.backends import fetch as fetch_sync
from jobboard.board import PAGE, JobBoard
from jobboard.claiming import Turn, WantedJobs, nothing_claimed, timeout_of, wishes
from jobboard.job import Claim, Job
from jobboard.primitives import Characteristics
from jobboard.tracing import Tracing

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 8
"""How many calls a board has under way at once, unless said, and so at most how many connections it uses for them."""

_ANYTHING = WantedJobs("", None, None, {})


def _verb(
    twin: Callable[Concatenate[JobBoard, P], T],
) -> Callable[Concatenate[AsyncJobBoard, P], Coroutine[Any, Any, T]]:
    """The verb as a coroutine."""

    @functools.wraps(twin)
    async def verb(self: AsyncJobBoard, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.call(twin, self.sync, *args, **kwargs)

    return verb


def _claiming_verb(
    twin: Callable[Concatenate[JobBoard, P], Claim],
) -> Callable[Concatenate[AsyncJobBoard, P], Coroutine[Any, Any, Claim]]:
    """The same of one whose claim is given back if it is cancelled."""

    @functools.wraps(twin)
    async def verb(self: AsyncJobBoard, /, *args: P.args, **kwargs: P.kwargs) -> Claim:
        [job] = await self._claimed(lambda: [twin(self.sync, *args, **kwargs).job])
        assert job.claim is not None
        return job.claim

    return verb


def _walk(
    twin: Callable[Concatenate[JobBoard, P], Iterator[T]],
) -> Callable[Concatenate[AsyncJobBoard, P], AsyncIterator[T]]:
    """What the twin iterates over, asynchronously. The twin itself asks nobody before its first step."""

    @functools.wraps(twin)
    def walk(self: AsyncJobBoard, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        return self._walked(twin(self.sync, *args, **kwargs))

    return walk


class AsyncWorking(contextlib.AbstractAsyncContextManager[Job, bool]):
    """The work on a job, as a block or as a function; see :meth:`AsyncJobBoard.working`."""

    def __init__(self, begin: Callable[[], contextlib.AbstractAsyncContextManager[Job, bool | None]]) -> None:
        self._begin = begin
        self._block: contextlib.AbstractAsyncContextManager[Job, bool | None] | None = None

    async def __aenter__(self) -> Job:
        if self._block is not None:
            raise RuntimeError("this block is being worked in already; ask the board for another one")
        self._block = block = self._begin()
        try:
            return await block.__aenter__()
        except BaseException:
            self._block = None
            raise

    async def __aexit__(self, *error: Any) -> bool:
        block, self._block = self._block, None
        assert block is not None
        return bool(await block.__aexit__(*error))

    def __call__(
        self, function: Callable[Concatenate[Job, P], Coroutine[Any, Any, T]]
    ) -> Callable[P, Coroutine[Any, Any, T | None]]:
        outcomes.check_handler(function, coroutine=True)

        @functools.wraps(function)
        async def work(*args: P.args, **kwargs: P.kwargs) -> T | None:
            async with self._begin() as job:
                result = await function(job, *args, **kwargs)
                outcomes.check_result(result)
                return result
            return None  # type: ignore[unreachable]  # the block swallows Retry and Reject

        return work


class AsyncJobBoard:
    """A board whose verbs are coroutines: arguments, outcomes and guarantees are those of its sync twin.

    :param board: the twin, as ``sync``. Both may be used at once, each where it fits, and either closes both.
    :param threads: how many calls may be under way at once, each on a connection; those beyond wait for their turn.
        Those who wait for a job are not among them: all who do share one thread and connection.

    **Cancellation.** A call that has not begun is not made. Of one that is under way it is not known whether it was
    carried out, and its end is not waited for: give a job that you post a ``key``, and posting it again is safe.
    ``claim``, ``claim_next`` and ``claim_many`` give back what they have claimed, without using up an attempt, before
    the cancellation goes on.

    A :class:`~jobboard.job.Job` and its claim are the same objects as elsewhere. What they know costs nothing; what
    asks the server blocks: use :meth:`state`, :meth:`expires_in` and :meth:`wait_for` for it, the verbs to end the
    claim, and :meth:`call` for anything else.
    """

    def __init__(self, board: JobBoard, *, threads: int = THREADS) -> None:
        self._board = board
        self._threads = Threads(board.name, arguments.limit(threads, "threads"))
        self._lines: dict[tuple[object, ...], WaitingLine[Any]] = {}
        self._look_at = Together(self._threads, _refresh)

    def __repr__(self) -> str:
        return f"<AsyncJobBoard of {self._board!r}>"

    async def __aenter__(self) -> Self:
        try:
            await self.connect()
        except BaseException:
            # Cancelled, it may be connected all the same.
            await self.close()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    @property
    def sync(self) -> JobBoard:
        """The twin, for threads; its verbs block."""
        return self._board

    @property
    def name(self) -> str:
        return self._board.name

    @property
    def connected(self) -> bool:
        """As :attr:`JobBoard.connected <jobboard.board.JobBoard.connected>`."""
        return self._board.connected

    @property
    def closed(self) -> bool:
        """As :attr:`JobBoard.closed <jobboard.board.JobBoard.closed>`."""
        return self._board.closed

    @property
    def characteristics(self) -> Characteristics:
        """As :attr:`JobBoard.characteristics <jobboard.board.JobBoard.characteristics>`."""
        return self._board.characteristics

    @property
    def table(self) -> Any:
        """As :attr:`JobBoard.table <jobboard.board.JobBoard.table>`."""
        return self._board.table

    @property
    def tracing(self) -> Tracing:
        """The twin's. What it is told of happens on a thread, in the context of the coroutine that acts."""
        return self._board.tracing

    @tracing.setter
    def tracing(self, tracing: Tracing) -> None:
        self._board.tracing = tracing

    @property
    def notifier(self) -> AsyncNotifier:
        """Where to listen to what happens on the board; callbacks may be coroutine functions."""
        return AsyncNotifier(self._board.notifier)

    # Life

    setup = _verb(JobBoard.setup)
    connect = _verb(JobBoard.connect)

    async def close(self) -> None:
        """As :meth:`JobBoard.close <jobboard.board.JobBoard.close>`. Whoever waits gets ConnectionFailure."""
        # Not among the others: these may all be at it to reach a backend that is away.
        apart = Threads(f"{self.name}-closing", 1)
        try:
            await see_through(apart.begin(self._board.close))
        finally:
            apart.close()
            self._threads.close()

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call something that blocks on one of the board's threads, in a copy of this task's context."""
        return await self._threads.call(function, *args, **kwargs)

    # Posting

    post = _verb(JobBoard.post)
    post_many = _verb(JobBoard.post_many)

    # Looking

    iterjobs = _walk(JobBoard.iterjobs)
    trashed = _walk(JobBoard.trashed)
    outcomes = _walk(JobBoard.outcomes)
    outcome = _verb(JobBoard.outcome)
    examine = _walk(JobBoard.examine)
    get = _verb(JobBoard.get)
    find_owner = _verb(JobBoard.find_owner)
    stats = _verb(JobBoard.stats)

    async def job_count(self) -> int:
        """How many jobs are on the board, in any state but trashed."""
        return await self.call(getattr, self._board, "job_count")

    async def state(self, job: Job) -> Any:
        """As :attr:`Job.state <jobboard.job.Job.state>`."""
        return await self.call(getattr, job, "state")

    async def expires_in(self, job: Job) -> float | None:
        """As :meth:`Job.expires_in <jobboard.job.Job.expires_in>`."""
        return await self.call(job.expires_in)

    async def wait_for(
        self,
        job: Job,
        timeout: float | None = None,
        delay: float = 0.01,
        delay_multiplier: float = 2.0,
        max_delay: float = 60.0,
    ) -> bool:
        """As :meth:`Job.wait <jobboard.job.Job.wait>`; holds no thread between two looks. Many who look at once do so
        by one request for a hundred of them."""
        looks = job._looks(timeout, delay, delay_multiplier, max_delay)
        await self._look_at(job)
        while isinstance(pause := next(looks), float):
            await asyncio.sleep(pause)
            await self._look_at(job)
        return pause

    async def result(self, job: Job, timeout: float | None = None) -> Any:
        """As :meth:`Job.result <jobboard.job.Job.result>`; holds no thread between two looks."""
        if not await self.wait_for(job, timeout):
            raise job._not_done(timeout)
        return await self.call(self._board._result, job)

    async def wait(self, timeout: float | None = None) -> AsyncIterator[Job]:
        """As :meth:`JobBoard.wait <jobboard.board.JobBoard.wait>`; any number of coroutines wait on one thread."""
        timeout_of(timeout)
        if not await self._wait_in_line(self._peek, _nothing, _ANYTHING, 1, timeout):
            raise nothing_claimed(timeout)
        return self.iterjobs(only_unclaimed=True)

    # Claiming

    claim = _claiming_verb(JobBoard.claim)
    wake = _verb(JobBoard.wake)

    async def claim_next(
        self,
        /,
        who: str,
        *,
        expiry: float | None = None,
        names: Iterable[str] | None = None,
        timeout: float | None = 0,
        unless: Callable[[], bool] | None = None,
        **extra: Any,
    ) -> Job | None:
        """As :meth:`JobBoard.claim_next <jobboard.board.JobBoard.claim_next>`. Those who wait are served in the order
        in which they came, among those who wait for the same names; ``unless`` is asked on the loop."""
        wanted = self._board._wanted(who, expiry, names, self._board._extras("claim_next", extra))
        jobs = await self._take(wanted, 1, timeout, unless)
        return jobs[0] if jobs else None

    async def claim_many(
        self,
        /,
        who: str,
        limit: int,
        *,
        expiry: float | None = None,
        names: Iterable[str] | None = None,
        timeout: float | None = 0,
        unless: Callable[[], bool] | None = None,
        **extra: Any,
    ) -> list[Job]:
        """As :meth:`JobBoard.claim_many <jobboard.board.JobBoard.claim_many>`; otherwise as :meth:`claim_next`."""
        limit = arguments.limit(limit)
        wanted = self._board._wanted(who, expiry, names, self._board._extras("claim_many", extra))
        return await self._take(wanted, limit, timeout, unless)

    def working(
        self, /, who: str, *, names: Iterable[str] | None = None, timeout: float | None = None, **extra: Any
    ) -> AsyncWorking:
        """``async with board.working(who) as job:`` is :meth:`JobBoard.working <jobboard.board.JobBoard.working>`.

        A body that is cancelled has failed, as one that is interrupted: its job is abandoned before the cancellation
        goes on. ``@board.working(who)`` is for coroutine functions.
        """
        return AsyncWorking(lambda: self._working(who, {"names": names, "timeout": timeout, **extra}))

    @contextlib.asynccontextmanager
    async def _working(self, who: str, wish: dict[str, Any]) -> AsyncIterator[Job]:
        job: Job | None = None
        try:
            for each in wishes(wish):
                job = await self.claim_next(who, **each)
                if job is None:
                    raise nothing_claimed(wish["timeout"])
                verdict = outcomes.refused_work(job)
                if verdict is None:
                    break
                refused, job = job, None
                await see_through(self._threads.begin(self._board._refuse, refused, verdict))
            assert job is not None
            with self._board._work_on(job):
                yield job
        except BaseException as error:
            if job is None or not await see_through(self._threads.begin(self._board._work_ended, job, error)):
                raise
        else:
            await see_through(self._threads.begin(self._board._work_ended, job, None))

    # Ending a claim

    extend = _verb(JobBoard.extend)
    abandon = _verb(JobBoard.abandon)
    consume = _verb(JobBoard.consume)
    consume_many = _verb(JobBoard.consume_many)
    finish_many = _verb(JobBoard.finish_many)
    trash = _verb(JobBoard.trash)

    # Operating

    release = _verb(JobBoard.release)
    cancel = _verb(JobBoard.cancel)
    restore = _verb(JobBoard.restore)
    purge = _verb(JobBoard.purge)
    purge_trash = _verb(JobBoard.purge_trash)
    siblings = _verb(JobBoard.siblings)
    pause = _verb(JobBoard.pause)
    resume = _verb(JobBoard.resume)
    paused = _verb(JobBoard.paused)
    set_limit = _verb(JobBoard.set_limit)
    limits = _verb(JobBoard.limits)
    remove_limit = _verb(JobBoard.remove_limit)

    # Schedules

    schedule = _verb(JobBoard.schedule)
    schedules = _verb(JobBoard.schedules)
    unschedule = _verb(JobBoard.unschedule)
    kept_stats = _verb(JobBoard.kept_stats)

    # Entities

    register_entity = _verb(JobBoard.register_entity)
    deregister_entity = _verb(JobBoard.deregister_entity)
    entities = _verb(JobBoard.entities)

    # Within

    async def _walked(self, iterator: Iterator[T]) -> AsyncIterator[T]:
        while items := await self.call(lambda: list(itertools.islice(iterator, PAGE))):
            for item in items:
                yield item

    async def _claimed(self, claim: Callable[[], list[Job]]) -> list[Job]:
        begun = self._threads.begin(claim)
        claimed = asyncio.wrap_future(begun)
        try:
            await asyncio.wait([claimed])
        except asyncio.CancelledError:
            if not begun.cancel():
                # What was not claimed need not be given back.
                with contextlib.suppress(Exception):
                    jobs = await outlast(claimed)
                    await outlast(self._threads.begin(lambda: self._board._give_back(jobs)))
            raise
        return claimed.result()

    async def _take(
        self, wanted: WantedJobs, limit: int, timeout: float | None, unless: Callable[[], bool] | None
    ) -> list[Job]:
        timeout_of(timeout)
        board = self._board
        if timeout != 0:
            jobs = await self._wait_in_line(self._look, board._give_back, wanted, limit, timeout, unless)
            if jobs is not None:
                return jobs
        elif unless is not None and unless():
            return []
        return await self._claimed(lambda: board._look(board._live(), wanted, limit)[0])

    def _look(self, turn: Turn, wanted: WantedJobs, limit: int) -> Catch[Job]:
        jobs, taken = self._board._look(turn.session, wanted, limit)
        return Catch(jobs, taken.mark, taken.next_event)

    def _peek(self, turn: Turn, wanted: WantedJobs, limit: int) -> Catch[bool]:
        peeked = self._board._peek(turn.session)
        return Catch([True] * limit if peeked.any else [], peeked.mark, peeked.next_event)

    async def _wait_in_line(
        self,
        look: Callable[[Turn, WantedJobs, int], Catch[T]],
        give_back: Callable[[list[T]], object],
        wanted: WantedJobs,
        most: int,
        timeout: float | None,
        unless: Callable[[], bool] | None = None,
    ) -> list[T] | None:
        key = (asyncio.get_running_loop(), look)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = WaitingLine(self._board, look, give_back, lambda: self._lines.pop(key))
        return await line.wait(wanted, most, timeout, unless)


def _refresh(jobs: list[Job]) -> None:
    """Of several boards, for all that is known here."""
    for board in {job.board for job in jobs}:
        board._refresh_all([job for job in jobs if job.board is board])


def _nothing(things: list[bool]) -> None:
    """Nobody has to be told that a job was seen."""


def fetch(
    name: str, conf: str | Mapping[str, Any], namespace: str = NAMESPACE, *, threads: int = THREADS, **kwargs: Any
) -> AsyncJobBoard:
    """As :func:`jobboard.fetch`; talks to nobody. ``threads``: see :class:`AsyncJobBoard`."""
    return AsyncJobBoard(fetch_sync(name, conf, namespace, **kwargs), threads=threads)


def backend(
    name: str, conf: str | Mapping[str, Any], namespace: str = NAMESPACE, *, threads: int = THREADS, **kwargs: Any
) -> AsyncJobBoard:
    """``async with jobboard.aio.backend(…) as board:`` a board that is connected within the block and closed after."""
    return fetch(name, conf, namespace, threads=threads, **kwargs)
