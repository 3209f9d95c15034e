"""A board's connection to ZooKeeper: requests with a time limit, through a client of its own."""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from kazoo import exceptions as kazoo
from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState, KeeperState, ZnodeStat
from kazoo.retry import ForceRetryError, RetryFailedError

from jobboard import forks, runtime
from jobboard.backends.zookeeper.requests import MultiRefused, ZnodeOp, check, multi, multi_read
from jobboard.engine import time_left
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.threads import started

LOG = logging.getLogger(__name__)

T = TypeVar("T")

Request = Callable[[KazooClient], Any]
"""A function that sends one request and returns kazoo's promise of its result."""

AWAY = "there is no connection to ZooKeeper: no server answers"
GAVE_UP = "no ZooKeeper server has answered within the tries of connection_retry"
REFUSED = "ZooKeeper has refused the authentication"

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


class Connection:
    """The connection of one board, by a client that all threads share.

    Another client replaces a client that has given up, and a client without a connection once its session must be over:
    servers with older data than a client has seen refuse that client for ever, and give no reason.

    :param make: makes a new client, not started.
    :param heard: called with each new state of the client; must not block.
    """

    def __init__(self, make: Callable[[], KazooClient], timeout: float, heard: Callable[[str], None]) -> None:
        self._make, self._timeout, self._heard = make, timeout, heard
        self._reset()

    def _reset(self) -> None:
        self._lock = runtime.Lock()
        self._client: KazooClient | None = None
        self._why, self._is_refused = AWAY, False
        self._away_since: float | None = None
        self._alone: bool | None = None
        self._closed = self._setting_up = False
        self._owed: Any = None
        self.most_patience = math.inf
        self.sent = 0
        self.session_timeout = 0.0

    @property
    def alive(self) -> bool:
        client = self._client
        return client is not None and bool(client.connected)

    @property
    def session_id(self) -> int | None:
        client = self._client
        known = None if client is None else client.client_id
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
        until = runtime.monotonic() + self._timeout
        broken: list[ConnectionFailure] = []

        def attempt() -> T:
            try:
                return do()
            except ConnectionFailure as error:
                if error.refused or runtime.monotonic() > until:
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
        client = self._client
        if client is not None and client.connected:
            return client
        left = time_left()
        limit = self._timeout if client is None else self.patience if left is None else left
        why = f"no ZooKeeper server has answered within {limit:g} s" if client is None else None
        client = self._revive()
        start = runtime.monotonic()
        while not client.connected:
            if client.client_state == KeeperState.CLOSED:
                self._why = REFUSED if self._is_refused else GAVE_UP
                raise ConnectionFailure(self._why, refused=self._is_refused)
            client = self._revive()
            left = start + min(limit, self.most_patience) - runtime.monotonic()
            if left <= 0:
                raise ConnectionFailure(why or self._why)
            # A new client may fail at once.
            runtime.sleep(min(left, 0.005 if runtime.monotonic() > start + 0.1 else 0.0005))
        return client

    def _revive(self) -> KazooClient:
        """Return a client that is connected or tries to connect. Do not wait for the connection."""
        with self._lock:
            if self._closed:
                raise ConnectionFailure("the board is closed")
            client = self._client
            if client is None:
                return self._start()
            if client.connected:
                return client
            is_past = self._away_since is not None and runtime.boottime() - self._away_since > self.session_timeout
            if is_past or client.client_state == KeeperState.CLOSED:
                LOG.warning("the board starts a new session with ZooKeeper")
                client.remove_listener(self._listen)
                # A client without a connection may take seconds to stop.
                started("jobboard-closing", _let_go, client)
                self._heard(KazooState.LOST)
                return self._start()
            return client

    def _start(self) -> KazooClient:
        client = self._make()
        # The requested timeout counts until the server grants one.
        self.session_timeout = client._session_timeout / 1000
        self._note_granted(client)
        self._client, self._is_refused, self._away_since = client, False, None
        client.add_listener(self._listen)
        client.start_async()
        # Until its thread begins to connect, the client seems to have given up.
        until = runtime.monotonic() + self._timeout
        while client.client_state == KeeperState.CLOSED and runtime.monotonic() < until:
            runtime.sleep(0.0002)
        return client

    def _note_granted(self, client: KazooClient) -> None:
        """Note the session timeout that a server grants, at each connection of this client.

        kazoo has no public name for this timeout, so this method reaches into kazoo. If a lease outlived its session,
        two workers would hold the job."""
        connect = client._connection._connect

        def noting(*arguments: object) -> tuple[float, float]:
            times: tuple[float, float] = connect(*arguments)
            self.session_timeout = times[0] * 1.5 / 1000
            return times

        client._connection._connect = noting

    def _listen(self, state: str) -> None:
        client = self._client
        if state == KazooState.CONNECTED:
            self._why, self._away_since = AWAY, None
        else:
            self._alone = None
            if self._away_since is None:
                self._away_since = runtime.boottime()
        if state == KazooState.SUSPENDED:
            LOG.warning("the connection to ZooKeeper is interrupted; claims are in danger")
        elif state == KazooState.LOST and not self._closed:
            LOG.warning("the session with ZooKeeper is lost")
            # Only now the client shows that the authentication was refused. It closes in a moment.
            self._is_refused |= client is not None and client.client_state == KeeperState.AUTH_FAILED
        self._heard(state)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            client, self._client = self._client, None
            if client is not None:
                client.remove_listener(self._listen)
                _let_go(client)

    def leak(self) -> None:
        """Let go of the client in a forked child, unclosed: the parent still uses it."""
        if self._client is not None:
            atexit.unregister(self._client.handler.stop)
            forks.keep(self._client)
        self._reset()

    # Requests

    def send(self, requests: Sequence[Request], changes: bool = False) -> list[Any]:
        """Send these requests in one go, and return their answers. An exception is the answer to a refused request.

        :raises ConnectionFailure: ``outcome='unknown'`` where a request that changes something may have arrived.
        """
        client = self.open()
        deadline = runtime.monotonic() + self.patience
        self._check_silence(deadline)
        promises = [request(client) for request in requests]
        self.sent += len(promises)
        return [self._answer(client, promise, deadline, changes) for promise in promises]

    def _check_silence(self, deadline: float) -> None:
        """Send nothing while a server owes an answer for too long. kazoo notices a dead server by its own pings only,
        and sends none beside other requests.

        :raises ConnectionFailure: the answer is still missing.
        """
        owed = self._owed
        if owed is None:
            return
        if not owed.ready():
            owed.wait(max(0.001, deadline - runtime.monotonic()))
            if not owed.ready():
                raise ConnectionFailure("the ZooKeeper server does not answer")
        self._owed = None

    def _answer(self, client: KazooClient, promise: Any, deadline: float, changes: bool) -> Any:
        pause = _NUDGE
        try:
            while True:
                left = deadline - runtime.monotonic()
                promise.wait(max(0.001, min(pause, left)))
                if promise.ready():
                    return promise.get()
                if left <= pause:
                    self._owed = promise
                    raise TimeoutError(f"no answer within {self.patience:g} s")
                # A member of an ensemble may sleep over a request that it could answer, until the next request comes
                # in (ZOOKEEPER-4537, in 3.6.0 to 3.6.3, 3.7.0 to 3.7.1 and 3.8.0).
                if client.connected:
                    client.exists_async("/")
                pause *= 2
        except kazoo.KazooException as error:
            if not isinstance(error, _BROKEN):
                return error
            raise _broken(error, changes) from error
        except Exception as error:
            # kazoo gives up a connection whose replies it can't decode, with errors of any kind.
            raise _broken(error, changes) from error

    def read(
        self, paths: Sequence[str], folders: Sequence[str] = (), fresh: str | None = None
    ) -> tuple[list[tuple[bytes, ZnodeStat] | None], list[list[str] | None]]:
        """Return the data and stats of ``paths``, and the names in ``folders``; None for an absent znode.

        :param fresh: the path of a znode. The server catches up with the ensemble first, by a check of that znode.
        """
        # A sync is not enough: the leader answers it at once, and may apply a change later than a follower does. A
        # check is a change of nothing, answered once all earlier changes have been applied. A server without an
        # ensemble answers all requests in turn.
        before = [] if fresh is None or self.is_single() else [functools.partial(multi, ops=[check(fresh)])]
        requests = []
        for start in range(0, len(paths) + len(folders), _AT_ONCE):
            some = paths[start : start + _AT_ONCE]
            others = folders[max(0, start - len(paths)) : max(0, start + _AT_ONCE - len(paths))]
            requests.append(functools.partial(multi_read, paths=some, folders=others))
        if not requests:
            # The caller reads nothing now. Its next reading is to be fresh.
            self.send(before)
            return [], []
        found: list[Any] = []
        for answer in self.send([*before, *requests])[len(before) :]:
            if isinstance(answer, Exception):
                raise translated(answer) from answer
            found += answer
        for path, each in zip([*paths, *folders], found, strict=True):
            if isinstance(each, Exception) and not isinstance(each, kazoo.NoNodeError):
                raise translated(each, path) from each
        found = [None if isinstance(each, Exception) else each for each in found]
        return found[: len(paths)], found[len(paths) :]

    def is_single(self) -> bool:
        """Return whether the server is known to belong to no ensemble."""
        if self._alone is None:
            [found] = self.send([lambda client: client.get_async("/zookeeper/config")])
            # The znode is out of reach without the right to read it.
            self._alone = not isinstance(found, Exception) and not found[0]
        return self._alone

    def commit(self, ops: Sequence[ZnodeOp]) -> list[Any]:
        """Do all operations or none, and return their results: a stat for each put.

        :raises MultiRefused: one of them does not fit the znodes.
        :raises JobFailure: the server refuses them for another reason, which another try would meet as well.
        """
        [results] = self.send([functools.partial(multi, ops=ops)], changes=True)
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
        answers = self.send([functools.partial(multi, ops=[op]) for op in ops], changes=True)
        return [each[0] if isinstance(each, list) else each for each in answers]

    def delete_later(self, paths: Sequence[str]) -> None:
        """Delete these znodes, and wait for no answer."""
        client = self._client
        if client is not None:
            for path in paths:
                client.delete_async(path)


def _broken(error: Exception, changes: bool) -> ConnectionFailure:
    broke = f"the connection to ZooKeeper broke: {type(error).__name__}"
    return ConnectionFailure(broke, error, outcome="unknown" if changes else "none")


def _let_go(client: KazooClient) -> None:
    with contextlib.suppress(Exception):
        client.stop()
        client.close()


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
