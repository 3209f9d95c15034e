"""The order in which the engine serves jobs while six processes claim: by limits, several names and ``where=``."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import jobboard
from jobboard.board import JobBoard
from jobboard.job import Job
from jobboard.testing.conformance.processes import in_child
from jobboard.testing.conformance.races import NAMES, Claimant, post, posting
from jobboard.testing.history import judge
from jobboard.testing.recording import Recorder, from_files, left_on, to_file


class ByCondition:
    """A board that is asked for names by a condition."""

    def __init__(self, board: JobBoard) -> None:
        self._board = board

    def __getattr__(self, name: str) -> Any:
        return getattr(self._board, name)

    def claim_many(self, who: str, limit: int, names: Any = None) -> list[Job]:
        column = self._board.table.c.name
        return self._board.claim_many(who, limit, where=column.in_(names or NAMES))


WORKERS = [
    (Claimant(1), False),
    (Claimant(2, NAMES[:2]), False),
    (Claimant(3, gives_back=2), False),
    (Claimant(3, NAMES[1:]), True),
    (Claimant(4), True),
    (Claimant(1, NAMES, gives_back=2), False),
]
"""What each takes, and whether it asks by a condition."""


@pytest.mark.rule("The engine's way serves nobody before a better job, by limits, several names and where= at once.")
@pytest.mark.backends("postgresql", "mariadb")
@pytest.mark.parametrize("concurrency", [None, 2], ids=["no limit", "two at a time"])
def test_nobody_is_served_before_a_better_one_by_the_engine(
    board: JobBoard, board_conf: dict[str, Any], tmp_path: Path, concurrency: int | None
) -> None:
    folder = tmp_path / "history"
    folder.mkdir()

    def start(worker: Claimant, conditional: bool, process: str) -> Callable[[], Any]:
        def run() -> list[str]:
            mine: Any = jobboard.fetch(board.name, board_conf)
            mine.connect()
            return worker.work(ByCondition(mine) if conditional else mine, process, folder)

        return in_child(run)

    first, dice = Recorder(board, "first", to_file(folder / "first")), random.Random(1)
    for name in NAMES if concurrency else ():
        first.set_limit(name, per="group", concurrency=concurrency)
    first.post_many([posting(dice) for _ in range(60)])
    answers = [start(*worker, f"worker {number}") for number, worker in enumerate(WORKERS)]
    post(board, folder)
    assert [answer() for answer in answers] == [[]] * len(WORKERS)
    entries = from_files(file for file in folder.iterdir() if file.name != "over")
    assert judge(entries, left_on(board), contended=True, limits=first.limits) == []
