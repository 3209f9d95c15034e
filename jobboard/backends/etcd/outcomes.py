"""Outcomes: side records that two further keys lead to, one by when the job ended, one by when the outcome does."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

from jobboard.backends.etcd.keys import end_of
from jobboard.backends.etcd.requests import delete, span
from jobboard.engine import Done, Found, Side, turns

if TYPE_CHECKING:
    from jobboard.backends.etcd.store import EtcdStore

_DROPPED = 40
"""How many one Txn drops; each has three keys."""


class OutcomeKeys:
    def __init__(self, store: EtcdStore) -> None:
        self._store = store

    def newest(self, kind: str, after: Side | None, limit: int) -> Found:
        """One that can't be read, or was written anew since, is passed over."""
        store, keys = self._store, self._store.keys
        last = None if after is None else Done.of(after)
        start = keys.done if last is None else keys.ended(last.record) + " "
        sides: list[Side] = []
        while len(sides) < limit:
            [kvs] = store.link.read([span(start, end_of(keys.done), limit, only="keys")]).found
            places = {unquote(kv.key.rpartition("/")[2]): kv.key for kv in kvs}
            for side in store.read([], [(kind, uuid) for uuid in places]).sides if places else ():
                done = Done.of(side)
                if done is not None and keys.ended(done.record) == places[side.key]:
                    sides.append(side)
            if len(kvs) < limit:
                break
            start = kvs[-1].key + " "
        return Found(store.clock.now(), [], sides[:limit])

    def tidy(self, now: int, seconds: float) -> bool:
        """Drop what has ended, some at a time; whether there may be more."""
        store, keys = self._store, self._store.keys
        for _ in turns(seconds):
            [kvs] = store.link.read([span(keys.dropped, f"{keys.dropped}{now:014x}", _DROPPED)]).found
            over: list[str] = []
            for kv in kvs:
                uuid = unquote(kv.key.rpartition("/")[2])
                over += [delete(kv.key), delete(kv.value.decode()), delete(keys.side("outcome", uuid))]
            if over:
                store.link.txn((), over)
            if len(kvs) < _DROPPED:
                return False
        return True
