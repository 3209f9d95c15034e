"""The lease and the watch of a board on etcd, and connections that fall silent."""

import json
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from jobboard.kv.driver import JOBS, MISSED, Op
from jobboard.testing import eventually
from jobboard.testing.conformance.support import LIMIT, PATIENCE, Waiter
from jobboard.testing.faults import FaultyProxy
from tests.backends.etcd.conftest import link_of

pytestmark = [pytest.mark.backends("etcd"), pytest.mark.timeout(120)]


@pytest.mark.rule("A watch whose revision was compacted begins again.")
def test_a_watch_whose_revision_was_compacted_begins_again(make_board: Callable[..., Any], far: Any) -> None:
    board, proxy = far
    other = make_board()
    link = link_of(other)
    waiter = Waiter(board, lambda: board.claim_next("anna", timeout=PATIENCE))
    eventually(lambda: link_of(board).streams)
    proxy.refuse()
    proxy.cut()
    for _ in range(3):
        other.cancel(other.post("gone"))
    job = other.post("resize")
    link.call("/v3/kv/compaction", json.dumps({"revision": str(link.read([]).revision), "physical": True}))
    proxy.restore()
    assert waiter.wait(3 * LIMIT) == job
    waiter = Waiter(board, lambda: board.claim_next("anna", timeout=PATIENCE))
    assert other.post("resize") == waiter.wait()


@pytest.mark.rule("A watch whose revision was compacted begins again.")
def test_a_bell_between_two_watches_is_made_up_for(
    make_driver: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch has ended and no request has failed, so only the next watch can report the bell."""
    heard: list[str] = []
    rung: list[Any] = []
    driver, other = make_driver(heard=heard), make_driver()
    driver.watch()
    streams, stream = eventually(lambda: list(driver.link.streams)), driver.link.stream

    def late(*args: Any) -> Any:
        rung.append(other.commit([Op("ring", JOBS)]))
        heard.clear()
        return stream(*args)

    monkeypatch.setattr(driver.link, "stream", late)
    streams[0].shutdown(socket.SHUT_RDWR)
    eventually(lambda: rung and {JOBS, MISSED} & set(heard))


@pytest.mark.rule("A closed board on etcd leaves no connection open, also where a request ends meanwhile.")
def test_a_request_that_ends_while_its_board_closes_leaves_no_connection(make_driver: Callable[..., Any]) -> None:
    link = make_driver().link
    kept: list[Any] = []

    class Idle(deque[Any]):
        def append(self, wire: Any) -> None:
            kept.append(wire)
            link.close()
            super().append(wire)

    idle, link._idle = link._idle, Idle()
    for wire in idle:
        wire.close()
    link.read([])
    assert [wire.sock for wire in kept] == [None]


@pytest.mark.rule("A silent connection is given up.")
@pytest.mark.parametrize("what", ["request", "reply"])
def test_a_silent_connection_is_given_up(far: tuple[Any, FaultyProxy], what: Any) -> None:
    """The call is done once, on another connection."""
    board, proxy = far
    link_of(board).patience = 0.5
    board.post("warm")
    fault = proxy.silence(what, matching=b"POST /v3/kv/txn")
    job = board.post("resize")
    assert fault.happened
    assert [each.name for each in board.iterjobs()] == ["warm", "resize"]
    assert job == list(board.iterjobs())[1]
