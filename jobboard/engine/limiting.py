"""Rules as they are set, and what becomes free when claims end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

from oslo_utils import uuidutils

from jobboard.engine.calls import Committer, Deed, EnginePart, Plan, standing
from jobboard.engine.finding import Finder
from jobboard.engine.limits import SCOPE, Grouped, Limits, LimitScope, Listed
from jobboard.engine.rules import GATE, Rules, SetLimit
from jobboard.engine.store import Mark, Side, Stale
from jobboard.exceptions import JobBoardError, JobFailure
from jobboard.primitives import HELD_UNTIL, Limit, Nonce, Oddity
from jobboard.states import CLAIMED, OK, Record, Status

LOG = logging.getLogger(__name__)

PAGE = 500


class LimitEngine(EnginePart):
    """What :class:`~jobboard.engine.StoreEngine` has of an engine's primitives for rules."""

    _finder: Finder

    def _freed(self, jobs: Sequence[Grouped], gate: Sequence[Side]) -> None:
        """Claims of these jobs have ended, whatever is in the way here. Those who wait for their slots are woken.

        :param gate: as it was then; none: it is yet to be read."""
        if not jobs:
            return
        try:
            ruled = self._finder.ruled_by(gate[0]) if gate else self._finder.newest()
            if left := ruled.limits.left(jobs):
                _free(self._call(None), left)
        except JobBoardError as error:
            LOG.info("nobody could be told that slots are free: %s", error)

    def _odd_gate(self, place: str) -> Iterator[Oddity]:
        try:
            self._finder.rules()
        except JobFailure as error:
            yield Oddity(place, str(error), "delete it, and set pauses and limits anew")

    def rules(self) -> Rules:
        self._call(None)
        return self._finder.rules()

    def pause(self, names: Sequence[str] | None, nonce: Nonce) -> None:
        self._rule(lambda rules: rules.pause(names), nonce)

    def resume(self, names: Sequence[str] | None, nonce: Nonce) -> None:
        self._rule(lambda rules: rules.resume(names), nonce)

    def set_limit(self, limit: Limit, nonce: Nonce) -> None:
        setting = uuidutils.generate_uuid(dashed=False)
        self._rule(lambda rules: rules.limit(limit, setting), nonce)
        # A repetition goes on from what its first try has set, and from what others have made of that since.
        bound = self._finder.rules().found(limit.name, limit.per)
        if bound is None:
            return
        committer = self._call(None)
        committer.store.settled(bound.limit.binding)
        if bound.limit.binding:
            return
        # From now on each claim that begins enters its scope. Those that stood before are entered here.
        _enter_standing(committer, bound)
        self._finder.bind(bound.setting)

    def remove_limit(self, name: str, per: str | None, nonce: Nonce) -> Status:
        return self._rule(lambda rules: rules.unlimit(name, per), nonce)

    def _rule(self, change: Callable[[Rules], Rules], nonce: Nonce) -> Status:
        """Change the rules, once; ABSENT: they were so before. That there are none has no tag of its own: a first try
        that is late would meet it again, so that it is the answer of its call that keeps it from acting."""
        committer = self._call(nonce)

        def plan() -> Plan:
            [gate] = committer.store.read([], [GATE]).sides
            rules = Rules.of(gate)
            left = change(rules)
            if left == rules:
                return Plan([], [Deed(Status.ABSENT, "")])
            return Plan([], [Deed(OK, "")], marks=[Mark(gate, left.packed(), wakes=True)])

        return committer.do(nonce, plan).done[0].status

    def open_to_claims(self, jobs: Sequence[Record]) -> set[str]:
        self._call(None)
        return self._finder.open_to_claims(jobs)


def _enter_standing(committer: Committer, bound: SetLimit) -> None:
    limits, name, after = Limits([bound]), bound.limit.name, None
    while True:
        now, page = committer.store.page(after, PAGE, [name], frozenset({CLAIMED}))
        inside: dict[str, dict[str, int]] = {}
        for stored in page:
            record = standing(stored, now)
            # A mover holds its copies so that nobody works on them: that is no claim.
            counts = record.state == CLAIMED and record.lock_until != HELD_UNTIL
            for scope in limits.scopes(record) if counts else ():
                inside.setdefault(scope.key, {})[record.uuid] = record.token
        for key, claims in inside.items():
            _enter(committer, key, claims)
        # Where it stops early it does so with a job that was not asked for.
        if not page or (len(page) < PAGE and record.state == CLAIMED and record.name == name):
            return
        after = page[-1].record


def _enter(committer: Committer, key: str, claims: Mapping[str, int]) -> None:
    """A try that is late does no harm: where it finds no list, it lists claims that have ended, as any list may."""
    for _ in committer.tries():
        [side] = committer.store.read([], [(SCOPE, key)]).sides
        listed = Listed.of(side)
        told = dict(listed.claims)
        # What is listed with a later token has begun since.
        more = {uuid: token for uuid, token in claims.items() if told.get(uuid, -1) < token}
        if not more:
            return
        try:
            committer.commit([], [Mark(side, listed._replace(claims=tuple((told | more).items())).packed())])
        except Stale:
            continue
        return


def _free(committer: Committer, left: Mapping[str, Sequence[LimitScope]]) -> None:
    """Take claims that have ended from lists that were full, and wake those who wait. Who has waited for longer than a
    lease looks by itself."""
    jobs_of: dict[str, set[str]] = {}
    for uuid, scopes in left.items():
        for scope in scopes:
            jobs_of.setdefault(scope.key, set()).add(uuid)
    store = committer.store
    for _ in committer.tries():
        gate, *sides = store.read([], [GATE, *((SCOPE, key) for key in jobs_of)]).sides
        # It may have been set anew since these claims ended.
        rules = Rules.of(gate)
        full = []
        for side in sides:
            limit, listed = rules.of_scope(side.key), Listed.of(side)
            # What has ended a claim may have taken it from the list, and have woken nobody.
            gone = jobs_of[side.key].difference(uuid for uuid, _ in listed.claims)
            if limit and limit.concurrency and len(listed.claims) + len(gone) >= limit.concurrency:
                full.append((side, listed, gone))
        # Others may have claimed these jobs since; read by the same request, a job may be older than its list.
        jobs = store.read(list(left)).jobs if full else ()
        live = {
            (stored.record.uuid, stored.record.token) for stored in jobs if stored and stored.record.state == CLAIMED
        }
        marks = []
        for side, listed, gone in full:
            claims = tuple(claim for claim in listed.claims if claim[0] not in left or claim in live)
            if gone or len(claims) < len(listed.claims):
                marks.append(Mark(side, listed._replace(claims=claims).packed(), wakes=True))
        try:
            if marks:
                committer.commit([], marks)
        except Stale:
            continue
        return
