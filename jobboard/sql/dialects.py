"""Everything that differs from one database to the next but how it spells expressions, and nothing else.

A :class:`Database` says what one can do, prepares connections and sorts its errors.
"""

from __future__ import annotations

import contextlib
import enum
import os
import select
import socket
from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.engine import Connection, Dialect

from jobboard.exceptions import JobFailure
from jobboard.sql.expressions import XACT

Raw = Any
"""A connection of the driver's own, as PEP 249 has it."""


class Trouble(enum.Enum):
    """What an error of the driver's means for the request."""

    DISCONNECTED = "the connection broke"
    REPLACED = "the server takes no writes, as one does whose place another has taken; a new connection may find that"
    FULL = "it can't store that now: the disk has no room, fails, or a limit is reached"
    CONTENDED = "it lost against another transaction, and may be repeated as a whole"
    REFUSED = "a constraint refused it"
    MISSING = "a table is missing"
    OTHER = "something else"


def _meanings(**codes: tuple[object, ...]) -> dict[object, Trouble]:
    """Trouble by the driver's code for it."""
    return {code: Trouble[name.upper()] for name, those in codes.items() for code in those}


class Database:
    """One database product, as met at the end of a connection."""

    skip_locked = False
    returning = False
    """Whether one statement can pick, change, answer and return."""
    compound = False
    """Whether a :class:`~jobboard.sql.prepared.Compound` is worth a try."""
    dated = False  # Whether what comes back to a board is found by when it did.
    wakes = False
    """Whether it can call those who listen when a statement asks it to."""
    exclusive = False
    """Whether a transaction that writes is alone from its begin on."""
    commits_at_create = False
    """Whether creating a table commits the transaction."""
    nulls_last = False
    """Whether what is NULL comes behind all else."""
    counts_changes = False
    """Whether a connection may have been set up to count the rows that an update changes, and not those it meets."""
    ignored: sa.TextClause | None = None
    """What tells, as level, code and message, of the errors that :func:`insert_counted` has passed over."""
    duplicate = 0
    """The code of a key that is taken, among these."""
    precision = 0
    """By how many µs its clock may lag within a reading."""
    way_out = ""  # What keeps a caller's transaction from losing, where there is more than to repeat it.

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    @property
    def isolation(self) -> str:
        return "READ COMMITTED"

    def prepare(self, raw: Raw, **options: Any) -> None:
        """Set up a new connection of our own, once."""

    def begin(self, cursor: Any) -> None:
        """Open a transaction for writing."""

    def begin_read(self, cursor: Any) -> None:
        """Have what is read next be what others have committed, on a connection that was prepared for ``looking``."""

    def begin_on(self, connection: Connection, table: sa.TableClause | None) -> None:
        """Have a transaction that has just begun on a caller's connection be one for writing; ``table`` is there."""
        # For this transaction alone. Other levels lock gaps, or fail where others have changed what they read.
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")

    def commits_each(self, connection: Connection) -> bool:
        """Whether a connection of the caller's, with a transaction begun, commits each statement by itself: whoever has
        told it so, the engine, an option or the driver."""
        if connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
            return True
        pooled = connection.connection
        # Of an async driver the first one stands before the second, and not all tell both ways.
        for raw in (pooled.dbapi_connection, pooled.driver_connection):
            tell = getattr(raw, "get_autocommit", None)
            told = tell() if tell else getattr(raw, "autocommit", None)
            if told is not None and not callable(told):
                return bool(told)
        return False

    def commit(self, raw: Raw, cursor: Any) -> None:
        raw.commit()

    def rollback(self, raw: Raw, cursor: Any) -> None:
        raw.rollback()

    def end_read(self, raw: Raw) -> None:
        # Its snapshot and its locks on the tables' definitions would stay.
        raw.rollback()

    def detach(self, raw: Raw, idle: bool) -> None:
        """In a forked child: make sure that nothing of this connection ever reaches the parent's server.

        :param idle: no thread of the parent's was using it.
        """
        with contextlib.suppress(Exception):
            null = os.open(os.devnull, os.O_RDWR)
            # In the child only the number means something else now; the parent's socket stays as it is.
            os.dup2(null, self.descriptor(raw))
            os.close(null)

    def descriptor(self, raw: Raw) -> int:
        """The number of a connection's socket; AttributeError where the driver does not tell."""
        return int(raw.fileno())

    def trouble(self, error: BaseException, raw: Raw | None) -> Trouble:
        dbapi = self.dialect.dbapi
        if isinstance(error, sa.exc.DBAPIError) and error.connection_invalidated:
            return Trouble.DISCONNECTED
        error = getattr(error, "orig", None) or error
        if isinstance(error, (OSError, EOFError)) or self._disconnected(error, raw):
            return Trouble.DISCONNECTED
        told = self._told(error)
        if told is not None:
            return told
        if dbapi is not None and isinstance(error, dbapi.IntegrityError):
            return Trouble.REFUSED
        return Trouble.OTHER

    def remedy(self, error: BaseException) -> str:
        """The setting of the server's that allows what this error refuses; empty where none is known."""
        return ""

    @contextlib.contextmanager
    def setting_up(self, cursor: Any, name: str) -> Iterator[None]:
        """Keep all other set-ups of this name out, and undo a failed one where the database can."""
        yield

    def hurry(self, cursor: Any, seconds: float) -> None:
        """From now on wait at most so long for another's transaction, where this connection waits at all."""

    def _disconnected(self, error: BaseException, raw: Raw | None) -> bool:
        dbapi = self.dialect.dbapi
        if dbapi is None or not isinstance(error, dbapi.Error):
            return False
        return bool(self.dialect.is_disconnect(error, raw, None))

    def _told(self, error: BaseException) -> Trouble | None:
        """What the code of an error means, if that is known."""
        return None


class PostgreSQLDatabase(Database):
    skip_locked = True
    nulls_last = True
    returning = True
    wakes = True

    # The server says goodbye (57P0x) or the connection is none (08xxx).
    _GONE = ("08", "57P0")
    _TROUBLES = _meanings(
        contended=("40001", "40P01", "55P03", "57014"),  # the last: its limit for a statement
        full=("53", "58030"),  # disk, memory, connections, its limits; an error of the disk's
        replaced=("25006",),
        missing=("42P01",),
    )

    @property
    def isolation(self) -> str:
        # One statement is one transaction and one round trip; what needs several begins one by hand.
        return "AUTOCOMMIT"

    def prepare(self, raw: Raw, **options: Any) -> None:
        cursor = raw.cursor()
        # Others have it as the role, the database or the environment says, and a text may hold any character.
        cursor.execute("SET default_transaction_isolation = 'read committed'; SET client_encoding = 'UTF8'")
        if options.get("read_only"):
            cursor.execute("SET default_transaction_read_only = on")
        cursor.close()
        if options.get("pooled") and hasattr(raw, "prepare_threshold"):
            # Behind a transaction pooler the next statement may meet another server process.
            raw.prepare_threshold = None

    @property
    def can_listen(self) -> bool:
        """Whether :meth:`listen` and :meth:`calls` work with this driver."""
        return self.dialect.driver.startswith("psycopg") and hasattr(self.dialect.dbapi, "Connection")

    def listen(self, raw: Raw, channel: str) -> None:
        """Listen on a channel from now on."""
        raw.cursor().execute("LISTEN " + self.dialect.identifier_preparer.quote_identifier(channel))

    def calls(self, raw: Raw, stop: socket.socket, seconds: float) -> list[str] | None:
        """Wait for calls, or until ``stop`` has something to read; what was called. None: nothing in this time."""
        poll = select.poll()
        poll.register(raw.fileno(), select.POLLIN)
        poll.register(stop.fileno(), select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(seconds * 1000)}
        if not ready:
            return None
        if raw.fileno() not in ready:
            return []
        raw.pgconn.consume_input()
        payloads = []
        while (call := raw.pgconn.notifies()) is not None:
            payloads.append(call.extra.decode())
        return payloads

    def ping(self, raw: Raw) -> None:
        """See whether the server is there. Calls that come in meanwhile are lost."""
        raw.cursor().execute("SELECT 1")

    def begin(self, cursor: Any) -> None:
        # It has its id before anything else, as what looks behind floors relies on.
        cursor.execute("BEGIN; SELECT " + XACT)

    def commit(self, raw: Raw, cursor: Any) -> None:
        cursor.execute("COMMIT")

    def rollback(self, raw: Raw, cursor: Any) -> None:
        # The server remarks on one without a transaction, and does no more.
        cursor.execute("ROLLBACK")

    def end_read(self, raw: Raw) -> None:
        pass

    @contextlib.contextmanager
    def setting_up(self, cursor: Any, name: str) -> Iterator[None]:
        # Another's may take long.
        cursor.execute("BEGIN; SET LOCAL lock_timeout = 0")
        try:
            cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (name,))
            yield
        except BaseException:
            cursor.execute("ROLLBACK")
            raise
        cursor.execute("COMMIT")

    @staticmethod
    def _state(error: BaseException) -> str:
        return getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or ""

    def _disconnected(self, error: BaseException, raw: Raw | None) -> bool:
        if self._state(error).startswith(self._GONE):
            return True
        if raw is not None and getattr(raw, "closed", False):
            return True
        return super()._disconnected(error, raw)

    def _told(self, error: BaseException) -> Trouble | None:
        state = self._state(error)
        return self._TROUBLES.get(state) or self._TROUBLES.get(state[:2])


_FOUND_ROWS = 2


class MySQLDatabase(Database):
    commits_at_create = True
    counts_changes = True
    ignored = sa.text("SHOW WARNINGS")
    duplicate = 1062

    # Going away, lost, shut down, too many connections, killed, refused.
    _GONE = frozenset({2000, 2002, 2003, 2006, 2013, 2014, 2055, 1040, 1053, 1077, 1079, 1927, 4031, 0})
    _TROUBLES = _meanings(
        contended=(1205, 1213, 1020, 3572, 1969, 3024),  # the last two: its limit for a statement
        full=(1021, 1037, 1041, 1114, 1206, 1226),  # disk, memory, table, locks, and what a user may do in an hour
        # An option of the server's forbids it, and of those that do this is read_only; InnoDB's; the session's.
        replaced=(1290, 1836, 1792),
        missing=(1146,),
    )

    def __init__(self, dialect: Dialect) -> None:
        super().__init__(dialect)
        version: Sequence[Any] = getattr(dialect, "server_version_info", None) or ()
        numbers = tuple(part for part in version if isinstance(part, int))
        mariadb = bool(getattr(dialect, "is_mariadb", False))
        self.skip_locked, self.dated = numbers >= ((10, 6) if mariadb else (8, 0, 1)), mariadb
        # PyMySQL sends one as it is, and gives out all that it answers; of others that is not known.
        self.compound = mariadb and self.skip_locked and dialect.driver == "pymysql"

    def prepare(self, raw: Raw, **options: Any) -> None:
        # A board's fence trusts the count of matched rows, and MySQL by itself counts only those that changed.
        if options.get("counting", True) and not self._counts_matched(raw):
            raise JobFailure("the engine's connections must count found rows (FOUND_ROWS), as SQLAlchemy's do")
        if options.get("looking"):
            # What others have committed it must put together from their undo logs, which costs more than all else when
            # they are busy with the same index; and it finds there what they have just changed, and so locked.
            raw.cursor().execute("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
        if self.compound:
            # As MariaDB has it by itself: where it is less, the lists of ids that it puts together are cut off.
            raw.cursor().execute("SET SESSION group_concat_max_len = 1048576")

    @staticmethod
    def _counts_matched(raw: Raw) -> bool:
        """As far as the driver tells: PyMySQL and mysqlclient by their flags, mysql-connector when it is asked."""
        if hasattr(raw, "isset_client_flag"):
            return bool(raw.isset_client_flag(_FOUND_ROWS))
        return bool(getattr(raw, "client_flag", _FOUND_ROWS) & _FOUND_ROWS)

    def begin_read(self, cursor: Any) -> None:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")

    @contextlib.contextmanager
    def setting_up(self, cursor: Any, name: str) -> Iterator[None]:
        cursor.execute("SELECT GET_LOCK(MD5(CONCAT(DATABASE(), %s)), 3600)", (name,))
        cursor.fetchall()
        try:
            yield
            cursor.execute("COMMIT")
        finally:
            cursor.execute("SELECT RELEASE_LOCK(MD5(CONCAT(DATABASE(), %s)))", (name,))
            cursor.fetchall()

    def remedy(self, error: BaseException) -> str:
        if self._code(error) == 1665:
            return "; set binlog_format to MIXED or ROW on the server, as by SET GLOBAL binlog_format = 'MIXED'"
        return ""

    def descriptor(self, raw: Raw) -> int:
        return int(raw._sock.fileno() if hasattr(raw, "_sock") else raw.fileno())

    @staticmethod
    def _code(error: BaseException) -> object:
        return error.args[0] if error.args else None

    def _disconnected(self, error: BaseException, raw: Raw | None) -> bool:
        dbapi = self.dialect.dbapi
        if dbapi is not None and isinstance(error, dbapi.Error) and self._code(error) in self._GONE:
            return True
        return super()._disconnected(error, raw)

    def _told(self, error: BaseException) -> Trouble | None:
        return self._TROUBLES.get(self._code(error))


class SQLiteDatabase(Database):
    exclusive = True
    precision = 1000
    way_out = "a transaction that reads before it writes must begin by BEGIN IMMEDIATE, or it may lose at once"

    _TROUBLES = _meanings(
        contended=(5, 6),  # BUSY, LOCKED
        full=(10, 13),  # IOERR, FULL
        replaced=(8,),  # READONLY: a file that could only be read when it was opened stays so for this connection
    )
    # For how many seconds to wait for another's transaction at once: meanwhile no child can be made.
    _TURN = 0.5

    @property
    def isolation(self) -> str:
        return "AUTOCOMMIT"

    def prepare(self, raw: Raw, **options: Any) -> None:
        cursor = raw.cursor()
        self._busy(cursor, options.get("busy", 10))
        if options.get("read_only"):
            cursor.execute("PRAGMA query_only = on")
        else:
            cursor.execute("PRAGMA journal_mode = WAL")
            cursor.fetchall()
        cursor.execute("PRAGMA synchronous = NORMAL" if options.get("relaxed") else "PRAGMA synchronous = FULL")
        cursor.close()

    def begin(self, cursor: Any) -> None:
        # A transaction that reads first and writes later fails at once when another has written in between.
        cursor.execute("BEGIN IMMEDIATE")

    def begin_on(self, connection: Connection, table: sa.TableClause | None) -> None:
        driver: Any = connection.connection.driver_connection
        if not driver.in_transaction:
            # The driver by itself begins only when something is written.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        elif table is not None:
            # After a plain BEGIN only what writes before it reads waits its turn. This changes and wakes nothing.
            connection.execute(sa.delete(table).where(sa.false()))

    def commits_each(self, connection: Connection) -> bool:
        if connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
            return True
        driver: Any = connection.connection.driver_connection
        # A driver without a level of its own leaves it to others to begin, as a listener to SQLAlchemy's "begin" does.
        left_alone = driver.isolation_level is None and not driver.in_transaction
        # That of Python 3.12; -1 stands for what was before.
        return left_alone or getattr(driver, "autocommit", None) is True

    def commit(self, raw: Raw, cursor: Any) -> None:
        cursor.execute("COMMIT")

    def rollback(self, raw: Raw, cursor: Any) -> None:
        if raw.in_transaction:
            cursor.execute("ROLLBACK")

    def end_read(self, raw: Raw) -> None:
        # None was begun but by who listens to SQLAlchemy's begin.
        if raw.in_transaction:
            raw.rollback()

    @contextlib.contextmanager
    def setting_up(self, cursor: Any, name: str) -> Iterator[None]:
        if not cursor.connection.in_transaction:
            self.begin(cursor)
        try:
            yield
        except BaseException:
            cursor.execute("ROLLBACK")
            raise
        cursor.execute("COMMIT")

    def hurry(self, cursor: Any, seconds: float) -> None:
        self._busy(cursor, seconds)

    def commits(self, cursor: Any) -> int:
        """A count that another connection's commit changes."""
        cursor.execute("PRAGMA data_version")
        return int(cursor.fetchone()[0])

    def detach(self, raw: Raw, idle: bool) -> None:
        # SQLite keeps the locks of all of a process's connections to a file in one place, and believes that a child has
        # inherited them, which is wrong. Only once the inherited connections are closed does it ask for new ones. That
        # takes nothing from the parent; but one in the middle of something can't be closed: another thread, which the
        # child has not, holds its mutex.
        if idle and not raw.in_transaction:
            raw.close()

    def _busy(self, cursor: Any, seconds: float) -> None:
        cursor.execute("PRAGMA busy_timeout = " + str(int(min(seconds, self._TURN) * 1000)))
        cursor.fetchall()

    def _disconnected(self, error: BaseException, raw: Raw | None) -> bool:
        return "unable to open database file" in str(error)

    def _told(self, error: BaseException) -> Trouble | None:
        if "no such table" in str(error):
            return Trouble.MISSING
        return self._TROUBLES.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)


_PRODUCTS: dict[str, type[Database]] = {
    "postgresql": PostgreSQLDatabase,
    "mysql": MySQLDatabase,
    "mariadb": MySQLDatabase,
    "sqlite": SQLiteDatabase,
}


def database(dialect: Dialect) -> Database:
    """The product behind a dialect that has connected once."""
    return _PRODUCTS.get(dialect.name, Database)(dialect)


def insert_new(table: sa.Table, dialect: Dialect) -> sa.Insert:
    """An insert that passes over rows whose unique keys are taken."""
    if dialect.name == "postgresql":
        return postgresql.insert(table).inline().on_conflict_do_nothing()
    if dialect.name == "sqlite":
        return sqlite.insert(table).inline().on_conflict_do_nothing()
    if dialect.name in ("mysql", "mariadb"):
        # IGNORE would hide every other error too.
        key = next(iter(table.primary_key))
        return mysql.insert(table).on_duplicate_key_update({key.name: key})
    return sa.insert(table)


def insert_counted(table: sa.Table, dialect: Dialect) -> sa.Insert:
    """As :func:`insert_new`, where the rows that are new must be counted; see :attr:`Database.ignored`."""
    if dialect.name in ("mysql", "mariadb"):
        # The other way counts the rows that it passes over, too.
        return sa.insert(table).prefix_with("IGNORE")
    return insert_new(table, dialect)
