"""What the tests of the ZooKeeper board share. They are collected only where that backend is selected."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

from jobboard.backends.zookeeper.connection import Connection
from jobboard.backends.zookeeper.driver import ZooKeeperDriver
from jobboard.kv import layout
from jobboard.testing.faults import FaultyProxy
from tests.kv.conftest import build, driver_of, make_driver, private_board

__all__ = ["build", "driver_of", "make_driver", "private_board"]


def connection_of(board: Any) -> Connection:
    connection: Connection = driver_of(board).connection
    return connection


def root_of(board: Any) -> str:
    """Return the path of the znode of a board, or of a driver's board."""
    driver = board if isinstance(board, ZooKeeperDriver) else driver_of(board)
    return str(driver.place(layout.LAYOUT).removesuffix("/layout"))


def path_of(board: Any, job: Any) -> str:
    """Return the path of a job's znode."""
    return str(driver_of(board).place(layout.job_path(job.uuid)))


def owner_of(board: Any, job: Any) -> int | None:
    """Return the id of the ZooKeeper session that keeps the claim of a job."""
    [stored] = board.engine.store.read([job.uuid]).jobs
    if stored.tag.session is None:
        return None
    [[found], _] = connection_of(board).read([f"{root_of(board)}/alive/{stored.tag.session}"])
    return None if found is None else int(found[1].ephemeralOwner)


@pytest.fixture
def address(server_uris: dict[str, str]) -> str:
    return server_uris["zookeeper"].removeprefix("zookeeper://")


@pytest.fixture
def caller(address: str) -> Iterator[KazooClient]:
    """A client of the caller's."""
    client = KazooClient(hosts=address)
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture
def proxy(address: str) -> Iterator[FaultyProxy]:
    """A proxy before the shared server."""
    host, _, port = address.partition(":")
    with FaultyProxy(host, int(port)) as proxy:
        yield proxy


@pytest.fixture
def expire(address: str) -> Callable[[Any], None]:
    """``expire(board)``: end the board's session from elsewhere, as the server does with a silent session."""

    def expire(board: Any) -> None:
        client_id = connection_of(board).open().client_id
        other = KazooClient(hosts=address, client_id=client_id)
        other.start()
        other.stop()
        other.close()

    return expire
