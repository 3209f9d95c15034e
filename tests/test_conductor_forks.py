"""Handlers and listeners that fork, and whose child would leave them."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.backends("sqlite")

PROGRAM = """
import asyncio, sys, types
import sqlalchemy as sa
import jobboard
from jobboard.aio import AsyncConductor, AsyncJobBoard
from jobboard.taskloop import LoopConductor, TaskLoop
from jobboard.testing import eventually
from tests.test_conductor_forks import HANDLERS, around

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
    with TaskLoop(sa.create_engine(uri + ".loop"), "loop") as ids:
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


def note(job: Any, what: str) -> None:
    with Path(job.details["notes"]).open("a") as file:
        file.write(f"{job.details['mode']}: {job.name} {what}\n")


@contextlib.contextmanager
def around(job: Any) -> Iterator[None]:
    parent = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != parent:
            note(job, "left by the child")


def in_child(job: Any) -> bool:
    """Fork. Return True in the child, and False in the parent once the child has ended."""
    note(job, "run")
    child = os.fork()
    if child:
        note(job, f"status {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}")
    return not child


def returns(job: Any) -> object:
    return "by the child" if in_child(job) else None


def raises(job: Any) -> None:
    if in_child(job):
        raise ValueError("only the child's")


def exits(job: Any) -> None:
    if in_child(job):
        sys.exit(7)


HANDLERS = {"returns": returns, "raises": raises, "exits": exits}


MODES = (
    "threads",
    "processes",
    "asyncio's threads",
    "coroutines",
    "working",
    "decorated",
    "asyncio's working",
    "task loop",
    "listeners",
)
ENDS = ("returns run", "returns status 0", "raises run", "raises status 1", "exits run", "exits status 7")


def test_a_child_that_would_leave_its_handler_ends_there(backend: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    notes = tmp_path / "notes"
    program = subprocess.Popen(
        [sys.executable, str(tmp_path / "program.py"), f"sqlite:///{tmp_path}/board.db", str(notes)],
        env={**os.environ, "PYTHONPATH": ".", "PYTHONUNBUFFERED": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    try:
        said, errors = program.communicate(timeout=120)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.wait()
    assert program.returncode == 0, errors
    # The child does not write again what the parent has printed before.
    assert said == "before\n0 left, 0 trashed\n"
    assert sorted(notes.read_text().splitlines()) == sorted(f"{mode}: {end}" for mode in MODES for end in ENDS)
    assert "ValueError: only the child's" in errors
