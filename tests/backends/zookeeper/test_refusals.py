"""Changes that a server refuses: for want of rights or room, and for their size."""

import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_acl, make_digest_acl

import jobboard
from jobboard import Conductor
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.job import Entity
from jobboard.moving import Mover
from jobboard.states import CLAIMED, UNCLAIMED
from jobboard.testing import eventually
from jobboard.testing.conformance.support import take
from tests.backends.zookeeper.conftest import path_of
from tests.support.servers import ZooKeeper

pytestmark = pytest.mark.backends("zookeeper")


class Strict(ZooKeeper):
    """A server that enforces quotas, which ``super:super`` may set."""

    def _command(self) -> list[str | Path]:
        java, *more = super()._command()
        digest = "super:UdxDQl4f9v5oITwcAsO9bmWgHSI="
        provider = "zookeeper.DigestAuthenticationProvider.superDigest"
        return [java, "-Dzookeeper.enforceQuota=true", f"-D{provider}={digest}", *more]


class Room:
    """The quota of all boards of a server."""

    _PATH = "/zookeeper/quota/jobboard"

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._client = KazooClient(uri.removeprefix("zookeeper://"), auth_data=[("digest", "super:super")])
        self._client.start()
        self._client.ensure_path(self._PATH)
        self._client.create(f"{self._PATH}/zookeeper_limits", b"count=-1,bytes=-1")
        self._client.create(f"{self._PATH}/zookeeper_stats", b"count=1,bytes=1")

    def none_left(self, what: str) -> None:
        self._client.set(f"{self._PATH}/zookeeper_limits", f"count=-1,bytes=-1=;{what}HardLimit=1".encode())

    def again(self) -> None:
        self._client.set(f"{self._PATH}/zookeeper_limits", b"count=-1,bytes=-1")

    def close(self) -> None:
        self._client.stop()
        self._client.close()


@pytest.fixture
def room(private_server: Callable[..., Any]) -> Iterator[Room]:
    room = Room(private_server(Strict).uri)
    yield room
    room.close()


@pytest.mark.rule("A used-up quota is reported as such, and finished work is not done again.")
def test_finished_work_is_consumed_once_a_quota_has_room_again(room: Room, start: Any) -> None:
    calls: list[jobboard.Job] = []

    def work(job: jobboard.Job) -> None:
        room.none_left("count")
        calls.append(job)

    # An end that leaves an outcome always takes room.
    with jobboard.backend("board", room.uri + "?claim_ttl=60&retry_for=0.2&keep_done=60") as board:
        job = board.post("resize")
        conductor = start(Conductor("anna", board, work))
        eventually(lambda: calls)
        for act in (
            lambda: board.post("other"),
            lambda: board.post("first of its rank", priority="HIGH"),
            lambda: board.register_entity(Entity("conductor", "bert")),
        ):
            with pytest.raises(ConnectionFailure, match=r"no room at /jobboard/.* setquota") as refused:
                act()
            assert refused.value.outcome == "none"
        assert job.state == CLAIMED
        room.again()
        eventually(lambda: conductor.tally.consumed, 60)
        assert calls == [job]
        # The conductor would claim the next job.
        conductor.stop()
        assert conductor.wait(30)
        assert board.post("other").state == UNCLAIMED


@pytest.mark.rule("A used-up quota is reported as such, and finished work is not done again.")
def test_finished_work_is_consumed_once_acls_allow_it_again(
    make_board: Any, caller: KazooClient, start: Any, caplog: pytest.LogCaptureFixture
) -> None:
    board, calls = make_board(claim_ttl=60), list[jobboard.Job]()
    job = board.post("resize")
    folder = path_of(board, job).rpartition("/")[0]

    def work(job: jobboard.Job) -> None:
        caller.set_acls(folder, [make_acl("world", "anyone", read=True, write=True, create=True, admin=True)])
        calls.append(job)

    conductor = start(Conductor("anna", board, work))
    eventually(lambda: "may not finish" in caplog.text)
    assert job.state == CLAIMED
    caller.set_acls(folder, OPEN_ACL_UNSAFE)
    eventually(lambda: conductor.tally.consumed, 60)
    assert calls == [job]


@pytest.fixture
def folder(caller: KazooClient) -> Iterator[str]:
    path = f"/{uuid.uuid4()}"
    yield path
    caller.delete(path)


@pytest.mark.rule("A used-up quota is reported as such, and finished work is not done again.")
@pytest.mark.parametrize("readable", [True, False])
def test_a_folder_whose_acls_forbid_a_board_is_named(
    caller: KazooClient, address: str, folder: str, readable: bool
) -> None:
    others = make_acl("world", "anyone", read=True) if readable else make_digest_acl("anna", "geheim", all=True)
    caller.create(folder, acl=[others])
    with pytest.raises(JobFailure, match=f"ACLs forbid the request at {folder}/jobboard$"):
        jobboard.fetch("board", f"zookeeper://{address}{folder}").connect()


@pytest.mark.rule("An oversized posting is refused at post.")
def test_a_posting_that_a_later_claim_could_not_write_is_refused_at_post(make_board: Any) -> None:
    board = make_board(max_details=10_000_000)
    with pytest.raises(ValueError, match="1 MB"):
        board.post("resize", details={"a": "x" * 1_000_000})
    assert board.job_count == 0
    large = board.post("resize", details={"a": "x" * 850_000})
    for _ in range(2):
        job = take(board, "ä" * 255)
        board.abandon(job, "ä" * 255, error="é" * 20_000)
    assert board.get(large.uuid).details == {"a": "x" * 850_000}
    board.trash(take(board), "anna")
    board.restore(large)


def test_an_outcome_that_is_too_large_is_left_behind_and_named(make_board: Callable[..., Any]) -> None:
    with jobboard.backend("moved", {"board": "memory", "keep_done": 600, "max_details": 2**21}) as source:
        source.post_many([{"name": "a"}] * 3)
        large, *others = [(source.claim_next("anna"), size) for size in (1_000_000, 1, 2)]
        for job, size in (large, *others):
            source.consume(job, "anna", result="x" * size)
        target = make_board("moved")
        moved = Mover(source, target).run()
        [left] = moved.left
        assert left.uuid == large[0].uuid
        assert re.match(r"the outcome takes 1000\d\d\d bytes,", left.why)
        assert {each.uuid for each in target.outcomes()} == {job.uuid for job, _ in others}
