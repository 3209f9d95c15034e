"""Conductors whose slow names leave slots to others: ``handles(max_simultaneous=)``."""

import asyncio
import functools
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import jobboard
from jobboard.aio import AsyncConductor, AsyncJobBoard
from jobboard.conductor import Conductor
from jobboard.testing import eventually
from jobboard.testing.conformance.support import HELD
from tests.conftest import Runner
from tests.support import handlers
from tests.test_conductor import LATE, MakeBoard


class OnALoop(AsyncConductor):
    """A conductor for asyncio that a test starts as it does others."""

    def run(self, max_dispatches: int | None = None) -> None:  # type: ignore[override]
        asyncio.run(super().run(max_dispatches))


async def until_there(job: jobboard.Job) -> None:
    handlers.note(job, "begun")
    while not Path(job.details["notes"] + ".go").exists():
        await asyncio.sleep(0.01)


def conductor_of(board: Any, kind: str, slots: int) -> tuple[Any, Callable[..., object]]:
    """Return a conductor, and a handler that works until a file of the test is there."""
    if kind == "coroutines":
        return OnALoop("one", AsyncJobBoard(board), max_simultaneous_jobs=slots), until_there
    workers: Any = kind
    return Conductor("one", board, max_simultaneous_jobs=slots, workers=workers), handlers.until_there


@pytest.mark.backends("memory", "sqlite", "redis")
@pytest.mark.parametrize("kind", ["threads", "processes", "coroutines"])
def test_a_slow_name_leaves_slots_to_others(make_board: MakeBoard, start: Runner, tmp_path: Path, kind: str) -> None:
    """Its other jobs stay on the board meanwhile, for other conductors."""
    board, notes = make_board(), tmp_path / "notes"
    notes.touch()
    board.post_many([{"name": "slow", "priority": "HIGH", "details": {"notes": str(notes)}}] * 5)
    board.post_many([{"name": "fast"}] * 12)
    conductor, slow = conductor_of(board, kind, slots=4)
    conductor.handles("slow", max_simultaneous=2)(slow)
    conductor.handles("fast")(handlers.idle)
    running, most, lock = Counter[str](), Counter[str](), threading.Lock()

    def count(step: int, event: str, told: dict[str, Any]) -> None:
        with lock:
            running[told["job"].name] += step
            most.update({"slow": max(0, running["slow"] - most["slow"])})

    conductor.notifier.register("job_started", functools.partial(count, 1))
    conductor.notifier.register("job_finished", functools.partial(count, -1))
    start(conductor)
    eventually(lambda: conductor.tally.consumed == 12 and len(notes.read_text().splitlines()) == 2)
    assert (board.stats().claimed, board.stats().unclaimed) == (2, 3)
    (tmp_path / "notes.go").touch()
    eventually(lambda: conductor.tally.consumed == 17)
    eventually(lambda: running["slow"] == 0)
    assert most["slow"] == 2


@pytest.mark.backends("memory", "sqlite")
def test_room_is_seen_while_other_names_are_waited_for(
    make_board: MakeBoard, start: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = make_board(claim_ttl=HELD)
    asked: list[Any] = []
    claim_many, gate = board.claim_many, threading.Event()

    def telling(*args: Any, **kwargs: Any) -> Any:
        asked.append(kwargs["names"])
        return claim_many(*args, **kwargs)

    monkeypatch.setattr(board, "claim_many", telling)
    conductor = Conductor("one", board, {"fast": lambda job: None})
    conductor.handles("slow", max_simultaneous=1)(lambda job: gate.wait(30))
    board.post_many([{"name": "slow"}] * 2)
    start(conductor)
    eventually(lambda: asked and asked[-1] == ("fast",))
    assert board.stats().claimed == 1
    gate.set()
    eventually(lambda: conductor.tally.consumed == 2)


@pytest.mark.backends("memory")
def test_a_handler_that_hangs_goes_on_counting(make_board: MakeBoard, start: Runner) -> None:
    board = make_board()
    gate, begun = threading.Event(), Counter[str]()

    def hang(job: jobboard.Job) -> None:
        begun[job.uuid] += 1
        assert gate.wait(30)

    conductor = Conductor("one", board, {"fast": lambda job: None}, retry=LATE, max_simultaneous_jobs=3)
    conductor.handles("slow", timeout=0.05, max_simultaneous=1)(hang)
    first, second = board.post_many([{"name": "slow"}] * 2)
    start(conductor)
    eventually(lambda: conductor.tally.abandoned == 1)
    board.post_many([{"name": "fast"}] * 5)
    eventually(lambda: conductor.tally.consumed == 5)
    assert (begun[first.uuid], second.state) == (1, "UNCLAIMED")
    gate.set()
    eventually(lambda: second.state == "COMPLETE")


@pytest.mark.backends("memory")
def test_each_name_counts_by_itself(make_board: MakeBoard, start: Runner) -> None:
    board, gate, begun = make_board(), threading.Event(), Counter[str]()

    def work(job: jobboard.Job) -> None:
        begun[job.name] += 1
        assert gate.wait(30)

    conductor = Conductor("one", board)
    conductor.handles("a", "b", max_simultaneous=1)(work)
    board.post_many([{"name": name} for name in "aabb"])
    start(conductor)
    eventually(lambda: sum(begun.values()) == 2)
    assert begun == {"a": 1, "b": 1}
    gate.set()
    eventually(lambda: conductor.tally.consumed == 4)


@pytest.mark.backends("memory")
def test_a_limit_that_is_none(make_board: MakeBoard) -> None:
    conductor = Conductor("one", make_board())
    with pytest.raises(ValueError, match=r"^max_simultaneous=0: must be 1 or more"):
        conductor.handles("a", max_simultaneous=0)(print)
    with pytest.raises(TypeError, match="max_simultaneous must be an int, not str"):
        conductor.handles("a", max_simultaneous="2")(print)  # type: ignore[arg-type]
