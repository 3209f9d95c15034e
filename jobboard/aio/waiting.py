"""The waiting line: coroutines of one event loop that wait for jobs, and the thread that looks and sleeps for them.

The line changes on the loop only. Looks and sleeps run on the line's thread, always the same one: a store remembers by
thread the news that a look has seen and the wake-up that a waiter has got.

Waiters for the same names form a queue: the first to come is the first to be served. One look serves all queues whose
first waiters claim in the same way (worker, lease, conditions), and asks for the names of all of them. Where several
looks would be needed, a peek comes first.

A look serves no waiter that came after the look began: a job that it has claimed may have been paused since, or have
become less urgent than another. A job that is left over, as its waiter has gone, is given back before the next look.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ParamSpec, TypeVar

from jobboard import logs
from jobboard.aio.threads import Threads, awaitable, outlast, own_copy
from jobboard.board import JobBoard, WantedJobs
from jobboard.job import ClaimedJob, Job
from jobboard.primitives import BATCH, Taken
from jobboard.waiting import Turn

LOG = logs.Log(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class WaitingCoroutine:
    """A coroutine in the line.

    :param most: how many jobs it claims at most; 0: it only wants to know that there is one.
    :param unless: the wait is over once this returns true.
    """

    def __init__(self, wanted: WantedJobs, most: int, unless: Callable[[], bool] | None = None) -> None:
        self.wanted = wanted
        self.most = most
        self.unless = unless
        self.names = None if wanted.names is None else frozenset(wanted.names)
        # Conditions can't be compared, so that the same object counts as the same condition.
        extra = tuple((name, id(value)) for name, value in sorted(wanted.extra.items()))
        self.queue = (self.names, extra, most > 0)
        self.wish = (wanted.who, wanted.span, extra)
        self.context = contextvars.copy_context()
        self.served: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.jobs: list[ClaimedJob] = []
        self.looked = False
        """Whether a look that began after the waiter came has found too little."""

    def takes(self, job: Job) -> bool:
        return self.names is None or job.name in self.names


class _Reach:
    """The number of jobs to look for where each name has few waiters. It doubles while the names differ between looks.
    A name that comes again has more jobs than waiters, and these would have to be given back.

    On MariaDB a claim of 100 names takes a hundred times as long as a claim of one name: a burst of jobs for 200 names
    is claimed in a tenth of the time.
    """

    def __init__(self) -> None:
        self.now = 1
        self._last: set[str] = set()

    def learn(self, jobs: Sequence[Job], left: Sequence[Job]) -> None:
        names = {job.name for job in jobs}
        if left or not names or len(names) < len(jobs) or names & self._last:
            self.now = 1
        elif len(jobs) >= self.now:
            self.now = min(BATCH, 2 * self.now)
        self._last = names


class WaitingLine:
    """The waiters of one board in one event loop.

    :param threads: for what must not stand behind the sleep of the line's own thread.
    """

    def __init__(self, board: JobBoard, threads: Threads) -> None:
        self._board = board
        self._threads = threads
        self._thread = Threads(f"{board.name}-waiter", 1)
        # By themselves, in the order in which they came.
        self._waiters: dict[WaitingCoroutine, None] = {}
        self._server: asyncio.Task[None] | None = None
        self._turns: Iterator[Turn] | None = None
        self._reach = _Reach()
        # The end of the look under way, its jobs handed out or given back.
        self._looking: asyncio.Future[None] | None = None
        # The queues that the thread sleeps for, unless it was told to wake up.
        self._asleep: set[object] = set()

    @property
    def is_asleep(self) -> bool:
        return bool(self._asleep)

    @property
    def is_empty(self) -> bool:
        return not self._waiters

    def close(self) -> None:
        """Let the thread end. A later wait starts another one."""
        self._thread.close()

    async def wait(self, waiter: WaitingCoroutine, timeout: float | None) -> bool:
        """Wait until the waiter is served or called off. Return False if its time was up before.

        A cancelled waiter holds no job once this raises.
        """
        self._waiters[waiter] = None
        if self._server is None or self._server.done():
            self._server = asyncio.create_task(self._serve(), name=f"{self._board.name}-waiter")
        elif self._asleep and waiter.queue not in self._asleep:
            self._asleep = set()
            self._board.wake()
        try:
            await asyncio.wait([waiter.served], timeout=timeout)
            if self._looking is not None and not waiter.served.done():
                await asyncio.wait([self._looking])
            return waiter.served.done() and waiter.served.result()
        except asyncio.CancelledError:
            self._waiters.pop(waiter, None)
            if self._looking is not None:
                await outlast(self._looking)
            await give_back(self._board, waiter.jobs, self._threads)
            raise
        finally:
            self._waiters.pop(waiter, None)

    async def _serve(self) -> None:
        """Look and sleep while there is a waiter. No cancellation stops this: the end of a loop cancels the waiters."""
        while self._waiters:
            try:
                await self._round()
            except GeneratorExit:
                # The loop was closed, and no thread can be waited for.
                raise
            except BaseException as error:  # noqa: BLE001 - raised where a coroutine waits
                self._turns = None
                for waiter in list(self._waiters):
                    self._end(waiter, own_copy(error))
                with contextlib.suppress(Exception):
                    await self._call(self._board.engine.forgo)

    async def _round(self) -> None:
        """Look for all waiters, then sleep if there was nothing for any of them."""
        self._call_off()
        looks = self._looks()
        if not self._waiters:
            return
        self._turns = self._turns or self._board.waiters.rounds(None)
        turn = await self._call(next, self._turns)
        # The queues for which there is nothing, and the µs until that may change.
        looked: set[object] = set()
        events: list[int | None] = []
        watchers = [waiter for waiter in self._waiters if not waiter.most]
        if watchers or len(looks) > 1:
            waiters = list(self._waiters)
            peeked = await self._call(self._board.engine.peek, _names(waiters))
            events.append(peeked.next_event)
            if peeked.any:
                for waiter in watchers:
                    self._end(waiter, [])
            else:
                looks, looked = [], _mark_looked(waiters)
        for look in looks:
            found = False
            while waiters := [waiter for waiter in look if waiter in self._waiters]:
                limit = _limit(waiters, self._reach.now)
                count, taken = await self._look(turn, waiters, limit)
                found = found or count > 0
                if count < limit:
                    looked |= _mark_looked(waiters)
                    events.append(taken.next_event)
                    break
            if found:
                # The next round has a new turn: a store that polls begins anew with short sleeps.
                self._turns = None
                return
        await self._sleep(turn, looked, min((each for each in events if each is not None), default=None))

    async def _sleep(self, turn: Turn, looked: set[object], next_event: int | None) -> None:
        # Asked again after the look: a wake-up from here on is not slept through.
        self._call_off()
        queues: set[object] = {waiter.queue for waiter in self._waiters}
        if not queues or not queues <= looked:
            return
        takes = any(waiter.most for waiter in self._waiters) or None
        self._asleep = queues
        try:
            # A loop that ends waits for this task, which waits for the thread.
            doze = self._thread.begin(self._board.waiters.doze, turn, takes, _names(self._waiters), next_event)
            await outlast(doze, self._board.wake)
        finally:
            self._asleep = set()
        if not queues <= {waiter.queue for waiter in self._waiters}:
            # The wake-up may have been for a waiter that has left.
            await self._call(self._board.engine.forgo)

    def _looks(self) -> list[list[WaitingCoroutine]]:
        """Return the waiters at the heads of their queues, grouped by their wish. No waiter is served before an earlier
        one of its queue, and so none of those behind the first waiter with another wish is among them."""
        first: dict[object, object] = {}
        looks: dict[object, list[WaitingCoroutine]] = {}
        for waiter in self._waiters:
            if first.setdefault(waiter.queue, waiter.wish) != waiter.wish:
                first[waiter.queue] = None
            elif waiter.most:
                looks.setdefault(waiter.wish, []).append(waiter)
        return list(looks.values())

    async def _look(self, turn: Turn, waiters: list[WaitingCoroutine], limit: int) -> tuple[int, Taken]:
        """Claim jobs for these waiters and hand them out. Return how many jobs there were."""
        wanted = waiters[0].wanted._replace(names=_names(waiters))
        self._looking = looking = asyncio.get_running_loop().create_future()
        try:
            # In the first waiter's context, for traces.
            look = functools.partial(waiters[0].context.run, self._board.look, wanted, limit)
            jobs, taken = await self._call(claim_for, asyncio.get_running_loop(), self._board, look)
            left = jobs
            for waiter in waiters if left else ():
                if waiter in self._waiters and (mine := [job for job in left if waiter.takes(job)][: waiter.most]):
                    left = [job for job in left if job not in mine]
                    self._end(waiter, mine)
            self._reach.learn(jobs, left)
            await give_back(self._board, left, self._thread)
            return len(jobs), taken
        finally:
            self._looking = None
            looking.set_result(None)

    def _call_off(self) -> None:
        for waiter in list(self._waiters):
            try:
                if waiter.unless is not None and waiter.unless():
                    self._end(waiter, [])
            except Exception as error:  # noqa: BLE001 - raised by the caller's own function, and in its task
                self._end(waiter, awaitable(error))

    def _end(self, waiter: WaitingCoroutine, outcome: list[ClaimedJob] | BaseException) -> None:
        if waiter not in self._waiters:
            return
        del self._waiters[waiter]
        if isinstance(outcome, BaseException):
            waiter.served.set_exception(outcome)
            # A waiter that is cancelled at this moment does not retrieve it.
            waiter.served.exception()
        else:
            waiter.jobs = outcome
            waiter.served.set_result(True)

    async def _call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await outlast(self._thread.begin(function, *args, **kwargs))


class Reader:
    """Reads of jobs in one event loop: coroutines that ask while a request is under way share the next one.

    :param read: reads up to 100 jobs anew, on one of the threads.
    """

    def __init__(self, threads: Threads, read: Callable[[list[Job]], object]) -> None:
        self._threads = threads
        self._read = read
        self._turn = asyncio.Lock()
        # The jobs of the next request, and the task that will make it.
        self._jobs: list[Job] = []
        self._task: asyncio.Task[None] | None = None

    async def read(self, job: Job) -> None:
        """Read a job anew, by a request that begins after this call."""
        if self._task is None or len(self._jobs) == BATCH:
            self._jobs = []
            self._task = asyncio.create_task(self._read_together(self._jobs))
        self._jobs.append(job)
        try:
            await asyncio.shield(self._task)
        except Exception as error:
            raise own_copy(error) from error

    async def _read_together(self, jobs: list[Job]) -> None:
        # Behind the coroutines that are to run at this moment, as they may ask, too.
        await asyncio.sleep(0)
        async with self._turn:
            if self._jobs is jobs:
                self._task = None
            await self._threads.call(self._read, jobs)


def claim_for(
    loop: asyncio.AbstractEventLoop, board: JobBoard, claim: Callable[[], tuple[list[ClaimedJob], T]]
) -> tuple[list[ClaimedJob], T]:
    """Claim jobs on a thread. Give them back if the loop was closed meanwhile: no coroutine gets them."""
    jobs, answer = claim()
    if loop.is_closed():
        board.give_back(jobs)
    return jobs, answer


async def give_back(board: JobBoard, jobs: Sequence[Job], threads: Threads) -> None:
    """End the claims of jobs whose coroutine has gone, on one of the threads. Raises nothing: the claims lapse then."""
    if not jobs:
        return
    try:
        await outlast(threads.begin(board.give_back, jobs))
    except Exception as error:  # noqa: BLE001 - no thread can be started, or a fault of the board
        LOG.warning("could not give back %d jobs, which lapse by themselves: %s", len(jobs), error)
        for job in jobs:
            if job.claim is not None:
                board.claims.let_lapse(job.claim)


def _names(waiters: Iterable[WaitingCoroutine]) -> Sequence[str] | None:
    """Return the names that these waiters wait for, None for any."""
    names: set[str] = set()
    for waiter in waiters:
        if waiter.names is None:
            return None
        names |= waiter.names
    return sorted(names)


def _limit(waiters: Sequence[WaitingCoroutine], reach: int) -> int:
    """Return how many jobs a look for these waiters claims: as many as can be handed out whatever their names are, and
    up to ``reach``."""
    takers: Counter[str | None] = Counter()
    for waiter in waiters:
        for name in (None,) if waiter.names is None else waiter.names:
            takers[name] += waiter.most
    sure = takers[None] or min(takers.values())
    return min(max(sure, min(reach, sum(waiter.most for waiter in waiters))), max(BATCH, waiters[0].most))


def _mark_looked(waiters: Iterable[WaitingCoroutine]) -> set[object]:
    """Remember that a look has found too little for these waiters. Return their queues."""
    for waiter in waiters:
        waiter.looked = True
    return {waiter.queue for waiter in waiters}
