"""What happens to a conductor while it runs: handlers that are added, and others on its board object."""

import threading
from typing import Any

import pytest

import jobboard
from jobboard.conductor import Conductor
from jobboard.conductor.handlers import Handlers, Handling, Takes
from jobboard.testing import eventually
from jobboard.testing.conformance.support import HELD
from tests.conftest import Runner
from tests.test_conductor import MakeBoard


def test_a_handler_that_is_added_while_it_waits(
    make_board: MakeBoard, start: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = make_board(claim_ttl=HELD)
    asked: list[Any] = []
    claim_many = board.claim_many

    def telling(*args: Any, **kwargs: Any) -> Any:
        asked.append(kwargs["names"])
        return claim_many(*args, **kwargs)

    monkeypatch.setattr(board, "claim_many", telling)
    conductor = start(Conductor("one", board, {"a": lambda job: None}))
    eventually(lambda: asked)
    conductor.handles("b")(lambda job: None)
    board.post("b")
    eventually(lambda: conductor.tally.consumed == 1)
    assert [sorted(names) for names in asked[:2]] == [["a"], ["a", "b"]]
    eventually(lambda: board.entities("conductor")[0].metadata["names"] == ["a", "b"])


def test_names_that_are_read_while_a_handler_is_added() -> None:
    """The claimer's thread goes through the names, and a conductor would end with an error of that."""
    handlers = Handlers()
    handlers.add("a", Handling(print, Takes.of(print)))
    names = iter(handlers.named)
    assert next(names) == "a"
    handlers.add("b", Handling(print, Takes.of(print)))
    assert list(names) == []
    assert list(handlers.named) == ["a", "b"]


def test_the_last_of_those_that_run_on_a_board_closes_it(make_board: MakeBoard, start: Runner) -> None:
    board = make_board()
    job = board.post("b")
    board.close()
    gate, begun = threading.Event(), threading.Event()

    def handler(job: jobboard.Job) -> None:
        begun.set()
        assert gate.wait(30)

    first = start(Conductor("first", board, {"a": handler}))
    eventually(lambda: not board.closed)
    last = start(Conductor("last", board, {"b": handler}))
    assert begun.wait(30)
    first.stop()
    assert first.wait(30)
    assert not board.closed
    gate.set()
    last.stop()
    assert last.wait(30)
    assert last.tally.consumed == 1
    assert board.closed
    board.connect()
    assert job.state == "COMPLETE"


def test_a_board_of_the_caller_s_own_stays_open(make_board: MakeBoard, start: Runner) -> None:
    board = make_board()
    board.post("a")
    Conductor("one", board, {"a": print}).run(1)
    assert not board.closed
