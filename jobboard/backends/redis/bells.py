"""How a board sleeps until the server calls it, and how it hears what others do: both over pub/sub.

A waiter queues up on the server under what it waits for, and subscribes to a channel of its own. The script that makes
a job claimable claims it for the first in the queue that hears of it, and sends the claim along. So a job wakes one of
those who wait for it, who need not ask for it any more; an idle board sends nothing, and nobody can take a call that
was meant for another. Where the message gets lost, the waiter asks for what it was given.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgpack
from oslo_utils import uuidutils
from redis import exceptions as errors

from jobboard import logs
from jobboard.backends.redis.keys import Keys
from jobboard.backends.redis.links import UNREACHABLE, RedisLinks, cut, stay_alive
from jobboard.backends.redis.records import record_of
from jobboard.backends.redis.scripts import command
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.job import boottime
from jobboard.primitives import POLL_CAP
from jobboard.retry import backoff
from jobboard.states import Record

LOG = logs.Log(__name__)

_LONG = 3600.0
"""For how many seconds one who sends nothing listens before it begins anew."""

Run = Callable[..., Any]
"""Runs a script by its name: ``run(name, *args)``."""


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
    """Whom a job is to be claimed for, as who waits wants it. ``lease`` in µs."""

    who: str
    lease: int
    keeper: str | None


class _Given(NamedTuple):
    """A claim that a waiter was given; ``end`` of its lease on our own clock."""

    wish: Wish
    record: Record
    end: float


class _Bell:
    """A waiter: a subscription with a name on the server."""

    def __init__(self, links: RedisLinks, keys: Keys, sharded: bool) -> None:
        self.id = uuidutils.generate_uuid(dashed=False)
        self.ticket = 0
        self.wish: Wish | None = None
        self.own = keys.of("waiters") + b":" + self.id.encode()
        self.subscription = Subscription(links, sharded, self.own, keys.of("waiters") + b":all")
        self._since = (0.0, 0)

    def queued(self, at: float, now: int) -> None:
        """The server's clock said ``now`` (µs) when ours said ``at``, or later."""
        self._since = (at, now)

    def given(self, job: Sequence[bytes]) -> _Given | None:
        """What a call or an answer of the server's tells of; one who only looks is given nothing."""
        if not job:
            return None
        assert self.wish is not None
        record = record_of(*job)
        at, now = self._since
        return _Given(self.wish, record, at + ((record.lock_until or now) - now) / 1e6)


class Bells:
    """The waiters of one board.

    :param stands: whether a claim that a waiter was given still does, once it is as safe as one of its own making.
    :param give_back: ends a claim that nobody here will use; that attempt does not count.
    """

    def __init__(
        self,
        links: RedisLinks,
        keys: Keys,
        sharded: bool,
        run: Run,
        stands: Callable[[Record], bool],
        give_back: Callable[[Record], object],
    ) -> None:
        self._links = links
        self._keys = keys
        self._sharded = sharded
        self._run = run
        self._stands = stands
        self._give_back = give_back
        self._free: deque[_Bell] = deque()
        self._asleep: set[_Bell] = set()
        # By thread: a claim that its next look will find, and a bell that may have been given one.
        self._given: dict[int, _Given] = {}
        self._doubtful: dict[int, _Bell] = {}
        self._closed = False

    def wait(
        self,
        wish: Wish | None,
        handle: str,
        names: Sequence[str] | None,
        readable: int,
        limit: float,
        nap: Callable[[float], bool],
    ) -> None:
        """Sleep until something can be claimed, or for ``limit`` seconds. With a ``wish``, the first job to come is
        claimed for it: see :meth:`taken`.

        :param nap: sleeps here; true at once if something of this process's own has happened.
        """
        try:
            bell = self._bell()
        except (*UNREACHABLE, ConnectionFailure) as error:
            LOG.warning("can't wait for a call of the server's, looking again from time to time: %s", error)
            nap(min(limit, POLL_CAP))
            return
        bell.wish, bell.ticket = wish, bell.ticket + 1
        self._asleep.add(bell)
        try:
            # From here on rouse() reaches the bell; what came before is known to nap().
            if not nap(0):
                self._sleep(bell, handle, names, readable, limit)
            self._free.append(bell)
        except BaseException as error:
            bell.subscription.close()
            self._doubtful[threading.get_ident()] = bell
            if not isinstance(error, (*UNREACHABLE, ConnectionFailure)):
                self.forgo()
                raise
            LOG.info("a waiter's connection has ended: %s", error)
        finally:
            self._asleep.discard(bell)
            if self._closed:
                self.forgo()

    def _bell(self) -> _Bell:
        try:
            return self._free.pop()
        except IndexError:
            return _Bell(self._links, self._keys, self._sharded)

    def _sleep(self, bell: _Bell, handle: str, names: Sequence[str] | None, readable: int, limit: float) -> None:
        # What has come since the last night would make this one short.
        while bell.subscription.hear(0):
            pass
        at = boottime()
        asleep, event, now = self._run("bide", bell.id, bell.ticket, readable, names, handle, *(bell.wish or ()))
        bell.queued(at, now)
        if asleep and not self._listen(bell, names, min(limit, event / 1e6) if event else limit):
            self._keep(self._collect(bell))

    def _listen(self, bell: _Bell, names: Sequence[str] | None, limit: float) -> bool:
        """Whether the bell was called before the time was up."""
        end = time.monotonic() + limit
        while (left := end - time.monotonic()) > 0:
            message = bell.subscription.hear(left)
            if message is None:
                return False
            channel, payload = message
            if channel != bell.own:
                left_us, _, name = payload.decode().partition(" ")
                if not name or names is None or name in names:
                    end = min(end, time.monotonic() + int(left_us) / 1e6)
                continue
            ticket, job = msgpack.unpackb(payload, raw=True)
            # A call of an earlier night is of no account: what it gave has been asked for.
            if ticket == bell.ticket:
                self._keep(bell.given(job))
                return True
        return False

    def _collect(self, bell: _Bell) -> _Given | None:
        """Leave the queue; what the bell was given meanwhile."""
        return bell.given(self._run("leave", bell.id, bell.ticket))

    def _keep(self, given: _Given | None) -> None:
        if given is not None:
            self._given[threading.get_ident()] = given

    def _return(self, given: _Given | None) -> None:
        if given is not None:
            self._give_back(given.record)

    def taken(self, wish: Wish, names: Sequence[str] | None) -> tuple[Record, int] | None:
        """What this thread was given while it waited, and for how many µs that stands.

        :raises ConnectionFailure: that can't be found out, or is not as safe as it is to be.
        """
        if not (self._given or self._doubtful):
            return None
        me = threading.get_ident()
        doubtful = self._doubtful.get(me)
        if doubtful is not None:
            self._keep(self._collect(doubtful))
            del self._doubtful[me]
        given = self._given.get(me)
        if given is None:
            return None
        if given.wish != wish or not (names is None or given.record.name in names):
            self.forgo()
            return None
        stands = self._stands(given.record)
        # Whoever has closed the board meanwhile has given it back.
        if self._given.pop(me, None) is None or not stands:
            return None
        return given.record, int((given.end - boottime()) * 1e6)

    def forgo(self) -> None:
        """This thread will not look for what it was given."""
        me = threading.get_ident()
        with contextlib.suppress(JobFailure):
            doubtful = self._doubtful.pop(me, None)
            if doubtful is not None:
                self._keep(self._collect(doubtful))
            self._return(self._given.pop(me, None))

    def rouse(self) -> None:
        """Wake all who sleep here."""
        for bell in list(self._asleep):
            cut(bell.subscription.connection)

    def close(self) -> None:
        """Nobody here will look again: what those who sleep are given until now goes to others."""
        self._closed = True
        # A claim that can't be given back lapses, and a waiter that can't leave is passed over.
        with contextlib.suppress(JobFailure):
            for bell in [*self._asleep, *self._doubtful.values()]:
                self._return(self._collect(bell))
            for me in list(self._given):
                self._return(self._given.pop(me, None))


class ChannelListener:
    """Hears on a thread of its own what is published on one channel.

    :param heard: told the payload of each message.
    :param missed: told when it hears again, and may have missed something.
    :param announce: sent to the server while it listens, now and again.
    """

    def __init__(
        self,
        links: RedisLinks,
        channel: bytes,
        sharded: bool,
        heard: Callable[[bytes], object],
        missed: Callable[[], object],
        announce: bytes = b"",
    ) -> None:
        self._links = links
        self._channel = channel
        self._announce = announce
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
        subscription = Subscription(self._links, self._sharded, self._channel)
        if not self._announce:
            # Nothing is sent, and a server that has gone without a word is noticed all the same.
            stay_alive(subscription.connection)
        self._subscription = subscription
        self._announced()
        return subscription

    def _announced(self) -> None:
        if self._announce:
            self._links.call(self._announce)

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
                message = subscription.hear(POLL_CAP * 10 if self._announce else _LONG)
                if message is None:
                    # Scripts that find nobody listening stop telling; a failover may have forgotten that somebody does.
                    self._announced()
                else:
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


def events_listener(
    links: RedisLinks, keys: Keys, sharded: bool, heard: Callable[[str, str, Record], None]
) -> ChannelListener:
    """Hears what other handles of the board do.

    :param heard: told the slot of the call that did it, the event, and the job as that left it.
    """

    def tell(payload: bytes) -> None:
        try:
            who, event, uuid, record, posting = msgpack.unpackb(payload, raw=True)
            heard(who.decode(), event.decode(), record_of(uuid, record, posting))
        except Exception:
            # Another version may tell something else; what comes after it is heard all the same.
            LOG.exception("an event can't be read")

    def missed() -> None:
        LOG.warning("listening to other processes again; what they did meanwhile was not heard")

    announce = command(b"HSET", keys.of("meta"), b"listening", b"1")
    return ChannelListener(links, keys.of("meta") + b":events", sharded, tell, missed, announce)
