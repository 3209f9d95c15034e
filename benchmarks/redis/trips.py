"""How many commands a job takes that is claimed and consumed."""

from __future__ import annotations

import argparse
import multiprocessing
from typing import Any

from common import Watch, boards_on, client_of, postings, server, verdict

import jobboard

JOBS = 2_000


def work(uri: str, jobs: int, ready: Any, begin: Any, done: Any, end: Any) -> None:
    with jobboard.backend("board", uri) as board:
        # The first of all calls sends its script along.
        board.consume(board.claim_next("me"), "me")
        ready.release()
        begin.wait()
        for _ in range(jobs):
            board.consume(board.claim_next("me"), "me")
        done.release()
        end.wait()


def counted(given: argparse.Namespace, workers: int, size: int) -> tuple[int, dict[str, int]]:
    context = multiprocessing.get_context("spawn")
    ready, done = context.Semaphore(0), context.Semaphore(0)
    begin, end = context.Event(), context.Event()
    jobs = min(JOBS, size) // workers
    with server(given.durable) as running, client_of(running) as client, boards_on(running, "board") as [board]:
        board.post_many(postings(size + workers))
        arguments = (running.uri, jobs, ready, begin, done, end)
        processes = [context.Process(target=work, args=arguments) for _ in range(workers)]
        for process in processes:
            process.start()
        for _ in processes:
            ready.acquire()
        with Watch(client) as watch:
            begin.set()
            for _ in processes:
                done.acquire()
            counts = watch.read()
        end.set()
        for process in processes:
            process.join()
    return jobs * workers, counts


def run(given: argparse.Namespace) -> None:
    for size in (100, 100_000):
        for workers in (1, 8):
            jobs, counts = counted(given, workers, size)
            each = sum(counts.values()) / jobs
            print(
                f"trips, {size} jobs, {workers} workers: {each:.3f} commands per job ({jobs} jobs: {counts}); "
                f"target 2: {verdict(each <= 2.01)}"
            )
