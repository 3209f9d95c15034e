"""What happens to a conductor while it runs: handlers that are added, and others on its board object."""

from typing import Any

import pytest

from jobboard.conductor import Conductor
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
