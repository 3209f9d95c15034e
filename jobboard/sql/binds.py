"""Binds: the user's engine or connection, and the transactions in which a task loop works on it."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable, Iterator
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.retry import retrying
from jobboard.sql import inherited
from jobboard.sql.clients import check_engine, is_async, is_in_memory
from jobboard.sql.connections import (
    UNSENDABLE,
    ConstraintViolated,
    Contended,
    Link,
    Links,
    library_error,
    refusal_error,
    retrying_contended,
)
from jobboard.sql.dialects import Database, database
from jobboard.sql.runners import CallersConnection, Runner
from jobboard.sql.transactions import Transaction, begin_writing

T = TypeVar("T")
Work = Callable[[Runner, Database], T]

PATIENCE = 10.0
"""The seconds for which a transaction is repeated after it lost against another one, or got no connection."""

_ERRORS = (sa.exc.SQLAlchemyError, *UNSENDABLE)


class Bind:
    """Runs work in a transaction: in the one that the user's connection is in, or in a short one of its own.

    Work in the user's transaction is neither committed nor repeated. A transaction of its own is repeated while it
    loses against others.

    :param bind: an Engine; a Connection; or a callable that gives a Connection for each call. The caller closes what a
        callable gives, but the connections of an engine's ``connect`` are closed after each call.
    :param name: the name of the task loop in errors.
    :param remedy: the call that creates a missing table.
    :raises TypeError: the bind is none of these.
    :raises ValueError: the engine has no connections of its own to give, as in SQLite's memory.
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
            self._links = Links(lambda: bind, False, PATIENCE, PATIENCE, name, remedy)
            _binds.add(self)
            inherited.follow(bind)
        elif isinstance(bind, Connection):
            self._give: Callable[[], object] = lambda: bind
        elif callable(bind) and not hasattr(bind, "cursor"):
            self._give = bind
            self._closes = isinstance(getattr(bind, "__self__", None), Engine)
        else:
            raise _no_connection(bind)

    def write(self, work: Work[T], table: sa.TableClause | None = None, *, keep: bool = True) -> T:
        """Run work in a transaction, with a runner of statements and the kind of database.

        :param table: a table that exists, if any does.
        :param keep: False: roll the work back.
        :raises ConnectionFailure: there is no connection, or it broke. ``outcome`` tells whether the work may have been
            done. Work that may have been done is not repeated.
        :raises JobFailure: the database refused the work.
        """
        return self._run(work, table, keep, reads=False)

    def read(self, work: Work[T]) -> T:
        """Run work that only reads, as :meth:`write` does. It needs no right to write."""
        return self._run(work, None, keep=False, reads=True)

    def close(self) -> None:
        """Give the engine's connections back. A connection that the caller passed stays open."""
        self._closed = True
        if self._links is not None:
            self._links.close()

    def forked(self) -> None:
        """Leave the inherited connections to the parent, in a forked child."""
        if self._links is not None:
            self._links.leak()

    def _run(self, work: Work[T], table: sa.TableClause | None, keep: bool, reads: bool) -> T:
        if self._closed:
            raise ConnectionFailure(f"{self._name} is closed")
        links = self._links
        if links is not None:
            again = retrying(lambda error: _is_undone(error) and not self._closed, PATIENCE)
            return again(lambda: links.finish(lambda link: _on_link(link, work, keep, reads)))
        with self._connection() as connection:
            transaction = Transaction(connection, self._name)
            if not transaction.theirs:
                return _repeat_contended(lambda: self._in_own(connection, work, table, keep, reads))
            if reads:
                return self._reading(connection, work)
            with transaction.joined(self._remedy) as run:
                begin_writing(run.connection, table)
                savepoint = None if keep else run.connection.begin_nested()
                result = work(run, database(run.connection.dialect))
                if savepoint is not None:
                    savepoint.rollback()
                return result

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

    def _in_own(
        self, connection: Connection, work: Work[T], table: sa.TableClause | None, keep: bool, reads: bool
    ) -> T:
        """Run work in a transaction of its own on the user's connection."""
        product = database(connection.dialect)
        in_doubt = False
        try:
            with connection.begin() as own:
                if not reads:
                    Transaction(connection, self._name).connection()
                    product.begin_on(connection, table)
                result = work(CallersConnection(connection, joined=False), product)
                if not keep:
                    own.rollback()
                in_doubt = keep
            return result
        except _ERRORS as error:
            raise self._raised(connection, error, in_doubt)  # noqa: B904

    def _reading(self, connection: Connection, work: Work[T]) -> T:
        """Run work that only reads in the user's transaction, which may commit each statement by itself."""
        try:
            return work(CallersConnection(connection), database(connection.dialect))
        except _ERRORS as error:
            raised = self._raised(connection, error)
            if not isinstance(raised, Contended):
                raise raised  # noqa: B904
            text = f"this transaction lost against another: roll it back, and do all of it again ({raised})"
            raise ConnectionFailure(text, raised.cause) from raised.cause

    def _raised(self, connection: Connection, error: Exception, in_doubt: bool = False) -> Contended | JobFailure:
        """Return the error to raise for an error of the database, with the driver's as its cause."""
        product = database(connection.dialect)
        raised = library_error(error, product, connection.engine.url, self._remedy, in_doubt=in_doubt)
        if isinstance(raised, ConstraintViolated):
            raised = refusal_error(raised)
        assert isinstance(raised, (Contended, JobFailure))
        # Also if the cause is None: the driver's own error shows the password then.
        raised.__cause__ = raised.cause
        return raised


def _on_link(link: Link, work: Work[T], keep: bool, reads: bool) -> T:
    """Run work in a transaction on a connection of the engine."""
    if not reads:
        link.begin()
    result = work(link, link.product)
    if reads:
        link.end_read()
    elif keep:
        link.commit()
    else:
        link.rollback()
    return result


def _repeat_contended(work: Callable[[], T]) -> T:
    """Repeat a transaction while it loses against other transactions."""
    try:
        return retrying_contended(Contended, PATIENCE)(work)
    except Contended as error:
        raise ConnectionFailure(f"the database stayed busy for {PATIENCE:g} s: {error}", error.cause) from error.cause


def _no_connection(given: object) -> TypeError:
    way_out = "of a driver's own connection make one by sqlalchemy.create_engine(url, creator=...)"
    if is_async(given):
        way_out = "it is async: give a sync one, or in run_sync() the Connection that this hands to its function"
    return TypeError(
        f"{type(given).__name__} is neither an SQLAlchemy Engine nor a Connection, nor does it give one; {way_out}"
    )


def _is_undone(error: BaseException) -> bool:
    return isinstance(error, ConnectionFailure) and error.outcome == "none"


_binds: weakref.WeakSet[Bind] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for bind in list(_binds):
        bind.forked()


os.register_at_fork(after_in_child=_after_fork_in_child)
