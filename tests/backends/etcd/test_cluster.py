"""Three servers: what a dead leader and a paused member do to a board."""

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import jobboard
from jobboard.job import Posting
from jobboard.states import Verb
from jobboard.testing import eventually
from jobboard.testing.conformance.support import Waiter
from jobboard.testing.history import judge
from jobboard.testing.recording import Recorder, from_files, left_on, to_file
from tests.backends.etcd.conftest import link_of
from tests.full import FULL
from tests.support.etcd_servers import EtcdCluster

pytestmark = [pytest.mark.backends("etcd"), pytest.mark.timeout(240)]

WORKER = Path(__file__).parents[2] / "stress" / "worker.py"


def test_the_leader_dies_and_a_member_sleeps_while_processes_drain_a_board(
    cluster: EtcdCluster, tmp_path: Path
) -> None:
    many, workers = (2000, 8) if FULL else (300, 4)
    conf = {"board": cluster.uri, "claim_ttl": 10, "retry_for": 60, "timeout": 2}
    with jobboard.backend("board", conf) as board:
        assert board.characteristics.survives_failover
        poster = Recorder(board, "poster", to_file(tmp_path / "poster.jsonl"))
        jobs = poster.post_many([Posting("job") for _ in range(many)])
        processes = []
        try:
            for number in range(workers):
                given = {
                    "board": "board",
                    "conf": conf,
                    "process": f"worker{number}",
                    "file": str(tmp_path / f"worker{number}.jsonl"),
                    "who": f"worker {number % 4}",
                    "together": 1 if number % 2 else 5,
                    "pause": 0.01,
                }
                command = [sys.executable, str(WORKER), json.dumps(given)]
                processes.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
            eventually(lambda: board.job_count < many - many // 10, 60)
            leader = cluster.leader
            leader.kill()
            eventually(lambda: board.job_count < many - many // 3, 60)
            leader.start()
            cluster.members[cluster.members.index(leader) - 1].pause()
            errors = [process.communicate(timeout=150)[1] for process in processes]
        finally:
            for process in processes:
                process.send_signal(signal.SIGKILL)
                process.communicate()
        assert [process.returncode for process in processes] == [0] * workers, errors
        assert board.job_count == 0
        entries = from_files(sorted(tmp_path.glob("*.jsonl")))
        assert judge(entries, left_on(board)) == []
        consumed = Counter(entry.uuid for entry in entries if entry.verb == Verb.CONSUME and entry.outcome == "ok")
        assert consumed == Counter(job.uuid for job in jobs)
        for member in cluster.members:
            member.resume()


def test_a_waiter_is_woken_after_its_server_has_died(cluster: EtcdCluster) -> None:
    with jobboard.backend("board", cluster.uri + "?claim_ttl=4&timeout=2") as board:
        waiter = Waiter(board, lambda: board.claim_next("anna", timeout=60))
        eventually(lambda: link_of(board)._streams)
        [stream] = link_of(board)._streams
        port = stream.getpeername()[1]
        [mine] = [member for member in cluster.members if member.port == port]
        mine.kill()
        rest = [member for member in cluster.members if member is not mine]
        with jobboard.backend("board", f"{rest[0].uri}?retry_for=60") as other:
            job = other.post("resize")
        assert waiter.wait(60) == job
