"""Fixtures and helpers of the SQL board's tests."""

import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import sqlalchemy as sa

from jobboard.board import JobBoard
from jobboard.job import Job
from jobboard.testing.faults import FaultyProxy
from tests.conftest import DRIVERS


def statements_in(text: str) -> list[str]:
    return re.split(r";\n", text.removeprefix("BEGIN NOT ATOMIC\n"))


class Spy:
    """Records the statements that this thread has a board run; may stop before some."""

    def __init__(self, board: JobBoard, before: Callable[[str], None] | None = None) -> None:
        assert board.engine.store is not None
        self._links = board.engine.store.links
        self._run, self._held = self._links.run, self._links.held
        self._thread = threading.current_thread()
        self._before = before
        self.texts: list[str] = []
        self.cursor: Any = None

    def __enter__(self) -> "Spy":
        self._links.run, self._links.held = self._spied, self._spied_block
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._links.run, self._links.held = self._run, self._held

    def _spied(self, work: Callable[[Any], Any], *args: Any) -> Any:
        if threading.current_thread() is not self._thread:
            return self._run(work, *args)

        def spied(link: Any) -> Any:
            with self._on(link):
                return work(link)

        return self._run(spied, *args)

    @contextlib.contextmanager
    def _spied_block(self, *args: Any) -> Iterator[Any]:
        with self._held(*args) as link:
            if threading.current_thread() is not self._thread:
                yield link
                return
            with self._on(link):
                yield link

    @contextlib.contextmanager
    def _on(self, link: Any) -> Iterator[None]:
        cursor = link.cursor
        if cursor is self:
            yield
            return
        self.cursor, link.cursor = cursor, self
        try:
            yield
        finally:
            link.cursor = cursor

    def execute(self, text: str, *params: Any) -> Any:
        if self._before is not None:
            self._before(text)
        self.texts.append(text)
        return self.cursor.execute(text, *params)

    def sends(self, text: str) -> None:
        """Send something on the connection that this thread's next call will use."""
        self._run(lambda link: link.cursor.execute(text))

    def executemany(self, text: str, *params: Any) -> Any:
        if self._before is not None:
            self._before(text)
        self.texts.append(text)
        return self.cursor.executemany(text, *params)

    @property
    def statements(self) -> list[str]:
        """The texts, where one of several statements is taken apart."""
        return [statement for text in self.texts for statement in statements_in(text)]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cursor, name)


@pytest.fixture
def spy() -> type[Spy]:
    """``with spy(board, before=…) as seen:`` then ``seen.texts``; ``before(text)`` is called ahead of each."""
    return Spy


@contextlib.contextmanager
def rows_locked(engine: sa.Engine, board: JobBoard, *jobs: Job) -> Iterator[sa.Connection]:
    """Hold the rows of these jobs in somebody else's transaction for a block, or until the block ends it."""
    # At other levels InnoDB locks gaps, too.
    with engine.connect().execution_options(isolation_level="READ COMMITTED") as connection:
        for job in jobs:
            # Each by itself: for several InnoDB might read, and lock, the whole table.
            row = sa.select(board.table.c.id).where(board.table.c.uuid == job.uuid)
            connection.execute(row.with_for_update())
        yield connection
        connection.rollback()


WAITING = {
    # Of this database: other tests have others on the same server.
    "postgresql": """SELECT count(*) FROM pg_locks WHERE NOT granted AND pid IN
        (SELECT pid FROM pg_locks JOIN pg_database d ON database = d.oid WHERE datname = current_database())""",
    # The server lists its transactions anew if nobody, in another test neither, has read the list for 0.1 s.
    "mariadb": """SELECT count(*), SLEEP(0.2 + 0.6 * RAND()) FROM information_schema.innodb_trx
        WHERE trx_state = 'LOCK WAIT'""",
}


def waiting(connection: sa.Connection) -> int:
    """Return how many requests wait for locks."""
    return int(connection.exec_driver_sql(WAITING[connection.dialect.name]).scalar_one())


@pytest.fixture
def events(board: JobBoard) -> list[str]:
    """The events that the board has reported."""
    seen: list[str] = []
    board.notifier.register("*", lambda event, details: seen.append(event))
    return seen


@pytest.fixture
def proxy(backend: str, server_uris: dict[str, str]) -> Iterator[FaultyProxy]:
    """A proxy before the server of the backend."""
    where = urlsplit(server_uris[backend])
    assert where.hostname is not None
    assert where.port is not None
    with FaultyProxy(where.hostname, where.port) as proxy:
        yield proxy


@pytest.fixture
def far(proxy: FaultyProxy, board_conf: dict[str, Any], make_board: Callable[..., Any]) -> JobBoard:
    """The board through the proxy."""
    return make_board(board=proxy.uri_for(board_conf["board"]))


def engine_through(proxy: FaultyProxy, uri: str, **options: Any) -> sa.Engine:
    """Return an engine of a caller's whose connections go through the proxy, without TLS as those of ``far``."""
    url = sa.make_url(proxy.uri_for(uri))
    kind = url.get_backend_name()
    if kind == "mariadb":
        # The driver's name of the option.
        url = url.difference_update_query(["ssl_mode"]).update_query_dict({"ssl_disabled": "true"})
    return sa.create_engine(url.set(drivername=DRIVERS[kind]), **options)


@pytest.fixture
def decisive(backend: str) -> bytes:
    """A part of the request that commits a mutation."""
    return b"commit" if backend == "mariadb" else b"_answers"
