"""``jobboard demo``: a proof that a killed worker loses no job."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import logging
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from jobboard import conf, logs
from jobboard.board import JobBoard
from jobboard.cli.common import DONE, FAILED, BoardOptions, command
from jobboard.cli.output import bars, say, say_json, warn
from jobboard.cli.tables import Column, say_lines, table
from jobboard.conductor import Conductor
from jobboard.job import Job, Posting

CLAIM_TTL = 2
WORKERS = 4
SLOTS = 32
FIRST = 20  # the number of jobs, of plenty, that the worker to be killed does before it hangs
PROBLEMS = 20

NEXT = ("jobboard --board sqlite:///jobs.db post hello", "jobboard --board sqlite:///jobs.db list")
"""The commands to try after the demo."""

GENERATED = frozenset({"__pycache__", "node_modules"})
"""The names of folders that tools write and nobody tracks."""

_REPORT: list[Column[tuple[str, Any]]] = [
    Column(None, itemgetter(0), ""),
    Column(None, itemgetter(1), "jobs", number=True),
]

MARKS = ("CACHEDIR.TAG", "pyvenv.cfg")
"""Files that mark a folder as a cache, or as a virtual environment."""


@command(
    "jobboard demo",
    "jobboard demo ~/Pictures",
    "jobboard demo --board postgresql://app@localhost/test",
    board="A backend to use.  [default: an SQLite file that is removed]",
    board_name=None,
)
@click.argument("path", default=".", type=click.Path(exists=True, file_okay=False, readable=True, path_type=Path))
def demo(settings: BoardOptions, path: Path) -> int:
    """Hash files by jobs, kill a worker, and lose nothing.

    One job is posted for each file below PATH, 4 worker processes compute its SHA-256, and one of them is killed while
    it holds jobs. In the end every digest is checked. PATH is the current folder unless given. Files that git ignores
    are left out; without git, so are hidden folders, caches and virtual environments.

    The board is an SQLite file in a temporary folder; --board takes any other, on which the demo uses a board of its
    own. The exit status is 1 if anything was lost or wrong.
    """
    if settings.name is not None:
        raise click.UsageError("the demo names its board itself: leave out --name")
    with tempfile.TemporaryDirectory(prefix="jobboard-demo-") as made:
        folder, root = Path(made).resolve(), path.resolve()
        results = folder / "results.jsonl"
        uri = settings.given or f"sqlite:///{quote(str(folder))}/board.db"
        if "claim_ttl=" not in uri:  # so short that the jobs of the killed worker come back soon
            uri += f"{'' if '://' in uri else '://'}{'&' if '?' in uri else '?'}claim_ttl={CLAIM_TTL}"
        name = f"demo-{uuid.uuid4()}"
        board = BoardOptions(uri, name).fetch()
        if conf.target(uri).scheme == "memory":
            raise click.UsageError("the demo's workers are processes, and a board in memory can't be shared by them")
        with contextlib.closing(board):
            board.connect()
            if not settings.json:
                say(f"On {board}")
            began = time.monotonic()
            names, skipped = find(root, folder)
            with bars() as progress:
                read = names if progress is None else progress.track(names, description="reading")
                files = {each: digest(root / each) for each in read}
            # In hex, as not every file's name is text, and details are.
            paths = (os.fsencode(name).hex() for name in files)
            jobs = board.post_many(Posting("sha256", details={"path": each}, max_attempts=10) for each in paths)
            with _telling(len(files)) as tell:
                killed = _work(board, uri, root, results, len(files), tell) if files else None
            report = _judge(board, root, files, [job.uuid for job in jobs], results)
    report |= {"seconds": round(time.monotonic() - began, 1), "skipped": skipped, "killed": killed}
    if settings.json:
        say_json(report)
    else:
        _show(report, path)
    return DONE if report["ok"] else FAILED


def find(root: Path, but: Path) -> tuple[list[str], dict[str, int]]:
    """Return the files below ``root``, and the number of those that were passed over, by the reason.

    They are the files that git tracks or would track. Without git, hidden and generated folders are left out.

    :param but: a folder that is left out.
    """
    files: list[str] = []
    skipped: Counter[str] = Counter()
    for name in _tracked(root, but) or _walked(root, but, skipped):
        path = root / name
        if path.is_symlink():
            skipped["links"] += 1
        elif path.is_file() and os.access(path, os.R_OK):
            files.append(name)
        elif path.exists() and not path.is_dir():
            skipped["unreadable" if path.is_file() else "special files"] += 1
    return files, dict(skipped)


def _tracked(root: Path, but: Path) -> list[str]:
    """Return the files that git tracks or would track; none where there is no git or no clone."""
    out = {root: False}

    def is_out(folder: Path) -> bool:
        if folder not in out:
            out[folder] = is_out(folder.parent) or folder == but or _is_generated(folder)
        return out[folder]

    try:
        tracked = _git(root, "--cached")
        # Not every folder of this kind is ignored, and all of them take long.
        new = {name for name in _git(root, "--others", "--exclude-standard") if not is_out((root / name).parent)}
    except (OSError, subprocess.CalledProcessError):
        return []
    return sorted(tracked | new)


def _git(root: Path, *which: str) -> set[str]:
    command = ["git", "-C", str(root), "ls-files", "-z", *which]
    listed = subprocess.run(command, capture_output=True, check=True).stdout
    return {os.fsdecode(name) for name in listed.split(b"\0") if name}


def _walked(root: Path, but: Path, skipped: Counter[str]) -> Iterator[str]:
    for folder, folders, names in os.walk(root, onerror=lambda error: skipped.update(["unreadable"])):
        kept = []
        for each in sorted(folders):
            path = Path(folder, each)
            if each.startswith("."):
                skipped["hidden folders"] += 1
            elif _is_generated(path):
                skipped["generated folders"] += 1
            elif path != but:
                kept.append(each)
        folders[:] = kept
        yield from (str(Path(folder, each).relative_to(root)) for each in sorted(names + folders))


def _is_generated(folder: Path) -> bool:
    """Return whether a folder is a cache or a virtual environment."""
    return folder.name in GENERATED or any(os.access(folder / mark, os.F_OK) for mark in MARKS)


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, or the reason why there is none."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        return str(error.strerror)


def work(uri: str, board: str, who: str, root: Path, results: Path, first: int) -> None:
    """Run a worker's process.

    Each result is written *before* the job is consumed. A worker that dies in between leaves the result, and the job on
    the board: another worker does the job again, and nothing is missing.

    :param first: the number of jobs after which the worker hangs, to be killed in the middle of its work.
    """
    begun = itertools.count()

    def sha256(job: Job) -> None:
        if next(begun) >= first:
            threading.Event().wait()
        found = digest(root / os.fsdecode(bytes.fromhex(job.details["path"])))
        with results.open("a") as file:  # written at once, when it is closed
            file.write(json.dumps({"job": job.uuid, "attempt": job.attempts, "digest": found}) + "\n")

    def follow() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    # The report counts the jobs of the killed worker: a warning for each of them would hide it.
    logging.getLogger(logs.__name__).setLevel(logging.ERROR)
    threading.Thread(target=follow, daemon=True).start()
    Conductor(who, BoardOptions(uri, board).fetch(), {"sha256": sha256}, max_simultaneous_jobs=SLOTS).run()


@contextlib.contextmanager
def _telling(total: int) -> Iterator[Callable[[int], object]]:
    """Give a callback for the number of finished jobs: a bar on a terminal, a line for each tenth elsewhere."""
    tenths: set[int] = set()

    def say_tenth(done: int) -> None:
        if 10 * done // total not in tenths:
            tenths.add(10 * done // total)
            warn(f"working: {done} of {total}")

    with bars() as progress:
        if progress is None:
            yield say_tenth
        else:
            task = progress.add_task("working", total=total)
            yield lambda done: progress.update(task, completed=done)


def _work(board: JobBoard, uri: str, root: Path, results: Path, total: int, tell: Callable[[int], object]) -> str:
    """Run the workers until all jobs are done, and return who was killed with how many jobs.

    :param tell: called with the number of finished jobs.
    """
    victim, *others = (f"worker {number}" for number in range(1, WORKERS + 1))
    workers = {}

    def start(name: str, first: int = sys.maxsize) -> None:
        told = (uri, board.name, name, root, results, first)
        workers[name] = multiprocessing.get_context("spawn").Process(target=work, args=told, name=name, daemon=True)
        workers[name].start()

    def held() -> int:
        return sum(job.owner == victim for job in board.iterjobs(states=["CLAIMED"]))

    def until(enough: Callable[[int], object]) -> None:
        while True:
            done = total - board.stats().on_board
            tell(done)
            if enough(done):
                return
            for each in workers.values():
                if each.exitcode is not None:
                    raise click.ClickException(f"{each.name} ended with status {each.exitcode}")
            time.sleep(0.05)

    try:
        first = min(FIRST, total // (2 * WORKERS))
        start(victim, first)
        until(lambda done: done >= first and held())
        for name in others:
            start(name)
        # The victim may hold the rest, which can't be done while it lives.
        until(lambda done: done >= min(total // 3, total - SLOTS))
        killed = f"{victim} (process {workers[victim].pid}) while it held {held()} jobs"
        workers.pop(victim).kill()
        until(lambda done: done == total)
        for each in workers.values():
            each.terminate()
            each.join(30)
    finally:
        for each in workers.values():
            each.kill()  # the one that hangs does not end otherwise
    return killed


def _judge(board: JobBoard, root: Path, files: dict[str, str], jobs: list[str], results: Path) -> dict[str, Any]:
    left = {job.uuid for job in [*board.iterjobs(), *board.trashed()]}
    lines = [json.loads(line) for line in results.read_text().splitlines()] if jobs else []
    found: dict[str, set[str]] = {}
    for each in lines:
        found.setdefault(each["job"], set()).add(each["digest"])
    problems = []
    for job, (name, expected) in zip(jobs, files.items(), strict=True):
        if job in left or job not in found:
            problems.append(("lost", name))
        elif found[job] != {expected}:
            problems.append(("wrong" if digest(root / name) == expected else "changed", name))
    counts = Counter(kind for kind, _ in problems)
    return {
        "ok": not (counts["lost"] or counts["wrong"]),
        "posted": len(jobs),
        "consumed": len(jobs) - len(left.intersection(jobs)),
        "run_again": len({each["job"] for each in lines if each["attempt"] > 1}),
        **{kind: counts[kind] for kind in ("lost", "wrong", "changed")},
        "problems": [f"{kind}: {name}" for kind, name in problems],
    }


def _show(report: dict[str, Any], path: Path) -> None:
    if report["skipped"]:
        say(f"Passed over: {', '.join(f'{count} {reason}' for reason, count in report['skipped'].items())}.")
    if report["killed"]:
        say(f"Killed {report['killed']}.")
    else:
        say(f"There is no file to work on below {path}: nothing to do, and nobody to kill.")
    names = {"run_again": "run again after the kill", "changed": "changed meanwhile, not judged"}
    kinds = ("posted", "consumed", "run_again", "lost", "wrong", "changed", "seconds")
    table(_REPORT, [(names.get(kind, kind), report[kind]) for kind in kinds])
    for problem in report["problems"][:PROBLEMS]:
        warn(problem)
    say_lines(_lesson(report))


def _lesson(report: dict[str, Any]) -> str:
    """Return what the demo has shown, and what to try next, in one sentence."""
    if not report["ok"]:
        return "Jobs were lost or done wrongly, which must never happen: please report it with the lines above."
    if not report["posted"]:
        return "A folder with files shows more: try 'jobboard demo PATH'."
    seen = "The killed worker's jobs came back by themselves, and nothing was lost"
    return f"{seen}: next, try '{NEXT[0]}', then '{NEXT[1]}'."
