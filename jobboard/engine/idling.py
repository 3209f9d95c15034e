"""What limits have counted goes when nobody counts on it: the side records of scopes in which no claim stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jobboard.engine.calls import Committer
from jobboard.engine.limits import SCOPE, Listed
from jobboard.engine.rules import GATE, Rules
from jobboard.engine.store import Mark, Side, Stale, turns
from jobboard.exceptions import JobFailure
from jobboard.states import CLAIMED

MOST = 2000
"""How many scopes one tidying meets, at most, that stay: what is behind them is for the next one."""

AT_ONCE = 40
"""How many of them one commit drops."""


class IdleScopes:
    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._place: Any = None
        self._begun = False

    def tidy(self, seconds: float) -> bool:
        """Drop some that are idle; whether there may be more."""
        if not self._begun:
            # Who connects does not wait for that.
            self._begun = True
            return False
        met = 0
        for _ in turns(seconds):
            found, self._place = self._committer.store.walk(SCOPE, self._place)
            met += len(found.sides) - self._drop(found.sides)
            if self._place is None or met >= MOST:
                return False
        return True

    def _drop(self, sides: Sequence[Side]) -> int:
        """How many of these have gone."""
        if not sides:
            return 0
        store = self._committer.store
        ruled = store.read([], [GATE])
        try:
            rules = Rules.of(ruled.sides[0])
        except JobFailure:
            return 0
        # A damaged one begins anew, and lists nothing.
        read = ((side, Listed.of(side)) for side in sides)
        forgotten = [
            (side, listed) for side, listed in read if not listed.remembers(rules.of_scope(side.key), ruled.now)
        ]
        uuids = list(dict.fromkeys(uuid for _, listed in forgotten for uuid, _ in listed.claims))
        # A claim that has lapsed, and of which nobody has written that down, may be extended by a call on its way.
        held = {
            (stored.record.uuid, stored.record.token)
            for stored in (store.read(uuids).jobs if uuids else ())
            if stored is not None and stored.record.state == CLAIMED
        }
        idle = [side for side, listed in forgotten if held.isdisjoint(listed.claims)]
        return sum(self._gone(idle[at : at + AT_ONCE], ruled.sides) for at in range(0, len(idle), AT_ONCE))

    def _gone(self, idle: Sequence[Side], checks: Sequence[Side]) -> int:
        """Who enters one meanwhile changes it; and the window of its rate may have been set anew."""
        try:
            self._committer.commit([], [Mark(side, None) for side in idle], checks=checks)
        except Stale:
            return 0 if len(idle) == 1 else sum(self._gone([side], checks) for side in idle)
        return len(idle)
