"""Many processes on one board; some are killed or stopped on the way. What they wrote down is judged by history.py."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import jobboard
from jobboard.job import Posting
from jobboard.priorities import JobPriority
from jobboard.states import Verb
from jobboard.testing import eventually
from jobboard.testing.faults import Fault, FaultyProxy
from jobboard.testing.history import disorder, judge
from jobboard.testing.recording import Recorder, from_files, left_on, to_file
from tests.full import IN_FULL, SOME

# The memory board lives in one process alone.
pytestmark = [
    pytest.mark.backends("sqlite", "postgresql", "mariadb", "redis", "zookeeper", *IN_FULL),
    pytest.mark.timeout(300),
]

WORKER = Path(__file__).with_name("worker.py")
MANY = 5000 if "JOBBOARD_TEST_FULL" in os.environ else 400

PRIORITIES = list(JobPriority)


class Crew:
    """The processes of one test, and the files that they write."""

    def __init__(self, board: Any, conf: dict[str, Any], folder: Path) -> None:
        self.board, self.conf, self.folder = board, conf, folder
        self.processes: list[subprocess.Popen[str]] = []
        self.poster = Recorder(board, "poster", to_file(folder / "poster.jsonl"))

    def start(self, who: str, together: int = 1, pause: float = 0, **options: Any) -> subprocess.Popen[str]:
        name = f"worker{len(self.processes)}"
        given = {
            "board": self.board.name,
            "conf": {**self.conf, **options},
            "process": name,
            "file": str(self.folder / f"{name}.jsonl"),
            "who": who,
            "together": together,
            "pause": pause,
        }
        command = [sys.executable, "-X", "faulthandler", str(WORKER), json.dumps(given)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.processes.append(process)
        return process

    def join(self, seconds: float) -> list[str]:
        """Wait for the processes, and return the errors of those that were not killed."""
        errors = []
        for process in self.processes:
            try:
                out, error = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGABRT)
                out, error = process.communicate()
            if process.returncode not in (0, -signal.SIGKILL):
                errors.append(f"{process.returncode}: {out}{error}")
        return errors

    def entries(self) -> list[Any]:
        return from_files(sorted(self.folder.glob("*.jsonl")))

    def faults(self) -> list[str]:
        return judge(self.entries(), left_on(self.board))

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()


@pytest.fixture
def crew(make_board: Callable[..., Any], board_conf: dict[str, Any], tmp_path: Path) -> Iterator[Crew]:
    folder = tmp_path / "history"
    folder.mkdir()
    crew = Crew(make_board(), board_conf, folder)
    yield crew
    crew.end()


@pytest.mark.backends(*SOME, "sqlite")
def test_eight_processes_drain_a_board(crew: Crew) -> None:
    jobs = crew.poster.post_many([Posting(f"job {n % 7}", priority=PRIORITIES[n % 5]) for n in range(MANY)])
    for number in range(8):
        crew.start(f"worker {number % 4}", together=1 if number < 4 else 25)
    assert crew.join(150) == []
    assert crew.board.stats() == type(crew.board.stats())(0, 0, 0, 0)
    assert crew.faults() == []
    consumed = Counter(entry.uuid for entry in crew.entries() if entry.verb == Verb.CONSUME and entry.outcome == "ok")
    assert consumed == Counter(job.uuid for job in jobs)


@pytest.mark.backends(*SOME)
def test_a_killed_and_a_stopped_holder_harm_no_job(crew: Crew) -> None:
    """Of six processes with one name, one is killed and one is stopped beyond its lease, in the middle of a job."""
    ttl = 1.0
    crew.poster.post_many([Posting("job") for _ in range(300)])
    for number in range(6):
        crew.start("anna", together=1 + number % 2, pause=0.02, claim_ttl=ttl, keep_done=600)
    killed, stopped = crew.processes[0], crew.processes[1]
    eventually(lambda: crew.board.job_count < 270, 30)
    os.kill(killed.pid, signal.SIGKILL)
    os.kill(stopped.pid, signal.SIGSTOP)
    time.sleep(ttl + 1)  # the length of the outage, not a wait for anything
    os.kill(stopped.pid, signal.SIGCONT)
    assert crew.join(120) == []
    assert crew.board.job_count == 0
    assert crew.faults() == []
    entries = crew.entries()
    consumed = Counter(entry.uuid for entry in entries if entry.verb == Verb.CONSUME and entry.outcome == "ok")
    # What the killed one was about to consume may have been done without anybody knowing.
    unknown = {entry.uuid for entry in entries if entry.verb == Verb.CONSUME and entry.outcome == "unknown"}
    assert len(consumed) + len(unknown - set(consumed)) == 300
    assert set(consumed.values()) == {1}


class Trouble:
    """A crew whose connections all go through a proxy, to a server of its own."""

    def __init__(self, server: Any, proxy: FaultyProxy, folder: Path) -> None:
        self.server, self.proxy = server, proxy
        conf = {"board": proxy.uri_for(server.uri), "retry_for": 30, "claim_ttl": 2}
        board = jobboard.fetch("board", conf)
        board.connect()
        self.crew = Crew(board, conf, folder)

    def drain(self, jobs: int, *harms: Callable[[], object]) -> None:
        """Drain a board, and do one harm after each part of the jobs. The history must be sound in the end."""
        crew = self.crew
        crew.poster.post_many([Posting(f"job {n % 3}", priority=PRIORITIES[n % 5]) for n in range(jobs)])
        for number in range(4):
            crew.start(f"worker {number % 2}", together=1 + 4 * (number % 2), pause=0.01)
        # To connect is tried once, and begins with a server that is there.
        eventually(lambda: all((crew.folder / f"worker{number}.jsonl").exists() for number in range(4)), 60)
        for number, harm in enumerate(harms, 1):
            left = jobs - number * jobs // (len(harms) + 1)
            eventually(lambda left=left: crew.board.job_count <= left, 60)  # type: ignore[misc]
            harm()
        errors = crew.join(120)
        assert not errors, "\n".join(errors)
        assert crew.board.job_count == 0
        faults = set(crew.faults())
        if self.server.kind in ("postgresql", "mariadb"):
            # What a claim under way has locked is rightly passed over, and free again when the end of the server, or of
            # the connection, undoes that claim. Nobody writes down which jobs those were: it can't be judged here.
            faults -= set(disorder(crew.entries()))
        assert faults == set()
        entries = [entry for entry in crew.entries() if entry.verb == Verb.CONSUME]
        consumed = Counter(entry.uuid for entry in entries if entry.outcome == "ok")
        unknown = {entry.uuid for entry in entries if entry.outcome == "unknown"} - set(consumed)
        assert set(consumed.values()) == {1}
        assert len(consumed) + len(unknown) == jobs


SERVERS = [name for name in SOME if name != "sqlite"]


@pytest.fixture
def trouble(backend: str, private_server: Callable[..., Any], tmp_path: Path) -> Iterator[Trouble]:
    folder = tmp_path / "history"
    folder.mkdir()
    server = private_server(backend)
    with FaultyProxy("127.0.0.1", server.port) as proxy:
        trouble = Trouble(server, proxy, folder)
        yield trouble
        trouble.crew.end()
        trouble.crew.board.close()


@pytest.mark.backends(*SERVERS)
def test_a_server_that_ends_meanwhile_loses_no_job(trouble: Trouble) -> None:
    server = trouble.server

    def crash() -> None:
        server.kill()
        server.start()

    trouble.drain(
        400,
        server.restart,
        crash,
        *([lambda: server.call("SCRIPT", "FLUSH")] if server.kind == "redis" else []),
        lambda: os.kill(trouble.crew.processes[0].pid, signal.SIGKILL),
        crash,
    )


@pytest.mark.backends(*SERVERS)
def test_connections_that_break_meanwhile_lose_no_job(trouble: Trouble) -> None:
    server, proxy = trouble.server, trouble.proxy
    faults: list[Fault] = []

    def lose(what: Any) -> Callable[[], None]:
        def arm() -> None:
            matching = b"EVALSHA" if server.kind == "redis" else b""
            faults.extend(proxy.lose(what, nth=number, matching=matching) for number in range(1, 6))

        return arm

    def kill() -> None:
        server.call("CLIENT", "KILL", "TYPE", "normal")
        server.call("CLIENT", "KILL", "TYPE", "pubsub")

    killed = [kill] if server.kind == "redis" else []
    trouble.drain(400, proxy.cut, lose("reply"), lose("request"), *killed, lose("reply"), proxy.cut)
    assert len(faults) == 15
    # A fault waits for the n-th request from then on, which may be one more than the last jobs take.
    assert sum(fault.happened for fault in faults) > 10
