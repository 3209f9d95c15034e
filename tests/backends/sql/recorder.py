"""What a board sends to its database, as its driver is told: through the cursor classes that the drivers let one give,
which SQLAlchemy hands to them (its events "do_connect" and "connect")."""

from __future__ import annotations

import re
import sqlite3
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa


class Recorder:
    """Once it is open, connections that are made tell it what they send; it writes down what this thread has sent."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._sent: list[str] | None = None
        self.prepared: dict[tuple[Any, str], str] = {}
        """By connection and name, what MariaDB is to run by a name."""

    def __enter__(self) -> Recorder:
        sa.event.listen(sa.Engine, "do_connect", self._connect)
        sa.event.listen(sa.pool.Pool, "connect", self._connected)
        return self

    def __exit__(self, *exc_info: object) -> None:
        sa.event.remove(sa.Engine, "do_connect", self._connect)
        sa.event.remove(sa.pool.Pool, "connect", self._connected)

    @contextmanager
    def __call__(self) -> Iterator[list[str]]:
        """The texts that this thread sends inside of the block."""
        self._sent = []
        try:
            yield self._sent
        finally:
            self._sent = None

    def note(self, text: str) -> None:
        if self._sent is not None and threading.get_ident() == self._thread:
            self._sent.append(text)

    def written(self, connection: Any, text: str) -> str:
        """A statement with the names of its values, where it is run by a name of its own, too."""
        if not text.startswith("EXECUTE "):
            return text
        _, name, _, using = text.split(" ", 3)
        values = iter(using.split(", "))
        return re.sub(r"\?", lambda _: next(values), self.prepared[connection, name])

    def _connect(self, dialect: Any, record: Any, arguments: Any, options: dict[str, Any]) -> None:
        if dialect.driver == "pysqlite":
            options["factory"] = _sqlite(self)
        elif dialect.driver == "psycopg":
            options["cursor_factory"] = _recording(dialect.loaded_dbapi.Cursor, self)
        elif dialect.driver == "pymysql":
            options["cursorclass"] = _recording(dialect.loaded_dbapi.cursors.Cursor, self)

    def _connected(self, raw: Any, record: Any) -> None:
        """What no cursor is asked for: SQLite's and psycopg's connections here commit each statement by themselves."""
        if type(raw).__module__.startswith("pymysql"):
            raw.commit = _noted(self, "COMMIT", raw.commit)
            raw.rollback = _noted(self, "ROLLBACK", raw.rollback)


def _noted(recorder: Recorder, text: str, call: Any) -> Any:
    def noted() -> None:
        recorder.note(text)
        call()

    return noted


def _recording(base: Any, recorder: Recorder) -> Any:
    """A cursor of the driver's that tells what it runs."""

    class Recording(base):  # type: ignore[misc]
        _inside = False

        def execute(self, text: str, *parameters: Any, **options: Any) -> Any:
            if not self._inside and text.startswith("PREPARE "):
                recorder.prepared[self.connection, text.split()[1]] = parameters[0]["text"]
            elif not self._inside:
                recorder.note(recorder.written(self.connection, text))
            return super().execute(text, *parameters, **options)

        def executemany(self, text: str, *parameters: Any, **options: Any) -> Any:
            recorder.note("-- with many rows\n" + text)
            # PyMySQL calls execute.
            self._inside = True
            try:
                return super().executemany(text, *parameters, **options)
            finally:
                self._inside = False

    return Recording


def _sqlite(recorder: Recorder) -> type[sqlite3.Connection]:
    recording = _recording(sqlite3.Cursor, recorder)

    class Connection(sqlite3.Connection):
        def cursor(self, factory: Any = recording) -> Any:
            return super().cursor(factory)

    return Connection


_VALUE = r"(?:\?|\d+|%\(\w+\)s(?:::\w+)?)"
_LIST = re.compile(rf"\bIN \(({_VALUE})(?:, {_VALUE})*\)")


def readable(text: str, table: str) -> str:
    """A statement as it stands in a file: tables have their usual names, lists are cut, and lines are not long."""
    text = text.replace(table, "jobboard")
    text = _LIST.sub(lambda found: f"IN ({'' if found[1].isdigit() else found[1] + ', '}…)", text)
    fold = textwrap.TextWrapper(116, break_long_words=False, break_on_hyphens=False, subsequent_indent="  ")
    return "\n".join(part for line in text.splitlines() for part in fold.wrap(line.rstrip()))
