"""The order that jobs are served in while several processes ask for them at once; judged by what each has recorded."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import jobboard
from jobboard.board import JobBoard
from jobboard.exceptions import NotFound
from jobboard.job import Posting, boottime
from jobboard.states import Verb
from jobboard.testing.conformance.processes import in_child
from jobboard.testing.conformance.support import LIMIT, Background, MakeBoard
from jobboard.testing.history import HistoryEntry, disorder, judge, left_over
from jobboard.testing.recording import Recorder, from_files, left_on, to_file

WORKERS = 3
BEFORE, MEANWHILE = 60, 60
PRIORITIES = ("VERY_LOW", "LOW", "NORMAL", "HIGH", "VERY_HIGH")


def work(board: JobBoard, process: str, folder: Path, together: int) -> list[str]:
    """Claim and consume until nothing more comes; what went wrong."""
    recorder = Recorder(board, process, to_file(folder / process))
    over, deadline = folder / "over", boottime() + LIMIT
    while boottime() < deadline:
        last = over.exists()
        jobs = recorder.claim_many(process, together)
        recorder.consume_many(jobs, process)
        if last and not jobs:
            break
    return [repr(error) for error in recorder.failures]


def post(board: JobBoard, folder: Path) -> None:
    """While others claim: most of it in any order, and the last of it with rising priorities."""
    recorder, dice = Recorder(board, "poster", to_file(folder / "poster")), random.Random(1)
    for number in range(MEANWHILE):
        rising = PRIORITIES[(number - MEANWHILE // 2) * len(PRIORITIES) // (MEANWHILE // 2)]
        recorder.post_many([Posting("work", priority=dice.choice(PRIORITIES) if number < MEANWHILE // 2 else rising)])
    (folder / "over").touch()


def shared(board: JobBoard) -> bool:
    """Whether a forked child's board is the same one, and not a copy."""
    uuid = in_child(lambda: board.post("to be seen").uuid)()
    try:
        job = board.get(uuid)
    except NotFound:
        assert not board.characteristics.durable
        return False
    board.cancel(job)
    board.purge(job)
    return True


class TestContention:
    any_driver = True

    @pytest.mark.parametrize("together", [1, 4])
    def test_nobody_is_served_before_a_better_one(
        self, board: JobBoard, make_board: MakeBoard, board_conf: dict[str, Any], tmp_path: Path, together: int
    ) -> None:
        if not board.characteristics.exact_order:
            return
        folder = tmp_path / "history"
        folder.mkdir()

        def child(process: str) -> Callable[[], Any]:
            def run() -> list[str]:
                mine = jobboard.fetch(board.name, board_conf)
                mine.connect()
                return work(mine, process, folder, together)

            return in_child(run)

        def thread(process: str) -> Callable[[], Any]:
            mine = make_board()
            return Background(lambda: work(mine, process, folder, together)).wait

        start = child if shared(board) else thread
        first = Recorder(board, "first", to_file(folder / "first"))
        dice = random.Random(together)
        first.post_many([Posting("work", priority=dice.choice(PRIORITIES)) for _ in range(BEFORE)])
        answers = [start(f"worker {number}") for number in range(WORKERS)]
        post(board, folder)
        assert [answer() for answer in answers] == [[]] * WORKERS
        entries = from_files(file for file in folder.iterdir() if file.name != "over")
        assert judge(entries, left_on(board), contended=True) == []
        assert left_over(left_on(board)) == []
        self.catches(entries)

    @staticmethod
    def catches(entries: list[HistoryEntry]) -> None:
        """A history of this very run in which two jobs have changed places is found out."""
        claims = sorted(
            (entry for entry in entries if entry.verb == Verb.CLAIM and entry.outcome == "ok"),
            key=lambda entry: entry.began,
        )
        rank = {entry.uuid: entry.rank for entry in entries if entry.verb == Verb.POST}
        early, late = next(
            (early, late)
            for early in claims
            for late in reversed(claims)
            if rank[early.uuid] < rank[late.uuid] and early.ended < late.began
        )
        turned = {early.uuid: late.uuid, late.uuid: early.uuid}
        changed = [entry._replace(uuid=turned.get(entry.uuid, entry.uuid)) for entry in claims]
        assert disorder([entry for entry in entries if entry.verb == Verb.POST] + changed, contended=True)
