"""What the tests of the etcd board share. They are collected only where that backend is selected."""

import contextlib
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jobboard
from jobboard.testing import eventually
from jobboard.testing.conformance.wire import QUIET
from jobboard.testing.faults import FaultyProxy
from tests.kv.conftest import build, make_driver
from tests.support.etcd_servers import Etcd, EtcdCluster

__all__ = ["build", "make_driver"]


def driver_of(board: Any) -> Any:
    """The driver under a connected board."""
    return board.engine.store._driver


def link_of(board: Any) -> Any:
    """Its connections, for what no verb does."""
    return driver_of(board)._link


def listening(board: Any) -> None:
    """Return once the watch of a board's waiters has begun, and the look that follows its beginning is over: a waiter
    that finds no job from now on sleeps until a bell rings."""
    eventually(lambda: board.claim_next("listener", timeout=0.1) is None and link_of(board)._streams)


@pytest.fixture
def cluster() -> Iterator[EtcdCluster]:
    with EtcdCluster() as cluster:
        yield cluster


@pytest.fixture
def private_board(private_server: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """``private_board(**options)``: a board on a server of the test's own; ``private_board.server`` is that one."""
    boards: list[Any] = []
    server: Etcd = private_server("etcd")

    def make(name: str = "board", **options: Any) -> Any:
        board = jobboard.fetch(name, {"board": server.uri, **options})
        boards.append(board)
        board.connect()
        return board

    make.server = server  # type: ignore[attr-defined]
    yield make
    server.resume()
    for board in boards:
        board.close()


def permission(kind: str) -> dict[str, str]:
    """To do that with all of ``jobs/``."""
    key, end = (b64encode(text).decode() for text in (b"jobs/", b"jobs0"))
    return {"permType": kind, "key": key, "range_end": end}


@pytest.fixture
def guarded(private_server: Callable[..., Any]) -> Etcd:
    """A server with passwords: root's is ``rootpw``; anna has all of ``jobs/``, bert may only read it."""
    server: Etcd = private_server("etcd")
    server.call("/v3/auth/user/add", name="root", password="rootpw")
    server.call("/v3/auth/role/add", name="root")
    server.call("/v3/auth/user/grant", user="root", role="root")
    for user, kind in (("anna", "READWRITE"), ("bert", "READ")):
        server.call("/v3/auth/user/add", name=user, password=f"{user}pw")
        server.call("/v3/auth/role/add", name=user)
        server.call("/v3/auth/role/grant", name=user, perm=permission(kind))
        server.call("/v3/auth/user/grant", user=user, role=user)
    server.call("/v3/auth/enable")
    return server


@contextlib.contextmanager
def behind_a_proxy(uri: str, conf: dict[str, Any]) -> Iterator[tuple[Any, FaultyProxy]]:
    host, port = uri.removeprefix("etcd://").split(":")
    with FaultyProxy(host, int(port)) as proxy:
        board = jobboard.fetch("board", {**conf, "claim_ttl": QUIET, "board": proxy.uri_for(uri)})
        board.connect()
        yield board, proxy
        board.close()


@pytest.fixture
def far(board_conf: dict[str, Any], server_uris: dict[str, str]) -> Iterator[tuple[Any, FaultyProxy]]:
    """A board of the shared server's behind a proxy, and that proxy."""
    with behind_a_proxy(server_uris["etcd"], board_conf) as found:
        yield found


@pytest.fixture
def alone(private_server: Callable[..., Any]) -> Iterator[tuple[Any, FaultyProxy]]:
    """A board behind a proxy, and that proxy. The server is the board's own: every revision, and so the number of every
    job, is the same in each run."""
    with behind_a_proxy(private_server("etcd").uri, {}) as found:
        yield found
