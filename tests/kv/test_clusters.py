"""Three servers of ZooKeeper or etcd: the part of the conformance suite that depends on their agreement."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from jobboard.backends.zookeeper import connection
from jobboard.exceptions import NotFound
from jobboard.job import Posting
from jobboard.states import CLAIMED, COMPLETE
from jobboard.testing import conformance
from jobboard.testing.conformance import *  # noqa: F403 - this is how the suite is used
from tests.full import FULL
from tests.kv.conftest import one_of

# All tests of a cluster run on one worker, which starts the cluster once.
pytestmark = [
    pytest.mark.backends("zookeeper", "etcd"),
    pytest.mark.timeout(240),
    pytest.mark.xdist_group("clusters"),
]

DEPENDENT = {"TestClaiming", "TestWaiting"}

if not FULL:
    for name in set(conformance.__all__) - DEPENDENT:
        if name.startswith("Test"):
            del globals()[name]


@pytest.fixture
def board_conf(cluster: Any) -> dict[str, Any]:
    return {"board": cluster.uri, "namespace": f"test{uuid.uuid4().hex}"}


@pytest.mark.rule("Order holds: a look reads anew what it remembers, and a claim compares the job.")
def test_members_show_a_change_once_it_is_acknowledged(cluster: Any, make_board: Callable[..., Any]) -> None:
    boards = [make_board(board=one_of(cluster, member)) for member in cluster.members]
    assert all(board.characteristics.survives_failover for board in boards)
    for number in range(600 if FULL else 60):
        poster, taker, looker = (boards[(number + ahead) % 3] for ahead in range(3))
        job = poster.post("resize")
        assert taker.claim_next("anna") == job
        with pytest.raises(NotFound):
            looker.wait(0)
        assert [each.seen_state for each in looker.iterjobs(ensure_fresh=True)] == [CLAIMED]
        taker.consume(taker.get(job.uuid), "anna")
        assert job.state == COMPLETE


@pytest.mark.rule("A board that asks for no fresh reads costs the ensemble no writes.")
@pytest.mark.backends("zookeeper")
def test_only_fresh_pages_cost_the_ensemble_a_write(
    make_board: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    board = make_board()
    jobs = board.post_many([Posting("resize")] * 1100)
    changes, multi = list[Any](), connection.multi

    def counting(client: Any, ops: Any) -> Any:
        # Every ten seconds a board asks for the time, by a write.
        if not any(op.path.endswith("/clock") for op in ops):
            changes.append(ops)
        return multi(client, ops)

    monkeypatch.setattr(connection, "multi", counting)
    for fresh in (False, True):
        changes.clear()
        assert len(list(board.iterjobs(ensure_fresh=fresh))) == len(jobs)
        assert len(changes) == int(fresh)
