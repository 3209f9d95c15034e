"""One board's connection: a client of its own or of the caller's, requests with a limit, and the session's times."""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from kazoo import exceptions as kazoo
from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState, ZnodeStat
from kazoo.retry import ForceRetryError, RetryFailedError

from jobboard import forks
from jobboard.backends.zookeeper.clients import (
    AWAY,
    OLDER,
    REFUSED,
    OneClient,
    let_go,
    negotiated,
    on_negotiated,
    probe_of,
    seen_by,
)
from jobboard.backends.zookeeper.requests import MultiRefused, ZnodeOp, check, multi, multi_read
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.session import time_left
from jobboard.threads import started

LOG = logging.getLogger(__name__)

T = TypeVar("T")

Request = Callable[[KazooClient], Any]
"""Sends one request and returns kazoo's promise of its result."""

_BROKEN = (
    kazoo.ConnectionLoss,
    kazoo.SessionExpiredError,
    kazoo.SessionMovedError,
    kazoo.OperationTimeoutError,
    kazoo.ConnectionClosedError,
    kazoo.ConnectionDropped,
)

_MISFITS = (kazoo.NoNodeError, kazoo.NodeExistsError, kazoo.BadVersionError, kazoo.NotEmptyError)
"""What tells that something else is there than was thought: somebody was quicker, or has deleted it."""

_NUDGE = 0.1
"""After how many seconds without an answer the server is nudged, and again after twice as long each time."""

_AT_ONCE = 1000

_HEADER = 14
"""The bytes of one read, beside its path."""

_LARGE = 10_000
"""The size in bytes from which a request may have broken its own connection."""

_REFUSED_FOR = 2.0
"""After how many seconds without a connection the servers are asked how far they have come."""


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
        self._latest: OneClient | None = None
        self._alone: bool | None = None
        self._closed = False
        self.most_patience = math.inf
        self._setting_up = False
        self._queueing = threading.Lock()
        self._owed: Any = None
        self._ended = threading.Event()
        self._probing: threading.Thread | None = None
        self.sent = 0
        self.session_timeout = 0.0

    @property
    def alive(self) -> bool:
        latest = self._latest
        return latest is not None and latest.connected

    @property
    def shared(self) -> bool:
        """Return whether the client is the caller's, and its session goes on without this board."""
        return self._callers is not None

    @property
    def session_id(self) -> int | None:
        latest = self._latest
        known = None if latest is None else latest.client.client_id
        return None if known is None else int(known[0])

    @property
    def patience(self) -> float:
        """How long one request may take, in seconds: so long that a beat which gets no answer is over before the claims
        that it was to keep count as lost."""
        if self._setting_up:
            return self._timeout
        return min(5.0, max(0.7, self.session_timeout / 3), self.most_patience)

    def set_up(self, do: Callable[[], T]) -> T:
        """What connect() does, and again if the connection breaks meanwhile: as often as ``command_retry`` says. No
        claims wait for a beat yet, so that each request may take as long as the first connection."""
        until = time.monotonic() + self._timeout
        broken: list[ConnectionFailure] = []

        def attempt() -> T:
            try:
                return do()
            except ConnectionFailure as error:
                if error.refused or time.monotonic() > until:
                    raise
                broken.append(error)
                raise ForceRetryError from error

        self._setting_up = True
        try:
            return cast(T, self.open().retry(attempt))
        except RetryFailedError:
            raise broken[-1] from None
        finally:
            self._setting_up = False

    def open(self) -> KazooClient:
        """The client, connected for as far as that can be had: within the time limit of ``connect()`` if it is new, and
        else within what the call has left.

        :raises ConnectionFailure: no server answers.
        """
        latest = self._latest
        if latest is not None and latest.connected:
            return latest.client
        first = self._revive()
        left = time_left()
        limit = self._timeout if first else self.patience if left is None else left
        start = time.monotonic()
        while True:
            # Another thread may have replaced one that had given up.
            latest = self._latest
            if self._closed or latest is None:
                raise ConnectionFailure("the board is closed")
            if latest.connected:
                return latest.client
            latest.check_running()
            left = start + min(limit, self.most_patience) - time.monotonic()
            if left <= 0:
                raise ConnectionFailure(f"no ZooKeeper server has answered within {limit:g} s" if first else latest.why)
            # At first a client may fail sooner than one looks.
            time.sleep(min(left, 0.005 if time.monotonic() > start + 0.1 else 0.0005))

    def _revive(self) -> bool:
        """Have a client that is connected or trying to; whether it is the first one. Does not wait for it."""
        with self._lock:
            if self._closed:
                raise ConnectionFailure("the board is closed")
            before = self._latest
            if before is None:
                self._start(AWAY)
            elif not before.callers:
                with contextlib.suppress(ConnectionFailure):
                    before.check_running()
                if before.gave_up:
                    self._drop(before)
                    self._start(before.why)
            return before is None

    def _start(self, why: str) -> None:
        if self._callers is not None:
            forks.check_home(self._home)
            latest = OneClient(self._callers, True, self._timeout, why)
            latest.check_running()
            if not self.session_timeout:
                self.session_timeout = negotiated(self._callers, self._timeout)
            self._callers.add_listener(self._listen)
            self._latest = latest
            return
        client = self._make()
        # What was asked for holds until the server's is known.
        self.session_timeout = client._session_timeout / 1000
        on_negotiated(client, functools.partial(setattr, self, "session_timeout"))
        self._latest = OneClient(client, False, self._timeout, why)
        client.add_listener(self._listen)
        client.start_async()

    def _listen(self, state: str) -> None:
        latest = self._latest
        if state == KazooState.SUSPENDED:
            LOG.warning("the connection to ZooKeeper is interrupted; claims are in danger")
            if latest is not None and not self._closed and (self._probing is None or not self._probing.is_alive()):
                self._probing = started("jobboard-zookeeper-probe", self._find_older_servers)
        elif state == KazooState.LOST and not self._closed:
            LOG.warning("the session with ZooKeeper is lost")
            if latest is not None:
                latest.note_loss()
        if state != KazooState.CONNECTED:
            self._alone = None
        elif latest is not None:
            latest.why = AWAY
        self._heard(state)

    def _find_older_servers(self) -> None:
        """Replace a client that the servers refuse for ever, as it has seen more than they know: a restored backup,
        emptied data or another ensemble.

        A server refuses such a client without a word, as it does while there is no quorum. So a new client has a look,
        and as long as the servers have not forgotten anything, the session may still be there."""
        while (latest := self._latest) is not None and not self._ended.wait(_REFUSED_FOR):
            # Before the look: what the client sees later may be newer than what the look has seen.
            known = latest.client.last_zxid
            if latest.connected:
                return
            try:
                probe = probe_of(latest.client) if latest.callers else self._make()
            except ConnectionFailure as error:
                LOG.info("the ZooKeeper servers can't be asked how far they have come: %s", error)
                continue
            try:
                probe.start_async()
                while not (probe.connected or latest.connected or self._ended.wait(0.05)):
                    if self._latest is not latest:
                        break
                seen = seen_by(probe, self.patience) if probe.connected else 0
            finally:
                let_go(probe)
            if 0 < seen < known and not latest.connected:
                self._start_from_zero(latest)

    def _start_from_zero(self, latest: OneClient) -> None:
        if latest.callers:
            latest.why = OLDER
            return
        with self._lock:
            if self._closed or self._latest is not latest or latest.connected:
                return
            LOG.warning("the ZooKeeper servers have older data than before: the board starts a new session")
            self._listen(KazooState.LOST)
            self._drop(latest)
            self._start(AWAY)

    def _drop(self, latest: OneClient) -> None:
        self._latest = None
        latest.client.remove_listener(self._listen)
        if not latest.callers:
            let_go(latest.client)

    def close(self) -> None:
        """Let go: of an own client altogether, of the caller's without a trace."""
        self._ended.set()
        with self._lock:
            with self._queueing:
                self._closed = True
            if self._latest is not None:
                self._drop(self._latest)

    def leak(self) -> None:
        """Let go of what a forked child has inherited, unclosed: the parent still uses it."""
        latest = self._latest
        if latest is not None and not self.shared:
            atexit.unregister(latest.client.handler.stop)
            forks.keep(latest.client)
        timeout = self.session_timeout if self.shared else 0.0
        self._reset()
        self.session_timeout = timeout

    # Requests

    def send(self, requests: Sequence[Request], changes: bool = False, size: int = 0) -> list[Any]:
        """Send these in one go, and wait for all of their answers; what was refused is answered by its exception.

        :param size: about how many bytes the largest of the requests has.
        :raises ConnectionFailure: ``outcome='unknown'`` where a request that changes something may have arrived.
        """
        client = self.open()
        deadline = time.monotonic() + self.patience
        self._check_silence(client, deadline)
        # So that nothing of a closed board follows in a client of the caller's.
        with self._queueing:
            if self._closed:
                raise ConnectionFailure("the board is closed")
            promises = [request(client) for request in requests]
            self.sent += len(promises)
        return [self._answer(client, promise, deadline, changes, size) for promise in promises]

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

    def _answer(self, client: KazooClient, promise: Any, deadline: float, changes: bool, size: int) -> Any:
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
            raise self._broken(error, changes, size) from error
        except Exception as error:
            # kazoo gives a connection up whose replies it can't make out, and tells that in errors of any kind.
            raise self._broken(error, changes, size) from error

    def _broken(self, error: Exception, changes: bool, size: int) -> ConnectionFailure:
        broke, latest = f"the connection to ZooKeeper broke: {type(error).__name__}", self._latest
        if size > _LARGE:
            # A server closes the connection of a request that is too large for it, without a word.
            large = (
                f". It broke at a request of {size} bytes: raise jute.maxbuffer if the servers have a smaller one, "
                f"or post less at once"
            )
            broke += large
            if latest is not None and not latest.connected:
                latest.why = AWAY + large
        return ConnectionFailure(broke, error, outcome="unknown" if changes else "none")

    def _nudge(self, client: KazooClient) -> None:
        """Ask for something else: a member of an ensemble may miss that a request can be answered, and sleep over it
        until the next one comes in (ZOOKEEPER-4537, in 3.6.0 to 3.6.3, 3.7.0 to 3.7.1 and 3.8.0)."""
        with self._queueing:
            if not self._closed and client.connected:
                client.exists_async("/")

    def read(
        self, paths: Sequence[str], folders: Sequence[str] = (), fresh: str | None = None
    ) -> tuple[list[tuple[bytes, ZnodeStat] | None], list[list[str] | None]]:
        """Return the data and stats of ``paths``, and the names in ``folders``; None of what is not there.

        :param fresh: a path to have the server catch up with the ensemble first.
        """
        # Not by a sync: the leader passes it by, and may apply later than a follower what was agreed upon. A change of
        # nothing is answered when all that was agreed upon before it has been applied. A server that is alone answers
        # everything in its turn.
        before = [] if fresh is None or self.alone() else [self._multi([check(fresh)])]
        requests = []
        for start in range(0, len(paths) + len(folders), _AT_ONCE):
            some = paths[start : start + _AT_ONCE]
            others = folders[max(0, start - len(paths)) : max(0, start + _AT_ONCE - len(paths))]
            requests.append(self._multi_read(some, others))
        if not requests:
            # One who reads nothing wants to know that a later reading is fresh.
            self.send(before)
            return [], []
        size = sum(len(path) + _HEADER for path in [*paths, *folders]) // len(requests)
        found: list[Any] = []
        for answer in self.send([*before, *requests], size=size)[len(before) :]:
            if isinstance(answer, Exception):
                raise translated(answer) from answer
            found += answer
        for path, each in zip([*paths, *folders], found, strict=True):
            if isinstance(each, Exception) and not isinstance(each, kazoo.NoNodeError):
                raise translated(each, path) from each
        found = [None if isinstance(each, Exception) else each for each in found]
        return found[: len(paths)], found[len(paths) :]

    @staticmethod
    def _multi_read(paths: Sequence[str], folders: Sequence[str]) -> Request:
        return lambda client: multi_read(client, paths, folders).send(client)

    def alone(self) -> bool:
        """Return whether the server is known to belong to no ensemble."""
        if self._alone is None:
            [found] = self.send([lambda client: client.get_async("/zookeeper/config")])
            # Under a chroot of the caller's, or for an account that may not read it, nobody knows.
            self._alone = not isinstance(found, Exception) and not found[0]
        return self._alone

    def _multi(self, ops: Sequence[ZnodeOp]) -> Request:
        return lambda client: multi(client, ops, self._acl).send(client)

    def commit(self, ops: Sequence[ZnodeOp]) -> list[Any]:
        """All of these or none. A put is answered by a stat, each of the others by True.

        :raises MultiRefused: one of them does not fit what is there.
        :raises JobFailure: it is refused for another reason, which another try would meet as well.
        """
        [results] = self.send([self._multi(ops)], changes=True, size=sum(op.size for op in ops))
        if isinstance(results, Exception):
            raise translated(results) from results
        for index, (op, result) in enumerate(zip(ops, results, strict=True)):
            if isinstance(result, _MISFITS):
                raise MultiRefused(index, result)
            if isinstance(result, Exception) and not isinstance(result, kazoo.RolledBackError):
                raise translated(result, op.path) from result
        return list(results)

    def each(self, ops: Sequence[ZnodeOp]) -> list[Any]:
        """Every one of these by itself, in one go; what was refused is answered by its exception."""
        answers = self.send(
            [self._multi([op]) for op in ops], changes=True, size=max((op.size for op in ops), default=0)
        )
        return [each[0] if isinstance(each, list) else each for each in answers]

    def make(self, ops: Sequence[ZnodeOp]) -> list[Any]:
        """Create each of these that is not there; what has no folder to lie in is answered by a NoNodeError.

        :raises JobFailure: one is refused for another reason.
        """
        made = self.each(ops)
        for op, each in zip(ops, made, strict=True):
            if isinstance(each, Exception) and not isinstance(each, _MISFITS):
                raise translated(each, op.path) from each
        return made

    def try_later(self, ops: Sequence[ZnodeOp]) -> None:
        """Each by itself, and nobody waits for it."""
        latest = self._latest
        with self._queueing:
            if not self._closed and latest is not None and latest.connected:
                for op in ops:
                    self._multi([op])(latest.client)


def translated(error: Exception, path: str = "") -> JobFailure:
    """:param path: what it is about, where that is known."""
    at = f" at {path}" if path else ""
    if isinstance(error, kazoo.NoAuthError):
        return JobFailure(f"ZooKeeper's ACLs forbid it{at}", error)
    if isinstance(error, kazoo.AuthFailedError):
        return ConnectionFailure(REFUSED, error, refused=True)
    if isinstance(error, kazoo.NotReadOnlyCallError):
        return ConnectionFailure("the ZooKeeper server has no quorum, and can only be read", error)
    if isinstance(error, kazoo.QuotaExceededError):
        return ConnectionFailure(
            f"ZooKeeper has no room{at}: a quota there, or above, is used up; make room, or raise it with setquota",
            error,
        )
    return JobFailure(f"ZooKeeper has refused it{at}: {type(error).__name__}", error)
