"""How a connection waits for its sockets."""

import socket
from collections.abc import Iterator

import pytest

from jobboard.backends.zookeeper.handler import PollingHandler


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


Pair = tuple[socket.socket, socket.socket]


def test_what_can_be_read_and_what_can_be_written(pair: Pair) -> None:
    one, other = pair
    found = PollingHandler().select
    assert found([], [one], [], 10) == ([], [one], [])
    assert found([one, other], [other], [], 10) == ([], [other], [])
    other.send(b"x")
    assert found([one, other], [], [], 10) == ([one], [], [])
    assert found([one], [one], [], None) == ([one], [one], [])


def test_nothing_in_time(pair: Pair) -> None:
    assert PollingHandler().select(pair, [], [], 0.001) == ([], [], [])


def test_a_broken_connection_is_there_to_be_read(pair: Pair) -> None:
    one, other = pair
    other.close()
    assert PollingHandler().select([one], [], [], 10) == ([one], [], [])
    assert one.recv(1) == b""


def test_what_is_closed_is_told(pair: Pair) -> None:
    one, _ = pair
    number = one.detach()
    socket.close(number)

    class Left:
        def fileno(self) -> int:
            return number

    [left], _, _ = PollingHandler().select([Left()], [], [], 10)
    assert left.fileno() == number
