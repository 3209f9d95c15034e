"""Outcomes: side records that two further keys lead to, one by when the job ended, one by when the outcome does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import unquote

from jobboard.backends.etcd.keys import LAST
from jobboard.backends.etcd.requests import KV, delete, get, put, span
from jobboard.engine import Done, Found, Side, turns

if TYPE_CHECKING:
    from jobboard.backends.etcd.store import EtcdStore

_DROPPED = 40
"""How many one Txn drops; each has three keys."""

_WIDE = 4_000_000
"""How long the first time is that is looked at for what has ended in it, in µs."""

_WIDEST = 32_000_000
"""The longest one for who drops some: what he meets behind a time in which nothing has ended may be many."""

_MANY = 200
"""How many should have ended in such a time: where there are more, a shorter one is looked at next."""

_WIDER = 8
"""By what the next time is longer at most."""

_SLACK = 60_000_000
"""By how much the clock may have been behind of one who has kept something, in µs."""


class OutcomeKeys:
    def __init__(self, store: EtcdStore) -> None:
        self._store = store

    def newest(self, kind: str, after: Side | None, limit: int) -> Found:
        """One that can't be read, or was written anew since, is passed over."""
        store, keys = self._store, self._store.keys
        last = None if after is None else Done.of(after)
        now = store.clock.now()
        # A clock may have been ahead of this one.
        start = keys.done if last is None else keys.ended(last.record) + " "
        begun = LAST - (now if last is None else last.record.modified_on)
        sides: list[Side] = []
        for _, kvs in self._ranges(keys.done, start, begun, LAST, LAST, limit, only="keys"):
            places = {unquote(kv.key.rpartition("/")[2]): kv.key for kv in kvs}
            for side in store.read([], [(kind, uuid) for uuid in places]).sides if places else ():
                done = Done.of(side)
                if done is not None and keys.ended(done.record) == places[side.key]:
                    sides.append(side)
            if len(sides) >= limit:
                break
        return Found(now, [], sides[:limit])

    def tidy(self, now: int, seconds: float) -> bool:
        """Drop what has ended, some at a time, from where the last one has stopped who dropped some; whether there may
        be more."""
        store, keys = self._store, self._store.keys
        [known] = store.link.read([get(keys.kept_since)]).found
        since = at = max(0, int(known[0].value, 16) - _SLACK) if known else 0
        widest = _WIDEST if known else LAST
        ranges = self._ranges(keys.dropped, f"{keys.dropped}{since:014x}", since, now, widest, _DROPPED)
        for _, (reached, kvs) in zip(turns(seconds), ranges, strict=False):
            over: list[str] = []
            for kv in kvs:
                uuid = unquote(kv.key.rpartition("/")[2])
                over += [delete(kv.key), delete(kv.value.decode()), delete(keys.side("outcome", uuid))]
            if over:
                store.link.txn((), over)
            at = reached
        if at > since + 2 * _SLACK:
            store.link.txn((), [put(keys.kept_since, b"%014x" % at)])
        return at < now

    def _ranges(
        self, folder: str, start: str, begun: int, last: int, widest: int, limit: int, only: str = ""
    ) -> Iterator[tuple[int, list[KV]]]:
        """What lies in a folder, whose keys begin with a time: by short ranges of it, as what etcd reads costs by all
        that lies in a range, however much of it is wanted. And up to which time that is all.

        :param start: the first key.
        :param begun: its time.
        :param widest: the longest range, in µs.
        :param limit: how many to read at once.
        """
        wide, at = _WIDE, begun
        while at < last:
            until = min(at + wide, last)
            end = f"{folder}{until:014x}"
            answer = self._store.link.read([span(start, end, limit, only)])
            [kvs], [count] = answer.found, answer.counts
            if len(kvs) < count:
                start = kvs[-1].key + " "
                until = int(kvs[-1].key[len(folder) :][:14], 16)
            else:
                start = end
            at = until
            yield at, kvs
            wide = min(max(1, wide * _MANY // max(count, _MANY // _WIDER)), widest)
