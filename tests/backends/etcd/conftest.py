"""What the tests of the etcd board share. They are collected only where that backend is selected."""

import contextlib
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jobboard
from jobboard.testing.conformance.wire import QUIET
from jobboard.testing.faults import FaultyProxy
from tests.kv.conftest import build, driver_of, make_driver, private_board
from tests.support.etcd_servers import Etcd

__all__ = ["build", "driver_of", "make_driver", "private_board"]


def link_of(board: Any) -> Any:
    """Return the connections of a board, for requests that no verb makes."""
    return driver_of(board).link


def permission(kind: str) -> dict[str, str]:
    """Return a permission for all keys below ``jobs/``."""
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
    """A board on the shared server behind a proxy, and that proxy."""
    with behind_a_proxy(server_uris["etcd"], board_conf) as found:
        yield found


@pytest.fixture
def alone(private_server: Callable[..., Any]) -> Iterator[tuple[Any, FaultyProxy]]:
    """A board behind a proxy, and that proxy. The board has a server of its own, so every revision, and the number of
    every job, is the same in each run."""
    with behind_a_proxy(private_server("etcd").uri, {}) as found:
        yield found
