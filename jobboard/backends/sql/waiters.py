"""Waiters for work: by LISTEN on PostgreSQL, by a count of commits on SQLite, or by polling.

A polling waiter looks again at once when its own process has news, and otherwise after the engine's backoff.
"""

from __future__ import annotations

from collections.abc import Callable

from jobboard import logs, runtime
from jobboard.engine import Hears
from jobboard.sql.connections import Link, Links
from jobboard.sql.dialects import Database, SQLiteDatabase
from jobboard.threads import started

LOG = logs.Log(__name__)

_TICK = 0.015
"""Seconds between two reads of the count of commits by a waiter on SQLite."""

_DEAF = 0.5
"""The longest sleep of a waiter, in seconds, while PostgreSQL's notifications cannot be received."""


def schedules_payload(board: str) -> str:
    """Return the payload of a notification that a schedule has changed. A job's payload is the name of its board. Where
    a board has this payload as its name, its waiters wake in vain."""
    return f"schedules of {board}"


class SQLWaiter:
    """Waits for news of this process: the waiter for databases that cannot report what others do."""

    hears_others = False
    """True if the waiter notices acts of other processes without a look into the tables."""

    def __init__(self, hears: Hears) -> None:
        self._hears = hears

    def wait(self, limit: float) -> None:
        """Sleep until there may be work, for ``limit`` seconds at most. May return early for nothing."""
        self._hears.nap(limit)

    def watch_schedules(self) -> bool:
        """Return whether changes of schedules are reported to ``hears`` from now on."""
        return False

    def close(self) -> None:
        """Close what was opened for waiting."""

    def forked(self) -> None:
        """Leave open connections to the parent, in a forked child."""


class FileWaiter(SQLWaiter):
    """Waits until the count of commits in an SQLite file changes. To ask for the count touches no table."""

    hears_others = True

    def __init__(self, hears: Hears, links: Links, product: SQLiteDatabase) -> None:
        super().__init__(hears)
        self._links = links
        self._product = product
        self._reset()

    def _reset(self) -> None:
        self._lock = runtime.Lock()
        # A connection of its own, as each has its own count.
        self._link: Link | None = None
        # The newest count that each thread has seen: its last look came after that commit.
        self._seen = runtime.Local()

    def wait(self, limit: float) -> None:
        end = runtime.monotonic() + limit
        while (count := self._commits()) == getattr(self._seen, "count", None):
            left = end - runtime.monotonic()
            if left <= 0 or self._hears.nap(min(left, _TICK)):
                return
        self._seen.count = count

    def _commits(self) -> object:
        with self._lock:
            try:
                if self._link is None:
                    self._link = self._links.listener()
                return self._product.commits(self._link.cursor)
            except Exception:  # noqa: BLE001 - whatever it is, the look that follows meets it, too
                self._close()
                return object()

    def close(self) -> None:
        with self._lock:
            self._close()

    def forked(self) -> None:
        if self._link is not None:
            self._link.leak()
        self._reset()

    def _close(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.discard()


class ListeningWaiter(SQLWaiter):
    """Waits for PostgreSQL's notifications, on a connection that the first waiter opens.

    :param channel: the channel that commits notify.
    :param every: after how many seconds of silence to ask whether the server is still there.
    """

    hears_others = True

    def __init__(self, hears: Hears, links: Links, channel: str, board: str, every: float) -> None:
        super().__init__(hears)
        self._links = links
        self._every = every
        self._channel = channel
        self._board = board
        self._reset()

    def _reset(self) -> None:
        self._lock = runtime.Lock()
        self._listener: _ListeningThread | None = None
        # The newest listener that each thread has used: its last look came after that listener's begin.
        self._seen = runtime.Local()

    def wait(self, limit: float) -> None:
        listener = self._listening()
        if listener is None:
            self._hears.nap(min(limit, _DEAF))
        elif listener is not getattr(self._seen, "listener", None):
            # One more look finds the news from before the listener began.
            self._seen.listener = listener
        else:
            # The jitter keeps many waiters from looking at the same moment.
            self._hears.nap(limit * runtime.random.uniform(0.5, 1.0) if limit > 1 else limit)

    def watch_schedules(self) -> bool:
        return self._listening() is not None

    def close(self) -> None:
        with self._lock:
            listener, self._listener = self._listener, None
        if listener is not None:
            listener.stop()

    def forked(self) -> None:
        if self._listener is not None:
            self._listener.forked()
        self._reset()

    def _listening(self) -> _ListeningThread | None:
        """Return the listener, begun if necessary; None if no connection can listen now."""
        with self._lock:
            if self._listener is None or not self._listener.listens:
                try:
                    self._listener = _ListeningThread(self._links, self._channel, self._heard, self._every)
                except Exception as error:  # noqa: BLE001 - whatever it is, polling still works
                    LOG.warning("can't listen, polling instead: %s", self._links.library_error(error, None, False))
                    return None
            return self._listener

    def _heard(self, payload: str | None) -> None:
        if payload in (None, self._board):
            self._hears.news()
        if payload in (None, schedules_payload(self._board)):
            self._hears.rescheduled()


class _ListeningThread:
    """A connection that listens, with a thread of its own.

    :param heard: told the payload of each notification; None when one may have been missed.
    """

    def __init__(self, links: Links, channel: str, heard: Callable[[str | None], None], every: float) -> None:
        self._heard = heard
        self._links = links
        self._every = every
        self._link = link = links.listener()
        self.listens = True
        try:
            with links.watch.watching(link):
                link.cursor.execute("LISTEN " + link.dialect.identifier_preparer.quote_identifier(channel))
            started(f"{channel}-listener", self._run)
        except BaseException:
            link.discard()
            raise

    def stop(self) -> None:
        self.listens = False
        self._link.cut()

    def forked(self) -> None:
        self.listens = False
        self._link.leak()

    def _run(self) -> None:
        try:
            while self.listens:
                is_silent = True
                for call in self._link.raw.notifies(timeout=self._every):
                    is_silent = False
                    self._heard(call.payload)
                if is_silent:
                    self._check_server()
        except Exception as error:  # noqa: BLE001 - drivers raise anything when a connection breaks
            if self.listens:
                LOG.info("the connection that listens is lost: %s", type(error).__name__)
        finally:
            self.listens = False
            self._link.discard()
            self._heard(None)

    def _check_server(self) -> None:
        """Check that the server is there."""
        with self._links.watch.watching(self._link):
            self._link.cursor.execute("SELECT 1")
        # The driver may drop a notification that came in with the answer.
        self._heard(None)


def waiter_of(
    hears: Hears, links: Links, product: Database, listens: bool, channel: str, board: str, every: float
) -> SQLWaiter:
    """Return the best waiter for a database.

    :param listens: whether connections may listen.
    """
    if isinstance(product, SQLiteDatabase):
        return FileWaiter(hears, links, product)
    if listens and product.dialect.driver == "psycopg":
        return ListeningWaiter(hears, links, channel, board, every)
    return SQLWaiter(hears)
