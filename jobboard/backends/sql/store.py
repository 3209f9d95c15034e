"""The store of boards in an SQL database: SQLite, PostgreSQL, MariaDB and MySQL.

The engine decides. This store reads without a lock, and a commit is one transaction: it locks the jobs that it changes,
compares their tags, and writes. Each statement stands under its name in ``postgresql.sql``, ``mariadb.sql`` or
``sqlite.sql``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, cast

import sqlalchemy as sa

from jobboard import forks, runtime
from jobboard.backends.sql import doctor, layout, starts
from jobboard.backends.sql import scopes as limits
from jobboard.backends.sql.callers import CallersTransactions
from jobboard.backends.sql.columns import RECORD_COLUMNS
from jobboard.backends.sql.conditions import condition_text
from jobboard.backends.sql.fast_paths import fast_paths
from jobboard.backends.sql.options import OPTIONS, URI_PARTS, check_client, check_there, make_engine, url_of
from jobboard.backends.sql.rows import (
    Row,
    answer_of,
    answer_text,
    brought,
    by_uuid,
    changed,
    inserted,
    outcome_row,
    outcome_side,
    record_of,
    replaced,
    stored_of,
    wakes,
)
from jobboard.backends.sql.statements import NAMES_AT_ONCE, TIDIED, Statement, Statements, chunks
from jobboard.backends.sql.tables import place_of, tables_of
from jobboard.backends.sql.waiters import schedules_payload, waiter_of
from jobboard.engine import (
    ANY_TERMS,
    GATE,
    NO_GATE,
    OVERDUE,
    Answer,
    Bookmark,
    Change,
    ClaimTerms,
    Committed,
    CommitTerms,
    Found,
    Hears,
    HeldTooLong,
    LimitScope,
    Look,
    Mark,
    NameCount,
    Occupied,
    Order,
    Seat,
    SetupStep,
    Side,
    Sieve,
    Stale,
    Store,
    Stored,
    Traits,
    Walked,
    held_key,
    reschedules,
    slot_of,
    turns,
    walk_outcomes,
)
from jobboard.engine.answers import KEPT
from jobboard.exceptions import JobFailure
from jobboard.primitives import POLL_CAP, Characteristics, Draft, Finish, Nonce, Oddity
from jobboard.sql.clients import SYNC, is_async
from jobboard.sql.connections import ConstraintViolated, Contended, Link, Links, deadline, refusal_error
from jobboard.sql.dialects import Database, Trouble
from jobboard.sql.runners import Runner
from jobboard.states import CLAIMED, COMPLETE, LIVE, SCHEDULED, UNCLAIMED, Record, State, serving_order, settle

T = TypeVar("T")

REMEDY = "`jobboard setup`"

SLOT_CALLS = 250
"""The number of calls after which a slot is replaced on PostgreSQL. Each call leaves an old version of the slot's
answer, which stays while an older snapshot may need it, and a page holds some fifty."""

MOST_OUTCOMES = 100_000
"""The number of outcomes at which their count ends."""

COUNTING = 10.0
"""The seconds that a count may take, whatever the deadline of other requests."""

_CONDITIONS = {
    "names": "of_names",
    "states": "in_states",
    "shorter": "held_shorter",
    "group": "with_group",
    "owner": "with_owner",
    "key": "with_key",
    "error": "with_error",
    "posted_from": "posted_from",
    "posted_before": "posted_before",
}
"""The condition of each field of a sieve."""

_FITTING = {"trash": "last_fitting", "claims": "longest_fitting", "few_claims": "longest_fitting"}
"""The order of the jobs that a walk returns first, where it is not that of the walk."""

OTHER_TABLES = frozenset({"key", "answer", "outcome"})
"""The kinds of side records that lie in other tables than the rest."""


class Block:
    """A try of a call, on one thread: see :meth:`SQLStore.transaction`.

    run: the transaction; None until something is locked in it.
    is_joined: the transaction is the caller's.
    has_written: the transaction is to be committed. by: the latest time for that, as in CommitTerms.
    is_over: the transaction has been committed. keeps_out: others wait for the locks of the transaction.
    locked: the tags of jobs that the transaction has locked.
    """

    def __init__(self, run: Runner | None = None) -> None:
        self.run = run
        self.is_joined = run is not None
        self.has_written = False
        self.is_over = False
        self.keeps_out = False
        self.by: float | None = None
        self.locked: set[object] = set()
        self.stack = contextlib.ExitStack()


class SQLStore(Store):
    """A board in the tables of an SQL database.

    ``client``: an SQLAlchemy Engine of the caller's; the board takes connections from it and never disposes of it.

    ``board.table`` is the jobs' table, for conditions as in ``claim_next(who, where=board.table.c.priority < 100)``.
    ``connection=`` takes a Connection or a Session of the caller's: the verb then belongs to the caller's transaction,
    whose commit decides about it.
    """

    options = OPTIONS
    uri_parts = URI_PARTS
    traits = Traits(keeps="lease", wire="json", locks_scopes=True)
    extras: ClassVar[Mapping[str, frozenset[str]]] = {
        "claim_next": frozenset({"where"}),
        "claim_many": frozenset({"where"}),
        "find": frozenset({"where"}),
        **dict.fromkeys(
            ("post", "post_many", "consume", "consume_many", "finish_many", "abandon", "trash"),
            frozenset({"connection"}),
        ),
    }

    product: Database
    statements: Statements

    def __init__(self, seat: Seat) -> None:
        super().__init__(seat)
        self._conf = conf = seat.conf
        if seat.client is None:
            self._url = url_of(conf)
        elif isinstance(seat.client, sa.Engine):
            check_client(seat.client, conf)
        else:
            hint = f"; {SYNC}" if is_async(seat.client) else ""
            raise TypeError(f"client must be an SQLAlchemy Engine, not {type(seat.client).__name__}{hint}")
        self.board = seat.name
        self.tables = tables_of(conf["table"])
        gate_place = f"table {self.tables.sides.name}, row of this board of kind {GATE[0]}"
        self.traits = dataclasses.replace(self.traits, table=self.tables.jobs, gate_place=gate_place)
        self.links = self._new_links()
        self._local = runtime.Local()
        # The gate that was seen last. Its value is not asked for again.
        self._gate = NO_GATE

    # Life

    def setup(self) -> list[SetupStep]:
        if self.seat.client is None:
            check_there(self._url, self._conf, True)
        return self._set_up(lambda link: layout.setup(link.connection, link.product, self.tables))

    def setup_steps(self) -> list[SetupStep]:
        is_file = self.seat.client is None and self._url.get_backend_name() == "sqlite"
        if is_file and not Path(str(self._url.database)).exists():
            # A connection would create the file.
            with sa.create_engine("sqlite://", poolclass=sa.NullPool).connect() as empty:
                return layout.setup_steps(empty, self.tables)
        return self._set_up(lambda link: layout.setup_steps(link.connection, self.tables))

    def _set_up(self, work: Callable[[Link], list[SetupStep]]) -> list[SetupStep]:
        try:
            return self.links.finish(work, patient=True)
        finally:
            self.links.close()

    def open(self, hears: Hears, create: bool) -> Characteristics:
        self.hears = hears
        conf, writes = self._conf, not self._conf["read_only"]
        if self.seat.client is None:
            check_there(self._url, self._conf, create)
        try:
            if not self.links.finish(lambda link: layout.check(link.connection, self.tables, create)):
                self.links.finish(lambda link: layout.create(link.connection, link.product, self.tables), patient=True)
            self.product = product = self.links.known_product()
            self.statements = Statements(product.dialect, self.tables)
            if "lockable_make" in self.statements and writes:
                self._make_lockable()
            weak = list(doctor.weak_settings(self.statements, self.run_one, conf["synchronous"]))
        except BaseException:
            self.links.close()
            raise
        self.precision = product.precision
        self.notifies = product.wakes
        base = {"board": self.board, "channel": self.tables.prefix}
        self._fast = fast_paths(self.links, product, self.statements, base, self.notifies)
        self._commits_whole = "commit" in self.statements and self._fast is not None
        self.joined = CallersTransactions(
            self.tables.jobs,
            product,
            self.links,
            self.statements["place"],
            REMEDY,
            conf["retry_for"],
            hears.sleep_unless_closed,
        )
        self.waiter = waiter_of(
            hears, self.links, product, conf["notify"], self.tables.prefix, self.board, conf["claim_ttl"]
        )
        # The end of another's claim shows at the latest when a lease as long as ours would end.
        self._longest_sleep = max(POLL_CAP, conf["claim_ttl"])
        self.traits = dataclasses.replace(
            self.traits,
            poll_cap=self._longest_sleep if self.waiter.hears_others else POLL_CAP,
            slot_calls=SLOT_CALLS if product.returning else math.inf,
            wakes=product.wakes,
        )
        return Characteristics(
            durable=not weak,
            survives_failover=False,
            exact_order=True,
            blocking_wait=self.waiter.hears_others,
            remote_events=False,
            transactional=True,
            claim_ttl=conf["claim_ttl"],
            notes=f"{product.dialect.name}; "
            + ("passes over locked rows" if product.skip_locked else "one writer at a time")
            + f"; {'; '.join(weak) or 'what the server acknowledged is as durable as it is set up to be'}",
        )

    def close(self) -> None:
        self.waiter.close()
        self.links.close()

    def forked(self) -> None:
        self.waiter.forked()
        self.links.leak()
        self._local = runtime.Local()
        if self._fast is not None:
            self._fast.forked()

    def hurry(self, seconds: float) -> None:
        self.links.hurry(seconds)

    def _new_links(self) -> Links:
        conf, client, home = self._conf, self.seat.client, os.getpid()

        def make() -> sa.Engine:
            if client is None:
                return make_engine(self._url, conf)
            forks.check_home(home)
            engine: sa.Engine = client
            return engine

        return Links(
            make,
            own=client is None,
            patience=conf["retry_for"],
            name="the board",
            remedy=REMEDY,
            deadline=deadline(conf["retry_for"], conf["claim_ttl"]),
            busy=conf["retry_for"],
            relaxed=conf["synchronous"] == "normal",
            read_only=conf["read_only"],
        )

    def _make_lockable(self) -> None:
        """Create the rows that commits, callers' transactions and surveys lock."""
        places = [(*GATE, place_of(GATE[1])), *(("caller", str(i), str(i)) for i in range(starts.CALLERS))]

        asked = {"kinds": [kind for kind, *_ in places], "places": [place for *_, place in places]}
        there = {(kind, key) for kind, key, *_ in self.run_one("sides", **asked)}

        def work(run: Runner) -> None:
            for kind, key, place in places:
                self._count(run, "lockable_make", kind=kind, place=place, key=key, version=runtime.secrets.randbits(62))

        # A board of an earlier version has some.
        if not there.issuperset((kind, key) for kind, key, _ in places):
            self._transact(work)

    # Transactions

    @contextlib.contextmanager
    def transaction(self, **extra: Any) -> Iterator[None]:
        if "connection" in extra:
            with self.joined.begun(extra["connection"]) as run, self._within(Block(run)):
                if "caller_locked" in self.statements:
                    self._rows(run, "caller_locked", micros=starts.CALLERS_MICROS, callers=starts.CALLERS)
                yield
            return
        block = Block()
        try:
            with self._within(block), block.stack:
                yield
                if block.is_over:
                    return
                if isinstance(block.run, Link) and block.has_written:
                    _end(block.run, block.by)
                elif isinstance(block.run, Link):
                    block.run.rollback()
        except Contended as error:
            raise Stale from error
        except ConstraintViolated as error:
            raise refusal_error(error) from error.cause

    @contextlib.contextmanager
    def _within(self, block: Block) -> Iterator[None]:
        self._local.block = block
        try:
            yield
        finally:
            self._local.block = None

    @property
    def _block(self) -> Block:
        return getattr(self._local, "block", None) or Block()

    def hold(self, jobs: Sequence[Stored]) -> list[Stored]:
        return self._lock_by("read_locked", uuids=[stored.record.uuid for stored in jobs])

    def grab(self, jobs: Sequence[Stored], limit: int) -> list[Stored]:
        tags = [cast("tuple[int, int]", stored.tag) for stored in jobs]
        params = {"ids": [id_ for id_, _ in tags], "versions": [f"{id_} {tag}" for id_, tag in tags]}
        return self._lock_by("read_free_locked", limit=limit, tags=json.dumps(tags), **params)

    def _lock_by(self, statement: str, **params: Any) -> list[Stored]:
        found = list(map(stored_of, self._rows(self.open_transaction(), statement, **params)))
        self._block.locked.update(stored.tag for stored in found)
        return found

    def _run_several(self, asked: Sequence[limits.Asked]) -> list[list[Row]]:
        """Run statements in this thread's block, if possible as one request, and begin the transaction with them."""
        block, begins = self._block, False
        if block.run is None:
            block.run, begins = block.stack.enter_context(self.links.held()), True
        link = block.run
        assert isinstance(link, Link)
        filled = [(made, {"board": self.board, **params}) for made, params in asked]
        return link.several(filled, begins=begins, hurries=block.keeps_out)

    def _write_lasting(self, statement: str, **params: Any) -> int:
        return self._count(self.open_transaction(), statement, **params)

    def open_transaction(self) -> Runner:
        """Return the transaction of this thread's block, and begin it where nothing has."""
        block = self._block
        if block.run is None:
            link = block.stack.enter_context(self.links.held())
            link.begin()
            block.run = link
        return block.run

    def after_commit(self, extra: Mapping[str, Any], done: Callable[[], None], undone: Callable[[], None]) -> None:
        if "connection" in extra:
            self.joined.after_commit(extra["connection"], done, undone)
        else:
            done()

    def _read(self, work: Callable[[Runner], T]) -> T:
        """Read in this thread's transaction, or else in none."""
        run = self._block.run
        if run is not None:
            return work(run)

        def by_itself(link: Link) -> T:
            result = work(link)
            link.end_read()
            return result

        return self.links.run(by_itself)

    def _transact(self, work: Callable[[Runner], T], by: float | None = None) -> T:
        """Write in a transaction of its own."""

        def by_itself(link: Link) -> T:
            link.begin()
            result = work(link)
            _end(link, by)
            return result

        return self.links.run(by_itself)

    def _rows(self, run: Runner, statement: str | Statement, **params: Any) -> list[Row]:
        found = self.statements[statement] if isinstance(statement, str) else statement
        return run.rows(found, {"board": self.board, **params})

    def _count(self, run: Runner, statement: str, **params: Any) -> int:
        return run.count(self.statements[statement], {"board": self.board, **params})

    def run_one(self, statement: str | Statement, **params: Any) -> list[Row]:
        """Run one statement, and return its rows."""
        return self._read(lambda run: self._rows(run, statement, **params))

    def select(self, statement: sa.Executable, **params: Any) -> list[Row]:
        """Read by a statement of SQLAlchemy's."""
        return self.links.run(lambda link: link.rows(statement, {"p_board": self.board, **params}))

    # Reading

    def now(self) -> int:
        return int(self.run_one("clock")[0][0])

    def read(self, uuids: Sequence[str], sides: Sequence[tuple[str, str]] = ()) -> Found:
        return self._read(lambda run: self._found(run, uuids, sides))

    def _found(self, run: Runner, uuids: Sequence[str], sides: Sequence[tuple[str, str]]) -> Found:
        # A transaction of the caller's may have an old snapshot, and has to find what it changes later as it is.
        locked = "_locked" if self._block.is_joined else ""
        rows: dict[str, Row] = {}
        for some in chunks(list(dict.fromkeys(uuids))):
            rows |= by_uuid(self._rows(run, f"read{locked}", uuids=some))
        now = next((row[RECORD_COLUMNS + 1] for row in rows.values()), None)
        found: dict[tuple[str, str], Side] = {}
        kinds: dict[str, list[str]] = {}
        for kind, key in sides:
            kinds.setdefault(kind, []).append(key)
        found |= {(side.kind, side.key): side for side in self._sides_of_other_tables(run, kinds, locked)}
        # This also finds a key that has become a record of its own meanwhile.
        others = [each for each in sides if each[0] not in ("answer", "outcome") and each not in found]
        for some in chunks(others):
            # In one order, so that two transactions never wait for each other.
            asked = {
                "kinds": sorted({kind for kind, _ in some}),
                "places": sorted({place_of(key) for _, key in some}),
            }
            for side, at in self._sides(self._rows(run, f"sides{locked}", **asked)):
                now = now or at
                if side is not None:
                    found.setdefault((side.kind, side.key), side)
        if now is None:
            now = self._rows(run, "clock")[0][0]
        jobs = [stored_of(rows[uuid]) if uuid in rows else None for uuid in uuids]
        return Found(now, jobs, [found.get(each) or Side(*each, None, None, None) for each in sides])

    def _sides_of_other_tables(self, run: Runner, kinds: Mapping[str, Sequence[str]], locked: str) -> Iterator[Side]:
        """Yield the side records that are rows of other tables: keys of live jobs, answers and outcomes."""
        # In one order, as other calls lock their rows.
        for some in chunks(sorted(kinds.get("key", []))):
            for key, uuid, *tag in self._rows(run, f"holders{locked}", keys=some):
                yield Side("key", key, uuid.encode(), None, ("live", *tag))
        for key in kinds.get("answer", []):
            for row in self._rows(run, "answer", **_slot(key)):
                yield answer_of(key, row, KEPT)
        for some in chunks(kinds.get("outcome", [])):
            yield from map(outcome_side, self._rows(run, "outcomes", uuids=some))

    @staticmethod
    def _sides(rows: Sequence[Row]) -> Iterator[tuple[Side | None, int]]:
        """Yield the side records in rows, and the time of each."""
        for kind, key, value, until, version, now in rows:
            data = None if value is None else bytes(value)
            yield None if kind is None else Side(kind, key, data, until, version), now

    def look(
        self,
        limit: int,
        names: Sequence[str] | None,
        readable: int,
        without: Sequence[str] = (),
        full: Sequence[LimitScope] = (),
        where: Any = None,
    ) -> Look:
        also = self.statements.text("not_full") if full else ""
        given: dict[str, Any] = {"without": list(without), "full": [scope.key for scope in full]}
        if where is not None:
            text, values = condition_text(where, self.tables.jobs, self.product.dialect)
            also, given = f"{also} and ({text})", {**given, **values}
        given.update(readable=readable, limit=limit)

        def work(run: Runner) -> Look:
            wanted = names
            if without and limit:
                # A walk along the ready jobs would pass all of those that are not wanted.
                wanted = [name for name in self._names(run) if name not in without]
            if wanted is not None and len(wanted) > NAMES_AT_ONCE and limit:
                made = self.statements.fill("first_names", also=also)
                wanted = [name for (name,) in self._rows(run, made, **given, wanted=json.dumps(wanted))]
            beside = bool(full) and where is None and limit > 0
            asked = [] if beside or not limit else self._asked(wanted, also)
            # A starting point passes over no job for long, but it must not decide that there is none.
            found = None if also or beside or without else self._since(run, limit, names, readable, given)
            now, gate, has_ended, jobs = found or self._glance(run, asked[:1], given)
            overdue = self._overdue(run, now) if has_ended else []
            if has_ended:
                # Other processes may have returned lapsed claims and due jobs meanwhile.
                jobs = []
            if found is None or has_ended:
                for made, ones in asked[0 if has_ended else 1 :]:
                    jobs += map(stored_of, self._rows(run, made, **given, **ones))
            if beside:
                jobs = self._ready_beside(run, limit, names, without, full, given)
            jobs.sort(key=lambda stored: serving_order(stored.record))
            event = self._rows(run, "next_event", behind=now)[0][0] if len(jobs) < max(limit, 1) else None
            return Look(now, jobs[:limit], overdue, None if event is None else event - now, gate)

        return self._read(work)

    def _since(
        self, run: Runner, limit: int, names: Sequence[str] | None, readable: int, given: Mapping[str, Any]
    ) -> tuple[int, Side, bool, list[Stored]] | None:
        """Return a glance from a starting point on; None if it shows fewer jobs than wanted."""
        some = None if names is None else list(dict.fromkeys(names))
        if self._fast is None or not limit or (some is not None and len(some) > NAMES_AT_ONCE):
            return None
        point = self._fast.point(some, readable)
        if point is None:
            return None
        found = self._glance(run, [self._fast.ready_since(point, some, limit)], given, since="since")
        return found if len(found[3]) >= limit else None

    def _asked(self, names: Sequence[str] | None, also: str) -> list[tuple[Statement, dict[str, Any]]]:
        """Return the statements that read the first ready jobs of these names, with their parameters."""
        if names is None:
            return [(self.statements.fill("ready", also=also), {})]
        some = chunks(list(dict.fromkeys(names)), NAMES_AT_ONCE)
        return [
            (
                self.statements.union("ready_of_all", "ready_of", len(names), also=also),
                {f"one{i}": name for i, name in enumerate(names)},
            )
            for names in some
        ]

    def _glance(
        self,
        run: Runner,
        asked: Sequence[tuple[Statement, dict[str, Any]]],
        given: Mapping[str, Any],
        since: str = "",
    ) -> tuple[int, Side, bool, list[Stored]]:
        """Return the time, the gate, whether a lease or a delay has ended, and the jobs that are asked for."""
        known, st = self._gate, self.statements
        ready, ones = (asked[0][0].text, asked[0][1]) if asked else (st.text("ready_none"), {})
        parts = {"since": st.text(since)} if since else {}
        rows = self._rows(run, st.fill("look", ready=ready, **parts), **{**given, **ones, "known": known.tag})
        now, version, value, ended, *_ = rows[0]
        if version != known.tag:
            self._gate = known = Side(*GATE, None if value is None else bytes(value), None, version)
        return now, known, ended is not None, [stored_of(row[4:]) for row in rows if row[4] is not None]

    def _names(self, run: Runner) -> Iterator[str]:
        """Yield the names of the jobs that can be claimed."""
        after = ""
        while rows := self._rows(run, "names", after=after):
            yield from (name for (name,) in rows)
            after = rows[-1][0]

    def _overdue(self, run: Runner, now: int) -> list[Stored]:
        rows = self._rows(run, "overdue", now=now)
        if len(rows) >= OVERDUE and not self._conf["read_only"]:
            # There may be more jobs behind those that other transactions hold.
            rows = self._rows(run, "overdue_free_locked", now=now)
        return list(map(stored_of, rows))

    def _ready_beside(
        self,
        run: Runner,
        limit: int,
        names: Sequence[str] | None,
        without: Sequence[str],
        full: Sequence[LimitScope],
        given: dict[str, Any],
    ) -> list[Stored]:
        parts = [*(["of_names"] if names is not None else []), *(["without"] if without else [])]
        also, rows = self.statements.text(*parts), functools.partial(self._rows, run)
        given = {**given, "names": list(names or ()), "without": list(without)}
        return list(map(stored_of, limits.ready_beside(self.statements, rows, limit, full, also, given)))

    def page(
        self,
        after: Record | None,
        limit: int,
        names: Sequence[str] | None,
        states: frozenset[State],
        fresh: bool = False,
    ) -> tuple[int, list[Stored]]:
        parts = [*(["of_names"] if names is not None else []), *(["of_states"] if states < LIVE else [])]
        statement = self.statements.fill("page" if after is None else "page_after", also=self.statements.text(*parts))
        params: dict[str, Any] = {"limit": limit, "names": list(names or ()), "states": [each.value for each in states]}
        if after is not None:
            params |= {"priority": after.priority, "id": after.sequence}
        rows = self.run_one(statement, **params)
        return rows[0][RECORD_COLUMNS + 1] if rows else 0, list(map(stored_of, rows))

    def trash_page(self, after: Record | None, limit: int) -> list[Record]:
        parts = {}
        params: dict[str, Any] = {"limit": limit}
        if after is not None:
            text = self.statements.text
            parts = {"behind_gone": text("trash_behind_gone"), "behind_lapsed": text("trash_behind_lapsed")}
            params |= {"trashed_on": after.modified_on, "id": after.sequence}
        rows = self.run_one(self.statements.fill("trash", **parts), **params)
        # The next page finds its place by the instant that sorts the rows, also where a row tells of another.
        return [
            settle(record_of(row), row[RECORD_COLUMNS + 1])._replace(modified_on=row[RECORD_COLUMNS + 2])
            for row in rows
        ]

    def walk(self, order: Order, after: Bookmark | None, most: int, sieve: Sieve, fitting: int | None = None) -> Walked:
        if order == "outcomes":
            return walk_outcomes(self, after, most, lambda side: list(cast("tuple[int, int]", side.tag)))
        text = self.statements.text
        if after is None:
            if order == "claims":
                # Any number of delayed jobs may lie between the leases, by their times. Few claims are read without.
                [[claims]] = self.run_one(self.statements["few_claims"], most=most)
                if claims < most:
                    walked = self._walk("few_claims", {}, None, most, sieve, fitting)
                    # Others may have begun claims meanwhile.
                    if walked.last is None:
                        return walked
            return self._walk(order, {}, after, most, sieve, fitting)
        if order == "trash":
            behind = {part: text(part) for part in ("behind_gone", "behind_lapsed")}
            return self._walk(order, behind, after, most, sieve, fitting)
        # No single condition finds the place behind a bookmark in the index of every database.
        place = "serving" if order == "serving" else "wake"
        tied = self._walk(order, {"behind": text(f"tie_{place}")}, after, most, sieve, fitting)
        if tied.last is not None:
            return tied
        if fitting is not None and order != "claims":
            fitting -= len(tied.jobs)
        past = self._walk(order, {"behind": text(f"past_{place}")}, after, most - tied.looked, sieve, fitting)
        return Walked(past.now or tied.now, [*tied.jobs, *past.jobs], tied.looked + past.looked, past.last)

    def _walk(
        self, order: str, behind: dict[str, str], after: Bookmark | None, most: int, sieve: Sieve, fitting: int | None
    ) -> Walked:
        text, also, params = self.statements.text, *self._also(sieve)
        params["most"] = most
        if after is not None:
            params |= {"place": after[0], "id": after[1]}
        entries, places = (
            text(f"walk_{order}", columns=text(columns), **behind) for columns in ("walk_entries", "walk_places")
        )
        is_trash = order == "trash"
        made = {"entries": entries, "places": places, "also": also, "back": "asc" if is_trash else "desc"}
        if fitting is not None:
            params["fitting"], made["fitting"] = fitting, text(_FITTING.get(order, "first_fitting"))
        rows = self.run_one(self.statements.fill("walk", **made), **params)
        if not rows:
            return Walked(0, [], 0, None)
        found = [row[3:] for row in rows if row[3] is not None]
        at = RECORD_COLUMNS + 2
        jobs: list[tuple[Bookmark, Stored]] = sorted(
            (([row[at], row[3]], stored_of(row)) for row in found), key=lambda job: job[0], reverse=is_trash
        )
        looked = rows[0][0]
        last: Bookmark | None = list(rows[0][1:3])
        if len(jobs) == fitting and _FITTING.get(order) != "longest_fitting":
            last = jobs[-1][0]
        elif looked < most:
            last = None
        return Walked(found[0][at - 1] if found else 0, jobs, looked, last)

    def _also(self, sieve: Sieve) -> tuple[str, dict[str, Any]]:
        """Return the conditions on the jobs of a walk, and their parameters."""
        params = {name: value for name, value in sieve._asdict().items() if value is not None}
        params |= {"names": list(sieve.names or ()), "states": [each.value for each in sieve.states or ()]}
        if sieve.error is not None:
            # As it stands in the JSON of the failures.
            params["error"] = json.dumps(sieve.error, ensure_ascii=False)[1:-1]
        if sieve.shorter is not None:
            params["shorter"], params["shorter_id"] = sieve.shorter
        parts = [part for name, part in _CONDITIONS.items() if params.get(name)]
        also = self.statements.text(*parts) if parts else ""
        where = params.pop("where", None)
        if where is not None:
            condition, values = condition_text(where, self.tables.jobs, self.product.dialect)
            also, params = f"{also} and ({condition})", {**params, **values}
        return also, params

    def overdue(self) -> int:
        [[looked]] = self.run_one(self.statements["overdue_looked"])
        return int(looked)

    def names(self, most: int) -> dict[str, NameCount]:
        def work(run: Runner) -> dict[str, NameCount]:
            counts = {name: NameCount(waiting, oldest=first) for name, waiting, first in self._ready_names(run, most)}
            for name, stored, state, number, posted in self._rows(run, "wake_counts", most=most):
                count = counts.get(name, NameCount())
                if stored == UNCLAIMED:
                    # Further jobs may wait behind as many as were counted.
                    if count.waiting < most:
                        counts[name] = count._replace(waiting=max(0, count.waiting - number))
                elif state == UNCLAIMED:
                    oldest = posted if count.oldest is None else min(posted, count.oldest)
                    counts[name] = count._replace(waiting=min(most, count.waiting + number), oldest=oldest)
                elif state == SCHEDULED:
                    counts[name] = count._replace(delayed=number)
                elif state == CLAIMED:
                    counts[name] = count._replace(running=number)
            return {
                name: count if count.waiting else count._replace(oldest=None)
                for name, count in counts.items()
                if count.waiting or count.delayed or count.running
            }

        return self._bounded(work)

    def _ready_names(self, run: Runner, most: int) -> Iterator[tuple[str, int, int]]:
        """Yield the names of the jobs that can be claimed, how many there are, up to ``most``, and the first post."""
        if "count_of_name" not in self.statements:
            yield from self._rows(run, "name_counts", most=most)
            return
        for name in self._names(run):
            [(waiting,)] = self._rows(run, "count_of_name", name=name, most=most)
            posts, priority = [], -1
            while rows := self._rows(run, "first_posts", name=name, priority=priority):
                [(priority, posted)] = rows
                posts.append(posted)
            # The last job may have gone meanwhile.
            if posts:
                yield name, waiting, min(posts)

    def minutes(self, since: int, most: int) -> tuple[int, dict[int, int]]:
        rows = self.run_one("minutes", since=since, most=most)
        return sum(row[1] for row in rows), {row[0]: int(row[2]) for row in rows}

    def sides(self, kind: str, position: Any, limit: int) -> tuple[Found, Any]:
        if kind == "outcome":
            return self._outcomes_page(position, limit)
        rows = self.run_one("sides_after", kind=kind, after=position or "", limit=limit)
        found = [(side, now) for side, now in self._sides(rows) if side is not None]
        sides = [side for side, _ in found if side.value is not None]
        further = place_of(found[-1][0].key) if len(found) == limit else None
        return Found(found[0][1] if found else self.now(), [], sides), further

    def _outcomes_page(self, position: Any, limit: int) -> tuple[Found, Any]:
        behind: tuple[str, dict[str, Any]] = ("", {})
        if position is not None:
            modified_on, sequence = cast("tuple[int, int]", position.tag if isinstance(position, Side) else position)
            behind = self.statements.text("outcomes_behind"), {"modified_on": modified_on, "id": sequence}
        statement = self.statements.fill("outcomes_newest", behind=behind[0])

        def work(run: Runner) -> Found:
            now = self._rows(run, "clock")[0][0]
            rows = self._rows(run, statement, limit=limit, **behind[1])
            return Found(now, [], list(map(outcome_side, rows)))

        found = self._read(work)
        return found, found.sides[-1].tag if len(found.sides) == limit else None

    def counts(self, states: Collection[State], cap: int | None = None) -> dict[State, int]:
        if set(states) == {COMPLETE}:
            [(outcomes,)] = self._count_jobs("count_outcomes", most=cap or MOST_OUTCOMES)
            return {COMPLETE: outcomes}
        counts: dict[str, int] = {}
        rows = self._count_jobs("counts") if cap is None else []
        if cap is not None:
            overdue = self._count_jobs("counts_overdue")
            # What time has made of a job moves it from one count to another.
            rows = [*overdue, *self._count_jobs("counts_capped", most=cap + sum(row[2] for row in overdue))]
        for state, lapsed, number in rows:
            if lapsed:
                counts[state] = counts.get(state, 0) - number
            counts[lapsed or state] = counts.get(lapsed or state, 0) + number
        return {state: counts[state] for state in State if counts.get(state)}

    def _count_jobs(self, statement: str, **params: Any) -> list[Row]:
        return self._bounded(lambda run: self._rows(run, statement, **params))

    def _bounded(self, work: Callable[[Runner], T]) -> T:
        """Read by statements that count, which may take long and are no sign of a silent server.

        :raises JobFailure: a statement takes longer than :data:`COUNTING`.
        """

        def by_itself(run: Runner) -> T:
            if not isinstance(run, Link):
                return work(run)
            with run.bounded(COUNTING):
                return work(run)

        return self._read(by_itself)

    def boards(self, most: int) -> list[str]:
        found: list[str] = [name for (name,) in self.run_one("is_there")]
        after = ""
        while len(found) < most and (rows := self.run_one("next_board", after=after)):
            after = rows[0][0]
            if after not in found:
                found.append(after)
        return found

    def place(self, uuid: str) -> str:
        return f"table {self.tables.jobs.name}, row with uuid {uuid}"

    def oddities(self) -> Iterator[Oddity]:
        return doctor.open_transactions(self.statements, self.run_one)

    # Writing

    def commit(
        self,
        changes: Sequence[Change],
        marks: Sequence[Mark] = (),
        checks: Sequence[Side] = (),
        terms: CommitTerms = ANY_TERMS,
    ) -> Committed:
        if terms.is_patient and terms.before is None and self._is_whole(changes, marks, checks):
            return self._commit_whole(changes, marks[0], checks)
        if self._block.run is not None:
            return self._commit_part(self._block, changes, marks, checks, terms)
        try:
            return self._transact(lambda run: self._commit(run, changes, marks, checks, terms), terms.by)
        except ConstraintViolated as error:
            if self._is_beaten(error.cause, changes, marks):
                raise Stale from error
            raise refusal_error(error) from error.cause

    def _is_whole(self, changes: Sequence[Change], marks: Sequence[Mark], checks: Sequence[Side]) -> bool:
        """Return whether one request does this commit: its only side records are an answer and the gate, and no job is
        new or replaced. The next try of one that was refused finds out what has changed."""
        if not self._commits_whole or self._block.is_joined or [mark.before.kind for mark in marks] != ["answer"]:
            return False
        slot = marks[0].before
        return (
            getattr(self._local, "refused", None) != (slot.key, slot.tag)
            and all(side.kind == GATE[0] for side in checks)
            and all(before is not None and not _is_replaced(before, after) for before, after, _ in changes)
        )

    def _commit_whole(self, changes: Sequence[Change], mark: Mark, checks: Sequence[Side]) -> Committed:
        block, slot = self._block, (mark.before.key, mark.before.tag)
        made, params, after = self._whole(changes, mark, checks)

        def work(link: Runner) -> None:
            assert isinstance(link, Link)
            if self.product.compound:
                link.compound(made, params)
            elif block.run is None:
                link.single(made, params)
            else:
                link.several([(made, params)], ends=True, hurries=block.keeps_out)

        try:
            if isinstance(block.run, Link):
                work(block.run)
                block.has_written = block.is_over = True
            else:
                self.links.run(work)
        except ConstraintViolated as error:
            self._local.refused = slot
            raise Stale from error
        except Exception as error:
            if block.run is None or self.product.trouble(error, None) is not Trouble.REFUSED:
                raise
            self._local.refused = slot
            raise Stale from error
        return after

    def _whole(
        self, changes: Sequence[Change], mark: Mark, checks: Sequence[Side]
    ) -> tuple[Statement, dict[str, Any], Committed]:
        """Return the statement of a commit, its parameters, and what the commit leaves."""
        st, (answer, params) = self.statements, _answered(mark)
        rows, gone, jobs = [], [], []
        for before, after, _ in changes:
            assert before is not None
            id_, was = cast("tuple[int, int]", before.tag)
            if isinstance(after, Record):
                rows.append({**changed(after), "was": was})
                jobs.append(Stored(after, (id_, was + 1)))
            else:
                gone.append({"id": id_, "was": was})
        # In one order, or two commits would wait for each other.
        params |= {name: _packed(sorted(some, key=_id)) for name, some in (("rows", rows), ("gone", gone))}
        params |= {"board": self.board, "count": len(changes), "changed": len(rows), "deleted": len(gone)}
        parts: dict[str, str] = {}
        if checks:
            parts["gate_is"], params["gate"] = st.text("gate_is"), checks[0].tag
        if self.notifies and any(wakes(change, self._longest_sleep) for change in changes):
            parts["notify"], params["channel"] = st.text("commit_notify"), self.tables.prefix
        if self.product.compound:
            parts["changes"] = st.text(*["commit_changed"] * bool(rows), *["commit_gone"] * bool(gone))
        return st.fill("commit", **parts), params, Committed(jobs, [answer])

    def _commit_part(
        self,
        block: Block,
        changes: Sequence[Change],
        marks: Sequence[Mark],
        checks: Sequence[Side],
        terms: CommitTerms,
    ) -> Committed:
        """Store these in a transaction that goes on. The caller's goes on also if they are refused."""
        run = block.run
        assert run is not None
        if block.is_joined:
            self._count(run, "part_begin")
        try:
            committed = self._commit(run, changes, marks, checks, terms)
        except Exception as error:
            if not (isinstance(error, Stale) or self._is_beaten(error, changes, marks)):
                raise
            if block.is_joined:
                self._count(run, "part_undo")
            if isinstance(error, Stale):
                raise
            raise Stale from error
        if block.is_joined:
            self._count(run, "part_end")
        block.has_written, block.by = True, terms.by
        return committed

    def _is_beaten(self, error: BaseException | None, changes: Sequence[Change], marks: Sequence[Mark]) -> bool:
        """Return whether a unique index of the board has refused something new, or a key, as another process was
        quicker. Any other unique index is the user's."""
        is_new = any(isinstance(change.after, Draft) for change in changes)
        is_new = is_new or any(mark.before.tag is None and mark.value is not None for mark in marks)
        return is_new and error is not None and self.product.is_duplicate(error)

    def _commit(
        self,
        run: Runner,
        changes: Sequence[Change],
        marks: Sequence[Mark],
        checks: Sequence[Side],
        terms: CommitTerms,
    ) -> Committed:
        """Lock and compare all records, then write."""
        slots = {id(mark): self._store_answer(run, mark) for mark in marks if mark.before.kind == "answer"}
        self._lock(run, [change.before for change in changes if change.before is not None], terms.is_patient)
        if checks and not slots and "rely" in self.statements:
            # An answer shows that as well.
            self._count(run, "rely")
        for side in checks:
            if side.kind != GATE[0]:
                self._compare(run, side)
        self._change(run, changes)
        # After the changes that free keys.
        drafts = iter(self._insert(run, [after for _, after, _ in changes if isinstance(after, Draft)]))
        jobs = [
            Stored(after, _next_tag(before)) if isinstance(after, Record) else next(drafts)
            for before, after, _ in changes
            if after is not None
        ]
        self._store_keys(run, [mark for mark in marks if mark.before.kind == "key"])
        # In one order, or two commits would wait for each other.
        for mark in sorted(marks, key=lambda mark: (mark.before.kind, place_of(mark.before.key))):
            if mark.before.kind == "outcome":
                slots[id(mark)] = self._store_outcome(run, mark)
            elif mark.before.kind not in OTHER_TABLES:
                slots[id(mark)] = self._store_side(run, mark)
        # The gate last: a write above may wait for a caller's transaction, and set_limit and pause wait for this lock.
        for side in checks:
            if side.kind == GATE[0]:
                self._compare(run, side)
        self._notify(run, changes, marks)
        if terms.before is not None and self._rows(run, "clock")[0][0] >= terms.before:
            raise Stale
        return Committed(jobs, [slots.get(id(mark), mark.before) for mark in marks if mark.value is not None])

    def _lock(self, run: Runner, jobs: Sequence[Stored], is_patient: bool) -> None:
        """Lock these jobs until the end of the transaction.

        :raises Stale: some have changed, or another transaction holds them and the caller does not wait for that.
        """
        jobs = [stored for stored in jobs if stored.tag not in self._block.locked]
        if not jobs:
            return
        statement = "jobs_locked" if is_patient else "jobs_free_locked"
        found: set[tuple[Any, ...]] = set()
        for some in chunks(sorted(stored.record.sequence for stored in jobs)):
            found.update(map(tuple, self._rows(run, statement, ids=some)))
        if stale := [stored.record.uuid for stored in jobs if stored.tag not in found]:
            raise Stale(stale)

    def _compare(self, run: Runner, side: Side) -> None:
        """Check that a side record is as it was read. It stays so until the end of the transaction, or the commit that
        changes it waits for that end, see :meth:`outlast_gates`."""
        rows = self._rows(run, "side_version", kind=side.kind, place=place_of(side.key))
        if (rows[0][0] if rows else None) != side.tag:
            raise Stale(sides=[(side.kind, side.key)])

    def _each(self, run: Runner, statement: str, rows: Sequence[Mapping[str, Any]]) -> int:
        """Write rows by one statement that takes them all, or takes one at a time; return how many it has changed."""
        found, row = self.statements[statement], f"{statement}_row"
        if row in self.statements:
            written = [self.statements.row(row, {"board": self.board, **each}) for each in rows]
            return run.count(found, {"rows": written})
        for name in ("rows", "gone"):
            if name in found.parameters:
                return run.count(found, {"board": self.board, name: _packed(rows)})
        return run.each(found, [{"board": self.board, **row} for row in rows])

    def _change(self, run: Runner, changes: Sequence[Change]) -> None:
        """Write the new records of locked jobs.

        :raises Stale: a job has changed: its lock was lost.
        :raises JobFailure: the database has written fewer rows, for instance because of a user's trigger or rule.
        """
        written: dict[str, list[dict[str, Any]]] = {"jobs_delete": [], "jobs_update": [], "jobs_replace": []}
        for before, after, _ in changes:
            if before is None:
                continue
            id_, was = cast("tuple[int, int]", before.tag)
            if not isinstance(after, Record):
                written["jobs_delete"].append({"id": id_, "was": was})
            elif _is_replaced(before, after):
                written["jobs_replace"].append({**replaced(after), "was": was})
            else:
                written["jobs_update"].append({**changed(after), "was": was})
        for statement, rows in written.items():
            if rows and self._each(run, statement, rows) < len(rows):
                found = {tuple(row) for row in self._rows(run, "jobs_locked", ids=list(map(_id, rows)))}
                if any((row["id"], row["was"]) in found for row in rows):
                    raise JobFailure(
                        f"a trigger or a rule on the table {self.tables.jobs.name} keeps jobs as they were: drop it"
                    )
                raise Stale

    def _insert(self, run: Runner, drafts: Sequence[Draft]) -> list[Stored]:
        """:raises Stale: another process was quicker with a key, or with an arrival."""
        if not drafts:
            return []
        keys = sorted(key for draft in drafts if (key := held_key(draft)) is not None)
        if keys and "clock_behind_keys" in self.statements:
            *taken, (_, now) = self._rows(run, "clock_behind_keys", keys=keys)
            if taken:
                raise Stale(sides=[("key", key) for key, _ in taken])
        else:
            now = self._rows(run, "clock")[0][0]
        records = [draft.record(0, now) for draft in drafts]
        uuids = [record.uuid for record in records]
        if self._each(run, "jobs_insert", list(map(inserted, records))) < len(records):
            raise Stale(uuids)
        found = by_uuid(self._rows(run, "job_ids", uuids=uuids))
        return [
            Stored(record._replace(sequence=found[record.uuid][1]), tuple(found[record.uuid][1:])) for record in records
        ]

    def _store_keys(self, run: Runner, marks: Sequence[Mark]) -> None:
        """Store keys that outlive their jobs, and check those of live jobs, which lie in the jobs' own rows.

        :raises Stale: the window of another job runs.
        """
        holders = {mark.before.key: mark.value for mark in marks if mark.value is not None}
        if not holders:
            return
        rows = self._rows(run, "keys_kept", places=[place_of(key) for key in holders])
        taken = {key for key, value in rows if bytes(value) != holders.get(key)}
        for key, value, until in ((mark.before.key, mark.value, mark.until) for mark in marks):
            if until is not None and value is not None:
                held = {uuid.encode() for _, uuid, *_ in self._rows(run, "holders", keys=[key])}
                if held - {value}:
                    taken.add(key)
                elif key not in taken:
                    version = runtime.secrets.randbits(62)
                    self._count(
                        run, "key_keep", place=place_of(key), key=key, value=value, until=until, version=version
                    )
        if taken:
            raise Stale(sides=[("key", key) for key in taken])

    def _store_answer(self, run: Runner, mark: Mark) -> Side:
        side, row = _answered(mark)
        if not self._count(run, "answer_first" if mark.before.tag is None else "answer_next", **row):
            raise Stale(sides=[(side.kind, side.key)])
        return side

    def _store_outcome(self, run: Runner, mark: Mark) -> Side:
        side = mark.before
        if side.tag is not None and not self._count(run, "outcome_delete", uuid=side.key) and mark.value is None:
            raise Stale(sides=[(side.kind, side.key)])
        if mark.value is None:
            return side._replace(value=None, until=None, tag=None)
        row = outcome_row(mark)
        if not self._count(run, "outcome_insert", **row):
            raise Stale(sides=[(side.kind, side.key)])
        return side._replace(value=mark.value, until=row["until"], tag=(row["modified_on"], row["id"]))

    def _store_side(self, run: Runner, mark: Mark) -> Side:
        side, version = mark.before, runtime.secrets.randbits(62)
        row = {"kind": side.kind, "place": place_of(side.key), "version": version}
        columns = {**row, "value": mark.value, "ttl": mark.ttl, "until": mark.until}
        if side.tag is None:
            count = self._count(run, "side_insert", **columns, key=side.key) if mark.value is not None else 1
        elif mark.value is None and side.kind != GATE[0]:
            count = self._count(run, "side_delete", **row, was=side.tag)
        else:
            # The row of the gate stays, so that commits can lock it.
            count = self._count(run, "side_update", **columns, was=side.tag)
        if not count:
            raise Stale(sides=[(side.kind, side.key)])
        return side._replace(value=mark.value, until=mark.until, tag=version)

    def _notify(self, run: Runner, changes: Sequence[Change], marks: Sequence[Mark]) -> None:
        """Have the commit of the transaction notify listening processes."""
        if not self.notifies:
            return
        if any(wakes(change, self._longest_sleep) for change in changes) or any(mark.wakes for mark in marks):
            self._rows(run, "notify", channel=self.tables.prefix, payload=self.board)
        if reschedules(changes, marks):
            self._rows(run, "notify", channel=self.tables.prefix, payload=schedules_payload(self.board))

    def outlast_gates(self) -> None:
        # On MariaDB such transactions have locked the gate, and on SQLite there are none.
        if "under_way" not in self.statements:
            return
        seconds, pause = float(self._conf["retry_for"]), 0.001
        until = runtime.monotonic() + seconds
        left = {row[0] for row in self.run_one("under_way")}
        while left:
            if runtime.monotonic() > until:
                raise JobFailure(
                    f"transactions that began before this change have not ended within {seconds:g} s, so they may "
                    "claim jobs against it: repeat the call when they have ended"
                )
            runtime.sleep(pause)
            pause = min(2 * pause, 0.1)
            left &= {row[0] for row in self.run_one("under_way")}

    # Fast paths

    def answered(self, nonce: Nonce) -> Side | None:
        return Side(*slot_of(nonce), None, None, (nonce.call, nonce.attempt))

    def post(self, drafts: Sequence[Draft], nonce: Nonce) -> list[Stored] | None:
        return None if self._fast is None else self._fast.post(drafts, nonce)

    def take(
        self, lease: ClaimTerms, limit: int, names: Sequence[str] | None, readable: int, nonce: Nonce
    ) -> tuple[list[Stored], int | None] | None:
        return None if self._fast is None else self._fast.take(lease, limit, names, readable, nonce)

    def take_limited(
        self,
        lease: ClaimTerms,
        names: Sequence[str] | None,
        readable: int,
        nonce: Nonce,
        gate: Side,
        scopes: Callable[[str, str | None], Sequence[LimitScope]],
    ) -> Stored | None:
        return None if self._fast is None else self._fast.take_limited(lease, names, readable, nonce, gate, scopes)

    def claim(self, uuid: str, lease: ClaimTerms, nonce: Nonce) -> Stored | None:
        return None if self._fast is None else self._fast.claim(uuid, lease, nonce)

    def consume(self, acts: Sequence[Finish], nonce: Nonce, gate: Side) -> bool:
        return self._fast is not None and self._fast.consume(acts, nonce, gate)

    def renew(self, handle: str, held: Sequence[tuple[str, int]], ttl: int) -> Sequence[tuple[str, int]]:
        if self._fast is None:
            return held
        with self.links.outside_pool():
            return self._fast.renew(handle, held, ttl)

    # Limits

    def occupied(self, scopes: Sequence[LimitScope]) -> tuple[int, list[Occupied]]:
        asked = limits.counts(self.statements, scopes)
        counts = self._read(lambda run: [self._rows(run, made, **params) for made, params in asked])
        return limits.read_claims(self.statements, self.run_one, scopes, counts)

    def lock_scopes(self, scopes: Sequence[LimitScope], wait: float) -> tuple[int, list[int | None]]:
        self._block.keeps_out = True
        try:
            counts, free = limits.lock(self.statements, self._run_several, self._write_lasting, scopes, wait)
        except Exception as error:
            if self.product.trouble(error, None) is not Trouble.CONTENDED:
                raise
            raise HeldTooLong from error
        claims = limits.claims_in(counts)
        found = [claims.get((each.name, each.group), (0, 0))[0] if each in free else None for each in scopes]
        return counts[0][0][0], found

    def wake(self) -> None:
        self.run_one("notify", channel=self.tables.prefix, payload=self.board)

    # Waiting and hearing

    def watch(self, topic: Literal["jobs", "schedules", "events"]) -> bool:
        return topic == "schedules" and self.waiter.watch_schedules()

    def wait(self, names: Sequence[str] | None, readable: int, limit: float, takes: bool) -> None:
        self.waiter.wait(limit)

    # Upkeep

    def tidy(self, seconds: float) -> bool:
        answers, sides = self.run_one("answers_old"), self.run_one("sides_old")
        if answers:
            self._drop("answers_drop", handles=list({row[0] for row in answers}))
        places: dict[str, list[str]] = {}
        for kind, place in sides:
            places.setdefault(kind, []).append(place)
        for kind, some in places.items():
            self._drop("sides_drop", kind=kind, places=some)
        return self._tidy_outcomes(seconds) or max(len(answers), len(sides)) >= TIDIED

    def _drop(self, statement: str, **params: Any) -> float:
        """Delete some rows; return for how many seconds the transaction stood."""

        def work(run: Runner) -> float:
            begun = runtime.monotonic()
            self._count(run, statement, **params)
            return begun

        begun = self._transact(work)
        return runtime.monotonic() - begun

    def _tidy_outcomes(self, seconds: float) -> bool:
        for _ in turns(seconds):
            uuids = [row[0] for row in self.run_one("outcomes_old")]
            if not uuids:
                return False
            held = self._drop("outcomes_drop", uuids=uuids)
            if self.product.exclusive:
                # Without the checkpoint, the next writer's commit would copy these pages into the file. A waiting
                # thread backs off, so a long rest makes it meet a rest more often than a step.
                self.run_one("checkpoint")
                runtime.sleep(2 * held)
        return True


def _end(link: Link, by: float | None) -> None:
    if by is not None and runtime.boottime() > by:
        raise Stale
    link.commit()


def _next_tag(before: Stored | None) -> object:
    assert before is not None
    number, tag = cast("tuple[int, int]", before.tag)
    return number, tag + 1


def _is_replaced(before: Stored, after: Draft | Record | None) -> bool:
    """Return whether the content of a job was replaced by another post."""
    if not isinstance(after, Record):
        return after is not None
    return bool(brought(after) != brought(before.record))


def _packed(rows: Sequence[Mapping[str, Any]]) -> str:
    return json.dumps([{name: value for name, value in row.items() if value is not None} for row in rows])


def _id(row: Mapping[str, Any]) -> int:
    return cast(int, row["id"])


def _answered(mark: Mark) -> tuple[Side, dict[str, Any]]:
    """Return the answer that a mark stores, and the parameters of the statement that stores it."""
    side = mark.before
    answer = Answer.of(side._replace(value=mark.value))
    assert answer is not None
    was_call, was_attempt = cast("tuple[int, int]", side.tag) if side.tag is not None else (None, None)
    row = {"call": answer.call, "attempt": answer.attempt, "answer": answer_text(answer)}
    stored = side._replace(value=mark.value, until=None, tag=(answer.call, answer.attempt))
    return stored, {**_slot(side.key), **row, "was_call": was_call, "was_attempt": was_attempt}


def _slot(key: str) -> dict[str, Any]:
    """Return the parameters of a slot, from the key of its side record."""
    handle, _, slot = key.rpartition(":")
    return {"handle": handle, "slot": int(slot)}
