"""Outcomes: side records that two further keys lead to, one by when the job ended, one by when the outcome does."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

from jobboard.backends.etcd.keys import end_of
from jobboard.backends.etcd.requests import delete, get, put, span
from jobboard.engine import Done, Found, Side, turns

if TYPE_CHECKING:
    from jobboard.backends.etcd.store import EtcdStore

_DROPPED = 40
"""How many one Txn drops; each has three keys."""

_WIDE = 4_000_000
"""How long the first time is that is looked at for what has ended in it, in µs."""

_WIDEST = 32_000_000
"""The longest such time: what has ended in it is what one read costs at most."""

_MANY = 200
"""From how many on, that have ended in such a time, a shorter one is looked at next."""

_SLACK = 60_000_000
"""By how much the clock may have been behind of one who has kept something, in µs."""


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
        """Drop what has ended, some at a time; whether there may be more. A range that etcd reads costs by all that
        lies in it, so what is read are short ones, from where the last one has stopped who dropped some."""
        store, keys = self._store, self._store.keys
        [known] = store.link.read([get(keys.kept_since)]).found
        since = start = int(known[0].value, 16) - _SLACK if known else 0
        wide = _WIDE if known else now
        for _ in turns(seconds):
            end = min(start + wide, now)
            ended = span(f"{keys.dropped}{start:014x}", f"{keys.dropped}{end:014x}", _DROPPED)
            answer = store.link.read([ended])
            [kvs], [count] = answer.found, answer.counts
            over: list[str] = []
            for kv in kvs:
                uuid = unquote(kv.key.rpartition("/")[2])
                over += [delete(kv.key), delete(kv.value.decode()), delete(keys.side("outcome", uuid))]
            if over:
                store.link.txn((), over)
            if len(kvs) < count:
                start = int(kvs[-1].key[len(keys.dropped) :][:14], 16)
                wide = min(wide, _WIDE) if count < _MANY else max(1, min(wide, _WIDE) // 2)
            else:
                start, wide = end, min(2 * wide, _WIDEST)
            if start >= now:
                break
        if start > since + 2 * _SLACK:
            store.link.txn((), [put(keys.kept_since, b"%014x" % start)])
        return start < now
