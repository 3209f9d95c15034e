"""Coroutines that wait for jobs: they queue up in a line, and one thread looks and sleeps for all who stand in it.

All of this runs on the event loop, but for the looks and the sleep themselves, which are the board's own. They are made
by one thread, as a store may know by it for whom it has claimed a job.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

from jobboard.aio.threads import Threads, outlast
from jobboard.aio.together import own_copy
from jobboard.base import BATCH
from jobboard.board import JobBoard
from jobboard.claiming import Turn, WantedJobs

T = TypeVar("T")

LINGER = 5.0
"""For how many seconds the thread of an empty line is kept for the next who waits."""


class Catch(NamedTuple, Generic[T]):
    """What a look has brought, and what the sleep after it has to know."""

    things: list[T]
    mark: object
    next_event: int | None


Look = Callable[[Turn, WantedJobs, int], "Catch[T]"]


class _Waiting(Generic[T]):
    """A coroutine in the line. ``looked``: a look that began after it came has found too little. ``due``: its time is
    up, and it gets what the look at hand brings."""

    __slots__ = ("context", "due", "looked", "most", "served", "unless", "wanted")

    def __init__(self, wanted: WantedJobs, most: int, unless: Callable[[], bool] | None) -> None:
        self.wanted = wanted
        self.most = most
        self.unless = unless
        self.context = contextvars.copy_context()
        self.served: asyncio.Future[list[T]] = asyncio.get_running_loop().create_future()
        self.looked = False
        self.due = False

    def called_off(self) -> bool:
        return self.unless is not None and self.unless()


class WaitingLine(Generic[T]):
    """Those who wait on one board for the same names, in one event loop: the first to come is the first to be served.

    :param look: on the line's thread: finds up to so many things for who comes next.
    :param give_back: on the line's thread: of what was found, this is for nobody.
    :param ended: called when nobody has waited for a while; the next one needs a new line.
    """

    def __init__(
        self, board: JobBoard, look: Look[T], give_back: Callable[[list[T]], object], ended: Callable[[], object]
    ) -> None:
        self._board = board
        self._look = look
        self._give_back = give_back
        self._ended = ended
        self._thread = Threads(f"{board.name}-waiter", 1)
        # By themselves, in the order in which they came.
        self._waiters: dict[_Waiting[T], None] = {}
        self._news = asyncio.Event()
        self._looking = False
        self._dozing: WantedJobs | None = None
        self._settling: list[asyncio.Future[None]] = []
        self._server = asyncio.create_task(self._serve(), name=f"{board.name}-waiter")

    async def wait(
        self, wanted: WantedJobs, most: int, timeout: float | None, unless: Callable[[], bool] | None = None
    ) -> list[T] | None:
        """What was found, at least one and at most ``most``; empty where there was nothing in time, or before
        ``unless`` was true. None: nothing in time, and nobody has looked since this one came."""
        waiter = _Waiting[T](wanted, most, unless)
        self._waiters[waiter] = None
        self._news.set()
        timer = None if timeout is None else waiter.served.get_loop().call_later(timeout, self._expire, waiter)
        try:
            things = await waiter.served
        except asyncio.CancelledError:
            await self._withdraw(waiter)
            raise
        finally:
            if timer is not None:
                timer.cancel()
        return things or ([] if waiter.looked or waiter.called_off() else None)

    async def _withdraw(self, waiter: _Waiting[T]) -> None:
        """Have nothing claimed in the name of one whose task was cancelled."""
        if waiter in self._waiters:
            del self._waiters[waiter]
            if self._looking or self._rouse():
                settled = asyncio.get_running_loop().create_future()
                self._settling.append(settled)
                while not settled.done():
                    with contextlib.suppress(asyncio.CancelledError):
                        await asyncio.shield(settled)
        elif waiter.served.done() and not waiter.served.cancelled() and waiter.served.exception() is None:
            await self._return(waiter.served.result())

    def _expire(self, waiter: _Waiting[T]) -> None:
        if waiter.served.done():
            return
        waiter.due = True
        if self._looking:
            return
        behind = [each.wanted for each in self._waiters if each is not waiter and not each.served.done()]
        if self._dozing is not None and not (behind and _alike(behind[0], self._dozing)):
            # A store may have claimed something for this one by now: the last look takes it.
            self._board.wake()
        else:
            self._serve_one(waiter, [])

    def _rouse(self) -> bool:
        """Wake the thread if it sleeps for somebody who is not the next in line any more; whether it does."""
        if self._dozing is None or self._is_next(self._dozing):
            return False
        self._board.wake()
        return True

    def _head(self) -> _Waiting[T] | None:
        return next((waiter for waiter in self._waiters if not waiter.served.done()), None)

    def _is_next(self, wanted: WantedJobs) -> bool:
        head = self._head()
        return head is not None and _alike(head.wanted, wanted)

    def _serve_one(self, waiter: _Waiting[T], things: list[T]) -> None:
        del self._waiters[waiter]
        if not waiter.served.done():
            waiter.served.set_result(things)

    # The server

    async def _serve(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        turns: Iterator[Turn] | None = None
        while True:
            if self._head() is None:
                # Whoever ends the loop cancels this task, and those who wait.
                if task.cancelling() or not await self._anybody():
                    break
                continue
            turns = turns or self._board._rounds(None)
            try:
                if await self._serve_on(turns):
                    turns = None
            except Exception as error:  # noqa: BLE001 - it is theirs who wait
                turns = None
                self._fail(error)
            finally:
                self._settle()
        self._ended()
        self._thread.close()

    def _fail(self, error: Exception) -> None:
        for waiter in [each for each in self._waiters if not each.served.done()]:
            del self._waiters[waiter]
            waiter.served.set_exception(own_copy(error))

    async def _anybody(self) -> bool:
        self._news.clear()
        with contextlib.suppress(TimeoutError, asyncio.CancelledError):
            await asyncio.wait_for(self._news.wait(), LINGER)
        return self._head() is not None

    async def _serve_on(self, turns: Iterator[Turn]) -> bool:
        """Look once, and sleep if that finds nothing; whether it has found something."""
        self._call_off()
        head = self._head()
        if head is None:
            return True
        present = list(self._waiters)
        wanted, most = head.wanted, self._wish(present)

        def look() -> tuple[Turn, Catch[T]]:
            turn = next(turns)
            return turn, self._look(turn, wanted, most)

        self._looking = True
        try:
            turn, found = await outlast(self._thread.begin(head.context.run, look))
        finally:
            self._looking = False
        await self._return(self._hand_out(found.things, wanted))
        if len(found.things) < most:
            for waiter in present:
                waiter.looked = True
        for waiter in [each for each in self._waiters if each.due]:
            self._serve_one(waiter, [])
        self._settle()
        if found.things:
            return True
        # Asked again after the mark was read: what wakes from here on is not slept through.
        self._call_off()
        if self._is_next(wanted):
            self._dozing = wanted
            try:
                await outlast(self._thread.begin(self._board._doze, turn, found.mark, wanted.names, found.next_event))
            finally:
                self._dozing = None
            self._call_off()
        if not self._is_next(wanted):
            # What a store has claimed for who slept is for nobody here.
            await outlast(self._thread.begin(self._board.engine.forgo))
        return False

    def _wish(self, waiters: Iterable[_Waiting[T]]) -> int:
        """How many things to look for: for the first, and those behind who want the same in the same name."""
        most = 0
        wanted: WantedJobs | None = None
        for waiter in waiters:
            if wanted is not None and (not _alike(waiter.wanted, wanted) or most + waiter.most > BATCH):
                break
            wanted = waiter.wanted
            most += waiter.most
        return most

    def _hand_out(self, things: list[T], wanted: WantedJobs) -> list[T]:
        """What is left over, as those whom it was for have left."""
        left = list(things)
        for waiter in list(self._waiters):
            if left and not waiter.served.done() and _alike(waiter.wanted, wanted):
                self._serve_one(waiter, left[: waiter.most])
                del left[: waiter.most]
        return left

    async def _return(self, things: list[T]) -> None:
        if things:
            await outlast(self._thread.begin(self._give_back, things))

    def _call_off(self) -> None:
        for waiter in list(self._waiters):
            try:
                off = waiter.called_off()
            except Exception as error:  # noqa: BLE001 - the caller's own function
                del self._waiters[waiter]
                if not waiter.served.done():
                    waiter.served.set_exception(error)
            else:
                if off:
                    self._serve_one(waiter, [])

    def _settle(self) -> None:
        """Nothing is claimed any more for those who have left."""
        settling, self._settling = self._settling, []
        for settled in settling:
            settled.set_result(None)


def _alike(one: WantedJobs, other: WantedJobs) -> bool:
    """Of one line, the names are the same."""
    return (one.who, one.span) == (other.who, other.span)
