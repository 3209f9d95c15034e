"""What the tests of the ZooKeeper board share. They are collected only where that backend is selected."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

import jobboard
import jobboard.conf
from jobboard.backends.zookeeper.driver import ZooKeeperDriver
from jobboard.engine import Seat
from jobboard.kv import layout
from jobboard.kv.driver import Op
from jobboard.testing import eventually
from tests.backends.zookeeper.inside import connection_of
from tests.support.zookeeper_servers import ZooKeeperEnsemble


@pytest.fixture(scope="session")
def ensemble() -> Iterator[ZooKeeperEnsemble]:
    """Three servers, which nobody may stop."""
    with ZooKeeperEnsemble() as ensemble:
        yield ensemble


@pytest.fixture
def address(server_uris: dict[str, str]) -> str:
    return server_uris["zookeeper"].removeprefix("zookeeper://")


@pytest.fixture
def caller(address: str) -> Iterator[KazooClient]:
    client = KazooClient(hosts=address)
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture
def private_board(private_server: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """``private_board(**options)``: a board on a server of the test's own; ``private_board.server`` is that one."""

    boards: list[Any] = []

    def make(name: str = "board", **options: Any) -> Any:
        board = jobboard.fetch(name, {"board": make.server.uri, **options})
        boards.append(board)
        board.connect()
        return board

    make.server = private_server("zookeeper")
    yield make
    make.server.resume()
    for board in boards:
        board.close()


@pytest.fixture
def expire() -> Callable[[Any], None]:
    """``expire(board)``: end the board's session from elsewhere, as the server does with one that is silent."""

    def expire(board: Any) -> None:
        client = connection_of(board).open()
        session, password = client._session_id, client._session_passwd
        other = KazooClient(hosts=",".join(f"{h}:{p}" for h, p in client.hosts), client_id=(session, password))
        other.start()
        other.stop()
        other.close()
        eventually(lambda: client.connected and client._session_id not in (None, session))

    return expire


@pytest.fixture
def make_driver(conf_of: Callable[[str], dict[str, Any]]) -> Iterator[Callable[..., ZooKeeperDriver]]:
    """``make_driver(name='drivers', **options)``: a driver that is open, of a board that has a layout and a gate."""
    where, drivers = conf_of("zookeeper"), list[ZooKeeperDriver]()

    def make(name: str = "drivers", **options: Any) -> ZooKeeperDriver:
        given = {**where, **options}
        conf = jobboard.conf.parse(
            given, {**jobboard.conf.COMMON, **ZooKeeperDriver.options}, ZooKeeperDriver.uri_parts
        )
        driver = ZooKeeperDriver(Seat(name, conf, None, "zookeeper"))
        driver.open(True, [Op("create", layout.LAYOUT, b"1"), Op("create", layout.GATE_PATH)], lambda word: None)
        drivers.append(driver)
        return driver

    yield make
    for driver in drivers:
        driver.close()
