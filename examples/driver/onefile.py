"""A backend of your own: boards in one SQLite file, shared by the processes of one machine.

Records, names and sessions are rows of one table, and a bell is a row that changes. SQLite gives the rest: a commit is
one transaction, and a version is the id of a row, which ``AUTOINCREMENT`` never gives twice. Nothing wakes a process
when another one writes, so that a thread looks for bells twenty times a second.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

from jobboard import conf, forks
from jobboard.engine import Seat
from jobboard.exceptions import ConnectionFailure
from jobboard.kv.driver import ALIVE, JOBS, MISSED, SCHEDULES, Driver, Node, Numbers, Op, Range, Refused, Snapshot
from jobboard.kv.store import KVStore
from jobboard.primitives import Characteristics
from jobboard.runtime import boottime

BELLS = (JOBS, SCHEDULES, MISSED)
TABLE = """CREATE TABLE IF NOT EXISTS rows (
    version INTEGER PRIMARY KEY AUTOINCREMENT, board TEXT, path TEXT, value BLOB, UNIQUE (board, path))"""
GET = "SELECT value, version FROM rows WHERE board = ? AND path = ?"
SET = "REPLACE INTO rows (board, path, value) VALUES (?, ?, ?)"
ADD = "INSERT OR IGNORE INTO rows (board, path, value) VALUES (?, ?, '')"
DELETE = "DELETE FROM rows WHERE board = ? AND path = ?"
BEGIN = "INSERT INTO rows (board, path, value) VALUES (:board, :path, :until)"
BEAT = "UPDATE rows SET value = :until WHERE board = :board AND path = :path AND value > :now"
ENDED = "DELETE FROM rows WHERE board = ? AND path > 'alive/' AND path < 'alive0' AND value <= ?"
RANGE = "SELECT path FROM rows WHERE board = ? AND path > ? AND path < ? AND (? OR value > ?) ORDER BY path LIMIT ?"

LOCK = threading.RLock()
"""Held by the thread that works in SQLite, and by one that forks: SQLite's own locks are then held by nobody."""
os.register_at_fork(before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=LOCK.release)


class OneFileDriver(Driver):
    options: ClassVar = {"path": conf.Option(conf.text, "boards.db", "the file in which the boards are stored")}
    uri_parts: ClassVar = {"path": "path"}

    def __init__(self, seat: Seat) -> None:
        self._board, self._path, self._ttl = seat.name, seat.conf["path"], seat.conf["claim_ttl"]
        self._patience = 10.0
        self._begin()

    def _begin(self) -> None:
        self._db: sqlite3.Connection | None = None
        self._session, self._beaten = "", 0.0
        self._closed: threading.Event | None = None

    # The connection

    def open(self, create: bool, first: Sequence[Op], heard: Callable[[str], None]) -> Characteristics:
        self._heard = heard
        if create:
            with contextlib.suppress(Refused):
                self.commit(first)
        return Characteristics(
            durable=True,
            survives_failover=False,
            exact_order=True,
            blocking_wait=False,
            remote_events=True,
            transactional=False,
            claim_ttl=self._ttl,
        )

    def close(self) -> None:
        with LOCK:
            if self._closed is not None:
                self._closed.set()
            if self._session:
                with contextlib.suppress(ConnectionFailure):
                    self.commit([Op("remove", f"{ALIVE}/{self._session}"), Op("ring", MISSED)])
            if self._db is not None:
                self._db.close()
            self._begin()

    def hurry(self, seconds: float) -> None:
        self._patience = seconds

    def forked(self) -> None:
        forks.keep(self._db)  # the parent's: never closed here
        self._begin()

    @contextlib.contextmanager
    def _transaction(self, kind: str = "IMMEDIATE") -> Iterator[sqlite3.Connection]:
        """One transaction at a time: a reader sees one instant, and a writer keeps the other writers out."""
        with LOCK:
            try:
                if self._db is None:
                    self._db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
                    self._db.execute(TABLE)
                self._db.execute(f"PRAGMA busy_timeout = {int(self._patience * 1000)}")
                self._db.execute(f"BEGIN {kind}")
                try:
                    yield self._db
                    self._db.execute("COMMIT")
                except BaseException:
                    self._db.execute("ROLLBACK")
                    raise
            except sqlite3.Error as error:
                raise ConnectionFailure(f"{self._path}: {error}", error) from error

    # Records and names

    def now(self, exact: bool = False) -> int:
        """The kernel's clock, which all processes of the machine share."""
        return time.clock_gettime_ns(time.CLOCK_REALTIME) // 1000

    def read(self, paths: Sequence[str], ranges: Sequence[Range] = (), fresh: bool = True) -> Snapshot:
        with self._transaction("DEFERRED") as db:
            now = self.now()
            rows = [db.execute(GET, (self._board, path)).fetchone() for path in paths]
            return Snapshot(now, [row and Node(*row) for row in rows], [self._names(db, each, now) for each in ranges])

    def _names(self, db: sqlite3.Connection, wanted: Range, now: int) -> list[str]:
        place, most, after = wanted
        # "0" comes behind "/". A session is alive until the time that is its value.
        rows = db.execute(RANGE, (self._board, f"{place}/{after}", f"{place}0", place != ALIVE, now, most))
        return [path.rpartition("/")[2] for (path,) in rows]

    def commit(self, ops: Sequence[Op]) -> dict[str, int]:
        versions: dict[str, int] = {}
        with self._transaction() as db:
            refused = [op.path for op in ops if not self._fits(db, op)]
            if refused:
                raise Refused(*refused)
            for do, path, value, _ in ops:
                if do in ("create", "put"):
                    versions[path] = db.execute(SET, (self._board, path, value)).lastrowid or 0
                elif do in ("delete", "remove"):
                    db.execute(DELETE, (self._board, path))
                elif do == "add":
                    db.execute(ADD, (self._board, path))
                elif do == "ring":
                    db.execute(SET, (self._board, f"bell/{path}", b""))
        return versions

    def _fits(self, db: sqlite3.Connection, op: Op) -> bool:
        if op.do in ("add", "remove", "ring"):
            return True
        if op.do == "before":
            return self.now() < int(op.path)
        path = f"{ALIVE}/{op.path}" if op.do == "lives" else op.path
        row = db.execute(GET, (self._board, path)).fetchone()
        if row is None or op.do == "create":
            return row is None and op.do == "create"
        return bool(row[0] > self.now()) if op.do == "lives" else op.version == row[1]

    def number(self, count: int, beaten: bool) -> Numbers:
        """Draw numbers by a write of its own each time: simple, and never beaten."""
        with self._transaction() as db:
            last, _ = db.execute(GET, (self._board, "number")).fetchone() or (0, 0)
            db.execute(SET, (self._board, "number", last + count))
        return Numbers(last + 1, ())

    # Sessions and bells

    @property
    def margin(self) -> int:  # type: ignore[override]
        return int((self._beaten + self._ttl - boottime()) * 1e6)

    def session(self) -> str:
        with LOCK:
            if self.margin < self._ttl * 5e5:
                self.beat()
            if not self._session:
                session = uuid.uuid4().hex
                self._prolong(BEGIN, session)
                self._session = session
            return self._session

    def beat(self) -> None:
        with LOCK:
            if self._session and not self._prolong(BEAT, self._session):
                self._session = ""

    def _prolong(self, statement: str, session: str) -> bool:
        """Have the session live for ``claim_ttl`` from now on, and return whether it does."""
        asked, path = boottime(), f"{ALIVE}/{session}"
        with self._transaction() as db:
            until = (now := self.now()) + int(self._ttl * 1e6)
            given = {"board": self._board, "path": path, "until": until, "now": now}
            is_alive = db.execute(statement, given).rowcount > 0
        if is_alive:
            self._beaten = asked
        return is_alive

    def tidy(self, seconds: float) -> bool:
        with self._transaction() as db:
            db.execute(ENDED, (self._board, self.now()))
        return False

    def watch(self) -> None:
        with LOCK:
            if self._closed is None:
                self._closed = threading.Event()
                threading.Thread(target=self._listen, args=(self._closed, *self._signs()), daemon=True).start()

    def _listen(self, closed: threading.Event, rung: list[Node | None], alive: set[str]) -> None:
        while not closed.wait(0.05):
            with contextlib.suppress(ConnectionFailure):
                last, had = rung, alive
                rung, alive = self._signs()
                for word, old, new in zip(BELLS, last, rung, strict=True):
                    if old != new or (word == MISSED and had - alive):
                        self._heard(word)

    def _signs(self) -> tuple[list[Node | None], set[str]]:
        found = self.read([f"bell/{word}" for word in BELLS], [Range(ALIVE, 1_000_000)])
        return found.nodes, set(found.names[0])

    def boards(self, most: int) -> list[str]:
        with self._transaction("DEFERRED") as db:
            stored = "SELECT board FROM rows WHERE path = 'layout' ORDER BY board != ? LIMIT ?"
            return [board for (board,) in db.execute(stored, (self._board, most))]


class OneFileStore(KVStore):
    """The board that the entry point names."""

    driver = OneFileDriver
