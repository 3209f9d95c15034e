"""The order that jobs are served in while several processes ask for them at once; judged by what each has recorded."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

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
NAMES = ("mail", "print", "resize")


class Claimant(NamedTuple):
    """How many it takes at once, of which names, and of how many it gives back one."""

    together: int
    names: tuple[str, ...] | None = None
    gives_back: int | None = None

    def work(self, board: JobBoard, process: str, folder: Path) -> list[str]:
        """Claim and consume until nothing more comes; what went wrong."""
        recorder, dice = Recorder(board, process, to_file(folder / process)), random.Random(process)
        over, deadline = folder / "over", boottime() + LIMIT
        while boottime() < deadline:
            last = over.exists()
            jobs = recorder.claim_many(process, self.together, names=self.names)
            back = [job for job in jobs if self.gives_back and not dice.randrange(self.gives_back)]
            for job in back:
                recorder.abandon(job)
            recorder.consume_many([job for job in jobs if job not in back], process)
            if last and not jobs:
                break
        return [repr(error) for error in recorder.failures]


def alike(together: int) -> list[Claimant]:
    return [Claimant(together)] * WORKERS


MIXED = [Claimant(1), Claimant(2, NAMES[:2]), Claimant(3, gives_back=2)]


def posting(dice: random.Random, priority: str | None = None) -> Posting:
    return Posting(dice.choice(NAMES), group=dice.choice("xyz"), priority=priority or dice.choice(PRIORITIES))


def post(board: JobBoard, folder: Path) -> None:
    """While others claim: most of it in any order, and the last of it with rising priorities."""
    recorder, dice = Recorder(board, "poster", to_file(folder / "poster")), random.Random(1)
    for number in range(MEANWHILE):
        rising = PRIORITIES[(number - MEANWHILE // 2) * len(PRIORITIES) // (MEANWHILE // 2)]
        recorder.post_many([posting(dice, None if number < MEANWHILE // 2 else rising)])
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

    @pytest.mark.parametrize(
        ("workers", "limited"),
        [(alike(1), False), (alike(4), False), (MIXED, False), (MIXED, True)],
        ids=["one", "four", "mixed", "limited"],
    )
    def test_nobody_is_served_before_a_better_one(
        self,
        board: JobBoard,
        make_board: MakeBoard,
        board_conf: dict[str, Any],
        tmp_path: Path,
        workers: list[Claimant],
        limited: bool,
    ) -> None:
        """Limited: by limits with room for all, which take other ways."""
        if not board.characteristics.exact_order:
            return
        folder = tmp_path / "history"
        folder.mkdir()

        def child(worker: Claimant, process: str) -> Callable[[], Any]:
            def run() -> list[str]:
                mine = jobboard.fetch(board.name, board_conf)
                mine.connect()
                return worker.work(mine, process, folder)

            return in_child(run)

        def thread(worker: Claimant, process: str) -> Callable[[], Any]:
            mine = make_board()
            return Background(lambda: worker.work(mine, process, folder)).wait

        start = child if shared(board) else thread
        first = Recorder(board, "first", to_file(folder / "first"))
        dice = random.Random(workers[0].together)
        for name in NAMES if limited else ():
            first.set_limit(name, per="group", concurrency=BEFORE + MEANWHILE)
        first.post_many([posting(dice) for _ in range(BEFORE)])
        answers = [start(worker, f"worker {number}") for number, worker in enumerate(workers)]
        post(board, folder)
        assert [answer() for answer in answers] == [[]] * WORKERS
        entries = from_files(file for file in folder.iterdir() if file.name != "over")
        assert judge(entries, left_on(board), contended=True, limits=first.limits) == []
        assert left_over(left_on(board)) == []
        self.catches(entries)

    @staticmethod
    def catches(entries: list[HistoryEntry]) -> None:
        """A history of this very run in which two jobs have changed places is found out."""
        told = [entry for entry in entries if entry.verb == Verb.CLAIM and entry.outcome == "ok"]
        often = Counter(entry.uuid for entry in told)
        free = (entry for entry in told if entry.among is None and often[entry.uuid] == 1)
        claims = sorted(free, key=lambda entry: entry.began)
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
