"""Connections of boards and task loops: taken for one call, watched while they work, and given back."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine

from jobboard import forks, runtime
from jobboard.exceptions import ConnectionFailure, JobBoardError, JobFailure
from jobboard.retry import retrying
from jobboard.sql.dialects import Database, Raw, Trouble, database
from jobboard.sql.inherited import close_inherited, close_later
from jobboard.sql.runners import Row, Runner, Statement, Text, executed
from jobboard.threads import started

LOG = logging.getLogger(__name__)

T = TypeVar("T")

UNSENDABLE = (OverflowError, UnicodeError)
"""Errors that drivers raise, instead of errors of their own, for a value that a request cannot hold."""

_SHORTEST = 2.0
"""The lowest deadline, in seconds. A wait for a lock takes turns of half a deadline, and MariaDB's shortest turn is 1
s."""
_CLOSING = 2.0
"""The deadline, in seconds, once the board is being closed."""
_IDLE = 5.0
"""The number of seconds without a request after which the watchdog's thread ends."""


def deadline(retry_for: float, lease: float) -> float:
    """Return the number of seconds after which a server that does not answer counts as silent.

    A third of the lease is left to repeat a heartbeat in.
    """
    return max(_SHORTEST, min(retry_for, lease / 3))


# Errors


class _OfTheDatabase(Exception):
    """:param cause: the driver's own error, unless it shows the password."""

    def __init__(self, text: str, cause: BaseException | None = None) -> None:
        super().__init__(text)
        self.cause = cause


class Contended(_OfTheDatabase):
    """A transaction lost against another and was rolled back; the whole of it may be repeated."""


class ConstraintViolated(_OfTheDatabase):
    """A constraint refused a statement, and the transaction was rolled back."""


def refusal_error(error: ConstraintViolated) -> JobFailure:
    """Return the public error for the refusal of a constraint, where nothing else can be tried."""
    return JobFailure(f"the database refused it: {error}", error.cause)


def retrying_contended(
    on: type[Exception] | Callable[[BaseException], bool],
    seconds: float,
    sleep: Callable[[float], None] | None = None,
) -> Callable[[Callable[[], T]], T]:
    """Return :func:`~jobboard.retry.retrying` with the short pauses that suit a transaction which lost to another."""
    return retrying(on, seconds, base=0.005, cap=0.25, sleep=sleep)


def library_error(
    error: Exception, product: Database, url: URL, remedy: str, raw: Raw | None = None, in_doubt: bool = False
) -> Exception:
    """Return this library's error for an error of the driver's; an error that is not about the database stays.

    :param remedy: the command or call that creates a missing table.
    :param raw: the driver's connection.
    :param in_doubt: the request may have been carried out although no reply came.
    """
    cause = getattr(error, "orig", None) or error
    kept = None if _shows_password(url, cause) else cause
    name = type(cause).__name__
    text = name if kept is None else f"{name}: {cause}"
    server = url.get_backend_name()
    outcome: Literal["none", "unknown"] = "unknown" if in_doubt else "none"
    match product.trouble(error, raw):
        case Trouble.DISCONNECTED:
            return ConnectionFailure(f"the connection to {server} broke ({name})", kept, outcome)
        case Trouble.OUTDATED:
            return ConnectionFailure(f"the tables changed under a connection to {server} ({text})", kept)
        case Trouble.REPLACED:
            way_out = product.unwritable(url)
            message = f"{server} at {_where(url)} takes no writes ({text})" + (f": {way_out}" if way_out else "")
            return ConnectionFailure(message, kept, refused=way_out is not None)
        case Trouble.FULL:
            return ConnectionFailure(f"{server} at {_where(url)} can't store that now: {text}", kept, outcome)
        case Trouble.CONTENDED:
            return Contended(text, kept)
        case Trouble.REFUSED:
            return ConstraintViolated(text, kept)
        case Trouble.MISSING:
            return JobFailure(f"a table is missing; {remedy} creates it ({text})", kept)
    if isinstance(error, (sa.exc.SQLAlchemyError, product.dialect.loaded_dbapi.Error, *UNSENDABLE)):
        return JobFailure(f"the database refused it: {text}", kept)
    return error


def unreachable(error: BaseException, url: URL, product: Database) -> ConnectionFailure:
    """Return the public error for a connection that could not be made."""
    refusal = product.refusal(error, url)
    hidden = _shows_password(url, error)
    reason = type(error).__name__ if hidden else refusal or f"{type(error).__name__}: {error}"
    return ConnectionFailure(
        f"can't connect to {url.get_backend_name()} at {_where(url)}: {reason}",
        None if hidden else error,
        refused=refusal is not None,
    )


def _where(url: URL) -> str:
    place = f"{url.host or ''}:{url.port}" if url.port else url.host or url.database
    return place or "the place that is the driver's default"


def _shows_password(url: URL, error: BaseException) -> bool:
    """Return whether an error holds the password, in its text or in its attributes."""
    return isinstance(error, UnicodeError) or (bool(url.password) and str(url.password) in f"{error} {error!r}")


class Link(Runner):
    """A connection. It belongs to the thread whose call has taken it.

    Texts run on the driver's own cursor, as SQLAlchemy's execution costs several times as much.
    """

    def __init__(self, connection: Connection, product: Database) -> None:
        self.connection = connection
        """SQLAlchemy's connection, for statements that it runs by itself."""
        self.raw = cast(Raw, connection.connection.dbapi_connection)
        self.product = product
        self.dialect = connection.dialect
        self.cursor: Any = self.raw.cursor()
        self.in_doubt = False
        """True if the last request may have been carried out although no reply came."""
        self.has_begun = False
        """True if begin() or several() has begun an open transaction. A transaction for reading begins by itself."""
        self.since: float | None = None
        """The time of the request under way, on the monotonic clock."""
        self.spare = 0.0
        """The seconds that the request under way may take beyond the deadline."""
        self._descriptor: int | None = None
        with contextlib.suppress(AttributeError, OSError):
            # A duplicate, as the driver may close its own at any time, and another file then has its number.
            self._descriptor = os.dup(product.descriptor(self.raw))

    # Requests

    def rows(self, statement: Statement, params: Mapping[str, Any]) -> list[Row]:
        if isinstance(statement, sa.Executable):
            self.since = runtime.monotonic()
            return [tuple(row) for row in executed(self.connection, statement, params)]
        self._send(statement, params)
        return self.cursor.fetchall()  # type: ignore[no-any-return]

    def count(self, statement: Statement, params: Mapping[str, Any]) -> int:
        if isinstance(statement, sa.Executable):
            self.since = runtime.monotonic()
            return executed(self.connection, statement, params).rowcount
        self._send(statement, params)
        return self.cursor.rowcount  # type: ignore[no-any-return]

    def each(self, statement: Text, rows: Sequence[Mapping[str, Any]]) -> int:
        text, first = statement.compiled(self.dialect, rows[0])
        # A driver that takes values by name needs no other form.
        values = rows if isinstance(first, dict) else [statement.compiled(self.dialect, row)[1] for row in rows]
        self.since = runtime.monotonic()
        self.cursor.executemany(text, values)
        return self.cursor.rowcount  # type: ignore[no-any-return]

    def _send(self, statement: Text, params: Mapping[str, Any]) -> None:
        text, values = statement.compiled(self.dialect, params)
        self.since = runtime.monotonic()
        self.cursor.execute(text, values)

    @contextlib.contextmanager
    def bounded(self, seconds: float) -> Iterator[None]:
        """Have the database give up each statement of a block that only reads after so many seconds. The watchdog waits
        for that.

        :raises JobFailure: it has given one up.
        """
        self.spare, begun = seconds, runtime.monotonic()
        try:
            with self.product.bounded(self.raw, self.cursor, seconds):
                yield
        except Exception as error:
            is_slow = runtime.monotonic() - begun >= seconds
            if not is_slow or self.product.trouble(error, self.raw) is Trouble.DISCONNECTED:
                raise
            raise JobFailure(f"the database did not answer within {seconds:g} s", error) from error
        finally:
            self.spare = 0.0

    def single(self, statement: Text, params: Mapping[str, Any]) -> list[Row]:
        """Run a statement that is a transaction of its own and may write."""
        self.in_doubt = True
        rows = self.rows(statement, params)
        self.in_doubt = False
        return rows

    def compound(self, statement: Text, params: Mapping[str, Any]) -> list[Row]:
        """Run several statements with their commit as one request; return the rows of the first that has any."""
        rows = self.single(statement, params)
        self.in_doubt, self.has_begun = True, False
        # The error of a later statement comes behind the rows of an earlier one.
        while self.cursor.nextset():
            pass
        self.in_doubt = False
        return rows

    def several(
        self,
        statements: Sequence[tuple[Text, Mapping[str, Any]]],
        begins: bool = False,
        ends: bool = False,
        hurries: bool = False,
    ) -> list[list[Row]]:
        """Run several statements, as one request where the database and the driver take that. Return the rows of each
        that has any.

        :param begins: begin a transaction before them. ends: commit behind them.
        :param hurries: send one request also where that costs more than several do, as others wait for its locks.
        """
        joined = None
        if (hurries or self.product.compound) and not (begins and self.connection.dispatch.begin):
            texts = [statement.compiled(self.dialect, params) for statement, params in statements]
            joined = self.product.joined(self.raw, self.cursor, texts, begins, ends)
        if joined is None:
            if begins:
                self.begin()
            found = [self.rows(*each) for each in statements]
            if ends:
                self.commit()
            return found
        self.in_doubt, self.since = ends, runtime.monotonic()
        self.has_begun = (self.has_begun or begins) and not ends
        self.cursor.execute(joined)
        found = []
        while True:
            if self.cursor.description is not None:
                found.append(self.cursor.fetchall())
            if not self.cursor.nextset():
                break
        self.in_doubt = False
        return found

    # Transactions

    def begin(self) -> None:
        self.since = runtime.monotonic()
        if self.connection.dispatch.begin and not self.connection.in_transaction():
            # A listener to this event may begin a transaction itself, as SQLAlchemy advises for SQLite. Let it do so
            # first.
            self.connection.begin()
            self.product.rollback(self.raw, self.cursor)
        self.product.begin(self.cursor)
        self.has_begun = True

    def commit(self) -> None:
        self.in_doubt = True
        self.since = runtime.monotonic()
        self.product.commit(self.raw, self.cursor)
        self.in_doubt = self.has_begun = False

    def rollback(self) -> None:
        self.since = runtime.monotonic()
        self.has_begun = False
        self.product.rollback(self.raw, self.cursor)

    def end_read(self) -> None:
        """End the transaction that a read has begun, if any. A transaction that begin() has begun goes on with its
        locks."""
        if not self.has_begun:
            self.since = runtime.monotonic()
            self.product.end_read(self.raw)

    # The end of a call

    def close(self) -> None:
        """Give a caller's connection back to its pool."""
        self.since = runtime.monotonic()
        try:
            self.cursor.close()
            self.connection.close()
            self._forget()
        except Exception:  # noqa: BLE001 - drivers raise anything for a connection that is broken
            self.discard()

    def discard(self) -> None:
        """Close the connection itself, whatever state it is in."""
        if self.product.exclusive:
            # SQLite's locks are the process's, and stay as long as a statement of this connection is known.
            with contextlib.suppress(Exception):
                self.product.rollback(self.raw, self.cursor)
        _discard(self.connection)
        self._forget()

    def leak(self) -> None:
        """Leave an unused connection to the parent. For a forked child."""
        forks.keep(self)
        if self.product.exclusive:
            close_later(self.raw.close)

    def discard_broken(self) -> None:
        """Discard a broken connection, and have the caller's pool replace its other connections: most likely they are
        broken, too."""
        if self._descriptor is not None:
            self.cut()
            with contextlib.suppress(Exception):
                # SQLAlchemy replaces all connections of a pool once it has itself found one that is broken.
                self.connection.exec_driver_sql("SELECT 1")
        self.discard()

    # For the watchdog

    @property
    def watched(self) -> bool:
        """True if another thread can end the request under way."""
        return self._descriptor is not None

    def is_late(self, before: float) -> bool:
        """Return whether a request was sent before this instant, and no part of its answer has arrived."""
        if self.since is None or self.since + self.spare > before or self._descriptor is None:
            return False
        unread = select.poll()
        unread.register(self._descriptor, select.POLLIN)
        return not unread.poll(0)

    def cut(self) -> None:
        """Shut the socket down, so that a thread that reads from it gets an error."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self._descriptor)) as sock:
                sock.shutdown(socket.SHUT_RDWR)

    def _forget(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __del__(self) -> None:
        self._forget()


def _discard(connection: Connection) -> None:
    """Close a pooled connection. Listeners to the pool's events may raise anything."""
    for end in (connection.invalidate, connection.close):
        with contextlib.suppress(Exception):
            end()


class Watchdog:
    """Ends requests whose answer is late: psycopg has no time limit for reading, nor do the drivers of all callers. Its
    thread runs only while requests are under way.

    :param name: the name of the watched board in the log.
    :param deadline: the number of seconds after which a request is ended.
    """

    def __init__(self, name: str, deadline: float) -> None:
        self._name = name
        self._deadline = deadline
        self._lock = runtime.Lock()
        self._busy: set[Link] = set()
        self._hurried = runtime.Event()
        self._closing_since: float | None = None
        self.awake = False
        """True if the thread runs."""
        self.cuts = 0
        """The number of requests that were ended."""

    @property
    def closing(self) -> bool:
        """True once the board is being closed."""
        return self._closing_since is not None

    @property
    def spent(self) -> bool:
        """True once closing has taken too long for one more connection to a silent server."""
        since = self._closing_since
        return since is not None and bool(self.cuts) and runtime.monotonic() - since > 1.5 * _CLOSING

    def hurry(self, seconds: float) -> None:
        """Shorten the deadline of all requests to ``seconds``, as the board is being closed."""
        self._closing_since = runtime.monotonic()
        self._deadline = min(self._deadline, seconds)
        self._hurried.set()

    def watch(self, link: Link) -> None:
        """Watch the requests of a link."""
        if not link.watched:
            return
        link.since = runtime.monotonic()
        with self._lock:
            self._busy.add(link)
            if not self.awake:
                self.awake = self._start_thread()

    def release(self, link: Link) -> None:
        """Watch a link no longer."""
        if link in self._busy:
            link.since = None
            with self._lock:
                self._busy.discard(link)

    @contextlib.contextmanager
    def watching(self, link: Link) -> Iterator[None]:
        """Watch the requests of a link within the block."""
        self.watch(link)
        try:
            yield
        finally:
            self.release(link)

    def _start_thread(self) -> bool:
        try:
            started(f"{self._name}-connections", self._run)
        except RuntimeError as error:
            # No thread starts at the end of the interpreter.
            if not self.closing:
                LOG.warning("%s: nobody watches this request's connection: %s", self._name, error)
            return False
        return True

    def _run(self) -> None:
        used = runtime.monotonic()
        while True:
            if self._hurried.wait(min(self._deadline / 4, 1.0)):
                runtime.sleep(0.1)
            now = runtime.monotonic()
            with self._lock:
                if self._busy:
                    used = now
                elif now - used > _IDLE or self.closing:
                    self.awake = False
                    return
                # Under the lock, as the owner of a link takes it before it closes the link.
                late = [link for link in self._busy if link.is_late(now - self._deadline)]
                for link in late:
                    link.since = None
                    link.cut()
            for _ in late:
                self.cuts += 1
                LOG.warning("%s: the server was silent for %.1f s; its connection is ended", self._name, self._deadline)


class Links:
    """The connections of one board or task loop to its database.

    :param make: makes the engine; a forked child calls it again, as it needs another.
    :param own: True: the engine is the library's own and has no pool. Links pools its connections, as SQLAlchemy's pool
        costs a call a third of its CPU time. False: the engine is the caller's. Each call takes a connection from its
        pool and gives it back.
    :param patience: the number of seconds for which a transaction that lost against another is repeated.
    :param deadline: the number of seconds after which a server that does not answer counts as silent.
    :param name: the name of the board or task loop in errors.
    :param remedy: the command or call that creates a missing table.
    :param options: passed to :meth:`Database.prepare`, for connections of our own.
    """

    def __init__(
        self,
        make: Callable[[], Engine],
        own: bool,
        patience: float,
        deadline: float,
        name: str,
        remedy: str,
        **options: Any,
    ) -> None:
        self._make = make
        self._patience = patience
        self._deadline = deadline
        self._name = name
        self._remedy = remedy
        self._options = options
        self.own = own
        self.product: Database | None = None
        self._reset()

    def _reset(self) -> None:
        self._engine: Engine | None = None
        self._unpooled: Links | None = None
        self._local = runtime.Local()
        self._lock = runtime.Lock()
        self.idle: list[Link] = []
        """The idle connections, in the order in which they were given back."""
        self._closed = False
        self.watch = Watchdog(self._name, self._deadline)

    @property
    def engine(self) -> Engine:
        if self._engine is None:
            with self._lock:
                return self._make_engine()
        return self._engine

    def _make_engine(self) -> Engine:
        self._engine = self._engine or self._make()
        return self._engine

    @property
    def unpooled(self) -> Links:
        """Links outside the caller's pool, for heartbeats: the pool may be exhausted."""
        if self.own:
            return self
        if self._unpooled is None:
            with self._lock:
                self._unpooled = self._unpooled or self._make_unpooled()
        return self._unpooled

    def _make_unpooled(self) -> Links:
        engine = self._make_engine()
        theirs = engine.pool
        # Without the limit of the caller's pool, and with its listeners.
        pool = sa.NullPool(
            theirs._creator,
            reset_on_return=theirs._reset_on_return,
            dialect=theirs._dialect,
            _dispatch=theirs.dispatch,
        )
        return Links(
            lambda: Engine(pool, engine.dialect, engine.url),
            True,
            self._patience,
            self._deadline,
            self._name,
            self._remedy,
            **self._options,
        )

    @contextlib.contextmanager
    def outside_pool(self) -> Iterator[None]:
        """Run this thread's calls within the block outside the caller's pool, as a heartbeat does."""
        self._local.outside_pool = not self.own
        try:
            yield
        finally:
            self._local.outside_pool = False

    def known_product(self) -> Database:
        """Return the database. A connection must have been made before."""
        assert self.product is not None
        return self.product

    # Work

    def run(self, work: Callable[[Link], T], patient: bool = False) -> T:
        """Do work on a connection, and repeat it with a backoff while it loses against other transactions. Within the
        work of this thread, more work runs on the same connection.

        :param patient: wait for answers without a deadline.
        :raises ConnectionFailure: the connection is broken, or the database stayed busy.
        :raises ConstraintViolated: a constraint refused it. After any error the transaction is rolled back.
        """
        until = runtime.monotonic() + self._patience
        try:
            try:
                return self._run_once(work, patient)
            except Contended:
                # SQLite waits for its turn by itself, for a while.
                left = until - runtime.monotonic()
                if left <= 0:
                    raise
            return retrying_contended(Contended, left)(lambda: self._run_once(work, patient))
        except Contended as error:
            text = f"the database stayed busy for {self._patience:g} s: {error}"
            raise ConnectionFailure(text, error.cause) from error

    def finish(self, work: Callable[[Link], T], patient: bool = False) -> T:
        """Run work as :meth:`run` does, where nothing else can be tried.

        :raises JobFailure: also if a constraint that a user has added to the tables refused the work."""
        try:
            return self.run(work, patient)
        except ConstraintViolated as error:
            raise refusal_error(error) from error.cause

    def library_error(self, error: Exception, raw: Raw | None, in_doubt: bool) -> Exception:
        """Return this library's error for an error of the driver's."""
        return library_error(error, self.known_product(), self.engine.url, self._remedy, raw, in_doubt)

    def _run_once(self, work: Callable[[Link], T], patient: bool) -> T:
        with self.held(patient) as link:
            return work(link)

    @contextlib.contextmanager
    def held(self, patient: bool = False) -> Iterator[Link]:
        """Give this thread a connection for a block, which is not repeated. Within the block, more work of this thread
        runs on the same connection. An error in the block is raised as by :meth:`run`, or as :class:`Contended`, and
        what was begun is rolled back."""
        link: Link | None = getattr(self._local, "link", None)
        if link is not None:
            yield link
            return
        if getattr(self._local, "outside_pool", False):
            with self.unpooled.held(patient) as link:
                yield link
            return
        link = self._take()
        if not patient:
            self.watch.watch(link)
        self._local.link = link
        try:
            yield link
        except Exception as error:
            raised = error if isinstance(error, JobBoardError) else self.library_error(error, link.raw, link.in_doubt)
            self._clear_failed(link, raised)
            if raised is error:
                raise
            raise raised from getattr(raised, "cause", None)
        except BaseException:
            # A request may have been interrupted before its reply came. The next request could read that reply.
            link.discard()
            self.watch.release(link)
            raise
        else:
            self._leave(link)
        finally:
            self._local.link = None

    def _clear_failed(self, link: Link, raised: Exception) -> None:
        if not isinstance(raised, ConnectionFailure):
            try:
                link.rollback()
            except Exception:  # noqa: BLE001 - what can't be rolled back is broken
                pass
            else:
                self._leave(link)
                return
        # Idle connections are most likely broken, too, and each would cost a call one of its tries.
        link.discard_broken()
        self.watch.release(link)
        self._discard_idle()

    # Connections

    def _take(self) -> Link:
        """Take the newest idle connection, or make one."""
        try:
            link = self.idle.pop()
        except IndexError:
            return self._connect()
        link.in_doubt = False
        return link

    def _leave(self, link: Link) -> None:
        if self.own:
            # Another thread may take it at once.
            self.watch.release(link)
            self.idle.append(link)
            if self._closed:
                self._discard_idle()
        else:
            link.close()
            self.watch.release(link)

    def _discard_idle(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self.idle.pop().discard()

    def _connect(self) -> Link:
        """Make a connection of our own, or take one from a caller's pool, and set it up."""
        if self._closed or self.watch.spent:
            raise ConnectionFailure(f"{self._name} is closed")
        close_inherited()
        try:
            connection = self.engine.connect()
        except (sa.exc.SQLAlchemyError, OSError, *UNSENDABLE) as error:
            raise self._unreachable(error) from None
        try:
            is_first = self.product is None
            if self.product is None:
                self.product = database(connection.dialect)
            link = Link(connection, self.product)
            with self.watch.watching(link):
                self.product.commit_begun(link.raw)
                connection.execution_options(isolation_level=self.product.isolation)
                if self.own:
                    self.product.prepare(link.raw, **self._options)
                    link.end_read()
                elif is_first:
                    self.product.prepare_file(link.raw)
            return link
        except BaseException as error:
            _discard(connection)
            if not isinstance(error, Exception):
                raise
            if isinstance(busy := self.library_error(error, None, False), Contended):
                # For instance, several processes switch a new SQLite file to its write-ahead log at once.
                raise busy from error
            raise self._unreachable(error) from None

    def _unreachable(self, error: Exception) -> ConnectionFailure:
        product = self.product or database(self.engine.dialect)
        return unreachable(getattr(error, "orig", None) or error, self.engine.url, product)

    def listener(self) -> Link:
        """Connect outside the caller's pool, for a listener that sleeps on the connection and then discards it."""
        return (self if self.own else self._make_unpooled())._connect()

    # The end

    def close(self) -> None:
        """Close the connections; one that is at work is closed by its thread, as soon as that has its reply."""
        self.watch.hurry(_CLOSING)
        self._closed = True
        self._discard_idle()
        if self._unpooled is not None:
            self._unpooled.close()

    def hurry(self, seconds: float) -> None:
        """Shorten the deadline of all requests to ``seconds``, as the board is being closed."""
        self.watch.hurry(seconds)
        if self._unpooled is not None:
            self._unpooled.hurry(seconds)

    def leak(self) -> None:
        """Leave the connections to the parent, and make new ones when needed. For a forked child."""
        for link in (*self.idle, *(self._unpooled.idle if self._unpooled is not None else ())):
            link.leak()
        forks.keep(self._engine, self._unpooled)
        self._reset()
