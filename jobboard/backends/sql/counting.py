"""Counting of claims that stood before a limit was set: they enter the lists of their scopes."""

from __future__ import annotations

from collections.abc import Mapping

from jobboard.engine import SCOPE, Committer, Limits, Listed, Mark, Stale
from jobboard.primitives import HELD_UNTIL, Limit
from jobboard.states import CLAIMED, settle

PAGE = 500


def enter_standing(committer: Committer, limit: Limit) -> None:
    """List the claims that stand now. Each claim that begins since the limit was set enters its scopes by itself."""
    limits, after = Limits([limit]), None
    while True:
        now, page = committer.store.page(after, PAGE, [limit.name], frozenset({CLAIMED}))
        inside: dict[str, dict[str, int]] = {}
        for stored in page:
            record = settle(stored.record, now)
            # A mover holds its copies so that nobody works on them: that is no claim.
            counts = record.state == CLAIMED and record.lock_until != HELD_UNTIL
            for scope in limits.scopes(record) if counts else ():
                inside.setdefault(scope.key, {})[record.uuid] = record.token
        for key, claims in inside.items():
            _enter(committer, key, claims)
        # Where it stops early it does so with a job that was not asked for.
        if not page or (len(page) < PAGE and record.state == CLAIMED and record.name == limit.name):
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
