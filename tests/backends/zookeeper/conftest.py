"""What the tests of the ZooKeeper board share. They are collected only where that backend is selected."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jobboard.testing.zookeeper_servers import ZooKeeperEnsemble


@pytest.fixture(scope="session")
def ensemble() -> Iterator[ZooKeeperEnsemble]:
    """Three servers, which nobody may stop."""
    with ZooKeeperEnsemble() as ensemble:
        yield ensemble


@pytest.fixture
def private_board(private_server: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """``private_board(**options)``: a board on a server of the test's own; ``private_board.server`` is that one."""
    import jobboard

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
