"""Waiters: rounds of looks for something to do, and the sleeps between them.

A verb that waits looks once in each turn of :meth:`Waiters.rounds`, and sleeps between two turns::

    Waiters.doze -> Engine.wait -> Store.wait -> Hears.nap -> Waiters.nap

- ``doze`` sets the longest sleep.
- ``wait`` of the store decides how the thread learns of the acts of other processes. A store whose server calls waiters
  sleeps there itself.
- ``nap`` ends with :meth:`Waiters.wake`, which the store calls by ``Hears.news``. The engine is the ``Hears`` of its
  store.

Two other sleeps take no part in this. ``sleep_unless_closed`` of the engine is a pause, between two tries for instance,
which no wake cuts short. The posters of schedules call :meth:`Waiters.sleep_until_due`, which ends with an alarm.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from jobboard import arguments, retry, runtime
from jobboard.engine import RetryingEngine
from jobboard.primitives import POLL_CAP


class Turn(NamedTuple):
    """A look for something to do. ``end`` is on the monotonic clock; None for never."""

    number: int
    end: float | None

    def left(self) -> float:
        """Return the seconds until the end of the wait."""
        return math.inf if self.end is None else self.end - runtime.monotonic()


class Waiters:
    """The threads of this process that wait for jobs, or for due times of schedules.

    alarms: the number of alarms so far. A poster reads it before its look, and passes it to :meth:`sleep_until_due`.
    """

    def __init__(self, engine: RetryingEngine) -> None:
        self._engine = engine
        self._looked = runtime.Local()
        self._wakes = self.alarms = 0
        self._closed = True
        self._renew_locks()

    def _renew_locks(self) -> None:
        lock = runtime.Lock()
        self._news, self._alarm = runtime.Condition(lock), runtime.Condition(lock)

    # Life

    def begin(self) -> None:
        """Let threads sleep. In a forked child, too: no lock is taken here."""
        self._renew_locks()
        self._closed = False

    def end(self) -> None:
        """Wake every thread, and let none sleep."""
        self._closed = True
        self.wake()
        self.alarm()

    # Waiting for jobs

    def rounds(self, timeout: float | None) -> Iterator[Turn]:
        """Yield turns without end. The caller looks in each turn, and breaks off when no time is left.

        :raises ConnectionFailure: the board is closed.
        """
        arguments.timeout(timeout)
        end = None if timeout is None else runtime.monotonic() + timeout
        for number in itertools.count(1):
            self._engine.check_open()
            # A wake from now on shortens the next nap of this thread.
            self._looked.wakes = self._wakes
            yield Turn(number, end)

    def doze(self, turn: Turn, takes: bool, names: Sequence[str] | None, next_event: int | None) -> None:
        """Sleep between two turns, until something may have changed.

        :param takes: true for a thread that is going to claim.
        :param next_event: the µs until the next lapse or due time, None if none is known.
        """
        cap = self._engine.backend.traits.poll_cap
        limit = retry.backoff(turn.number, 0.01, cap) if cap <= POLL_CAP else cap
        if next_event is not None:
            limit = min(limit, max(next_event / 1e6, 0.001))
        self._engine.store.wait(names, self._engine.raw.readable, min(limit, turn.left()), takes)

    def nap(self, seconds: float) -> bool:
        """Sleep for ``seconds``, or until :meth:`wake`. Return whether this thread was woken since its look."""
        looked = getattr(self._looked, "wakes", self._wakes)
        with self._news:
            return self._news.wait_for(lambda: self._closed or self._wakes != looked, seconds)

    def wake(self) -> None:
        """Have every waiting thread look again: something may have become claimable."""
        with self._news:
            self._wakes += 1
            self._news.notify_all()

    # Waiting for due times

    def alarm(self) -> None:
        """Wake the posters of schedules: schedules may have changed."""
        with self._alarm:
            self.alarms += 1
            self._alarm.notify_all()

    def sleep_until_due(self, seconds: float, alarms: int) -> None:
        """Sleep for ``seconds``, or until an alarm after ``alarms``, or until the board is closed."""
        with self._alarm:
            self._alarm.wait_for(lambda: self._closed or self.alarms != alarms, seconds)
