"""What a move carries beside jobs, from and to each backend."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jobboard.backends import fetch, memory
from jobboard.board import JobBoard
from jobboard.moving import Mover, survey
from jobboard.testing.conformance.scheduling import put_back

MakeBoard = Callable[..., Any]


@pytest.fixture
def elsewhere() -> Iterator[JobBoard]:
    """A board in memory."""
    board = fetch("elsewhere", "memory")
    board.connect()
    yield board
    board.close()
    memory.forget("elsewhere")


def test_schedules(board: JobBoard, elsewhere: JobBoard) -> None:
    """There and back; what is due at one board is not due at the other."""
    board.schedule("nightly", "0 3 * * *", "report", details={"a": ["ä", None]}, tz="Europe/Berlin", context={"b": "c"})
    board.schedule("ping", name="ping", every=3600)
    due = put_back(board, "ping", 1)
    before = board.schedules()
    for source, target in ((board, elsewhere), (elsewhere, board)):
        assert survey(source, target.engine.wire).schedules == 2
        assert Mover(source, target).run().schedules == 2
        assert (source.schedules(), target.schedules()) == ([], before)
        assert Mover(source, target).run().schedules == 0
        assert source._post_due() is None
        assert list(source.iterjobs()) == []
    board._post_due()
    [job] = board.iterjobs()
    assert job.schedule == ("ping", due)
