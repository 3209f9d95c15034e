"""Transactions of callers: boards, task loops and models find them here, or begin their own."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection

from jobboard.exceptions import JobFailure
from jobboard.sql.clients import is_async
from jobboard.sql.connections import ConstraintViolated, Contended, library_error, refusal_error
from jobboard.sql.dialects import Database, Trouble, database
from jobboard.sql.runners import CallersConnection

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_begun: weakref.WeakSet[Any] = weakref.WeakSet()
"""The transactions of SQLite that began before any savepoint, as far as is known."""


class Transaction:
    """The transaction of a caller's connection or session, which may have yet to begin.

    ``theirs``: the caller has begun it. Acts in it happen exactly when the caller commits: nothing is committed or
    repeated here. Otherwise the verb begins and commits a transaction of its own.

    :param given: a Connection, a Session, or a registry of sessions.
    :param name: the name of the user in errors, such as ``connection=``.
    :param bind: arguments of a session's ``get_bind``, for a session with several databases.
    :raises TypeError: ``given`` is none of these.
    """

    def __init__(self, given: object, name: str, **bind: Any) -> None:
        self._given = _connection_or_session(given)
        self._name = name
        self._bind = bind
        self.theirs = bool(self._given.in_transaction())

    def connection(self, **options: Any) -> Connection:
        """Return the connection, with a transaction that its owner can roll back.

        :param options: execution options for a connection that the session takes now.
        :raises JobFailure: the connection commits each statement by itself.
        """
        given = self._given
        if not isinstance(given, Connection):
            try:
                connection = self._of_session(given, options)
            except sa.exc.UnboundExecutionError as error:
                raise JobFailure(f"{self._name} needs a session with a bind for its table ({error})") from error
        else:
            connection = given
            if not given.in_transaction():
                given.begin()
        if database(connection.dialect).commits_each(connection):
            raise JobFailure(f"{self._name} needs a transaction, and the connection commits by itself (AUTOCOMMIT)")
        return connection

    def _of_session(self, session: Session, options: dict[str, Any]) -> Connection:
        if not options:
            return session.connection(self._bind)
        try:
            return session.connection(self._bind, execution_options=options)
        except session.get_bind(**self._bind).dialect.loaded_dbapi.ProgrammingError:
            # A listener to the pool's events has begun a transaction, in which psycopg does not set a level.
            connection = session.connection(self._bind)
            database(connection.dialect).begin_on(connection, None)
            return connection

    @contextlib.contextmanager
    def joined(self, remedy: str) -> Iterator[CallersConnection]:
        """Give a runner within the caller's transaction for a block. A transaction that began here is rolled back after
        an error.

        :param remedy: the command or call that creates a missing table.
        """
        connection = None
        try:
            connection = self.connection()
            yield CallersConnection(connection)
        except BaseException as error:
            if not self.theirs:
                with contextlib.suppress(sa.exc.SQLAlchemyError):
                    self._given.rollback()
            if connection is None or not isinstance(error, Exception):
                raise
            raised = _in_theirs(error, database(connection.dialect), connection.engine.url, remedy)
            if raised is error:
                raise
            # Not the driver's own error, where that shows the password.
            raise raised from (raised.cause if isinstance(raised, JobFailure) else error)


def begin_writing(connection: Connection, table: sa.TableClause | None) -> None:
    """Begin to write in a caller's transaction before anything is read, where SQLite could refuse a write after a read.
    This waits for other writers as long as the connection does.

    :param table: a table that exists, if any does.
    """
    product = database(connection.dialect)
    if not product.exclusive:
        return
    try:
        product.begin_on(connection, table)
    except sa.exc.DBAPIError as error:
        if product.trouble(error, None) is Trouble.CONTENDED:
            error.add_detail(product.way_out)
        raise


def check_savepoint(connection: Connection, name: str) -> None:
    """Refuse a savepoint of SQLite that began without a transaction: the driver begins none, and the release of the
    savepoint commits.

    :raises JobFailure: as far as is known, the connection is in such a savepoint.
    """
    whole = connection.get_transaction()
    if not connection.in_nested_transaction():
        _begun.add(whole)
    elif whole not in _begun and not connection.dispatch.begin:
        raise JobFailure(
            f"{name} is first used within a savepoint, before which SQLite's driver begins no transaction, so that its "
            "release commits. Begin it by hand: sqlalchemy.event.listen(engine, 'begin', lambda connection: "
            "connection.exec_driver_sql('BEGIN IMMEDIATE'))"
        )


def _in_theirs(error: Exception, product: Database, url: URL, remedy: str) -> Exception:
    """Return the public error for an error in the caller's transaction."""
    raised = library_error(error, product, url, remedy)
    if isinstance(raised, Contended):
        way_out = product.way_out and f"; {product.way_out}"
        return JobFailure(
            f"this transaction lost against another: roll it back, and do all of it again{way_out} ({raised})",
            raised.cause,
        )
    if isinstance(raised, ConstraintViolated):
        return refusal_error(raised)
    return raised


def _connection_or_session(given: object) -> Connection | Session:
    if isinstance(given, Connection):
        return given
    # The import takes long, and a caller with a session has done it.
    from sqlalchemy.orm import Session, scoped_session

    if isinstance(given, scoped_session):
        given = given()
    if isinstance(given, Session):
        return given
    kind = type(given)
    hint = ""
    if is_async(given):
        hint = "; call the verb in run_sync(), with what that hands to its function"
    raise TypeError(f"connection must be an SQLAlchemy Connection or Session, not {kind.__name__}{hint}")
