"""What lies on a board that the board has not left there, or not so, and what weakens its promise."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import unquote

from jobboard.backends.etcd.keys import LIVE_TREES, end_of, unpack, unpack_side
from jobboard.backends.etcd.requests import KV
from jobboard.engine import Done, Stored
from jobboard.primitives import Oddity

if TYPE_CHECKING:
    from jobboard.backends.etcd.store import EtcdStore

_MARGIN = 1_000_000


def oddities(store: EtcdStore) -> Iterator[Oddity]:
    """It reads the whole board, and writes nothing."""
    first = list(_found(store))
    # A board is read in many requests, and while others work on it they don't go together. What is odd, stays so.
    again = {oddity.place for oddity in _found(store)} if first else set()
    yield from (oddity for oddity in first if oddity.place in again and not _leads_to_one(store, oddity.place))


def _leads_to_one(store: EtcdStore, place: str) -> bool:
    """Whether this leads to a job all the same: one that moves may be met by no reading of all the others."""
    folder = store.keys.job("")
    return place.startswith(folder) and isinstance(store.read([unquote(place[len(folder) :])]).jobs[0], Stored)


def _found(store: EtcdStore) -> Iterator[Oddity]:
    keys, ahead = store.keys, store.clock.ahead
    for alarm in store.link.call("/v3/maintenance/alarm", '{"action":"GET"}').get("alarms", ()):
        advice = "compact, defragment, and `etcdctl alarm disarm`; see docs/etcd.rst"
        yield Oddity(f"member {alarm.get('memberID')}", f"it has raised the alarm {alarm.get('alarm')}", advice)
    if ahead > _MARGIN:
        advice = "the clock of one that uses the board is wrong: have them all synchronised"
        yield Oddity(keys.tail, f"the board's time is {ahead / 1e6:.1f} s ahead of this machine's clock", advice)
    pointers = {kv.key: kv.value.decode() for kv in _all(store, f"{keys.root}job/")}
    fences = [kv.key[len(keys.fences) :] for kv in _all(store, keys.fences)]
    first = {fence[:2]: fence for fence in reversed(fences)}
    for tree in (*LIVE_TREES, "trash"):
        for kv in _all(store, f"{keys.root}{tree}/"):
            place = kv.key[len(f"{keys.root}{tree}/") :]
            try:
                record, _ = unpack(kv.value)
            except ValueError as error:
                yield Oddity(kv.key, str(error), "delete it")
                continue
            pointer = pointers.pop(keys.job(record.uuid), None)
            if pointer not in (place, f"{tree}/{place}") or kv.key != keys.record(record):
                yield Oddity(
                    kv.key, f"job {record.uuid} does not belong here", "delete it, if the job is elsewhere, too"
                )
            if tree == "ready" and first.get(place[:2], "g") > place:
                yield Oddity(kv.key, f"nobody finds job {record.uuid} by a look", f"put the key {keys.fences}{place}")
    for key in pointers:
        yield Oddity(key, "it leads to no job", "delete it")
    for kv in _all(store, keys.side("outcome", "")):
        uuid = unquote(kv.key.rpartition("/")[2])
        if Done.of(unpack_side("outcome", uuid, kv.value, kv.revision)) is None:
            yield Oddity(kv.key, f"the outcome of job {uuid} can't be read", "delete it")


def _all(store: EtcdStore, folder: str) -> Iterator[KV]:
    return itertools.chain.from_iterable(store.link.pages(folder, end_of(folder)))
