"""The board against TaskFlow's, which runs in a process and an environment of its own."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from common import DETAILS, boards_on, client_of, in_turn, pin, placed, postings, server, shown, verdict
from rich.console import Console

# How many jobs a round claims: a scan for each takes TaskFlow as long as it does.
OURS, THEIRS, SCANNED = 500, 5, 200
TARGETS = {1_000: 20, 10_000: 400}


def install(folder: Path) -> Path:
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        with Console(stderr=True).status(f"installing TaskFlow into {folder}"):
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
            subprocess.run([python, "-m", "pip", "install", "--quiet", "taskflow[redis]"], check=True)
            (folder / "ready").touch()
    return python


class TaskFlow:
    def __init__(self, python: Path, address: tuple[str, int], namespace: str) -> None:
        worker = Path(__file__).with_name("taskflow_worker.py")
        self._process = subprocess.Popen(
            [python, worker, address[0], str(address[1]), namespace],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> TaskFlow:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._process.communicate()

    def __call__(self, *command: Any) -> float:
        """How long it took over there, in seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return float(json.loads(self._process.stdout.readline()))


def drain(board: Any, jobs: int) -> float:
    start = time.perf_counter()
    for _ in range(jobs):
        board.consume(board.claim_next("me"), "me")
    return time.perf_counter() - start


def run(given: argparse.Namespace) -> None:
    python = install(given.venv)
    for size, target in TARGETS.items():
        with (
            server(given.durable) as running,
            client_of(running) as client,
            boards_on(running, "ours") as [ours],
            TaskFlow(python, running.address, "theirs") as theirs,
        ):
            ours.post_many(postings(size))
            theirs("post", size, DETAILS)
            for place in given.place:
                with placed(client, place):
                    pin(theirs.pid, os.sched_getaffinity(0))
                    compare(f"{size} jobs, {place}", ours, theirs, given.rounds, target)


def compare(what: str, ours: Any, theirs: TaskFlow, rounds: int, target: int) -> None:
    def mine() -> float:
        spent = drain(ours, OURS)
        ours.post_many(postings(OURS))
        return spent / OURS

    def other(way: str, jobs: int) -> float:
        spent = theirs(way, jobs)
        theirs("post", jobs, DETAILS)
        return spent / jobs

    for way, jobs, goal in (("each", THEIRS, target), ("scan", SCANNED, None)):
        each, others = in_turn(rounds, mine, partial(other, way, jobs))
        ratios = [slow / fast for fast, slow in zip(each, others, strict=True)]
        rates = [1 / statistics.median(times) for times in (each, others)]
        looks = "a look for each job" if way == "each" else f"one look for {jobs} jobs"
        reached = "" if goal is None else f"; target {goal}: {verdict(statistics.median(ratios) >= goal)}"
        print(
            f"taskflow, {what}: {shown(ratios, 0)} times as fast as TaskFlow with {looks}; "
            f"{rates[0]:.0f} against {rates[1]:.1f} jobs/s{reached}"
        )
