"""Side records whose time has gone by: looked for among all of their kinds, as nothing else leads to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobboard.backends.etcd.keys import end_of, unpack_side
from jobboard.backends.etcd.requests import AT_MOST, delete, is_at, span, within
from jobboard.engine import LAPSING, turns

if TYPE_CHECKING:
    from jobboard.backends.etcd.store import EtcdStore

MOST = 2000
"""How many one tidying meets, at most, that stay: what is behind them is for the next one."""


class LapsedSides:
    def __init__(self, store: EtcdStore) -> None:
        self._store = store
        self._folders = [store.keys.side(kind, "") for kind in LAPSING]
        self._begin()

    def _begin(self) -> None:
        self._left = self._folders[:]
        self._start = self._left[0]

    def tidy(self, now: int, seconds: float) -> bool:
        """Drop some, from where the last tidying has stopped; whether there may be more."""
        link, met = self._store.link, 0
        for _ in turns(seconds):
            [kvs] = link.read([span(self._start, end_of(self._left[0]), AT_MOST)]).found
            sides = [(kv, unpack_side("", "", kv.value, kv.revision)) for kv in kvs]
            over = [kv for kv, side in sides if side.until is not None and side.until <= now]
            if over:
                link.txn((), [within([is_at(kv.key, kv.revision)], [delete(kv.key)]) for kv in over])
            met += len(kvs) - len(over)
            if len(kvs) == AT_MOST:
                self._start = f"{kvs[-1].key} "
            elif len(self._left) > 1:
                del self._left[0]
                self._start = self._left[0]
            else:
                self._begin()
                return False
            if met >= MOST:
                return False
        return True
