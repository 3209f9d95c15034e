"""How a board sleeps until the server calls it, and how it hears what others do: both over pub/sub.

A waiter queues up on the server under what it waits for, and subscribes to a channel of its own. The script that
makes a job claimable calls the waiter whose turn it is, and the next one if nobody hears that. So a job wakes one of
those who wait for it, an idle board sends nothing, and nobody can take a call that was meant for another.
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

from jobboard.backends.redis.keys import Keys
from jobboard.backends.redis.links import UNREACHABLE, Links, cut
from jobboard.backends.redis.scripts import command
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.primitives import POLL_CAP
from jobboard.retry import backoff
from jobboard.states import Record

LOG = logging.getLogger(__name__)

Run = Callable[..., Any]
"""Runs a script by its name: ``run(name, args)``."""


class Ear:
    """A connection that is subscribed to channels."""

    def __init__(self, links: Links, sharded: bool, *channels: bytes) -> None:
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


class _Bell:
    """A waiter: an ear with a name on the server."""

    def __init__(self, links: Links, keys: Keys, sharded: bool) -> None:
        self.id = uuidutils.generate_uuid(dashed=False)
        self.ticket = 0
        self.takes = False
        self.names: Sequence[str] | None = None
        self.own = keys.of("waiters") + b":" + self.id.encode()
        self.ear = Ear(links, sharded, self.own, keys.of("waiters") + b":all")


class _Call(NamedTuple):
    """A call that has woken a thread, or may have. ``name``: of the job that it told of, if that is known;
    ``names``: what it may be otherwise, None for anything."""

    name: str | None
    names: Sequence[str] | None

    @property
    def of(self) -> Sequence[str] | None:
        return self.names if self.name is None else [self.name]


class Bells:
    """The waiters of one board.

    A call is for one waiter alone. So whoever was called and takes another job, or none, hands the call on.
    """

    def __init__(self, links: Links, keys: Keys, sharded: bool, run: Run) -> None:
        self._links = links
        self._keys = keys
        self._sharded = sharded
        self._run = run
        self._free: deque[_Bell] = deque()
        self._asleep: set[_Bell] = set()
        self._called: dict[int, _Call] = {}

    def wait(
        self,
        takes: bool,
        names: Sequence[str] | None,
        readable: int,
        limit: float,
        nap: Callable[[float], bool],
    ) -> None:
        """Sleep until something can be claimed, or for ``limit`` seconds.

        :param takes: whether a call ends with this waiter, which will take the job.
        :param nap: sleeps here; true at once if something of this process's own has happened.
        """
        try:
            bell = self._bell()
        except (*UNREACHABLE, ConnectionFailure) as error:
            LOG.warning("can't wait for a call of the server's, looking again from time to time: %s", error)
            nap(min(limit, POLL_CAP))
            return
        bell.takes, bell.names = takes, names
        self._asleep.add(bell)
        try:
            # From here on rouse() reaches the bell; what came before is known to nap().
            if not nap(0):
                self._sleep(bell, readable, limit)
            self._free.append(bell)
        except ConnectionFailure as error:
            LOG.info("a waiter could not queue up: %s", error)
            self._break(bell)
        except UNREACHABLE as error:
            LOG.info("a waiter's connection has ended: %s", error)
            self._break(bell)
            with contextlib.suppress(JobFailure):
                self._run("leave", (bell.id,))
        except BaseException:
            self._break(bell)
            with contextlib.suppress(JobFailure):
                self._run("leave", (bell.id,))
            self.hand_on(readable)
            raise
        finally:
            self._asleep.discard(bell)

    def _bell(self) -> _Bell:
        try:
            return self._free.pop()
        except IndexError:
            return _Bell(self._links, self._keys, self._sharded)

    def _break(self, bell: _Bell) -> None:
        """Nobody knows whether it was called."""
        bell.ear.close()
        if bell.takes:
            self._called[threading.get_ident()] = _Call(None, bell.names)

    def _sleep(self, bell: _Bell, readable: int, limit: float) -> None:
        bell.ticket += 1
        # What has come since the last night would make this one short.
        while bell.ear.hear(0):
            pass
        asleep, event = self._run("bide", (bell.id, bell.ticket, bell.takes, readable, bell.names))
        if not asleep:
            return
        name = self._listen(bell, min(limit, event / 1e6) if event else limit)
        if name is None:
            if not self._run("leave", (bell.id,)):
                raise errors.TimeoutError("a call came too late, or has not come through")
        elif bell.takes:
            self._called[threading.get_ident()] = _Call(name or None, None)

    @staticmethod
    def _listen(bell: _Bell, limit: float) -> str | None:
        """The name of the job for which the bell is called, empty if nobody knows it any longer; None if it is not
        called before the time is up."""
        end = time.monotonic() + limit
        while (left := end - time.monotonic()) > 0:
            message = bell.ear.hear(left)
            if message is None:
                return None
            channel, payload = message
            if channel == bell.own:
                # A call of an earlier night, that came when nobody slept any longer, is of no account.
                ticket, _, name = payload.partition(b"\0")
                if int(ticket) == bell.ticket:
                    return name.decode()
            else:
                end = min(end, time.monotonic() + int(payload) / 1e6)
        return None

    def taken(self, records: Sequence[Record], readable: int) -> None:
        """This thread has looked, and this is what it took: if not what it was called for, that is left to others."""
        call = self._called.get(threading.get_ident())
        if call is None:
            return
        if not records or any(record.name == call.name for record in records):
            del self._called[threading.get_ident()]
        else:
            self.hand_on(readable)

    def hand_on(self, readable: int) -> None:
        """This thread does not follow the call that has woken it, if one has."""
        call = self._called.pop(threading.get_ident(), None)
        if call is not None:
            with contextlib.suppress(JobFailure):
                self._run("call", (readable, call.of))

    def rouse(self) -> None:
        """Wake all who sleep here."""
        for bell in list(self._asleep):
            cut(bell.ear.connection)

    def close(self, readable: int) -> None:
        """Nobody here can follow a call any longer: what was meant for one who sleeps goes to another board's."""
        asleep = list(self._asleep)
        # Those whom a call can't find any more are passed over in any case, so the first failure ends this.
        with contextlib.suppress(JobFailure):
            for bell in asleep:
                if not self._run("leave", (bell.id,)) and bell.takes:
                    self._run("call", (readable, bell.names))
            for call in list(self._called.values()):
                self._run("call", (readable, call.of))


class Listener:
    """Hears on a thread of its own what other handles of the board do.

    :param heard: told the slot of the call that did it, the event, and the uuid, record and posting of its job.
    """

    def __init__(
        self,
        links: Links,
        keys: Keys,
        sharded: bool,
        heard: Callable[[bytes, str, bytes, bytes, bytes], None],
    ) -> None:
        self._links = links
        self._channel = keys.of("meta") + b":events"
        self._announce = command(b"HSET", keys.of("meta"), b"listening", b"1")
        self._sharded = sharded
        self._heard = heard
        self._ear: Ear | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="jobboard-listener", daemon=True)

    def start(self, at_once: bool = True) -> None:
        """:param at_once: what happens from the return of this call on is heard, if the server can be reached."""
        if at_once:
            try:
                self._open()
            except (*UNREACHABLE, ConnectionFailure) as error:
                LOG.warning("can't listen to other processes yet: %s", error)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        ear = self._ear
        if ear is not None:
            cut(ear.connection)
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _open(self) -> Ear:
        self._ear = Ear(self._links, self._sharded, self._channel)
        self._links.call(self._announce)
        return self._ear

    def _listen(self) -> None:
        failures = 0
        while not self._stopped.is_set():
            try:
                ear = self._ear or self._open()
                failures = 0
                # An ear that stop() came too early to cut.
                if self._stopped.is_set():
                    break
                message = ear.hear(POLL_CAP * 10)
                if message is None:
                    # Scripts that find nobody listening stop telling; a failover may have forgotten that somebody does.
                    self._links.call(self._announce)
                else:
                    self._tell(message[1])
            except (*UNREACHABLE, ConnectionFailure) as error:
                if not self._stopped.is_set():
                    failures += 1
                    LOG.warning("can't listen to other processes, trying again: %s", error)
                self._close()
                self._stopped.wait(backoff(failures, 0.05, POLL_CAP))
        self._close()

    def _tell(self, payload: bytes) -> None:
        try:
            who, event, uuid, record, posting = msgpack.unpackb(payload, raw=True)
            self._heard(who, event.decode(), uuid, record, posting)
        except Exception:
            # Another version may tell something else; what comes after it is heard all the same.
            LOG.exception("an event can't be read")

    def _close(self) -> None:
        ear, self._ear = self._ear, None
        if ear is not None:
            ear.close()
