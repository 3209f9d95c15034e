"""Conductors in trouble: backends that go away, signals, and SIGKILL."""

import json
import logging
import os
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
from jobboard.board import JobBoard
from jobboard.conductor import Conductor, finisher
from jobboard.exceptions import ConnectionFailure, JobFailure, NotFound
from jobboard.states import LAPSED
from jobboard.testing import eventually
from jobboard.testing.conformance.support import HELD, until_free
from tests.conftest import Runner
from tests.test_conductor import MakeBoard

# Outages


class Outage:
    """Makes primitives of a board fail until it is over."""

    def __init__(self, board: Any, monkeypatch: pytest.MonkeyPatch, *names: str, after: bool = False) -> None:
        self.failed = Counter[str]()
        self.on = False
        for name in names:
            monkeypatch.setattr(board.engine.raw, name, self._broken(name, getattr(board.engine.raw, name), after))

    def _broken(self, name: str, primitive: Callable[..., Any], after: bool) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if not self.on:
                return primitive(*args, **kwargs)
            if after:
                primitive(*args, **kwargs)
            self.failed[name] += 1
            raise ConnectionFailure("the server has gone away", outcome="unknown" if after else "none")

        return call


@pytest.mark.parametrize("retry_for", [0, 0.2])
def test_it_survives_an_outage(
    make_board: MakeBoard, start: Runner, monkeypatch: pytest.MonkeyPatch, retry_for: float
) -> None:
    monkeypatch.setattr("jobboard.retry.OUTAGE_BASE", 0.01)
    board, other = make_board(retry_for=retry_for), make_board()
    outage = Outage(board, monkeypatch, "take", "finish")
    runs = Counter[str]()
    gate, begun = threading.Event(), threading.Event()

    def handler(job: jobboard.Job) -> None:
        runs[job.uuid] += 1
        begun.set()
        assert gate.wait(30)

    other.post("a")
    conductor = start(Conductor("one", board, handler, max_simultaneous_jobs=2))
    assert begun.wait(30)
    outage.on = True
    other.post("a")
    gate.set()
    eventually(lambda: outage.failed["finish"] >= 2 and outage.failed["take"] >= 2)
    assert conductor.tally.consumed == 0
    outage.on = False
    eventually(lambda: conductor.tally.consumed == 2)
    assert set(runs.values()) == {1}
    assert conductor.tally.lost == 0


def test_work_that_was_consumed_without_an_answer_is_not_done_again(
    make_board: MakeBoard, start: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobboard.retry.OUTAGE_BASE", 0.01)
    board, other = make_board(retry_for=0), make_board()
    outage = Outage(board, monkeypatch, "finish", after=True)
    outage.on = True
    runs = Counter[str]()
    job = other.post("a")
    conductor = start(Conductor("one", board, lambda job: runs.update([job.uuid])))
    eventually(lambda: outage.failed["finish"])
    outage.on = False
    eventually(lambda: conductor.tally.lost + conductor.tally.consumed == 1)
    assert job.state == "COMPLETE"
    assert runs == {job.uuid: 1}


def test_claims_do_not_pile_up_behind_results_that_can_not_be_handed_over(
    make_board: MakeBoard, start: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobboard.retry.OUTAGE_BASE", 0.01)
    board = make_board(retry_for=0)
    board.post_many([{"name": "a"}] * 50)
    outage = Outage(board, monkeypatch, "finish")
    outage.on = True
    conductor = start(Conductor("one", board, lambda job: None, max_simultaneous_jobs=4))
    eventually(lambda: conductor.tally.dispatched == 8)
    seen = outage.failed["finish"]
    eventually(lambda: outage.failed["finish"] >= seen + 3)
    assert conductor.tally.dispatched == board.stats().claimed == 8
    outage.on = False
    eventually(lambda: conductor.tally.consumed == 50)


def test_it_stops_in_an_outage(make_board: MakeBoard, start: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a board that goes on without it: what it could not hand over must not be kept any longer."""
    board = make_board(retry_for=0, claim_ttl=HELD)
    outage = Outage(board, monkeypatch, "take", "finish")
    gate, begun = threading.Event(), threading.Event()

    held: list[jobboard.Job] = []

    def handler(job: jobboard.Job) -> None:
        held.append(job)
        begun.set()
        assert gate.wait(30)

    board.post("a")
    conductor = start(Conductor("one", board, handler))
    assert begun.wait(30)
    outage.on = True
    gate.set()
    eventually(lambda: outage.failed["finish"])
    conductor.stop()
    assert conductor.wait(30)
    assert conductor.tally.lost == 1
    comes_back(board, *held)


def comes_back(board: Any, job: jobboard.Job) -> None:
    """Nobody works on it any more: it is free once its lease has lapsed, where it has one."""
    assert board.claims.held() == []
    assert job.claim is not None
    if job.claim.deadline is not None:
        until_free(board, job)


def test_a_job_that_can_neither_be_finished_nor_given_back(
    make_board: MakeBoard, start: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = make_board(claim_ttl=HELD)

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(board, "end_claims", refuse)
    monkeypatch.setattr(board, "abandon", refuse)
    board.post("a")
    done: list[jobboard.Job] = []
    # It would take the job again.
    conductor = start(Conductor("one", board, done.append), 1)
    assert conductor.wait(30)
    assert conductor.tally.lost == 1
    comes_back(board, *done)


class Refusal:
    """Has a board's backend refuse to end jobs of a name, until it is over."""

    def __init__(self, board: Any, monkeypatch: pytest.MonkeyPatch, name: str, verb: str = "consume") -> None:
        self.met = 0
        self.on = True
        finish = board.engine.raw.finish

        def refusing(acts: Any, *args: Any, **kwargs: Any) -> Any:
            if self.on and any(act.name == name and act.end.verb == verb for act in acts):
                self.met += 1
                raise JobFailure("it lacks the right to")
            return finish(acts, *args, **kwargs)

        monkeypatch.setattr(board.engine.raw, "finish", refusing)


def test_work_is_not_done_again_as_its_end_is_refused_for_a_while(
    make_board: MakeBoard, start: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A right is revoked, and granted again. What else is done meanwhile goes its way."""
    monkeypatch.setattr("jobboard.retry.OUTAGE_BASE", 0.01)
    board, runs = make_board(), Counter[str]()
    refusal = Refusal(board, monkeypatch, "refused")
    board.post_many([{"name": "refused"}, {"name": "other"}, {"name": "refused"}, {"name": "other"}])
    conductor = start(Conductor("one", board, lambda job: runs.update([job.uuid]), max_simultaneous_jobs=2))
    eventually(lambda: refusal.met >= 5)
    board.post("other")
    eventually(lambda: conductor.tally.consumed == 3)
    assert board.stats().claimed == 2
    refusal.on = False
    eventually(lambda: conductor.tally.consumed == 5)
    assert set(runs.values()) == {1}
    assert conductor.tally.lost == 0


@pytest.mark.parametrize("stopped", [True, False])
def test_an_end_that_stays_refused_is_given_up(
    make_board: MakeBoard, start: Runner, monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    """After a while, or when the conductor stops."""
    monkeypatch.setattr("jobboard.retry.OUTAGE_BASE", 0.01)
    monkeypatch.setattr(finisher, "REFUSED_FOR", 3600 if stopped else 0.1)
    board = make_board()
    refusal = Refusal(board, monkeypatch, "refused")
    job = board.post("refused")
    conductor = start(Conductor("one", board, lambda job: None))
    eventually(lambda: refusal.met >= 2)
    if stopped:
        conductor.stop()
        assert conductor.wait(30)
    eventually(lambda: conductor.tally.lost == 1)
    assert job.state == "SCHEDULED"


def test_a_refused_end_of_work_that_took_too_long_is_repeated(
    make_board: MakeBoard, start: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim of such work reads as lost to its handler, and stands all the same."""
    monkeypatch.setattr("jobboard.retry.OUTAGE_BASE", 0.01)
    board, gate = make_board(), threading.Event()
    refusal = Refusal(board, monkeypatch, "slow", "abandon")
    job = board.post("slow")
    conductor = start(Conductor("one", board, lambda job: gate.wait(30), job_timeout=0.05))
    try:
        eventually(lambda: refusal.met >= 5)
        refusal.on = False
        eventually(lambda: conductor.tally.abandoned == 1)
    finally:
        gate.set()
    assert conductor.tally.lost == 0
    assert "TimeoutError" in board.get(job.uuid).error


def test_an_end_that_is_refused_is_not_repeated_beyond_its_claim(
    make_board: MakeBoard, start: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobboard.retry.OUTAGE_BASE", 0.01)
    board, other, runs = make_board(), make_board(), Counter[str]()
    refusal = Refusal(board, monkeypatch, "refused")
    job = board.post("refused")
    conductor = start(Conductor("one", board, lambda job: runs.update([job.uuid])))
    eventually(lambda: refusal.met >= 2)
    other.release(other.get(job.uuid))
    refusal.on = False
    eventually(lambda: conductor.tally.consumed == 1)
    assert conductor.tally.lost == 1
    assert runs == {job.uuid: 2}


@pytest.mark.backends("sqlite")
def test_what_was_claimed_too_late_in_an_outage(
    make_board: MakeBoard, start: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = make_board(retry_for=0, claim_ttl=HELD)
    outage = Outage(board, monkeypatch, "finish")
    outage.on = True
    gate, claimed = threading.Event(), threading.Event()
    claim_many, jobs = board.claim_many, []

    def slow(*args: Any, **kwargs: Any) -> Any:
        jobs.extend(claim_many(*args, **kwargs))
        claimed.set()
        assert gate.wait(30)
        return jobs

    monkeypatch.setattr(board, "claim_many", slow)
    board.post("a")
    conductor = start(Conductor("one", board, lambda job: None, drain_timeout=0))
    assert claimed.wait(30)
    conductor.stop()
    assert conductor.wait(30)
    gate.set()
    eventually(lambda: outage.failed["finish"])
    eventually(lambda: not board.claims.held())
    comes_back(board, *jobs)


# Processes

WORK = """
import os, signal, sys, threading
import jobboard
from jobboard.conductor import Conductor

def handler(job):
    with open(sys.argv[3], "a") as out:
        out.write(f"{job.uuid} {os.getpid()}\\n")
    if job.name == "held":
        signal.pause() if threading.current_thread() is threading.main_thread() else threading.Event().wait()
    threading.Event().wait(0.02)

board = jobboard.fetch("board", {"board": sys.argv[1], "claim_ttl": 1})
Conductor(sys.argv[2], board, handler, max_simultaneous_jobs=2).run()
"""


@pytest.fixture
def process(board_conf: dict[str, Any], tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    made: list[subprocess.Popen[bytes]] = []

    def start(name: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", WORK, board_conf["board"], name, str(tmp_path / "runs")]
        made.append(subprocess.Popen(command))
        return made[-1]

    yield start
    for each in made:
        each.kill()
        each.wait()


def runs_of(tmp_path: Path) -> list[list[str]]:
    path = tmp_path / "runs"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains(make_board: MakeBoard, process: Any, tmp_path: Path, number: signal.Signals) -> None:
    board = make_board()
    board.post_many([{"name": "a"}] * 200)
    worker = process("one")
    eventually(lambda: len(runs_of(tmp_path)) > 5)
    worker.send_signal(number)
    worker.send_signal(number)
    assert worker.wait(30) == 0
    stats = board.stats()
    runs = [uuid for uuid, _ in runs_of(tmp_path)]
    assert stats.claimed == 0
    assert 0 < stats.on_board == 200 - len(runs)
    assert len(runs) == len(set(runs))


@pytest.mark.backends("sqlite")
def test_a_killed_worker_s_jobs_are_done_by_another(make_board: MakeBoard, process: Any, tmp_path: Path) -> None:
    board = make_board()
    held = board.post("held", priority="HIGH")
    victim = process("victim")
    eventually(lambda: held.state == "CLAIMED")
    board.post_many([{"name": "a"}] * 30)
    eventually(lambda: len(runs_of(tmp_path)) > 3)
    victim.kill()
    victim.wait()
    assert board.find_owner(held) == "victim"
    done: list[tuple[str, int]] = []
    other = Conductor("other", board, lambda job: done.append((job.uuid, job.attempts)))
    thread = threading.Thread(target=other.run)
    thread.start()
    eventually(lambda: board.job_count == 0)
    other.stop()
    thread.join(30)
    assert (held.uuid, 2) in done
    assert len(done) == len({uuid for uuid, _ in done})
    with pytest.raises(NotFound):
        board.get(held.uuid)


def test_signal_handlers_come_back(make_board: MakeBoard) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    board = make_board()
    board.post("a")
    inside: list[Any] = []
    Conductor("one", board, lambda job: inside.append(signal.getsignal(signal.SIGTERM))).run(1)
    assert inside[0] not in before
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_a_signal_stops_an_idle_conductor(make_board: MakeBoard) -> None:
    """Sent to this very process, while its main thread waits for a job."""
    board = make_board()
    conductor = Conductor("one", board, print)
    shooter = threading.Thread(
        target=lambda: (
            eventually(lambda: board.entities("conductor")),
            os.kill(os.getpid(), signal.SIGTERM),
        )
    )
    shooter.start()
    conductor.run()
    shooter.join(30)
    assert conductor.tally.dispatched == 0


# Logs


def test_a_log_that_takes_its_time_loses_no_result(make_board: MakeBoard) -> None:
    """The conductor must not think that all is done while it still tells of the last job."""

    def linger(record: logging.LogRecord) -> bool:
        conductor.stop()
        limit = time.monotonic() + 0.3
        while time.monotonic() < limit and any(each.name == "one-finisher" for each in threading.enumerate()):
            time.sleep(0.01)
        return True

    board = make_board()
    board.post("job")
    conductor = Conductor("one", board, {"job": lambda job: 1 / 0})
    log = logging.getLogger("jobboard.conductor.conductor")
    level = log.level
    log.addFilter(linger)
    log.setLevel(logging.INFO)
    try:
        conductor.run(max_dispatches=1)
    finally:
        log.removeFilter(linger)
        log.setLevel(level)
    assert conductor.tally == jobboard.conductor.Tally(dispatched=1, abandoned=1)


# Work that kills its worker

POISON = """
import asyncio, json, os, signal, sys
import jobboard, jobboard.aio
from jobboard.conductor import Conductor

def die(job):
    with open(sys.argv[3], "a") as out:
        out.write(f"{job.attempts}\\n")
    os.kill(os.getpid(), signal.SIGKILL)

async def die_on_the_loop(job):
    die(job)

conf = {**json.loads(sys.argv[1]), "claim_ttl": 1}
retry = jobboard.RetryPolicy(max_attempts=3)
if sys.argv[2] == "conductor":
    Conductor("worker", jobboard.fetch("board", conf), die, retry=retry).run(1)
elif sys.argv[2] == "asyncio":
    board = jobboard.aio.fetch("board", conf)
    asyncio.run(jobboard.aio.AsyncConductor("worker", board, die_on_the_loop, retry=retry).run(1))
else:
    with jobboard.backend("board", conf) as board:
        try:
            with board.working("worker", timeout=3) as job:
                die(job)
        except jobboard.NotFound:
            pass
"""


@pytest.mark.backends("sqlite", "redis", "zookeeper")
def test_work_that_kills_its_worker(make_board: MakeBoard, board_conf: dict[str, Any], tmp_path: Path) -> None:
    runs_until_trashed(make_board(), board_conf, "conductor", tmp_path / "ran")


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("kind", ["asyncio", "working"])
def test_other_work_that_kills_its_worker(
    make_board: MakeBoard, board_conf: dict[str, Any], tmp_path: Path, kind: str
) -> None:
    runs_until_trashed(make_board(), board_conf, kind, tmp_path / "ran")


def runs_until_trashed(board: JobBoard, board_conf: dict[str, Any], kind: str, ran: Path) -> None:
    """The work runs as often as it has attempts. Then its job lies in the trash, which shows each death."""
    job = board.post("poison")
    if kind == "working":
        # There the limit is the default.
        for _ in range(22):
            board.abandon(board.claim_next("anna"), "anna")
    before = board.get(job.uuid).attempts
    command = [sys.executable, "-c", POISON, json.dumps(board_conf), kind, str(ran)]
    ends = []
    for _ in range(4):
        ends.append(subprocess.run(command, timeout=60, check=False).returncode)
        until_free(board, job)
    assert ends == [-signal.SIGKILL] * 3 + [0]
    attempts = [before + number for number in (1, 2, 3, 4)]
    assert ran.read_text().split() == [f"{number}" for number in attempts[:3]]
    [trashed] = board.trashed()
    assert trashed == job
    assert [failure[1:] for failure in trashed.errors[:3]] == [("worker", number, LAPSED) for number in attempts[:3]]
    [last] = trashed.errors[3:]
    assert (last.who, last.attempt) == ("worker", attempts[3])
    assert f"its {attempts[2]} attempts are used up" in last.text
