"""Rules as they are set, and what becomes free when claims end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence

from oslo_utils import uuidutils

from jobboard.engine.calls import Committer, Deed, EnginePart, Plan, standing
from jobboard.engine.finding import Finder
from jobboard.engine.limits import SCOPE, Limits, LimitScope, Listed
from jobboard.engine.rules import GATE, Rules, SetLimit
from jobboard.engine.store import Mark, Stale
from jobboard.exceptions import ConnectionFailure
from jobboard.primitives import HELD_UNTIL, Limit, Nonce
from jobboard.states import CLAIMED, OK, Record, Status

LOG = logging.getLogger(__name__)

PAGE = 500

MOST = 10_000
"""Of how many claims an engine remembers which scopes they are in."""


class Entered:
    """In which scopes the claims are that this engine has made, so that those who wait for a slot there can be woken
    when one of them ends. Who has waited for longer than a lease looks by itself."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._lock = threading.Lock()
        self._scopes: dict[str, Sequence[LimitScope]] = {}

    def __bool__(self) -> bool:
        return bool(self._scopes)

    def learn(self, entered: Mapping[str, Sequence[LimitScope]]) -> None:
        with self._lock:
            self._scopes.update(entered)
            while len(self._scopes) > MOST:
                del self._scopes[next(iter(self._scopes))]

    def of(self, uuids: Iterable[str]) -> dict[str, Sequence[LimitScope]]:
        return {uuid: scopes for uuid in uuids if (scopes := self._scopes.get(uuid))} if self._scopes else {}

    def left(self, uuids: Iterable[str]) -> None:
        """Claims of these jobs have ended, and are in no list any more."""
        with self._lock:
            for uuid in uuids:
                self._scopes.pop(uuid, None)

    def freed(self, uuids: Iterable[str]) -> None:
        """Claims of these jobs have ended."""
        # Nothing is locked, and nothing asked, where no limit is set.
        if not self._scopes:
            return
        with self._lock:
            left = {uuid: scopes for uuid in uuids if (scopes := self._scopes.pop(uuid, None))}
        if left:
            try:
                self._free(left)
            except ConnectionFailure as error:
                LOG.info("nobody could be told that slots are free: %s", error)

    def _free(self, left: Mapping[str, Sequence[LimitScope]]) -> None:
        """Take what has ended from lists that are full, and wake those who wait."""
        keys = dict.fromkeys(scope.key for each in left.values() for scope in each if scope.limit.concurrency)
        store = self._committer.store
        for _ in self._committer.tries():
            gate, *sides = store.read([], [GATE, *((SCOPE, key) for key in keys)]).sides
            # It may have been set anew since these claims began.
            rules = Rules.of(gate)
            full = {
                side: listed
                for side in sides
                if (most := rules.concurrency(side.key)) and len((listed := Listed.of(side)).claims) >= most
            }
            # Others may have claimed these jobs since; read by the same request, a job may be older than its list.
            jobs = store.read(list(left)).jobs if full else ()
            live = {
                (stored.record.uuid, stored.record.token)
                for stored in jobs
                if stored and stored.record.state == CLAIMED
            }
            marks = []
            for side, listed in full.items():
                claims = tuple(claim for claim in listed.claims if claim[0] not in left or claim in live)
                if len(claims) < len(listed.claims):
                    marks.append(Mark(side, listed._replace(claims=claims).packed(), wakes=True))
            try:
                if marks:
                    self._committer.commit([], marks)
            except Stale:
                continue
            return


class LimitEngine(EnginePart):
    """What :class:`~jobboard.engine.StoreEngine` has of an engine's primitives for rules."""

    _finder: Finder
    _entered: Entered

    def _freed(self, uuids: Iterable[str]) -> None:
        """Claims of these jobs have ended."""
        self._entered.freed(uuids)

    def rules(self) -> Rules:
        self._call(None)
        return self._finder.rules()

    def pause(self, names: Sequence[str] | None) -> None:
        self._call(None)
        self._finder.rule(lambda rules: rules.pause(names))

    def resume(self, names: Sequence[str] | None) -> None:
        self._call(None)
        self._finder.rule(lambda rules: rules.resume(names))

    def set_limit(self, limit: Limit) -> None:
        committer = self._call(None)
        setting = uuidutils.generate_uuid(dashed=False)
        bound = self._finder.rule(lambda rules: rules.limit(limit, setting)).found(limit.name, limit.per)
        if bound is None:
            return
        committer.store.settled(bound.limit.binding)
        if bound.limit.binding:
            return
        # From now on each claim that begins enters its scope. Those that stood before are entered here.
        _enter_standing(committer, bound)
        self._finder.rule(lambda rules: rules.counted(bound.setting))

    def remove_limit(self, name: str, per: str | None, nonce: Nonce) -> Status:
        committer = self._call(nonce)

        def plan() -> Plan:
            [gate] = committer.store.read([], [GATE]).sides
            rules = Rules.of(gate)
            left = rules.unlimit(name, per)
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
