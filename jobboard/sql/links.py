"""One kept connection per thread: no checkout, no ping and no setting on the way to each statement."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine

from jobboard import forks
from jobboard.exceptions import ConnectionFailure, JobBoardError, JobFailure
from jobboard.retry import retrying
from jobboard.sql.dialects import Database, Raw, Trouble, database
from jobboard.sql.named import Lost, NamedStatements
from jobboard.sql.parting import SQLITE
from jobboard.sql.prepared import Compound, Prepared, Row, Runner, cursor_on
from jobboard.sql.refusals import refusal
from jobboard.sql.silence import Line, Watch

T = TypeVar("T")

UNSENDABLE = (OverflowError, UnicodeError)
"""What drivers raise, instead of errors of their own, for a value that they can't put into a request."""


class _OfTheDatabase(Exception):
    """:param cause: the driver's own error, unless it shows the password."""

    def __init__(self, text: str, cause: BaseException | None = None) -> None:
        super().__init__(text)
        self.cause = cause


class Contended(_OfTheDatabase):
    """A transaction lost against another and was rolled back; the whole of it may be repeated."""


class ConstraintViolated(_OfTheDatabase):
    """A constraint refused a statement, and the transaction was rolled back."""


def refused(error: ConstraintViolated) -> JobFailure:
    """Return the public error for the refusal of a constraint, where nothing else can be tried."""
    return JobFailure(f"the database refused it: {error}", error.cause)


def repeated(
    on: type[Exception] | Callable[[BaseException], bool], seconds: float, sleep: Callable[[float], None] = time.sleep
) -> Callable[[Callable[[], T]], T]:
    """:func:`~jobboard.retry.retrying`, for a transaction that lost against another: that one is over in a moment."""
    return retrying(on, seconds, base=0.005, cap=0.25, sleep=sleep)


def sorted_out(
    error: Exception, product: Database, url: URL, remedy: str, raw: Raw | None = None, in_doubt: bool = False
) -> Exception:
    """What an error of the driver's is for us: of this library's own, :class:`Contended` or
    :class:`ConstraintViolated`; one that is not about the database stays as it is.

    :param remedy: what brings a table that is missing.
    """
    cause = getattr(error, "orig", None) or error
    kept = None if _tells(url, cause) else cause
    name = type(cause).__name__
    trouble = product.trouble(error, raw)
    if trouble is Trouble.DISCONNECTED:
        text = f"the connection to {url.get_backend_name()} broke ({name})"
        return ConnectionFailure(text, kept, "unknown" if in_doubt else "none")
    text = name if kept is None else f"{name}: {cause}"
    if trouble is Trouble.REPLACED:
        return ConnectionFailure(f"{url.get_backend_name()} at {_where(url)} takes no writes ({text})", kept)
    if trouble is Trouble.FULL:
        text = f"{url.get_backend_name()} at {_where(url)} can't store that now: {text}"
        return ConnectionFailure(text, kept, "unknown" if in_doubt else "none")
    if trouble is Trouble.CONTENDED:
        return Contended(text, kept)
    if trouble is Trouble.REFUSED:
        return ConstraintViolated(text, kept)
    if trouble is Trouble.MISSING:
        return JobFailure(f"a table is missing; {remedy} creates it ({text})", kept)
    if isinstance(error, (sa.exc.SQLAlchemyError, product.dialect.loaded_dbapi.Error, *UNSENDABLE)):
        return JobFailure(f"the database refused it: {text}{product.remedy(cause)}", kept)
    return error


def _where(url: URL) -> str:
    place = f"{url.host or ''}:{url.port}" if url.port else url.host or url.database
    return place or "the place that is the driver's default"


def _tells(url: URL, error: BaseException) -> bool:
    """Whether an error shows the password, in its text or in what it holds."""
    return isinstance(error, UnicodeError) or (bool(url.password) and str(url.password) in f"{error} {error!r}")


_ANYWHERE = contextlib.nullcontext()


def _inside(engine: Engine | None) -> contextlib.AbstractContextManager[None]:
    """What a thread is in while it works with an engine."""
    return SQLITE if engine is not None and engine.dialect.name == "sqlite" else _ANYWHERE


class Link(Runner):
    """A kept connection. Belongs to one thread."""

    def __init__(
        self, connection: Connection, product: Database, line: Line, silences: int = 0, named: bool = False
    ) -> None:
        self.connection = connection
        self.line = line
        self.silences = silences
        """How many connections had fallen silent when this one was made."""
        raw: Any = connection.connection.dbapi_connection
        self.raw: Raw = raw
        self.product = product
        self.cursor, self.dialect = cursor_on(raw, connection.dialect)
        self.in_doubt = False
        """Whether what was sent last may have been carried out though no reply came."""
        self._named = NamedStatements(product, raw) if named else None
        # What SQLAlchemy sends by itself, as it makes tables.
        sa.event.listen(connection, "before_cursor_execute", self._sends)

    def _sends(self, *args: Any) -> None:
        self.line.requests += 1

    def rows(self, statement: Prepared, params: Mapping[str, Any]) -> list[Row]:
        text, values = statement.compiled(self.dialect, params)
        self.line.requests += 1
        self.cursor.execute(text, values)
        return self.cursor.fetchall()  # type: ignore[no-any-return]

    def count(self, statement: Prepared, params: Mapping[str, Any]) -> int:
        text, values = statement.compiled(self.dialect, params)
        self.line.requests += 1
        self.cursor.execute(text, values)
        return self.cursor.rowcount  # type: ignore[no-any-return]

    def many(self, statement: Prepared, params: list[dict[str, Any]]) -> None:
        text = ""
        values = []
        for each in params:
            text, value = statement.compiled(self.dialect, each)
            values.append(value)
        self.line.requests += 1
        self.cursor.executemany(text, values)

    def single(self, statement: Prepared, params: Mapping[str, Any]) -> list[Row]:
        """A statement that is a transaction of its own; it may write."""
        self.in_doubt = True
        rows = self.rows(statement, params)
        self.in_doubt = False
        return rows

    def often(self, statement: Prepared, params: Mapping[str, Any]) -> list[Row]:
        """As :meth:`rows`, of what comes again and again: the server may keep it."""
        if self._named is None or not statement.single(params):
            return self.rows(statement, params)
        text, values = statement.compiled(self.dialect, params, whole=True)
        self.line.requests += 1
        self._named.execute(self.cursor, text, values)
        return self.cursor.fetchall()  # type: ignore[no-any-return]

    def compound(self, statement: Compound, params: Mapping[str, Any]) -> list[Row]:
        """Statements that are a transaction as they stand, commit and all; what the first of them answers that does."""
        self.in_doubt = True
        rows = self.often(statement, params)
        # An error of a later one comes behind the rows of an earlier one.
        while self.cursor.nextset():
            pass
        self.in_doubt = False
        return rows

    def begin(self) -> None:
        self.line.requests += 1
        if self.connection.dispatch.begin and not self.connection.in_transaction():
            # Who listens to that may begin by hand, as SQLite's users are told to: not within ours, in which SQLAlchemy
            # may be asked for something.
            self.connection.begin()
            self.product.rollback(self.raw, self.cursor)
        self.product.begin(self.cursor)

    def commit(self) -> None:
        self.in_doubt = True
        self.line.requests += 1
        self.product.commit(self.raw, self.cursor)
        self.in_doubt = False

    def rollback(self) -> None:
        self.line.requests += 1
        self.product.rollback(self.raw, self.cursor)

    def end_read(self) -> None:
        """After reading outside of a transaction."""
        self.line.requests += 1
        self.product.end_read(self.raw)

    def close(self) -> None:
        try:
            self.cursor.close()
            self.rollback()
            self.connection.close()
        except Exception:  # noqa: BLE001 - what is broken already can't be closed in order
            self.discard()
        finally:
            self.line.busy = False

    def discard(self) -> None:
        if self.product.exclusive:
            # Its locks are this process's, which stay for as long as anything knows one of its statements.
            with contextlib.suppress(Exception):
                self.product.rollback(self.raw, self.cursor)
        with contextlib.suppress(Exception):
            self.connection.invalidate()
        with contextlib.suppress(Exception):
            self.connection.close()


class Links:
    """The kept connections of one board, one for each thread that uses it.

    :param make: gives the engine; again in a forked child, which needs another.
    :param own: whether the engine is ours to dispose of.
    :param patience: for how many seconds to repeat what lost against another transaction.
    :param name: what the errors call that which works here.
    :param remedy: what brings a table that is missing.
    :param lease: for how many seconds what is kept alive over these connections stands: one that has fallen silent is
        found out in time.
    :param options: passed to :meth:`Database.prepare`.
    """

    def __init__(
        self,
        make: Callable[[], Engine],
        own: bool,
        patience: float,
        name: str,
        remedy: str,
        lease: float = 30.0,
        **options: Any,
    ) -> None:
        self._make = make
        self._patience = patience
        self._lease = lease
        self._name = name
        self._remedy = remedy
        self.product: Database | None = None
        self.own = own
        self._options = options
        # Not in sessions that are lent to others as well.
        self._named = own and not options.get("pooled")
        self._reset()

    def _reset(self) -> None:
        self._engine: Engine | None = None
        self._local = threading.local()
        self._open: dict[Link, threading.Thread] = {}
        self._lock = threading.Lock()
        self._closed = False
        # Not from the caller's pool, which may have no more to give, or give one that is silent as well.
        self.watch = Watch(lambda: self.engine.pool.recreate().connect(), self._name, self._patience, self._lease)

    @property
    def engine(self) -> Engine:
        if self._engine is None:
            self._engine = self._make()
            if self.own and _inside(self._engine) is SQLITE:
                SQLITE.users.add(self)
        return self._engine

    def known_product(self) -> Database:
        """The database, which must have been met."""
        assert self.product is not None
        return self.product

    def run(self, work: Callable[[Link], T], patience: float | None = None) -> T:
        """Do some work on this thread's connection; again, with a backoff, while it loses against other transactions.

        :param patience: for how many seconds to repeat it; None: as long as this board repeats anything.
        :raises ConnectionFailure: the connection is broken, and forgotten; or the database stayed busy.
        :raises ConstraintViolated: a constraint refused it. Whatever is raised, the transaction was rolled back.
        """
        begun = time.monotonic()
        seconds = self._patience if patience is None else patience
        try:
            try:
                return self._once(work)
            except Contended:
                # SQLite waits for its turn by itself, for a while.
                left = begun + seconds - time.monotonic()
                if left <= 0:
                    raise
            again = repeated(Contended, left)
            return again(lambda: self._once(work))
        except Contended as error:
            raise ConnectionFailure(f"the database stayed busy for {seconds:g} s: {error}", error.cause) from error

    def finish(self, work: Callable[[Link], T], patience: float | None = None) -> T:
        """Run the work of a verb that has no other way left, as :meth:`run` does.

        :raises JobFailure: also where a constraint refused it, one that somebody has added to the tables."""
        try:
            return self.run(work, patience)
        except ConstraintViolated as error:
            raise refused(error) from error.cause

    def sorted_out(self, error: Exception, raw: Raw | None, in_doubt: bool) -> Exception:
        """What an error of the driver's is for us."""
        return sorted_out(error, self.known_product(), self.engine.url, self._remedy, raw, in_doubt)

    def _once(self, work: Callable[[Link], T]) -> T:
        with _inside(self.engine):
            return self._done(work)

    def _done(self, work: Callable[[Link], T]) -> T:
        link: Link | None = getattr(self._local, "link", None)
        if link is None or link.silences != self.watch.silences:
            link = self._connect(link)
        link.in_doubt = False
        link.line.busy = True
        if not self.watch.awake:
            self.watch.wake()
        try:
            if self._closed:
                raise ConnectionFailure(f"{self._name} is closed")
            return work(link)
        except Lost as error:
            # Its session is another, or was reset: with it went locks, settings and all.
            self._named = False
            self.drop(link)
            raise Contended("the server has forgotten a prepared statement", error.__cause__) from None
        except Exception as error:
            in_doubt = link.in_doubt
            raised = error if isinstance(error, JobBoardError) else self.sorted_out(error, link.raw, in_doubt)
            if isinstance(raised, ConnectionFailure):
                self.drop(link)
            else:
                self._undo(link)
            if raised is error:
                raise
            raise raised from getattr(raised, "cause", None)
        except BaseException:
            # Interrupted between a request and its reply: nobody knows what the next one would read.
            self.drop(link)
            raise
        finally:
            link.line.busy = False
            if self._closed:
                self._end(link)

    def listener(self) -> tuple[Connection, Line]:
        """A connection of its own for somebody who sleeps on it, and who gives it back with :meth:`dismiss`."""
        connection = self.engine.connect()
        line = self._line(connection, listens=True)
        try:
            return self._prepared(connection, line, "AUTOCOMMIT"), line
        except BaseException:
            self.dismiss(connection, line)
            raise

    def dismiss(self, connection: Connection, line: Line) -> None:
        self.watch.remove(line)
        with contextlib.suppress(Exception):
            connection.invalidate()
        with contextlib.suppress(Exception):
            connection.close()

    def _end(self, link: Link) -> None:
        # In this order: the watching ends when it sees no request under way.
        link.line.busy = True
        if link.silences == self.watch.silences and self.watch.wake():
            link.close()
        else:
            # To close it in order takes an answer, which nobody could wait for without an end.
            link.discard()
        self.watch.remove(link.line)

    def drop(self, link: Link) -> None:
        """Forget a connection that is broken. What broke it has not spared those that nobody uses: of them, too, each
        would cost the one who came to use it a try."""
        with self._lock:
            broken = [link, *self._left()]
            for each in broken:
                self._open.pop(each, None)
        if getattr(self._local, "link", None) is link:
            self._local.link = None
        for each in broken:
            each.discard()
            self.watch.remove(each.line)

    def close(self) -> None:
        self.watch.hurry()
        self._closed = True
        with _inside(self._engine):
            self.rest()
        if self.own and self._engine is not None:
            self._engine.dispose()

    def rest(self) -> None:
        """Close what is open. Who works here then connects anew."""
        with self._lock:
            links, self._open = list(self._open), {}
        for link in links:
            # One that another thread is talking through is closed by that thread, as soon as it has its reply.
            if not link.line.busy:
                self._end(link)
        self._local = threading.local()

    def leak(self) -> None:
        """In a forked child: let go of everything, and close nothing."""
        for link in self._open:
            link.product.detach(link.raw, not link.line.busy)
            link.line.leak()
        forks.keep(self._local, self._open, self._engine)
        self._reset()

    def _left(self) -> list[Link]:
        """The connections of threads that have ended; asked under the lock."""
        return [link for link, thread in self._open.items() if not thread.is_alive()]

    def _connect(self, silent: Link | None = None) -> Link:
        """:param silent: what this thread had until now, where that may have fallen silent."""
        if silent is not None:
            self.drop(silent)
        if self._closed or self.watch.spent:
            raise ConnectionFailure(f"{self._name} is closed")
        with self._lock:
            left = [link for link in self._left() if link.silences == self.watch.silences]
            if left and self.own:
                # To make one, and to have the server plan anew what that one knows, takes longer than many a thread
                # lives. A caller's engine is asked: it may have a pool, and its connections be bound to their threads.
                self._open[left[0]] = threading.current_thread()
                self._local.link = left[0]
                return left[0]
            for each in left:
                del self._open[each]
        for each in left:
            self._end(each)
        link = self._local.link = self._made()
        with self._lock:
            self._open[link] = threading.current_thread()
        return link

    def _made(self) -> Link:
        try:
            connection = self.engine.connect()
        except sa.exc.DBAPIError as error:
            raise self._unreachable(error.orig or error) from None
        except (sa.exc.SQLAlchemyError, OSError, *UNSENDABLE) as error:
            raise self._unreachable(error) from None
        silences = self.watch.silences
        line: Line | None = None
        try:
            if self.product is None:
                self.product = database(connection.dialect)
            line = self._line(connection)
            connection = self._prepared(connection, line, self.product.isolation)
            self.product.prepare(connection.connection.dbapi_connection, **self._options)
            named = self._named and self.product.compound
            link = Link(connection, self.product, line, silences, named)
            link.end_read()
            line.busy = False
        except BaseException as error:
            if line is not None:
                self.watch.remove(line)
            if isinstance(error, JobFailure):
                connection.close()
                raise
            connection.invalidate()
            connection.close()
            if not isinstance(error, Exception):
                raise
            raise self._unreachable(getattr(error, "orig", None) or error) from None
        return link

    def _line(self, connection: Connection, listens: bool = False) -> Line:
        assert self.product is not None
        raw = connection.connection.dbapi_connection
        line = Line(raw, self.product, asks=not self._options.get("pooled"), listens=listens)
        self.watch.add(line, self.product)
        return line

    def _prepared(self, connection: Connection, line: Line, isolation: str) -> Connection:
        """Have a new connection watched; it is busy from now on."""
        line.busy = True
        self.watch.wake()
        connection = connection.execution_options(isolation_level=isolation)
        line.identify(connection.connection.dbapi_connection)
        return connection

    def _undo(self, link: Link) -> None:
        try:
            link.rollback()
        except Exception:  # noqa: BLE001 - what can't be rolled back is broken
            self.drop(link)

    def _unreachable(self, error: BaseException) -> ConnectionFailure:
        url = self.engine.url
        refused = refusal(error, url)
        reason = type(error).__name__ if _tells(url, error) else refused or f"{type(error).__name__}: {error}"
        return ConnectionFailure(
            f"can't connect to {url.get_backend_name()} at {_where(url)}: {reason}",
            None if _tells(url, error) else error,
            refused=refused is not None,
        )
