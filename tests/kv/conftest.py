"""A driver of each selected backend, as a store would hold it."""

import importlib
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from jobboard.kv.driver import Driver
from jobboard.testing.drivers import build_driver, driver, make_driver

__all__ = ["DRIVERS", "driver", "driver_class", "driver_of", "make_driver"]

DRIVERS = {
    "memory": "jobboard.backends.memory:MemoryDriver",
    "etcd": "jobboard.backends.etcd.driver:EtcdDriver",
    "zookeeper": "jobboard.backends.zookeeper.driver:ZooKeeperDriver",
}
"""Where the drivers are, by backend."""

_serial = itertools.count(1)


def driver_class(backend: str) -> type[Driver]:
    module, _, name = DRIVERS[backend].partition(":")
    found: type[Driver] = getattr(importlib.import_module(module), name)
    return found


@pytest.fixture
def build(backend: str, conf_of: Callable[[str], dict[str, Any]]) -> Callable[..., Driver]:
    """``build(name='board', **options)``: a driver that is not open yet. The same name is the same board."""
    # The name is all that tells one memory board from another.
    where, made, suffix = conf_of(backend), driver_class(backend), f"-of-drivers-{next(_serial)}"

    def build(name: str = "board", **options: Any) -> Driver:
        return build_driver(made, where, name + suffix, **options)

    return build


def driver_of(board: Any) -> Driver:
    """The driver that a board of these backends stands on."""
    driver: Driver = board.engine.store._driver
    return driver
