"""Sessions: how long their claims last, and the claims of a session that ends."""

from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from jobboard.exceptions import ClaimLost
from jobboard.job import Entity
from jobboard.runtime import boottime
from jobboard.states import CLAIMED, COMPLETE, UNCLAIMED
from jobboard.testing import eventually
from jobboard.testing.conformance.support import EventLog, record_of, take
from jobboard.testing.faults import FaultyProxy
from tests.backends.zookeeper.conftest import connection_of, owner_of, path_of

pytestmark = pytest.mark.backends("zookeeper")

Expire = Callable[[Any], None]


def test_claim_ttl_is_the_session_timeout_that_the_server_grants(make_board: Any) -> None:
    for asked, granted in ((0.2, 1.0), (5, 5.0), (3600, 600.0)):
        assert make_board(claim_ttl=asked).characteristics.claim_ttl == pytest.approx(granted)


@pytest.mark.rule("A claim kept by a session is lost at two thirds of the timeout.")
def test_claims_are_lost_at_two_thirds_of_the_timeout(private_board: Any, caplog: pytest.LogCaptureFixture) -> None:
    """By a timer of the board, while the server is silent. Later the board gives the job back."""
    board, other = private_board(claim_ttl=6), private_board(claim_ttl=60)
    fixed = board.claim(board.post("fixed"), "anna", 600)
    job = board.post("resize")
    claim = board.claim(job, "anna")
    events = EventLog(board, "LOST")
    private_board.server.pause()
    paused = boottime()
    eventually(lambda: events.of(job) == ["LOST"])
    assert claim.lost
    assert claim.deadline <= paused + 4
    assert not fixed.lost
    eventually(lambda: "interrupted" in caplog.text)
    assert (board.connected, board.closed) == (False, False)
    private_board.server.resume()
    assert take(other, "bert", timeout=60) == job
    with pytest.raises(ClaimLost):
        board.consume(job, "anna")


@pytest.mark.rule("A claim that may not be given back comes back once it may.")
def test_a_claim_that_acls_forbid_to_give_back_is_given_back_later(
    make_board: Any, caller: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    board = make_board(claim_ttl=20)
    job = board.post("resize")
    path = path_of(board, job)

    @board.working("anna")
    def work(job: Any) -> None:
        caller.set_acls(path, [make_acl("world", "anyone", read=True, admin=True)])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    eventually(lambda: "ACLs forbid" in caplog.text)
    assert job.state == CLAIMED
    caller.set_acls(path, OPEN_ACL_UNSAFE)
    eventually(lambda: job.state == UNCLAIMED)


def test_claims_and_entities_go_on_in_the_next_session(make_board: Any, expire: Expire) -> None:
    board, other = make_board(claim_ttl=20), make_board(claim_ttl=60)
    board.register_entity(Entity("conductor", "one"))
    job = board.post("resize")
    claim, before = board.claim(job, "anna"), connection_of(board).session_id
    expire(board)
    eventually(lambda: owner_of(other, job) not in (None, before))
    assert board.connected
    assert record_of(other, job).token == claim.token
    eventually(lambda: [entity.name for entity in other.entities()] == ["one"])
    board.consume(job, "anna")


@pytest.mark.parametrize("arrives", [False, True], ids=["unsent", "carried out"])
@pytest.mark.parametrize("verb", ["claim", "consume"])
def test_a_session_that_ends_during_a_change(
    make_board: Any, proxy: FaultyProxy, expire: Expire, verb: str, arrives: bool
) -> None:
    """Just before the change is sent, or once the change is carried out and its reply is lost."""
    board = make_board(board=f"zookeeper://{proxy.host}:{proxy.port}", claim_ttl=20, retry_for=30)
    other = make_board(claim_ttl=60)
    job = board.post("resize")
    if verb == "consume":
        job = take(board)

    def end() -> None:
        expire(board)
        proxy.cut()

    # The names of kept claims are written, and not read.
    fault = (proxy.after if arrives else proxy.before)(end, matching=b"/kept/")
    if verb == "claim":
        job = take(board)
        assert fault.happened
        assert owner_of(other, job) == connection_of(board).session_id
    board.consume(job, "anna")
    assert fault.happened
    assert job.state == COMPLETE
    assert other.stats().claimed == 0


@pytest.mark.rule("An outage that is shorter than the session costs no session.")
def test_a_session_outlives_a_restart_of_the_server(private_board: Any) -> None:
    board = private_board(claim_ttl=120)
    job = board.post("resize")
    claim = board.claim(job, "anna")
    connection = connection_of(board)
    session = connection.session_id
    private_board.server.kill()
    eventually(lambda: not board.connected)
    private_board.server.start()
    eventually(lambda: board.connected)
    assert connection.session_id == session
    board.extend(job, "anna")
    assert not claim.lost
