"""The SQL board: SQLite, PostgreSQL, MariaDB and MySQL, and any other database through compare-and-set."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, cast

import sqlalchemy as sa

from jobboard import forks
from jobboard.backends.sql import doctor, engines, migrations, transactions
from jobboard.backends.sql.calls import SQLCommitter
from jobboard.backends.sql.counting import enter_standing
from jobboard.backends.sql.looking import TakeRequest, condition
from jobboard.backends.sql.shortcuts import shortcuts_for, tried
from jobboard.backends.sql.store import SQLStore
from jobboard.backends.sql.tables import tables_of
from jobboard.backends.sql.taking import Taker
from jobboard.backends.sql.writing import RowWriter
from jobboard.engine import Change, Done, Engine, Grouped, Recent, Seat, Side, revive
from jobboard.exceptions import JobFailure
from jobboard.primitives import (
    Claimed,
    Draft,
    Finish,
    Limit,
    Nonce,
    Oddity,
    Peeked,
    Posted,
    Renewed,
    Seen,
    Taken,
)
from jobboard.session import time_left
from jobboard.sql.clients import SYNC, is_async
from jobboard.sql.dialects import database
from jobboard.sql.links import Link, Links
from jobboard.sql.prepared import Runner
from jobboard.sql.transactions import Transaction, begin_writing, check_savepoint, leads_to
from jobboard.states import OK, Holder, Record, Status, Verb

T = TypeVar("T")

REMEDY = "`jobboard setup`"

SNAPSHOTS = ("repeatable read", "serializable")
"""Levels at which a transaction on PostgreSQL sees what was there when it began, and fails where that has changed."""

SLOT_CALLS = 250
"""Old versions of an answer that a call then meets, at most: a page holds some fifty."""


class SQLEngine(Engine):
    """A board in the tables of an SQL database.

    ``client``: an SQLAlchemy Engine of the caller's; the board takes connections from it and never disposes of it.

    ``board.table`` is the jobs' table, for conditions as in ``claim_next(who, where=board.table.c.priority < 100)``.
    ``connection=`` takes a Connection or a Session of the caller's: the verb then belongs to the caller's transaction,
    whose commit decides about it.
    """

    # To read the gate within a transaction is to lock it.
    _relied_on = ()
    options = engines.OPTIONS
    uri_parts = engines.URI_PARTS

    def __init__(self, seat: Seat) -> None:
        self._name, self._conf, self._client = seat.name, seat.conf, seat.client
        client = seat.client
        if client is None:
            self._url = engines.url_of(self._conf)
        elif isinstance(client, sa.Engine):
            engines.check_client(client, self._conf)
        else:
            hint = f"; {SYNC}" if is_async(client) else ""
            raise TypeError(f"client must be an SQLAlchemy Engine, not {type(client).__name__}{hint}")
        self._tables = tables_of(self._conf["table"])
        super().__init__(seat, self._make_store)

    @property
    def store(self) -> SQLStore:
        return cast(SQLStore, super().store)

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
            links.finish(lambda link: migrations.setup(link.connection, link.product, self._tables))
        finally:
            links.close()

    # Life

    def open(self) -> None:
        if self._client is None:
            engines.check_there(self._url, self._creates)
        super().open()
        if self.store.waiter.hears:
            # What a claim of another's becomes is learnt at the latest when a lease as long as ours would end.
            self.store.poll_cap = max(self.store.poll_cap, self._conf["claim_ttl"])

    def hurry(self) -> None:
        self.store.links.watch.hurry()

    def _make_store(self, seat: Seat) -> SQLStore:
        return SQLStore(self._links(), self._tables, self._name, self._conf, lambda: self.life)

    def _make_committer(self) -> SQLCommitter:
        return SQLCommitter(lambda: self.store, self.rest, self._conf["read_only"])

    def _begin(self) -> None:
        super()._begin()
        store = self.store
        # What a call relies on it locks; and what it has claimed others may have prolonged.
        self._recent = Recent(0)
        product = store.product
        self._writer = RowWriter(store.statements, self._name, fenced=not (product.skip_locked or product.exclusive))
        self._shortcuts = shortcuts_for(store)
        self._taker = Taker(store, self._writer, self._shortcuts)
        # Each call of a slot leaves an old version of its answer, which stays while an older snapshot may need it.
        self.slot_calls = SLOT_CALLS if product.returning else math.inf
        self._place: object = None

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

    def _join(self, given: object, work: Callable[[], T]) -> T:
        """Do something in the caller's transaction. Nothing is repeated there, and nothing committed."""
        store = self.store
        with self._transaction(given).joined(REMEDY) as run:
            dialect = run.connection.dialect
            if type(database(dialect)) is not type(store.product):
                here = store.product.dialect.name
                raise JobFailure(f"connection= leads to {dialect.name}, and the board is in {here}")
            if store.product.exclusive:
                check_savepoint(run.connection, "connection=")
            try:
                begin_writing(run.connection, self.table)
            finally:
                # It may be a place where there is no such table.
                self._check_place(run)
            if store.call["p_notify"] and isinstance(run.connection.get_transaction(), sa.TwoPhaseTransaction):
                raise JobFailure(
                    "PostgreSQL prepares no transaction that wakes who waits: open the board with notify=false for "
                    "connection= in two phases"
                )
            with store.within(run):
                return work()

    def _check_place(self, run: Runner) -> None:
        """:raises JobFailure: a connection does not lead to the tables of this board, or its transaction does not see
        what others commit."""
        store = self.store
        there, told = leads_to(run, store.statements.place_joined)
        if told and told[0] in SNAPSHOTS:
            raise JobFailure(
                f"connection= is in a transaction at {told[0].upper()}, which would take no notice of claims and keys "
                "that others have written since it began: have it at READ COMMITTED, as by "
                'engine.execution_options(isolation_level="READ COMMITTED")'
            )
        if there == self._place:
            return

        def look(link: Link) -> object:
            found, _ = leads_to(link, store.statements.place)
            link.end_read()
            return found

        # Not asked for before, or no longer true: a server was started anew, or another has taken its place.
        life = self.life
        self._place = store.links.run(look) if life is None else life.query(store.links.run, look)
        if there != self._place:
            raise JobFailure(
                "connection= leads to another database than the board's, or to another schema, or to a copy of it"
            )

    # Posting

    def insert(
        self, drafts: Sequence[Draft], nonce: Nonce | None, connection: Any = None, **extra: Any
    ) -> list[Posted]:
        if connection is not None:
            return self._join(connection, lambda: super(SQLEngine, self).insert(drafts, None))
        if nonce is not None and all(map(_plain, drafts)):
            records, nonce = tried(nonce, self._shortcuts.insert, drafts)
            if records is not None:
                return [Posted(OK, record.uuid, record) for record in records]
        return super().insert(drafts, nonce)

    # Claiming

    def _lease_of(self, who: str, expiry: int | None, nonce: Nonce) -> dict[str, Any]:
        """The lease of a claim, as parameters."""
        ttl = self._ttl if expiry is None else expiry
        return {"p_who": who, "p_keeper": nonce.handle if expiry is None else None, "p_ttl": ttl}

    def claim(self, uuid: str, who: str, expiry: int | None, nonce: Nonce) -> Claimed:
        # The shortcut, too, gives way where there are rules; to know so spares it.
        if not self._finder.ruled.limited(None):
            lease = self._lease_of(who, expiry, nonce)
            record, nonce = tried(nonce, self._shortcuts.claim, uuid, lease)
            if record is not None:
                return Claimed(OK, record, lease["p_ttl"])
        status, record, margin = super().claim(uuid, who, expiry, nonce)
        return Claimed(status, record, self._surely(margin))

    def _surely(self, margin: int | None) -> int | None:
        return None if margin is None else margin - self.store.product.precision

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
        if where is not None:
            where = condition(where)
        mark = self.store.waiter.mark()
        trashed: list[Record] = []
        for _ in self._committer.tries():
            ruled = self._finder.ruled
            if ruled.limited(names):
                return self._take_within(who, limit, expiry, names, readable, nonce, where, mark)
            lease = self._lease_of(who, expiry, nonce)
            gate, allowed, without, shut, _ = ruled.allowed(names)
            if shut and nonce.attempt == 1:
                if self._finder.changed(gate):
                    continue
                return Taken([], None, trashed, None, mark)
            if shut:
                allowed, without = [], ()
            request = TakeRequest(lease, limit, readable, allowed, where, False, _version(gate), without)
            look, gone = self._taker.take(request, nonce)
            trashed += gone
            if look.gate in (None, request.gate):
                break
            self._finder.changed(gate)
        margin = self._surely(lease["p_ttl"] if look.margin is None else look.margin)
        return Taken(look.records, margin, trashed, look.event, mark, look.margin is not None)

    def _take_within(
        self,
        who: str,
        limit: int,
        expiry: int | None,
        names: Sequence[str] | None,
        readable: int,
        nonce: Nonce,
        where: Any,
        mark: object,
    ) -> Taken:
        """Where there are limits."""
        aside: list[Record] = []
        while True:
            try:
                taken = None
                if where is None and nonce.attempt == 1:
                    taken, nonce = self._enter(who, limit, expiry, names, readable, nonce)
                if taken is None:
                    with self.store.wanting(where):
                        taken = super().take(who, limit, expiry, names, readable, nonce)
                    taken = taken._replace(margin=self._surely(taken.margin))
            except JobFailure as error:
                self._taker.make_way(error, aside)
                continue
            # A transaction that is repeated meets what it had met before.
            trashed = {record.uuid: record for record in (*aside, *taken.trashed)}
            return taken._replace(trashed=list(trashed.values()), mark=mark)

    def _enter(
        self, who: str, limit: int, expiry: int | None, names: Sequence[str] | None, readable: int, nonce: Nonce
    ) -> tuple[Taken | None, Nonce]:
        """By a shortcut, by the rules that were seen last; None: the general way is to do it."""
        ruled = self._finder.ruled
        gate, allowed, without, shut, _ = ruled.allowed(names)
        if shut or without or not ruled.limited(names):
            return None, nonce
        lease = self._lease_of(who, expiry, nonce)
        request = TakeRequest(lease, limit, readable, allowed, None, False, _version(gate))
        look, nonce = tried(nonce, self._shortcuts.enter, request, ruled.limits)
        if look is None or look.gate not in (None, request.gate):
            return None, nonce
        return Taken(look.records, self._surely(lease["p_ttl"]), [], look.event, None), nonce

    def renew(self, handle: str, held: Sequence[tuple[str, int]], ttl: int) -> Renewed:
        lost: list[tuple[str, int]] = []
        missed: list[tuple[str, int]] = []
        unkept: list[tuple[str, int, int | None]] = []
        asked = list(held)
        for _ in self._committer.tries():
            renewed, revived = self._prolong(handle, asked, ttl)
            out, asked = revive(self._committer, revived)
            lost += [*renewed.lost, *out]
            missed += renewed.missed
            unkept += [(uuid, token, self._surely(left)) for uuid, token, left in renewed.unkept]
            if not asked:
                break
        return Renewed(lost, self._surely(ttl), missed, unkept)

    def _prolong(
        self, handle: str, held: Sequence[tuple[str, int]], ttl: int
    ) -> tuple[Renewed, dict[tuple[str, int], Change]]:
        store = self.store

        def work(link: Link) -> tuple[Renewed, dict[tuple[str, int], Change]]:
            # A transaction of the caller's may hold the database for long, and the next beat comes soon. Until then
            # many short waits get a turn among busy writers, where one long wait would ask ever less often.
            store.product.hurry(link.cursor, 0.03)
            try:
                return store.once(link, None, lambda run, _: self._writer.renew(run, handle, held, ttl))
            finally:
                store.product.hurry(link.cursor, self._conf["retry_for"])

        return store.links.finish(work, min(5.0, ttl / 4e6))

    def extend(self, uuid: str, holder: Holder, expiry: int | None, nonce: Nonce) -> tuple[Status, int | None]:
        status, margin = super().extend(uuid, holder, expiry, nonce)
        return status, self._surely(margin) if status == OK else None

    # Ending claims

    def finish(self, acts: Sequence[Finish], nonce: Nonce | None, connection: Any = None, **extra: Any) -> list[Status]:
        if connection is not None:
            return self._join(connection, lambda: super(SQLEngine, self).finish(acts, None))
        if nonce is not None and all(map(_consumes, acts)):
            ruled = self._finder.ruled
            ended, nonce = tried(nonce, self._shortcuts.end, acts, ruled.limits.left(acts), _version(ruled.gate))
            if ended is not None:
                if ended.gate != _version(ruled.gate):
                    self._freed(acts, ())
                elif ended.unlisted:
                    self._freed([act for act in acts if act.uuid in ended.unlisted], [ruled.gate])
                return [OK] * len(acts)
        return super().finish(acts, nonce)

    def _freed(self, jobs: Sequence[Grouped], gate: Sequence[Side]) -> None:
        store, free = self.store, super()._freed

        def freed() -> None:
            # Where nobody can be told, those who wait look often.
            free(jobs, gate if gate or store.call["p_notify"] else [self._finder.ruled.gate])

        if store.running is None:
            freed()
        else:
            # In a transaction of the caller's.
            transactions.after_commit(store.running.connection, freed, lambda: None)

    # Limits

    def set_limit(self, limit: Limit, nonce: Nonce) -> None:
        """Claims that stood before are listed, and count."""
        before = self.rules().found(limit.name, limit.per)
        counted = nonce.attempt == 1 and before is not None and before.concurrency is not None
        super().set_limit(limit, nonce)
        # A repetition goes on from what others have made of its first try.
        bound = self.rules().found(limit.name, limit.per)
        if bound is not None:
            self.store.settled(counted or limit.concurrency is None)
            if bound.concurrency is not None:
                enter_standing(self._committer, bound)

    # Looking

    def examine(self) -> Iterator[Oddity]:
        yield from super().examine()
        yield from doctor.examine(self.store)

    def read(self, uuids: Sequence[str]) -> list[Seen]:
        return self.store.reader.read(uuids)

    def outcomes(self, uuids: Sequence[str]) -> list[Done | None]:
        return self.store.outcomes.of(uuids)

    def done_page(self, after: Done | None, limit: int) -> list[Done]:
        return self.store.outcomes.page(after, limit)

    def peek(self, names: Sequence[str] | None, readable: int) -> Peeked:
        mark = self.store.waiter.mark()
        for _ in self._committer.tries():
            ruled = self._finder.ruled
            if ruled.limited(names):
                return self._finder.peek(names, readable)._replace(mark=mark)
            gate, allowed, without, shut, _ = ruled.allowed(names)
            if not shut:
                found, event, seen = self.store.reader.peek(allowed, without, readable, _version(gate))
                if seen == _version(gate):
                    return Peeked(found, event, mark)
            if not self._finder.changed(gate) and shut:
                return Peeked(False, None, mark)
        raise AssertionError("unreachable")

    def wait(self, mark: object, names: Sequence[str] | None, limit: float) -> None:
        self.store.waiter.wait(mark, limit)


def _version(gate: Side) -> int:
    return gate.tag if isinstance(gate.tag, int) else 0


def _plain(draft: Draft) -> bool:
    """Whether nothing can be in the way of this draft."""
    return draft.key is None and draft.arrival is None


def _consumes(act: Finish) -> bool:
    return act.verb == Verb.CONSUME and act.holder.token is not None
