"""One board's connection: a client of its own or of the caller's, requests with a limit, and the session's times."""

from __future__ import annotations

import atexit
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kazoo import exceptions as kazoo
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import Exists
from kazoo.protocol.states import KazooState, KeeperState

from jobboard import forks
from jobboard.backends.zookeeper.replies import send
from jobboard.backends.zookeeper.tries import Tries
from jobboard.backends.zookeeper.wire import Data, Multi, MultiRead, Op, Ops, RemoveWatches, children, get
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
    KazooTimeoutError,
)

_AWAY = "there is no connection to ZooKeeper: no server answers"

CHANGED = JobFailure("they change all the time")

DATA_WATCHES, CHILD_WATCHES = 2, 1

_NUDGE = 0.1
"""After how many seconds without an answer the server is nudged, and again after twice as long each time."""


class Connection:
    """:param make: a new client, not started.
    :param client: the caller's, instead.
    :param home: the process that has started the caller's client.
    :param heard: told of each change of the client's state; must not block.
    """

    def __init__(
        self,
        make: Callable[[], KazooClient],
        client: Any,
        timeout: float,
        heard: Callable[[str], None],
        home: int,
    ) -> None:
        self._make = make
        self._callers = client
        self._timeout = timeout
        self._heard = heard
        self._home = home
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._client: Any = None
        self._watches: list[tuple[str, int, Callable[[Any], None]]] = []
        self._reads_at_once = True
        self._alone: bool | None = None
        self._closed = False
        self._hurried = False
        self._why = _AWAY
        self._queueing = threading.Lock()
        self._flying = 0
        self.sent = 0
        self.troubled = False
        self._ended: Any = None
        self._refused = False
        self.session_timeout = 0.0

    @property
    def alive(self) -> bool:
        client = self._client
        return client is not None and bool(client.connected)

    @property
    def session_id(self) -> int | None:
        client = self._client
        return client._session_id if client is not None else None

    @property
    def patience(self) -> float:
        """How long one request may take, in seconds: beyond the session's time it has failed anyhow."""
        return min(5.0, max(1.0, self.session_timeout))

    def open(self) -> KazooClient:
        """The client, connected for as far as that can be had: within the time limit of ``connect()`` if it is new, and
        else within what the call has left.

        :raises ConnectionFailure: no server answers.
        """
        client = self._client
        if client is not None and client.connected:
            return client
        first = self.revive()
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
            if client is self._ended:
                self._why = (
                    "ZooKeeper has refused the authentication"
                    if self._refused
                    else "no ZooKeeper server has answered within the tries of connection_retry"
                )
                raise ConnectionFailure(self._why, refused=self._refused)
            if client is self._callers and client._stopped.is_set():
                raise ConnectionFailure("the client= of this board is not running: start() it first")
            left = 0 if self._hurried else start + limit - time.monotonic()
            if left <= 0:
                raise ConnectionFailure(f"no ZooKeeper server has answered within {limit:g} s" if first else self._why)
            client._live.wait(min(left, 0.1))

    def hurry(self) -> None:
        """Wait for no connection any longer: the board is closing."""
        self._hurried = True

    def revive(self) -> bool:
        """Have a client that is connected or trying to; whether it is the first one. Does not wait for it."""
        with self._lock:
            if self._closed:
                raise ConnectionFailure("the board is closed")
            first = self._client is None
            if not first and self._client is self._ended:
                # Its thread is gone: it would never connect again.
                self._drop(self._client)
            if self._client is None:
                self._client = self._start()
            return first

    def _start(self) -> KazooClient:
        if self._callers is not None:
            forks.check_home(self._home)
            if not self.session_timeout:
                self.session_timeout = _negotiated(self._callers, self._timeout)
            self._callers.add_listener(self._listen)
            return self._callers
        client = self._make()
        self._note_timeout(client)
        self._note_end(client)
        client.add_listener(self._listen)
        client.start_async()
        return client

    def _note_timeout(self, client: KazooClient) -> None:
        # kazoo tells nobody what the server has agreed to.
        connect = client._connection._connect

        def noting(*arguments: Any) -> Any:
            read_timeout, connect_timeout = connect(*arguments)
            self.session_timeout = read_timeout * 1.5 / 1000
            return read_timeout, connect_timeout

        client._connection._connect = noting
        # What was asked for holds until that is known.
        self.session_timeout = client._session_timeout / 1000

    def _note_end(self, client: KazooClient) -> None:
        # A client that has not started yet is in the same state as one that has given up.
        loop, told = client._connection.zk_loop, client._session_callback
        self._refused = False

        def noting_end() -> None:
            try:
                loop()
            except Exception as error:  # noqa: BLE001 - its callers are told by what they wait for
                LOG.warning("kazoo has given up a connection to ZooKeeper: %s", error)
            finally:
                self._ended = client

        def noting_refusal(state: Any) -> None:
            self._refused = self._refused or state == KeeperState.AUTH_FAILED
            told(state)

        client._connection.zk_loop = noting_end
        client._session_callback = noting_refusal

    def _listen(self, state: str) -> None:
        if state == KazooState.SUSPENDED:
            self._why = _AWAY
            LOG.warning("the connection to ZooKeeper is interrupted; claims are in danger")
        elif state == KazooState.LOST and not self._closed:
            LOG.warning("the session with ZooKeeper is lost")
        if state != KazooState.CONNECTED:
            self._watches.clear()
            self._alone = None
        self._heard(state)

    def _drop(self, client: KazooClient) -> None:
        self._client = None
        client.remove_listener(self._listen)
        if client is self._callers:
            return
        with contextlib.suppress(Exception):
            client.stop()
        with contextlib.suppress(Exception):
            client.close()

    def close(self) -> None:
        """Let go: of an own client altogether, of the caller's without a trace."""
        with self._lock:
            with self._queueing:
                self._closed = True
                self.troubled = self.troubled or self._flying > 0
            client = self._client
            if client is None:
                return
            if client is self._callers and client.connected:
                self._forget_watches(client)
            self._drop(client)

    def _forget_watches(self, client: KazooClient) -> None:
        for path, kind, call in self._watches:
            watchers = client._data_watchers if kind == DATA_WATCHES else client._child_watchers
            watchers.get(path, set()).discard(call)
            if watchers.get(path):
                continue
            watchers.pop(path, None)
            with contextlib.suppress(Exception):
                send(client, RemoveWatches(path, kind)).get(timeout=self.patience)
        self._watches.clear()

    def leak(self) -> None:
        """In a forked child: the parent still talks through what was inherited."""
        client = self._client
        if client is not None and client is not self._callers:
            atexit.unregister(client.handler.stop)
            forks.keep(client)
        self._reset()

    # Requests

    def call(self, requests: Sequence[Any], changes: bool = False, patience: float | None = None) -> list[Any]:
        """Send these at once and wait for all of their answers.

        :raises ConnectionFailure: ``outcome='unknown'`` where a request that changes something may have arrived.
        """
        try:
            return self._call(requests, changes, patience)
        except ConnectionFailure:
            self.troubled = True
            raise

    def _call(self, requests: Sequence[Any], changes: bool, patience: float | None) -> list[Any]:
        client = self.open()
        deadline = time.monotonic() + (patience or self.patience)
        # So that nothing of a closed board follows in a client of the caller's.
        with self._queueing:
            if self._closed:
                raise ConnectionFailure("the board is closed")
            results = [send(client, request) for request in requests]
            self.sent += len(results)
            self._flying += 1
        try:
            return [self._answer(client, result, deadline, changes) for result in results]
        except kazoo.KazooException as error:
            raise translated(error) from error
        finally:
            with self._queueing:
                self._flying -= 1

    def _answer(self, client: KazooClient, result: Any, deadline: float, changes: bool = False) -> Any:
        """:raises KazooException: what the server has refused."""
        pause = _NUDGE
        try:
            while True:
                left = deadline - time.monotonic()
                try:
                    return result.get(timeout=max(0.001, min(pause, left)))
                except KazooTimeoutError:
                    if left <= pause:
                        raise
                self._nudge(client)
                pause *= 2
        except kazoo.KazooException as error:
            if not isinstance(error, _BROKEN):
                raise
            raise _broken(error, changes) from error
        except Exception as error:
            # kazoo gives a connection up whose replies it can't make out, and tells that in errors of any kind.
            raise _broken(error, changes) from error

    def _nudge(self, client: KazooClient) -> None:
        """Ask for something else: a member of an ensemble may miss that a request can be answered, and sleep over it
        until the next one comes in (ZOOKEEPER-4537, in 3.6.0 to 3.6.3, 3.7.0 to 3.7.1 and 3.8.0)."""
        with self._queueing:
            if not self._closed and client.connected:
                send(client, Exists("/", None))

    def read(self, ops: Sequence[Op], sync: str | None = None, patience: float | None = None) -> list[Any]:
        """Read several znodes at one instant; what is not there is None.

        :param sync: a path to have the server catch up with the ensemble first.
        """
        before = [] if sync is None else self._catch_up(sync)
        if self._reads_at_once:
            try:
                found = self.call([*before, MultiRead(ops)], patience=patience)[-1]
            except JobFailure as error:
                if not isinstance(error.cause, (kazoo.UnimplementedError, kazoo.BadArgumentsError)):
                    raise
                self._reads_at_once = False
            else:
                return checked(found)
        return self._read_twice(ops, before, patience)

    def _catch_up(self, path: str) -> list[Any]:
        """What to send before a read that must show all that any server has acknowledged.

        Not a sync: the leader passes it by, and may apply later than a follower what was agreed upon. A change of
        nothing is answered when all that was agreed upon before it has been applied.
        """
        # A server that is alone answers everything in its turn.
        return [] if self.alone() else [Multi([Ops.check(path, -1)])]

    def alone(self) -> bool:
        """Whether the server is known to belong to no ensemble."""
        if self._alone is None:
            try:
                [(config, _)] = self.call([get("/zookeeper/config")])
                self._alone = not config
            except JobFailure as error:
                if isinstance(error, ConnectionFailure):
                    raise
                self._alone = False
        return self._alone

    def _read_twice(self, ops: Sequence[Op], before: list[Any], patience: float | None) -> list[Any]:
        """For servers before 3.6: what reads the same twice was all there at one instant in between."""
        earlier: list[Any] | None = None
        tries = Tries("read several znodes at one instant")
        while True:
            client = self.open()
            results = [send(client, op) for op in [*before, *ops]]
            self.sent += len(results)
            deadline = time.monotonic() + (patience or self.patience)
            found: list[Any] = []
            for result in results[len(before) :]:
                try:
                    answer = self._answer(client, result, deadline)
                except kazoo.NoNodeError:
                    found.append(None)
                except kazoo.KazooException as error:
                    raise translated(error) from error
                else:
                    found.append(Data(*answer) if isinstance(answer, tuple) else sorted(answer))
            if found == earlier:
                return found
            if earlier is not None:
                tries.again(CHANGED)
            earlier = found

    def commit(self, ops: Sequence[Op], patience: float | None = None) -> list[Any]:
        """All of these or none.

        :raises Refused: one of them does not fit what is there.
        """
        return Multi.check(self.call([Multi(ops)], changes=True, patience=patience)[0])

    def watch_data(self, path: str, call: Callable[[Any], None]) -> None:
        self._watch(get(path)._replace(watcher=call), DATA_WATCHES, path, call)

    def watch_children(self, path: str, call: Callable[[Any], None]) -> None:
        self._watch(children(path)._replace(watcher=call), CHILD_WATCHES, path, call)

    def watch_lists(self, calls: Mapping[str, Callable[[Any], None]]) -> list[list[str]]:
        """The children of these folders, watched from here on."""
        for path, call in calls.items():
            self._note(path, CHILD_WATCHES, call)
        return self.call([children(path)._replace(watcher=call) for path, call in calls.items()])

    def _watch(self, request: Any, kind: int, path: str, call: Callable[[Any], None]) -> None:
        self._note(path, kind, call)
        self.call([request])

    def _note(self, path: str, kind: int, call: Callable[[Any], None]) -> None:
        self._watches = [each for each in self._watches if each != (path, kind, call)]
        self._watches.append((path, kind, call))


def _broken(error: Exception, changes: bool) -> ConnectionFailure:
    return ConnectionFailure(
        f"the connection to ZooKeeper broke: {type(error).__name__}",
        error,
        outcome="unknown" if changes else "none",
    )


def checked(found: list[Any]) -> list[Any]:
    for each in found:
        if isinstance(each, Exception):
            raise translated(each) from each
    return found


def translated(error: Exception) -> JobBoardError:
    if isinstance(error, kazoo.NoAuthError):
        return JobFailure("ZooKeeper's ACLs forbid it", error)
    if isinstance(error, kazoo.AuthFailedError):
        return ConnectionFailure("ZooKeeper has refused the authentication", error, refused=True)
    if isinstance(error, kazoo.NotReadOnlyCallError):
        return ConnectionFailure("the ZooKeeper server has no quorum, and can only be read", error)
    return JobFailure(f"ZooKeeper has refused it: {type(error).__name__}", error)


def _negotiated(client: KazooClient, timeout: float) -> float:
    """What an ensemble makes of the session timeout that a client of the caller's asks for; in seconds."""
    tls = ("use_ssl", "ca", "certfile", "keyfile", "keyfile_password", "verify_certs", "check_hostname")
    probe = KazooClient(
        hosts=",".join(f"{host}:{number}" for host, number in client.hosts),
        timeout=client._session_timeout / 1000,
        **{name: getattr(client, name) for name in tls},
    )
    told: list[float] = []
    connect = probe._connection._connect

    def noting(*arguments: Any) -> Any:
        times = connect(*arguments)
        told.append(times[0] * 1.5 / 1000)
        return times

    probe._connection._connect = noting
    try:
        probe.start_async()
        deadline = time.monotonic() + timeout
        while not told and time.monotonic() < deadline:
            time.sleep(0.005)
    finally:
        probe.stop()
        probe.close()
    if not told:
        raise ConnectionFailure(f"no ZooKeeper server has answered within {timeout:g} s")
    return told[0]
