"""Clients of kazoo's: how long one tries, why it has stopped, which session timeout it has agreed to, and its end."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

from kazoo.client import KazooClient
from kazoo.protocol.states import KeeperState

from jobboard.exceptions import ConnectionFailure

AWAY = "there is no connection to ZooKeeper: no server answers"

REFUSED = "ZooKeeper has refused the authentication"

OLDER = "the ZooKeeper servers have older data than the client= of this board has seen: restart() the client"

_CLOSING = 60.0
"""For how many seconds a client that does not end is waited for, behind the caller's back."""


class OneClient:
    """One client, from its start to its end, and what is known of it. All threads of a board share it; what they find
    out of one that was replaced says nothing of the next.

    :param timeout: how many seconds after its start it has begun to try.
    :param why: there is no connection, as the one before it has found.
    """

    def __init__(self, client: KazooClient, callers: bool, timeout: float, why: str) -> None:
        self.client = client
        self.callers = callers
        self.why = why
        self.gave_up = False
        """Its thread is gone: it would never connect again."""
        self._refused = False
        self._looks_ended_until = time.monotonic() + timeout

    @property
    def connected(self) -> bool:
        return bool(self.client.connected)

    def note_loss(self) -> None:
        """Told by the client that its session is lost. Only now it says whether the authentication was refused: in a
        moment it will be closed, like one that has given up for any other reason."""
        if self.client.client_state == KeeperState.AUTH_FAILED:
            self._refused = True

    def check_running(self) -> None:
        """:raises ConnectionFailure: the client has stopped trying to connect."""
        closed = self.client.client_state == KeeperState.CLOSED
        if self.callers:
            if closed:
                raise ConnectionFailure("the client= of this board is not running: start() it first")
            return
        # One that was just started looks like one that has given up, until its thread has begun to try.
        if not closed:
            self._looks_ended_until = 0.0
        elif self._refused or time.monotonic() > self._looks_ended_until:
            self.gave_up = True
        if self.gave_up:
            self.why = (
                REFUSED if self._refused else "no ZooKeeper server has answered within the tries of connection_retry"
            )
            raise ConnectionFailure(self.why, refused=self._refused)


def let_go(client: KazooClient) -> None:
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
    """Have ``told`` called with the session timeout that the server has agreed to, in seconds.

    kazoo tells nobody; this is the one thing that is taken from its inside."""
    connect = client._connection._connect

    def noting(*arguments: object) -> tuple[float, float]:
        times: tuple[float, float] = connect(*arguments)
        told(times[0] * 1.5 / 1000)
        return times

    client._connection._connect = noting


def probe_of(client: KazooClient) -> KazooClient:
    """Return another client of the same servers, not started."""
    tls = ("use_ssl", "ca", "certfile", "keyfile", "keyfile_password", "verify_certs", "check_hostname")
    return KazooClient(
        hosts=",".join(f"{host}:{number}" for host, number in client.hosts),
        timeout=client._session_timeout / 1000,
        **{name: getattr(client, name) for name in tls},
    )


def seen_by(probe: KazooClient, patience: float) -> int:
    """Return the id of the servers' latest transaction, as a new client sees it.

    0: the servers do not tell. A server that is cut off from the others does not, as it can't sync.
    """
    with contextlib.suppress(Exception):
        probe.sync_async("/").get(timeout=patience)
        probe.exists_async("/").get(timeout=patience)
        return int(probe.last_zxid)
    return 0


def negotiated(client: KazooClient, timeout: float) -> float:
    """What an ensemble makes of the session timeout that a client of the caller's asks for; in seconds."""
    probe = probe_of(client)
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
