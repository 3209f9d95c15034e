"""``jobboard demo``: a proof that a killed worker loses no job."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import logging
import multiprocessing
import os
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
from jobboard.cli.common import DONE, FAILED, BoardOptions, command, naming
from jobboard.cli.output import bars, say, say_json, warn
from jobboard.cli.tables import Column, say_lines, table
from jobboard.conductor import Conductor
from jobboard.job import Job, Posting

CLAIM_TTL = 2
WORKERS = 4
SLOTS = 32
MOST = 500
"""The largest number of files."""

FIRST = 20
"""The number of jobs that the worker to be killed does before it hangs; fewer if there are few jobs."""

PROBLEMS = 20

NEXT = ("jobboard --board sqlite:///jobs.db post hello", "jobboard --board sqlite:///jobs.db list")
"""The commands to try after the demo."""

_REPORT: list[Column[tuple[str, Any]]] = [
    Column(None, itemgetter(0), ""),
    Column(None, itemgetter(1), "jobs", number=True),
]


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

    One job is posted for each file below PATH, at most 500, and 4 worker processes compute its SHA-256. One of them is
    killed while it holds jobs. In the end every digest is checked. PATH is the current folder unless given. Hidden
    files are left out.

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
            with naming(board):
                board.connect()
            if not settings.json:
                say(f"On {board}")
            began = time.monotonic()
            files = {name: digest(root / name) for name in itertools.islice(find(root), MOST)}
            # In hex, as not every file's name is text, and details are.
            paths = (os.fsencode(name).hex() for name in files)
            jobs = board.post_many(Posting("sha256", details={"path": each}, max_attempts=10) for each in paths)
            killed = _work(board, uri, root, results, len(files)) if files else None
            report = _judge(board, root, files, [job.uuid for job in jobs], results)
    report |= {"seconds": round(time.monotonic() - began, 1), "killed": killed}
    if settings.json:
        say_json(report)
    else:
        _show(report, path)
    return DONE if report["ok"] else FAILED


def find(root: Path) -> Iterator[str]:
    """Yield the files below ``root`` that are not hidden, in hidden folders, or links."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for path in (Path(folder, name) for name in sorted(names) if not name.startswith(".")):
            if path.is_file() and not path.is_symlink():
                yield str(path.relative_to(root))


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


def _work(board: JobBoard, uri: str, root: Path, results: Path, total: int) -> str:
    """Run the workers until all jobs are done, and return who was killed with how many jobs."""
    victim, *others = (f"worker {number}" for number in range(1, WORKERS + 1))
    workers = {}

    def start(name: str, first: int = sys.maxsize) -> None:
        given = (uri, board.name, name, root, results, first)
        workers[name] = multiprocessing.get_context("spawn").Process(target=work, args=given, name=name, daemon=True)
        workers[name].start()

    def held() -> int:
        return sum(job.owner == victim for job in board.iterjobs(states=["CLAIMED"]))

    def until(enough: Callable[[int], object]) -> None:
        while True:
            done = total - board.stats().on_board
            progress.update(task, completed=done)
            if enough(done):
                return
            for each in workers.values():
                if each.exitcode is not None:
                    raise click.ClickException(f"{each.name} ended with status {each.exitcode}")
            time.sleep(0.05)

    with bars() as progress:
        task = progress.add_task("working", total=total)
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
    if report["killed"]:
        say(f"Killed {report['killed']}.")
    else:
        say(f"There is no file to work on below {path}: nothing to do, and nobody to kill.")
    names = {"run_again": "run again after the kill", "changed": "changed meanwhile, not judged"}
    kinds = ("posted", "consumed", "run_again", "lost", "wrong", "changed", "seconds")
    table(_REPORT, [(names.get(kind, kind), report[kind]) for kind in kinds])
    for problem in report["problems"][:PROBLEMS]:
        warn(problem)
    if not report["ok"]:
        lesson = "Jobs were lost or done wrongly, which must never happen: please report it with the lines above."
    elif not report["posted"]:
        lesson = "A folder with files shows more: try 'jobboard demo PATH'."
    else:
        seen = "The killed worker's jobs came back by themselves, and nothing was lost"
        lesson = f"{seen}: next, try '{NEXT[0]}', then '{NEXT[1]}'."
    say_lines(lesson)
