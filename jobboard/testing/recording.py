"""Writes down what a process does to a board and what it sees of it, for :func:`jobboard.testing.history.judge`."""

from __future__ import annotations

import itertools
import json
import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from jobboard.board import JobBoard
from jobboard.exceptions import ConnectionFailure, JobBoardError, JobFailures
from jobboard.job import Act, ClaimedJob, Job
from jobboard.priorities import rank_of
from jobboard.runtime import boottime
from jobboard.states import COMPLETE, UNCLAIMED, Verb
from jobboard.testing.history import HistoryEntry, LeftJob, Limiting, Outcome, Pausing

Write = Callable[[int, HistoryEntry], None]
"""Takes an entry and its number. An act is written down when it begins, as of unknown outcome, and again under the same
number when it has ended: what a killed process was about stays on record."""


def with_job(post: HistoryEntry, job: Job) -> HistoryEntry:
    """Return the entry of a post with the job that it returned.

    Of a finished job, which the post has met by its key, it knows the uuid alone: the rest is that of the posting."""
    ready, rank = job.seen_state == UNCLAIMED, rank_of(job.priority)
    shown = post._replace(uuid=job.uuid, rank=rank, ready=ready)
    return shown if job.seen_state == COMPLETE else shown._replace(name=job.name, group=job.group)


class Recorder:
    """The verbs of a board, recorded. They raise nothing of the library's own but answer what came of the act. May be
    used by several threads."""

    def __init__(self, board: JobBoard, process: str, write: Write) -> None:
        self.board = board
        self.process = process
        self.failures: list[JobBoardError] = []
        self.pauses: list[Pausing] = []
        self.limits: list[Limiting] = []
        self._write = write
        self._numbers = itertools.count(1)

    def post_many(self, postings: Sequence[Any]) -> list[Job]:
        began = boottime()
        # Of no job yet: what a process posts that is killed before it knows.
        asked = HistoryEntry(began, math.inf, self.process, Verb.POST, "", "unknown")
        posts = [asked._replace(asked=int(posting.key is not None)) for posting in postings]
        numbers = list(map(self._put, posts))
        jobs = self.board.post_many(postings)
        ended = boottime()
        for number, post, job in zip(numbers, posts, jobs, strict=True):
            self._write(number, with_job(post._replace(ended=ended, outcome="ok"), job))
        return jobs

    def pause(self, names: Sequence[str] | None = None) -> None:
        self._rule(self.board.pause, names, False)

    def resume(self, names: Sequence[str] | None = None) -> None:
        self._rule(self.board.resume, names, True)

    def _rule(self, act: Callable[[Sequence[str] | None], None], names: Sequence[str] | None, resumed: bool) -> None:
        began, told = boottime(), None if names is None else tuple(names)
        outcome: Outcome = "ok"
        try:
            act(names)
        except ConnectionFailure as error:
            outcome = "unknown" if error.outcome == "unknown" else "refused"
        if outcome != "refused":
            ended = boottime() if outcome == "ok" else math.inf
            self.pauses.append(Pausing(began, ended, told, resumed, outcome))

    def set_limit(self, name: str, **limit: Any) -> None:
        began = boottime()
        self.board.set_limit(name, **limit)
        self.limits.append(Limiting(began, boottime(), name, **limit))

    def remove_limit(self, name: str, per: Literal["name", "group"] = "name") -> None:
        began = boottime()
        self.board.remove_limit(name, per)
        self.limits.append(Limiting(began, boottime(), name, per))

    def claim_many(self, who: str, limit: int, **arguments: Any) -> list[ClaimedJob]:
        began = boottime()
        names = arguments.get("names")
        among = None if names is None else tuple(names)
        # Of no job yet: what a process takes that is killed before it knows. Nothing here knows which jobs meet a
        # condition, and when a caller has ended the wait.
        asked = HistoryEntry(began, math.inf, self.process, Verb.CLAIM, "", "unknown", who=who, among=among)
        asked = asked._replace(asked=limit, chosen=not {"where", "unless"} & arguments.keys())
        number = self._put(asked)
        try:
            jobs = self.board.claim_many(who, limit, **arguments)
        except JobBoardError as error:
            self.failures.append(error)
            return []
        ended = boottime()
        for job in jobs:
            assert job.claim is not None
            token, until = job.claim.token, job.claim.deadline
            occasion = None if job.schedule is None else f"{job.schedule[0]} at {job.schedule[1].isoformat()}"
            claim = HistoryEntry(began, ended, self.process, Verb.CLAIM, job.uuid, "ok", token, who, until)
            self._put(claim._replace(chosen="where" not in arguments, among=among, occasion=occasion))
        # Last, as a process that is killed meanwhile has not found nothing.
        self._write(number, asked._replace(ended=ended, outcome="refused"))
        return jobs

    def claim_next(self, who: str, **arguments: Any) -> ClaimedJob | None:
        jobs = self.claim_many(who, 1, **arguments)
        return jobs[0] if jobs else None

    def extend(self, job: Job, expiry: float | None = None) -> Outcome:
        return self._act(Verb.EXTEND, [job], lambda: _claim(job).extend(expiry))[0]

    def abandon(self, job: Job, **arguments: Any) -> Outcome:
        return self._act(Verb.ABANDON, [job], lambda: _claim(job).abandon(**arguments))[0]

    def consume(self, job: Job, result: Any = None) -> Outcome:
        return self._act(Verb.CONSUME, [job], lambda: _claim(job).consume(result=result), [result])[0]

    def trash(self, job: Job, **arguments: Any) -> Outcome:
        return self._act(Verb.TRASH, [job], lambda: _claim(job).trash(**arguments))[0]

    def consume_many(self, jobs: Sequence[Job], who: str) -> list[Outcome]:
        return self._act(Verb.CONSUME, jobs, lambda: self.board.consume_many(jobs, who))

    def consume_with(self, jobs: Sequence[Job], who: str, results: Sequence[Any]) -> list[Outcome]:
        acts = [Act(job, Verb.CONSUME, result=result) for job, result in zip(jobs, results, strict=True)]
        return self._act(Verb.CONSUME, jobs, lambda: self.board.finish_many(acts, who), results)

    def release(self, job: Job) -> Outcome:
        return self._act(Verb.RELEASE, [job], lambda: self.board.release(job))[0]

    def stop(self, job: Job) -> Outcome:
        return self._act(Verb.STOP, [job], lambda: self.board.cancel(job, running=True))[0]

    def _act(
        self, verb: Verb, jobs: Sequence[Job], act: Callable[[], object], results: Sequence[Any] | None = None
    ) -> list[Outcome]:
        began = boottime()
        entries = []
        for job, result in zip(jobs, results or [None] * len(jobs), strict=True):
            token = job.claim.token if job.claim is not None and verb not in (Verb.RELEASE, Verb.STOP) else None
            keeps = verb == Verb.CONSUME and self.board.options["keep_done"] > 0
            entry = HistoryEntry(began, math.inf, self.process, verb, job.uuid, "unknown", token, keeps=keeps)
            entry = entry._replace(result=result)
            entries.append((self._put(entry), job, entry))
        # By the handle: of two claims of one job, one may have ended.
        failed: dict[int, JobBoardError] = {}
        try:
            act()
        except JobFailures as failures:
            failed = {id(getattr(error, "job")): error for error in failures.exceptions}  # type: ignore[misc]  # noqa: B009
        except JobBoardError as error:
            failed = {id(job): error for job in jobs}
        self.failures += failed.values()
        ended = boottime()
        outcomes: list[Outcome] = []
        for number, job, entry in entries:
            outcome: Outcome = "ok"
            if (failure := failed.get(id(job))) is not None:
                unknown = isinstance(failure, ConnectionFailure) and failure.outcome == "unknown"
                outcome = "unknown" if unknown else "refused"
            until = job.claim.deadline if verb == Verb.EXTEND and job.claim is not None else None
            ready = job.seen_state == UNCLAIMED
            self._write(number, entry._replace(ended=ended, outcome=outcome, until=until, ready=ready))
            outcomes.append(outcome)
        return outcomes

    def _put(self, entry: HistoryEntry) -> int:
        number = next(self._numbers)
        self._write(number, entry)
        return number


def _claim(job: Job) -> Any:
    assert job.claim is not None
    return job.claim


def to_file(path: Path) -> Write:
    """Writes entries as lines of JSON, each one handed to the system at once, so that a SIGKILL loses none."""
    path.touch()
    lock = threading.Lock()

    def write(number: int, entry: HistoryEntry) -> None:
        # Opened for each line: who writes has no end at which to close it.
        with lock, path.open("a") as file:
            file.write(json.dumps([number, entry.as_dict()]) + "\n")

    return write


def from_files(paths: Iterable[Path]) -> list[HistoryEntry]:
    """Return the entries of all these files. A line that SIGKILL has cut off is left out."""
    entries: list[HistoryEntry] = []
    for path in paths:
        latest: dict[int, HistoryEntry] = {}
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                number, entry = json.loads(line)
                latest[number] = HistoryEntry.from_dict(entry)
        entries += latest.values()
    return entries


def left_on(board: JobBoard) -> Mapping[str, LeftJob]:
    """Return all jobs on a board and in its trash, and the outcomes. Jobs that are still there come last."""
    left = {each.uuid: LeftJob(each.job.seen_state, each.job.record.token, each.result) for each in board.outcomes()}
    there = (job for jobs in (board.iterjobs(ensure_fresh=True), board.trashed()) for job in jobs)
    return left | {job.uuid: LeftJob(job.seen_state, job.record.token) for job in there}
