"""A member of an ensemble that sleeps over a request until it is asked for something else, as 3.8.0 may."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jobboard
from jobboard.testing.faults import FaultyProxy

pytestmark = pytest.mark.backends("zookeeper")


@pytest.fixture
def proxy(server_uris: dict[str, str]) -> Iterator[FaultyProxy]:
    host, _, port = server_uris["zookeeper"].removeprefix("zookeeper://").partition(":")
    with FaultyProxy(host, int(port)) as proxy:
        yield proxy


@pytest.fixture
def board(proxy: FaultyProxy, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Not connected yet; it repeats nothing."""
    uri = f"zookeeper://{proxy.host}:{proxy.port}?claim_ttl=60&retry_for=0&namespace=sleep{id(request)}"
    board = jobboard.fetch("board", uri)
    yield board
    board.close()


def test_connecting(board: Any, proxy: FaultyProxy) -> None:
    fault = proxy.hold(matching=b"/layout")
    board.connect()
    assert fault.happened


ACTS: dict[str, tuple[bytes, Callable[[Any], Any]]] = {
    "a change": (b"/bell", lambda board: board.post("resize")),
    "a read": (b"/side/entity", lambda board: board.entities()),
    "a count": (b"/timed", lambda board: board.job_count),
    "a watch": (b"/bell", lambda board: board.claim_next("anna", timeout=0.3)),
}


@pytest.mark.parametrize("act", ACTS)
def test_an_answer_that_does_not_come(
    board: Any, proxy: FaultyProxy, caplog: pytest.LogCaptureFixture, act: str
) -> None:
    matching, call = ACTS[act]
    board.connect()
    fault = proxy.hold(matching=matching)
    call(board)
    assert fault.happened
    assert "trying again" not in caplog.text
