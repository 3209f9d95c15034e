"""Transactions of callers, ``connection=``: their checks, and the calls that follow their ends."""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from jobboard.backends.sql.statements import Statement
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.retry import retrying
from jobboard.sql.connections import Link, Links
from jobboard.sql.dialects import Database, PostgreSQLDatabase, database
from jobboard.sql.runners import Runner
from jobboard.sql.transactions import Transaction, begin_writing, check_savepoint

LOG = logging.getLogger(__name__)

NAME = "connection="
"""The name of a caller's transaction in errors."""

SNAPSHOTS = ("REPEATABLE READ", "SERIALIZABLE")
"""PostgreSQL's isolation levels with a snapshot: they show no later commits, and fail where a row has changed since."""


class _Place(NamedTuple):
    """The place of a board's tables. since: a value that differs after a restart of the server, or in another file."""

    since: object
    tables: str


class CallersTransactions:
    """The transactions of callers in which an open board works.

    :param links: the board's own connections, which lead to its tables.
    :param find: the statement that returns the database of a board's tables.
    :param remedy: the command that creates missing tables.
    :param retry_for: the seconds for which the board repeats a request of its own.
    :param sleep: sleeps for some seconds between two such requests.
    """

    def __init__(
        self,
        table: sa.Table,
        product: Database,
        links: Links,
        find: Statement,
        remedy: str,
        retry_for: float,
        sleep: Callable[[float], None],
    ) -> None:
        self._table = table
        self._product = product
        self._links = links
        self._find = find
        self._remedy = remedy
        self._retrying = retrying(ConnectionFailure, retry_for, sleep=sleep)
        # A caller's pool may have no connection left once its connections are in transactions.
        self._database = None if links.own else links.run(self._own_database)

    @contextlib.contextmanager
    def begun(self, given: object) -> Iterator[Runner]:
        """Give the caller's transaction for a block, ready to be written in. Nothing is committed there.

        :raises TypeError: ``given`` is no connection and no session.
        :raises JobFailure: it cannot be used for this board, or it has lost against another transaction.
        """
        with self._transaction(given).joined(self._remedy) as run:
            self._check_kind(run.connection)
            try:
                begin_writing(run.connection, self._table)
            finally:
                # The connection may lead to a database without such a table.
                self._check_database(run)
            yield run

    def after_commit(self, given: object, done: Callable[[], None], undone: Callable[[], None]) -> None:
        """Call ``done`` after the caller's transaction was committed, ``undone`` after it was rolled back. The caller's
        connection is not yet back in its pool then."""

        def told() -> None:
            with self._links.outside_pool():
                done()

        connection = self._transaction(given).connection()
        sequels = _sequels.get(connection)
        if sequels is None:
            sequels = _sequels[connection] = _Sequels(connection)
        sequels.add(connection, told, undone)

    def _transaction(self, given: object) -> Transaction:
        return Transaction(given, NAME, clause=self._table)

    def _check_kind(self, connection: Connection) -> None:
        """:raises JobFailure: the connection is to another product, or its transaction can't take verbs in."""
        there, here = connection.dialect, self._product.dialect
        if type(database(there)) is not type(self._product):
            raise JobFailure(f"{NAME} leads to {there.name}, and the board is in {here.name}")
        if isinstance(connection.get_transaction(), sa.TwoPhaseTransaction):
            raise JobFailure(f"{NAME} is in a transaction in two phases: give a connection in a plain transaction")
        if self._product.exclusive:
            check_savepoint(connection, NAME)
        level = connection.get_isolation_level() if isinstance(self._product, PostgreSQLDatabase) else None
        if level in SNAPSHOTS:
            raise JobFailure(
                f"{NAME} is in a transaction at {level}, which would take no notice of claims and keys that "
                "others have written since it began: have it at READ COMMITTED, as by "
                'engine.execution_options(isolation_level="READ COMMITTED")'
            )

    def _check_database(self, run: Runner) -> None:
        """:raises JobFailure: a connection does not lead to this board's tables."""
        there, known = self._database_of(run), self._database
        if there == known:
            return
        is_of_pool = not self._links.own and run.connection.engine.pool is self._links.engine.pool
        if known is None or not is_of_pool or there.tables != known.tables:
            # Unknown, or out of date: the server was restarted or replaced.
            with self._links.outside_pool():
                known = self._retrying(self._links.run, self._own_database)
            if there != known:
                raise JobFailure(
                    f"{NAME} leads to another database than the board's, or to another schema, or to a copy of it"
                )
        self._database = there

    def _own_database(self, link: Link) -> _Place:
        found = self._database_of(link)
        link.end_read()
        return found

    def _database_of(self, run: Runner) -> _Place:
        """Return the database that a connection leads to, as the server itself reports it: the same for all names,
        sockets and poolers of one database."""
        [[found]] = run.rows(self._find, {})
        if not self._product.exclusive:
            return _Place(*found.split("/", 1))
        with contextlib.suppress(OSError):
            file = Path(found).stat()
            return _Place((file.st_dev, file.st_ino), "")
        return _Place(None, found)


# The end of a transaction


class _Sequel(NamedTuple):
    """The calls that a verb makes when its transaction ends. depth: of the savepoint that the verb ran in."""

    depth: int
    done: Callable[[], None]
    undone: Callable[[], None]


class _Sequels:
    """The calls that are made when the transaction of a connection ends."""

    def __init__(self, connection: Connection) -> None:
        self._waiting: list[_Sequel] = []
        # The listeners stay for the connection's life: a listener cannot be removed while it is called.
        sa.event.listen(connection, "commit", self._commit)
        sa.event.listen(connection, "rollback", lambda connection: self._undo(0))
        sa.event.listen(connection, "rollback_savepoint", lambda connection, name, context: self._undo(_number(name)))

    def add(self, connection: Connection, done: Callable[[], None], undone: Callable[[], None]) -> None:
        nested = connection.get_nested_transaction()
        depth = _number(getattr(nested, "_savepoint", "")) if nested is not None else 0
        self._waiting.append(_Sequel(depth, done, undone))

    def _commit(self, connection: Connection) -> None:
        if not self._waiting:
            return
        # SQLAlchemy's event comes before the commit. Nothing may be announced that could still fail, so the commit is
        # done here; what SQLAlchemy then commits is empty.
        dialect = connection.dialect
        try:
            dialect.do_commit(connection.connection)
        except dialect.loaded_dbapi.Error as error:
            # If the commit has happened all the same, the heartbeat notices. No rollback event follows.
            self._undo(0)
            of_driver = dialect.loaded_dbapi.Error
            raise sa.exc.DBAPIError.instance("COMMIT", None, error, of_driver, dialect=dialect) from error
        self._committed()

    def _committed(self) -> None:
        sequels, self._waiting = self._waiting, []
        for sequel in sequels:
            try:
                sequel.done()
            except Exception:
                # The transaction is committed, so no error may look like a failed commit to the caller.
                LOG.exception("after the commit of a caller's transaction")

    def _undo(self, depth: int) -> None:
        """Undo the verbs from this depth on: a savepoint takes along those that came after its begin."""
        undone = [each for each in self._waiting if each.depth >= depth]
        self._waiting = [each for each in self._waiting if each.depth < depth]
        for each in undone:
            each.undone()


_sequels: weakref.WeakKeyDictionary[Connection, _Sequels] = weakref.WeakKeyDictionary()


def _number(savepoint: str) -> int:
    """Return the number of a savepoint, by its name: they are numbered as they begin."""
    digits = savepoint.rpartition("_")[2]
    return int(digits) if digits.isdigit() else 0
