"""The waiting line: coroutines of one event loop that wait for jobs, and the thread that looks and sleeps for them.

The line changes on the loop only. Looks and sleeps run on the line's thread, always the same one: a store remembers by
thread the news that a look has seen and the wake-up that a waiter has got.

Each look is for one waiter: the first to come is the first to be served. Waiters for the same names form a queue. Once
a look has found too little for one of them, the others need no look. Where there are several queues, a peek for the
names of all of them comes first. A job of a waiter that has gone meanwhile is given back before the next look.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import ParamSpec, TypeVar

from jobboard import logs
from jobboard.aio.threads import Threads, outlast
from jobboard.board import JobBoard, WantedJobs
from jobboard.job import ClaimedJob, Job
from jobboard.primitives import BATCH, Taken
from jobboard.waiting import Turn

LOG = logs.Log(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class WaitingCoroutine:
    """A coroutine in the line.

    :param most: the most jobs that it claims; 0: it only wants to know whether there is a job.
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
        self.context = contextvars.copy_context()
        self.served: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.jobs: list[ClaimedJob] = []
        self.claiming: Future[tuple[list[ClaimedJob], Taken]] | None = None
        """The last claim for this waiter."""
        self.looking: asyncio.Future[None] | None = None
        """The end of the look for this waiter, its jobs handed out or given back."""
        self.looked = False
        """True if a look that began after the waiter came has found too little."""


class WaitingLine:
    """The waiters of one board in one event loop.

    waiters: by themselves, in the order in which they came. asleep: the queues that the thread sleeps for, unless it
    was told to wake up.

    :param threads: for calls that must not wait for the sleep of the line's own thread.
    """

    def __init__(self, board: JobBoard, threads: Threads) -> None:
        self._board = board
        self._threads = threads
        self._thread = Threads(f"{board.name}-waiter", 1)
        self.waiters: dict[WaitingCoroutine, None] = {}
        self.asleep: set[object] = set()
        self._server: asyncio.Task[None] | None = None
        self._turns: Iterator[Turn] | None = None

    def close(self) -> None:
        """Let the thread end. A later wait starts another one."""
        self._thread.close()

    async def wait(self, waiter: WaitingCoroutine, timeout: float | None) -> bool:
        """Wait until the waiter is served or called off. Return False if its time was up before.

        A cancelled waiter holds no job once this raises.
        """
        self.waiters[waiter] = None
        if self._server is None or self._server.done():
            self._begin()
        elif self.asleep and waiter.queue not in self.asleep:
            self.asleep = set()
            self._board.wake()
        try:
            await asyncio.wait([waiter.served], timeout=timeout)
            if waiter.looking is not None:
                await asyncio.wait([waiter.looking])
            return waiter.served.done() and waiter.served.result()
        except asyncio.CancelledError:
            self.waiters.pop(waiter, None)
            if waiter.looking is not None:
                await outlast(waiter.looking)
            await give_back(self._board, waiter.jobs, self._threads)
            raise
        except GeneratorExit:
            if waiter.claiming is not None:
                give_back_undelivered(self._board, waiter.claiming, self._threads)
            raise
        finally:
            self.waiters.pop(waiter, None)

    def _begin(self) -> None:
        self._server = asyncio.create_task(self._serve(), name=f"{self._board.name}-waiter")
        self._server.add_done_callback(self._served)

    def _served(self, server: asyncio.Task[None]) -> None:
        # A program that cancels all its tasks may cancel this one before its first step.
        if self.waiters and server is self._server:
            self._begin()

    async def _serve(self) -> None:
        """Look and sleep while there is a waiter. No cancellation stops this: the end of a loop cancels the waiters."""
        while self.waiters:
            try:
                await self._round()
            except GeneratorExit:
                # The loop was closed, and no thread can be waited for.
                raise
            except BaseException as error:  # noqa: BLE001 - raised where a coroutine waits
                self._turns = None
                for waiter in list(self.waiters):
                    self._end(waiter, error)
                with contextlib.suppress(Exception):
                    await self._call(self._board.engine.backend.forgo)

    async def _round(self) -> None:
        """Look for jobs for all waiters, then sleep if there was none."""
        self._call_off()
        waiters = list(self.waiters)
        if not waiters:
            return
        self._turns = self._turns or self._board.waiters.rounds(None)
        turn = await self._call(next, self._turns)
        # The µs until a queue may have a job, and the queues without a job now.
        events: list[int | None] = []
        empty: set[object] = set()
        queues: set[object] = {waiter.queue for waiter in waiters}
        if len(queues) > 1:
            peeked = await self._call(self._board.engine.peek, _names(waiters))
            events.append(peeked.next_event)
            if not peeked.any:
                empty = queues
        found = False
        for waiter in waiters:
            if waiter in self.waiters and waiter.queue not in empty:
                count, next_event = await self._look(waiter)
                events.append(next_event)
                found = found or count > 0
                if count < max(waiter.most, 1):
                    empty.add(waiter.queue)
            waiter.looked = waiter.queue in empty
        if found:
            # The next round has a new turn: a store that polls begins again with short sleeps.
            self._turns = None
        else:
            await self._sleep(turn, empty, min((each for each in events if each is not None), default=None))

    async def _look(self, waiter: WaitingCoroutine) -> tuple[int, int | None]:
        """Claim jobs for this waiter. Return how many jobs there were, and the µs until there may be more."""
        loop = asyncio.get_running_loop()
        waiter.looking = looking = loop.create_future()
        try:
            if not waiter.most:
                peeked = await self._call(self._board.engine.peek, waiter.wanted.names)
                if peeked.any and waiter in self.waiters:
                    self._end(waiter)
                return int(peeked.any), peeked.next_event
            # In the waiter's context, for traces.
            look = functools.partial(waiter.context.run, self._board.look, waiter.wanted, waiter.most)
            waiter.claiming = self._thread.begin(claim_for, loop, self._board, look)
            jobs, taken = await outlast(waiter.claiming)
            if waiter not in self.waiters:
                await give_back(self._board, jobs, self._thread)
            elif jobs:
                waiter.jobs = jobs
                self._end(waiter)
            return len(jobs), taken.next_event
        finally:
            waiter.looking = None
            if not loop.is_closed():
                looking.set_result(None)

    async def _sleep(self, turn: Turn, empty: set[object], next_event: int | None) -> None:
        # Asked again after the look: a wake-up from here on is not slept through.
        self._call_off()
        queues: set[object] = {waiter.queue for waiter in self.waiters}
        if not queues or not queues <= empty:
            return
        takes = any(waiter.most for waiter in self.waiters)
        self.asleep = queues
        try:
            # A loop that ends waits for this task, which waits for the thread.
            doze = self._thread.begin(self._board.waiters.doze, turn, takes, _names(self.waiters), next_event)
            await outlast(doze, self._board.wake)
        finally:
            self.asleep = set()
        if not queues <= {waiter.queue for waiter in self.waiters}:
            # The wake-up may have been meant for a waiter that has left.
            await self._call(self._board.engine.backend.forgo)

    def _call_off(self) -> None:
        for waiter in list(self.waiters):
            try:
                if waiter.unless is not None and waiter.unless():
                    self._end(waiter)
            except Exception as error:  # noqa: BLE001 - raised by the caller's own function, and in its task
                self._end(waiter, error)

    def _end(self, waiter: WaitingCoroutine, error: BaseException | None = None) -> None:
        del self.waiters[waiter]
        if error is None:
            waiter.served.set_result(True)
        else:
            waiter.served.set_exception(error)
            # A waiter that is cancelled at this moment does not retrieve it.
            waiter.served.exception()

    async def _call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await outlast(self._thread.begin(function, *args, **kwargs))


class Reader:
    """Reads of jobs in one event loop: coroutines that ask while a request is under way share the next one."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()
        # The jobs of the next request, and the task that will make it.
        self._jobs: list[Job] = []
        self._task: asyncio.Task[None] | None = None

    async def read(self, job: Job) -> None:
        """Read a job again, by a request that begins after this call."""
        while True:
            if self._task is None or self._task.done() or len(self._jobs) == BATCH:
                self._jobs = []
                self._task = asyncio.create_task(self._read_together(self._jobs))
                # Readers that are cancelled do not retrieve its error.
                self._task.add_done_callback(lambda task: task.cancelled() or task.exception())
            task = self._task
            self._jobs.append(job)
            await asyncio.wait([task])
            # A program that cancels all its tasks cancels this one, too.
            if not task.cancelled():
                return task.result()

    async def _read_together(self, jobs: list[Job]) -> None:
        # Behind the coroutines that are to run at this moment, as they may ask, too.
        await asyncio.sleep(0)
        await self._turn.acquire()
        try:
            if self._jobs is jobs:
                self._task = None
            await self._threads.call(_refresh, jobs)
        finally:
            # A closed loop wakes no other.
            if not self._loop.is_closed():
                self._turn.release()


def _refresh(jobs: list[Job]) -> None:
    """Read these jobs again, each on its own board."""
    for board in {job.board for job in jobs}:
        board.refresh([job for job in jobs if job.board is board])


def claim_for(
    loop: asyncio.AbstractEventLoop, board: JobBoard, claim: Callable[[], tuple[list[ClaimedJob], T]]
) -> tuple[list[ClaimedJob], T]:
    """Claim jobs on a thread. Give them back if the loop was closed meanwhile: no coroutine gets them.

    If the loop is closed before :func:`delivered`, the heartbeat gives them back.
    """
    jobs, answer = claim()
    board.claims.entrust([job.claim for job in jobs], loop.is_closed)
    if loop.is_closed():
        board.give_back(jobs)
        return [], answer
    return jobs, answer


def delivered(board: JobBoard, jobs: list[ClaimedJob]) -> list[ClaimedJob]:
    """Return these jobs to the coroutine that holds them from now on."""
    board.claims.deliver(job.claim for job in jobs)
    return jobs


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


def give_back_undelivered(board: JobBoard, claiming: Future[tuple[list[ClaimedJob], T]], threads: Threads) -> None:
    """End the claims of jobs whose coroutine is being destroyed, as after the end of its loop.

    The garbage collector may call this from any code, which may hold any lock of the board.
    """

    def give_back() -> None:
        # There are no jobs if the claim has failed.
        with contextlib.suppress(Exception):
            board.give_back(claiming.result()[0])

    # At the end of the interpreter, no thread can be started.
    with contextlib.suppress(RuntimeError):
        threads.begin(give_back)


def _names(waiters: Iterable[WaitingCoroutine]) -> Sequence[str] | None:
    """Return the names that these waiters wait for, None for any."""
    wanted = [waiter.wanted.names for waiter in waiters]
    return None if None in wanted else sorted({name for names in wanted for name in names or ()})
