"""Gives up connections that have fallen silent: no answer comes, no end, and the server works on nothing for them.

A time limit for reading can't tell this from a statement that waits for a lock, and a caller's connection has none. So
after a while the server is asked, over another connection, whether it still works on the statement. If it does, it may
take as long as it needs. If not, its session is ended, so that none of its locks stays, and the connection is shut,
which wakes whoever reads from it, whatever the driver.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from sqlalchemy.pool import PoolProxiedConnection

from jobboard.sql.dialects import Database, Raw
from jobboard.threads import started

LOG = logging.getLogger(__name__)

_SOON = (0.5, 2.0)
"""After how many seconds without an answer the server is asked: at least, at most."""
_PREPARING = 4.0
"""After how many a connection is given up that is just being set up, which waits for nobody."""
_ASKING = 1.5
"""For how many seconds the server may take to answer that."""
_HUNG = 60.0
"""After how many seconds an asker is left where it hangs, and another one sent."""
_CLOSING = 2.0
"""How many seconds a request may take once the board is being closed."""
_CLOSED = 3.5
"""After how many seconds of closing no connection is made any more, when one has been given up meanwhile."""
_IDLE = 5.0
"""After how many seconds without requests the watching ends, until there are some again."""


class _Sessions(NamedTuple):
    """What a product tells of its sessions: a number, by which one is known at a time; and a mark, as the number may
    come again after a restart."""

    own: str
    some: str
    """These, by their numbers, and whether the server works on something for them; to send is no such work."""
    end: str
    greeted: Callable[[Raw], int | None]
    """The number with which the server has greeted the driver, where that tells."""


_POSTGRESQL = _Sessions(
    own="SELECT pid, CAST(backend_start AS text) FROM pg_stat_activity WHERE pid = pg_backend_pid()",
    some="SELECT pid, CAST(backend_start AS text), left(coalesce(state, ''), 4) <> 'idle'"
    " AND coalesce(wait_event_type, '') <> 'Client' FROM pg_stat_activity WHERE pid IN ",
    end="SELECT pg_terminate_backend({})",
    greeted=lambda raw: getattr(getattr(raw, "info", None), "backend_pid", None),
)
_MYSQL = _Sessions(
    own="SELECT ID, HOST FROM information_schema.PROCESSLIST WHERE ID = CONNECTION_ID()",
    some="SELECT ID, HOST, COMMAND <> 'Sleep' AND coalesce(STATE, '') NOT IN ('Writing to net', 'Sending to client')"
    " FROM information_schema.PROCESSLIST WHERE ID IN ",
    end="KILL {}",
    greeted=lambda raw: raw.thread_id() if hasattr(raw, "thread_id") else None,
)
_SESSIONS = {"postgresql": _POSTGRESQL, "mysql": _MYSQL, "mariadb": _MYSQL}


class Line:
    """A connection, as far as it can be judged and ended by another thread than that which uses it.

    :param asks: whether the server can be asked about it: behind a pooler that shares connections it can't.
    """

    def __init__(self, raw: Raw, product: Database, asks: bool = True, listens: bool = False) -> None:
        self.busy = False
        self.requests = 0
        """How many requests it has sent."""
        self.listens = listens
        """Whether somebody sits on it who sends nothing by himself."""
        self.asks = asks
        self.session: tuple[int, str] | None = None
        # For the one who watches: the last request seen, and since when no answer has come to it.
        self.seen = -1
        self.since = 0.0
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        self._sessions = _SESSIONS.get(product.dialect.name)
        if self._sessions is not None:
            with contextlib.suppress(AttributeError, OSError):
                # Of its own, as the driver may close its one at any time, and its number then is another's.
                self._descriptor = os.dup(product.descriptor(raw))

    @property
    def watched(self) -> bool:
        """Whether it can be ended from outside at all."""
        return self._descriptor is not None

    def identify(self, raw: Raw) -> None:
        """Have the server tell which session this is."""
        if not (self.watched and self.asks and self._sessions is not None):
            return
        try:
            cursor = raw.cursor()
            cursor.execute(self._sessions.own)
            row = cursor.fetchone()
            cursor.close()
        except Exception:  # noqa: BLE001 - drivers raise anything, and some servers have no such view
            raw.rollback()
            row = None
        # A pooler in between has greeted the driver with a number of its own: the session is not ours alone.
        if row is not None and self._sessions.greeted(raw) in (None, row[0]):
            self.session = (int(row[0]), str(row[1]))
        else:
            self.asks = False

    def heard(self, seconds: float) -> bool:
        """Whether anything has come in within these seconds, as far as the system can tell, or has not been read yet:
        a long answer takes its time, and so may this process."""
        try:
            with self._socket() as sock:
                unread = select.poll()
                unread.register(sock, select.POLLIN)
                if unread.poll(0):
                    return True
                info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 56)
        except (OSError, AttributeError):
            return False
        # tcpi_last_data_recv, in ms.
        return len(info) == 56 and bool(struct.unpack_from("=I", info, 52)[0] < seconds * 1000)

    def cut(self) -> None:
        """Have whoever reads from it find its end."""
        with contextlib.suppress(OSError), self._socket() as sock:
            sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with self._lock:
            self.leak()

    def leak(self) -> None:
        """In a forked child, where nobody may ever give the lock back: the parent's server must see the parent end."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __del__(self) -> None:
        self.leak()

    def _socket(self) -> socket.socket:
        with self._lock:
            if self._descriptor is None:
                raise OSError("closed already")
            return socket.socket(fileno=os.dup(self._descriptor))


class Watch:
    """Watches the connections of one board, on a thread that there is only while requests are under way.

    :param connect: makes a connection, to ask the server over.
    :param where: what the log calls that which is watched.
    :param patience: for how many seconds calls are repeated: so long, too, one waits while the server can't be asked.
    :param lease: for how many seconds what is kept alive over these connections stands.
    """

    def __init__(self, connect: Callable[[], PoolProxiedConnection], where: str, patience: float, lease: float) -> None:
        self._connect = connect
        self._where = where
        self._soon = min(max(lease / 6, _SOON[0]), _SOON[1])
        self._limit = max(self._soon, min(patience + _SOON[1], lease / 3))
        self._lock = threading.Lock()
        self._lines: set[Line] = set()
        self._again = threading.Event()
        self._product: Database | None = None
        self._closing: float | None = None
        self._asker: threading.Thread | None = None
        self._asked = 0.0
        self._unanswered = False
        self.silences = 0
        """How many connections have been given up: those that were made before may be silent, too."""
        self.awake = False
        """Whether requests are noticed; if not, :meth:`wake` must be called."""

    def add(self, line: Line, product: Database) -> None:
        if line.watched:
            self._product = product
            with self._lock:
                self._lines.add(line)

    def remove(self, line: Line) -> None:
        with self._lock:
            self._lines.discard(line)
        line.close()

    def wake(self) -> bool:
        """A request is under way. False: nobody watches it, as no thread can be started, at the end of the interpreter
        for instance."""
        with self._lock:
            if self.awake or not self._lines:
                return True
            try:
                started(f"{self._where}-connections", self._run)
            except RuntimeError as error:
                if self._closing is None:
                    LOG.warning("%s: nobody watches this request's connection: %s", self._where, error)
                return False
            self.awake = True
            return True

    def hurry(self) -> None:
        """The board is being closed: no request may take long any more."""
        self._closing = time.monotonic()
        self._again.set()

    @property
    def closing(self) -> bool:
        return self._closing is not None

    @property
    def spent(self) -> bool:
        """Whether the time for closing is over, of a board whose connections are silent."""
        return self._closing is not None and bool(self.silences) and time.monotonic() - self._closing > _CLOSED

    def _run(self) -> None:
        used = time.monotonic()
        while True:
            self._again.wait(self._soon / 4)
            self._again.clear()
            now = time.monotonic()
            with self._lock:
                busy = [line for line in self._lines if line.busy]
            if busy:
                used = now
                self._look(busy, now)
            elif now - used > _IDLE or self._closing is not None:
                with self._lock:
                    # In this order: whoever begins a request makes it known, and then asks whether this is awake.
                    self.awake = False
                    self.awake = any(line.busy for line in self._lines)
                    if not self.awake:
                        return

    def _look(self, busy: list[Line], now: float) -> None:
        for line in busy:
            if line.seen != line.requests:
                line.seen, line.since = line.requests, now
        late = [line for line in busy if now - line.since >= self._soon]
        late = [line for line in late if not line.heard(self._soon)]
        if self._closing is not None:
            for line in late:
                if now - line.since >= _CLOSING:
                    self._give_up(line, "the board is being closed")
            return
        asked = [line for line in late if line.session is not None]
        if asked:
            self._ask(asked, now)
        for line in late:
            if line.session is None and line.asks:
                if now - line.since >= _PREPARING:
                    self._give_up(line, "it was just made")
            elif (line.session is None or self._unanswered) and now - line.since >= self._limit:
                self._give_up(line, "the server can't be asked about it")

    def _ask(self, lines: list[Line], now: float) -> None:
        asker = self._asker
        if asker is not None and asker.is_alive():
            self._unanswered = self._unanswered or now - self._asked > _ASKING
            if now - self._asked < _HUNG:
                return
        self._asked = now
        requests = [(line, line.requests) for line in lines]
        # Where none can be started, the next look tries anew.
        with contextlib.suppress(RuntimeError):
            self._asker = started(f"{self._where}-asker", self._answer, requests)

    def _answer(self, asked: list[tuple[Line, int]]) -> None:
        assert self._product is not None
        try:
            connection = self._connect()
            try:
                self._judge(connection.dbapi_connection, asked, _SESSIONS[self._product.dialect.name])
            finally:
                connection.invalidate()
        except Exception as error:  # noqa: BLE001 - drivers raise anything
            LOG.debug("%s: could not ask the server about a connection: %s", self._where, type(error).__name__)
            self._unanswered = True
        else:
            self._unanswered = False

    def _judge(self, raw: Raw, asked: list[tuple[Line, int]], sessions: _Sessions) -> None:
        assert self._product is not None
        asking = Line(raw, self._product)
        timer = threading.Timer(_ASKING + self._soon / 4, asking.cut)
        timer.daemon = True
        timer.start()
        try:
            cursor = raw.cursor()
            if idle := _idle(cursor, asked, sessions):
                # Their answers may be on the way. And in one transaction PostgreSQL tells the same again.
                raw.rollback()
                time.sleep(self._soon / 4)
                for line, there in _idle(cursor, [each for each in asked if each[0] in idle], sessions).items():
                    if there and line.session is not None:
                        cursor.execute(sessions.end.format(line.session[0]))
                    self._give_up(line, "the server works on nothing for it")
        finally:
            timer.cancel()
            asking.close()

    def _give_up(self, line: Line, why: str) -> None:
        LOG.warning(
            "%s: a connection that has not answered for %.1f s is given up: %s",
            self._where,
            time.monotonic() - line.since,
            why,
        )
        self.silences += 1
        with self._lock:
            listening = [each for each in self._lines if each.listens]
        # What silenced it may not have spared the one that has nothing to say.
        for each in (line, *listening):
            each.cut()


def _idle(cursor: Any, asked: list[tuple[Line, int]], sessions: _Sessions) -> dict[Line, bool]:
    """On which connections' requests the server does not work, and whether it still has their sessions."""
    numbers = ", ".join(str(line.session[0]) for line, _ in asked if line.session is not None)
    cursor.execute(sessions.some + "(" + numbers + ")")
    working = {(int(number), str(mark)): bool(works) for number, mark, works in cursor.fetchall()}
    idle: dict[Line, bool] = {}
    for line, request in asked:
        session = line.session
        if session is None or not line.busy or line.requests != request:
            continue
        if working.get(session):
            line.since = time.monotonic()
        else:
            idle[line] = session in working
    return idle
