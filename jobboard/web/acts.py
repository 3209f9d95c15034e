"""Acts of a visitor on jobs: on one, on chosen ones, and on all that a search finds, in steps of a few seconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from jobboard import runtime
from jobboard.board import JobBoard
from jobboard.exceptions import NotFound
from jobboard.finding import Acted, OperatorVerb
from jobboard.job import Job
from jobboard.states import CLAIMED, COMPLETE, SCHEDULED, TRASHED, UNCLAIMED, State

SECONDS = 2.0
"""The time of one step. A visitor sees how far the steps have come, and may end them."""

BATCH_LOOKED = 2_000
"""The number of jobs that a batch of a step looks at."""

NAMED = 5
"""The number of jobs that were left whose reasons are shown."""

WORDS = {UNCLAIMED: "waiting", SCHEDULED: "delayed", CLAIMED: "running", TRASHED: "trash", COMPLETE: "done"}
"""The words of the page for states, also in its addresses."""

STATES = {word: state for state, word in WORDS.items()}


@dataclass(frozen=True)
class JobAct:
    """An act on jobs.

    verb, running: of :meth:`JobBoard.act <jobboard.board.JobBoard.act>`. label, question, done, about: its words.
    states: of the jobs that have it. is_asked: one job needs a confirmation, too. is_danger: it takes something away.
    """

    verb: OperatorVerb
    label: str
    question: str
    done: str
    about: str
    states: frozenset[State]
    is_asked: bool = True
    is_danger: bool = False
    running: bool = False


ACTS = {
    "restore": JobAct(
        "restore",
        "Restore",
        "Restore {}?",
        "restored",
        "The jobs go back to their old places, with all their attempts.",
        frozenset({TRASHED}),
        is_asked=False,
    ),
    "again": JobAct(
        "post_again",
        "Post again",
        "Post {} again?",
        "posted again",
        "New jobs get the names, details, priorities and groups. The old ones stay as they are.",
        frozenset({TRASHED, COMPLETE}),
    ),
    "purge": JobAct(
        "purge",
        "Purge",
        "Purge {}?",
        "purged",
        "Purged jobs are gone for good.",
        frozenset({TRASHED, COMPLETE}),
        is_danger=True,
    ),
    "cancel": JobAct(
        "cancel",
        "Cancel",
        "Cancel {}?",
        "cancelled",
        "Cancelled jobs go to the trash, from where they can be restored.",
        frozenset({UNCLAIMED, SCHEDULED}),
        is_danger=True,
    ),
    "stop": JobAct(
        "cancel",
        "Stop",
        "Stop {}?",
        "stopped",
        "Stopped jobs go to the trash. Workers learn by their next heartbeat that they have lost them.",
        frozenset({CLAIMED}),
        is_danger=True,
        running=True,
    ),
    "release": JobAct(
        "release",
        "Release",
        "Release {}?",
        "released",
        "The holders lose the jobs, and other workers may begin them at once. Later acts of the holders are refused.",
        frozenset({CLAIMED}),
        is_danger=True,
    ),
}


@dataclass(frozen=True)
class Filters:
    """The conditions of a search, as they stand in an address. A cause has no field of its own in forms.

    The cause of jobs without a reason is empty. None: any.
    """

    name: str | None = None
    error: str | None = None
    group: str | None = None
    key: str | None = None
    owner: str | None = None
    cause: str | None = None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Filters:
        """Return the conditions in the query of an address."""
        texts = {each.name: given.get(each.name) or None for each in fields(cls)}
        return cls(**{**texts, "cause": given.get("cause")})

    def given(self) -> dict[str, str]:
        """Return the conditions that are set."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def arguments(self, state: State) -> dict[str, Any]:
        """Return the arguments of :meth:`find_page <jobboard.board.JobBoard.find_page>`."""
        conditions: dict[str, Any] = self.given()
        name = conditions.pop("name", None)
        return {"states": [state], "names": None if name is None else [name], **conditions}


@dataclass
class ActTally:
    """The outcome of an act so far: the numbers of jobs that were acted on and left, and reasons of some left ones."""

    done: int = 0
    left: int = 0
    reasons: list[str] = field(default_factory=list)

    def leave(self, errors: Iterable[object]) -> None:
        """Count jobs that were left."""
        for error in errors:
            self.left += 1
            if len(self.reasons) < NAMED:
                self.reasons.append(str(error)[:200])

    def add(self, acted: Acted | None) -> None:
        """Count the outcome of a batch; None: it is unknown."""
        if acted is not None:
            self.done += acted.done
            self.leave(acted.skipped)

    def sentence(self, act: JobAct) -> str:
        """Return the outcome in words."""
        said = f"{self.done:,} job{'' if self.done == 1 else 's'} {act.done}."
        if self.left:
            more = self.left - len(self.reasons)
            reasons = "; ".join(self.reasons) + (f"; and {more:,} more" if more > 0 else "")
            said += f" {self.left:,} {'was' if self.left == 1 else 'were'} left: {reasons}."
        return said


def act_on_chosen(
    board: JobBoard, act: JobAct, chosen: Sequence[tuple[str, int]], reason: str, tally: ActTally
) -> None:
    """Act on the jobs of these uuids that still have these tokens."""
    jobs = []
    for (uuid, token), job in zip(chosen, jobs_of(board, [uuid for uuid, _ in chosen]), strict=True):
        if job is None:
            tally.leave([f"job {uuid} is gone"])
        elif job.token != token:
            tally.leave([f"{job} has changed since it was shown"])
        elif job.seen_state not in act.states:
            tally.leave([f"{job} is {WORDS[job.seen_state]} now"])
        else:
            jobs.append(job)
    _act(board, act, jobs, reason, tally)


def act_on_found(
    board: JobBoard,
    act: JobAct,
    search: Mapping[str, Any],
    by: float,
    place: str | None,
    reason: str,
    tally: ActTally,
) -> str | None:
    """Act on the jobs that a search finds, for some seconds. Return the place from which the next step goes on.

    :param search: the arguments of the search.
    :param by: the server's time in seconds. Jobs that have changed since stay as they are.
    """
    end = runtime.monotonic() + SECONDS
    while True:
        # The place keeps a step from meeting jobs again that were left.
        page = board.find_page(100, after=place, at_most=BATCH_LOOKED, **search)
        jobs = [job for job in page.jobs if job.last_modified.timestamp() <= by]
        _act(board, act, jobs, reason, tally)
        place = page.after
        if place is None or runtime.monotonic() >= end:
            return place


def _act(board: JobBoard, act: JobAct, jobs: Sequence[Job], reason: str, tally: ActTally) -> None:
    tally.add(board.act(act.verb, jobs, reason=reason, running=act.running))


def jobs_of(board: JobBoard, uuids: Sequence[str]) -> list[Job | None]:
    """Return the jobs of these uuids; None for each that is gone."""
    found: list[Job | None] = []
    for uuid, seen in zip(uuids, board.engine.read(list(uuids)), strict=True):
        if seen.record is not None:
            found.append(Job(board, seen.record, seen.record.posting, seen.state))
            continue
        try:
            found.append(board.get(uuid))
        except NotFound:
            found.append(None)
    return found
