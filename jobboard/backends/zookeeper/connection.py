"""A board's connection to ZooKeeper: requests with a time limit, through a client of its own or of the caller's."""

from __future__ import annotations

import atexit
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
    REFUSED,
    RESTART,
    BoardClient,
    let_go,
    negotiated,
    on_negotiated,
)
from jobboard.backends.zookeeper.requests import MultiRefused, ZnodeOp, check, multi, multi_read
from jobboard.engine import time_left
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.threads import started

LOG = logging.getLogger(__name__)

T = TypeVar("T")

Request = Callable[[KazooClient], Any]
"""A function that sends one request and returns kazoo's promise of its result."""

_BROKEN = (
    kazoo.ConnectionLoss,
    kazoo.SessionExpiredError,
    kazoo.SessionMovedError,
    kazoo.OperationTimeoutError,
    kazoo.ConnectionClosedError,
    kazoo.ConnectionDropped,
)

_MISFITS = (kazoo.NoNodeError, kazoo.NodeExistsError, kazoo.BadVersionError, kazoo.NotEmptyError)
"""The errors of a change that does not fit the znodes: another process was quicker, or deleted one."""

_NUDGE = 0.1
"""The seconds without an answer after which the server is nudged, and again after twice as long each time."""

_AT_ONCE = 1000
"""The most znodes that one request reads."""

_HEADER = 14
"""The bytes of one read without its path."""

_LARGE = 10_000
"""The size in bytes from which a request may have broken its own connection."""


class Connection:
    """The connection of one board.

    :param make: makes a new client, not started.
    :param client: the caller's client, instead.
    :param acl: the ACL of new znodes; None: that of the client.
    :param home: the process that has started the caller's client.
    :param heard: called with each new state of the client; must not block.
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
        self._make, self._callers, self._acl = make, client, acl
        self._timeout, self._home, self._heard = timeout, home, heard
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._latest: BoardClient | None = None
        self._alone: bool | None = None
        self._closed = self._setting_up = False
        self._queueing = threading.Lock()
        self._owed: Any = None
        self.most_patience = math.inf
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
        """The seconds that one request may take. A beat without an answer ends before its claims count as lost."""
        if self._setting_up:
            return self._timeout
        return min(5.0, max(0.7, self.session_timeout / 3), self.most_patience)

    def set_up(self, do: Callable[[], T]) -> T:
        """Do the requests of connect(), and repeat them after a broken connection as often as ``command_retry`` says.

        No claims wait for a heartbeat yet, so each request may take as long as the first connection."""
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
        """Return the client, connected.

        The first client has the time limit of ``connect()`` for that, a later client the rest of the call's time.

        :raises ConnectionFailure: no server answers.
        """
        latest = self._latest
        if latest is not None and latest.connected:
            return latest.client
        left = time_left()
        limit = self._timeout if latest is None else self.patience if left is None else left
        why = f"no ZooKeeper server has answered within {limit:g} s" if latest is None else None
        latest = self._revive()
        start = time.monotonic()
        while not latest.connected:
            latest.check_running()
            latest = self._revive()
            left = start + min(limit, self.most_patience) - time.monotonic()
            if left <= 0:
                raise ConnectionFailure(why or latest.why)
            # A new client may fail at once.
            time.sleep(min(left, 0.005 if time.monotonic() > start + 0.1 else 0.0005))
        return latest.client

    def _revive(self) -> BoardClient:
        """Return a client that is connected or tries to connect. Do not wait for the connection."""
        with self._lock:
            if self._closed:
                raise ConnectionFailure("the board is closed")
            latest = self._latest
            if latest is None:
                return self._start(AWAY)
            if latest.is_past(self.session_timeout):
                LOG.warning("the board starts a new session with ZooKeeper")
                latest.client.remove_listener(self._listen)
                # A client without a connection may take seconds to stop.
                started("jobboard-closing", let_go, latest.client)
                self._heard(KazooState.LOST)
                return self._start(latest.why)
            return latest

    def _start(self, why: str) -> BoardClient:
        if self._callers is not None:
            forks.check_home(self._home)
            latest = BoardClient(self._callers, True, AWAY + RESTART)
            latest.check_running()
            self.session_timeout = self.session_timeout or negotiated(self._callers, self._timeout)
            self._callers.add_listener(self._listen)
            self._latest = latest
            return latest
        client = self._make()
        # The requested timeout counts until the server grants one.
        self.session_timeout = client._session_timeout / 1000
        on_negotiated(client, functools.partial(setattr, self, "session_timeout"))
        self._latest = latest = BoardClient(client, False, why)
        client.add_listener(self._listen)
        latest.begin(self._timeout)
        return latest

    def _listen(self, state: str) -> None:
        latest = self._latest
        if state == KazooState.SUSPENDED:
            LOG.warning("the connection to ZooKeeper is interrupted; claims are in danger")
        elif state == KazooState.LOST and not self._closed:
            LOG.warning("the session with ZooKeeper is lost")
        if state != KazooState.CONNECTED:
            self._alone = None
        if latest is not None:
            latest.note(state)
        self._heard(state)

    def close(self) -> None:
        """Close the board's own client, or leave no trace in the caller's client."""
        with self._lock:
            with self._queueing:
                self._closed = True
            latest, self._latest = self._latest, None
            if latest is not None:
                latest.client.remove_listener(self._listen)
                if not latest.is_callers:
                    let_go(latest.client)

    def leak(self) -> None:
        """Let go of the client in a forked child, unclosed: the parent still uses it."""
        latest = self._latest
        if latest is not None and not self.shared:
            atexit.unregister(latest.client.handler.stop)
            forks.keep(latest.client)
        timeout = self.session_timeout if self.shared else 0.0
        self._reset()
        self.session_timeout = timeout

    # Requests

    def send(self, requests: Sequence[Request], changes: bool = False, size: int = 0) -> list[Any]:
        """Send these requests in one go, and return their answers. An exception is the answer to a refused request.

        :param size: the bytes of the largest request, about.
        :raises ConnectionFailure: ``outcome='unknown'`` where a request that changes something may have arrived.
        """
        client = self.open()
        deadline = time.monotonic() + self.patience
        self._check_silence(client, deadline)
        # A closed board may send nothing through a client of the caller's.
        with self._queueing:
            if self._closed:
                raise ConnectionFailure("the board is closed")
            promises = [request(client) for request in requests]
            self.sent += len(promises)
        return [self._answer(client, promise, deadline, changes, size) for promise in promises]

    def _check_silence(self, client: KazooClient, deadline: float) -> None:
        """Send nothing while a server owes an answer for too long. kazoo notices a dead server by its own pings only,
        and sends none beside other requests.

        :raises ConnectionFailure: the answer is still missing.
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
            # kazoo gives up a connection whose replies it can't decode, with errors of any kind.
            raise self._broken(error, changes, size) from error

    def _broken(self, error: Exception, changes: bool, size: int) -> ConnectionFailure:
        broke, latest = f"the connection to ZooKeeper broke: {type(error).__name__}", self._latest
        if size > _LARGE:
            # A server closes the connection of a request that is too large for it, and gives no reason.
            large = (
                f". It broke at a request of {size} bytes: raise jute.maxbuffer if the servers have a smaller one, "
                f"or post less at once"
            )
            broke += large
            if latest is not None and not latest.connected:
                latest.why = AWAY + large
        return ConnectionFailure(broke, error, outcome="unknown" if changes else "none")

    def _nudge(self, client: KazooClient) -> None:
        """Send a further request. A member of an ensemble may sleep over a request that it could answer, until the next
        request comes in (ZOOKEEPER-4537, in 3.6.0 to 3.6.3, 3.7.0 to 3.7.1 and 3.8.0)."""
        with self._queueing:
            if not self._closed and client.connected:
                client.exists_async("/")

    def read(
        self, paths: Sequence[str], folders: Sequence[str] = (), fresh: str | None = None
    ) -> tuple[list[tuple[bytes, ZnodeStat] | None], list[list[str] | None]]:
        """Return the data and stats of ``paths``, and the names in ``folders``; None for an absent znode.

        :param fresh: the path of a znode. The server catches up with the ensemble first, by a check of that znode.
        """
        # A sync is not enough: the leader answers it at once, and may apply a change later than a follower does. A
        # check is a change of nothing, answered once all earlier changes have been applied. A server without an
        # ensemble answers all requests in turn.
        before = [] if fresh is None or self.alone() else [self._multi([check(fresh)])]
        requests = []
        for start in range(0, len(paths) + len(folders), _AT_ONCE):
            some = paths[start : start + _AT_ONCE]
            others = folders[max(0, start - len(paths)) : max(0, start + _AT_ONCE - len(paths))]
            requests.append(self._multi_read(some, others))
        if not requests:
            # The caller reads nothing now. Its next reading is to be fresh.
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
            # The znode is out of reach under a chroot of the caller's, or without the right to read it.
            self._alone = not isinstance(found, Exception) and not found[0]
        return self._alone

    def _multi(self, ops: Sequence[ZnodeOp]) -> Request:
        return lambda client: multi(client, ops, self._acl).send(client)

    def commit(self, ops: Sequence[ZnodeOp]) -> list[Any]:
        """Do all of these or none, and return a stat for each put, and True for each other operation.

        :raises MultiRefused: one of them does not fit the znodes.
        :raises JobFailure: the server refuses them for another reason, which another try would meet as well.
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
        """Do each of these by itself, in one go. An exception is the answer to a refused operation."""
        answers = self.send(
            [self._multi([op]) for op in ops], changes=True, size=max((op.size for op in ops), default=0)
        )
        return [each[0] if isinstance(each, list) else each for each in answers]

    def delete_later(self, paths: Sequence[str], insists: bool = False) -> None:
        """Delete these znodes, and wait for no answer.

        :param insists: delete them with the next connection where this one breaks, unless the session ends before.
        """
        latest = self._latest

        def send(path: str, before: Any = None) -> None:
            if latest is not None and (before is None or isinstance(before.exception, kazoo.ConnectionLoss)):
                promise = latest.client.delete_async(path)
                if insists:
                    promise.rawlink(functools.partial(send, path))

        with self._queueing:
            for path in () if self._closed else paths:
                send(path)


def translated(error: Exception, path: str = "") -> JobFailure:
    """Return the failure for an error of kazoo's that users see. ``path``: the znode, where it is known."""
    at = f" at {path}" if path else ""
    if isinstance(error, kazoo.NoAuthError):
        return JobFailure(f"ZooKeeper's ACLs forbid the request{at}", error)
    if isinstance(error, kazoo.AuthFailedError):
        return ConnectionFailure(REFUSED, error, refused=True)
    if isinstance(error, kazoo.NotReadOnlyCallError):
        return ConnectionFailure("the ZooKeeper server has no quorum, and can only be read", error)
    if isinstance(error, kazoo.QuotaExceededError):
        return ConnectionFailure(
            f"ZooKeeper has no room{at}: a quota there, or above, is used up; make room, or raise it with setquota",
            error,
        )
    return JobFailure(f"ZooKeeper has refused the request{at}: {type(error).__name__}", error)
