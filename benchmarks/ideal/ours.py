"""The board, used as its guide shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from contender import BATCH, DETAILS, NAME, WHO, Contender, handle

import jobboard


class Ours(Contender):
    library = "jobboard"

    def __init__(self, uri: str) -> None:
        self.board = jobboard.fetch("bench", uri)
        self.board.connect()

    def close(self) -> None:
        self.board.close()

    def postings(self) -> Iterator[dict[str, Any]]:
        for _ in range(BATCH):
            yield {"name": NAME, "details": DETAILS}

    def post(self, jobs: int) -> None:
        for _ in range(jobs):
            self.board.post(NAME, details=DETAILS)

    def post_many(self, jobs: int) -> None:
        for _ in range(0, jobs, BATCH):
            self.board.post_many(self.postings())

    def finish(self, jobs: int) -> None:
        for _ in range(jobs):
            job = self.board.claim_next(WHO)
            assert job is not None
            self.board.consume(job, WHO)

    def finish_many(self, jobs: int) -> None:
        for _ in range(0, jobs, BATCH):
            taken = self.board.claim_many(WHO, BATCH)
            assert len(taken) == BATCH
            self.board.consume_many(taken, WHO)

    def conduct(self, jobs: int, setting: int) -> None:
        handlers = {NAME: lambda job: handle(job.details)}
        conductor = jobboard.Conductor("bench", self.board, handlers, max_simultaneous_jobs=setting)
        conductor.run(jobs)
        assert conductor.tally.consumed == jobs, conductor.tally
