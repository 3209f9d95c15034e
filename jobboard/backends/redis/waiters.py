"""Waiters: threads that sleep until the server calls them for a job.

A waiter queues up on the server under the names that it waits for. The script that makes a job claimable calls the
first waiter in the queue that wants the job and is connected, and names the job: see ``wake`` in prelude.lua. A call
takes the waiter out of the queue, so each call must lead to a look for jobs:

- A called waiter that does not look hands its call on to the next waiter.
- So does a waiter that claims jobs of other names only: it may have taken the job of another waiter's call.
- If a waiter dies after its call, the job waits until another waiter looks by itself.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from jobboard import logs, runtime
from jobboard.backends.redis.connections import UNREACHABLE, Connections, cut
from jobboard.backends.redis.keys import Keys
from jobboard.backends.redis.pubsub import Subscription
from jobboard.backends.redis.records import TAG
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.primitives import POLL_CAP

LOG = logs.Log(__name__)

_LATE = 0.1
"""Seconds for which a waiter that was called just as its time was up waits for the message of the call."""


class Wish(NamedTuple):
    """The jobs that a waiter waits for.

    :param names: their names, None for any.
    :param readable: the newest version that the waiter can read.
    :param takes: the waiter is going to claim a job, and does not only look.
    """

    names: Sequence[str] | None
    readable: int
    takes: bool


class _WakeCall(NamedTuple):
    """A call that a waiter got, or may have got.

    :param id: the waiter, if it may still be in the queue. Empty once it has left.
    :param names: the names of the job of the call, None for any.
    """

    id: str
    names: Sequence[str] | None


class _Bell:
    """A subscription to the channel of one waiter, and to the channel of all waiters."""

    def __init__(self, connections: Connections, keys: Keys, sharded: bool) -> None:
        self.id = runtime.uuid4().hex
        self.own = keys.of("waiters") + b":" + self.id.encode()
        self.subscription = Subscription(connections, sharded, self.own, keys.of("waiters") + b":all")


class RedisWaiters:
    """The waiters of one connected board: one for each thread that waits.

    :param run: runs a script: ``run(name, *args)``.
    """

    def __init__(self, connections: Connections, keys: Keys, sharded: bool, run: Callable[..., Any]) -> None:
        self._connections = connections
        self._keys = keys
        self._sharded = sharded
        self._run = run
        self._free: deque[_Bell] = deque()
        self._asleep: dict[_Bell, Wish] = {}
        # The last call of each thread, until the thread claims a job or waits again.
        self._called: dict[int, _WakeCall] = {}
        self._seen = runtime.Local()
        self._closed = False

    def note_look(self, news: int) -> None:
        """Note that this thread has looked for jobs. ``news``: the number of the latest news on the board then."""
        # The first of several looks before a sleep counts: later looks need not have looked for the same jobs.
        if getattr(self._seen, "news", None) is None:
            self._seen.news = news

    def note_claims(self, names: Collection[str]) -> None:
        """Note that this thread has claimed jobs of these names, and does not go on waiting."""
        self._seen.news = None
        call = self._called.get(runtime.get_ident())
        if call is not None and call.names is not None and set(call.names) <= set(names):
            del self._called[runtime.get_ident()]
        else:
            self.forgo()

    def wait(self, wish: Wish, limit: float, nap: Callable[[float], bool]) -> None:
        """Sleep until a job may have become claimable since this thread's last look, or for ``limit`` seconds.

        :param nap: sleeps for so many seconds, or returns true at once if this process itself has news.
        """
        known, self._seen.news = getattr(self._seen, "news", None), None
        # The look after the last call has found nothing to claim.
        self._called.pop(runtime.get_ident(), None)
        try:
            bell = self._free.pop() if self._free else _Bell(self._connections, self._keys, self._sharded)
        except (*UNREACHABLE, ConnectionFailure) as error:
            LOG.warning("can't listen for calls of the server, polling instead: %s", error)
            nap(min(limit, POLL_CAP))
            return
        self._asleep[bell] = wish
        try:
            # From here on rouse() reaches the bell. Earlier news are known to nap().
            if not nap(0) and (call := self._sleep(bell, wish, known or 0, limit)):
                self._called[runtime.get_ident()] = call
            self._free.append(bell)
        except BaseException as error:
            bell.subscription.close()
            self._called[runtime.get_ident()] = _WakeCall(bell.id, wish.names)
            if not isinstance(error, (*UNREACHABLE, ConnectionFailure)):
                self.forgo()
                raise
            LOG.info("the connection of a waiter has ended: %s", error)
            with contextlib.suppress(JobFailure):
                if self._leave(bell):
                    del self._called[runtime.get_ident()]
        finally:
            del self._asleep[bell]
            if self._closed:
                self.forgo()

    def _sleep(self, bell: _Bell, wish: Wish, known: int, limit: float) -> _WakeCall | None:
        """Queue up and sleep. Return the call that ended the sleep."""
        # Messages since the last sleep would cut this one short.
        while bell.subscription.hear(0):
            pass
        if not self._run("wait", bell.id, *wish, known):
            return None
        name = self.listen(bell, wish, limit)
        if not name:
            if self._leave(bell) or not wish.takes:
                return None
            name = self.listen(bell, wish, _LATE)
        return _WakeCall("", [name] if name else wish.names)

    def listen(self, bell: _Bell, wish: Wish, limit: float) -> str | None:
        """Return the name of the job of the waiter's call, None if no call comes in time.

        A message to all waiters brings the end of the time forward.
        """
        end = runtime.monotonic() + limit
        while (left := end - runtime.monotonic()) > 0:
            message = bell.subscription.hear(left)
            if message is None:
                return None
            channel, payload = message
            if channel == bell.own:
                return payload.decode()
            name = payload[TAG:].decode()
            if not name or wish.names is None or name in wish.names:
                end = min(end, runtime.monotonic() + int(payload[:TAG]) / 1e6)
        return None

    def _leave(self, bell: _Bell) -> bool:
        """Leave the queue. Return whether the waiter was still in it."""
        return bool(self._run("leave", bell.id, None, False))

    def _hand_on(self, call: _WakeCall) -> None:
        self._run("leave", *call, True)

    def forgo(self) -> None:
        """Hand on the call that this thread may have got, as the thread takes no job for it."""
        call = self._called.pop(runtime.get_ident(), None)
        # A waiter that cannot leave is passed over, as its connection is gone. Other waiters look by themselves.
        with contextlib.suppress(JobFailure):
            if call is not None:
                self._hand_on(call)

    def rouse(self) -> None:
        """Wake all threads that sleep here."""
        for bell in list(self._asleep):
            cut(bell.subscription.connection)

    def close(self) -> None:
        """Hand on all calls, as no thread looks here again."""
        self._closed = True
        with contextlib.suppress(JobFailure):
            for call in [
                *(_WakeCall(bell.id, wish.names) for bell, wish in self._asleep.items()),
                *self._called.values(),
            ]:
                self._hand_on(call)
        self._called.clear()
