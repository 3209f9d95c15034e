"""Clients of kazoo's: those that give up, and those that a caller gives to a board."""

from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

import jobboard
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.job import Posting
from jobboard.testing import eventually
from jobboard.testing.conformance.processes import in_child
from jobboard.testing.conformance.support import Background, record_of, take
from jobboard.testing.faults import FaultyProxy
from tests.backends.zookeeper.conftest import connection_of, owner_of

pytestmark = pytest.mark.backends("zookeeper")

GIVES_UP = {"max_tries": 1, "delay": 0.01, "max_delay": 0.02}


# A board's own client


@pytest.mark.rule("A client that has given up is replaced, and claims go over to the new session.")
def test_a_client_that_has_given_up_is_replaced_once(
    make_board: Any, proxy: FaultyProxy, caplog: pytest.LogCaptureFixture
) -> None:
    """Many threads need a client, and share the new one."""
    uri = f"zookeeper://{proxy.host}:{proxy.port}"
    board = make_board(board=uri, claim_ttl=60, retry_for=0.3, connection_retry=GIVES_UP, timeout=3)
    jobs = board.post_many([Posting("resize")] * 8)
    old = connection_of(board).open()
    proxy.refuse()
    proxy.cut()
    eventually(lambda: old.client_state == "CLOSED")

    def reason() -> str:
        with pytest.raises(ConnectionFailure) as failure:
            board.claim_next("anna")
        return str(failure.value)

    # A call whose time ends while a new client still tries reports no more than that.
    eventually(lambda: "connection_retry" in reason())
    assert not board.connected
    caplog.clear()
    proxy.restore()
    board.engine.retry_for = 40
    takers = [Background(lambda: board.claim_next("anna")) for _ in jobs]
    assert {taker.wait(60).uuid for taker in takers} == {job.uuid for job in jobs}
    assert caplog.text.count("starts a new session") <= 1
    assert board.connected
    assert not old.connected


@pytest.mark.rule("A client that has given up is replaced, and claims go over to the new session.")
def test_the_heartbeat_moves_claims_to_the_session_of_a_new_client(make_board: Any, proxy: FaultyProxy) -> None:
    """At once, though the server keeps the earlier session for its whole time."""
    uri = f"zookeeper://{proxy.host}:{proxy.port}"
    board, other = make_board(board=uri, claim_ttl=120, connection_retry=GIVES_UP), make_board(claim_ttl=60)
    job = board.post("resize")
    taken = take(board)
    connection = connection_of(board)
    before, old = connection.session_id, connection.open()
    proxy.refuse()
    proxy.cut()
    eventually(lambda: old.client_state == "CLOSED")
    proxy.restore()
    eventually(lambda: board.claims.beat_soon() or owner_of(other, job) == connection.session_id != before)
    assert record_of(other, job).token == taken.claim.token
    assert not taken.claim.lost
    board.consume(taken, "anna")


# A client of the caller's


@pytest.mark.rule("A board with a caller's client has a session of its own.")
def test_a_board_connects_as_the_callers_client_and_leaves_it_alone(address: str, board_conf: dict[str, Any]) -> None:
    user = make_digest_acl("anna", "secret", all=True)
    client = KazooClient(address, auth_data=[("digest", "anna:secret")], default_acl=[user])
    conf = {"board": "zookeeper", "namespace": f"acl{board_conf['namespace']}"}
    with (
        jobboard.backend("board", conf, client=client) as board,
        jobboard.backend("board", conf, client=client) as same,
    ):
        first, second = board.post_many([Posting("resize")] * 2)
        assert take(board) == first
        assert take(same) == second
        board.close()
        assert take(same, "bert") == first
        assert client.client_state == "CLOSED"
        with pytest.raises(JobFailure, match="ACLs"):
            jobboard.fetch("board", {**conf, "board": f"zookeeper://{address}"}).connect()


def test_a_forked_child_may_not_use_the_callers_client(caller: KazooClient, board_conf: dict[str, Any]) -> None:
    conf = {"board": "zookeeper", "namespace": board_conf["namespace"], "retry_for": 0.2}
    with jobboard.backend("board", conf, client=caller) as board:
        job = board.post("resize")
        with pytest.raises(AssertionError, match=r"^JobFailure: .*forked"):
            in_child(lambda: board.claim_next("anna"))()
        assert take(board) == job
