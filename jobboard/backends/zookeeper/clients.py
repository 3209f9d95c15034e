"""Kazoo clients of boards: their life, the reason for a missing connection, and their session timeout."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState, KeeperState

from jobboard.exceptions import ConnectionFailure
from jobboard.job import boottime

AWAY = "there is no connection to ZooKeeper: no server answers"
RESTART = ", or the servers have older data than the client= of this board has seen: then restart() the client"
GAVE_UP = "no ZooKeeper server has answered within the tries of connection_retry"
REFUSED = "ZooKeeper has refused the authentication"

_CLOSING = 60.0
"""The seconds that a thread of its own waits for the end of a client."""


class BoardClient:
    """A client that all threads of a board share until the board replaces it.

    :param is_callers: whether the client is the caller's.
    :param why: the reason for the missing connection that the previous client has found.
    """

    def __init__(self, client: KazooClient, is_callers: bool, why: str) -> None:
        self.client, self.is_callers, self.why = client, is_callers, why
        self._has_begun, self._is_refused = is_callers, False
        self._away_since: float | None = None

    def begin(self, timeout: float) -> None:
        """Start the client, and wait until its thread begins to connect. Before, the client seems to have given up."""
        self.client.start_async()
        until = time.monotonic() + timeout
        while self.client.client_state == KeeperState.CLOSED and time.monotonic() < until:
            time.sleep(0.0002)
        self._has_begun = True

    @property
    def connected(self) -> bool:
        return bool(self.client.connected)

    def note(self, state: str) -> None:
        """Note a change of the client's state, which the client reports."""
        if state == KazooState.CONNECTED:
            self.why, self._away_since = AWAY + RESTART if self.is_callers else AWAY, None
        elif state == KazooState.LOST:
            # Only now the client shows that the authentication was refused. It closes in a moment.
            self._is_refused = self._is_refused or self.client.client_state == KeeperState.AUTH_FAILED
        elif self._away_since is None:
            self._away_since = boottime()

    def check_running(self) -> None:
        """:raises ConnectionFailure: the client has stopped trying to connect."""
        if not self._has_begun or self.client.client_state != KeeperState.CLOSED:
            return
        if self.is_callers:
            raise ConnectionFailure("the client= of this board is not running: start() it first")
        self.why = REFUSED if self._is_refused else GAVE_UP
        raise ConnectionFailure(self.why, refused=self._is_refused)

    def is_past(self, session: float) -> bool:
        """Return whether another client should replace this one: it has given up, or its session is over.

        Servers with older data than a client has seen refuse that client for ever, and give no reason.

        :param session: the seconds for which a session outlives its connection.
        """
        if self.is_callers or self.connected:
            return False
        with contextlib.suppress(ConnectionFailure):
            self.check_running()
            return self._away_since is not None and boottime() - self._away_since > session
        return True


def let_go(client: KazooClient) -> None:
    """Stop and close a client. A slow end goes on in a thread of its own."""
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


def on_negotiated(client: KazooClient, told: Callable[[float], None]) -> None:
    """Call ``told`` with the session timeout that a server grants, in seconds, at each connection.

    kazoo has no public name for this timeout, so this function reaches into kazoo. If a lease outlived its session, two
    workers would hold the job."""
    connect = client._connection._connect

    def noting(*arguments: object) -> tuple[float, float]:
        times: tuple[float, float] = connect(*arguments)
        told(times[0] * 1.5 / 1000)
        return times

    client._connection._connect = noting


def negotiated(client: KazooClient, timeout: float) -> float:
    """Return the session timeout, in seconds, that the servers grant to a client of the caller's.

    Another client asks for the same timeout: the caller's is connected already."""
    tls = ("use_ssl", "ca", "certfile", "keyfile", "keyfile_password", "verify_certs", "check_hostname")
    probe = KazooClient(
        hosts=",".join(f"{host}:{number}" for host, number in client.hosts),
        timeout=client._session_timeout / 1000,
        **{name: getattr(client, name) for name in tls},
    )
    told: list[float] = []
    on_negotiated(probe, told.append)
    try:
        probe.start_async()
        deadline = time.monotonic() + timeout
        while not told and time.monotonic() < deadline:
            time.sleep(0.005)
    finally:
        let_go(probe)
    if not told:
        raise ConnectionFailure(f"no ZooKeeper server has answered within {timeout:g} s")
    return told[0]
