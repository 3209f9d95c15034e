"""Ends of claims, planned from jobs that were read, or from recent claims of this engine."""

from __future__ import annotations

from collections.abc import Sequence

from jobboard import runtime
from jobboard.engine.answers import Deed
from jobboard.engine.committer import Plan, change_by, record_at, worn_at
from jobboard.engine.keys import NO_HOLDERS, Holders
from jobboard.engine.outcomes import KIND, StoredOutcome, outcome_mark
from jobboard.engine.store import GATE, Change, Found, Mark, Side, Stale, Stored
from jobboard.primitives import Finish
from jobboard.states import CLAIMED, CONSUME, FINISHES, OK, Status, Verb
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


class HeldJobs:
    """The jobs of a call that other transactions hold: a commit that does not wait was refused for them, though they
    have not changed."""

    def __init__(self) -> None:
        self._refused: frozenset[str] = frozenset()
        self._tags: dict[str, object] = {}
        self._held: set[str] = set()

    def note_refusal(self, stale: Stale) -> None:
        """Take note of the refusal of a try."""
        self._refused = stale.uuids

    def without(self, found: Found) -> Found:
        """Return a reading without the jobs that are held."""
        for stored in found.jobs:
            if stored is not None:
                uuid = stored.record.uuid
                if uuid in self._refused and self._tags.get(uuid) == stored.tag:
                    self._held.add(uuid)
                self._tags[uuid] = stored.tag
        self._refused = frozenset()
        return found._replace(jobs=[None if each and each.record.uuid in self._held else each for each in found.jobs])

    def judged(self, plan: Plan) -> Plan:
        """Return a plan with the status of the jobs that are held."""
        deeds = [deed._replace(status=Status.HELD) if deed.uuid in self._held else deed for deed in plan.deeds]
        return plan._replace(deeds=deeds)


def restored_keys(acts: Sequence[Finish], found: Found) -> list[str]:
    """Return the keys that jobs take back by these acts."""
    pairs = zip(acts, found.jobs, strict=True)
    restored = (stored.record.key for act, stored in pairs if stored and act.end.verb == Verb.RESTORE)
    return list(dict.fromkeys(key for key in restored if key is not None))


def purged_outcomes(acts: Sequence[Finish], found: Found) -> list[tuple[str, str]]:
    """Return the kinds and keys of the outcomes that these acts may purge: those of absent jobs."""
    pairs = zip(acts, found.jobs, strict=True)
    return [(KIND, act.uuid) for act, stored in pairs if stored is None and act.end.verb == Verb.PURGE]


def purge_outcome(act: Finish, side: Side | None, now: int) -> tuple[Status, Mark | None]:
    """Purge an outcome that still is as it was seen. No mark of a purge is left: the job stays COMPLETE."""
    done = StoredOutcome.of(side) if side is not None and side.is_valid(now) else None
    if done is None or side is None:
        return Status.ABSENT, None
    if (done.record.who or "", done.record.token) != act.holder:
        return Status.LOST, None
    return OK, Mark(side, None)


def plan_ends(acts: Sequence[Finish], found: Found, holders: Holders = NO_HOLDERS) -> Plan:
    """Return the plan of these acts on the jobs that were found for them. The plan relies on the gate, if found.

    :param holders: the holders of the keys that jobs take back.
    """
    taken = dict(holders.by_key)
    before = {act.uuid: stored for act, stored in zip(acts, found.jobs, strict=True)}
    # A batch may have two acts on a job. The second act meets the record that the first has made.
    after = {uuid: record_at(stored, found.now) for uuid, stored in before.items()}
    touched: dict[str, Verb] = {}
    done = []
    left = {side.key: side for side in found.sides if side.kind == KIND}
    marks: list[Mark] = []
    for act in acts:
        stood = after[act.uuid]
        status, record = act.applied_to(stood, found.now)
        if record is not None and record.key is not None and status == OK and act.end.verb == Verb.RESTORE:
            status = OK if taken.setdefault(record.key, act.uuid) == act.uuid else Status.KEY
        if before[act.uuid] is None and act.end.verb == Verb.PURGE:
            status, purged = purge_outcome(act, left.pop(act.uuid, None), found.now)
            marks += [purged] if purged is not None else []
        elif status == OK:
            if act.keep and act.end.verb == CONSUME and stood is not None:
                marks.append(outcome_mark(act, stood, found.now, left.get(act.uuid)))
            after[act.uuid] = record
            touched[act.uuid] = act.end.verb
        done.append(Deed(status, act.uuid))
    changes: list[Change] = [
        change_by(verb, stored, after[uuid]) for uuid, verb in touched.items() if (stored := before[uuid]) is not None
    ]
    marks += [
        Mark(side, b"", PURGE_REMEMBERED)
        for side in found.sides
        if side.kind == "purged" and touched.get(side.key) == Verb.PURGE
    ]
    # A job of these acts may itself be the holder whose lapse has freed a key.
    freed = [change for change in holders.freed if change.before and change.before.record.uuid not in touched]
    checks = [side for side in found.sides if side.kind == GATE[0]]
    changes = [*freed, *changes]
    return Plan(changes, done, holders.sides, marks, checks=checks, before=worn_at(before.values(), found.now))
