"""Which names there are among the jobs that can be claimed: what a take beside paused names asks for."""

from collections.abc import Callable

import pytest

from jobboard.board import JobBoard
from jobboard.job import Posting

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")


@pytest.mark.parametrize("count", [0, 1, 5, 1200])
def test_a_take_beside_a_paused_name_finds_every_other_one(make_board: Callable[..., JobBoard], count: int) -> None:
    """However many names there are, with groups and without."""
    board = make_board()
    board.pause(["paused"])
    board.post_many([Posting("paused")] * 3)
    names = sorted(f"n{number}é" for number in range(count))
    board.post_many([Posting(name, group="g" if number % 2 else None) for number, name in enumerate(names)])
    taken: list[str] = []
    while jobs := board.claim_many("anna", 100):
        taken += [job.name for job in jobs]
    assert taken == names
