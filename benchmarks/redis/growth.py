"""What a claim costs the server, and a job of memory, as a board grows."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from common import boards_on, client_of, postings, server, verdict
from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

from jobboard.job import Act

STATES = ("ready", "claimed", "delayed")
SMALL, READY = 1_000, 1_000
ROUNDS, CLAIMS = 41, 50
AGES = 86400.0

T = TypeVar("T")


def fill(board: Any, state: str, jobs: int, progress: Progress) -> None:
    more = {"delay": AGES} if state == "delayed" else {}
    task = progress.add_task(f"{jobs} jobs, {state}", total=jobs)
    for start in range(0, jobs, 5000):
        some = min(5000, jobs - start)
        board.post_many(postings(some, **more))
        if state == "claimed":
            for begin in range(0, some, 100):
                board.claim_many("elsewhere", min(100, some - begin), expiry=AGES)
        progress.advance(task, some)


def used_memory(client: Any) -> int:
    # What waits for the clients and for the disk is no part of the board.
    about = client.info("memory")
    return int(about["used_memory"] - about["mem_clients_normal"] - about["mem_aof_buffer"])


def claims(client: Any, board: Any) -> tuple[float, float]:
    """Seconds for a claim: of the server, and of the client with all in between."""
    client.config_resetstat()
    start = time.perf_counter()
    taken = [board.claim_next("me", expiry=AGES) for _ in range(CLAIMS)]
    spent = (time.perf_counter() - start) / CLAIMS
    about = client.info("commandstats")["cmdstat_evalsha"]
    board.finish_many([Act(job, "abandon") for job in taken], "me")
    return about["usec"] / CLAIMS / 1e6, spent


def alternating(rounds: int, values: Iterable[T]) -> Iterator[tuple[int, T]]:
    both = list(values)
    for number in range(rounds + 1):
        for value in both if number % 2 else reversed(both):
            yield number, value


def run(given: argparse.Namespace) -> None:
    for state in given.state:
        with (
            server(given.durable) as running,
            client_of(running) as client,
            boards_on(running, "small", "large") as [small, large],
        ):
            with Progress(*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn()) as progress:
                fill(small, state, SMALL, progress)
                before = used_memory(client)
                fill(large, state, given.jobs, progress)
                memory = (used_memory(client) - before) / given.jobs
            if state != "ready":
                # Behind all the others: what can be claimed was posted last.
                small.post_many(postings(READY))
                large.post_many(postings(READY))
            spent: dict[Any, list[tuple[float, float]]] = {small: [], large: []}
            for number, board in alternating(ROUNDS, (small, large)):
                times = claims(client, board)
                if number:
                    spent[board].append(times)
            for index, side in enumerate(("server", "client")):
                low, high = (statistics.median(times[index] for times in spent[board]) for board in (small, large))
                goal = f"; target 1.3: {verdict(high / low <= 1.3)}" if side == "server" else ""
                print(
                    f"growth, {state}: a claim on {given.jobs} jobs takes the {side} {high / low:.2f} times as long as "
                    f"on {SMALL} ({high * 1e6:.1f} against {low * 1e6:.1f} µs){goal}"
                )
            print(f"growth, {state}: {memory:.0f} bytes of memory for each job; target 1000: {verdict(memory <= 1000)}")
