"""Fixtures for drivers: one of each selected backend that has one."""

import contextlib
import importlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest

import jobboard
from jobboard.kv.driver import Driver, Op
from jobboard.testing.drivers import build_driver, driver, make_driver
from tests.support.etcd_servers import EtcdCluster
from tests.support.zookeeper_servers import ZooKeeperEnsemble

__all__ = ["DRIVERS", "build", "change", "driver", "driver_class", "driver_of", "make_driver", "private_board"]

DRIVERS = {
    "memory": "jobboard.backends.memory:MemoryDriver",
    "etcd": "jobboard.backends.etcd.driver:EtcdDriver",
    "zookeeper": "jobboard.backends.zookeeper.driver:ZooKeeperDriver",
}
"""The drivers by backend."""

_serial = itertools.count(1)


def driver_class(backend: str) -> type[Driver]:
    module, _, name = DRIVERS[backend].partition(":")
    found: type[Driver] = getattr(importlib.import_module(module), name)
    return found


@pytest.fixture
def build(backend: str, conf_of: Callable[[str], dict[str, Any]]) -> Callable[..., Driver]:
    """Return ``build(name='board', **options)``, which makes a driver that is not open. Equal names share a board."""
    # Boards in memory differ by name alone.
    where, made, suffix = conf_of(backend), driver_class(backend), f"-of-drivers-{next(_serial)}"

    def build(name: str = "board", **options: Any) -> Driver:
        return build_driver(made, where, name + suffix, **options)

    return build


def driver_of(board: Any) -> Any:
    """Return the driver under a board."""
    return board.engine.store._driver


def change(driver: Driver, do: Literal["put", "delete"], path: str, value: bytes = b"") -> None:
    """Change a record behind the board's back."""
    [node] = driver.read([path]).nodes
    assert node is not None
    driver.commit([Op(do, path, value, node.version)])


@pytest.fixture
def private_board(backend: str, private_server: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """``private_board(**options)``: a board on a server of the test's own, ``private_board.server``."""
    with contextlib.ExitStack() as stack:

        def make(name: str = "board", **options: Any) -> Any:
            board = jobboard.fetch(name, {"board": make.server.uri, **options})
            stack.callback(board.close)
            board.connect()
            return board

        make.server = private_server(backend)  # type: ignore[attr-defined]
        yield make
        make.server.resume()  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def cluster(backend: str) -> Iterator[Any]:
    """Three members, for all tests of a module."""
    with ZooKeeperEnsemble() if backend == "zookeeper" else EtcdCluster() as cluster:
        yield cluster


def one_of(cluster: Any, member: Any) -> str:
    """Return the URI of one member."""
    return f"{cluster.uri.partition('://')[0]}://127.0.0.1:{member.port}"
