"""Where work on a database of the user's is done: on an engine, or on a connection that may be within a transaction."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from jobboard import forks
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.retry import retrying
from jobboard.sql.clients import check_engine, is_async, is_in_memory
from jobboard.sql.connections import (
    UNSENDABLE,
    ConstraintViolated,
    Contended,
    Link,
    Links,
    refused,
    repeated,
    sorted_out,
)
from jobboard.sql.dialects import Database, database
from jobboard.sql.runners import CallersConnection, Runner
from jobboard.sql.transactions import Transaction, begin_writing

T = TypeVar("T")
Work = Callable[[Runner, Database], T]

PATIENCE = 10.0
"""For how many seconds to repeat what lost against another transaction, or found no connection."""

_ERRORS = (sa.exc.SQLAlchemyError, *UNSENDABLE)


class Bind:
    """Runs work in transactions: of our own, short and repeated when they lose against others; or, where a connection
    has one open, as a part of that, and neither committed nor repeated.

    :param bind: an Engine; a Connection; or a callable that gives a Connection, and is called each time. What it gives
        is its own to close; but what an engine's ``connect`` gives is closed after each call.
    :param name: what the errors call that which works here.
    :param remedy: what creates a table that is missing.
    :raises TypeError: none of these.
    :raises ValueError: an engine that has no connections of our own to give. On SQLite's memory, give the one.
    """

    def __init__(self, bind: Engine | Connection | Callable[[], Connection], name: str, remedy: str) -> None:
        self._name = name
        self._remedy = remedy
        self._closed = False
        self._closes = False
        self._links: Links | None = None
        if isinstance(bind, Engine):
            if is_in_memory(bind):
                raise ValueError("SQLite's memory has one connection only: give that, engine.connect()")
            check_engine(bind, name)
            # Nothing here trusts a count of matched rows, which connections of a caller's may not give.
            self._links = Links(lambda: bind, False, PATIENCE, PATIENCE, name, remedy, counting=False, walks=True)
            _binds.add(self)
        elif isinstance(bind, Connection):
            self._give: Callable[[], object] = lambda: bind
        elif callable(bind) and not hasattr(bind, "cursor"):
            self._give = bind
            self._closes = isinstance(getattr(bind, "__self__", None), Engine)
        else:
            raise _no_connection(bind)

    def write(self, work: Work[T], table: sa.TableClause | None = None, *, keep: bool = True) -> T:
        """Run ``work`` in a transaction, with what to run statements on and the database's kind.

        :param table: one that is there, if any is.
        :param keep: False: take back what it did.
        :raises ConnectionFailure: there is no connection, or it broke; ``outcome`` tells whether the work may have been
            done. Nothing is repeated that may have been.
        :raises JobFailure: the database refused it.
        """
        links = self._open_links()
        if links is not None:
            return self._on(links, lambda link: _alone(link, work, keep))
        with self._connection() as connection:
            transaction = Transaction(connection, self._name)
            if transaction.theirs:
                return self._within(transaction, work, table, keep)
            return _patiently(lambda: self._own(connection, work, table, keep))

    def read(self, work: Work[T]) -> T:
        """As :meth:`write`, for what only reads; needs no right to write."""
        links = self._open_links()
        if links is not None:
            return self._on(links, lambda link: _looking(link, work))
        with self._connection() as connection:
            if not Transaction(connection, self._name).theirs:
                return _patiently(lambda: self._look(connection, work, connection.begin))
            try:
                return self._look(connection, work, contextlib.nullcontext)
            except Contended as error:
                raise ConnectionFailure(
                    f"this transaction lost against another: roll it back, and do all of it again ({error})",
                    error.cause,
                ) from error.cause

    def close(self) -> None:
        """Give the engine's connections back. A connection that was given is left as it is."""
        self._closed = True
        if self._links is not None:
            self._links.close()

    def forked(self) -> None:
        """In a forked child: the inherited connections are the parent's."""
        if self._links is not None:
            engine = self._links.engine
            self._links.leak()
            forks.keep(engine.pool)
            # SQLite believes that the locks of inherited connections are the child's, which they are not, until they
            # are closed. That takes nothing from the parent.
            engine.dispose(close=database(engine.dialect).exclusive)

    def _open_links(self) -> Links | None:
        if self._closed:
            raise ConnectionFailure(f"{self._name} is closed")
        return self._links

    @contextlib.contextmanager
    def _connection(self) -> Iterator[Connection]:
        try:
            given = self._give()
        except (sa.exc.SQLAlchemyError, OSError) as error:
            cause = getattr(error, "orig", None) or error
            text = f"{self._name} got no connection ({type(cause).__name__}: {cause})"
            raise ConnectionFailure(text, cause) from None
        if not isinstance(given, Connection):
            raise _no_connection(given)
        try:
            yield given
        finally:
            if self._closes:
                given.close()

    def _on(self, links: Links, work: Callable[[Link], T]) -> T:
        again = retrying(lambda error: _not_done(error) and not self._closed, PATIENCE)
        return again(lambda: links.finish(work))

    def _own(self, connection: Connection, work: Work[T], table: sa.TableClause | None, keep: bool) -> T:
        product = database(connection.dialect)
        in_doubt = False
        try:
            with connection.begin() as own:
                Transaction(connection, self._name).connection()
                product.begin_on(connection, table)
                result = work(CallersConnection(connection, joined=False), product)
                if not keep:
                    own.rollback()
                in_doubt = keep
            return result
        except _ERRORS as error:
            raise self._raised(connection, error, in_doubt)  # noqa: B904

    def _look(
        self, connection: Connection, work: Work[T], begin: Callable[[], contextlib.AbstractContextManager[Any]]
    ) -> T:
        try:
            with begin():
                return work(CallersConnection(connection), database(connection.dialect))
        except _ERRORS as error:
            raise self._raised(connection, error)  # noqa: B904

    def _within(self, transaction: Transaction, work: Work[T], table: sa.TableClause | None, keep: bool) -> T:
        with transaction.joined(self._remedy) as run:
            begin_writing(run.connection, table)
            savepoint = None if keep else run.connection.begin_nested()
            result = work(run, database(run.connection.dialect))
            if savepoint is not None:
                savepoint.rollback()
            return result

    def _raised(self, connection: Connection, error: Exception, in_doubt: bool = False) -> Contended | JobFailure:
        """What to raise for an error of the database's, with the driver's as its cause."""
        product = database(connection.dialect)
        raised = sorted_out(error, product, connection.engine.url, self._remedy, in_doubt=in_doubt)
        if isinstance(raised, ConstraintViolated):
            raised = refused(raised)
        assert isinstance(raised, (Contended, JobFailure))
        # None, too: then the driver's shows the password.
        raised.__cause__ = raised.cause
        return raised


def _patiently(work: Callable[[], T]) -> T:
    """Repeat a transaction of our own while it loses against others."""
    try:
        return repeated(Contended, PATIENCE)(work)
    except Contended as error:
        raise ConnectionFailure(f"the database stayed busy for {PATIENCE:g} s: {error}", error.cause) from error.cause


def _no_connection(given: object) -> TypeError:
    way_out = "of a driver's own connection make one by sqlalchemy.create_engine(url, creator=...)"
    if is_async(given):
        way_out = "it is async: give a sync one, or in run_sync() the Connection that this hands to its function"
    return TypeError(
        f"{type(given).__name__} is neither an SQLAlchemy Engine nor a Connection, nor does it give one; {way_out}"
    )


def _not_done(error: BaseException) -> bool:
    return isinstance(error, ConnectionFailure) and error.outcome == "none"


def _alone(link: Link, work: Work[T], keep: bool) -> T:
    link.begin()
    result = work(link, link.product)
    if keep:
        link.commit()
    else:
        link.rollback()
    return result


def _looking(link: Link, work: Work[T]) -> T:
    link.product.begin_read(link.cursor)
    result = work(link, link.product)
    link.end_read()
    return result


_binds: weakref.WeakSet[Bind] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for bind in list(_binds):
        bind.forked()


os.register_at_fork(after_in_child=_after_fork_in_child)
