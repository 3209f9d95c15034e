"""The SQL board: SQLite, PostgreSQL, MariaDB and MySQL, and any other database through compare-and-set."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import sqlalchemy as sa

from jobboard import conf as configuration
from jobboard import forks
from jobboard.backends.sql import doctor, engines, migrations, transactions
from jobboard.backends.sql.reading import Reader
from jobboard.backends.sql.single import Single
from jobboard.backends.sql.statements import Statements
from jobboard.backends.sql.store import Answer, SQLStore, record_in
from jobboard.backends.sql.tables import Tables
from jobboard.backends.sql.taking import Taker, TakeRequest
from jobboard.backends.sql.waiting import SQLWaiter, waiter
from jobboard.backends.sql.writing import RowWriter
from jobboard.engine import Engine, Seat
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.primitives import (
    Characteristics,
    Claimed,
    Draft,
    Finish,
    Nonce,
    Oddity,
    Peeked,
    Renewed,
    Seen,
    Taken,
)
from jobboard.session import time_left
from jobboard.sql.dialects import Database, database
from jobboard.sql.links import ConstraintViolated, Link, Links
from jobboard.sql.prepared import Prepared, Runner
from jobboard.sql.transactions import Transaction, check_savepoint, leads_to
from jobboard.states import CLAIMED, OK, Holder, Record, State, Status, Verb

T = TypeVar("T")

REMEDY = "`jobboard setup`"


class SQLEngine(Engine):
    """A board in the tables of an SQL database.

    ``client``: an SQLAlchemy Engine of the caller's; the board takes connections from it and never disposes of it.

    ``board.table`` is the jobs' table, for conditions as in ``claim_next(who, where=board.table.c.priority < 100)``.
    ``connection=`` takes a Connection or a Session of the caller's: the verb then belongs to the caller's transaction,
    whose commit decides about it.
    """

    wire = "json"
    options: ClassVar[Mapping[str, configuration.Option]] = engines.OPTIONS
    uri_parts: ClassVar[Mapping[str, str]] = engines.URI_PARTS
    extras: ClassVar[dict[str, frozenset[str]]] = {
        "claim_next": frozenset({"where"}),
        "claim_many": frozenset({"where"}),
        **dict.fromkeys(
            ("post", "post_many", "consume", "consume_many", "finish_many", "abandon", "trash"),
            frozenset({"connection"}),
        ),
    }

    def __init__(self, seat: Seat) -> None:
        super().__init__(seat)
        client = seat.client
        if client is None:
            self._url = engines.url_of(self._conf)
        elif isinstance(client, sa.Engine):
            engines.check_client(client, self._conf)
        else:
            raise TypeError(f"client must be an SQLAlchemy Engine, not {type(client).__name__}")
        self._tables = Tables(self._conf["table"])
        self._opened: Links | None = None

    @property
    def table(self) -> sa.Table:
        """The jobs, one row each; usable before the board is connected."""
        return self._tables.jobs

    def setup(self) -> None:
        """Create the tables, and bring older ones up to date, keeping the jobs. What ``jobboard setup`` does: any
        number of times, in any number of processes at once, and on a board that is not connected."""
        if self._client is None:
            engines.check_there(self._url, True)
        links = self._links()
        try:
            links.run(lambda link: migrations.setup(link.connection, link.product, self._tables))
        finally:
            links.close()

    # Life

    def open(self) -> None:
        if self._client is None:
            engines.check_there(self._url, self._creates)
        links = self._links()
        try:
            links.run(lambda link: migrations.prepare(link.connection, link.product, self._tables, self._creates))
        except BaseException:
            links.close()
            raise
        product = links.known_product()
        statements = Statements(self._tables, product)
        self._product: Database = product
        self._single = Single(statements) if product.returning else None
        self._store = SQLStore(links, statements, self._name)
        self._writer = RowWriter(statements, self._name, fenced=not (product.skip_locked or product.exclusive))
        self._reader = Reader(self._store)
        self._taker = Taker(self._store, self._writer, self._single)
        calls = product.wakes and self._conf["notify"]
        self._call = {"p_channel": self._tables.prefix, "p_notify": calls}
        self._place: object = None
        self._waiter: SQLWaiter = waiter(
            *(lambda: self.life, links, product, calls, self._tables.prefix, self._name, self._conf["claim_ttl"])
        )
        # What a claim of another's becomes is learnt at the latest when a lease as long as ours would end.
        self.poll_cap = max(type(self).poll_cap, self._conf["claim_ttl"]) if self._waiter.hears else type(self).poll_cap
        self.characteristics = self._promises(product)
        self._opened = links

    def _promises(self, product: Database) -> Characteristics:
        return Characteristics(
            durable=self._conf["synchronous"] == "full" or product.dialect.name != "sqlite",
            survives_failover=False,
            exact_order=True,
            blocking_wait=self._waiter.hears,
            remote_events=False,
            transactional=True,
            claim_ttl=self._conf["claim_ttl"],
            notes=f"{product.dialect.name}; "
            + ("passes over locked rows" if product.skip_locked else "one writer at a time")
            + "; what the server acknowledged is as durable as it is set up to be",
        )

    def closing(self) -> None:
        if self._opened is not None:
            self._opened.watch.hurry()

    def shut(self) -> None:
        links, self._opened = self._opened, None
        self._waiter.close()
        if links is not None:
            links.close()

    def forked(self) -> None:
        if self._opened is not None:
            self._waiter.forked()
            self._opened.leak()

    def _links(self) -> Links:
        home = os.getpid()
        client: sa.Engine | None = self._client
        conf = self._conf

        def make() -> sa.Engine:
            if client is None:
                return engines.make(self._url, conf, lambda: self._limit(links))
            forks.check_home(home)
            return client

        links = Links(
            make,
            own=client is None,
            patience=conf["retry_for"],
            name="the board",
            remedy=REMEDY,
            lease=conf["claim_ttl"],
            busy=conf["retry_for"],
            relaxed=conf["synchronous"] == "normal",
            read_only=conf["read_only"],
            pooled=not conf["notify"],
        )
        return links

    def _limit(self, links: Links) -> float:
        """For how many seconds to try to connect."""
        left = time_left()
        limit: float = self._conf["connect_timeout"]
        if links.watch.closing:
            return min(limit, 1.0)
        return limit if left is None else min(limit, left + 3)

    def _run(self, work: Callable[[Link], T], patience: float | None = None) -> T:
        links = self._opened
        if links is None:
            raise ConnectionFailure(f"{self!r} is closed")
        return links.run(work, patience)

    def tidy(self) -> None:
        store, st = self._store, self._store.statements
        for old, gone, name in ((st.answers_old, st.answers_gone, "p_handles"), (st.purged_old, st.delete, "p_ids")):
            if found := [row[0] for row in store.query(old)]:
                self._clean(gone, **{name: found})
        self._clean(st.entities_old)

    def _clean(self, statement: Prepared, **params: Any) -> None:
        self._store.transact(None, lambda run, _: self._writer.clean(run, statement, **params))

    # Transactions of the caller's

    def joins(self, extra: dict[str, Any]) -> bool:
        return "connection" in extra

    def after_commit(self, extra: dict[str, Any], done: Callable[[], None], undone: Callable[[], None]) -> None:
        if "connection" in extra:
            transactions.after_commit(self._transaction(extra["connection"]).connection(), done, undone)
        else:
            done()

    def _transaction(self, given: object) -> Transaction:
        return Transaction(given, "connection=", clause=self.table)

    def _join(self, given: object, work: Callable[[Runner], T]) -> T:
        """Do something in the caller's transaction. Nothing is repeated there, and nothing committed."""
        if self._opened is None:
            raise ConnectionFailure(f"{self!r} is closed")
        with self._transaction(given).joined(REMEDY) as run:
            self._check_place(run)
            if self._call["p_notify"] and isinstance(run.connection.get_transaction(), sa.TwoPhaseTransaction):
                raise JobFailure(
                    "PostgreSQL prepares no transaction that wakes who waits: open the board with notify=false for "
                    "connection= in two phases"
                )
            if self._product.exclusive:
                check_savepoint(run.connection, "connection=")
                # A transaction there that reads before it writes can no longer write once another has.
                run.count(self._store.statements.touch, {})
            return work(run)

    def _check_place(self, run: Runner) -> None:
        """:raises JobFailure: a connection does not lead to the tables of this board."""
        dialect = run.connection.dialect
        if type(database(dialect)) is not type(self._product):
            raise JobFailure(f"connection= leads to {dialect.name}, and the board is in {self._product.dialect.name}")
        place = self._store.statements.place
        there = leads_to(run, place)
        if there == self._place:
            return

        def look(link: Link) -> object:
            found = leads_to(link, place)
            link.end_read()
            return found

        # Not asked for before, or no longer true: a server was started anew, or another has taken its place.
        life = self.life
        self._place = self._run(look) if life is None else life.query(self._run, look)
        if there != self._place:
            raise JobFailure(
                "connection= leads to another database than the board's, or to another schema, or to a copy of it"
            )

    # Posting

    def insert(
        self, drafts: Sequence[Draft], nonce: Nonce | None, connection: Any = None, **extra: Any
    ) -> list[tuple[bool, Record | None]]:
        if connection is not None:
            return self._join(connection, lambda run: self._inserted(run, drafts, None)[0])
        attempt = 1 if nonce is None else nonce.attempt
        if self._single is not None and nonce is not None and nonce.attempt == 1 and all(map(_plain, drafts)):
            try:
                return self._insert_at_once(drafts, nonce)
            except ConstraintViolated:
                # This call was answered before, or overtaken: found out under the lock of its slot.
                nonce = nonce._replace(attempt=2)
        return self._store.transact(nonce, lambda run, earlier: self._inserted(run, drafts, earlier, attempt))

    def _inserted(
        self, run: Runner, drafts: Sequence[Draft], earlier: Answer | None, attempt: int = 1
    ) -> tuple[list[tuple[bool, Record | None]], Answer]:
        result = self._writer.insert(run, drafts, earlier, attempt)
        self._tell(run)
        return result

    def _insert_at_once(self, drafts: Sequence[Draft], nonce: Nonce) -> list[tuple[bool, Record | None]]:
        assert self._single is not None
        params = {
            **self._of(nonce),
            **self._call,
            "p_uuid": [draft.uuid for draft in drafts],
            "p_name": [draft.name for draft in drafts],
            "p_priority": [draft.priority for draft in drafts],
            "p_version": [draft.version for draft in drafts],
            "p_posting": [draft.posting for draft in drafts],
            "p_max_attempts": [draft.max_attempts for draft in drafts],
            "p_job_group": [draft.group for draft in drafts],
            "p_due": [draft.due for draft in drafts],
            "p_delay": [draft.delay for draft in drafts],
        }
        statement = self._single.insert
        rows = self._store.single(statement, params)
        places = {row[0]: row for row in rows}
        return [(True, draft.record(*places[draft.uuid][1:3])) for draft in drafts]

    def _of(self, nonce: Nonce) -> dict[str, Any]:
        return {
            "p_board": self._name,
            "p_handle": nonce.handle,
            "p_slot": nonce.slot,
            "p_call": nonce.call,
        }

    def _tell(self, run: Runner) -> None:
        """Wake those who wait, when this transaction commits."""
        if self._call["p_notify"]:
            run.rows(self._store.statements.call, {"p_board": self._name, **self._call})

    # Claiming

    def _lease(self, who: str, expiry: int | None, nonce: Nonce) -> dict[str, Any]:
        ttl = self._ttl if expiry is None else expiry
        return {"p_who": who, "p_keeper": nonce.handle if expiry is None else None, "p_ttl": ttl}

    def claim(self, uuid: str, who: str, expiry: int | None, nonce: Nonce) -> Claimed:
        lease = self._lease(who, expiry, nonce)
        if self._single is not None and nonce.attempt == 1:
            statement, params = self._single.claim, {**self._of(nonce), **lease, "p_uuid": uuid}
            try:
                rows = self._store.single(statement, params)
            except ConstraintViolated:
                nonce = nonce._replace(attempt=2)
            else:
                if rows:
                    return Claimed(OK, record_in(rows[0], CLAIMED), lease["p_ttl"])
        status, record, margin = self._store.transact(
            nonce, lambda run, earlier: self._writer.claim(run, uuid, lease, earlier)
        )
        return Claimed(status, record, margin - self._product.precision if status == OK else None)

    def take(
        self,
        who: str,
        limit: int,
        expiry: int | None,
        names: Sequence[str] | None,
        readable: int,
        nonce: Nonce,
        where: Any = None,
        **extra: Any,
    ) -> Taken:
        mark = self._waiter.mark()
        lease = self._lease(who, expiry, nonce)
        request = TakeRequest(lease, limit, readable, names, where)
        try:
            result = self._taker.take(request, nonce)
        except ConstraintViolated:
            result = self._taker.take(request, nonce._replace(attempt=2))
        margin = (lease["p_ttl"] if result.margin is None else result.margin) - self._product.precision
        return Taken(result.records, margin, result.trashed, result.event, mark, result.margin is not None)

    def renew(self, handle: str, held: Sequence[tuple[str, int]], ttl: int) -> Renewed:
        patience = min(5.0, ttl / 4e6)

        def work(link: Link) -> list[tuple[str, int]]:
            # A transaction of the caller's may hold the database for long, and the next beat comes soon. Until then
            # many short waits get a turn among busy writers, where one long wait would ask ever less often.
            self._product.hurry(link.cursor, 0.03)
            try:
                return self._store.once(link, None, lambda run, _: self._writer.renew(run, handle, held, ttl))
            finally:
                self._product.hurry(link.cursor, self._conf["retry_for"])

        lost = self._run(work, patience)
        return Renewed(lost, ttl - self._product.precision)

    def extend(self, uuid: str, holder: Holder, expiry: int | None, nonce: Nonce) -> tuple[Status, int | None]:
        lease = self._lease(holder.who, expiry, nonce)

        def work(run: Runner, _: Answer | None) -> tuple[Status, Answer]:
            (status, sooner), answer = self._writer.extend(run, uuid, holder, lease)
            if sooner:
                # Who waits has reckoned with a later end.
                self._tell(run)
            return status, answer

        status = self._store.transact(nonce, work)
        return status, lease["p_ttl"] - self._product.precision if status == OK else None

    # Ending claims

    def finish(self, acts: Sequence[Finish], nonce: Nonce | None, connection: Any = None, **extra: Any) -> list[Status]:
        if connection is not None:
            return self._join(connection, lambda run: self._finished(run, acts, None)[0])
        if nonce is not None and nonce.attempt == 1 and all(_consumes(act) for act in acts):
            if self._single is not None:
                try:
                    if self._consume_at_once(acts, nonce):
                        return [OK] * len(acts)
                except ConstraintViolated:
                    pass
                # What it did not find is judged under the lock of the slot, beside the answer that it may have left.
                nonce = nonce._replace(attempt=2)
            elif len({act.holder.token for act in acts}) == 1 and self._store.transact(
                nonce, lambda run, _: self._writer.consume(run, acts)
            ):
                return [OK] * len(acts)
        return self._store.transact(nonce, lambda run, earlier: self._finished(run, acts, earlier))

    def _consume_at_once(self, acts: Sequence[Finish], nonce: Nonce) -> bool:
        assert self._single is not None
        params = {
            **self._of(nonce),
            "p_uuids": ",".join([act.uuid for act in acts]),
            "p_tokens": ",".join([str(act.holder.token) for act in acts]),
        }
        [(done,)] = self._store.single(self._single.consume, params)
        return bool(done == len(acts))

    def _finished(self, run: Runner, acts: Sequence[Finish], earlier: Answer | None) -> tuple[list[Status], Answer]:
        statuses, answer = self._writer.finish(run, acts, earlier)
        if any(act.verb == Verb.ABANDON and status == OK for act, status in zip(acts, statuses, strict=True)):
            self._tell(run)
        return statuses, answer

    def operate(self, verb: Verb, uuid: str, error: str | None, nonce: Nonce, token: int | None = None) -> Status:
        def work(run: Runner, earlier: Answer | None) -> tuple[Status, Answer]:
            status, answer = self._writer.operate(run, verb, uuid, error, token, earlier)
            if status == OK and verb in (Verb.RELEASE, Verb.RESTORE):
                self._tell(run)
            return status, answer

        try:
            return self._store.transact(nonce, work)
        except ConstraintViolated:
            # Of all that these verbs write, only a key that comes back can be refused.
            if self._store.transact(None, lambda run, _: self._writer.free_key_of(run, uuid)):
                return self.operate(verb, uuid, error, nonce)
            return Status.KEY

    # Looking

    def read(self, uuids: Sequence[str]) -> list[Seen]:
        return self._reader.read(uuids)

    def page(
        self, after: Record | None, limit: int, names: Sequence[str] | None, states: frozenset[State] | None
    ) -> list[Seen]:
        return self._reader.page(after, limit, names, states)

    def trash_page(self, after: Record | None, limit: int) -> list[Record]:
        return self._reader.trash_page(after, limit)

    def examine(self) -> Iterator[Oddity]:
        return doctor.examine(self._store, self.characteristics.durable)

    def now(self) -> int:
        return self._store.now()

    def tally(self) -> dict[State, int]:
        return self._reader.tally()

    def peek(self, names: Sequence[str] | None, readable: int) -> Peeked:
        mark = self._waiter.mark()
        return Peeked(*self._reader.peek(names, readable), mark)

    def wait(self, mark: object, names: Sequence[str] | None, limit: float) -> None:
        self._waiter.wait(mark, limit)

    # Entities

    def enlist(self, handle: str, kind: str, name: str, metadata: str, ttl: int) -> None:
        self._store.transact(None, lambda run, _: self._writer.enlist(run, handle, kind, name, metadata, ttl))

    def delist(self, handle: str) -> None:
        self._clean(self._store.statements.delist, p_handle=handle)

    def boards(self, most: int) -> list[str]:
        return self._reader.boards(most)

    def roster(self) -> list[tuple[str, str, str]]:
        return [(kind, name, metadata) for kind, name, metadata in self._store.query(self._store.statements.roster)]


def _plain(draft: Draft) -> bool:
    """Whether nothing can be in the way of this draft."""
    return draft.key is None and draft.arrival is None


def _consumes(act: Finish) -> bool:
    return act.verb == Verb.CONSUME and act.holder.token is not None
