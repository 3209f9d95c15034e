"""What becomes of claims when connections break, servers stop and sessions end."""

import contextlib
import logging
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

import jobboard
from jobboard import codec
from jobboard.engine import Mark, Side, Stale
from jobboard.exceptions import ClaimLost, ConnectionFailure, JobFailure
from jobboard.job import Entity, Posting, boottime
from jobboard.primitives import Nonce
from jobboard.states import CLAIMED, UNCLAIMED
from jobboard.testing import eventually
from jobboard.testing.conformance.support import Background, EventLog, replaced, take
from jobboard.testing.puppet import Puppet
from tests.backends.zookeeper.inside import connection_of, path_of
from tests.support.backups import Backup

pytestmark = pytest.mark.backends("zookeeper")

T = 2.0


def client_of(board: Any) -> KazooClient:
    return connection_of(board).open()


def claim_there(board: Any, job: Any) -> bool:
    [stored] = board.engine.store.read([job.uuid]).jobs
    return stored.record.state == CLAIMED and stored.alive


def test_the_timeout_in_force_is_the_servers(make_board: Any) -> None:
    assert make_board(claim_ttl=0.2).characteristics.claim_ttl == pytest.approx(1.0)
    assert not make_board().characteristics.survives_failover  # a server that is alone
    assert make_board(claim_ttl=5).characteristics.claim_ttl == pytest.approx(5.0)
    assert make_board(claim_ttl=3600).characteristics.claim_ttl == pytest.approx(600.0)


def test_at_two_thirds_of_the_timeout_claims_are_lost(private_board: Any, caplog: pytest.LogCaptureFixture) -> None:
    """And told of, by a timer of our own, while the server does not answer at all."""
    board = private_board(claim_ttl=3 * T)
    fixed = board.claim(board.post("fixed"), "anna", 600)
    events = EventLog(board, "LOST")
    # The timer of a machine that has much to do may be late once, and not each time.
    for left in (2, 1, 0):
        job = board.post("resize")
        board.claim(job, "anna")
        start = boottime()
        private_board.server.pause()
        paused = boottime()
        with caplog.at_level(logging.WARNING, "jobboard"):
            eventually(lambda: events.of(job) == ["LOST"])  # noqa: B023 - called right here
            took = boottime() - start
            assert job.claim.lost
            assert job.claim.deadline <= paused + 2 * T
            assert not fixed.lost
            eventually(lambda: "interrupted" in caplog.text)
        assert (board.connected, board.closed) == (False, False)
        assert "closed" not in repr(board)
        private_board.server.resume()
        eventually(lambda: board.connected)
        if took < 3 * T:
            break
        assert left, "the session could have ended by then"


def test_a_lost_claim_of_a_session_that_survives_is_given_free(private_board: Any) -> None:
    board, other = private_board(claim_ttl=20), private_board()
    job = board.post("resize", max_attempts=9)
    taken = take(board)
    assert claim_there(other, job)
    board._claim_lost(taken.claim)  # as the timer does, in a session that lives on
    board.claims.let_go(taken.claim)
    again = take(other, "bert", timeout=10)
    assert again == job
    with pytest.raises(ClaimLost):
        board.consume(taken, "anna")
    other.consume(again, "bert")


def test_what_may_not_be_given_back_comes_back_once_it_may(
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
    assert claim_there(board, job)
    caller.set_acls(path, OPEN_ACL_UNSAFE)
    eventually(lambda: job.state == UNCLAIMED)


def test_a_lost_claim_that_was_extended_after_all_stays(private_board: Any) -> None:
    board, other = private_board(claim_ttl=20), private_board()
    job = board.post("resize")
    taken = take(board)
    keeper = board.engine.raw._keeper
    keeper._forsaken.add((job.uuid, taken.claim.token))
    board.extend(taken, "anna")
    keeper._free(job.uuid, taken.claim.token)
    assert claim_there(other, job)
    assert other.find_owner(other.get(job.uuid)) == "anna"


def test_freeing_never_hits_a_later_claim(private_board: Any) -> None:
    board, other = private_board(claim_ttl=20), private_board()
    job = board.post("resize")
    taken = take(board)
    other.release(other.get(job.uuid))
    again = take(board)
    board.engine.raw._keeper.forsake(job.uuid, taken.claim.token)
    eventually(lambda: not board.engine.raw._keeper._forsaken)
    assert claim_there(other, job)
    board.consume(again, "anna")


def test_a_claim_taken_by_another_after_expiry_is_lost(private_board: Any, expire: Callable[[Any], None]) -> None:
    board, other = private_board(claim_ttl=T), private_board()
    job = board.post("resize")
    claim = board.claim(job, "anna")
    events = EventLog(board, "LOST")
    board.claims.let_go(claim)  # so that no beat revives it first
    waiter = Background(lambda: other.claim_next("anna", timeout=20))
    expire(board)
    taken = waiter.wait(20)
    assert taken == job
    board.claims.hold(claim)
    board.claims.beat_soon()
    events.expect(job, "LOST")
    with pytest.raises(ClaimLost):
        board.consume(job, "anna")  # the same who
    other.consume(taken, "anna")


def test_a_stopped_holder(private_board: Any) -> None:
    """Its session expires while it sleeps; what it does when it wakes is refused, with the same who."""
    board = private_board(claim_ttl=T)
    puppet = Puppet("board", {"board": private_board.server.uri, "claim_ttl": 1})
    try:
        job = board.post("resize")
        uuid, _ = puppet("claim_next", "anna")
        assert uuid == job.uuid
        puppet.signal(signal.SIGSTOP)
        taken = take(board, "anna", timeout=10)
        assert taken == job
        puppet.tell("consume", "anna")
        puppet.signal(signal.SIGCONT)
        assert puppet.answer() == "ClaimLost"
        assert job.state == CLAIMED
        board.consume(taken, "anna")
    finally:
        puppet.end()


def test_unreachable_is_a_failure_and_never_an_empty_board(private_board: Any) -> None:
    board = private_board(claim_ttl=1, retry_for=0.2)
    board.post("resize")
    private_board.server.kill()
    looks = [
        lambda: board.claim_next("anna"),
        lambda: list(board.iterjobs()),
        lambda: board.job_count,
        lambda: board.wait(0),
        lambda: list(board.trashed()),
        board.entities,
    ]
    for answer in [Background(look) for look in looks]:
        with pytest.raises(ConnectionFailure):
            answer.wait(20)
    assert not board.connected
    private_board.server.start()
    eventually(lambda: board.connected)
    assert board.job_count == 1
    assert board.claim_next("anna").name == "resize"


@pytest.mark.parametrize("retry_for", [0, 0.5])
def test_a_server_that_is_away_is_waited_for_as_long_as_was_asked(private_board: Any, retry_for: float) -> None:
    board = private_board(retry_for=retry_for)
    board.register_entity(Entity("conductor", "one"))
    board.post("resize")
    taken = take(board)
    private_board.server.kill()
    eventually(lambda: not board.connected)
    acts: list[tuple[float, Callable[[], Any]]] = [
        (retry_for, lambda: board.post("resize")),
        (retry_for, lambda: board.consume(taken, "anna")),
        (retry_for, lambda: board.job_count),
        (0, board.close),
    ]
    for limit, act in acts:
        start = boottime()
        with contextlib.suppress(ConnectionFailure):
            act()
        assert limit <= boottime() - start < limit + 5


def test_the_end_of_a_board_does_not_wait_for_a_server(private_board: Any) -> None:
    """That keeps nothing, but would have to sign off."""
    board = private_board()
    board.register_entity(Entity("conductor", "one"))
    private_board.server.kill()
    eventually(lambda: not board.connected)
    start = boottime()
    board.close()
    assert boottime() - start < 5


def test_a_server_that_comes_back_in_time(private_board: Any) -> None:
    board = private_board(retry_for=30)
    private_board.server.kill()
    eventually(lambda: not board.connected)
    late = Background(lambda: board.post("late"))
    private_board.server.start()
    assert late.wait(20).name == "late"


@pytest.mark.parametrize("started", [False, True])
def test_a_client_that_is_not_running_is_said_to_be(private_board: Any, started: bool) -> None:

    client = KazooClient(private_board.server.uri.partition("//")[2])
    board = jobboard.fetch("board", {"board": "zookeeper", "retry_for": 0.1}, client=client)
    if started:
        client.start()
        board.connect()
        client.stop()
    start = boottime()
    with pytest.raises(ConnectionFailure, match=r"client= .* not running"):
        board.post("resize") if started else board.connect()
    board.close()
    assert boottime() - start < 5
    client.close()


def test_nobody_there_at_all() -> None:
    from tests.support.server import reserve_port

    reservation, port = reserve_port()
    with reservation:
        board = jobboard.fetch("board", {"board": f"zookeeper://127.0.0.1:{port}", "timeout": 0.5})
        with pytest.raises(ConnectionFailure, match="answered"):
            board.connect()


def test_a_claim_of_a_request_that_was_carried_out_late_is_given_back(private_board: Any) -> None:
    """kazoo keeps what it could not send: it may be carried out when the caller has long been told of a failure."""
    board, other = private_board(claim_ttl=30, retry_for=0), private_board()
    job = board.post("resize")
    nonce = Nonce(board.engine.handle, 77, 1)
    taken = board.engine.raw.take("anna", 1, None, None, codec.VERSION, nonce)
    assert taken.records[0].uuid == job.uuid
    board.engine.raw.doubt(nonce)  # as if nobody had heard of it
    again = take(other, "bert", timeout=10)
    assert again == job
    assert again.attempts == 1  # that one did not count


@pytest.mark.parametrize(
    "errors",
    [
        [KeyboardInterrupt()],
        [ConnectionFailure("away", outcome="unknown"), KeyboardInterrupt()],
        [ConnectionFailure("away", outcome="unknown"), JobFailure("refused")],
    ],
    ids=["interrupted", "interrupted later", "refused later"],
)
def test_a_claim_whose_call_came_to_another_end_is_given_back(private_board: Any, errors: list[BaseException]) -> None:
    board, other = private_board(claim_ttl=30), private_board()
    job = board.post("resize")
    left = list(errors)

    def broken(original: Any, *args: Any) -> Any:
        if left == errors:
            assert original(*args).records
        raise left.pop(0)

    with replaced(board, "take", broken), pytest.raises(type(errors[-1])):
        board.claim_next("anna")
    again = take(other, "bert", timeout=10)
    assert again == job
    assert again.attempts == 1


def test_a_request_that_nobody_waits_for_any_longer_is_refused(private_board: Any) -> None:
    board = private_board(claim_ttl=30)
    job = board.post("resize")
    nonce = Nonce(board.engine.handle, 77, 1)
    store = board.engine.store
    late = Mark(Side("answer", f"{nonce.handle}:77", None, None, None), b"late")  # with what the first try knew
    board.engine.raw.doubt(nonce)
    eventually(lambda: not board.engine.raw._keeper._doubted)
    with pytest.raises(Stale):
        store.commit([], [late])
    assert job.state == UNCLAIMED


def test_a_paused_server_in_the_middle_of_claims_strands_no_job(private_board: Any) -> None:
    board, other = private_board(claim_ttl=1.5, retry_for=0.1), private_board(claim_ttl=60)
    board.post_many([Posting("resize")] * 20)
    claimed = [take(board).uuid]
    private_board.server.pause()
    with pytest.raises(ConnectionFailure):
        take(board)
    private_board.server.resume()
    eventually(lambda: other.connected)
    # Whether that last claim was carried out or not: it is nobody's, and others get the job.
    rest = 20 - len(claimed)
    served: set[str] = set()
    eventually(lambda: served.update(job.uuid for job in other.claim_many("bert", 20)) or len(served) >= rest)


def test_a_session_outlives_servers_that_have_forgotten_nothing(private_board: Any) -> None:
    board = private_board(claim_ttl=40)
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


def test_a_callers_client_that_older_servers_refuse_is_named(private_board: Any, tmp_path: Path) -> None:
    client = KazooClient(private_board.server.uri.partition("//")[2])
    client.start()
    board = jobboard.fetch("callers", {"board": "zookeeper", "retry_for": 0}, client=client)
    board.connect()
    backup = Backup(private_board.server, tmp_path / "backup")
    eventually(lambda: board.connected)
    held = board.post("held")
    board.claim(held, "anna")
    backup.restore()

    def refused() -> bool:
        with pytest.raises(ConnectionFailure) as failure:
            board.post("resize")
        return "restart() the client" in str(failure.value)

    eventually(refused, 60)
    client.restart()
    assert take(board, "bert", names=[board.post("again").name]).name == "again"
    with pytest.raises(ClaimLost):
        board.consume(held, "anna")
    board.close()
    client.stop()
    client.close()
