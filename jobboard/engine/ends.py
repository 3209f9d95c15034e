"""Ends of claims, decided from jobs that were read, or from claims that this engine has stored a moment ago."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from jobboard.engine.answers import Deed
from jobboard.engine.calls import Plan, change_by, standing
from jobboard.engine.outcomes import KIND, kept
from jobboard.engine.store import GATE, Change, Found, Mark, Stored
from jobboard.primitives import Finish
from jobboard.states import CLAIMED, CONSUME, FINISHES, OK, Verb

DAY = 24 * 3600 * 1_000_000
"""For how many µs a purged job is remembered."""

MOST = 500
"""How many claims an engine remembers: those of a few batches."""


class Recent:
    """The latest claims of this engine, as it has stored them: to end one takes one request, not two.

    The claims may have changed since. The commit that ends one compares its tag, and if that is refused, reads it."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._lock = threading.Lock()
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
        """Return the claims that these acts end, once; None unless all of them are known.

        A job whose lapse leads to the trash has to be read: it is trashed when the lease ends, stored or not."""
        with self._lock:
            claims = [self._claims.pop(act.uuid, None) for act in acts]
        known = [stored for stored in claims if stored is not None and not stored.record.exhausted]
        return known if len(known) == len(acts) and all(act.end.verb in FINISHES for act in acts) else None


def ending(acts: Sequence[Finish], found: Found) -> Plan:
    """Return what these acts make of the jobs that were found for them. The plan relies on the gate, if that was found
    too."""
    before = {act.uuid: stored for act, stored in zip(acts, found.jobs, strict=True)}
    # A job may stand twice in a batch: the second act meets what the first has made of it.
    after = {uuid: standing(stored, found.now) for uuid, stored in before.items()}
    touched: dict[str, Verb] = {}
    done = []
    left = {side.key: side for side in found.sides if side.kind == KIND}
    marks = []
    for act in acts:
        stood = after[act.uuid]
        status, record = act.applied_to(stood, found.now)
        if status == OK:
            if act.keep and act.end.verb == CONSUME and stood is not None:
                marks.append(kept(act, stood, found.now, left.get(act.uuid)))
            after[act.uuid] = record
            touched[act.uuid] = act.end.verb
        done.append(Deed(status, act.uuid))
    changes: list[Change] = [
        change_by(verb, stored, after[uuid]) for uuid, verb in touched.items() if (stored := before[uuid]) is not None
    ]
    marks += [Mark(side, b"", DAY) for side in found.sides if touched.get(side.key) == Verb.PURGE]
    return Plan(changes, done, marks=marks, checks=[side for side in found.sides if side.kind == GATE[0]])
