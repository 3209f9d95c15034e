"""The store: records of jobs and side records under keys, read in one Txn and changed in one."""

from __future__ import annotations

import contextlib
import heapq
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import unquote

from jobboard.backends.etcd import checks
from jobboard.backends.etcd.keeper import LeaseKeeper
from jobboard.backends.etcd.keys import (
    LIVE_TREES,
    TREES,
    EtcdKeys,
    EtcdTag,
    end_of,
    place_of,
    tag_of,
    trees_of,
    unpack,
    unpack_side,
)
from jobboard.backends.etcd.link import Gateway
from jobboard.backends.etcd.looking import Fences
from jobboard.backends.etcd.outcomes import OutcomeKeys
from jobboard.backends.etcd.requests import KV, MOST_GETS, delete, get, is_at, put, span
from jobboard.backends.etcd.tidying import LapsedSides
from jobboard.backends.etcd.watch import WakeWatch
from jobboard.backends.etcd.writing import AROUND, LARGEST, TxnWriter
from jobboard.conf import Settings
from jobboard.engine import GATE, Change, Committed, Found, Lane, Look, Mark, Side, Store, Stored
from jobboard.engine.calls import standing
from jobboard.exceptions import JobFailure
from jobboard.primitives import MENTIONED, Characteristics, Oddity, mentioned
from jobboard.states import TRASHED, Record, State

LOG = logging.getLogger(__name__)

LAYOUT = 1
_LAYOUT = f"{LAYOUT} {LAYOUT}".encode()

_CACHED = 20_000

_PAGE = 1000
"""How many keys are listed at once."""


class ClientClock:
    """etcd tells no time: it is this machine's, but never behind what is stored on the board already.

    ``ahead``: by how much the board's time is ahead of this machine's, in µs.
    """

    ahead = floor = 0

    def saw(self, instant: int) -> None:
        self.floor = max(self.floor, instant)
        self.ahead = max(self.ahead, instant - int(time.time() * 1e6))

    def now(self) -> int:
        return int(time.time() * 1e6) + self.ahead


class EtcdStore(Store):
    """:param news: told when something may have become claimable.
    :param reconnected: told when there is a connection again.
    :param rescheduled: told when a schedule may have changed, from :meth:`hear_schedules` on.
    """

    keeps = "session"
    # With the 100 jobs around these.
    most_bytes = LARGEST - 10 * AROUND

    def __init__(
        self,
        name: str,
        conf: Settings,
        creates: bool,
        news: Callable[[], None],
        reconnected: Callable[[], None],
        rescheduled: Callable[[], None],
    ) -> None:
        self.keys = EtcdKeys(conf["namespace"], name)
        self.gate_place = self.keys.gate
        self.read_only = conf["read_only"]
        self.news = news
        self._name = name
        self._conf = conf
        self._creates = creates
        self._reconnected = reconnected
        self._rescheduled = rescheduled
        self.clock = ClientClock()
        self._reset()

    def _reset(self) -> None:
        self.link = Gateway(self._conf, self._reconnected)
        self.keeper = LeaseKeeper(self.link, self.keys, self._conf["claim_ttl"])
        self.fences = Fences(self)
        keys = self.keys
        self.watch = WakeWatch(self, ((keys.wake, "NODELETE"), (keys.alive, "NOPUT")), self.news)
        self._schedule_watch = WakeWatch(self, ((keys.schedules, "NODELETE"),), self._rescheduled)
        self.writer = TxnWriter(self)
        self.outcomes = OutcomeKeys(self)
        self.lapsed = LapsedSides(self)
        # Where a job was seen last, and with which token.
        self._seen: dict[str, tuple[EtcdTag, int]] = {}

    # Life

    def setup(self) -> None:
        try:
            self._prepare(create_it=True)
        finally:
            self.link.close()

    def open(self) -> Characteristics:
        try:
            self._prepare(self._creates)
            if not self.read_only:
                self.keeper.measure()
            members = len(self.link.call("/v3/cluster/member/list", "{}").get("members", ()))
        except BaseException:
            self.link.close()
            raise
        # A beat that gets no answer has to be over before the claims that it was to keep count as lost.
        self.link.patience = min(self.link.patience, max(0.7, self.keeper.ttl / 3))
        return Characteristics(
            durable=True,
            survives_failover=members > 1,
            exact_order=True,
            blocking_wait=True,
            remote_events=False,
            transactional=False,
            claim_ttl=self.keeper.ttl,
            server_clock=False,
            notes="delays, due times and leases with an expiry go by the clocks of those who use the board",
        )

    def _prepare(self, create_it: bool) -> None:
        keys = self.keys
        answer = self.link.read([get(keys.layout), get(keys.tail)])
        if not answer.found[0] and not create_it:
            others = mentioned(self.boards(MENTIONED))
            raise JobFailure(
                f"there is no board {self._name!r} in {self._conf['namespace']!r}{others}; `jobboard setup` creates it"
            )
        if not answer.found[0]:
            made = [put(keys.layout, _LAYOUT), put(keys.tail, b"%014x" % self.clock.now())]
            self.link.txn([is_at(keys.layout, 0)], made, changes=False)
            answer = self.link.read([get(keys.layout), get(keys.tail)])
        [[layout], tails] = answer.found
        try:
            _, reader = map(int, layout.value.split())
        except ValueError as error:
            raise JobFailure(
                f"{keys.layout} holds {layout.value!r}: write {_LAYOUT!r} there if it is a board", error
            ) from error
        if reader > LAYOUT:
            raise JobFailure(f"the board at {keys.root} has a layout of a newer version of this library; upgrade")
        self.saw(tails[0] if tails else None, answer.revision)

    def saw(self, tail: KV | None, revision: int) -> None:
        """:raises JobFailure: the board was deleted."""
        if tail is None:
            raise JobFailure(f"the board at {self.keys.root} was deleted; connect() again makes a new one")
        self.writer.meets(tail.created)
        self.clock.saw(int(tail.value, 16))
        self.watch.looked(revision)

    def closing(self) -> None:
        self.link.closing()

    def close(self) -> None:
        self.link.closing()
        self.watch.end()
        self._schedule_watch.end()
        self.keeper.end()
        self.link.close()

    def forked(self) -> None:
        self.link.leak()
        self._reset()

    @property
    def connected(self) -> bool:
        return self.link.up

    @property
    def margin(self) -> int:  # type: ignore[override]
        return self.keeper.margin

    def now(self) -> int:
        return self.clock.now()

    # Reading

    def gets(self, keys: Sequence[str], at: int = 0) -> tuple[list[KV | None], int]:
        """What lies there, all of one revision: of this one, or of the latest."""
        found: list[KV | None] = []
        for start in range(0, len(keys), MOST_GETS):
            answer = self.link.read([get(key, at=at) for key in keys[start : start + MOST_GETS]])
            found += [each[0] if each else None for each in answer.found]
            at = at or answer.revision
        return found, at

    def read(self, uuids: Sequence[str], sides: Sequence[tuple[str, str]] = ()) -> Found:
        now = self.clock.now()
        side_keys = [self.keys.side(kind, key) for kind, key in sides]
        alive = [self.keys.alive + self.keeper.lease] if self.keeper.lease else []
        pointers = {uuid: self.keys.job(uuid) for uuid in uuids}
        # Where they were seen last, most of them still are.
        seen = {uuid: self._seen[uuid][0].key for uuid in pointers if uuid in self._seen}
        keys = list(dict.fromkeys([*pointers.values(), *seen.values(), *side_keys, *alive]))
        kvs, revision = self.gets(keys)
        found = dict(zip(keys, kvs, strict=True))
        jobs = {uuid: found.get(seen.get(uuid, "")) for uuid in pointers}
        led = {
            place: uuid
            for uuid, key in pointers.items()
            if jobs[uuid] is None and (pointer := found[key]) is not None
            for place in self._led_to(pointer.value.decode())
        }
        for uuid, kv in zip(led.values(), self.gets(list(led), revision)[0], strict=True):
            jobs[uuid] = kv or jobs[uuid]
        lives: dict[str | None, bool] = {key[len(self.keys.alive) :]: found[key] is not None for key in alive}
        read = [
            Side(kind, key, None, None, None)
            if (kv := found[place]) is None
            else unpack_side(kind, key, kv.value, kv.revision)
            for (kind, key), place in zip(sides, side_keys, strict=True)
        ]
        return Found(max(now, self.clock.floor), self._assembled([jobs[uuid] for uuid in uuids], lives), read)

    def _led_to(self, pointer: str) -> list[str]:
        places = [pointer] if pointer.startswith("trash/") else [f"{tree}/{pointer}" for tree in LIVE_TREES]
        return [self.keys.root + place for place in places]

    def stored(self, kv: KV, alive: bool = True) -> Stored | None:
        """None: it is damaged."""
        try:
            record, lease = unpack(kv.value)
        except ValueError as error:
            LOG.warning("%s is set aside: %s", kv.key, error)
            return None
        if record.state != TRASHED:
            self.clock.saw(record.modified_on)
        stored = Stored(record, EtcdTag(kv.key, kv.revision, lease), alive)
        self.remember(stored)
        return stored

    def remember(self, stored: Stored) -> None:
        record = stored.record
        self._seen.pop(record.uuid, None)
        self._seen[record.uuid] = tag_of(stored), record.token
        if len(self._seen) > _CACHED:
            # Another thread may be at it.
            with contextlib.suppress(RuntimeError):
                self._seen.pop(next(iter(self._seen), ""), None)

    def forget(self, uuid: str) -> None:
        self._seen.pop(uuid, None)

    def steady(self, held: Sequence[tuple[str, int]]) -> set[tuple[str, int]]:
        """Those of these claims, by uuid and token, that are as they were seen last, and kept by the lease of now. It
        takes a tenth of the bytes that reading the jobs would."""
        lease = self.keeper.lease
        seen = [(claim, *known) for claim in held if (known := self._seen.get(claim[0]))]
        mine = [(claim, tag) for claim, tag, token in seen if lease and tag.lease == lease and token == claim[1]]
        found = self.link.read([get(tag.key, only="keys") for _, tag in mine]).found if mine else []
        return {claim for (claim, tag), kvs in zip(mine, found, strict=True) if kvs and kvs[0].revision == tag.revision}

    def _assembled(self, kvs: Sequence[KV | None], lives: dict[str | None, bool]) -> list[Stored | None]:
        """These jobs, and whether what keeps their claims lives.

        :param lives: of which leases that is known; takes in the others.
        """
        jobs = [None if kv is None else self.stored(kv) for kv in kvs]
        lives[None] = True
        leases = list({tag_of(job).lease for job in jobs if job is not None} - lives.keys())
        there = self.gets([f"{self.keys.alive}{lease}" for lease in leases])[0]
        lives.update(zip(leases, (kv is not None for kv in there), strict=True))
        return [None if job is None else job._replace(alive=lives[tag_of(job).lease]) for job in jobs]

    def records(self, places: Sequence[str]) -> list[Stored]:
        """What lies at these places, below the board's root."""
        kvs = self.gets([self.keys.root + place for place in places])[0]
        return [job for job in self._assembled(kvs, {}) if job is not None]

    def orphans(self) -> Iterator[Stored]:
        """Claims whose keepers are gone. Of a keeper without any, nothing is left then: it can't have made another."""
        keys = self.keys
        holders, alive = self.link.read(
            [span(start, end_of(start), only="keys") for start in (keys.holders, keys.alive)]
        ).found
        dead = {kv.key[len(keys.holders) :] for kv in holders} - {kv.key[len(keys.alive) :] for kv in alive}
        done = set(dead)
        for kvs in self.link.pages(busy := f"{keys.root}busy/", end_of(busy)) if dead else ():
            for job in filter(None, map(self.stored, kvs)):
                if (lease := tag_of(job).lease) in dead:
                    done.discard(lease)
                    yield job._replace(alive=False)
        if done and not self.read_only:
            self.link.txn((), [delete(keys.holders + lease) for lease in done], changes=False)

    def listed(self, kind: str) -> Found:
        start = self.keys.side(kind, "")
        [kvs] = self.link.read([span(start, end_of(start))]).found
        sides = [unpack_side(kind, unquote(kv.key[len(start) :]), kv.value, kv.revision) for kv in kvs]
        return Found(self.clock.now(), [], [side for side in sides if side.value is not None])

    def walk(self, kind: str, place: Any) -> tuple[Found, Any]:
        start = self.keys.side(kind, "")
        [kvs] = self.link.read([span(place or start, end_of(start), _PAGE)]).found
        sides = [unpack_side(kind, unquote(kv.key[len(start) :]), kv.value, kv.revision) for kv in kvs]
        further = f"{kvs[-1].key} " if len(kvs) == _PAGE else None
        return Found(self.clock.now(), [], [side for side in sides if kind != "key" or side.until is not None]), further

    def newest(self, kind: str, after: Side | None, limit: int) -> Found:
        return self.outcomes.newest(kind, after, limit)

    def look(
        self,
        limit: int,
        names: Sequence[str] | None,
        readable: int,
        without: Sequence[str] = (),
        full: Sequence[Lane] = (),
    ) -> Look:
        return self.fences.look(limit, names, readable, without, full)

    def gate(self, kvs: Sequence[KV]) -> Side:
        """As it was read."""
        return unpack_side(*GATE, kvs[0].value, kvs[0].revision) if kvs else Side(*GATE, None, None, None)

    def known(self, limit: int, names: Sequence[str] | None, readable: int, without: Sequence[str] = ()) -> Look | None:
        return None if without else self.fences.known(limit, names, readable)

    def page(
        self, after: Record | None, limit: int, names: Sequence[str] | None, states: frozenset[State]
    ) -> tuple[int, list[Stored]]:
        keys, now = self.keys, self.clock.now()
        start = "" if after is None else place_of(after) + " "
        jobs: list[Stored] = []
        while True:
            trees = [f"{keys.root}{tree}/" for tree in trees_of(states)]
            *found, alive = self.link.read(
                [
                    *(span(tree + start, end_of(tree), limit) for tree in trees),
                    span(keys.alive, end_of(keys.alive), only="keys"),
                ]
            ).found
            kvs = list(heapq.merge(*found, key=lambda kv: kv.key[-16:]))[:limit]
            lives = {None, *(kv.key[len(keys.alive) :] for kv in alive)}
            read = [job for kv in kvs if (job := self.stored(kv)) is not None]
            jobs += [job._replace(alive=tag_of(job).lease in lives) for job in read]
            if len(jobs) >= limit or len(kvs) < limit:
                return max(now, self.clock.floor), jobs[:limit]
            start = kvs[-1].key[-16:] + " "

    def trash_page(self, after: Record | None, limit: int) -> list[Record]:
        trash = f"{self.keys.root}trash/"
        start = trash if after is None else self.keys.record(after._replace(state=TRASHED)) + " "
        lying: list[Record] = []
        for _, record in self._over():
            if record.state == TRASHED and (after is None or _trashed_at(record) < _trashed_at(after)):
                lying.append(record)
        for kvs in self.link.pages(start, end_of(trash), limit):
            lying += [job.record for kv in kvs if (job := self.stored(kv)) is not None]
            if len(lying) >= limit:
                break
        return heapq.nlargest(limit, {record.uuid: record for record in lying}.values(), key=_trashed_at)

    def _over(self) -> Iterator[tuple[Stored, Record]]:
        """What has ended by itself, and nobody has written down: as it is stored, and as it stands."""
        times, now = self.keys.times, self.clock.now()
        for job in self.orphans():
            yield job, standing(job, now)
        for kvs in self.link.pages(times, f"{times}{now:014x}g"):
            for job in self.records([kv.value.decode() for kv in kvs]):
                yield job, standing(job, now)

    def counts(self) -> dict[State, int]:
        trees = {state: f"{self.keys.root}{tree}/" for state, tree in TREES.items()}
        over = list(self._over())
        answer = self.link.read([span(tree, end_of(tree), only="count") for tree in trees.values()])
        counts = dict(zip(trees, answer.counts, strict=True))
        for job, record in over:
            counts[job.record.state] -= 1
            counts[record.state] += 1
        return counts

    def boards(self, most: int) -> list[str]:
        layouts = self.keys.layouts
        [kvs] = self.link.read([span(layouts, end_of(layouts), most, only="keys")]).found
        names = [unquote(kv.key[len(layouts) :]) for kv in kvs]
        return sorted(names, key=lambda name: (name != self._name, name))

    def commit(self, changes: Sequence[Change], marks: Sequence[Mark] = (), checks: Sequence[Side] = ()) -> Committed:
        return self.writer.commit(changes, marks, checks)

    def outcome_count(self) -> int:
        return self.link.read([span(self.keys.done, end_of(self.keys.done), only="count")]).counts[0]

    def hear_schedules(self) -> bool:
        if not self._schedule_watch.begun:
            # From now on, and not from when the server gets to it.
            self._schedule_watch.looked(self.gets([self.keys.tail])[1])
            self._schedule_watch.begin()
        return True

    def tidy(self, seconds: float) -> bool:
        end, now = time.monotonic() + seconds, self.clock.now()
        more = self.lapsed.tidy(now, seconds)
        return self.outcomes.tidy(now, max(0.0, end - time.monotonic())) or more

    def examine(self) -> Iterator[Oddity]:
        return checks.oddities(self)


def _trashed_at(record: Record) -> tuple[int, int]:
    return record.modified_on, record.sequence
