"""On three servers: what a dead leader, a follower that lags and many processes do to a board."""

import json
import os
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import jobboard
from jobboard.exceptions import NotFound
from jobboard.job import Posting
from jobboard.states import Verb
from jobboard.testing import eventually
from jobboard.testing.history import judge
from jobboard.testing.recording import Recorder, from_files, left_on, to_file
from tests.backends.zookeeper.inside import connection_of
from tests.full import FULL
from tests.support.zookeeper_servers import ZooKeeperEnsemble

pytestmark = [pytest.mark.backends("zookeeper"), pytest.mark.timeout(240)]

WORKER = Path(__file__).parents[2] / "stress" / "worker.py"


@pytest.fixture
def private_ensemble() -> Iterator[ZooKeeperEnsemble]:
    with ZooKeeperEnsemble() as ensemble:
        yield ensemble


@pytest.mark.xdist_group("ensemble")
def test_what_one_server_acknowledged_another_shows(ensemble: ZooKeeperEnsemble) -> None:
    """Whichever server one is connected to, the leader among them, which passes a sync by."""
    name = uuid.uuid4().hex
    boards = [jobboard.fetch(name, f"zookeeper://127.0.0.1:{member.port}") for member in ensemble.members]
    try:
        for board in boards:
            board.connect()
        for number in range(600 if "JOBBOARD_TEST_FULL" in os.environ else 60):
            poster, taker, looker = (boards[(number + ahead) % 3] for ahead in range(3))
            job = poster.post("resize")
            assert taker.claim_next("anna") == job
            with pytest.raises(NotFound):
                looker.wait(0)
            assert [each.seen_state for each in looker.iterjobs(ensure_fresh=True)] == ["CLAIMED"]
            taker.consume(taker.get(job.uuid), "anna")
            assert job.state == "COMPLETE"
    finally:
        for board in boards:
            board.close()


@pytest.mark.xdist_group("ensemble")
def test_who_does_not_ask_for_fresh_reads_costs_the_ensemble_nothing(
    ensemble: ZooKeeperEnsemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many pages there are."""
    with jobboard.backend(uuid.uuid4().hex, ensemble.uri) as board:
        jobs = board.post_many([Posting("resize")] * 1100)
        assert board.characteristics.survives_failover
        connection, changes = connection_of(board), []
        multi = connection._multi

        def counting(ops: Any) -> Any:
            # Every ten seconds a board asks for the time, by a write.
            if not any(op.path.endswith("/clock") for op in ops):
                changes.append(ops)
            return multi(ops)

        monkeypatch.setattr(connection, "_multi", counting)
        for asked, expected in (({}, 0), ({"ensure_fresh": True}, 1), ({"names": ["nobody"]}, 0)):
            changes.clear()
            assert len(list(board.iterjobs(**asked))) == (0 if "names" in asked else len(jobs))
            assert len(changes) == expected


@pytest.mark.parametrize("limited", [False, *([True] if FULL else [])])
def test_the_leader_dies_while_eight_processes_drain_a_board(
    private_ensemble: ZooKeeperEnsemble, tmp_path: Path, limited: bool
) -> None:
    many = 600 if limited else 2000
    conf = {"board": private_ensemble.uri, "claim_ttl": 10, "retry_for": 60, "timeout": 30}
    with jobboard.backend("board", conf) as board:
        poster = Recorder(board, "poster", to_file(tmp_path / "poster.jsonl"))
        if limited:
            poster.set_limit("job", concurrency=6)
            poster.set_limit("job", concurrency=1, per="group")
        jobs = poster.post_many([Posting("job", group=f"{n % 12}") for n in range(many)])
        processes = []
        try:
            for number in range(8):
                given = {
                    "board": "board",
                    "conf": conf,
                    "process": f"worker{number}",
                    "file": str(tmp_path / f"worker{number}.jsonl"),
                    "who": f"worker {number % 4}",
                    "together": 1 if number < 4 else 5,
                    "pause": 0.01,
                }
                command = [sys.executable, str(WORKER), json.dumps(given)]
                processes.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
            eventually(lambda: board.job_count < many - 150, 60)
            private_ensemble.leader.kill()
            errors = [process.communicate(timeout=150)[1] for process in processes]
        finally:
            for process in processes:
                process.send_signal(signal.SIGKILL)
                process.communicate()
        failed = [error for process, error in zip(processes, errors, strict=True) if process.returncode]
        assert not failed, "\n".join(failed)
        assert board.job_count == 0
        entries = from_files(sorted(tmp_path.glob("*.jsonl")))
        assert judge(entries, left_on(board), limits=poster.limits) == []
        consumed = Counter(entry.uuid for entry in entries if entry.verb == Verb.CONSUME and entry.outcome == "ok")
        assert consumed == Counter(job.uuid for job in jobs)


def test_a_waiter_is_woken_after_its_server_has_died(private_ensemble: ZooKeeperEnsemble) -> None:
    from jobboard.testing.conformance.support import Background

    call: Callable[[], Any]
    with jobboard.backend("board", private_ensemble.uri + "?claim_ttl=4") as board:
        waiter = Background(lambda: board.claim_next("anna", timeout=60))
        client = connection_of(board).open()
        port = client._connection._socket.getpeername()[1]
        [mine] = [member for member in private_ensemble.members if member.port == port]
        mine.kill()
        eventually(lambda: board.connected, 60)
        rest = [member for member in private_ensemble.members if member is not mine]
        with jobboard.backend("board", f"zookeeper://127.0.0.1:{rest[0].port}") as other:
            job = other.post("resize")
        assert waiter.wait(60) == job
        call = board.claim_next
        assert call("anna") is None
