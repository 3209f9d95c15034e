"""Runs the demo: posts the files, has workers work on them, kills one, and looks at what has become of every job."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobboard.board import JobBoard
from jobboard.cli import demo_files, demo_worker
from jobboard.job import Posting

WORKERS = 4
SLOTS = 32
HELD_AFTER = 20
"""How many jobs the worker that is to be killed does first, where there are plenty."""

KILLED_AT = 3
"""It is killed when a third of the files is done."""

_LOOK = 0.05
_TRIES = 10
_PATIENCE = 30.0

Advance = Callable[[str, int, int], None]


class Failed(Exception):
    """The demo could not be carried through."""


@dataclass
class Report:
    """What was seen. ``lost``: jobs without a result, or not consumed. ``wrong``: digests that differ from our own,
    though the file is as it was. ``waited``: how long the dead worker's jobs were out of reach."""

    posted: int = 0
    consumed: int = 0
    run_again: int = 0
    lost: int = 0
    wrong: int = 0
    changed: int = 0
    seconds: float = 0.0
    waited: float = 0.0
    skipped: dict[str, int] = field(default_factory=dict)
    killed: str | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not (self.lost or self.wrong)

    @property
    def jobs_per_second(self) -> float:
        """Without the wait."""
        busy = self.seconds - self.waited
        return self.consumed / busy if busy > 0 else 0.0


class Results:
    """What the workers have written, read as it grows."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ends: dict[Path, int] = {}
        self.held: set[str] = set()
        self.by_job: dict[str, list[dict[str, Any]]] = {}

    def read(self) -> None:
        for path in sorted(self._folder.glob("*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._ends.get(path, 0))
                text = file.read()
            # The last line of a worker that was killed may be half a line.
            whole = text.rpartition(b"\n")[0]
            self._ends[path] = self._ends.get(path, 0) + len(whole) + bool(whole)
            for line in whole.splitlines():
                entry = json.loads(line)
                if "held" in entry:
                    self.held.add(entry["held"])
                else:
                    self.by_job.setdefault(entry["job"], []).append(entry)


class Workers:
    """``jobboard work`` in processes of their own."""

    def __init__(self, uri: str, name: str, root: Path, folder: Path) -> None:
        self._uri, self._name, self._root, self._folder = uri, name, root, folder
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, hold_after: int | None = None) -> subprocess.Popen[bytes]:
        # By the environment, which unlike a command line is nobody else's to read.
        environment = {
            **os.environ,
            "JOBBOARD_URL": self._uri,
            "JOBBOARD_NAME": self._name,
            demo_worker.ROOT: str(self._root),
            demo_worker.RESULTS: str(self._folder / f"{name}.jsonl"),
        }
        if hold_after is not None:
            environment[demo_worker.HOLD_AFTER] = str(hold_after)
        command = [sys.executable, "-m", "jobboard.cli", "work", f"{demo_worker.__name__}:HANDLERS"]
        with (self._folder / f"{name}.log").open("wb") as log:
            self._started[name] = subprocess.Popen(
                [*command, "--who", name, "--jobs", str(SLOTS)],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
                # So that Ctrl-C reaches this process alone, which then ends the others.
                start_new_session=True,
            )
        return self._started[name]

    @property
    def names(self) -> set[str]:
        return set(self._started)

    def kill(self, name: str) -> None:
        self._end(self._started.pop(name))

    def check(self) -> None:
        """:raises Failed: one that was not killed has ended."""
        for name, worker in self._started.items():
            if worker.poll() is not None:
                raise Failed(f"{name} ended with status {worker.returncode}: {self._last_words(name)}")

    def drain(self) -> None:
        """SIGTERM, upon which each has to end well."""
        for worker in self._started.values():
            worker.terminate()
        for name, worker in self._started.items():
            try:
                status = worker.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                raise Failed(f"{name} did not end on SIGTERM") from None
            if status:
                raise Failed(f"{name} ended with status {status} on SIGTERM: {self._last_words(name)}")

    def close(self) -> None:
        for worker in self._started.values():
            self._end(worker)

    @staticmethod
    def _end(worker: subprocess.Popen[bytes]) -> None:
        worker.kill()
        worker.wait()
        assert worker.stdin is not None
        worker.stdin.close()

    def _last_words(self, name: str) -> str:
        lines = (self._folder / f"{name}.log").read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it left no message"


def run(board: JobBoard, uri: str, root: Path, folder: Path, advance: Advance) -> Report:
    """The whole of it, on a connected board that nobody else uses.

    :param folder: where to keep the results.
    :param advance: is told (step, done, of how many).
    """
    found = demo_files.find(root, folder)
    report = Report(skipped=found.skipped)
    posted = _post(board, list(found.files), advance)
    report.posted = len(posted)
    if posted:
        results = Results(folder)
        with contextlib.closing(Workers(uri, board.name, root, folder)) as workers:
            report.killed = _work(board, workers, results, posted, report, advance)
        _judge(board, root, found.files, posted, results, report, advance)
    return report


def _post(board: JobBoard, files: list[str], advance: Advance) -> dict[str, str]:
    """The file of each job."""
    posted: dict[str, str] = {}
    for start in range(0, len(files), 500):
        batch = files[start : start + 500]
        jobs = board.post_many(Posting("sha256", details=demo_files.pack(path), max_attempts=10) for path in batch)
        posted.update((job.uuid, path) for job, path in zip(jobs, batch, strict=True))
        advance("posting", len(posted), len(files))
    return posted


def _work(
    board: JobBoard, workers: Workers, results: Results, posted: dict[str, str], report: Report, advance: Advance
) -> str:
    """Have the jobs done; says who was killed, and what it held."""
    total = len(posted)
    began = time.monotonic()
    victim, *others = (f"worker {number}" for number in range(1, WORKERS + 1))
    process = workers.start(victim, min(HELD_AFTER, total // (2 * WORKERS)))
    for _ in _looks(workers, results, total, advance):
        if results.held:
            break
    for name in others:
        workers.start(name)
    # All but what the victim may hold: more than that cannot be done while it lives.
    enough = min(total // KILLED_AT, total - SLOTS)
    for _ in _looks(workers, results, total, advance):
        if len(results.by_job) >= enough:
            break
    holds = _catch(board, process.pid, victim)
    workers.kill(victim)
    killed_at = time.time()
    for _ in _looks(workers, results, total, advance):
        # What has ended in the trash has no result to wait for.
        if len(results.by_job) + board.stats(max_age=1).trashed >= total and not board.stats().on_board:
            break
    report.seconds = time.monotonic() - began
    report.waited = _waited(results, killed_at)
    # One that is still starting would know of no better end than to die of the signal.
    while not workers.names <= {entity.name for entity in board.entities("conductor")}:
        workers.check()
        time.sleep(_LOOK)
    workers.drain()
    claims = "1 claim" if holds == 1 else f"{holds} claims"
    return f"{victim} (process {process.pid}) while it held {claims}"


def _catch(board: JobBoard, pid: int, victim: str) -> int:
    """Stop the victim at a moment when it holds several claims, if there is one soon; how many it holds."""
    for _ in range(_TRIES):
        os.kill(pid, signal.SIGSTOP)
        holds = sum(board.find_owner(job) == victim for job in board.iterjobs(states=["CLAIMED"]))
        if holds > 1:
            break
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.01)
    if not holds:
        raise Failed(f"{victim} holds no claim, so that killing it would show nothing")
    return holds


def _looks(workers: Workers, results: Results, total: int, advance: Advance) -> Iterator[None]:
    """Look again and again, for as long as all the workers live."""
    while True:
        results.read()
        advance("working", min(len(results.by_job), total), total)
        yield
        workers.check()
        time.sleep(_LOOK)


def _waited(results: Results, killed_at: float) -> float:
    """From when there was nothing to do but to wait for the dead worker's claims to lapse, until the first of its jobs
    was done again."""
    entries = [each for entries in results.by_job.values() for each in entries]
    again = min((each["at"] for each in entries if each["attempt"] > 1), default=0.0)
    before = max((each["at"] for each in entries if each["at"] < again), default=0.0)
    return max(0.0, again - max(before, killed_at))


def _judge(
    board: JobBoard,
    root: Path,
    stamps: dict[str, demo_files.Stamp],
    posted: dict[str, str],
    results: Results,
    report: Report,
    advance: Advance,
) -> None:
    left = {job.uuid: str(job.seen_state) for job in [*board.iterjobs(), *board.trashed()]}
    report.consumed = len(posted) - sum(uuid in left for uuid in posted)
    report.run_again = sum(len(entries) > 1 or entries[0]["attempt"] > 1 for entries in results.by_job.values())
    for uuid in results.by_job.keys() - posted.keys():
        report.wrong += 1
        report.problems.append(f"wrong: a result of job {uuid}, which was never posted")
    with ThreadPoolExecutor(WORKERS) as pool:
        own = pool.map(lambda path: _own_digest(root, path), posted.values())
        for done, ((uuid, path), expected) in enumerate(zip(posted.items(), own, strict=True), 1):
            entries = results.by_job.get(uuid, [])
            if uuid in left or not entries:
                report.lost += 1
                report.problems.append(f"lost: {path} ({left.get(uuid, 'consumed, but without a result')})")
            elif {each.get("digest") for each in entries} != {expected}:
                _blame(report, root, path, stamps[path], entries)
            if not done % 100 or done == len(posted):
                advance("checking", done, len(posted))


def _own_digest(root: Path, path: str) -> str | None:
    try:
        return demo_files.digest(str(root / path))
    except OSError:
        return None


def _blame(report: Report, root: Path, path: str, before: demo_files.Stamp, entries: list[dict[str, Any]]) -> None:
    """A digest is not ours: the file's doing, if it is not what it was."""
    now = demo_files.stamp(str(root / path))
    if now != before:
        report.changed += 1
        report.problems.append(f"{'vanished' if now is None else 'changed'} meanwhile: {path}")
        return
    report.wrong += 1
    errors = [each["error"] for each in entries if "error" in each]
    report.problems.append(f"wrong: {path}" + (f" ({errors[0]})" if errors else ""))
