"""How a board learns that there may be something to do, without asking for it: as cheaply as its database allows."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from jobboard import logs
from jobboard.sql.dialects import Database, PostgreSQLDatabase, SQLiteDatabase
from jobboard.sql.links import Link, Links
from jobboard.threads import started

LOG = logs.Log(__name__)

_TICK = 0.015
_DEAF = 0.5
"""How long to sleep at most, in seconds, while the server's calls can't be heard."""


class Napper(Protocol):
    """A session: what sleeps until something of this process's own has happened."""

    def nap(self, seconds: float) -> bool: ...
    def wake(self) -> None: ...
    def alarm(self) -> None: ...


def told_of_schedules(board: str) -> str:
    """What is called when a schedule of a board has changed; a job's call is the board's name alone. Where a board has
    this as its name, its waiters wake in vain."""
    return f"schedules of {board}"


class SQLWaiter:
    """Sleeps until this process has something new itself: for databases that can't tell of others."""

    hears = False
    """Whether it notices what others do without looking into the tables."""

    def __init__(self, session: Callable[[], Napper | None]) -> None:
        self._session = session

    def mark(self) -> object:
        """To be taken before looking for work."""
        return None

    def wait(self, mark: object, limit: float) -> None:
        self._nap(limit)

    def hear_schedules(self) -> bool:
        """Whether there will be an alarm from now on when a schedule changes."""
        return False

    def close(self) -> None:
        """Let go of whatever was opened for waiting."""

    def forked(self) -> None:
        """In a forked child: let go without closing."""

    def _nap(self, limit: float) -> bool:
        session = self._session()
        return session is None or session.nap(limit)


class FileWaiter(SQLWaiter):
    """SQLite counts the commits of all other connections; asking for the count touches no table."""

    hears = True

    def __init__(self, session: Callable[[], Napper | None], links: Links) -> None:
        super().__init__(session)
        self._links = links

    def mark(self) -> object:
        return self._links.run(_commits)

    def wait(self, mark: object, limit: float) -> None:
        end = time.monotonic() + limit
        while (left := end - time.monotonic()) > 0:
            if self._nap(min(left, _TICK)) or self._links.run(_commits) != mark:
                return


def _commits(link: Link) -> tuple[Link, int]:
    assert isinstance(link.product, SQLiteDatabase)
    # The count is one connection's own, so it goes with that connection.
    return link, link.product.commits(link.cursor)


class ListeningWaiter(SQLWaiter):
    """PostgreSQL calls on a connection that somebody listens on; the first who waits opens it."""

    hears = True

    def __init__(
        self, session: Callable[[], Napper | None], links: Links, channel: str, board: str, every: float
    ) -> None:
        super().__init__(session)
        self._links = links
        self._every = every
        self._channel = channel
        self._board = board
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._ear: _Ear | None = None

    def mark(self) -> object:
        ear = self._ear
        return ear if ear is not None and ear.listens else None

    def wait(self, mark: object, limit: float) -> None:
        if mark is None and self._listen():
            # What came before we listened must be looked for once more.
            return
        if self._ear is None or not self._ear.listens:
            limit = min(limit, _DEAF)
        self._nap(limit * random.uniform(0.5, 1.0) if limit > 1 else limit)

    def hear_schedules(self) -> bool:
        return self.mark() is not None or self._listen()

    def close(self) -> None:
        with self._lock:
            ear, self._ear = self._ear, None
        if ear is not None:
            ear.stop()

    def forked(self) -> None:
        if self._ear is not None:
            self._ear.forked()
        self._reset()

    def _listen(self) -> bool:
        with self._lock:
            if self._ear is None or not self._ear.listens:
                try:
                    self._ear = _Ear(self._links, self._channel, self._hear, self._every)
                except Exception as error:  # noqa: BLE001 - whatever it is, polling still works
                    LOG.warning("can't listen, polling instead: %s", self._links.sorted_out(error, None, False))
                    return False
            return True

    def _hear(self, payload: str | None) -> None:
        session = self._session()
        if session is not None and payload in (None, self._board):
            session.wake()
        if session is not None and payload in (None, told_of_schedules(self._board)):
            session.alarm()


class _Ear:
    """A connection that listens, with the thread that sits on it.

    :param hear: told the payload of each call; None when it can't listen any more, or may have missed one.
    :param every: after how many seconds without a call to see whether the server is still there.
    """

    def __init__(self, links: Links, channel: str, hear: Callable[[str | None], None], every: float) -> None:
        self._hear = hear
        product = links.known_product()
        assert isinstance(product, PostgreSQLDatabase)
        self._product = product
        self._links = links
        self._every = every
        self._connection, self._line = links.listener()
        try:
            self._raw: Any = self._connection.connection.dbapi_connection
            self._product.listen(self._raw, channel)
            self._line.busy = False
        except BaseException:
            self._close()
            raise
        self._stopper, self._stopped = socket.socketpair()
        self.listens = True
        try:
            started(f"{channel}-listener", self._run)
        except BaseException:
            self._end()
            raise

    def stop(self) -> None:
        self.listens = False
        self._stopper.close()

    def forked(self) -> None:
        self.listens = False
        self._product.detach(self._raw, True)
        self._line.leak()

    def _run(self) -> None:
        try:
            while self.listens:
                payloads = self._product.calls(self._raw, self._stopped, self._every)
                if payloads is None:
                    self._ask()
                for payload in payloads or ():
                    self._hear(payload)
        except Exception as error:  # noqa: BLE001 - drivers raise anything when a connection breaks
            if self.listens:
                LOG.info("the connection that listens is lost: %s", type(error).__name__)
        finally:
            self._end()
            self._hear(None)

    def _ask(self) -> None:
        self._line.busy = True
        self._line.requests += 1
        self._links.watch.wake()
        self._product.ping(self._raw)
        self._line.busy = False
        # A call that came in with the answer is not told of.
        self._hear(None)

    def _end(self) -> None:
        self.listens = False
        self._close()
        self._stopper.close()
        self._stopped.close()

    def _close(self) -> None:
        self._links.dismiss(self._connection, self._line)


def waiter(
    session: Callable[[], Napper | None],
    links: Links,
    product: Database,
    notify: bool,
    channel: str,
    board: str,
    every: float,
) -> SQLWaiter:
    """The best waiter for a database.

    :param every: after how many seconds of silence to see whether a server that calls is still there.
    """
    if isinstance(product, SQLiteDatabase):
        return FileWaiter(session, links)
    if notify and isinstance(product, PostgreSQLDatabase) and product.can_listen:
        return ListeningWaiter(session, links, channel, board, every)
    return SQLWaiter(session)
