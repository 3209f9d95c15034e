"""Boards on ZooKeeper and etcd that are opened: passed servers, and layouts that this version can't read."""

import socket
from collections.abc import Callable
from typing import Any

import pytest

import jobboard
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.kv.layout import LAYOUT
from tests.kv.conftest import change, driver_of
from tests.support.server import reserve_port

pytestmark = [pytest.mark.backends("zookeeper", "etcd"), pytest.mark.timeout(120)]


@pytest.mark.parametrize(
    ("stored", "told"), [(b"9 9", "newer version of this library; upgrade"), (b"garbage", "1 1")], ids=["newer", "none"]
)
def test_a_layout_of_another_kind_is_refused(make_board: Callable[..., Any], stored: bytes, told: str) -> None:
    change(driver_of(make_board()), "put", LAYOUT, stored)
    with pytest.raises(JobFailure, match=told):
        make_board()


@pytest.mark.rule("A silent server is given up within seconds, and a slow start is none.")
def test_a_silent_server_is_passed_over_for_another(board_conf: dict[str, Any], make_board: Callable[..., Any]) -> None:
    scheme, _, address = board_conf["board"].partition("://")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        among = f"{scheme}://127.0.0.1:{silent.getsockname()[1]},{address}"
        first = {"randomize_hosts": False} if scheme == "zookeeper" else {"timeout": 0.3}
        # A board on etcd begins with any of its servers.
        for _ in range(1 if scheme == "zookeeper" else 4):
            assert make_board(board=among, **first).post("resize").name == "resize"


def test_servers_without_an_answer_are_an_error(board_conf: dict[str, Any]) -> None:
    scheme = board_conf["board"].partition("://")[0]
    reservation, port = reserve_port()
    with reservation:
        board = jobboard.fetch("board", f"{scheme}://127.0.0.1:{port}?retry_for=0&timeout=0.5")
        with pytest.raises(ConnectionFailure, match=r"answered|can be reached"):
            board.connect()


@pytest.mark.backends("redis", "zookeeper", "etcd")
def test_an_absent_board_is_refused_without_auto_setup(
    board_conf: dict[str, Any], make_board: Callable[..., Any]
) -> None:
    make_board("picture")
    with pytest.raises(JobFailure, match=r"boards there: 'picture'; .*jobboard setup"):
        make_board("pictures", auto_setup=False)
    board = jobboard.fetch("pictures", board_conf)
    board.setup()
    board.setup()
    assert make_board("pictures", auto_setup=False).siblings(10) == ["picture"]
