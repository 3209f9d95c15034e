"""One board's connection: a client of its own or of the caller's, requests with a limit, and the session's times."""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from kazoo import exceptions as kazoo
from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import ForceRetryError, RetryFailedError

from jobboard import forks
from jobboard.backends.zookeeper.multi import Multi, MultiRead, send
from jobboard.backends.zookeeper.requests import Op, Read, Refused, Request, check, get
from jobboard.exceptions import ConnectionFailure, JobBoardError, JobFailure
from jobboard.session import time_left

LOG = logging.getLogger(__name__)

_BROKEN = (
    kazoo.ConnectionLoss,
    kazoo.SessionExpiredError,
    kazoo.SessionMovedError,
    kazoo.OperationTimeoutError,
    kazoo.ConnectionClosedError,
    kazoo.ConnectionDropped,
)

_AWAY = "there is no connection to ZooKeeper: no server answers"

_NUDGE = 0.1
"""After how many seconds without an answer the server is nudged, and again after twice as long each time."""

_AT_ONCE = 1000

_CLOSING = 60.0
"""For how many seconds a client that does not end is waited for, behind the caller's back."""


class Connection:
    """:param make: a new client, not started.
    :param client: the caller's, instead.
    :param acl: of what is created; None: the client's own.
    :param home: the process that has started the caller's client.
    :param heard: told of each change of the client's state; must not block.
    """

    def __init__(
        self,
        make: Callable[[], KazooClient],
        client: Any,
        acl: Sequence[Any] | None,
        timeout: float,
        home: int,
        heard: Callable[[str], None],
    ) -> None:
        self._make = make
        self._callers = client
        self._acl = acl
        self._timeout = timeout
        self._heard = heard
        self._home = home
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._client: Any = None
        self._started = 0.0
        self._gave_up: Any = None
        self._refused: Any = None
        self._alone: bool | None = None
        self._closed = False
        self._hurried = False
        self._setting_up = False
        self._queueing = threading.Lock()
        self._owed: Any = None
        self._probe: tuple[Any, Any] = (None, None)
        self._why = _AWAY
        self.sent = 0
        self.session_timeout = 0.0

    @property
    def alive(self) -> bool:
        client = self._client
        return client is not None and bool(client.connected)

    @property
    def shared(self) -> bool:
        """Whether the client is the caller's, and its session goes on without this board."""
        return self._callers is not None

    @property
    def session_id(self) -> int | None:
        client = self._client
        known = None if client is None else client.client_id
        return None if known is None else int(known[0])

    @property
    def patience(self) -> float:
        """How long one request may take, in seconds: so long that a beat which gets no answer is over before the claims
        that it was to keep count as lost."""
        if self._setting_up:
            return self._timeout
        return min(5.0, max(0.7, self.session_timeout / 3))

    def set_up(self, do: Callable[[], None]) -> None:
        """What connect() does, and again if the connection breaks meanwhile: as often as ``command_retry`` says. No
        claims wait for a beat yet, so that each request may take as long as the first connection."""
        until = time.monotonic() + self._timeout
        broken: list[ConnectionFailure] = []

        def attempt() -> None:
            try:
                do()
            except ConnectionFailure as error:
                if error.refused or time.monotonic() > until:
                    raise
                broken.append(error)
                raise ForceRetryError from error

        self._setting_up = True
        try:
            self.open().retry(attempt)
        except RetryFailedError:
            raise broken[-1] from None
        finally:
            self._setting_up = False

    def open(self) -> KazooClient:
        """The client, connected for as far as that can be had: within the time limit of ``connect()`` if it is new, and
        else within what the call has left.

        :raises ConnectionFailure: no server answers.
        """
        client = self._client
        if client is not None and client.connected:
            return client
        first = self._revive()
        left = time_left()
        limit = self._timeout if first else self.patience if left is None else left
        start = time.monotonic()
        while True:
            # Another thread may have replaced one that had given up.
            client = self._client
            if self._closed or client is None:
                raise ConnectionFailure("the board is closed")
            if client.connected:
                return client
            closed = client.client_state == KeeperState.CLOSED
            if not closed:
                self._started = 0.0
                if self._probe[0] is not client or self._probe[1].ready():
                    # kazoo tells those who wait for an answer why there is none.
                    self._probe = (client, client.exists_async("/"))
            asked, probe = self._probe
            if asked is client and probe.ready() and isinstance(probe.exception, kazoo.AuthFailedError):
                self._refused = self._gave_up = client
            self._check_running(client, closed)
            left = 0 if self._hurried else start + limit - time.monotonic()
            if left <= 0:
                raise ConnectionFailure(f"no ZooKeeper server has answered within {limit:g} s" if first else self._why)
            # At first a client may fail sooner than one looks.
            time.sleep(min(left, 0.005 if time.monotonic() > start + 0.1 else 0.0005))

    def _check_running(self, client: KazooClient, closed: bool) -> None:
        """:raises ConnectionFailure: the client has stopped trying to connect."""
        if client is self._callers:
            if closed:
                raise ConnectionFailure("the client= of this board is not running: start() it first")
            return
        # One that was just started looks like one that has given up, until its thread has begun to try.
        if closed and time.monotonic() > self._started + self._timeout:
            self._gave_up = client
        if self._gave_up is client:
            self._why = (
                "ZooKeeper has refused the authentication"
                if self._refused is client
                else "no ZooKeeper server has answered within the tries of connection_retry"
            )
            raise ConnectionFailure(self._why, refused=self._refused is client)

    def hurry(self) -> None:
        """Wait for no connection any longer: the board is closing."""
        self._hurried = True

    def _revive(self) -> bool:
        """Have a client that is connected or trying to; whether it is the first one. Does not wait for it."""
        with self._lock:
            if self._closed:
                raise ConnectionFailure("the board is closed")
            first = self._client is None
            if not first and self._client is not self._callers:
                with contextlib.suppress(ConnectionFailure):
                    self._check_running(self._client, self._client.client_state == KeeperState.CLOSED)
                if self._gave_up is self._client:
                    # Its thread is gone: it would never connect again.
                    self._drop(self._client)
            if self._client is None:
                self._client = self._start()
            return first

    def _start(self) -> KazooClient:
        if self._callers is not None:
            forks.check_home(self._home)
            self._check_running(self._callers, self._callers.client_state == KeeperState.CLOSED)
            if not self.session_timeout:
                self.session_timeout = _negotiated(self._callers, self._timeout)
            self._callers.add_listener(self._listen)
            return self._callers
        client = self._make()
        # What was asked for holds until the server's is known.
        self.session_timeout = client._session_timeout / 1000
        _on_negotiated(client, functools.partial(setattr, self, "session_timeout"))
        client.add_listener(self._listen)
        self._started = time.monotonic()
        client.start_async()
        return client

    def _listen(self, state: str) -> None:
        if state == KazooState.SUSPENDED:
            LOG.warning("the connection to ZooKeeper is interrupted; claims are in danger")
        elif state == KazooState.LOST and not self._closed:
            LOG.warning("the session with ZooKeeper is lost")
        if state == KazooState.CONNECTED:
            self._why = _AWAY
        else:
            self._alone = None
        self._heard(state)

    def _drop(self, client: KazooClient) -> None:
        self._client = None
        client.remove_listener(self._listen)
        if client is self._callers:
            return
        _let_go(client)

    def close(self) -> None:
        """Let go: of an own client altogether, of the caller's without a trace."""
        with self._lock:
            with self._queueing:
                self._closed = True
            if self._client is not None:
                self._drop(self._client)

    def leak(self) -> None:
        """In a forked child: the parent still talks through what was inherited."""
        client = self._client
        if client is not None and client is not self._callers:
            atexit.unregister(client.handler.stop)
            forks.keep(client)
        timeout = self.session_timeout if client is self._callers else 0.0
        self._reset()
        self.session_timeout = timeout

    # Requests

    def send(self, requests: Sequence[Request], patience: float | None = None, changes: bool = False) -> list[Any]:
        """Send these in one go, and wait for all of their answers; what was refused is answered by its exception.

        :raises ConnectionFailure: ``outcome='unknown'`` where a request that changes something may have arrived.
        """
        client = self.open()
        deadline = time.monotonic() + (patience or self.patience)
        self._check_silence(client, deadline)
        # So that nothing of a closed board follows in a client of the caller's.
        with self._queueing:
            if self._closed:
                raise ConnectionFailure("the board is closed")
            promises = [request(client) for request in requests]
            self.sent += len(promises)
        return [self._answer(client, promise, deadline, changes) for promise in promises]

    def _check_silence(self, client: KazooClient, deadline: float) -> None:
        """Send nothing while a server owes an answer for too long: kazoo notices that one is dead only where there is
        nothing to send but its own pings.

        :raises ConnectionFailure: there is still none.
        """
        owed = self._owed
        if owed is None:
            return
        if not owed.ready():
            owed.wait(max(0.001, deadline - time.monotonic()))
            if not owed.ready():
                raise ConnectionFailure("the ZooKeeper server does not answer")
        self._owed = None

    def _answer(self, client: KazooClient, promise: Any, deadline: float, changes: bool) -> Any:
        pause = _NUDGE
        try:
            while True:
                left = deadline - time.monotonic()
                promise.wait(max(0.001, min(pause, left)))
                if promise.ready():
                    return promise.get()
                if left <= pause:
                    self._owed = promise
                    raise TimeoutError(f"no answer within {self.patience:g} s")
                self._nudge(client)
                pause *= 2
        except kazoo.KazooException as error:
            if not isinstance(error, _BROKEN):
                return error
            raise _broken(error, changes) from error
        except Exception as error:
            # kazoo gives a connection up whose replies it can't make out, and tells that in errors of any kind.
            raise _broken(error, changes) from error

    def _nudge(self, client: KazooClient) -> None:
        """Ask for something else: a member of an ensemble may miss that a request can be answered, and sleep over it
        until the next one comes in (ZOOKEEPER-4537, in 3.6.0 to 3.6.3, 3.7.0 to 3.7.1 and 3.8.0)."""
        with self._queueing:
            if not self._closed and client.connected:
                client.exists_async("/")

    def read(self, reads: Sequence[Read], fresh: str | None = None, patience: float | None = None) -> list[Any]:
        """Answers in their order; None for what is not there.

        :param fresh: a path to have the server catch up with the ensemble first.
        """
        # Not by a sync: the leader passes it by, and may apply later than a follower what was agreed upon. A change of
        # nothing is answered when all that was agreed upon before it has been applied. A server that is alone answers
        # everything in its turn.
        before = [] if fresh is None or self.alone() else [self._multi([check(fresh)])]
        # What is watched goes by itself.
        watched = [read for read in reads if read.watch is not None]
        plain = [(read.path, read.what == "children") for read in reads if read.watch is None]
        many = [plain[start : start + _AT_ONCE] for start in range(0, len(plain), _AT_ONCE)]
        sent = [*before, *(read.send for read in watched), *(self._multi_read(some) for some in many)]
        if not sent:
            return []
        answers = self.send(sent, patience)[len(before) :]
        told = iter([] if not watched else answers[: len(watched)])
        for each in answers[len(watched) :]:
            if isinstance(each, Exception):
                raise translated(each) from each
        rest = itertools.chain.from_iterable(answers[len(watched) :])
        found = [next(told if read.watch is not None else rest) for read in reads]
        for each in found:
            if isinstance(each, Exception) and not isinstance(each, kazoo.NoNodeError):
                raise translated(each) from each
        return [
            None
            if isinstance(each, Exception)
            else each[1]
            if read.what == "stat" and read.watch is None and each is not None
            else each
            for read, each in zip(reads, found, strict=True)
        ]

    @staticmethod
    def _multi_read(reads: Sequence[tuple[str, bool]]) -> Request:
        return lambda client: send(client, MultiRead(client.chroot, reads))

    def alone(self) -> bool:
        """Whether the server is known to belong to no ensemble."""
        if self._alone is None:
            [found] = self.send([get("/zookeeper/config").send])
            # Under a chroot of the caller's, or for an account that may not read it, nobody knows.
            self._alone = not isinstance(found, Exception) and not found[0]
        return self._alone

    def _multi(self, ops: Sequence[Op]) -> Request:
        return lambda client: send(client, Multi(client, ops, self._acl))

    def commit(self, ops: Sequence[Op]) -> list[Any]:
        """All of these or none. Creations answer a path, writes a stat, the others True.

        :raises Refused: one of them does not fit what is there.
        """
        [results] = self.send([self._multi(ops)], changes=True)
        if isinstance(results, Exception):
            raise translated(results) from results
        for index, result in enumerate(results):
            if isinstance(result, Exception) and not isinstance(result, kazoo.RolledBackError):
                if isinstance(result, (kazoo.NoAuthError, kazoo.NotReadOnlyCallError)):
                    raise translated(result) from result
                raise Refused(index, result)
        return list(results)

    def each(self, ops: Sequence[Op]) -> list[Any]:
        """Every one of these by itself, in one go; what was refused is answered by its exception."""
        answers = self.send([self._multi([op]) for op in ops], changes=True)
        return [each[0] if isinstance(each, list) else each for each in answers]

    def try_later(self, ops: Sequence[Op]) -> None:
        """Each by itself, and nobody waits for it."""
        client = self._client
        with self._queueing:
            if not self._closed and client is not None and client.connected:
                for op in ops:
                    self._multi([op])(client)


def _broken(error: Exception, changes: bool) -> ConnectionFailure:
    return ConnectionFailure(
        f"the connection to ZooKeeper broke: {type(error).__name__}",
        error,
        outcome="unknown" if changes else "none",
    )


def _let_go(client: KazooClient) -> None:
    with contextlib.suppress(Exception):
        client.stop()
    if not _closed(client):
        # kazoo closes no client whose thread still waits for a server.
        threading.Thread(target=_close_later, args=(client,), name="jobboard-closing", daemon=True).start()


def _closed(client: KazooClient) -> bool:
    with contextlib.suppress(Exception):
        client.close()
        return True
    return False


def _close_later(client: KazooClient) -> None:
    until = time.monotonic() + _CLOSING
    while not _closed(client) and time.monotonic() < until:
        time.sleep(0.05)


def translated(error: Exception) -> JobBoardError:
    if isinstance(error, kazoo.NoAuthError):
        return JobFailure("ZooKeeper's ACLs forbid it", error)
    if isinstance(error, kazoo.AuthFailedError):
        return ConnectionFailure("ZooKeeper has refused the authentication", error, refused=True)
    if isinstance(error, kazoo.NotReadOnlyCallError):
        return ConnectionFailure("the ZooKeeper server has no quorum, and can only be read", error)
    return JobFailure(f"ZooKeeper has refused it: {type(error).__name__}", error)


def _on_negotiated(client: KazooClient, told: Callable[[float], None]) -> None:
    """Have ``told`` called with the session timeout that the server has agreed to, in seconds.

    kazoo tells nobody; this is the one thing that is taken from its inside."""
    connect = client._connection._connect

    def noting(*arguments: Any) -> Any:
        times = connect(*arguments)
        told(times[0] * 1.5 / 1000)
        return times

    client._connection._connect = noting


def _negotiated(client: KazooClient, timeout: float) -> float:
    """What an ensemble makes of the session timeout that a client of the caller's asks for; in seconds."""
    tls = ("use_ssl", "ca", "certfile", "keyfile", "keyfile_password", "verify_certs", "check_hostname")
    probe = KazooClient(
        hosts=",".join(f"{host}:{number}" for host, number in client.hosts),
        timeout=client._session_timeout / 1000,
        **{name: getattr(client, name) for name in tls},
    )
    told: list[float] = []
    _on_negotiated(probe, told.append)
    try:
        probe.start_async()
        deadline = time.monotonic() + timeout
        while not told and time.monotonic() < deadline:
            time.sleep(0.005)
    finally:
        _let_go(probe)
    if not told:
        raise ConnectionFailure(f"no ZooKeeper server has answered within {timeout:g} s")
    return told[0]
