"""The driver of etcd: each record and each name is a key, and a commit is one Txn.

A path is a key behind ``<namespace>/board/<name>/``. A record outside of all folders, such as ``layout``, is the key
``<namespace>/layout/<name>``: a short range shows the names of all boards.

The version of a record is the revision at which its key was put last. No two states of a key share a revision.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar
from urllib.parse import quote, unquote

from jobboard import runtime
from jobboard.backends.etcd.fences import WINDOWS, Fences, Walk
from jobboard.backends.etcd.link import Gateway
from jobboard.backends.etcd.options import OPTIONS, check
from jobboard.backends.etcd.requests import (
    KV,
    MOST_GETS,
    below,
    delete,
    end_of,
    exists,
    get,
    is_at,
    put,
    put_again,
    within,
)
from jobboard.backends.etcd.session import SessionLease
from jobboard.backends.etcd.watch import BellWatch
from jobboard.conf import Option
from jobboard.engine import Seat
from jobboard.exceptions import JobFailure
from jobboard.kv.driver import ALIVE, CONNECTED, Driver, Node, Numbers, Op, Range, Refused, Snapshot
from jobboard.kv.layout import DONE, OVER, READY, TIMED
from jobboard.kv.options import uri_parts
from jobboard.primitives import Characteristics, CommitBound

LARGEST = 1_500_000
"""The bytes of a request that a server takes by default: 1.5 MiB, less the frame of the request."""

AROUND = 50_000
"""The part of these bytes for keys, comparisons and errors."""

CLOCK, NEXT = "clock", "next"
"""Two records of the driver's own. Both hold a time, and the board's time is the later one. Each lease and delay raises
``clock``. Each post changes ``next``, whose revision gives the numbers of jobs."""

_NUMBERS = 512
"""The numbers that belong to a revision. No commit makes more jobs."""

_SWEPT = 1_000
"""The number of outcomes that one step of a tidying passes."""


class BoardTime:
    """The time of a board. etcd has no clock, so this machine's clock counts. The time is never behind the time of a
    post, or the time from which a lease or a delay was counted.

    ``ahead``: the µs by which the board's time is ahead of this machine's clock.
    """

    ahead = floor = 0

    def saw(self, instant: int) -> None:
        self.floor = max(self.floor, instant)
        self.ahead = max(self.ahead, instant - int(runtime.wall_time() * 1e6))

    def now(self) -> int:
        return int(runtime.wall_time() * 1e6) + self.ahead


class EtcdDriver(Driver):
    """A board in the keys of an etcd cluster, from version 3.4 on.

    ``client`` is refused: the board makes its own connections.

    ``claim_ttl`` is the time of the lease to ask for, in whole seconds. ``characteristics.claim_ttl`` is the time that
    the server grants.
    """

    options: ClassVar[Mapping[str, Option]] = OPTIONS
    uri_parts: ClassVar[Mapping[str, str]] = uri_parts("namespace")
    # The values of a commit come with the keys of up to 100 jobs.
    most_bytes = LARGEST - 10 * AROUND
    most_kept = LARGEST - AROUND
    poll_cap = 60.0

    def __init__(self, seat: Seat) -> None:
        check(seat.conf)
        if seat.client is not None:
            raise TypeError("client: an etcd board makes its own connections; give it hosts, user and password instead")
        self._name = seat.name
        self._conf = seat.conf
        self._namespace = seat.conf["namespace"]
        self._quoted = quote(seat.name, safe=":")
        self._root = f"{self._namespace}/board/{self._quoted}/"
        # A new job has three keys, and the ends of claims in its commit take the rest of a request.
        self.commit_bound = CommitBound(LARGEST - 4 * AROUND, 600 + 3 * len(self._root))
        self._bells = f"{self._root}bell/"
        self.clock = BoardTime()
        self._heard: Callable[[str], None] = lambda word: None
        self._reset()

    def _reset(self) -> None:
        alive = self.key(f"{ALIVE}/")
        self.link = Gateway(self._conf, functools.partial(self._heard, CONNECTED))
        self._lease = SessionLease(self.link, alive, self._conf["claim_ttl"])
        self._watch = BellWatch(self.link, self._bells, alive, self._heard)
        self._fences = Fences(self.link, self._root, self._conf["read_only"])
        # The revision of the record NEXT, as far as it is known, and whether the board was seen.
        self._next = 0
        self._exists = False

    def key(self, path: str) -> str:
        return f"{self._root}{path}" if "/" in path else f"{self._namespace}/{path}/{self._quoted}"

    # Life

    def open(self, create: bool, first: Sequence[Op], heard: Callable[[str], None]) -> Characteristics:
        self._heard = heard
        self._reset()
        try:
            self.read([])
            if create and not self._exists:
                self._make(first)
            if not self._conf["read_only"]:
                self._lease.grant()
            members = len(self.link.call("/v3/cluster/member/list", "{}").get("members", ()))
        except BaseException:
            self.link.close()
            raise
        # A beat without an answer ends before its claims count as lost.
        self.hurry(max(0.7, self._lease.ttl / 3))
        return Characteristics(
            durable=True,
            survives_failover=members > 1,
            exact_order=True,
            blocking_wait=True,
            remote_events=True,
            transactional=False,
            claim_ttl=self._lease.ttl,
            server_clock=False,
            notes="delays, due times and leases with an expiry go by the clocks of those who use the board"
            + ("; a leader that goes on after a freeze may end kept claims early" if members > 1 else ""),
        )

    def _make(self, first: Sequence[Op]) -> None:
        records = [op._replace(path=self.key(op.path)) for op in first if op.do == "create"]
        own = [put(self.key(path), _instant(self.clock.now())) for path in (CLOCK, NEXT)]
        absent = [is_at(key, 0) for key in [self.key(CLOCK), *(op.path for op in records)]]
        # If another process, or an earlier try of this request, was quicker, the board is there.
        self.link.txn(absent, [*own, *(put(op.path, op.value) for op in records)], changes=False)
        self.read([])

    def close(self) -> None:
        self._watch.end()
        self._lease.end()
        self.link.close()

    def forked(self) -> None:
        self.link.leak()
        self._reset()

    @property
    def connected(self) -> bool:
        return self.link.up

    def hurry(self, seconds: float) -> None:
        self.link.patience = min(self.link.patience, seconds)

    # Reading

    def now(self, exact: bool = False) -> int:
        return self.clock.now()

    def read(self, paths: Sequence[str], ranges: Sequence[Range] = (), fresh: bool = True) -> Snapshot:
        now = self.clock.now()
        kvs: list[list[KV]] = []
        gets = [get(self.key(path)) for path in (CLOCK, NEXT, *paths)]
        while len(gets) > MOST_GETS:
            kvs += self.link.read(gets[:MOST_GETS]).found
            del gets[:MOST_GETS]
        found, names = self._walk(gets, [self._walk_of(each) for each in ranges])
        kvs += found
        self._saw(*kvs[:2])
        nodes = [Node(each[0].value, each[0].revision) if each else None for each in kvs[2:]]
        return Snapshot(max(now, self.clock.floor), nodes, names)

    def _saw(self, clock: list[KV], numbers: list[KV]) -> None:
        if clock and numbers:
            self._exists = True
            self.clock.saw(max(map(_instant_of, (clock[0], numbers[0]))))
            self._next = numbers[0].revision
        elif self._exists:
            raise JobFailure(f"the board at {self._root} was deleted; connect() again makes a new one")

    def _walk(self, gets: list[str], walks: Sequence[Walk]) -> tuple[list[list[KV]], list[list[str]]]:
        """Read these keys together with the first steps of all walks, and then carry the walks to their ends."""
        wanted = [next(walk) for walk in walks]
        found = iter(self.link.read([*gets, *itertools.chain(*wanted)]).found)
        got = list(itertools.islice(found, len(gets)))
        names: list[list[str]] = [[] for _ in walks]
        left = list(range(len(walks)))
        while left:
            going = []
            for number in left:
                try:
                    wanted[number] = walks[number].send(list(itertools.islice(found, len(wanted[number]))))
                    going.append(number)
                except StopIteration as end:
                    names[number] = end.value
            left = going
            found = iter(self.link.read([*itertools.chain(*(wanted[each] for each in left))]).found if left else ())
        return got, names

    def _walk_of(self, wanted: Range) -> Walk:
        return self._fences.walk(wanted) if wanted.folder in WINDOWS else self._plain(wanted)

    def _plain(self, wanted: Range) -> Walk:
        folder = self.key(f"{wanted.folder}/")
        start = folder + (f"{wanted.after}\0" if wanted.after else "")
        [kvs] = yield [get(start, end_of(folder), max(wanted.most, 1), only="keys")]
        return [kv.key[len(folder) :] for kv in kvs][: wanted.most]

    def count(self, place: str) -> int:
        folder = self.key(f"{place}/")
        return self.link.read([get(folder, end_of(folder), only="count")]).counts[0]

    def place(self, path: str) -> str:
        return f"the key {self.key(path)}"

    def boards(self, most: int) -> list[str]:
        clocks = f"{self._namespace}/{CLOCK}/"
        [kvs] = self.link.read([get(clocks, end_of(clocks), only="keys")]).found
        names = [unquote(kv.key[len(clocks) :]) for kv in kvs]
        return sorted(names, key=lambda name: (name != self._name, name))[:most]

    # Changing

    def commit(self, ops: Sequence[Op]) -> dict[str, int]:
        required = {op.path: wanted for op in ops if (wanted := self._required(op)) is not None}
        compare = [exists(key) if revision is None else is_at(key, revision) for key, revision in required.values()]
        ends = [op.path for op in ops if op.do == "before"]
        if late := self._passed(ends):
            raise Refused(*late)
        # Clocks of others may be ahead: no lease or post may have been counted from that time on.
        compare += [below(self.key(path), _instant(int(end))) for end in ends for path in (CLOCK, NEXT)]
        writes = {self._key_of(op): _WRITES[op.do](self._key_of(op), op.value) for op in ops if op.do in _WRITES}
        success = [*writes.values(), *self._around([op.path for op in ops if op.do == "add"])]
        size = sum(map(len, success)) * 3 // 4
        if size > LARGEST:
            raise ValueError(
                f"a request of {size} bytes: etcd takes {LARGEST}; post fewer jobs at once, or smaller details"
            )
        answer = self.link.txn(compare, success)
        if not answer.succeeded:
            raise self._refusal(required, ends)
        if NEXT in required:
            self._next = answer.revision
        return {op.path: answer.revision for op in ops if op.do in ("create", "put") and op.path != NEXT}

    def _key_of(self, op: Op) -> str:
        return self._bells + op.path if op.do == "ring" else self.key(op.path)

    def _required(self, op: Op) -> tuple[str, int | None] | None:
        """Return the key that an operation compares, and the revision that the key must have; 0: absent, None: any."""
        if op.do == "create":
            return self.key(op.path), 0
        if op.do == "lives":
            return self.key(f"{ALIVE}/{op.path}"), None
        if op.do in ("put", "delete", "check"):
            return self.key(op.path), op.version
        return None

    def _around(self, added: Sequence[str]) -> Iterator[str]:
        """Return the further operations of a commit that adds these names."""
        for index in WINDOWS:
            if names := [path[len(index) + 1 :] for path in added if path.startswith(f"{index}/")]:
                yield from self._fences.added(index, names)
        if any(path.startswith(f"{TIMED}/") for path in added):
            # No process may be behind the time from which these ends were counted.
            clock, now = self.key(CLOCK), _instant(self.clock.now())
            yield within([below(clock, now)], [put(clock, now)])

    def _passed(self, ends: Sequence[str]) -> list[str]:
        """Return the instants that have passed."""
        return [end for end in ends if self.clock.now() >= int(end)]

    def _refusal(self, required: Mapping[str, tuple[str, int | None]], ends: Sequence[str]) -> Refused:
        """Return the refusal of a commit, with the paths whose keys still differ from the required ones, and with those
        of ``ends`` that have come."""
        gets = [get(self.key(CLOCK)), get(self.key(NEXT)), *(get(key, only="keys") for key, _ in required.values())]
        clock, numbers, *kvs = (
            kvs
            for start in range(0, len(gets), MOST_GETS)
            for kvs in self.link.read(gets[start : start + MOST_GETS]).found
        )
        self._saw(clock, numbers)
        found = (each[0].revision if each else 0 for each in kvs)
        wrong = self._passed(ends)
        for (path, (key, wanted)), revision in zip(required.items(), found, strict=True):
            if revision != wanted and (wanted is not None or not revision):
                wrong.append(path)
                if key == self.key(f"{ALIVE}/{path}"):
                    self._lease.forget(path)
        return Refused(*wrong)

    def number(self, count: int, beaten: bool) -> Numbers:
        # A revision that puts NEXT stands for 512 numbers. A commit that compares NEXT takes those of the next one.
        if not beaten:
            value = _instant(self.clock.now())
            return Numbers((self._next + 1) * _NUMBERS, [Op("put", NEXT, value, self._next)])
        key, value = self.key(NEXT), _instant(self.clock.now())
        # NEXT is put even where its time is ahead of this clock: the revision counts.
        drawn = within([below(key, value)], [put(key, value)], put_again(key))
        answer = self.link.txn([exists(key)], [drawn], changes=False)
        if not answer.succeeded:
            self._saw([], [])
        self._next = answer.revision
        return Numbers(answer.revision * _NUMBERS, ())

    # Upkeep

    def tidying(self) -> Iterator[None]:
        """Remove the fences of empty parts at the beginnings of the indexes, and at the end of ``done``.

        Readings remove other fences. None of them reads the part of ``done`` behind the outcome that is dropped
        next."""
        walks = [self._fences.walk(Range(index, 1), least=1) for index in (READY, TIMED, OVER)]
        *_, over = self._walk([], walks)[1]
        after = over[0].partition(".")[2] if over else ""
        while True:
            [passed] = self._walk([], [self._fences.walk(Range(DONE, _SWEPT, after), least=1)])[1]
            if len(passed) < _SWEPT:
                return
            after = passed[-1]
            yield

    # Sessions and bells

    @property
    def margin(self) -> int:  # type: ignore[override]
        return self._lease.margin

    def session(self) -> str:
        return self._lease.hold()

    def beat(self) -> None:
        self._lease.renew()

    def watch(self) -> None:
        self._watch.begin()


_WRITES: Mapping[str, Callable[[str, bytes], str]] = {
    **dict.fromkeys(("create", "put", "add", "ring"), put),
    **dict.fromkeys(("delete", "remove"), lambda key, value: delete(key)),
}
"""The write of each operation to its key."""


def _instant(now: int) -> bytes:
    return b"%018d" % now


def _instant_of(kv: KV) -> int:
    if len(kv.value) == 18 and kv.value.isdigit():
        return int(kv.value)
    now = _instant(int(runtime.wall_time() * 1e6)).decode()
    raise JobFailure(f"the key {kv.key} holds {kv.value!r}, which is no time: write the time in µs there, as {now!r}")
