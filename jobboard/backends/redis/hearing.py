"""Messages of the server over pub/sub: calls for waiters, events, and changes of the schedules."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from oslo_utils import uuidutils
from redis import exceptions as errors

from jobboard import logs
from jobboard.backends.redis.keys import Keys
from jobboard.backends.redis.links import UNREACHABLE, RedisLinks, cut, stay_alive
from jobboard.backends.redis.records import TAG
from jobboard.backends.redis.scripts import command
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.primitives import POLL_CAP
from jobboard.retry import backoff

LOG = logs.Log(__name__)

_LONG = 3600.0
"""For how many seconds a listener listens before it begins anew."""

_LATE = 0.1
"""For how many seconds a waiter that was called as its time was up listens for what it was called for."""


class Subscription:
    """A connection that is subscribed to channels."""

    def __init__(self, links: RedisLinks, sharded: bool, *channels: bytes) -> None:
        """:raises ConnectionFailure, redis.RedisError: it can't be."""
        self._links = links
        # Of its own: calls may use RESP3, which mixes messages and replies.
        self.connection = links.connect(protocol=2)
        try:
            words = (b"SSUBSCRIBE" if sharded else b"SUBSCRIBE", *channels)
            self.connection.send_packed_command([command(*words)], check_health=False)
            for _ in channels:
                self.connection.read_response(True)
        except BaseException as error:
            self.close()
            if isinstance(error, errors.MovedError):
                links.find_again()
            raise

    def hear(self, seconds: float) -> tuple[bytes, bytes] | None:
        """The next message, as (channel, payload); None if there is none in time.

        :raises redis.RedisError: the connection has broken, or is no longer subscribed.
        """
        if not self.connection.can_read(max(seconds, 0)):
            return None
        kind, channel, payload = self.connection.read_response(True)
        if kind not in (b"message", b"smessage"):
            raise errors.ConnectionError(f"no longer subscribed: {kind!r}")
        return channel, payload

    def close(self) -> None:
        self._links.drop(self.connection)


class Wish(NamedTuple):
    """The names that a waiter waits for, and whether it is going to claim."""

    names: Sequence[str] | None
    readable: int
    takes: bool


class _Ring(NamedTuple):
    """A call that a waiter has got, or may have got.

    id: the waiter, which may stand in the queue still; empty once it has left. names: it was called for a job of one of
    these names; None: of any.
    """

    id: str
    names: Sequence[str] | None


class _Bell:
    """A waiter: a subscription with a name on the server."""

    def __init__(self, links: RedisLinks, keys: Keys, sharded: bool) -> None:
        self.id = uuidutils.generate_uuid(dashed=False)
        self.own = keys.of("waiters") + b":" + self.id.encode()
        self.subscription = Subscription(links, sharded, self.own, keys.of("waiters") + b":all")


class RedisWaiters:
    """The waiters of one board.

    A waiter queues up on the server under the names that it waits for. The script that makes a job claimable calls
    the first waiter in the queue that fits and hears the call, and says the name of the job; see ``wake`` in
    prelude.lua. A waiter that was called and does not look hands the call on, and so does one that claims jobs of other
    names only: it may have taken what another waiter was called for, which finds nothing then. A waiter that dies after
    its call delays a job until another one looks by itself.
    """

    def __init__(self, links: RedisLinks, keys: Keys, sharded: bool, run: Callable[..., Any]) -> None:
        """:param run: runs a script by its name: ``run(name, *args)``."""
        self._links = links
        self._keys = keys
        self._sharded = sharded
        self._run = run
        self._free: deque[_Bell] = deque()
        self._asleep: dict[_Bell, Wish] = {}
        # By thread: its last call, until it claims something or waits again.
        self._called: dict[int, _Ring] = {}
        self._seen = threading.local()
        self._closed = False

    def looked(self, news: int) -> None:
        """This thread has looked. :param news: the last news that its look has seen."""
        # Of several looks before a sleep the first counts: what came between them, the others need not have looked for.
        if getattr(self._seen, "news", None) is None:
            self._seen.news = news

    def taken(self, names: Collection[str]) -> None:
        """This thread has claimed jobs of these names, and does not wait for the time being."""
        self._seen.news = None
        call = self._called.get(threading.get_ident())
        if call is not None and call.names is not None and set(call.names) <= set(names):
            del self._called[threading.get_ident()]
        else:
            self.forgo()

    def wait(self, wish: Wish, limit: float, nap: Callable[[float], bool]) -> None:
        """Sleep until something may have become claimable since this thread's last look, or for ``limit`` seconds.

        :param nap: sleeps here; true at once if something of this process's own has happened.
        """
        known, self._seen.news = getattr(self._seen, "news", None), None
        # Its look has found nothing to claim.
        self._called.pop(threading.get_ident(), None)
        try:
            bell = self._free.pop() if self._free else _Bell(self._links, self._keys, self._sharded)
        except (*UNREACHABLE, ConnectionFailure) as error:
            LOG.warning("can't wait for a call of the server's, looking again from time to time: %s", error)
            nap(min(limit, POLL_CAP))
            return
        self._asleep[bell] = wish
        try:
            # From here on rouse() reaches the bell; what came before is known to nap().
            if not nap(0) and (call := self._sleep(bell, wish, known or 0, limit)):
                self._called[threading.get_ident()] = call
            self._free.append(bell)
        except BaseException as error:
            bell.subscription.close()
            self._called[threading.get_ident()] = _Ring(bell.id, wish.names)
            if not isinstance(error, (*UNREACHABLE, ConnectionFailure)):
                self.forgo()
                raise
            LOG.info("a waiter's connection has ended: %s", error)
            with contextlib.suppress(JobFailure):
                if self._leave(bell):
                    del self._called[threading.get_ident()]
        finally:
            del self._asleep[bell]
            if self._closed:
                self.forgo()

    def _sleep(self, bell: _Bell, wish: Wish, known: int, limit: float) -> _Ring | None:
        """The call that the bell has got."""
        # What has come since the last night would make this one short.
        while bell.subscription.hear(0):
            pass
        if not self._run("wait", bell.id, *wish, known):
            return None
        name = self._listen(bell, wish, limit)
        if not name:
            if self._leave(bell) or not wish.takes:
                return None
            name = self._listen(bell, wish, _LATE)
        return _Ring("", [name] if name else wish.names)

    def _listen(self, bell: _Bell, wish: Wish, limit: float) -> str | None:
        """The name that the bell was called for before the time was up."""
        end = time.monotonic() + limit
        while (left := end - time.monotonic()) > 0:
            message = bell.subscription.hear(left)
            if message is None:
                return None
            channel, payload = message
            if channel == bell.own:
                return payload.decode()
            name = payload[TAG:].decode()
            if not name or wish.names is None or name in wish.names:
                end = min(end, time.monotonic() + int(payload[:TAG]) / 1e6)
        return None

    def _leave(self, bell: _Bell) -> bool:
        """Leave the queue; whether the bell stood in it still."""
        return bool(self._run("leave", bell.id, None, False))

    def _hand_on(self, call: _Ring) -> None:
        self._run("leave", *call, True)

    def forgo(self) -> None:
        """This thread takes nothing that it was called for: another is to have the call that it may have got."""
        call = self._called.pop(threading.get_ident(), None)
        # A waiter that can't leave is passed over, and others look by themselves.
        with contextlib.suppress(JobFailure):
            if call is not None:
                self._hand_on(call)

    def rouse(self) -> None:
        """Wake all who sleep here."""
        for bell in list(self._asleep):
            cut(bell.subscription.connection)

    def close(self) -> None:
        """Nobody here will look again: calls that come until now go to others."""
        self._closed = True
        with contextlib.suppress(JobFailure):
            for call in [*(_Ring(bell.id, wish.names) for bell, wish in self._asleep.items()), *self._called.values()]:
                self._hand_on(call)
        self._called.clear()


class ChannelListener:
    """A thread that listens to a channel, through all that befalls the connection.

    :param heard: told the payload of each message.
    :param missed: told when the listener hears again, behind an outage.
    """

    def __init__(
        self,
        links: RedisLinks,
        channel: bytes,
        sharded: bool,
        heard: Callable[[bytes], None],
        missed: Callable[[], None],
    ) -> None:
        self._links = links
        self._channel = channel
        self._sharded = sharded
        self._heard = heard
        self._missed = missed
        self._subscription: Subscription | None = None
        self._failures = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="jobboard-listener", daemon=True)

    @property
    def hears(self) -> bool:
        return self._subscription is not None

    def start(self, at_once: bool = True) -> None:
        """:param at_once: what happens from the return of this call on is heard, if the server can be reached."""
        if at_once:
            try:
                self._open()
            except (*UNREACHABLE, ConnectionFailure) as error:
                LOG.warning("can't listen to other processes yet: %s", error)
                self._failures = 1
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        subscription = self._subscription
        if subscription is not None:
            cut(subscription.connection)
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _open(self) -> Subscription:
        self._subscription = subscription = Subscription(self._links, self._sharded, self._channel)
        # Nothing is sent, and a server that has gone without a word is noticed all the same.
        stay_alive(subscription.connection)
        return subscription

    def _listen(self) -> None:
        while not self._stopped.is_set():
            try:
                subscription = self._subscription or self._open()
                if self._failures:
                    self._missed()
                self._failures = 0
                # A subscription that stop() came too early to cut.
                if self._stopped.is_set():
                    break
                message = subscription.hear(_LONG)
                if message is not None:
                    self._heard(message[1])
            except (*UNREACHABLE, ConnectionFailure) as error:
                if not self._stopped.is_set():
                    self._failures += 1
                    level = logging.DEBUG if self._failures > 1 else logging.WARNING
                    LOG.log(level, "can't listen to other processes, trying again: %s", error)
                self._close()
                self._stopped.wait(backoff(self._failures, 0.05, POLL_CAP))
        self._close()

    def _close(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.close()
