"""Members of a cluster of ZooKeeper or etcd that die and sleep while processes work."""

import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobboard.job import Posting
from jobboard.states import Verb
from jobboard.testing import eventually
from jobboard.testing.conformance.support import Waiter
from tests.full import FULL
from tests.kv.conftest import driver_of, one_of
from tests.stress.test_drain import Crew

# All tests of a cluster run on one worker, which starts the cluster once. A test that kills a member starts it again.
pytestmark = [
    pytest.mark.backends("zookeeper", "etcd"),
    pytest.mark.timeout(240),
    pytest.mark.xdist_group("member-deaths"),
]


@pytest.fixture
def board_conf(cluster: Any) -> dict[str, Any]:
    return {"board": cluster.uri, "namespace": f"test{uuid.uuid4().hex}"}


def test_processes_drain_a_board_while_members_die_and_sleep(
    cluster: Any, board_conf: dict[str, Any], make_board: Callable[..., Any], tmp_path: Path
) -> None:
    many, workers = (2000, 8) if FULL else (300, 4)
    options = {"claim_ttl": 10, "retry_for": 60, "timeout": 30}
    board = make_board(**options)
    crew = Crew(board, {**board_conf, **options}, tmp_path)
    jobs = crew.poster.post_many([Posting("job") for _ in range(many)])
    try:
        for number in range(workers):
            crew.start(f"worker {number % 4}", together=1 + 4 * (number % 2), pause=0.01)
        eventually(lambda: board.job_count < many - many // 10, 60)
        leader = cluster.leader
        leader.kill()
        eventually(lambda: board.job_count < many - many // 3, 60)
        leader.start()
        sleeper = cluster.members[cluster.members.index(leader) - 1]
        sleeper.pause()
        errors = crew.join(150)
    finally:
        for member in cluster.members:
            member.resume()
        crew.end()
    assert not errors, "\n".join(errors)
    assert board.job_count == 0
    assert crew.faults() == []
    consumed = Counter(entry.uuid for entry in crew.entries() if entry.verb == Verb.CONSUME and entry.outcome == "ok")
    assert consumed == Counter(job.uuid for job in jobs)


def peer_of(board: Any) -> int:
    """Return the port of the member that wakes a board's waiters."""
    driver: Any = driver_of(board)
    if hasattr(driver, "connection"):
        return int(driver.connection.open()._connection._socket.getpeername()[1])
    [stream] = eventually(lambda: list(driver.link.streams), 20)
    return int(stream.getpeername()[1])


def test_a_waiter_is_woken_after_its_member_has_died(cluster: Any, make_board: Callable[..., Any]) -> None:
    board = make_board(claim_ttl=10, timeout=2, retry_for=60)
    waiter = Waiter(board, lambda: board.claim_next("anna", timeout=120))
    port = peer_of(board)
    [dead] = [member for member in cluster.members if member.port == port]
    dead.kill()
    try:
        rest = next(member for member in cluster.members if member is not dead)
        other = make_board(board=one_of(cluster, rest), retry_for=60, timeout=30)
        job = other.post("resize")
        assert waiter.wait(60) == job
    finally:
        dead.start()
