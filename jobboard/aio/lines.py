"""Coroutines that wait for jobs: they stand in a line, and one thread looks and sleeps for all of them.

All of this runs on the event loop, but for the looks and the sleep themselves, which are the board's own. They are made
by one thread, as a store may know by it for whom it has claimed a job.

Those who wait for the same names form a queue, the first to come being the first to be served. Queues whose first ones
claim in the same way (see ``_Waiting.wish``) are looked for together, by the names of all of them. Where there are
several such parties, a peek tells whether any of them has to look.

A look, or a sleep in which a store may claim something, serves nobody who came after it began: what it has claimed may
have been paused since, or have become less urgent. What is left over is given back before anybody else is looked for.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from jobboard.aio.threads import Threads, awaitable, outlast
from jobboard.aio.together import own_copy
from jobboard.base import BATCH
from jobboard.board import JobBoard
from jobboard.claiming import Turn, WantedJobs
from jobboard.primitives import Peeked

T = TypeVar("T")

LINGER = 5.0
"""For how many seconds the thread of an empty line is kept for the next who waits."""

NAMES = 1000
"""How many names one look asks for at most, unless one of those who wait wants more."""


class Catch(NamedTuple, Generic[T]):
    """What a look has brought, and what the sleep after it has to know."""

    things: list[T]
    mark: object
    next_event: int | None


class _Nothing(NamedTuple):
    """What the sleep has to know after looks that have brought nothing; ``mark`` of the first of them."""

    turn: Turn
    mark: object
    next_event: int | None


_Key = tuple[object, ...]

Look = Callable[[Turn, WantedJobs, int], "Catch[T]"]


class _Waiting(Generic[T]):
    """A coroutine in the line. ``looked``: a look that began after it came has found too little. ``due``: its time is
    up, and it gets what the look at hand brings."""

    __slots__ = ("context", "due", "looked", "most", "names", "queue", "served", "unless", "wanted", "wish")

    def __init__(self, wanted: WantedJobs, most: int, unless: Callable[[], bool] | None) -> None:
        self.wanted = wanted
        self.most = most
        self.unless = unless
        # What further arguments stand for can't be compared, but for being the same objects.
        extra = tuple((name, id(value)) for name, value in sorted(wanted.extra.items()))
        self.names = None if wanted.names is None else frozenset(wanted.names)
        self.queue: _Key = (self.names, extra)
        self.wish: _Key = (wanted.who, wanted.span, extra)
        self.context = contextvars.copy_context()
        self.served: asyncio.Future[list[T]] = asyncio.get_running_loop().create_future()
        self.looked = False
        self.due = False

    def called_off(self) -> bool:
        return self.unless is not None and self.unless()

    def takes(self, thing: T) -> bool:
        return self.names is None or getattr(thing, "name", None) in self.names


class _Party(Generic[T]):
    """Those for whom one look is made: the first of their queues, and those behind who claim in the same way."""

    def __init__(self, first: _Waiting[T]) -> None:
        self.first = first
        self.wish = first.wish
        # How many things are wanted in each queue; of all who stand there, be it behind somebody of another party.
        self.queues: dict[_Key, int] = {}
        self.present: list[_Waiting[T]] = []
        # How many takers each name has; None: those who take any.
        self._takers: Counter[str | None] = Counter()

    @property
    def full(self) -> bool:
        return len(self._takers) >= NAMES

    def add(self, waiter: _Waiting[T]) -> bool:
        """Whether one more can be served by the same look."""
        counted = self.queues.get(waiter.queue, 0)
        if waiter.wish != self.wish or (counted and counted + waiter.most > BATCH):
            return False
        self.queues[waiter.queue] = counted + waiter.most
        for name in (None,) if waiter.names is None else waiter.names:
            self._takers[name] += waiter.most
        return True

    @property
    def wanted(self) -> WantedJobs:
        wanted = self.first.wanted
        if len(self.queues) == 1:
            return wanted
        return wanted._replace(names=None if None in self._takers else sorted(filter(None, self._takers)))

    def most(self, reach: int) -> int:
        """How many things to look for: as many as there are takers for, whatever their names turn out to be; and up to
        ``reach``, where they are likely to differ."""
        total = sum(self.queues.values())
        if len(self.queues) == 1:
            return total
        sure = self._takers[None] or min(self._takers.values())
        return min(BATCH, total, max(sure, reach))


class _Reach:
    """How many things to look for where each name has few takers. It doubles while names differ from look to look. A
    name that comes again is one of which there are more, and these would have to be given back."""

    def __init__(self) -> None:
        self.now = 1
        self._last: set[str] = set()

    def learn(self, names: list[str], surplus: bool) -> None:
        found = set(names)
        if surplus or not names or len(found) < len(names) or found & self._last:
            self.now = 1
        elif len(names) >= self.now:
            self.now = min(BATCH, 2 * self.now)
        self._last = found


@dataclass
class _Sleep(Generic[T]):
    """What the thread sleeps for. ``party``: if it is only one, for whom a store may claim something meanwhile."""

    party: _Party[T] | None
    queues: frozenset[_Key]
    roused: bool = False


class WaitingLine(Generic[T]):
    """Those who wait on one board in one event loop.

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
        self._asleep: _Sleep[T] | None = None
        # For whom something may have been claimed by the last sleep.
        self._owed: _Party[T] | None = None
        self._reach = _Reach()
        self._settling: list[asyncio.Future[None]] = []
        self._server = asyncio.create_task(self._serve(), name=f"{board.name}-waiter")

    @property
    def asleep(self) -> bool:
        return self._asleep is not None

    @property
    def empty(self) -> bool:
        return not self._waiters

    async def wait(
        self, wanted: WantedJobs, most: int, timeout: float | None, unless: Callable[[], bool] | None = None
    ) -> list[T] | None:
        """What was found, at least one and at most ``most``; empty where there was nothing in time, or before
        ``unless`` was true. None: nothing in time, and nobody has looked since this one came."""
        waiter = _Waiting[T](wanted, most, unless)
        self._waiters[waiter] = None
        self._news.set()
        if self._asleep is not None and waiter.queue not in self._asleep.queues and not self._asleep.roused:
            self._asleep.roused = True
            self._board.wake()
        timer = None if timeout is None else waiter.served.get_loop().call_later(timeout, self._expire, waiter)
        try:
            things = await waiter.served
        except asyncio.CancelledError:
            # What can't be given back is in nobody's way.
            with contextlib.suppress(Exception):
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
            if self._looking or self._rouse_without(waiter):
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
        # A store may have claimed something for this one by now: the last look takes it.
        if not self._looking and not self._rouse_without(waiter):
            self._serve_one(waiter, [])

    def _rouse_without(self, waiter: _Waiting[T]) -> bool:
        """Wake the thread if something may be claimed now that only this one takes; whether it does."""
        party = None if self._asleep is None else self._asleep.party
        if party is None or waiter not in party.present or waiter.queue not in party.queues:
            return False
        others = (each for each in self._left_of(party) if each.queue == waiter.queue)
        behind = next((each for each in others if each is not waiter), None)
        if behind is not None and behind.wish == party.wish:
            return False
        self._board.wake()
        return True

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
            if all(waiter.served.done() for waiter in self._waiters):
                # Whoever ends the loop cancels this task, and those who wait.
                if task.cancelling() or not await self._anybody():
                    break
                continue
            turns = turns or self._board._rounds(None)
            try:
                if await self._serve_on(turns):
                    turns = None
            except GeneratorExit:
                # The loop was closed without a word.
                raise
            except BaseException as error:  # noqa: BLE001 - it is theirs who wait
                turns = None
                self._fail(error)
                with contextlib.suppress(Exception):
                    await self._forgo()
            finally:
                self._settle()
        self._ended()
        self._thread.close()

    def _fail(self, error: BaseException) -> None:
        for waiter in [each for each in self._waiters if not each.served.done()]:
            del self._waiters[waiter]
            waiter.served.set_exception(own_copy(error))

    async def _anybody(self) -> bool:
        self._news.clear()
        with contextlib.suppress(TimeoutError, asyncio.CancelledError):
            await asyncio.wait_for(self._news.wait(), LINGER)
        return any(not waiter.served.done() for waiter in self._waiters)

    async def _serve_on(self, turns: Iterator[Turn]) -> bool:
        """Look for each party, and sleep if that finds nothing; whether it has found something."""
        self._call_off()
        plan = self._plan()
        owed, self._owed = self._owed, None
        if owed is not None:
            slept = self._still_owed(owed)
            if slept is None:
                await self._forgo()
            elif len(plan) > 1 or plan[0].present != slept.present:
                if await self._look_once(slept, turns) is None:
                    return True
                plan = self._plan()
        if not plan:
            return True
        nothing = await (self._look_once(plan[0], turns) if len(plan) == 1 else self._look_round(plan, turns))
        if nothing is None:
            return True
        # Asked again after the mark was read: what wakes from here on is not slept through.
        self._call_off()
        left = self._plan()
        if left and _queues_of(left) <= _queues_of(plan) and (len(plan) > 1 or _alike(left, plan)):
            alone = left[0] if len(plan) == 1 else None
            self._asleep = _Sleep(alone, _queues_of(plan))
            try:
                doze = self._thread.begin(
                    self._board._doze, nothing.turn, nothing.mark, _names_of(left), nothing.next_event
                )
                # A loop that ends waits for this task, which waits for the thread.
                await outlast(doze, self._board.wake)
            finally:
                self._asleep = None
            if alone is not None:
                await self._after_sleep(alone)
        return False

    async def _look_once(self, party: _Party[T], turns: Iterator[Turn]) -> _Nothing | None:
        turn, found = await self._look_for(party, turns)
        return None if found.things else _Nothing(turn, found.mark, found.next_event)

    async def _look_round(self, plan: list[_Party[T]], turns: Iterator[Turn]) -> _Nothing | None:
        """Of several parties, look for those that may get something."""
        turn, peeked = await outlast(self._thread.begin(self._peek, turns, _names_of(plan)))
        nothing = _Nothing(turn, peeked.mark, peeked.next_event)
        for party in plan:
            if not peeked.any:
                _tell_looked(party)
            elif not all(waiter.served.done() for waiter in party.present):
                found = await self._look_once(party, itertools.repeat(turn))
                if found is None:
                    return None
                events = [each for each in (nothing.next_event, found.next_event) if each is not None]
                nothing = nothing._replace(next_event=min(events, default=None))
        return nothing

    async def _after_sleep(self, party: _Party[T]) -> None:
        self._call_off()
        if self._still_owed(party) is not None:
            self._owed = party
        else:
            await self._forgo()

    async def _forgo(self) -> None:
        """Give back what a store has claimed for those who slept."""
        await outlast(self._thread.begin(self._board.engine.forgo))

    def _left_of(self, party: _Party[T]) -> list[_Waiting[T]]:
        """Return the waiters of a party that still wait."""
        return [waiter for waiter in party.present if waiter in self._waiters and not waiter.served.done()]

    def _still_owed(self, slept: _Party[T]) -> _Party[T] | None:
        """The party of those who slept and still wait; None where what was claimed may be for none of them."""
        first = next((party for party in self._plan(self._left_of(slept)) if party.wish == slept.wish), None)
        return first if first is not None and first.queues.keys() >= slept.queues.keys() else None

    async def _look_for(self, party: _Party[T], turns: Iterator[Turn]) -> tuple[Turn, Catch[T]]:
        wanted, most = party.wanted, party.most(self._reach.now)

        def look() -> tuple[Turn, Catch[T]]:
            turn = next(turns)
            return turn, self._look(turn, wanted, most)

        self._looking = True
        try:
            turn, found = await outlast(self._thread.begin(party.first.context.run, look))
        finally:
            self._looking = False
        left = self._hand_out(found.things, party)
        if len(party.queues) > 1:
            self._reach.learn([getattr(thing, "name", "") for thing in found.things], bool(left))
        await self._return(left)
        if len(found.things) < most:
            _tell_looked(party)
        for waiter in [each for each in self._waiters if each.due]:
            self._serve_one(waiter, [])
        self._settle()
        return turn, found

    def _peek(self, turns: Iterator[Turn], names: Sequence[str] | None) -> tuple[Turn, Peeked]:
        turn = next(turns)
        return turn, self._board._peek(turn.session, names)

    def _plan(self, waiters: Iterable[_Waiting[T]] | None = None) -> list[_Party[T]]:
        """Return the parties to look for, of all waiters or of these. The party of the first waiter comes first."""
        plan: list[_Party[T]] = []
        filling: dict[_Key, _Party[T]] = {}
        homes: dict[_Key, _Party[T]] = {}
        shut: set[_Key] = set()
        for waiter in self._waiters if waiters is None else waiters:
            if waiter.served.done():
                continue
            party = homes.get(waiter.queue) or filling.get(waiter.wish)
            if party is None or (party.full and waiter.queue not in homes):
                party = filling[waiter.wish] = _Party(waiter)
                plan.append(party)
            homes[waiter.queue] = party
            party.present.append(waiter)
            # Nobody is served before who stands in front of it.
            if waiter.queue not in shut and not party.add(waiter):
                shut.add(waiter.queue)
        return plan

    def _hand_out(self, things: list[T], party: _Party[T]) -> list[T]:
        """What is left over, as those whom it was for have left."""
        left = list(things)
        for waiter in self._left_of(party) if left else ():
            if waiter.wish == party.wish and waiter.queue in party.queues:
                got: list[T] = []
                others: list[T] = []
                for thing in left:
                    (got if len(got) < waiter.most and waiter.takes(thing) else others).append(thing)
                if got:
                    left = others
                    self._serve_one(waiter, got)
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
                    waiter.served.set_exception(awaitable(error))
            else:
                if off:
                    self._serve_one(waiter, [])

    def _settle(self) -> None:
        """Nothing is claimed any more for those who have left."""
        settling, self._settling = self._settling, []
        for settled in settling:
            settled.set_result(None)


def _queues_of(plan: list[_Party[T]]) -> frozenset[_Key]:
    return frozenset(queue for party in plan for queue in party.queues)


def _names_of(plan: list[_Party[T]]) -> Sequence[str] | None:
    wanted = [party.wanted.names for party in plan]
    if len(wanted) == 1:
        return wanted[0]
    return None if None in wanted else sorted({name for names in wanted for name in names or ()})


def _alike(one: list[_Party[T]], other: list[_Party[T]]) -> bool:
    return [party.wish for party in one] == [party.wish for party in other]


def _tell_looked(party: _Party[T]) -> None:
    for waiter in party.present:
        waiter.looked = True
