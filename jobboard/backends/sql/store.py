"""One board's rows as the engine wants them, and the transactions in which it reads and writes them.

What others do in many small requests, a database does in one transaction, which locks what it reads. So a call of the
engine is carried out :meth:`~SQLStore.within` one: what is read there stays as it is until the commit.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeVar

from jobboard.backends.sql import doctor, engines, migrations
from jobboard.backends.sql.ahead import Ahead
from jobboard.backends.sql.answers import DONE, Items, answered, items_in, slot_of
from jobboard.backends.sql.looking import names_there
from jobboard.backends.sql.outcomes import OutcomeRows
from jobboard.backends.sql.reading import Reader
from jobboard.backends.sql.rows import changed, holding, inserted, purged_in, record_of, restated, stored_in, wakes
from jobboard.backends.sql.settling import settle
from jobboard.backends.sql.sides import ELSEWHERE, Locks, SideRows
from jobboard.backends.sql.statements import TIDIED, Statements, shared
from jobboard.backends.sql.tables import RECORD, Tables
from jobboard.backends.sql.waiting import Napper, SQLWaiter, told_of_schedules, waiter
from jobboard.backends.sql.writing import set_aside_stateless
from jobboard.conf import Settings
from jobboard.engine import (
    GATE,
    HELD,
    SCOPE,
    Change,
    Committed,
    Found,
    Hears,
    Lane,
    Look,
    Mark,
    Side,
    Stale,
    Store,
    Stored,
    held_key,
    reschedules,
)
from jobboard.exceptions import JobFailure
from jobboard.job import boottime
from jobboard.primitives import Characteristics, Draft, Nonce
from jobboard.sql.dialects import Database
from jobboard.sql.links import ConstraintViolated, Contended, Link, Links, refused
from jobboard.sql.prepared import LONGEST, Prepared, Row, Runner, chunks
from jobboard.states import COMPLETE, Record, State

T = TypeVar("T")

Work = Callable[[Runner, Items | None], tuple[T, Items]]
"""What is done in a transaction: it gets what an earlier try of this call answered, None if there was none, and gives
its result and what it did; nothing done, nothing written."""

_REPEATS = 3
"""How often a call is repeated because a constraint refused what others were quicker at."""


class SQLStore(Store):
    """:param session: the connected life of the board."""

    keeps = "lease"
    options = engines.OPTIONS
    uri_parts = engines.URI_PARTS
    wire = "json"
    extras: ClassVar[Mapping[str, frozenset[str]]] = {
        "claim_next": frozenset({"where"}),
        "claim_many": frozenset({"where"}),
        **dict.fromkeys(
            ("post", "post_many", "consume", "consume_many", "finish_many", "abandon", "trash"),
            frozenset({"connection"}),
        ),
    }
    # What is looked at is locked, so that no other meets it.
    spare = 0

    product: Database
    statements: Statements
    reader: Reader
    waiter: SQLWaiter

    def __init__(
        self, links: Links, tables: Tables, board: str, conf: Settings, session: Callable[[], Napper | None]
    ) -> None:
        self.links = links
        self.tables = tables
        self.board = board
        self.base = {"p_board": board}
        self._conf = conf
        self._session = session
        self._local = threading.local()

    # Life

    def open(self, hears: Hears, create: bool) -> Characteristics:
        conf, writes = self._conf, not self._conf["read_only"]
        creates = writes and conf["auto_setup"]
        try:
            self.links.finish(
                lambda link: migrations.prepare(link.connection, link.product, self.tables, creates, writes)
            )
            self.product = product = self.links.known_product()
            self.statements = (shared if self.links.own else Statements)(self.tables, product)
            weak = list(doctor.weak_settings(self, conf["synchronous"]))
        except BaseException:
            self.links.close()
            raise
        self.precision = product.precision
        self.gate_place = f"table {self.statements.tables.sides.name}, row of this board of kind {GATE[0]}"
        self.reader = Reader(self)
        self._sides = SideRows(self.statements, self.base)
        self._ahead = Ahead(self, writes)
        calls, prefix = product.wakes and conf["notify"], self.tables.prefix
        self.call = {"p_channel": prefix, "p_notify": calls}
        self.waiter = waiter(self._session, self.links, product, calls, prefix, self.board, conf["claim_ttl"])
        return Characteristics(
            durable=not weak,
            survives_failover=False,
            exact_order=True,
            blocking_wait=self.waiter.hears,
            remote_events=False,
            transactional=True,
            claim_ttl=conf["claim_ttl"],
            notes=f"{product.dialect.name}; "
            + ("passes over locked rows" if product.skip_locked else "one writer at a time")
            + f"; {'; '.join(weak) or 'what the server acknowledged is as durable as it is set up to be'}",
        )

    @functools.cached_property
    def outcomes(self) -> OutcomeRows:
        return OutcomeRows(self.statements, self.base, self.query)

    def close(self) -> None:
        self.waiter.close()
        self.links.close()

    def forked(self) -> None:
        self.waiter.forked()
        self.links.leak()
        self._local = threading.local()

    # Transactions

    @property
    def running(self) -> Runner | None:
        """The transaction that this thread is in."""
        return getattr(self._local, "run", None)

    @contextlib.contextmanager
    def within(self, run: Runner) -> Iterator[None]:
        """What this thread reads here it locks, and what it commits belongs to this transaction."""
        self._local.run = run
        self._local.sure = self.product.exclusive
        self._local.scoped = self._local.held_back = False
        self._local.swept = set()
        try:
            yield
        finally:
            self._local.run = None

    def query(self, statement: Prepared, **params: Any) -> list[Row]:
        """Read something, outside of any transaction."""
        return self.links.run(lambda link: self._read(link, statement, params))

    def rows(self, statement: Prepared, **params: Any) -> list[Row]:
        """The same, within the transaction that this thread is in."""
        run = self.running
        return self.query(statement, **params) if run is None else run.rows(statement, {**self.base, **params})

    @property
    def held_back(self) -> bool:
        """Whether this transaction has passed over a scope that another holds."""
        return bool(self._local.held_back)

    @property
    def swept(self) -> set[str]:
        """The jobs of which this transaction has written down what had ended: it is committed for that."""
        swept: set[str] = self._local.swept
        return swept

    def gate_shared(self) -> None:
        """The gate was read in this transaction, and can't change until its end."""
        self._local.sure = True

    def commit_by(self, end: float) -> None:
        """This transaction is repeated if its commit would be sent later, on :func:`~jobboard.job.boottime`."""
        self._local.end = end

    def single(self, statement: Prepared, params: dict[str, Any]) -> list[Row]:
        """Run a mutation that is one statement."""
        return self.links.run(lambda link: link.single(statement, params))

    def _read(self, link: Link, statement: Prepared, params: dict[str, Any]) -> list[Row]:
        rows = link.rows(statement, {**self.base, **params})
        link.end_read()
        return rows

    def transact(self, nonce: Nonce | None, work: Work[T]) -> T:
        """Do some work in a transaction, and keep its answer with it."""
        for repeat in range(_REPEATS + 1):
            try:
                return self.links.run(lambda link: self.once(link, nonce, work))  # noqa: B023
            except ConstraintViolated as error:
                if nonce is None or repeat == _REPEATS:
                    raise refused(error) from error.cause
                # Perhaps this very call was answered before, or another has taken a key just now.
                nonce = nonce._replace(attempt=max(nonce.attempt, 2))
        raise AssertionError("unreachable")

    def once(self, link: Link, nonce: Nonce | None, work: Work[T]) -> T:
        link.begin()
        self._local.swept, self._local.end = (), None
        earlier = self._earlier(link, nonce) if nonce is not None and nonce.attempt > 1 else None
        result, items = work(link, earlier)
        if not (items or self._local.swept) and (nonce is None or nonce.attempt == 1):
            link.rollback()
            return result
        if nonce is not None:
            self.keep(link, nonce, items)
        if self._local.end is not None and boottime() > self._local.end:
            raise Contended("the time that it stores has gone by meanwhile")
        link.commit()
        return result

    def _earlier(self, link: Runner, nonce: Nonce) -> Items | None:
        """Lock the call's slot against a first try that is still on its way; what that answered."""
        st = self.statements
        key = slot_of(nonce)
        link.count(st.slot_open, key)
        [(call, answer)] = link.rows(st.slot, key)
        if call > nonce.call:
            raise JobFailure("this call comes after a later one of its slot; its caller has long gone on")
        return items_in(answer) if call == nonce.call else None

    def keep(self, link: Runner, nonce: Nonce, items: Items) -> None:
        """Keep a call's answer in its slot."""
        st = self.statements
        params = answered(nonce, items)
        if nonce.attempt > 1:
            link.count(st.answer_again, params)
        elif not link.count(st.answer, params):
            # A slot's first call; or one that its own repetition has overtaken, which the primary key refuses.
            link.count(st.answer_first, params)

    # Reading

    def now(self) -> int:
        return int(self.rows(self.statements.clock)[0][0])

    def read(self, uuids: Sequence[str], sides: Sequence[tuple[str, str]] = ()) -> Found:
        st, run = self.statements, self.running
        keys = [key for kind, key in sides if kind == "key"]
        wanted = list(dict.fromkeys([*uuids, *(key for kind, key in sides if kind == "purged")]))
        # Who has locked scopes waits for no job, as others lock the job first. Once a claim there has ended, only who
        # locks its scope as well can bring it back to life.
        statement = st.by_uuid if run is None or self._local.scoped else st.lock
        rows: dict[str, Row] = {}
        for some in chunks(wanted, LONGEST):
            rows.update((row[0], row) for row in self.rows(statement, p_uuids=some))
        found = list(rows.values())
        holders: dict[str, str] = {}
        for some in chunks(keys, LONGEST):
            held = self._keeping(self.rows(st.by_key, p_keys=some))
            holders.update((row[4], row[0]) for row in held)
            found += held
        jobs = [stored_in(rows.get(uuid)) for uuid in uuids]
        now = found[0][RECORD] if found else 0
        others: dict[tuple[str, str], Side] = {}
        # Of a job that goes meanwhile, its key is left here: so that comes second.
        kept = [("key", key) for key in keys if key not in holders]
        asked = [each for each in sides if each[0] not in ELSEWHERE]
        if asked or kept:
            at, there = self._sides.read(self.rows, self._locks(asked), [*asked, *kept])
            now = now or at or (self.now() if asked else 0)
            others = {(side.kind, side.key): side for side in there if side.stands(at) or side.kind != "key"}
            if run is not None:
                self._local.held_back = self._local.held_back or any(side.tag is HELD for side in there)
                # Behind its job, which settled() waits for where no gate was there to be locked.
                self._local.sure = self._local.sure or (GATE in asked and self.product.skip_locked)

        def side(kind: str, key: str) -> Side:
            if key in holders and kind == "key":
                return Side(kind, key, *holding(holders[key]))
            if kind == "purged":
                return Side(kind, key, *purged_in(rows.get(key)))
            return others.get((kind, key)) or Side(kind, key, None, None, None)

        return Found(now, jobs, [side(*each) for each in sides])

    def _keeping(self, held: list[Row]) -> list[Row]:
        """Those of these rows that are jobs. In a transaction the others give up their keys: nothing else ever has them
        do so."""
        jobs, run = list[Row](), self.running
        for row in held:
            if record_of(row) is not None:
                jobs.append(row)
            elif run is not None:
                set_aside_stateless(run, self.statements, row)
                self.swept.add(row[0])
        return jobs

    def _locks(self, asked: Sequence[tuple[str, str]]) -> Locks:
        """How to lock side records. For scopes one waits in one order, all at once, and while one has locked none."""
        if self.running is None:
            return "not"
        if not any(kind == SCOPE for kind, _ in asked):
            return "all"
        again, self._local.scoped = self._local.scoped, True
        return "free" if again and self.product.skip_locked else "all"

    def sides(self, kind: str, place: Any, limit: int) -> tuple[Found, Any]:
        """Not asked for outcomes: the engine reads these by itself."""
        if kind in ("entity", "schedule"):
            now, sides = self._sides.listed(self.rows, kind)
            return Found(now, [], sides), None
        now, sides, further = self._sides.walk(self.rows, kind, place or "")
        return Found(now, [], sides), further

    def names_but(self, without: Sequence[str]) -> list[str]:
        """The names of what is ready, but for these."""
        there = names_there(self.statements, lambda statement, params: self.rows(statement, **params))
        return [name for name in there if name not in without]

    def look(
        self,
        limit: int,
        names: Sequence[str] | None,
        readable: int,
        without: Sequence[str] = (),
        full: Sequence[Lane] = (),
    ) -> Look:
        return self._ahead.look(limit, names, readable, without, full, getattr(self._local, "where", None))

    @contextlib.contextmanager
    def wanting(self, where: Any) -> Iterator[None]:
        """Of what this thread looks at here, that is true."""
        self._local.where = where
        try:
            yield
        finally:
            self._local.where = None

    def page(
        self,
        after: Record | None,
        limit: int,
        names: Sequence[str] | None,
        states: frozenset[State],
        fresh: bool = False,
    ) -> tuple[int, list[Stored]]:
        rows = self.reader.page(after, limit, names, states)
        jobs = [stored for row in rows if (stored := stored_in(row)) is not None]
        return rows[0][RECORD] if rows else 0, jobs

    def trash_page(self, after: Record | None, limit: int) -> list[Record]:
        return self.reader.trash_page(after, limit)

    def counts(self, states: Collection[State]) -> dict[State, int]:
        return {} if states == {COMPLETE} else self.reader.tally()

    def boards(self, most: int) -> list[str]:
        return self.reader.boards(most)

    # Writing

    def commit(
        self,
        changes: Sequence[Change],
        marks: Sequence[Mark] = (),
        checks: Sequence[Side] = (),
        settle: bool = False,
    ) -> Committed:
        """See :meth:`Store.commit <jobboard.engine.Store.commit>`. Keys need no marks: each row has its own, which is
        unique, and leaves it behind if it outlives the job. The engine waits for claims by an older gate by itself, see
        :meth:`settled`."""
        if not (changes or marks):
            return Committed([], [])
        run = self.running
        if run is not None:
            # What a call relies on, it has locked in this transaction.
            return self._write(run, changes, marks, () if self._local.sure else checks)

        return self.transact(None, lambda run, _: (self._write(run, changes, marks, checks), DONE))

    def _write(
        self, run: Runner, changes: Sequence[Change], marks: Sequence[Mark], checks: Sequence[Side]
    ) -> Committed:
        st = self.statements
        purged = {side.key: value is not None for side, value, *_ in marks if side.kind == "purged"}
        if back := [uuid for uuid, gone in purged.items() if not gone]:
            run.count(st.purged_again, {**self.base, "p_uuids": back})
        self._change(run, changes, purged)
        for gate in checks:
            self._sides.compare_gate(run, gate)
        # Behind what sets their keys free.
        fresh = iter(self._insert(run, [after for _, after, _ in changes if isinstance(after, Draft)]))
        stored = [
            Stored(after if isinstance(after, Record) else next(fresh), None)
            for _, after, _ in changes
            if after is not None
        ]
        self._pass_keys(run, changes)
        if any(wakes(change) for change in changes) or any(mark.wakes for mark in marks):
            self.tell(run)
        if reschedules(changes, marks):
            self.tell(run, told_of_schedules(self.board))
        return Committed(stored, self._write_sides(run, marks))

    def _write_sides(self, run: Runner, marks: Sequence[Mark]) -> list[Side]:
        for mark in marks:
            if mark.before.kind == "outcome":
                self.outcomes.write(run, mark)
            elif mark.before.kind == "key" and mark.before.value is None and mark.until is not None:
                self._sides.arrive(run, mark)
        others = [mark for mark in marks if mark.before.kind not in ELSEWHERE]
        if self.product.returning and any(mark.before.kind == GATE[0] for mark in others):
            run.rows(self.statements.gate_alone, self.base)
        kept = {id(mark): self._sides.write(run, mark) for mark in self._sides.in_order(others)}
        return [kept[id(mark)] for mark in others if mark.value is not None]

    def _change(self, run: Runner, changes: Sequence[Change], purged: Mapping[str, bool]) -> None:
        """Write what becomes of jobs that were there."""
        st = self.statements
        ended: list[str] = []
        for before, after, _ in changes:
            if before is None:
                continue
            if after is None and purged.get(before.record.uuid):
                run.count(st.purge, {"p_id": before.record.sequence})
            elif after is None:
                ended.append(before.record.uuid)
            elif isinstance(after, Record) and not self._update(run, after, before.record):
                raise Stale([after.uuid])
        if ended and run.count(st.delete, {**self.base, "p_uuids": ended}) < len(ended):
            raise Stale

    def _update(self, run: Runner, after: Record, was: Record) -> int:
        st = self.statements
        if (after.priority, after.posting) != (was.priority, was.posting):
            return run.count(st.restate, restated(after, was))
        return run.count(st.store, changed(after, was))

    def _pass_keys(self, run: Runner, changes: Sequence[Change]) -> None:
        taken: dict[str, str] = {}
        for before, after, _ in changes:
            had = None if before is None else held_key(before.record)
            has = None if after is None else held_key(after)
            if before is not None and had is not None and has is None:
                self._sides.remember(run, before.record)
            elif after is not None and has is not None and had is None:
                taken[has] = after.uuid
        if taken:
            self._sides.compare(run, taken)

    def _insert(self, run: Runner, drafts: Sequence[Draft]) -> list[Record]:
        if not drafts:
            return []
        st = self.statements
        now = run.rows(st.clock, {})[0][0]
        records = [draft.record(0, now) for draft in drafts]
        run.many(st.insert, [{**self.base, **inserted(record)} for record in records])
        mine = {**self.base, "p_uuids": [record.uuid for record in records]}
        ids = dict(run.rows(st.ids, mine))
        if arrivals := {record.uuid: (record.who, record.token) for record in records if record.token}:
            # Another may have brought the same job along.
            there = run.rows(st.by_uuid, {**self.base, "p_uuids": list(arrivals)})
            ids = {**ids, **{row[0]: None for row in there if (row[11], row[10]) != arrivals[row[0]]}}
        if missing := [record.uuid for record in records if ids.get(record.uuid) is None]:
            # Another was quicker, with a key or with an arrival.
            raise Stale(missing)
        return [record._replace(sequence=ids[record.uuid]) for record in records]

    def lock(self, jobs: Sequence[Stored]) -> list[Stored]:
        """Those of these jobs that are as they were read, and that no other holds; locked, in a transaction."""
        if not jobs or not self.product.skip_locked:
            return list(jobs)
        rows = self.rows(self.statements.lock_free, p_uuids=[stored.record.uuid for stored in jobs])
        found = {row[0]: record_of(row) for row in rows}
        return [stored for stored in jobs if found.get(stored.record.uuid) == stored.record]

    def tell(self, run: Runner, what: str | None = None) -> None:
        """Wake those who wait, when this transaction commits.

        :param what: called instead of the name of the board.
        """
        if self.call["p_notify"]:
            run.rows(self.statements.call, {**self.call, "p_board": what or self.board})

    def watch(self, topic: Literal["jobs", "schedules", "events"], on: bool = True) -> bool:
        return topic == "schedules" and self.waiter.hear_schedules()

    def clean(self, statement: Prepared, **params: Any) -> float:
        """Delete something; where nothing was found, nothing is written. For how many seconds the transaction stood."""

        def work(run: Runner, _: Items | None) -> tuple[float, Items]:
            begun = time.monotonic()
            return begun, DONE if run.count(statement, {**self.base, **params}) else []

        begun = self.transact(None, work)
        return time.monotonic() - begun

    def settled(self, counted: bool) -> None:
        """Return when no claim can be stored any more that was decided by an older gate.

        :param counted: a limit in this place has bound these claims before.
        """
        # Elsewhere a claim under limits has locked the gate.
        if self.product.returning or not counted:
            settle(self, self._conf["retry_for"])

    def tidy(self, seconds: float) -> bool:
        st, more = self.statements, False
        for old, gone, name in ((st.answers_old, st.answers_gone, "p_handles"), (st.purged_old, st.delete, "p_uuids")):
            if found := [row[0] for row in self.query(old)]:
                self.clean(gone, **{name: found})
                more = more or len(found) >= TIDIED
        more = self._sides.tidy(self.query, self.clean) or more
        return self.outcomes.tidy(self.clean, seconds) or more
