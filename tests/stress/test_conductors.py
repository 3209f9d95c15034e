"""Conductors under load, on real servers: one is killed, another told to end, and servers are restarted."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import jobboard
from jobboard import Conductor
from jobboard.job import Posting
from jobboard.states import Verb
from jobboard.testing import eventually
from jobboard.testing.history import HistoryEntry, judge
from jobboard.testing.recording import Recorder, from_files, left_on, to_file
from tests.full import IN_FULL, SOME

CONDUCTOR = Path(__file__).with_name("conductor.py")
TTL = 1.0
DRAIN = 5.0

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(board_conf: dict[str, Any], tmp_path: Path) -> Iterator[Start]:
    made: list[subprocess.Popen[bytes]] = []

    def start_one(who: str, ttl: float = TTL) -> subprocess.Popen[bytes]:
        given = {
            "board": "board",
            "conf": {**board_conf, "claim_ttl": ttl},
            "process": who,
            "file": str(tmp_path / f"{who}.jsonl"),
            "who": who,
            "drain_timeout": DRAIN,
        }
        made.append(subprocess.Popen([sys.executable, str(CONDUCTOR), json.dumps(given)]))
        return made[-1]

    yield start_one
    for process in made:
        process.kill()
        process.wait()


def shown(board: Any) -> set[str]:
    return {entity.name for entity in board.entities("conductor")}


def claims_in(folder: Path) -> list[HistoryEntry]:
    entries = from_files(folder.glob("*.jsonl"))
    return [entry for entry in entries if entry.verb == Verb.CLAIM and entry.outcome == "ok"]


@pytest.mark.backends("sqlite", "postgresql", "mariadb", "redis", "zookeeper", *IN_FULL)
def test_a_killed_conductor_is_soon_no_entity(make_board: Callable[..., Any], start: Start) -> None:
    board = make_board()
    process = start("killed")
    eventually(lambda: shown(board) == {"killed"}, 60)
    process.kill()
    eventually(lambda: shown(board) == set(), 30)


@pytest.mark.backends(*SOME)
def test_of_four_conductors_one_is_killed_and_one_ends(
    make_board: Callable[..., Any], start: Start, tmp_path: Path
) -> None:
    board = make_board()
    poster = Recorder(board, "poster", to_file(tmp_path / "poster.jsonl"))
    names = {"killed", "told", "third", "fourth"}
    # A lease that no busy machine and no slow disk outlasts: here nobody but the killed one may lose a claim.
    killed, told, *others = [start(name, ttl=10.0) for name in ("killed", "told", "third", "fourth")]

    # Else those that are there first might leave nothing to the last one.
    eventually(lambda: shown(board) == names, 60)
    jobs = poster.post_many([Posting("job") for _ in range(500)])
    eventually(lambda: {entry.process for entry in claims_in(tmp_path)} == names and board.job_count < 450, 60)
    killed.kill()
    eventually(lambda: board.job_count < 300, 60)
    told.send_signal(signal.SIGTERM)
    assert told.wait(60) == 0
    assert "told" not in shown(board)
    eventually(lambda: board.job_count == 0, 60)
    for process in others:
        process.send_signal(signal.SIGTERM)
    assert [process.wait(60) for process in others] == [0, 0]
    entries = from_files(sorted(tmp_path.glob("*.jsonl")))
    assert judge(entries, left_on(board)) == []
    claims = claims_in(tmp_path)
    held = {entry.uuid for entry in claims if entry.process == "killed"}
    again = {uuid for uuid, count in Counter(entry.uuid for entry in claims).items() if count > 1}
    assert again <= held, "only what the killed one held was done again"
    consumed = {entry.uuid for entry in entries if entry.verb == Verb.CONSUME and entry.outcome in ("ok", "unknown")}
    assert consumed == {job.uuid for job in jobs}


@pytest.mark.backends("postgresql", "mariadb", "redis", "zookeeper", *IN_FULL)
def test_a_conductor_goes_on_after_a_restart_of_its_server(backend: str, private_server: Callable[..., Any]) -> None:
    """Jobs at work are handed over, and new jobs are worked on, long before a lease ends."""
    server = private_server(backend)
    conf = {"board": server.uri, "claim_ttl": 60}
    begun, gate = threading.Event(), threading.Event()

    def handler(job: jobboard.Job) -> None:
        begun.set()
        assert job.name != "held" or gate.wait(60)

    # No call outlasts the outage: the conductor must.
    with jobboard.backend("board", {**conf, "retry_for": 0.2}) as board, jobboard.backend("board", conf) as other:
        conductor = Conductor("one", board, handler, max_simultaneous_jobs=3)
        thread = threading.Thread(target=conductor.run)
        thread.start()
        try:
            other.post("held")
            assert begun.wait(30)
            server.kill()
            gate.set()
            time.sleep(1)  # the length of the outage, not a wait for anything
            server.start()
            other.post("next")
            eventually(lambda: conductor.tally.consumed == 2, 25)
            assert conductor.tally.dispatched == 2
        finally:
            gate.set()
            conductor.stop()
            thread.join(30)
        assert other.job_count == 0
