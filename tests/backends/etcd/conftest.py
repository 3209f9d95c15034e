"""What the tests of the etcd board share. They are collected only where that backend is selected."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jobboard
from jobboard.backends.etcd.keys import EtcdKeys
from jobboard.testing.etcd_servers import Etcd, EtcdCluster
from jobboard.testing.faults import FaultyProxy


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


@pytest.fixture
def far(board_conf: dict[str, Any], server_uris: dict[str, str]) -> Iterator[tuple[Any, FaultyProxy]]:
    """A board of the shared server's behind a proxy, and that proxy."""
    host, port = server_uris["etcd"].removeprefix("etcd://").split(":")
    with FaultyProxy(host, int(port)) as proxy:
        board = jobboard.fetch("board", {**board_conf, "board": proxy.uri_for(board_conf["board"])})
        board.connect()
        yield board, proxy
        board.close()


@pytest.fixture
def keys(board_conf: dict[str, Any]) -> EtcdKeys:
    return EtcdKeys(board_conf["namespace"], "board")
