"""Iterating over a large board: round trips, and the client's memory."""

from __future__ import annotations

import argparse
import time
import tracemalloc
from itertools import islice
from typing import Any

from common import Watch, boards_on, client_of, postings, server, verdict

from jobboard.primitives import PAGE

SOME, ALL = 10_000, 100_000


def peak(board: Any, jobs: int) -> int:
    """The most memory in use while so many jobs went by, in bytes."""
    tracemalloc.start()
    for _ in islice(board.iterjobs(), jobs):
        pass
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


def run(given: argparse.Namespace) -> None:
    with server(given.durable) as running, client_of(running) as client, boards_on(running, "board") as [board]:
        board.post_many(postings(ALL))
        next(board.iterjobs())  # the first of all calls sends its script along
        with Watch(client) as watch:
            start = time.perf_counter()
            count = sum(1 for _ in board.iterjobs())
            spent = time.perf_counter() - start
            trips = sum(watch.read().values())
        assert count == ALL
        # The last one learns that there is no more.
        print(
            f"walk: {ALL} jobs in {spent:.1f} s and {trips} round trips; "
            f"target {ALL // PAGE} and one: {verdict(trips <= ALL // PAGE + 1)}"
        )
        some, every = peak(board, SOME), peak(board, ALL)
        print(
            f"walk: the client uses at most {some / 1e6:.2f} MB for {SOME} jobs, {every / 1e6:.2f} MB for {ALL}; "
            f"target the same: {verdict(every <= some * 1.2)}"
        )
