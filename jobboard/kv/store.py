"""The store of every board on a key-value server: jobs and side records over a driver's records and indexes."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, compress, islice, takewhile
from typing import Any, ClassVar, Literal, NamedTuple
from urllib.parse import unquote

import msgpack

from jobboard import retry, runtime
from jobboard.engine import (
    ANY_TERMS,
    GATE,
    LAPSING,
    OVERDUE,
    BoardMissing,
    Bookmark,
    Change,
    Committed,
    CommitTerms,
    Found,
    Hears,
    LimitScope,
    Look,
    Mark,
    Order,
    Seat,
    Side,
    Sieve,
    Stale,
    Store,
    Stored,
    StoredLayout,
    StoredOutcome,
    Traits,
    Walked,
    damaged_value,
    library_version,
    reschedules,
    tries,
    turns,
    walk_outcomes,
    walk_trash,
)
from jobboard.engine.committer import record_at
from jobboard.engine.records import damaged, odd_job, pack, unpack
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.kv.driver import ALIVE, CONNECTED, JOBS, SCHEDULES, Driver, Node, Op, Range, Refused, Version
from jobboard.kv.layout import (
    DONE,
    GATE_PATH,
    HOLDERS,
    JOB,
    KEPT,
    LAYOUT,
    LIVE,
    OVER,
    READY,
    TIMED,
    TRASH,
    Entry,
    behind,
    job_names,
    job_path,
    kept_by_session,
    newest_of,
    outcome_names,
    parse_newest,
    side_path,
    time_of,
    uuid_at,
    uuid_of,
)
from jobboard.kv.listener import REPORTED, Listener
from jobboard.primitives import MENTIONED, PAGE, Characteristics, Draft, Oddity, mentioned
from jobboard.states import CLAIMED, COMPLETE, SCHEDULED, TRASHED, UNCLAIMED, Record, State

LOG = logging.getLogger(__name__)

VERSION = 1
"""The layout that this store writes. The record of a board's layout holds it, the lowest layout of a reader, and the
version of the library that wrote the record."""

MIN_READER = 1
"""The oldest layout whose readers understand a board that this store has set up."""

FEW = 4
"""The number of next ends of leases and delays that a look reads first."""

LEAST_GUESS = 2
"""The minimum number of jobs that a look remembers. The next look reads their records in its first request."""

LISTED = 200
"""The number of names that one request reads where the needed number is unknown."""

ALL = 1_000_000
"""The upper bound on sessions."""

SESSIONS = (Range(HOLDERS, ALL), Range(ALIVE, ALL))
"""The sessions with claims, and then the living sessions. A session in the first index alone has ended."""

BEATEN = 1.0
"""The seconds for which a store whose counter was refused draws its numbers at once. On etcd a post is then two
requests instead of four: eight processes that post at once store 1.7 times as many jobs."""

TICK = 0.02
"""The minimum seconds between two looks of a waiter, while others go on posting."""

UNHEARD = 0.2
"""The seconds that a waiter sleeps while the bell cannot reach it."""

WALKED = 1_000
"""The maximum number of jobs of other states that a page passes over."""

DROPPED = 50
"""The maximum number of outcomes that one commit deletes."""

WALKS = 10
"""The rest between two walks through other side records, in durations of a walk."""


@dataclasses.dataclass(slots=True, unsafe_hash=True)
class Tag:
    """The tag of a job. session: the session that keeps the claim. is_damaged: the record can't be decoded, so the
    names of the job are unknown. names: the names of the job, if they are known. Never changed."""

    version: Version
    session: str | None
    is_damaged: bool = False
    names: Sequence[str] = dataclasses.field(default=(), compare=False)


class LookFilter(NamedTuple):
    """The conditions on the jobs of a look."""

    names: frozenset[str] | None
    without: frozenset[str]
    full: frozenset[tuple[str, str | None]]
    readable: int

    @property
    def is_narrow(self) -> bool:
        return self.names is not None or bool(self.without or self.full)

    def takes(self, entry: Entry) -> bool:
        return (
            (self.names is None or entry.name in self.names)
            and entry.name not in self.without
            and (entry.name, entry.group) not in self.full
            and entry.version <= self.readable
        )


class KVStore(Store):
    """A store over a driver. A backend is a subclass that names its driver::

    class MemoryStore(KVStore):
        driver = MemoryDriver
    """

    driver: ClassVar[type[Driver]]

    def __init_subclass__(cls) -> None:
        if "driver" in vars(cls):
            driver = cls.driver
            cls.options, cls.uri_parts = driver.options, driver.uri_parts

    def __init__(self, seat: Seat) -> None:
        super().__init__(seat)
        self._driver = driver = self.driver(seat)
        self.traits = Traits(
            keeps=driver.keeps,
            poll_cap=driver.poll_cap,
            most_kept=driver.most_kept,
            most_bytes=driver.most_bytes,
            commit_bound=driver.commit_bound,
            gate_place=driver.place(GATE_PATH),
        )
        self._read_only = seat.conf["read_only"]
        self._begin()

    def _begin(self) -> None:
        # The jobs that the last look has found behind the returned jobs.
        self._guess: Sequence[str] = ()
        # The session of this process that is in holders.
        self._holder: str | None = None
        self._watches = False
        self._woken = 0.0
        self._beaten_until = 0.0
        self._listener: Listener | None = None
        # The walk of a tidying, its duration so far, and the earliest begin of the next one.
        self._tidying: Iterator[None] | None = None
        self._walked = self._walk_at = 0.0
        self._tidies = runtime.Lock()

    # Life

    def open(self, hears: Hears, create: bool) -> Characteristics:
        self.hears = hears
        driver, layout = self._driver, f"{VERSION} {MIN_READER} {library_version()}".encode()
        promised = driver.open(create, [Op("create", LAYOUT, layout), Op("create", GATE_PATH)], self._heard)
        try:
            [made] = driver.read([LAYOUT]).nodes
            if made is None:
                others = mentioned(driver.boards(MENTIONED))
                raise BoardMissing(f"there is no {self._board}{others}; `jobboard setup` creates it")
            found, own = self._parse_layout(made.value), StoredLayout(VERSION, MIN_READER)
            if self.check_layout(f"the {self._board}", found, own):
                # Another set-up may have been first.
                with contextlib.suppress(Refused):
                    driver.commit([Op("put", LAYOUT, layout, made.version)])
        except BaseException:
            driver.close()
            raise
        reported = REPORTED if promised.remote_events else frozenset()
        self.traits = dataclasses.replace(self.traits, reported_events=reported)
        return promised

    def _parse_layout(self, value: bytes) -> StoredLayout:
        try:
            layout, lowest, *library = value.decode().split()
            return StoredLayout(int(layout), int(lowest), next(iter(library), None))
        except ValueError as error:
            place, right = self._driver.place(LAYOUT), f"{VERSION} {MIN_READER}"
            raise JobFailure(f"{place} holds {value!r}: write {right!r} there if it is a board", error) from error

    @property
    def _board(self) -> str:
        return f"board {self.seat.name!r} at {self.seat.shown}"

    def close(self) -> None:
        self.unwatch()
        self._driver.close()

    def forked(self) -> None:
        self._driver.forked()
        listened = self._listener is not None
        self._begin()
        if listened:
            self._listen()

    @property
    def connected(self) -> bool:
        return self._driver.connected

    @property
    def margin(self) -> int | None:  # type: ignore[override]
        return self._driver.margin

    @property
    def precision(self) -> int:  # type: ignore[override]
        return self._driver.precision

    def hurry(self, seconds: float) -> None:
        self._driver.hurry(seconds)

    def now(self) -> int:
        return self._driver.now()

    def boards(self, most: int) -> list[str]:
        return self._driver.boards(most)

    # Claims, waits and reports

    def renew(self, handle: str, held: Sequence[tuple[str, int]], ttl: int) -> Sequence[tuple[str, int]]:
        """Prolong the session, and leave all claims to the engine."""
        self._driver.beat()
        return held

    def watch(self, topic: Literal["jobs", "schedules", "events"]) -> bool:
        if topic == "events":
            if self.traits.reported_events:
                self._listen()
            return bool(self.traits.reported_events)
        try:
            self._driver.watch()
        except ConnectionFailure:
            return False
        if not self._watches:
            self._watches = True
            # Earlier bells were not heard, so waiters look again.
            self.hears.news()
        return True

    def wait(self, names: Sequence[str] | None, readable: int, limit: float, takes: bool) -> None:
        if not self.watch("jobs"):
            self.hears.sleep_unless_closed(min(limit, UNHEARD))
        elif self.hears.nap(limit):
            # The first wake after a quiet time leads to a look at once.
            pause = self._woken + TICK - runtime.boottime()
            if pause > 0:
                self.hears.sleep_unless_closed(min(pause, limit))
            self._woken = runtime.boottime()

    def _heard(self, word: str) -> None:
        if word == CONNECTED:
            self.hears.reconnected()
        if word != SCHEDULES:
            self.hears.news()
        if word != JOBS:
            self.hears.rescheduled()

    def unwatch(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    def _listen(self) -> None:
        self.unwatch()
        self._listener = Listener(lambda: _entries(self._names(LIVE, fresh=True)), self.read, self.hears)

    # Reading

    def _time(self, now: int, ends: Iterable[int | None]) -> int:
        """Return ``now``, or the server's exact time if one of these ends may have passed, as other processes may
        know."""
        lag = self._driver.precision
        is_unclear = lag and not self._read_only and any(end is not None and now < end <= now + lag for end in ends)
        return self._driver.now(exact=True) if is_unclear else now

    def read(self, uuids: Sequence[str], sides: Sequence[tuple[str, str]] = ()) -> Found:
        now, jobs, nodes = self._jobs(uuids, [side_path(*side) for side in sides], fresh=True)
        return Found(now, jobs, [_side(*side, node) for side, node in zip(sides, nodes, strict=True)])

    def _jobs(
        self, uuids: Sequence[str], paths: Sequence[str] = (), fresh: bool = False
    ) -> tuple[int, list[Stored | None], list[Node | None]]:
        """Return the time, jobs with the states of their sessions, and the records at these paths.

        The time may be later than the reading. A lease that has ended in between may have been extended before its end,
        so the jobs are read again."""
        ranges = [Range(ALIVE, ALL)] if uuids and self.traits.keeps == "session" else []
        now = self._driver.now()
        for _ in range(tries.STORE):
            known = now
            found = self._driver.read([*map(job_path, uuids), *paths], ranges, fresh)
            jobs = [_stored(uuid, node, found.now) for uuid, node in zip(uuids, found.nodes, strict=False)]
            if ranges:
                jobs = [job and self._with_session_state(job, found.names[0]) for job in jobs]
            ends = [job.record.lock_until for job in jobs if job is not None]
            now = self._time(max(known, found.now), ends)
            if not any(end is not None and known < end <= now for end in ends):
                return now, jobs, found.nodes[len(uuids) :]
        # By the time before the reading, no lease counts as ended that may have been extended.
        return known, jobs, found.nodes[len(uuids) :]

    def _with_session_state(self, job: Stored, alive: Collection[str]) -> Stored:
        """Return a job with the state of the session that keeps its claim."""
        if not kept_by_session(job.record):
            return job
        session = _tag(job).session
        mine = job.record.keeper == self.hears.handle
        return job._replace(alive=session in alive, passing=mine and session != self._driver.session())

    def _names(self, folder: str, after: str = "", fresh: bool = False, most: int = 1_000) -> Iterator[str]:
        """Yield all names of an index, or of a folder of records, behind ``after``."""
        while names := self._driver.read([], [Range(folder, most, after)], fresh).names[0]:
            yield from names
            if len(names) < most:
                return
            after, fresh = names[-1], False

    def sides(self, kind: str, position: Any, limit: int) -> tuple[Found, Any]:
        after = position or ""
        if isinstance(position, Side):
            done = StoredOutcome.of(position)
            after = "" if done is None else newest_of(done.record)
        outcomes = kind == "outcome"
        names = self._driver.read([], [Range(DONE if outcomes else f"side/{kind}", limit, after)]).names[0]
        found = self.read([], [(kind, uuid_of(name) if outcomes else unquote(name)) for name in names])
        sides = [side for side in found.sides if side.value is not None and (kind != "key" or side.until is not None)]
        return found._replace(sides=sides), names[-1] if len(names) == limit else None

    # Looks

    def look(
        self,
        limit: int,
        names: Sequence[str] | None,
        readable: int,
        without: Sequence[str] = (),
        full: Sequence[LimitScope] = (),
        where: Any = None,
    ) -> Look:
        groups = frozenset((scope.name, scope.group) for scope in full)
        wanted = LookFilter(None if names is None else frozenset(names), frozenset(without), groups, readable)
        strays: set[Entry] | None = None
        outdated: set[str] = set()
        for number in range(1, tries.STORE + 1):
            look, gone, moved = self._look(0 if wanted.names == frozenset() else limit, wanted)
            # A swept job may be in none of the listings, and come before the jobs found. A name that outlives a look
            # without its job belongs to no job.
            is_whole = moved <= outdated
            outdated |= moved
            if look.overdue or (is_whole and (look.ready or not gone)):
                return look
            strays = gone if strays is None else strays & gone
            if is_whole and number >= tries.STRAY and gone == strays:
                # No process is that quick each time: somebody has deleted or changed the records by hand.
                for place in sorted(self._driver.place(f"{READY}/{entry}") for entry in strays):
                    LOG.warning("%s is set aside: no job that can be claimed has this name. Delete it", place)
                return look
            self.hears.sleep_unless_closed(retry.backoff(number, 0.001, 0.05))
        raise ConnectionFailure(f"given up after {tries.STORE} looks, in each of which others had taken all jobs")

    def _look(self, limit: int, wanted: LookFilter) -> tuple[Look, set[Entry], set[str]]:
        """Return a look, the entries whose jobs were gone before the look could read them, and the names of ended
        leases, delays and sessions whose jobs others had swept by then."""
        guess, ahead = self._guess, max(LEAST_GUESS, limit)
        some = max(limit + ahead, LISTED if wanted.is_narrow else 0)
        ranges = [Range(TIMED, FEW), *([Range(READY, some)] if limit else [])]
        if self.traits.keeps == "session":
            ranges += SESSIONS
        found = self._driver.read([GATE_PATH, *map(job_path, guess)], ranges)
        listed = {each.folder: names for each, names in zip(ranges, found.names, strict=True)}
        known = dict(zip(guess, found.nodes[1:], strict=True))
        page, timed = listed.get(READY, []), listed[TIMED]
        now = self._time(found.now, map(self._time_of, timed))
        moved = {name for name in timed if self._time_of(name) <= now}
        if len(moved) == FEW:
            timed = self._driver.read([], [Range(TIMED, OVERDUE + 1)], fresh=False).names[0]
        ended = [name for name in timed[:OVERDUE] if self._time_of(name) <= now]
        overdue = self._read_ended(ended, now) if ended else []
        if self.traits.keeps == "session":
            moved |= _ended_sessions(listed)
            overdue += islice(self._collect_orphans(listed, now), OVERDUE)
        ready: list[Stored] = []
        gone: set[Entry] = set()
        while True:
            entries = [entry for entry in _entries(page) if wanted.takes(entry)]
            while entries and len(ready) < limit:
                # Chunks grow where others are quicker. Single steps would go through the whole board.
                size = limit - len(ready) + len(gone)
                chunk, entries = entries[:size], entries[size:]
                for entry, job in zip(chunk, self._claimable(chunk, known, now), strict=True):
                    if job is None:
                        gone.add(entry)
                    else:
                        (overdue if _tag(job).is_damaged else ready).append(job)
            if len(ready) >= limit or len(page) < some:
                break
            some = LISTED
            page = self._driver.read([], [Range(READY, some, page[-1])], fresh=False).names[0]
        seen = [*(job.record.uuid for job in ready[limit:]), *(entry.uuid for entry in entries)]
        self._guess = seen[:ahead]
        event = self._next_event(timed, now) if len(ready) < max(limit, 1) else None
        return Look(now, ready[:limit], overdue[:OVERDUE], event, _side(*GATE, found.nodes[0])), gone, moved

    def _next_event(self, timed: Sequence[str], now: int) -> int | None:
        """Return the µs until the next lease or delay ends, by the first names in ``timed``; None if there is none.

        An expiry makes no job claimable, so waiters sleep past it. Past a whole page of expiries, the last one wakes
        them."""

        def first(timed: Sequence[str]) -> int | None:
            ahead = (self._time_of(name) - now for name in timed if not _is_expiry(name))
            return next((left for left in ahead if left > 0), None)

        event = first(timed)
        if event is None and len(timed) == FEW:
            timed = self._driver.read([], [Range(TIMED, OVERDUE + 1)], fresh=False).names[0]
            event = first(timed)
        return max(0, self._time_of(timed[-1]) - now) if event is None and len(timed) > OVERDUE else event

    def _claimable(self, entries: Sequence[Entry], known: dict[str, Node | None], now: int) -> list[Stored | None]:
        """Return the jobs of these entries; None for an outdated entry. A known record that does not fit its entry is
        read again, as the record may be older."""
        jobs = [_fitting(entry, known.get(entry.uuid), now) for entry in entries]
        missing = [at for at, job in enumerate(jobs) if job is None]
        if missing:
            nodes = self._driver.read([job_path(entries[at].uuid) for at in missing], fresh=False).nodes
            for at, node in zip(missing, nodes, strict=True):
                jobs[at] = _fitting(entries[at], node, now)
        return jobs

    # Ends of leases, delays and sessions before a sweep

    def _time_of(self, name: str, index: str = TIMED) -> int:
        try:
            return time_of(name)
        except ValueError as error:
            raise JobFailure(
                f"{self._driver.place(f'{index}/{name}')} has a name that no job has: delete it", error
            ) from error

    def _read_ended(self, names: Sequence[str], now: int) -> list[Stored]:
        """Return the jobs of these names in ``timed``, without jobs that have changed."""
        jobs = self._read_named(names, now)
        return [job for name, job in jobs if _tag(job).is_damaged or job.record.lock_until == time_of(name)]

    def _collect_orphans(self, listed: dict[str, list[str]], now: int) -> Iterator[Stored]:
        """Yield the claims of sessions that have ended. Remove an ended session without claims from ``holders``.

        :param listed: the names in ``holders`` and in ``alive``, where sessions keep claims.
        """
        for session in sorted(_ended_sessions(listed)):
            kept = takewhile(f"{session}/".__gt__, self._names(KEPT, f"{session}.", most=OVERDUE))
            names = [*islice(kept, OVERDUE)]
            if not names and not self._read_only:
                # The session gets no further claims, as the commit of a claim requires a living session.
                self._driver.commit([Op("remove", f"{HOLDERS}/{session}")])
            while names:
                for _, job in self._read_named(names, now):
                    if _tag(job).is_damaged or (kept_by_session(job.record) and _tag(job).session == session):
                        yield job._replace(alive=False)
                names = [*islice(kept, OVERDUE)]

    def _read_named(self, names: Sequence[str], now: int) -> list[tuple[str, Stored]]:
        """Return the existing jobs of names that end with uuids, without the states of their sessions."""
        nodes = self._driver.read([job_path(uuid_of(name)) for name in names], fresh=False).nodes if names else []
        jobs = [(name, _stored(uuid_of(name), node, now)) for name, node in zip(names, nodes, strict=True)]
        return [(name, job) for name, job in jobs if job is not None]

    def _read_overdue(self) -> tuple[list[str], list[tuple[State, Record]]]:
        """Return the names in ``timed`` that have ended; and the stored states and settled records of the ended claims
        and of the jobs that expire."""
        ranges = SESSIONS if self.traits.keeps == "session" else ()
        found = self._driver.read([], ranges)
        listed = {each.folder: names for each, names in zip(ranges, found.names, strict=True)}
        last = found.now + self._driver.precision
        timed = [*takewhile(lambda name: self._time_of(name) <= last, self._names(TIMED))]
        now = self._time(found.now, map(time_of, timed))
        ended = [name for name in timed if time_of(name) <= now]
        read = [name for name in ended if not _is_due(name)]
        jobs = [
            job for start in range(0, len(read), LISTED) for job in self._read_ended(read[start : start + LISTED], now)
        ]
        jobs += self._collect_orphans(listed, now)
        return ended, [(job.record.state, record_at(job, now)) for job in jobs]

    # Pages and counts

    def page(
        self,
        after: Record | None,
        limit: int,
        names: Sequence[str] | None,
        states: frozenset[State],
        fresh: bool = False,
    ) -> tuple[int, list[Stored]]:
        last = behind(after and (after.priority, after.sequence))
        jobs: list[Stored] = []
        read = 0
        while True:
            some = limit if names is None else LISTED
            found = self._driver.read([], [Range(LIVE, some, last)], fresh)
            listed = found.names[0]
            entries = [entry for entry in _entries(listed) if names is None or entry.name in names]
            now, met, _ = self._jobs([entry.uuid for entry in entries]) if entries else (found.now, [], [])
            there = [job for entry, job in zip(entries, met, strict=True) if job is not None and _is_of(job, entry)]
            fits = [record_at(job, now).state in states for job in there]
            jobs += compress(there, fits)
            read += len(there)
            if len(jobs) >= limit or len(listed) < some:
                return now, jobs[:limit]
            if read >= WALKED and fits and not fits[-1]:
                # The next page goes on behind this job.
                return now, [*jobs, there[-1]]
            last, fresh = listed[-1], False

    def walk(self, order: Order, after: Bookmark | None, most: int, sieve: Sieve, fitting: int | None = None) -> Walked:
        most = min(most, PAGE)
        if order == "outcomes":
            return walk_outcomes(self, after, most, _outcome_place)
        if order == "trash":
            return walk_trash(self, after, most)
        if order == "serving" or (order == "claims" and self.traits.keeps == "process"):
            return self._walk_live(after or "", most, sieve)
        folder, _, last = (after or f"{TIMED}/").partition("/")
        names = self._driver.read([], [Range(folder, most, last)], fresh=True).names[0]
        wanted = [name for name in names if folder == KEPT or _is_scheduled(name) == (order == "due")]
        now, jobs, _ = self._jobs([uuid_of(name) for name in wanted])
        met = zip(wanted, jobs, strict=True)
        found = [(f"{folder}/{name}", job) for name, job in met if job is not None and not _tag(job).is_damaged]
        if len(names) == most:
            return Walked(now, found, len(names), f"{folder}/{names[-1]}")
        goes_on = folder == TIMED and order == "claims" and self.traits.keeps == "session"
        return Walked(now, found, len(names), f"{KEPT}/" if goes_on else None)

    def _walk_live(self, last: str, most: int, sieve: Sieve) -> Walked:
        names = self._driver.read([], [Range(LIVE, most, last)], fresh=True).names[0]
        entries = [
            entry
            for entry in _entries(names)
            if (sieve.names is None or entry.name in sieve.names) and sieve.group in (None, entry.group)
        ]
        now, jobs, _ = self._jobs([entry.uuid for entry in entries])
        found: list[tuple[Bookmark, Stored]] = [
            (behind((entry.rank, entry.sequence)), job)
            for entry, job in zip(entries, jobs, strict=True)
            if job is not None and _is_of(job, entry)
        ]
        return Walked(now, found, len(names), names[-1] if len(names) == most else None)

    def trash_page(self, after: Record | None, limit: int) -> list[Record]:
        last = "" if after is None else newest_of(after)
        over = [record for _, record in self._read_overdue()[1]]
        lapsed = [record for record in over if record.state == TRASHED and newest_of(record) > last]
        names = self._names(TRASH, last, fresh=True, most=limit)
        page: dict[str, Record] = {}
        while len(page) < limit and (some := [*islice(names, limit)]):
            for name, job in self._read_named(some, self.now()):
                if job.record.state == TRASHED:
                    when, sequence = parse_newest(name)
                    page[job.record.uuid] = job.record._replace(modified_on=when, sequence=sequence)
        # Another call may have swept some of the lapsed ones meanwhile.
        left = [record for record in lapsed if record.uuid not in page]
        return sorted([*left, *page.values()], key=newest_of)[:limit]

    def counts(self, states: Collection[State], cap: int | None = None) -> dict[State, int]:
        counts: dict[State, int] = {}
        if COMPLETE in states and (outcomes := self._driver.count(DONE)) is not None:
            counts[COMPLETE] = outcomes
        if states == {COMPLETE}:
            return counts
        live, ready, trashed = map(self._count, (LIVE, READY, TRASH))
        scheduled = sum(map(_is_scheduled, self._names(TIMED, fresh=True)))
        counts |= {UNCLAIMED: ready, SCHEDULED: scheduled, CLAIMED: live - ready - scheduled, TRASHED: trashed}
        ended, over = self._read_overdue()
        due = sum(map(_is_due, ended))
        counts[SCHEDULED] -= due
        counts[UNCLAIMED] += due
        for state, record in over:
            counts[state] -= 1
            counts[record.state] += 1
        # Each index was counted at a time of its own.
        return {state: max(0, count) for state, count in counts.items()}

    def _count(self, folder: str) -> int:
        count = self._driver.count(folder)
        return sum(1 for _ in self._names(folder, fresh=True)) if count is None else count

    # Damage

    def place(self, uuid: str) -> str:
        return self._driver.place(job_path(uuid))

    def oddities(self) -> Iterator[Oddity]:
        names = self._names("job", fresh=True, most=LISTED)
        while uuids := [unquote(name) for name in islice(names, LISTED)]:
            for job in self.read(uuids).jobs:
                if job is not None and _tag(job).is_damaged:
                    uuid = job.record.uuid
                    yield odd_job(uuid, self.place(uuid), job.record.error)

    # Writing

    def commit(
        self,
        changes: Sequence[Change],
        marks: Sequence[Mark] = (),
        checks: Sequence[Side] = (),
        terms: CommitTerms = ANY_TERMS,
    ) -> Committed:
        if self._listener is None:
            return self._commit(changes, marks, checks, terms)
        with self._listener.own(changes):
            return self._commit(changes, marks, checks, terms)

    def _commit(
        self, changes: Sequence[Change], marks: Sequence[Mark], checks: Sequence[Side], terms: CommitTerms
    ) -> Committed:
        driver = self._driver
        drafts = sum(isinstance(change.after, Draft) for change in changes)
        for number in range(1, tries.STORE + 1):
            numbers = driver.number(drafts, runtime.boottime() < self._beaten_until) if drafts else None
            first, lag = numbers.first if numbers else 0, driver.precision
            batch = _Commit(driver.now(), lag, first, self._keeping(changes), self._search)
            for change in changes:
                batch.change(change)
            for mark in marks:
                batch.mark(mark)
            for side in checks:
                batch.check(side)
            if terms.before is not None:
                batch.ops.append(Op("before", str(terms.before)))
            if reschedules(changes, marks):
                batch.ops.append(Op("ring", SCHEDULES))
            if terms.by is not None and runtime.boottime() > terms.by:
                # The session or the numbers took too long.
                raise batch.stale(())
            try:
                versions = driver.commit([*batch.done(self._holder), *(numbers.ops if numbers else ())])
            except Refused as refused:
                counters = {op.path for op in numbers.ops} if numbers else set()
                may_go_on = refused.paths <= {*counters, batch.session} and not refused.paths & batch.relied_on
                if not may_go_on or not (counters or refused.paths):
                    raise batch.stale(refused.paths) from None
                if counters:
                    self._beaten_until = runtime.boottime() + BEATEN
                if number > 1:
                    self.hears.sleep_unless_closed(retry.backoff(number - 1, 0.001, 0.05))
                continue
            self._holder = batch.session or self._holder
            return batch.committed(versions)
        raise ConnectionFailure(
            f"given up after {tries.STORE} tries, in each of which the session or the counter had changed"
        )

    def _keeping(self, changes: Sequence[Change]) -> str | None:
        """Return the session that is to keep the claims of these changes; None where they make none."""
        if self.traits.keeps == "session":
            for change in changes:
                if isinstance(change.after, Record) and kept_by_session(change.after):
                    return self._driver.session()
        return None

    def _search(self, uuid: str) -> Sequence[str]:
        """Return the names of a job whose record is damaged, out of all names of all jobs."""
        found: list[str] = []
        for index in (LIVE, READY):
            found += [f"{index}/{entry}" for entry in _entries(self._names(index)) if entry.uuid == uuid]
        for index in (TIMED, KEPT, TRASH):
            found += [f"{index}/{name}" for name in self._names(index) if uuid_of(name) == uuid]
        return found

    # Tidying

    def tidy(self, seconds: float) -> bool:
        if not self._tidies.acquire(blocking=False):
            return False
        try:
            outcomes = self._drop_outcomes()
            for _ in turns(seconds):
                if next(outcomes, self) is not self:
                    continue
                # The walk costs as much as there are records. It may take a tenth of the time, by its last duration.
                if self._tidying is None and runtime.monotonic() < self._walk_at:
                    return False
                begun = runtime.monotonic()
                self._tidying = self._tidying or chain(self._drop_lapsed(), self._driver.tidying())
                is_over = next(self._tidying, self) is self
                self._walked += runtime.monotonic() - begun
                if is_over:
                    self._walk_at, self._walked = runtime.monotonic() + WALKS * self._walked, 0.0
                    self._tidying = None
                    return False
            return True
        finally:
            self._tidies.release()

    def _drop_outcomes(self) -> Iterator[None]:
        """Drop outcomes whose time has passed, and yield after each short step."""
        while True:
            now = self.now()
            first = self._driver.read([], [Range(OVER, DROPPED)]).names[0]
            names = [name for name in first if self._time_of(name, OVER) <= now]
            if not names:
                break
            sides = self.read([], [("outcome", uuid_of(name)) for name in names]).sides
            self._commit_each([_dropping(name, side) for name, side in zip(names, sides, strict=True)])
            yield

    def _drop_lapsed(self) -> Iterator[None]:
        """Walk through all other side records that have an end, drop expired ones, and yield after each short step."""
        for kind in LAPSING:
            found, position = self.sides(kind, None, LISTED)
            while True:
                over = [side for side in found.sides if not side.is_valid(found.now)]
                self._commit_each([[Op("delete", side_path(kind, side.key), version=side.tag)] for side in over])
                if position is None:
                    break
                yield
                found, position = self.sides(kind, position, LISTED)

    def _commit_each(self, groups: Sequence[list[Op]]) -> None:
        """Commit these groups of operations, each by itself where that is necessary. Leave out refused ones."""
        try:
            if groups:
                self._driver.commit([op for group in groups for op in group])
        except Refused:
            for group in groups if len(groups) > 1 else ():
                self._commit_each([group])


class _Commit:
    """The operations of one try of a commit, and the records that they store.

    :param lag: the µs by which ``now`` may be behind the server's clock.
    :param sequence: the sequence of the first new job.
    :param session: the session that keeps new claims; None: there are none, or the process keeps them.
    :param search: returns the names of a job whose record is damaged.
    """

    def __init__(
        self, now: int, lag: int, sequence: int, session: str | None, search: Callable[[str], Sequence[str]]
    ) -> None:
        self.ops: list[Op] = []
        self.session = session
        self._now, self._lag, self._sequence, self._search = now, lag, sequence, search
        self.relied_on: set[str] = set()
        """The sessions without which jobs of this commit lie in the trash: see :func:`~jobboard.engine.worn_at`."""
        self._wakes = False
        # By path: the jobs with their sessions, names and unknown fields, and the side records without their versions.
        self._jobs: dict[str, tuple[Record, str | None, Sequence[str], Sequence[Any]]] = {}
        self._sides: dict[str, Side] = {}
        self._read: dict[str, tuple[str, str]] = {}
        """By path: the kind and the key of a side record."""

    def change(self, change: Change) -> None:
        before, after, _ = change
        had: Sequence[str] = ()
        unknown: Sequence[Any] = ()
        version = None
        if before is not None:
            unknown = before.unknown
            uuid, tag = before.record.uuid, _tag(before)
            version = tag.version
            had = self._search(uuid) if tag.is_damaged else tag.names or job_names(before.record, tag.session)
            if tag.session is not None and before.alive and before.record.exhausted:
                self.relied_on.add(tag.session)
        elif after is not None:
            uuid = after.uuid
        path = job_path(uuid)
        if after is None:
            self.ops.append(Op("delete", path, b"", version))
            self._rename(had, ())
            return
        if isinstance(after, Draft):
            after = after.record(self._sequence, self._now)
            self._sequence += 1
        is_new = before is None or before.record.lock_until != after.lock_until
        if before is not None and is_new and after.state == CLAIMED and after.lock_until is not None:
            # The engine counts a lease from a time that may be behind. Its holder counts from the call.
            after = after._replace(lock_until=after.lock_until + self._lag)
        session = self.session if kept_by_session(after) else None
        self.ops.append(Op("create" if before is None else "put", path, pack(after, session, unknown), version))
        has = job_names(after, session)
        self._rename(had, has)
        self._jobs[path] = after, session, has, unknown
        self._wakes |= after.state == UNCLAIMED or (after.lock_until is not None and is_new)

    def mark(self, mark: Mark) -> None:
        side, value = mark.before, mark.value
        path, until = self._note_read(side), mark.end(self._now)
        self._wakes |= mark.wakes
        had = _outcome_names(side)
        if value is not None:
            data = bytes(msgpack.packb((value, until)))
            self.ops.append(Op("create" if side.tag is None else "put", path, data, side.tag))
            stored = self._sides[path] = Side(side.kind, side.key, value, until, None)
            self._rename(had, _outcome_names(stored))
        elif side.tag is not None:
            self.ops.append(Op("put" if path == GATE_PATH else "delete", path, b"", side.tag))
            self._rename(had, ())

    def check(self, side: Side) -> None:
        """Require that a side record is as it was read. An absent gate is made: each board has one, perhaps empty."""
        if side_path(side.kind, side.key) not in self._read:
            self.ops.append(Op("create" if side.tag is None else "check", self._note_read(side), b"", side.tag))

    def done(self, holder: str | None) -> list[Op]:
        """Return all operations. ``holder``: the session that is in ``holders`` already."""
        if self._wakes:
            self.ops.append(Op("ring", JOBS))
        if self.session is not None and self.session != holder:
            self.ops.append(Op("add", f"{HOLDERS}/{self.session}"))
        self.ops += [Op("lives", each) for each in sorted({*self.relied_on, *filter(None, [self.session])})]
        return self.ops

    def committed(self, versions: Mapping[str, Version]) -> Committed:
        jobs = [
            Stored(record, Tag(versions[path], session, names=names), unknown=unknown)
            for path, (record, session, names, unknown) in self._jobs.items()
        ]
        # By its fields, as _replace takes three times as long, and each call stores an answer.
        sides = [
            Side(kind, key, value, until, versions[path]) for path, (kind, key, value, until, _) in self._sides.items()
        ]
        return Committed(jobs, sides)

    def stale(self, paths: Iterable[str]) -> Stale:
        return Stale(
            [uuid_at(path) for path in paths if path.startswith(JOB)],
            [self._read[path] for path in paths if path in self._read],
        )

    def _note_read(self, side: Side) -> str:
        """Note that this commit relies on a side record. Return the path of the record."""
        path = side_path(side.kind, side.key)
        self._read[path] = side.kind, side.key
        return path

    def _rename(self, had: Sequence[str], has: Sequence[str]) -> None:
        self.ops += [Op("remove", name) for name in had if name not in has]
        self.ops += [Op("add", name) for name in has if name not in had]


def _tag(job: Stored) -> Tag:
    assert isinstance(job.tag, Tag)
    return job.tag


def _stored(uuid: str, node: Node | None, now: int) -> Stored | None:
    """Return a job as it is stored. A job whose record can't be decoded counts as trashed."""
    if node is None:
        return None
    try:
        record, session, unknown = unpack(uuid, node.value)
    except ValueError as error:
        LOG.warning("job %s is set aside: %s", uuid, error)
        return Stored(damaged(uuid, node.value, error, now), Tag(node.version, None, is_damaged=True))
    return Stored(record, Tag(node.version, session), unknown=unknown)


def _fitting(entry: Entry, node: Node | None, now: int) -> Stored | None:
    """Return the job of an entry in ``ready``, if its record fits the entry or is damaged."""
    job = _stored(entry.uuid, node, now)
    if job is None or _tag(job).is_damaged:
        return job
    return job if job.record.state == UNCLAIMED and _is_of(job, entry) else None


def _is_of(job: Stored, entry: Entry) -> bool:
    """Return whether an entry belongs to this job, and the job is not in the trash."""
    return job.record.state != TRASHED and Entry.of(job.record) == entry


def _entries(names: Iterable[str]) -> Iterator[Entry]:
    for name in names:
        try:
            yield Entry.parse(name)
        except ValueError:
            LOG.warning("the name %r is set aside: no job has such a name", name)


def _ended_sessions(listed: Mapping[str, list[str]]) -> set[str]:
    """Return the sessions in these names of ``holders`` that are not in ``alive``."""
    return {*listed.get(HOLDERS, ())}.difference(listed.get(ALIVE, ()))


def _is_scheduled(name: str) -> bool:
    """Return whether a name in ``timed`` is a due time, and not the end of a lease or an expiry."""
    return _is_due(name) or ".D." in name


def _is_expiry(name: str) -> bool:
    """Return whether a name in ``timed`` is the expiry of an unclaimed job."""
    return f".{UNCLAIMED[0]}." in name


def _is_due(name: str) -> bool:
    """Return whether a name in ``timed`` is the due time of a job that does not expire."""
    return f".{SCHEDULED[0]}." in name


def _side(kind: str, key: str, node: Node | None) -> Side:
    if node is None or not node.value:
        return Side(kind, key, None, None, node and node.version)
    try:
        value, until = msgpack.unpackb(node.value)
    except (ValueError, TypeError, msgpack.UnpackException):
        value, until = damaged_value(kind), None
    return Side(kind, key, value, until, node.version)


def _outcome_place(side: Side) -> str:
    """Return the name of an outcome in ``done``."""
    done = StoredOutcome.of(side)
    assert done is not None
    return newest_of(done.record)


def _outcome_names(side: Side) -> Sequence[str]:
    done = StoredOutcome.of(side) if side.kind == "outcome" else None
    return () if done is None else outcome_names(done.record, side.until)


def _dropping(name: str, side: Side) -> list[Op]:
    """Return the operations that drop the outcome of a name in ``over``."""
    done = name.partition(".")[2]
    ops = [Op("remove", f"{OVER}/{name}"), Op("remove", f"{DONE}/{done}")]
    if side.tag is not None and side.until in (None, time_of(name)):
        ops.append(Op("delete", side_path(side.kind, side.key), version=side.tag))
    return ops
