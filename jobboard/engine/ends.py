"""Ends of claims, planned from jobs that were read, or from recent claims of this engine."""

from __future__ import annotations

from collections.abc import Sequence

from jobboard import runtime
from jobboard.engine.answers import Deed
from jobboard.engine.committer import Plan, change_by, record_at, worn_at
from jobboard.engine.outcomes import KIND, outcome_mark
from jobboard.engine.store import GATE, Change, Found, Mark, Stored
from jobboard.primitives import Finish
from jobboard.states import CLAIMED, CONSUME, FINISHES, OK, Verb
from jobboard.units import HOUR

PURGE_REMEMBERED = 24 * HOUR
"""The µs for which a purged job is remembered."""

MOST_RECENT = 500
"""The most claims that an engine remembers: a few batches."""


class Recent:
    """The recent claims of this engine as stored, so that the end of a claim takes one request and not two.

    Others may have changed the claims. The commit of an end compares the tag, and a refused end reads the job."""

    def __init__(self, most: int = MOST_RECENT) -> None:
        self._most = most
        self._lock = runtime.Lock()
        self._claims: dict[str, Stored] = {}

    def learn(self, jobs: Sequence[Stored]) -> None:
        claims = {stored.record.uuid: stored for stored in jobs if stored.record.state == CLAIMED}
        if not claims:
            return
        with self._lock:
            self._claims.update(claims)
            while len(self._claims) > self._most:
                del self._claims[next(iter(self._claims))]

    def pop(self, acts: Sequence[Finish]) -> list[Stored] | None:
        """Remove and return the claims that these acts end; None unless all of them are known.

        A job whose lapse leads to the trash has to be read: the job is trashed at the end of its lease. So has the job
        of an act by the owner's name: a lapsed claim has no owner, and a session may have ended unseen."""
        with self._lock:
            claims = [self._claims.pop(act.uuid, None) for act in acts]
        known = [stored for stored in claims if stored is not None and not stored.record.exhausted]
        return known if len(known) == len(acts) and all(map(is_plain_end, acts)) else None


def is_plain_end(act: Finish) -> bool:
    """Return whether an act ends a claim by its token."""
    return act.end.verb in FINISHES and act.holder.token is not None


def plan_ends(acts: Sequence[Finish], found: Found) -> Plan:
    """Return the plan of these acts on the jobs that were found for them. The plan relies on the gate, if found."""
    before = {act.uuid: stored for act, stored in zip(acts, found.jobs, strict=True)}
    # A batch may have two acts on a job. The second act meets the record that the first has made.
    after = {uuid: record_at(stored, found.now) for uuid, stored in before.items()}
    touched: dict[str, Verb] = {}
    done = []
    left = {side.key: side for side in found.sides if side.kind == KIND}
    marks = []
    for act in acts:
        stood = after[act.uuid]
        status, record = act.applied_to(stood, found.now)
        if status == OK:
            if act.keep and act.end.verb == CONSUME and stood is not None:
                marks.append(outcome_mark(act, stood, found.now, left.get(act.uuid)))
            after[act.uuid] = record
            touched[act.uuid] = act.end.verb
        done.append(Deed(status, act.uuid))
    changes: list[Change] = [
        change_by(verb, stored, after[uuid]) for uuid, verb in touched.items() if (stored := before[uuid]) is not None
    ]
    marks += [Mark(side, b"", PURGE_REMEMBERED) for side in found.sides if touched.get(side.key) == Verb.PURGE]
    checks = [side for side in found.sides if side.kind == GATE[0]]
    return Plan(changes, done, marks=marks, checks=checks, before=worn_at(before.values(), found.now))
