"""Signals to conductors, conductors that are killed, and handlers that fork or kill their process."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobboard.conductor import Conductor
from jobboard.states import LAPSED
from jobboard.testing import eventually
from jobboard.testing.conformance.support import until_free
from tests.conftest import Runner
from tests.support import handlers
from tests.support.conductors import LATE, WAIT, MakeBoard, has_ended

Notes = Callable[[], list[str]]


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """``program(text, *arguments)`` starts a program in a process group of its own. It is killed with the test."""
    made: list[subprocess.Popen[str]] = []

    def start(text: str, *arguments: object, **options: Any) -> subprocess.Popen[str]:
        path = tmp_path / f"program{len(made)}.py"
        path.write_text(text)
        made.append(
            subprocess.Popen(
                [sys.executable, str(path), *map(str, arguments)],
                env={**os.environ, "PYTHONPATH": ".", "PYTHONUNBUFFERED": ""},
                start_new_session=True,
                text=True,
                **options,
            )
        )
        return made[-1]

    yield start
    for each in made:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(each.pid, signal.SIGKILL)
        each.communicate()


# Signals

WORK = """
import signal, sys, threading
import jobboard

# The tests may run where the signal is ignored, as under nohup.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

def handler(job):
    with open(sys.argv[3], "a") as out:
        out.write(f"{job.uuid}\\n")
    threading.Event().wait(None if job.name == "held" else 0.02)

board = jobboard.fetch("board", {"board": sys.argv[1], "claim_ttl": sys.argv[2]})
jobboard.Conductor("one", board, handler, max_simultaneous_jobs=2).run()
"""


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_drains(
    make_board: MakeBoard,
    board_conf: dict[str, Any],
    program: Any,
    notes: Notes,
    tmp_path: Path,
    number: signal.Signals,
) -> None:
    board = make_board()
    board.post_many([{"name": "a"}] * 200)
    worker = program(WORK, board_conf["board"], 30, tmp_path / "notes")
    eventually(lambda: len(notes()) > 5)
    worker.send_signal(number)
    worker.send_signal(number)
    assert worker.wait(WAIT) == 0
    stats, runs = board.stats(), notes()
    assert stats.claimed == 0
    assert 0 < stats.on_board == 200 - len(runs)
    assert len(runs) == len(set(runs))


@pytest.mark.backends("memory")
def test_signal_stops_an_idle_conductor_and_signal_handlers_come_back(make_board: MakeBoard) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    board = make_board()
    board.post("a")
    inside: list[Any] = []
    conductor = Conductor("one", board, lambda job: inside.append(signal.getsignal(signal.SIGTERM)))

    def shoot() -> None:
        eventually(lambda: conductor.tally.consumed)
        os.kill(os.getpid(), signal.SIGTERM)

    shooter = threading.Thread(target=shoot)
    shooter.start()
    conductor.run()
    shooter.join(WAIT)
    assert len(inside) == 1
    assert inside[0] not in before
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


@pytest.mark.backends("memory")
def test_signal_to_the_process_of_a_handler_does_not_end_its_work(
    make_board: MakeBoard, start: Runner, notes: Notes, tmp_path: Path
) -> None:
    """A supervisor may send signals to all the processes of a service."""
    board = make_board()
    board.post("a", details={"notes": str(tmp_path / "notes")})
    conductor = start(Conductor("one", board, handlers.until_there, workers="processes", retry=LATE))
    [pid] = eventually(notes)
    os.kill(int(pid), signal.SIGTERM)
    os.kill(int(pid), signal.SIGINT)
    (tmp_path / "notes.go").touch()
    eventually(lambda: conductor.tally.consumed + conductor.tally.abandoned == 1)
    assert conductor.tally.consumed == 1


STARTING = """
import os, pathlib, sys
import jobboard
from jobboard.testing import eventually
from tests.support import handlers

if __name__ == "__mp_main__":
    # In the process of a handler, before any code of the conductor's.
    with open(sys.argv[2], "a") as notes:
        notes.write(f"{os.getpid()}\\n")
    eventually(pathlib.Path(f"{sys.argv[2]}.{os.getpid()}").exists)

if __name__ == "__main__":
    found = {"crash": handlers.crash, "idle": handlers.idle}
    board = jobboard.fetch("board", {"board": sys.argv[1]})
    jobboard.Conductor("one", board, found, workers="processes", max_simultaneous_jobs=1).run()
"""


@pytest.mark.rule("Signals to the whole process group fail no job whose process is starting.")
@pytest.mark.backends("sqlite")
def test_signals_to_the_whole_group_harm_no_process_that_starts(
    make_board: MakeBoard, board_conf: dict[str, Any], program: Any, notes: Notes, tmp_path: Path
) -> None:
    """The second process starts when the signals come. It takes the place of a process that has died."""
    board = make_board()
    jobs = [board.post(name, max_attempts=1) for name in ("crash", "idle")]
    worker = program(STARTING, board_conf["board"], tmp_path / "notes")
    for number in range(2):
        pid = eventually(lambda number=number: notes()[number:])[0]
        if number:
            os.killpg(worker.pid, signal.SIGTERM)
            os.killpg(worker.pid, signal.SIGINT)
        (tmp_path / f"notes.{pid}").touch()
    assert worker.wait(2 * WAIT) == 0
    assert [job.state for job in jobs] == ["TRASHED", "COMPLETE"]


UNTOLD = """
import signal, sys
import jobboard
from tests.support import handlers

if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    found = {"crash": handlers.crash, "idle": handlers.idle}
    board = jobboard.fetch("board", {"board": sys.argv[1]})
    jobboard.Conductor("one", board, found, workers="processes", max_simultaneous_jobs=1).run(3)
"""


@pytest.mark.backends("sqlite")
def test_process_is_replaced_though_nobody_is_told_of_its_death(
    make_board: MakeBoard, board_conf: dict[str, Any], program: Any
) -> None:
    """The system reaps the children of a program that ignores SIGCHLD, as its parent may have had it do."""
    board = make_board()
    jobs = [board.post(name, max_attempts=1) for name in ("crash", "idle", "idle")]
    assert program(UNTOLD, board_conf["board"]).wait(2 * WAIT) == 0
    assert [job.state for job in jobs] == ["TRASHED", "COMPLETE", "COMPLETE"]
    assert "ignores or handles SIGCHLD" in (board.get(jobs[0].uuid).error or "")


# SIGKILL


KILLED = """
import os, signal, sys, threading
import jobboard
from jobboard.testing import eventually
from tests.support import handlers

if __name__ == "__main__":
    notes = sys.argv[1]
    with jobboard.backend("board", "memory") as board:
        board.post("hang", details={"notes": notes})
        conductor = jobboard.Conductor("one", board, handlers.hang, workers="processes")
        threading.Thread(target=conductor.run).start()
        eventually(lambda: os.path.exists(notes))
        if sys.argv[2:]:
            forked = os.fork()
            if forked:
                open(sys.argv[2], "w").write(f"{forked}\\n")
            else:
                signal.pause()
        conductor.wait()
"""


@pytest.mark.parametrize("forks", [False, True])
def test_processes_end_with_a_conductor_that_is_killed(program: Any, notes: Notes, tmp_path: Path, forks: bool) -> None:
    """Even if a fork of the conductor's program holds its ends of all pipes."""
    forked = tmp_path / "forked"
    worker = program(KILLED, tmp_path / "notes", *([forked] if forks else []))
    pids = eventually(notes)[0].split()
    if forks:
        eventually(lambda: forked.exists() and forked.read_text().endswith("\n"))
    worker.kill()
    worker.wait()
    eventually(lambda: all(has_ended(int(pid)) for pid in pids))


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
retry = jobboard.RetryPolicy(max_attempts=2)
if sys.argv[2] == "conductor":
    Conductor("worker", jobboard.fetch("board", conf), die, retry=retry).run(1)
elif sys.argv[2] == "asyncio":
    board = jobboard.aio.fetch("board", conf)
    asyncio.run(jobboard.aio.AsyncConductor("worker", board, die_on_the_loop, retry=retry).run(1))
else:
    with jobboard.backend("board", conf) as board:
        try:
            with board.working("worker", timeout=0) as job:
                die(job)
        except jobboard.NotFound:
            pass
"""


@pytest.mark.rule("A job without an attempt left goes to the trash, and its work does not run.")
@pytest.mark.backends("sqlite", "zookeeper")
@pytest.mark.parametrize("kind", ["conductor", "asyncio", "working"])
def test_work_that_kills_its_worker_uses_up_its_attempts(
    make_board: MakeBoard, board_conf: dict[str, Any], program: Any, tmp_path: Path, kind: str
) -> None:
    """It runs as often as it has attempts. Then its job lies in the trash, which shows each death."""
    board, ran = make_board(), tmp_path / "notes"
    job = board.post("poison")
    # In a block the limit is the default.
    for _ in range(23 if kind == "working" else 0):
        board.abandon(board.claim_next("anna"), "anna")
    before = board.get(job.uuid).attempts
    ends = []
    for _ in range(3):
        ends.append(program(POISON, json.dumps(board_conf), kind, ran).wait(60))
        until_free(board, job)
    assert ends == [-signal.SIGKILL] * 2 + [0]
    attempts = [before + number for number in (1, 2, 3)]
    assert ran.read_text().split() == [f"{number}" for number in attempts[:2]]
    [trashed] = board.trashed()
    assert trashed == job
    assert [failure[1:4] for failure in trashed.errors[:2]] == [("worker", number, LAPSED) for number in attempts[:2]]
    [last] = trashed.errors[2:]
    assert (last.who, last.attempt) == ("worker", attempts[2])
    assert f"its {attempts[1]} attempts are used up" in last.text


# Handlers and listeners that fork

FORKS = """
import asyncio, sys, types
import sqlalchemy as sa
import jobboard
from jobboard.aio import AsyncConductor, AsyncJobBoard
from jobboard.taskloop import LoopConductor, TaskLoop
from jobboard.testing import eventually
from tests.support.forking import HANDLERS, around

def conduct(board, workers):
    conductor = jobboard.Conductor("one", board, HANDLERS, workers=workers, max_simultaneous_jobs=2)
    conductor.wraps(around)
    conductor.run(len(HANDLERS))

def conduct_async(board, coroutines):
    def coroutine(handler):
        async def work(job):
            return handler(job)
        return work

    handlers = {name: coroutine(each) if coroutines else each for name, each in HANDLERS.items()}
    conductor = AsyncConductor("one", AsyncJobBoard(board), handlers, max_simultaneous_jobs=2)
    conductor.wraps(around)
    asyncio.run(conductor.run(len(HANDLERS)))

def work_in_block(board):
    for name in HANDLERS:
        with board.working("one", names=[name]) as job:
            HANDLERS[name](job)

def work_by_decorator(board):
    for name in HANDLERS:
        board.working("one", names=[name])(HANDLERS[name])()

async def work_async(board):
    for name in HANDLERS:
        async with AsyncJobBoard(board).working("one", names=[name]) as job:
            HANDLERS[name](job)

def loop(board):
    work = dict(enumerate(board.claim_many("one", len(HANDLERS))))
    with TaskLoop(sa.create_engine(uri + ".loop", poolclass=sa.NullPool), "loop") as ids:
        ids.create()
        ids.add(list(work))
        conductor = LoopConductor("one", ids, lambda id_: HANDLERS[work[id_].name](work[id_]))
        conductor.run(max_batches=1)
        assert conductor.tally.done == len(HANDLERS)
    board.consume_many(list(work.values()), "one")

def listen(board):
    def listener(event, told):
        HANDLERS[told["job"].name](told["job"])
        heard.append(told["job"])

    heard = []
    conductor = jobboard.Conductor("one", board, lambda job: None)
    conductor.notifier.register("job_started", listener)
    conductor.run(len(HANDLERS))
    eventually(lambda: len(heard) == len(HANDLERS))

MODES = {
    "threads": lambda board: conduct(board, "threads"),
    "processes": lambda board: conduct(board, "processes"),
    "asyncio's threads": lambda board: conduct_async(board, False),
    "coroutines": lambda board: conduct_async(board, True),
    "working": work_in_block,
    "decorated": work_by_decorator,
    "asyncio's working": lambda board: asyncio.run(work_async(board)),
    "task loop": loop,
    "listeners": listen,
}

if __name__ == "__main__":
    uri, notes = sys.argv[1:]
    # Into a pipe, and so still to be written when a handler forks.
    print("before")
    with jobboard.backend("board", {"board": uri}) as board:
        for mode, work in MODES.items():
            details = {"notes": notes, "mode": mode}
            board.post_many([{"name": name, "details": details, "max_attempts": 1} for name in HANDLERS])
            work(board)
        print(f"{board.job_count} left, {len(list(board.trashed()))} trashed")
"""

MODES = (
    *("threads", "processes", "asyncio's threads", "coroutines", "working", "decorated", "asyncio's working"),
    *("task loop", "listeners"),
)
ENDS = ("returns run", "returns status 0", "raises run", "raises status 1", "exits run", "exits status 7")


@pytest.mark.rule("A child that a handler, a listener or a block forks ends where it would leave them.")
@pytest.mark.backends("sqlite")
def test_child_that_would_leave_its_handler_ends_there(
    board_conf: dict[str, Any], program: Any, notes: Notes, tmp_path: Path
) -> None:
    forking = program(FORKS, board_conf["board"], tmp_path / "notes", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    said, errors = forking.communicate(timeout=100)
    assert forking.returncode == 0, errors
    # The child does not write again what the parent has printed before.
    assert said == "before\n0 left, 0 trashed\n"
    assert sorted(notes()) == sorted(f"{mode}: {end}" for mode in MODES for end in ENDS)
    assert "ValueError: only the child's" in errors


WRAPPED = """
import asyncio, sys
import jobboard
from jobboard.aio import AsyncConductor, AsyncJobBoard
from tests.support.forking import forking, handled

async def handled_on_the_loop(job):
    handled(job)

if __name__ == "__main__":
    uri, notes = sys.argv[1:]
    with jobboard.backend("board", {"board": uri}) as board:
        for mode in ("threads", "processes", "coroutines"):
            board.post_many([{"name": name, "details": {"notes": notes, "mode": mode}} for name in ("entered", "left")])
            if mode == "coroutines":
                conductor = AsyncConductor("one", AsyncJobBoard(board), handled_on_the_loop)
                conductor.wraps(forking)
                asyncio.run(conductor.run(2))
            else:
                conductor = jobboard.Conductor("one", board, handled, workers=mode)
                conductor.wraps(forking)
                conductor.run(2)
            assert conductor.tally.consumed == 2, conductor.tally
"""


@pytest.mark.backends("sqlite")
def test_child_that_a_wrapper_forks_ends_before_the_handler_and_behind_the_wrappers(
    board_conf: dict[str, Any], program: Any, notes: Notes, tmp_path: Path
) -> None:
    """It handles no job, and reports the end of none."""
    assert program(WRAPPED, board_conf["board"], tmp_path / "notes").wait(60) == 0
    modes, names, lines = ("threads", "processes", "coroutines"), ("entered", "left"), ("run", "status 0", "handled")
    assert sorted(notes()) == sorted(f"{mode}: {name} {line}" for mode in modes for name in names for line in lines)
