"""Changes that a server refuses for the moment: for want of rights, of room, or of time."""

import json
from collections.abc import Callable
from typing import Any

import pytest

import jobboard
from jobboard import Conductor
from jobboard.backends.etcd.link import GatewayRefusal
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.states import CLAIMED, UNCLAIMED
from jobboard.testing import eventually
from jobboard.testing.conformance.support import take
from tests.backends.etcd.conftest import link_of, permission
from tests.support.etcd_servers import Etcd

pytestmark = [pytest.mark.backends("etcd"), pytest.mark.timeout(120)]


@pytest.mark.rule("A claim that may not be given back comes back once it may, on etcd too.")
def test_a_claim_that_may_not_be_given_back_is_given_back_later(
    guarded: Etcd, caplog: pytest.LogCaptureFixture
) -> None:
    """Another claim of its process is renewed meanwhile, and so is the lease of both."""

    def uri(user: str) -> str:
        return guarded.uri.replace("//", f"//{user}@") + "/jobs?claim_ttl=60&retry_for=0"

    with jobboard.backend("board", uri("anna:annapw")) as board, jobboard.backend("board", uri("root:rootpw")) as root:

        def permit(kind: str) -> None:
            link_of(root).call("/v3/auth/role/grant", json.dumps({"name": "anna", "perm": permission(kind)}))

        board.post_many([{"name": "long"}, {"name": "short"}])
        held = take(board, names=["long"])
        with pytest.raises(JobFailure, match="permission denied"), board.working("anna", names=["short"]) as job:
            permit("READ")
        eventually(lambda: "could not renew the claims" in caplog.text)
        assert (held.state, job.state) == (CLAIMED, CLAIMED)
        permit("READWRITE")
        eventually(lambda: job.state == UNCLAIMED)
        assert root.find_owner(held) == "anna"


class Busy:
    """A member that is behind with its changes: it refuses ``times`` further ones."""

    def __init__(self, board: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = 0
        link = link_of(board)
        self._exchange = link.exchange
        monkeypatch.setattr(link, "exchange", self._answer)

    def _answer(self, path: str, body: str, token: str | None) -> Any:
        if self.times and "request_put" in body:
            self.times -= 1
            raise GatewayRefusal("etcdserver: too many requests", 8)
        return self._exchange(path, body, token)


@pytest.mark.rule("Too many requests are less in a moment, and an error after a while.")
def test_too_many_requests_are_repeated_a_moment_later(
    make_board: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    board = make_board(retry_for=20)
    board.post("first")
    busy = Busy(board, monkeypatch)
    busy.times = 3
    job = board.post("second")
    busy.times = 3
    assert [take(board).name for _ in range(2)] == ["first", "second"]
    busy.times = 3
    board.consume(job, "anna")
    assert not busy.times
    assert board.connected


@pytest.mark.rule("Too many requests are less in a moment, and an error after a while.")
def test_too_many_requests_for_too_long_are_an_error(
    make_board: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    board = make_board(retry_for=0)
    Busy(board, monkeypatch).times = 1
    with pytest.raises(ConnectionFailure, match="request out now: etcdserver: too many requests") as refused:
        board.post("resize")
    assert refused.value.outcome == "none"
    assert board.job_count == 0


class Room:
    """The alarm of a member whose quota is used up."""

    def __init__(self, server: Etcd) -> None:
        self._server = server
        self._member = server.call("/v3/maintenance/status")["header"]["member_id"]

    def none_left(self) -> None:
        self._server.call("/v3/maintenance/alarm", action="ACTIVATE", memberID=self._member, alarm="NOSPACE")

    def again(self) -> None:
        self._server.call("/v3/maintenance/alarm", action="DEACTIVATE", memberID=self._member, alarm="NOSPACE")


@pytest.mark.rule("The claim that takes the last room is nobody's.")
def test_finished_work_is_consumed_once_there_is_room_again(private_board: Callable[..., Any], start: Any) -> None:
    board, room, calls = private_board(claim_ttl=60, retry_for=0.2), Room(private_board.server), []

    def work(job: jobboard.Job) -> None:
        room.none_left()
        calls.append(job)

    job = board.post("resize")
    conductor = start(Conductor("anna", board, work))
    eventually(lambda: calls)
    with pytest.raises(ConnectionFailure, match=r"request out now: .*space exceeded: compact and defragment"):
        board.post("other")
    assert board.connected
    assert board.find_owner(job) == "anna"
    room.again()
    eventually(lambda: conductor.tally.consumed, 60)
    assert calls == [job]
    conductor.stop()
    assert conductor.wait(30)
    assert board.post("other").state == UNCLAIMED


@pytest.mark.rule("The claim that takes the last room is nobody's.")
def test_a_claim_that_takes_the_last_room_is_given_back(
    private_board: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change by which the quota is exceeded is made, and answered like those that are refused."""
    board, room = private_board(retry_for=0), Room(private_board.server)
    job = board.post("resize")
    board.claim(board.post("warm"), "anna")
    link = link_of(board)
    exchange = link.exchange

    def just_filled(path: str, body: str, token: str | None) -> Any:
        answer = exchange(path, body, token)
        if "request_put" in body:
            monkeypatch.undo()
            room.none_left()
            raise GatewayRefusal("etcdserver: mvcc: database space exceeded", 8)
        return answer

    monkeypatch.setattr(link, "exchange", just_filled)
    for outcome in ("unknown", "none", "none"):
        with pytest.raises(ConnectionFailure, match="space exceeded") as refused:
            board.claim_next("anna")
        assert refused.value.outcome == outcome
    assert job.state == CLAIMED
    room.again()
    eventually(lambda: job.state == UNCLAIMED)
