"""Database products: their features, the settings of their connections, their transactions and their errors.

``expressions.py`` has the spelling of expressions, which differs, too.
"""

from __future__ import annotations

import contextlib
import enum
import os
import re
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, Connection, Dialect

from jobboard import runtime

Raw = Any
"""A connection of the driver's own, as PEP 249 has it."""


class Trouble(enum.Enum):
    """The meaning of a driver's error for the request."""

    DISCONNECTED = "the connection broke"
    OUTDATED = "the connection has prepared a statement whose result has another type by now; a new connection has not"
    REPLACED = "the server takes no writes, as one does whose place another has taken; a new connection may find that"
    FULL = "it can't store that now: the disk has no room, fails, or a limit is reached"
    CONTENDED = "it lost against another transaction, and may be repeated as a whole"
    REFUSED = "a constraint refused it"
    MISSING = "a table is missing"
    OTHER = "something else"


def _meanings(**codes: tuple[object, ...]) -> dict[object, Trouble]:
    """Return the troubles by the driver's codes."""
    return {code: Trouble[name.upper()] for name, those in codes.items() for code in those}


class Database:
    """A database product, at the other end of a connection."""

    skip_locked = False
    returning = False
    """One statement can pick rows, change them, store an answer and return the rows."""
    compound = False
    """Several statements can be sent as one request."""
    wakes = False
    """A statement can notify listeners."""
    exclusive = False
    """A transaction that writes excludes all others from its begin on."""
    commits_at_create = False
    """The creation of a table commits the transaction."""
    nulls_last = False
    """NULL is sorted behind all values."""
    counts_changes = False
    """A connection may have been set up to count only the rows that an update changes, and not all rows that match."""
    ignored: sa.TextClause | None = None
    """The statement that returns the errors which :func:`insert_counted` has passed over: level, code and message."""
    duplicate = 0
    """The code of a duplicate key among these errors."""
    precision = 0
    """The number of µs by which a reading of the clock may lag."""
    way_out = ""
    """Advice that keeps a caller's transaction from losing, if repeating it is not enough."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    isolation: Literal["READ COMMITTED", "AUTOCOMMIT"] = "READ COMMITTED"

    def prepare(self, raw: Raw, **options: Any) -> None:
        """Set up a new connection of the library's own, once."""

    def prepare_file(self, raw: Raw) -> None:
        """Switch a database file to the journal with which readers do not wait for writers."""

    def begin(self, cursor: Any) -> None:
        """Open a transaction for writing."""

    def joined(self, raw: Raw, cursor: Any, texts: Sequence[tuple[str, Any]], begins: bool, ends: bool) -> str | None:
        """Return one text, with all values in it, that runs these statements as one request.

        :param begins: begin a transaction before them. ends: commit behind them.
        :returns: None where the database or the driver takes one statement at a time.
        """
        return None

    def moved_columns(self, connection: Connection, table: sa.Table) -> tuple[str, ...]:
        """Return the columns that the server moves with each update of a row, unless the update sets them."""
        return ()

    def begin_on(self, connection: Connection, table: sa.TableClause | None) -> None:
        """Prepare a transaction that has just begun on a caller's connection for writing.

        :param table: a table that exists, if any does.
        """
        self.commit_begun(connection.connection.dbapi_connection)
        # For this transaction alone. Other levels lock gaps, or fail where others have changed what they read.
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")

    def commit_begun(self, raw: Raw) -> None:
        """Commit the transaction that a listener to the events of a caller's engine may have begun. The listener's
        settings of the session stay so."""
        raw.commit()

    def commits_each(self, connection: Connection) -> bool:
        """Return whether a caller's connection commits each statement by itself, though a transaction has begun: by the
        engine's setting, an option or the driver's."""
        if connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
            return True
        pooled = connection.connection
        # An async driver has an adapter before its connection, and either of the two may show the mode.
        for raw in (pooled.dbapi_connection, pooled.driver_connection):
            tell = getattr(raw, "get_autocommit", None)
            autocommits = tell() if tell else getattr(raw, "autocommit", None)
            if autocommits is not None and not callable(autocommits):
                return bool(autocommits)
        return False

    def commit(self, raw: Raw, cursor: Any) -> None:
        raw.commit()

    def rollback(self, raw: Raw, cursor: Any) -> None:
        raw.rollback()

    def end_read(self, raw: Raw) -> None:
        # The snapshot and the locks on table definitions would stay.
        raw.rollback()

    def descriptor(self, raw: Raw) -> int:
        """Return the number of a connection's socket.

        :raises AttributeError: the driver does not show it.
        """
        return int(raw.fileno())

    def trouble(self, error: BaseException, raw: Raw | None) -> Trouble:
        dbapi = self.dialect.dbapi
        if isinstance(error, sa.exc.DBAPIError) and error.connection_invalidated:
            return Trouble.DISCONNECTED
        error = getattr(error, "orig", None) or error
        if isinstance(error, (OSError, EOFError)) or self._disconnected(error, raw):
            return Trouble.DISCONNECTED
        meaning = self._meaning(error)
        if meaning is not None:
            return meaning
        if dbapi is not None and isinstance(error, dbapi.IntegrityError):
            return Trouble.REFUSED
        return Trouble.OTHER

    def is_duplicate(self, error: BaseException) -> bool:
        """Return whether the error is the refusal of a unique index."""
        return self._duplicates(getattr(error, "orig", None) or error)

    def _duplicates(self, error: BaseException) -> bool:
        return False

    def refusal(self, error: BaseException, url: URL) -> str | None:
        """Return the reason why no connection can be made until the user, the password or the database is changed; None
        if another try may help."""
        return None

    def unwritable(self, url: URL) -> str | None:
        """Return the advice if this user has no right to write the database; None if another try may help."""
        return None

    @contextlib.contextmanager
    def setting_up(self, cursor: Any, name: str) -> Iterator[None]:
        """Exclude other set-ups of this name, and undo a failed set-up if the database can."""
        yield

    def _disconnected(self, error: BaseException, raw: Raw | None) -> bool:
        dbapi = self.dialect.dbapi
        if dbapi is None or not isinstance(error, dbapi.Error):
            return False
        return bool(self.dialect.is_disconnect(error, raw, None))

    @contextlib.contextmanager
    def bounded(self, raw: Raw, cursor: Any, seconds: float) -> Iterator[None]:
        """Have the database give up statements of a block that take longer, where it can. No transaction is open."""
        yield

    def _meaning(self, error: BaseException) -> Trouble | None:
        """Return the meaning of an error's code, if it is known."""
        return None


class PostgreSQLDatabase(Database):
    skip_locked = True
    nulls_last = True
    returning = True
    wakes = True

    # libpq has no code for a connection that was refused, only the server's text, which is known in English.
    _REFUSALS = re.compile(
        r'invalid \S+ value|definition of service ".*" not found|service file ".*" not found|'
        r"authentication failed|no password supplied|pg_hba\.conf|permission denied for database|"
        r'(?:role|database) ".*" (?:does not exist|is not permitted to log in|is not currently accepting connections)'
    )
    # The server says goodbye (57P0x) or the connection is none (08xxx).
    _GONE = ("08", "57P0")
    _TROUBLES = _meanings(
        contended=("40001", "40P01", "55P03", "57014"),  # the last: its limit for a statement, or an administrator
        full=("53", "58030"),  # disk, memory, connections, its limits; an error of the disk's
        replaced=("25006",),
        missing=("42P01",),
    )

    # One statement is one transaction and one round trip; what needs several begins one by hand.
    isolation = "AUTOCOMMIT"

    def prepare(self, raw: Raw, **options: Any) -> None:
        cursor = raw.cursor()
        # The role, the database or the environment may say otherwise.
        cursor.execute("SET default_transaction_isolation = 'read committed'")
        if options.get("read_only"):
            cursor.execute("SET default_transaction_read_only = on")
        cursor.close()

    def begin(self, cursor: Any) -> None:
        cursor.execute(self._BEGIN)

    _BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"

    def joined(self, raw: Raw, cursor: Any, texts: Sequence[tuple[str, Any]], begins: bool, ends: bool) -> str | None:
        # psycopg's. Each statement sees what was committed before it began, as if it were sent alone. But it is planned
        # anew, which costs more than a request does.
        client_cursor = getattr(self.dialect.dbapi, "ClientCursor", None)
        if client_cursor is None:
            return None
        writer = client_cursor(raw)
        written = [writer.mogrify(text, values) for text, values in texts]
        return ";\n".join([*[self._BEGIN] * begins, *written, *["COMMIT"] * ends])

    def commit(self, raw: Raw, cursor: Any) -> None:
        cursor.execute("COMMIT")

    def rollback(self, raw: Raw, cursor: Any) -> None:
        # Without a transaction the server only warns.
        cursor.execute("ROLLBACK")

    def end_read(self, raw: Raw) -> None:
        pass

    @contextlib.contextmanager
    def bounded(self, raw: Raw, cursor: Any, seconds: float) -> Iterator[None]:
        cursor.execute(f"BEGIN; SET LOCAL statement_timeout = {int(seconds * 1000)}")
        yield
        cursor.execute("COMMIT")

    @contextlib.contextmanager
    def setting_up(self, cursor: Any, name: str) -> Iterator[None]:
        # Another set-up may take long.
        cursor.execute("BEGIN; SET LOCAL lock_timeout = 0")
        try:
            cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (name,))
            yield
        except BaseException:
            cursor.execute("ROLLBACK")
            raise
        cursor.execute("COMMIT")

    def refusal(self, error: BaseException, url: URL) -> str | None:
        text = str(error)
        refused = self._state(error).startswith(("28", "3D000", "42501")) or self._REFUSALS.search(text)
        return text if refused else None

    @staticmethod
    def _state(error: BaseException) -> str:
        return getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or ""

    def _disconnected(self, error: BaseException, raw: Raw | None) -> bool:
        if self._state(error).startswith(self._GONE):
            return True
        if raw is not None and getattr(raw, "closed", False):
            return True
        return super()._disconnected(error, raw)

    def _duplicates(self, error: BaseException) -> bool:
        return self._state(error) == "23505"

    def _meaning(self, error: BaseException) -> Trouble | None:
        state = self._state(error)
        # Other errors have this code, too, and the text is in the server's language.
        source = getattr(getattr(error, "diag", None), "source_function", None)
        if state == "0A000" and source == "RevalidateCachedQuery":
            return Trouble.OUTDATED
        return self._TROUBLES.get(state) or self._TROUBLES.get(state[:2])


_moved: weakref.WeakKeyDictionary[Dialect, dict[tuple[str | None, str], tuple[str, ...]]] = weakref.WeakKeyDictionary()
"""The columns with ``ON UPDATE`` of each table that was asked for, by schema and name."""

_MOVED = sa.text(
    "SELECT column_name FROM information_schema.columns WHERE table_schema = coalesce(:schema, database()) "
    "AND table_name = :name AND locate('on update', lower(extra)) > 0"
)


class MySQLDatabase(Database):
    commits_at_create = True
    counts_changes = True
    ignored = sa.text("SHOW WARNINGS")
    duplicate = 1062
    transaction_begun = 1568

    # Access, database, host, privilege, password to be changed, account locked, TLS demanded.
    _REFUSALS = frozenset({1044, 1045, 1049, 1130, 1142, 1143, 1227, 1698, 1820, 1862, 3118, 3159, 4151})
    # Going away, lost, shut down, too many connections, killed, refused.
    _GONE = frozenset({2000, 2002, 2003, 2006, 2013, 2014, 2055, 1040, 1053, 1077, 1079, 1927, 4031, 0})
    _TROUBLES = _meanings(
        # 1180: the server has undone the commit; 1317: KILL QUERY; 1467: the wait for the counter of ids was too long;
        # the last two: its limit for a statement.
        contended=(1205, 1213, 1020, 1180, 3572, 1317, 1467, 1969, 3024),
        full=(1021, 1037, 1041, 1114, 1206, 1226),  # disk, memory, table, locks, and what a user may do in an hour
        # An option of the server's forbids it, and of those that do this is read_only; InnoDB's; the session's.
        replaced=(1290, 1836, 1792),
        # 1176: a table that is being created gets its indexes last.
        missing=(1146, 1176),
    )

    def __init__(self, dialect: Dialect) -> None:
        super().__init__(dialect)
        version: Sequence[Any] = getattr(dialect, "server_version_info", None) or ()
        numbers = tuple(part for part in version if isinstance(part, int))
        mariadb = bool(getattr(dialect, "is_mariadb", False))
        self.skip_locked = numbers >= ((10, 6) if mariadb else (8, 0, 1))
        # PyMySQL sends a compound statement unchanged, and returns all its results. Other drivers are not known to.
        self.compound = mariadb and self.skip_locked and dialect.driver == "pymysql"

    def joined(self, raw: Raw, cursor: Any, texts: Sequence[tuple[str, Any]], begins: bool, ends: bool) -> str | None:
        if not self.compound or len(texts) + ends < 2:
            return None
        # A transaction begins by itself.
        written = [cursor.mogrify(text, values) for text, values in texts]
        return "begin not atomic\n" + "".join(f"{text};\n" for text in [*written, *["commit"] * ends]) + "end"

    def moved_columns(self, connection: Connection, table: sa.Table) -> tuple[str, ...]:
        # Kept for the life of the process: an ALTER TABLE is noticed after a restart, as other changes of columns are.
        known = _moved.setdefault(connection.dialect, {})
        place = connection.schema_for_object(table), table.name
        if place not in known:
            found = connection.execute(_MOVED, {"schema": place[0], "name": place[1]})
            known[place] = tuple(name for (name,) in found)
        return known[place]

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

    def refusal(self, error: BaseException, url: URL) -> str | None:
        # This error shares its number with all other troubles of TLS.
        without_tls = "SSL is required but the server doesn't support it" in str(error)
        return str(error.args[-1]) if without_tls or self._code(error) in self._REFUSALS else None

    def commit_begun(self, raw: Raw) -> None:
        # To set a level for the session also commits.
        pass

    def begin_on(self, connection: Connection, table: sa.TableClause | None) -> None:
        try:
            super().begin_on(connection, table)
        except sa.exc.DBAPIError as error:
            if self._code(error.orig or error) != self.transaction_begun:
                raise
            connection.connection.commit()
            super().begin_on(connection, table)

    @contextlib.contextmanager
    def bounded(self, raw: Raw, cursor: Any, seconds: float) -> Iterator[None]:
        is_mariadb = getattr(self.dialect, "is_mariadb", False)
        name, value = ("max_statement_time", seconds) if is_mariadb else ("max_execution_time", int(seconds * 1000))
        cursor.execute(f"SET @jobboard_limit = @@{name}, {name} = {value}")
        try:
            yield
        finally:
            with contextlib.suppress(Exception):
                cursor.execute(f"SET {name} = @jobboard_limit")

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

    def _duplicates(self, error: BaseException) -> bool:
        return self._code(error) == self.duplicate

    def _meaning(self, error: BaseException) -> Trouble | None:
        return self._TROUBLES.get(self._code(error))


_STEPS = 20_000
"""The instructions of SQLite's machine between two looks at the time: about a millisecond."""


class SQLiteDatabase(Database):
    isolation = "AUTOCOMMIT"
    exclusive = True
    precision = 1000
    way_out = "a transaction that reads before it writes must begin by BEGIN IMMEDIATE, or it may lose at once"

    _TROUBLES = _meanings(
        contended=(5, 6),  # BUSY, LOCKED
        full=(10, 13),  # IOERR, FULL
        replaced=(8,),  # READONLY: a file that could only be read when it was opened stays so for this connection
    )
    _REFUSALS = frozenset({3, 8, 13, 23, 26})  # PERM, READONLY, FULL, AUTH, NOTADB
    # The seconds of one wait for another transaction. A close of the board cannot end this wait earlier.
    _TURN = 0.5

    def prepare(self, raw: Raw, **options: Any) -> None:
        cursor = raw.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {int(min(options['busy'], self._TURN) * 1000)}")
        cursor.fetchall()
        if options.get("read_only"):
            cursor.execute("PRAGMA query_only = on")
        else:
            self.prepare_file(raw)
        cursor.execute("PRAGMA synchronous = NORMAL" if options.get("relaxed") else "PRAGMA synchronous = FULL")
        cursor.close()

    def prepare_file(self, raw: Raw) -> None:
        raw.execute("PRAGMA journal_mode = WAL").fetchall()

    def begin(self, cursor: Any) -> None:
        # A transaction that reads first and writes later fails at once when another has written in between.
        cursor.execute("BEGIN IMMEDIATE")

    def begin_on(self, connection: Connection, table: sa.TableClause | None) -> None:
        driver: Any = connection.connection.driver_connection
        if not driver.in_transaction:
            # By itself the driver begins only with the first write.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        elif table is not None:
            # After a plain BEGIN, SQLite waits for other writers only if the first statement writes. This delete
            # matches no row.
            connection.execute(sa.delete(table).where(sa.false()))

    def commits_each(self, connection: Connection) -> bool:
        if connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
            return True
        driver: Any = connection.connection.driver_connection
        # A driver without a level begins no transactions: a listener to SQLAlchemy's "begin" does.
        left_alone = driver.isolation_level is None and not driver.in_transaction
        # The attribute of Python 3.12; -1 is the behaviour of earlier versions.
        return left_alone or getattr(driver, "autocommit", None) is True

    def commit_begun(self, raw: Raw) -> None:
        if raw.in_transaction:
            raw.commit()

    def commit(self, raw: Raw, cursor: Any) -> None:
        cursor.execute("COMMIT")

    def rollback(self, raw: Raw, cursor: Any) -> None:
        if raw.in_transaction:
            cursor.execute("ROLLBACK")

    @contextlib.contextmanager
    def bounded(self, raw: Raw, cursor: Any, seconds: float) -> Iterator[None]:
        if not hasattr(raw, "set_progress_handler"):
            yield
            return
        end = runtime.monotonic() + seconds
        raw.set_progress_handler(lambda: runtime.monotonic() > end, _STEPS)
        try:
            yield
        finally:
            raw.set_progress_handler(None, 0)

    def end_read(self, raw: Raw) -> None:
        # Only a listener to SQLAlchemy's "begin" can have begun one.
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

    def commits(self, cursor: Any) -> int:
        """Return a count that changes with each commit of another connection."""
        cursor.execute("PRAGMA data_version")
        return int(cursor.fetchone()[0])

    def _disconnected(self, error: BaseException, raw: Raw | None) -> bool:
        return "unable to open database file" in str(error)

    def _duplicates(self, error: BaseException) -> bool:
        return "UNIQUE constraint failed" in str(error)

    def unwritable(self, url: URL) -> str | None:
        path = Path(str(url.database))
        if all(os.access(each, os.W_OK) for each in (path, path.parent)):
            return None
        return "give this user the right to write the file and its folder, or open the board with read_only"

    def refusal(self, error: BaseException, url: URL) -> str | None:
        """Find the reason in the file's rights: SQLite's own error only says that the file cannot be opened."""
        path = Path(str(url.database))
        # Do not open the file: closing it would give up all locks that this process has on it.
        try:
            if not path.parent.is_dir():
                return f"there is no folder {path.parent}"
            if path.is_dir():
                return "it is a folder"
            if not os.access(path if path.exists() else path.parent, os.R_OK | os.W_OK):
                return "permission denied"
        except PermissionError:
            return "permission denied to enter a folder of this path"
        return str(error) if getattr(error, "sqlite_errorcode", 0) & 0xFF in self._REFUSALS else None

    def _meaning(self, error: BaseException) -> Trouble | None:
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
    """Return the product behind a dialect that has connected once."""
    return _PRODUCTS.get(dialect.name, Database)(dialect)


def insert_counted(table: sa.Table, dialect: Dialect) -> sa.Insert:
    """Return an insert that passes over taken unique keys, and counts the other rows; see :attr:`Database.ignored`."""
    if dialect.name == "postgresql":
        return postgresql.insert(table).inline().on_conflict_do_nothing()
    if dialect.name == "sqlite":
        return sqlite.insert(table).inline().on_conflict_do_nothing()
    # An update of the key to itself would count the rows that are passed over, too.
    return sa.insert(table).prefix_with("IGNORE") if dialect.name in ("mysql", "mariadb") else sa.insert(table)
