"""The jobboard for asyncio: the verbs of :class:`~jobboard.board.JobBoard` as coroutines.

Most verbs are their sync twins, called on a thread: :func:`_verb` makes one from the other, with its signature. The
verbs that wait, and those that claim, are written out: a wait holds no thread, and a cancelled claim is given back.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, cast

from jobboard import arguments, outcomes, work
from jobboard.aio.notifier import AsyncNotifier
from jobboard.aio.threads import Threads, outlast, see_through
from jobboard.aio.waiting import (
    Reader,
    WaitingCoroutine,
    WaitingLine,
    claim_for,
    delivered,
    give_back,
    give_back_undelivered,
)
from jobboard.backends import NAMESPACE, BoardArguments
from jobboard.backends import fetch as fetch_sync
from jobboard.board import JobBoard, WantedJobs
from jobboard.finding import Acted, OperatorVerb
from jobboard.followups import Then
from jobboard.job import RESULT_DELAY, Claim, ClaimedJob, Job
from jobboard.primitives import PAGE, Characteristics
from jobboard.results import Outcome
from jobboard.tracing import Tracing
from jobboard.work import claim_of, nothing_claimed, wishes

if TYPE_CHECKING:
    from jobboard.sqltypes import Condition

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 8
"""The default number of threads of a board, and so of calls and connections at once."""


def _verb(
    twin: Callable[Concatenate[JobBoard, P], T],
) -> Callable[Concatenate[AsyncJobBoard, P], Coroutine[Any, Any, T]]:
    """Return the verb as a coroutine function."""

    @functools.wraps(twin)
    async def verb(self: AsyncJobBoard, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.call(twin, self.sync, *args, **kwargs)

    return verb


def _walk(
    twin: Callable[Concatenate[JobBoard, P], Iterator[T]],
) -> Callable[Concatenate[AsyncJobBoard, P], AsyncIterator[T]]:
    """Return the verb as an asynchronous iterator that reads page by page."""

    @functools.wraps(twin)
    def walk(self: AsyncJobBoard, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        # The twin sends no request before its first step.
        return self._pages(twin(self.sync, *args, **kwargs))

    return walk


class AsyncWorking(contextlib.AbstractAsyncContextManager[ClaimedJob, bool]):
    """The work on a job, as a block or as a function; see :meth:`AsyncJobBoard.working`."""

    def __init__(
        self,
        begin: Callable[[], contextlib.AbstractAsyncContextManager[ClaimedJob, bool | None]],
        follow: Callable[[ClaimedJob, Then], Coroutine[Any, Any, None]],
    ) -> None:
        self._begin, self._follow = begin, follow
        self._block: contextlib.AbstractAsyncContextManager[ClaimedJob, bool | None] | None = None

    async def __aenter__(self) -> ClaimedJob:
        if self._block is not None:
            raise RuntimeError("this block is being worked in already; ask the board for another one")
        self._block = self._begin()
        try:
            return await self._block.__aenter__()
        except BaseException:
            self._block = None
            raise

    async def __aexit__(self, *error: Any) -> bool:
        block, self._block = self._block, None
        assert block is not None
        return bool(await block.__aexit__(*error))

    def __call__(
        self, function: Callable[Concatenate[ClaimedJob, P], Coroutine[Any, Any, T]]
    ) -> Callable[P, Coroutine[Any, Any, T | None]]:
        outcomes.check_handler(function, coroutine=True)

        @functools.wraps(function)
        async def work(*args: P.args, **kwargs: P.kwargs) -> T | None:
            async with self._begin() as job:
                result = await function(job, *args, **kwargs)
                if isinstance(result, Then):
                    await self._follow(job, result)
                outcomes.check_result(result)
                return result
            return None  # type: ignore[unreachable]  # the block swallows Retry, Reject and Cancelled

        return work


class AsyncJobBoard:
    """A board whose verbs are coroutines, with the arguments, outcomes and guarantees of its sync twin.

    :param board: the twin, for threads: ``sync`` of this board. Both may be used at the same time; either closes both.
    :param threads: how many calls may be under way at once, each on one connection. Further calls wait for their turn.
        All coroutines of a loop that wait for jobs share one more thread and connection.

    **Cancellation.** A call that has not begun is not made. A call that is under way goes on, and the coroutine ends
    without its outcome: give a job that you post a ``key``, and posting it again is safe. ``claim``, ``claim_next``
    and ``claim_many`` first give back the jobs that they have claimed, and no attempt is used up.

    A :class:`~jobboard.job.Job` and its claim are those of the sync board. Their attributes cost nothing, but methods
    that ask the server block: use :meth:`state`, :meth:`expires_in`, :meth:`wait_for`, the verbs that end a claim, and
    :meth:`call` for the rest.
    """

    def __init__(self, board: JobBoard, *, threads: int = THREADS) -> None:
        self.sync = board
        self._threads = Threads(board.name, arguments.limit(threads, "threads"))
        # The waiting line and the reader that the coroutines of one event loop share.
        self._loops: dict[asyncio.AbstractEventLoop, tuple[WaitingLine, Reader]] = {}

    def __repr__(self) -> str:
        return f"<AsyncJobBoard of {self.sync!r}>"

    async def __aenter__(self) -> Self:
        try:
            # A cancelled connect connects the board all the same, and can be undone only then.
            await see_through(self._threads.begin(self.sync.connect))
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    @property
    def name(self) -> str:
        return self.sync.name

    @property
    def connected(self) -> bool:
        """See :attr:`JobBoard.connected <jobboard.board.JobBoard.connected>`."""
        return self.sync.connected

    @property
    def closed(self) -> bool:
        """See :attr:`JobBoard.closed <jobboard.board.JobBoard.closed>`."""
        return self.sync.closed

    @property
    def characteristics(self) -> Characteristics:
        """See :attr:`JobBoard.characteristics <jobboard.board.JobBoard.characteristics>`."""
        return self.sync.characteristics

    @property
    def table(self) -> Any:
        """See :attr:`JobBoard.table <jobboard.board.JobBoard.table>`."""
        return self.sync.table

    @property
    def tracing(self) -> Tracing:
        """The twin's tracing. Its methods run on a thread, in the context of the coroutine that acts."""
        return self.sync.tracing

    @tracing.setter
    def tracing(self, tracing: Tracing) -> None:
        self.sync.tracing = tracing

    @property
    def notifier(self) -> AsyncNotifier:
        """The events of the board. Callbacks may be coroutine functions."""
        return AsyncNotifier(self.sync.notifier)

    # Life

    setup = _verb(JobBoard.setup)
    connect = _verb(JobBoard.connect)

    async def close(self) -> None:
        """See :meth:`JobBoard.close <jobboard.board.JobBoard.close>`. Waiting coroutines get ConnectionFailure."""
        # On a thread of its own: all others may be waiting for an unreachable backend.
        apart = Threads(f"{self.name}-closing", 1)
        try:
            await see_through(apart.begin(self.sync.close))
        finally:
            apart.close()
            self._threads.close()
            for line, _ in list(self._loops.values()):
                line.close()

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that blocks on one of the board's threads, in a copy of this task's context."""
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
    find = _walk(JobBoard.find)
    find_page = _verb(JobBoard.find_page)
    names = _verb(JobBoard.names)
    error_groups = _verb(JobBoard.error_groups)
    finished = _verb(JobBoard.finished)

    async def job_count(self) -> int:
        """Return how many jobs are on the board, in any state but trashed."""
        return await self.call(getattr, self.sync, "job_count")

    async def state(self, job: Job) -> Any:
        """See :attr:`Job.state <jobboard.job.Job.state>`."""
        return await self.call(getattr, job, "state")

    async def expires_in(self, job: Job) -> float | None:
        """See :meth:`Job.expires_in <jobboard.job.Job.expires_in>`."""
        return await self.call(job.expires_in)

    async def wait_for(
        self,
        job: Job,
        timeout: float | None = None,
        delay: float = 0.01,
        delay_multiplier: float = 2.0,
        max_delay: float = 60.0,
    ) -> bool:
        """See :meth:`Job.wait <jobboard.job.Job.wait>`.

        No thread is held between two looks. Coroutines that look at the same time share a request for up to 100 jobs.
        """
        looks = job.looks(timeout, delay, delay_multiplier, max_delay)
        _, reader = self._shared()
        await reader.read(job)
        while isinstance(pause := next(looks), float):
            await asyncio.sleep(pause)
            await reader.read(job)
        return pause

    async def result(self, job: Job, timeout: float | None = None) -> Any:
        """See :meth:`Job.result <jobboard.job.Job.result>`; waits as :meth:`wait_for` does."""
        if not await self.wait_for(job, timeout, max_delay=RESULT_DELAY):
            raise job.not_done(timeout)
        return await self.call(self.sync.result_of, job)

    async def wait(self, timeout: float | None = None) -> AsyncIterator[Job]:
        """See :meth:`JobBoard.wait <jobboard.board.JobBoard.wait>`. All waiting coroutines of a loop share a thread."""
        waiter = WaitingCoroutine(WantedJobs("", None, None, {}), 0)
        line, _ = self._shared()
        if not await line.wait(waiter, arguments.timeout(timeout)) and (
            waiter.looked or not await self.call(lambda: self.sync.engine.peek().any)
        ):
            raise nothing_claimed(timeout)
        return self.iterjobs(only_unclaimed=True)

    # Claiming

    async def claim(self, job: Job, who: str, expiry: float | None = None) -> Claim:
        """See :meth:`JobBoard.claim <jobboard.board.JobBoard.claim>`."""
        await self._claimed(lambda: ([cast(ClaimedJob, self.sync.claim(job, who, expiry).job)], None))
        assert job.claim is not None
        return job.claim

    wake = _verb(JobBoard.wake)

    async def claim_next(
        self,
        who: str,
        *,
        expiry: float | None = None,
        names: Iterable[str] | None = None,
        timeout: float | None = 0,
        unless: Callable[[], bool] | None = None,
        where: Condition | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> ClaimedJob | None:
        """See :meth:`JobBoard.claim_next <jobboard.board.JobBoard.claim_next>`.

        Coroutines that wait for the same names are served in the order in which they came. ``unless`` is called on the
        loop.
        """
        wanted = self.sync.wanted("claim_next", who, expiry, names, where, extra)
        jobs = await self._take(wanted, 1, timeout, unless)
        return jobs[0] if jobs else None

    async def claim_many(
        self,
        who: str,
        limit: int,
        *,
        expiry: float | None = None,
        names: Iterable[str] | None = None,
        timeout: float | None = 0,
        unless: Callable[[], bool] | None = None,
        where: Condition | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> list[ClaimedJob]:
        """See :meth:`JobBoard.claim_many <jobboard.board.JobBoard.claim_many>`; waits as :meth:`claim_next` does."""
        limit = arguments.limit(limit)
        wanted = self.sync.wanted("claim_many", who, expiry, names, where, extra)
        return await self._take(wanted, limit, timeout, unless)

    def working(
        self,
        who: str,
        *,
        names: Iterable[str] | None = None,
        timeout: float | None = None,
        expiry: float | None = None,
        unless: Callable[[], bool] | None = None,
        where: Condition | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> AsyncWorking:
        """Return a block, ``async with board.working(who) as job:``, or a decorator of coroutine functions.

        See :meth:`JobBoard.working <jobboard.board.JobBoard.working>`. A cancelled body has failed: its job is
        abandoned before the cancellation goes on.
        """
        claiming = {"expiry": expiry, "unless": unless, "where": where, "extra": extra}
        wish = {"names": names, "timeout": timeout, **claiming}
        return AsyncWorking(lambda: self._working(who, wish), self._follow)

    async def _follow(self, job: ClaimedJob, then: Then) -> None:
        await see_through(self._threads.begin(work.follow, job, then))

    @contextlib.asynccontextmanager
    async def _working(self, who: str, wish: dict[str, Any]) -> AsyncIterator[ClaimedJob]:
        job: ClaimedJob | None = None
        try:
            for each in wishes(wish):
                job = await self.claim_next(who, **each)
                if job is None:
                    raise nothing_claimed(wish["timeout"])
                verdict = outcomes.refused_work(job)
                if verdict is None:
                    break
                refused, job = job, None
                await self._end_work(work.refuse, refused, verdict)
            assert job is not None
            with work.around(self.sync, job):
                yield job
        except BaseException as error:
            if job is None or not await self._end_work(work.conclude, job, error):
                raise
        else:
            await self._end_work(work.conclude, job, None)

    async def _end_work(self, function: Callable[[JobBoard, Job, Any], T], job: Job, outcome: object) -> T:
        try:
            begun = self._threads.begin(function, self.sync, job, outcome)
            if isinstance(outcome, GeneratorExit):
                raise outcome
            return await see_through(begun)
        except GeneratorExit:
            # The block is destroyed, as after the end of its loop, and may await nothing. The thread goes on.
            raise
        except BaseException:
            # If no thread can be started, nobody else lets go of the claim.
            self.sync.claims.let_lapse(claim_of(job))
            raise

    # Ending a claim

    extend = _verb(JobBoard.extend)
    note = _verb(JobBoard.note)
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
    post_again = _verb(JobBoard.post_again)

    async def act(
        self,
        verb: OperatorVerb,
        jobs: Iterable[Job | Outcome] | AsyncIterable[Job | Outcome],
        *,
        reason: str | None = None,
        running: bool = False,
    ) -> Acted:
        """Act on many jobs: see :meth:`JobBoard.act <jobboard.board.JobBoard.act>`. The jobs of an asynchronous
        iterator are read before the first act."""
        given = [job async for job in jobs] if isinstance(jobs, AsyncIterable) else jobs
        return await self.call(JobBoard.act, self.sync, verb, given, reason=reason, running=running)

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
    pause_schedule = _verb(JobBoard.pause_schedule)
    resume_schedule = _verb(JobBoard.resume_schedule)
    post_now = _verb(JobBoard.post_now)
    kept_stats = _verb(JobBoard.kept_stats)

    # Entities

    register_entity = _verb(JobBoard.register_entity)
    deregister_entity = _verb(JobBoard.deregister_entity)
    entities = _verb(JobBoard.entities)

    # Within

    async def _pages(self, iterator: Iterator[T]) -> AsyncIterator[T]:
        while items := await self.call(lambda: list(itertools.islice(iterator, PAGE))):
            for item in items:
                yield item

    async def _take(
        self, wanted: WantedJobs, limit: int, timeout: float | None, unless: Callable[[], bool] | None
    ) -> list[ClaimedJob]:
        arguments.timeout(timeout)
        if unless is not None and unless():
            return []
        if timeout != 0:
            waiter = WaitingCoroutine(wanted, limit, unless)
            line, _ = self._shared()
            if await line.wait(waiter, timeout) or waiter.looked:
                return delivered(self.sync, waiter.jobs)
        return await self._claimed(lambda: self.sync.look(wanted, limit))

    async def _claimed(self, claim: Callable[[], tuple[list[ClaimedJob], object]]) -> list[ClaimedJob]:
        """Claim jobs on a thread. Give them back if this task is cancelled meanwhile."""
        begun = self._threads.begin(claim_for, asyncio.get_running_loop(), self.sync, claim)
        claimed = asyncio.wrap_future(begun)
        try:
            await asyncio.wait([claimed])
        except asyncio.CancelledError:
            if not begun.cancel():
                # An error is dropped: a refused claim need not be given back.
                with contextlib.suppress(Exception):
                    jobs, _ = await outlast(claimed)
                    await give_back(self.sync, jobs, self._threads)
            raise
        except GeneratorExit:
            give_back_undelivered(self.sync, begun, self._threads)
            raise
        return delivered(self.sync, claimed.result()[0])

    def _shared(self) -> tuple[WaitingLine, Reader]:
        """Return the waiting line and the reader of this event loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._loops:
            for closed in [each for each in list(self._loops) if each.is_closed()]:
                self._loops.pop(closed, None)
            self._loops[loop] = WaitingLine(self.sync, self._threads), Reader(self._threads)
        return self._loops[loop]


def fetch(
    name: str,
    conf: str | Mapping[str, Any],
    namespace: str = NAMESPACE,
    *,
    threads: int = THREADS,
    **kwargs: Unpack[BoardArguments],
) -> AsyncJobBoard:
    """See :func:`jobboard.fetch`; sends no request. ``async with`` connects the board, and closes it at its end.

    :param threads: see :class:`AsyncJobBoard`.
    """
    return AsyncJobBoard(fetch_sync(name, conf, namespace, **kwargs), threads=threads)


backend = fetch
