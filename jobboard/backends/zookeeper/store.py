"""The store: records of jobs and side records in znodes, read in one go and changed in one multi."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kazoo.protocol.states import KazooState

from jobboard.backends.zookeeper import checks, making
from jobboard.backends.zookeeper.batch import tag_of
from jobboard.backends.zookeeper.clock import Clock
from jobboard.backends.zookeeper.connection import Connection
from jobboard.backends.zookeeper.events import Events
from jobboard.backends.zookeeper.lists import Names
from jobboard.backends.zookeeper.looking import View
from jobboard.backends.zookeeper.paths import (
    MINUTE,
    UNKNOWN,
    Entry,
    Paths,
    entry_of,
    folder_of,
    plain,
    sequence_of,
)
from jobboard.backends.zookeeper.records import Head
from jobboard.backends.zookeeper.requests import Refused, children, create, delete, exists, get, put
from jobboard.backends.zookeeper.sides import ScheduleWatch, Sides
from jobboard.backends.zookeeper.walking import Walker
from jobboard.backends.zookeeper.writing import Writer
from jobboard.engine import GATE, Change, Committed, Found, Lane, Look, Mark, Side, Store, Stored
from jobboard.exceptions import JobBoardError, JobFailure
from jobboard.job import boottime
from jobboard.primitives import MENTIONED, Characteristics, Oddity, mentioned
from jobboard.states import CLAIMED, UNCLAIMED, Record, State

LOG = logging.getLogger(__name__)

LAYOUT = 3
_LAYOUT = f"{LAYOUT} {LAYOUT}".encode()

_NUMBERS = 20_000
"""Of how many jobs it is remembered how the server has numbered them."""

_TRIES = 5


class ZooKeeperStore(Store):
    """:param news: told when something may have become claimable.
    :param reconnected: told when there is a connection again.
    :param rescheduled: told when a schedule may have changed, from :meth:`hear_schedules` on.
    :param heard: told what others do, while somebody listens.
    """

    keeps = "session"
    examines = frozenset({"key"})

    def __init__(
        self,
        connection: Callable[[Callable[[str], None]], Connection],
        paths: Paths,
        name: str,
        read_only: bool,
        creates: bool,
        news: Callable[[], None],
        reconnected: Callable[[], None],
        rescheduled: Callable[[], None],
        heard: Callable[[str, Record], None],
    ) -> None:
        self.connection = connection(self._changed)
        self.paths = paths
        self.gate_place = self.paths.gate
        self.news = news
        self._name = name
        self.read_only = read_only
        self._creates = creates
        self._reconnected = reconnected
        self._rescheduled = rescheduled
        self._heard = heard
        self._reset()

    def _reset(self) -> None:
        self.handle = os.urandom(8).hex()
        self.clock = Clock()
        self._forget()
        self.events = Events(self, self._heard)
        self._side_records = Sides(self)
        self._keepers: list[str] = []
        self._schedule_watch = ScheduleWatch(self, self._rescheduled)
        self._keeper: tuple[str, int | None] | None = None
        self._keeping = threading.Lock()

    def _forget(self) -> None:
        """Let go of what is remembered of the servers' data, by versions that older data may have again."""
        self.view = View(self)
        self._writer = Writer(self)
        self.walker = Walker(self)
        self._numbers: dict[str, int] = {}

    # Life

    def setup(self) -> None:
        """Create the znodes: any number of times, in any number of processes at once."""
        try:
            self.connection.set_up(lambda: self._check_layout(create_it=True))
        finally:
            self.connection.close()

    def open(self) -> Characteristics:
        try:
            alone = self.connection.set_up(self._prepare)
        except BaseException:
            self.connection.close()
            raise
        return Characteristics(
            durable=True,
            survives_failover=not alone,
            exact_order=True,
            blocking_wait=True,
            remote_events=True,
            transactional=False,
            claim_ttl=self.connection.session_timeout,
            notes="kept claims live as long as the session, whose timeout the server bounds",
        )

    def _prepare(self) -> bool:
        """Whether the server is alone."""
        self._check_layout(self._creates)
        return self.connection.alone()

    def _check_layout(self, create_it: bool) -> None:
        [layout] = self.connection.read([get(self.paths.layout)])
        if layout is None and not create_it:
            others = mentioned(self.boards(MENTIONED))
            raise JobFailure(
                f"there is no board {self._name!r} at {self.paths.root}{others}; `jobboard setup` creates it"
            )
        if layout is None:
            making.create_board(self, _LAYOUT)
            [layout] = self.connection.read([get(self.paths.layout)], fresh="/")
        try:
            made, reader = map(int, layout[0].split())
        except (ValueError, TypeError) as error:
            raise JobFailure(
                f"{self.paths.layout} holds {layout and layout[0]!r}: write {_LAYOUT!r} there if it is a board", error
            ) from error
        if reader > LAYOUT:
            raise JobFailure(f"the board at {self.paths.root} has a layout of a newer version of this library; upgrade")
        if made < LAYOUT:
            raise JobFailure(
                f"the board at {self.paths.root} has layout {made}, which only earlier versions of this library read; "
                f"move its jobs with one of these to another kind of board, or use another namespace"
            )

    def closing(self) -> None:
        self.connection.hurry()

    def close(self) -> None:
        self.connection.hurry()
        self.events.close()
        with contextlib.suppress(JobBoardError):
            if self.connection.alive and not self.read_only:
                gone = [delete(f"{self.paths.kept}/{keeper}") for keeper in self._keepers]
                self.view.disarm()
                if self.connection.shared:
                    gone = [*(delete(f"{self.paths.alive}/{keeper}") for keeper in self._keepers), *gone]
                if gone:
                    self.connection.each(gone)
                self._keepers.clear()
        if self.connection.shared and self._keepers:
            threading.Thread(target=self._farewell, name=f"{self._name}-farewell", daemon=True).start()
        else:
            self.connection.close()

    def _farewell(self) -> None:
        """The session goes on, as it is the caller's: end what it keeps when there is a connection again."""
        session = self._keeper and self._keeper[1]
        while self.connection.session_id in (None, session):
            with contextlib.suppress(JobBoardError):
                if self.connection.alive:
                    self.connection.each([delete(f"{self.paths.alive}/{keeper}") for keeper in self._keepers])
                    break
            time.sleep(0.05)
        self.connection.close()

    def forked(self) -> None:
        listening = self.events.listening
        self.connection.leak()
        self._reset()
        if listening:
            self.events.listen(at_once=False)

    @property
    def connected(self) -> bool:
        return self.connection.alive

    @property
    def margin(self) -> int:  # type: ignore[override]
        return int(self.connection.session_timeout * 1e6 * 2 / 3)

    def _changed(self, state: str) -> None:
        """The connection was made, interrupted or lost; told on kazoo's thread."""
        if state == KazooState.LOST:
            self._forget()
        if state == KazooState.CONNECTED:
            self._reconnected()
            self.events.wake()
            self._schedule_watch.rung()
        self.news()

    def past(self, day: int, minute: int) -> bool:
        """Whether a minute is surely over."""
        return (day * 24 * 60 + minute + 2) * MINUTE < self.clock.earliest()

    def mend(self, wanted: Sequence[str] = ()) -> None:
        making.mend(self, wanted)

    # Time

    def now(self) -> int:
        if self.read_only:
            [stat] = self.connection.read([exists(self.paths.clock)])
            return 0 if stat is None else int(stat.mtime * 1000)
        for _ in range(2):
            start = boottime()
            try:
                [stat] = self.connection.commit([put(self.paths.clock, b"")])
            except Refused:
                self.mend()
                continue
            self.clock.told(stat.mtime, start, boottime())
            return self.clock.earliest()
        raise JobFailure(f"{self.paths.clock} can't be written")

    def earliest(self) -> int:
        if not self.clock.known:
            self.now()
        return self.clock.earliest()

    @property
    def precision(self) -> int:  # type: ignore[override]
        return self.clock.unknown

    def judged(self, jobs: Sequence[Stored | None]) -> int:
        if self.read_only:
            return self.now()
        if not self.clock.known:
            self.now()
        now = self.clock.earliest()
        # What another has seen to have ended has ended here.
        soon = now + self.clock.unknown
        ends = (each.record.lock_until for each in jobs if each is not None)
        return self.now() if any(end is not None and end <= soon for end in ends) else now

    # Reading

    def read(self, uuids: Sequence[str], sides: Sequence[tuple[str, str]] = ()) -> Found:
        asked = [uuid for uuid in uuids if plain(uuid)]
        places = [self.paths.side(kind, key) for kind, key in sides]
        # Most often it is this handle's own claims that are asked for.
        mine = [] if self._keeper is None or not asked else [f"{self.paths.alive}/{self._keeper[0]}"]
        reads = [*(get(self.paths.job(uuid)) for uuid in asked), *map(get, places), *map(exists, mine)]
        found = self.connection.read(reads, fresh=self.paths.root)
        known = dict(zip(mine, found[len(asked) + len(places) :], strict=True))
        heads = dict(zip(asked, found, strict=False))
        if None in heads.values():
            [layout] = self.connection.read([exists(self.paths.layout)])
            if layout is None:
                self.mend()
        jobs = self.whole([self.head(uuid, heads.get(uuid)) for uuid in uuids], known)
        return Found(
            self.judged(jobs), jobs, self._side_records.of(sides, found[len(asked) : len(asked) + len(places)])
        )

    def lost(self, jobs: Sequence[Stored]) -> set[str]:
        uuids = [stored.record.uuid for stored in jobs]
        found = self.connection.read([get(self.paths.job(uuid)) for uuid in uuids], fresh=self.paths.root)
        return {
            uuid
            for uuid, stored, data in zip(uuids, jobs, found, strict=True)
            if data is None or data[1].version != tag_of(stored).version
        }

    def sync(self) -> None:
        self.connection.read([], fresh=self.paths.root)

    @staticmethod
    def head(uuid: str, data: Any) -> Head | None:
        if data is None:
            return None
        try:
            return Head.unpack(uuid, data[0], data[1].version)
        except ValueError as error:
            return Head.damaged(uuid, data[0], data[1].version, error, data[1].mtime * 1000)

    def whole(self, heads: Sequence[Head | None], known: Mapping[str, Any] | None = None) -> list[Stored | None]:
        """These jobs with what their own znodes don't tell: contents that lie elsewhere, whether a keeper lives, and
        how a job that is as it was posted is numbered.

        :param known: what was read after them already, by its path."""
        done: dict[int, Stored | None] = {}
        waiting = dict(enumerate(heads))
        for number in range(_TRIES):
            wanted = {
                path: request for each in waiting.values() if each is not None for path, request in self._missing(each)
            }
            got = dict(known or {}) if number == 0 else {}
            missing = [path for path in wanted if path not in got]
            got.update(zip(missing, self.connection.read([wanted[path] for path in missing]), strict=True))
            again: dict[int, str] = {}
            for index, head in waiting.items():
                done[index] = None if head is None else self.assembled(head, got, last=number == _TRIES - 1)
                if head is not None and done[index] is None:
                    again[index] = head.uuid
            if not again:
                break
            # They have changed meanwhile.
            data = self.connection.read([get(self.paths.job(uuid)) for uuid in again.values()])
            waiting = {i: self.head(uuid, each) for (i, uuid), each in zip(again.items(), data, strict=True)}
        return [done[index] for index in range(len(heads))]

    def _missing(self, head: Head) -> Iterator[tuple[str, Any]]:
        record, tag = head.record, head.tag
        if head.is_damaged:
            return
        if tag.body:
            path = f"{self.paths.job(head.uuid)}~{tag.body}"
            yield path, get(path)
        if record.state == CLAIMED and record.lock_until is None:
            path = self._alive(tag.keeper)
            yield path, exists(path)
        if tag.n == UNKNOWN and head.uuid not in self._numbers:
            path = self.paths.at(folder_of(UNCLAIMED, record.priority, tag.folder))
            yield path, children(path)

    def _alive(self, keeper: str | None) -> str:
        return f"{self.paths.alive}/{keeper or '-'}"

    def assembled(self, head: Head, got: dict[str, Any], last: bool = False) -> Stored | None:
        """None: it has changed meanwhile."""
        record, tag, uuid = head.record, head.tag, head.uuid
        if head.is_damaged:
            return Stored(record, tag)
        n = tag.n if tag.n != UNKNOWN else self._numbers.get(uuid, UNKNOWN)
        if n == UNKNOWN:
            path = self.paths.at(folder_of(UNCLAIMED, record.priority, tag.folder))
            for name in (got.get(path) or ((), None))[0]:
                with contextlib.suppress(ValueError):
                    listed = Entry.parse(name)
                    self.remember_number(listed.uuid, listed.n)
            n = self._numbers.get(uuid, 0 if last else UNKNOWN)
            if n == UNKNOWN:
                return None
        content: bytes = head.content
        if tag.body:
            found = got.get(f"{self.paths.job(uuid)}~{tag.body}")
            if found is None and not last:
                return None
            content = b"" if found is None else found[0]
        try:
            record = head.whole(content)._replace(sequence=sequence_of(record.priority, tag.folder, n))
        except ValueError as error:
            LOG.warning("job %s is set aside: %s", uuid, error)
            broken = Head.damaged(uuid, content, tag.version, error, record.modified_on)
            sequence = sequence_of(record.priority, tag.folder, n)
            entry = entry_of(record, tag.folder, n)
            shown = broken.record._replace(name=record.name, priority=record.priority, sequence=sequence)
            return Stored(shown, tag._replace(n=n, entry=entry))
        keeper = tag.keeper
        alive = keeper is None or got.get(self._alive(keeper)) is not None
        if record.state == CLAIMED and record.lock_until is None and keeper is None:
            alive = False
        passing = keeper in self._keepers and keeper != self._present_keeper()
        return Stored(record, tag._replace(n=n, entry=entry_of(record, tag.folder, n)), alive, passing)

    def remember_number(self, uuid: str, n: int) -> None:
        self._numbers[uuid] = n
        while len(self._numbers) > _NUMBERS:
            with contextlib.suppress(KeyError, StopIteration, RuntimeError):
                del self._numbers[next(iter(self._numbers))]

    def listed(self, kind: str) -> Found:
        return Found(self.judged([]), [], self._side_records.listed(kind))

    def walk(self, kind: str, place: Any) -> tuple[Found, Any]:
        return self._side_records.walk(kind, place)

    def newest(self, kind: str, after: Side | None, limit: int) -> Found:
        return Found(self.judged([]), [], self._side_records.newest(kind, after, limit))

    def tidy(self, seconds: float) -> bool:
        self._side_records.tidy()
        return self._side_records.drop_outcomes(seconds)

    # Keepers

    def keeper(self) -> str:
        """What keeps this handle's claims for as long as its session lives: another one in each session, so that a
        keeper which is gone never comes back."""
        with self._keeping:
            present = self._present_keeper()
            if present is None:
                present = name = os.urandom(10).hex()
                for _ in range(2):
                    try:
                        kept, alive = create(f"{self.paths.kept}/{name}"), f"{self.paths.alive}/{name}"
                        self.connection.commit([kept, create(alive, ephemeral=True)])
                        break
                    except Refused:
                        self.mend()
                self._keepers.append(name)
                self._keeper = (name, self.connection.session_id)
            return present

    def _present_keeper(self) -> str | None:
        """That of the session which is there now; None: it has none yet."""
        keeper, session = self._keeper, self.connection.session_id
        return None if keeper is None or session not in (None, keeper[1]) else keeper[0]

    def forget_keeper(self) -> None:
        with self._keeping:
            self._keeper = None

    # The rest of the contract

    def look(
        self,
        limit: int,
        names: Sequence[str] | None,
        readable: int,
        without: Sequence[str] = (),
        full: Sequence[Lane] = (),
    ) -> Look:
        return self.view.look(limit, Names.of(names, without, full), readable)

    def known(self, limit: int, names: Sequence[str] | None, readable: int, without: Sequence[str] = ()) -> Look | None:
        return self.view.known(limit, Names.of(names, without), readable)

    def gate(self, data: Any) -> Side:
        """As it was read."""
        return self._side_records.of([GATE], [data])[0]

    def page(
        self, after: Record | None, limit: int, names: Sequence[str] | None, states: frozenset[State]
    ) -> tuple[int, list[Stored]]:
        return self.walker.page(after, limit, None if names is None else frozenset(names), states)

    def trash_page(self, after: Record | None, limit: int) -> list[Record]:
        return self.walker.trash_page(after, limit)

    def counts(self) -> dict[State, int]:
        return self.walker.counts()

    def commit(self, changes: Sequence[Change], marks: Sequence[Mark] = (), checks: Sequence[Side] = ()) -> Committed:
        return self._writer.commit([self._in_full(change) for change in changes], marks, checks)

    def _in_full(self, change: Change) -> Change:
        """The engine counts a lease from the earliest that it may be now; its holder from when it has asked for it, and
        so it ends later by as much as is not known of the server's clock."""
        before, after, _ = change
        if not isinstance(after, Record) or after.state != CLAIMED or after.lock_until is None:
            return change
        if before is not None and before.record.lock_until == after.lock_until:
            return change
        return change._replace(after=after._replace(lock_until=after.lock_until + self.clock.unknown))

    def tail_folder(self, rank: int) -> int:
        return self._writer.tail_folder(rank)

    def remove(self, folders: Sequence[str]) -> None:
        if not self.read_only and folders:
            self._writer.remove(folders)

    def listen(self, on: bool) -> None:
        if on and not self.read_only:
            self.events.listen()
        else:
            self.events.close()

    def hear_schedules(self) -> bool:
        return self._schedule_watch.hear()

    def examine(self) -> Iterator[Oddity]:
        for odd in checks.oddities(self):
            yield Oddity(odd.place, odd.what)

    def boards(self, most: int) -> list[str]:
        return checks.boards(self, self._name, most)
