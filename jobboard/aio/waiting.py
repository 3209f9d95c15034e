"""The waiting line: coroutines of one event loop that wait for jobs, and the thread that looks and sleeps for them.

The line changes on the loop only. Looks and sleeps run on the line's thread, always the same one: a store remembers by
thread the news that a look has seen and the wake-up that a waiter has got.

Waiters for the same names form a queue: the first to come is the first to be served. A look serves the first waiters
of one queue, as far as they claim in the same way (worker, lease). Where there are several queues, a peek for the names
of all of them comes first.

A look serves no waiter that came after the look began: a job that it has claimed may have been paused since, or have
become less urgent than another. A job that is left over, as its waiter has gone, is given back before the next look.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ParamSpec, TypeVar

from jobboard import logs
from jobboard.aio.threads import Threads, outlast
from jobboard.board import JobBoard, WantedJobs
from jobboard.job import ClaimedJob, Job
from jobboard.primitives import BATCH
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
        names = None if wanted.names is None else frozenset(wanted.names)
        # Conditions can't be compared, so that the same object counts as the same condition.
        extra = tuple((name, id(value)) for name, value in sorted(wanted.extra.items()))
        self.queue = (names, extra, most > 0)
        self.wish = (wanted.who, wanted.span)
        self.context = contextvars.copy_context()
        self.served: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.jobs: list[ClaimedJob] = []
        self.looked = False
        """Whether a look that began after the waiter came has found too little."""


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
                    self._end(waiter, error)
                with contextlib.suppress(Exception):
                    await self._call(self._board.engine.backend.forgo)

    async def _round(self) -> None:
        """Look for all waiters, then sleep if there was nothing for any of them."""
        self._call_off()
        queues: dict[object, list[WaitingCoroutine]] = {}
        for waiter in self._waiters:
            queues.setdefault(waiter.queue, []).append(waiter)
        if not queues:
            return
        self._turns = self._turns or self._board.waiters.rounds(None)
        turn = await self._call(next, self._turns)
        # The µs until there may be something for a queue, and the queues for which there is nothing now.
        events: list[int | None] = []
        looked: set[object] = set()
        is_any, found = True, False
        if len(queues) > 1:
            is_any, next_event = await self._call(self._board.engine.peek, _names(self._waiters))
            events.append(next_event)
        for queue, waiters in queues.items():
            enough = is_any
            while enough and (heads := self._heads(waiters)):
                count, enough, next_event = await self._look(heads)
                found = found or count > 0
                events.append(next_event)
            if not enough:
                looked.add(queue)
                for waiter in waiters:
                    waiter.looked = True
        if found:
            # The next round has a new turn: a store that polls begins anew with short sleeps.
            self._turns = None
        else:
            await self._sleep(turn, looked, min((each for each in events if each is not None), default=None))

    def _heads(self, waiters: list[WaitingCoroutine]) -> list[WaitingCoroutine]:
        """Return the first of these who are still there, as far as they have the same wish."""
        there = [waiter for waiter in waiters if waiter in self._waiters]
        return list(itertools.takewhile(lambda waiter: waiter.wish == there[0].wish, there))

    async def _look(self, heads: list[WaitingCoroutine]) -> tuple[int, bool, int | None]:
        """Claim jobs for these waiters, and hand them out.

        Return how many jobs there were, whether there may be more, and the µs until that may change.
        """
        first, loop = heads[0], asyncio.get_running_loop()
        want = min(sum(waiter.most for waiter in heads), max(BATCH, first.most))
        self._looking = looking = loop.create_future()
        try:
            if not first.most:
                peeked = await self._call(self._board.engine.peek, first.wanted.names)
                for waiter in heads if peeked.any else ():
                    self._end(waiter, [])
                return int(peeked.any), peeked.any, peeked.next_event
            # In the first waiter's context, for traces.
            look = functools.partial(first.context.run, self._board.look, first.wanted, want)
            jobs, taken = await self._call(claim_for, loop, self._board, look)
            left = jobs
            for waiter in heads:
                if left and waiter in self._waiters:
                    self._end(waiter, left[: waiter.most])
                    left = left[waiter.most :]
            await give_back(self._board, left, self._thread)
            return len(jobs), len(jobs) == want, taken.next_event
        finally:
            self._looking = None
            looking.set_result(None)

    async def _sleep(self, turn: Turn, looked: set[object], next_event: int | None) -> None:
        # Asked again after the look: a wake-up from here on is not slept through.
        self._call_off()
        queues: set[object] = {waiter.queue for waiter in self._waiters}
        if not queues or not queues <= looked:
            return
        takes = any(waiter.most for waiter in self._waiters)
        self._asleep = queues
        try:
            # A loop that ends waits for this task, which waits for the thread.
            doze = self._thread.begin(self._board.waiters.doze, turn, takes, _names(self._waiters), next_event)
            await outlast(doze, self._board.wake)
        finally:
            self._asleep = set()
        if not queues <= {waiter.queue for waiter in self._waiters}:
            # The wake-up may have been for a waiter that has left.
            await self._call(self._board.engine.backend.forgo)

    def _call_off(self) -> None:
        for waiter in list(self._waiters):
            try:
                if waiter.unless is not None and waiter.unless():
                    self._end(waiter, [])
            except Exception as error:  # noqa: BLE001 - raised by the caller's own function, and in its task
                self._end(waiter, error)

    def _end(self, waiter: WaitingCoroutine, outcome: list[ClaimedJob] | BaseException) -> None:
        if isinstance(outcome, BaseException):
            waiter.served.set_exception(outcome)
            # A waiter that is cancelled at this moment does not retrieve it.
            waiter.served.exception()
        else:
            waiter.jobs = outcome
            waiter.served.set_result(True)
        del self._waiters[waiter]

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
        await asyncio.shield(self._task)

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
    wanted = [waiter.wanted.names for waiter in waiters]
    return None if None in wanted else sorted({name for names in wanted for name in names or ()})
