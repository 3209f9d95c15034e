"""Core statements, compiled once and run through the driver's own cursor.

SQLAlchemy's execution costs several times what a driver's does; its compiler is needed only once per statement. The
same statements also run on a SQLAlchemy connection, inside a transaction of the caller's.
"""

from __future__ import annotations

import abc
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Dialect

T = TypeVar("T")

Row = Any
"""What a driver returns: a sequence."""

PARAMETER = "p_"
"""What the names of parameters begin with: no column's name and no name that SQLAlchemy makes does."""

_SIZES = (1, 2, 5, 10, 25, 50, 100, 200, 500, 1000)
LONGEST = _SIZES[-1]

KEPT = 100
"""For how many statements a connection keeps cursors, where it keeps any."""


_size: ContextVar[int] = ContextVar("_size", default=0)
"""How long the lists of the statement that is being compiled are."""


def param(name: str, type_: Any = None) -> sa.BindParameter[Any]:
    return sa.bindparam(PARAMETER + name, None, type_=type_ or sa.BigInteger())


def text(name: str) -> sa.BindParameter[Any]:
    return param(name, sa.String())


def elements(name: str, type_: Any = None) -> sa.BindParameter[Any]:
    """A list, for ``IN``."""
    return sa.bindparam(
        PARAMETER + name,
        type_=type_ or sa.BigInteger(),
        expanding=True,
        callable_=lambda: [None] * _size.get(),
    )


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """For statements that take only so many at once."""
    return (items[start : start + size] for start in range(0, len(items), size))


class _Text(NamedTuple):
    text: str
    order: tuple[str, ...] | None
    """The parameters' names where the driver takes them by position."""
    fixed: dict[str, Any]
    processors: dict[str, Callable[[Any], Any]]


class Prepared:
    """One statement for one kind of database. Lists for ``IN`` are named in ``lists``; they are padded by repetition
    to one of a few lengths, so that as few texts are compiled as possible, and may have 1000 elements."""

    def __init__(self, statement: sa.Executable, *lists: str) -> None:
        self.statement: Any = statement
        self._lists = lists
        self._texts: dict[int, _Text] = {}

    def single(self, params: Mapping[str, Any]) -> bool:
        """Whether its lists, if it has any, are of one element."""
        return all(len(params[name]) == 1 for name in self._lists)

    def compiled(self, dialect: Dialect, params: Mapping[str, Any], whole: bool = False) -> tuple[str, Any]:
        """The text, and the parameters as the driver takes them.

        :param whole: all of them, so that the text is the same for others.
        """
        values: Mapping[str, Any]
        if not self._lists:
            text = self._texts.get(0) or self._compile(dialect, 0)
            values = params
        elif not whole and self._writes_out(dialect, params):
            return self._written_out(self._texts.get(1) or self._compile(dialect, 1), params)
        else:
            longest = max(len(params[name]) for name in self._lists)
            size = next(size for size in _SIZES if size >= longest)
            text = self._texts.get(size) or self._compile(dialect, size)
            values = spread = dict(params)
            for name in self._lists:
                elements = spread.pop(name)
                last = elements[-1]
                for i in range(size):
                    spread[f"{name}_{i + 1}"] = elements[i] if i < len(elements) else last
        return self._bound(text, values)

    def _writes_out(self, dialect: Dialect, params: Mapping[str, Any]) -> bool:
        """Whether lists are written into the text: integers, where the driver would do that too, but for each alone."""
        return (
            dialect.name in ("mysql", "mariadb")
            and dialect.paramstyle == "pyformat"
            and all(set(map(type, params[name])) == {int} for name in self._lists)
        )

    def _written_out(self, text: _Text, params: Mapping[str, Any]) -> tuple[str, Any]:
        rest = dict(params)
        written = text.text
        for name in self._lists:
            written = written.replace(f"%({name}_1)s", ", ".join(map(str, rest.pop(name))))
        return self._bound(text._replace(text=written), rest)

    def _bound(self, text: _Text, values: Mapping[str, Any]) -> tuple[str, Any]:
        if text.fixed:
            values = {**text.fixed, **values}
        if text.processors:
            values = {
                name: text.processors[name](value) if name in text.processors else value
                for name, value in values.items()
            }
        if text.order is None:
            return text.text, values
        return text.text, [values[name] for name in text.order]

    def _compile(self, dialect: Dialect, size: int) -> _Text:
        token = _size.set(size)
        try:
            compiled = self.statement.compile(dialect=dialect, compile_kwargs={"render_postcompile": True})
        finally:
            _size.reset(token)
        processors = {}
        for name, bind in compiled.binds.items():
            processor = bind.type.dialect_impl(dialect).bind_processor(dialect)
            if processor is not None:
                processors[name] = processor
        fixed = {name: value for name, value in compiled.params.items() if not name.startswith(PARAMETER)}
        order = tuple(compiled.positiontup) if compiled.positiontup is not None else None
        text = self._texts[size] = _Text(str(compiled), order, fixed, processors)
        return text


class Compound(Prepared):
    """Several statements in one request, as MariaDB runs them; to be run by a :class:`~jobboard.sql.links.Link`.

    :param parts: statements, and what stands between them.
    """

    def __init__(self, *parts: Prepared | str, lists: Sequence[str] = ()) -> None:
        super().__init__(sa.text(""), *lists)
        self._parts = parts

    def _compile(self, dialect: Dialect, size: int) -> _Text:
        lines: list[str] = []
        processors: dict[str, Callable[[Any], Any]] = {}
        for part in self._parts:
            if isinstance(part, str):
                lines.append(part)
                continue
            each = part._compile(dialect, size)
            line = each.text
            for name, value in each.fixed.items():
                # Two statements may give their constants the same names.
                assert type(value) is int, f"a {type(value).__name__} is no constant of a compound statement"
                line = line.replace(f"%({name})s", str(value))
            lines.append(f"{line};")
            processors |= each.processors
        text = "\n".join(["BEGIN NOT ATOMIC", *lines, "END"])
        compiled = self._texts[size] = _Text(text, None, {}, processors)
        return compiled


def cursor_on(raw: Any, dialect: Dialect) -> tuple[Any, Dialect]:
    """What runs prepared statements on a connection of our own, and the dialect that writes these.

    :param raw: the driver's connection.
    :param dialect: the connection's.
    """
    dbapi: Any = dialect.loaded_dbapi
    raw_cursor = getattr(dbapi, "RawCursor", None) if dialect.driver == "psycopg" else None
    # Whoever gives a cursor of their own, as for a pooler, wants that.
    if raw_cursor is None or raw.cursor_factory is not dbapi.Cursor:
        return raw.cursor(), dialect
    # In a text of more than 4096 characters psycopg looks for named parameters anew each time: these are numbered.
    numbered: Any = copy.copy(dialect)
    numbered.paramstyle, numbered.positional = "numeric_dollar", True
    # Which doubles percent signs or does not.
    numbered.identifier_preparer = numbered.preparer(numbered)
    return Cursors(raw_cursor, raw), numbered


class Cursors:
    """What looks like one cursor of psycopg's, and is one for each statement that comes again and again.

    A cursor that runs what it has run last knows how to write the values and to read the rows. And a text that is the
    very same bytes is neither encoded, nor hashed, nor compared as a whole: some are longer than all that is sent."""

    def __init__(self, make: Callable[[Any], Any], raw: Any) -> None:
        self._make = make
        self._raw = raw
        self._encoding: str = raw.info.encoding
        self._kept: dict[str, tuple[Any, bytes]] = {}
        self._text = ""
        self._last = make(raw)

    def execute(self, text: str, values: Any = None) -> Any:
        kept = self._kept.get(text)
        if kept is None:
            if len(self._kept) >= KEPT:
                self._kept.pop(next(iter(self._kept)))
            kept = self._kept[text] = self._make(self._raw), text.encode(self._encoding)
        self._text = text
        self._last, encoded = kept
        return self._last.execute(encoded, values)

    def fetchall(self) -> list[Row]:
        rows: list[Row] = self._last.fetchall()
        if len(rows) > 1:
            # Until it runs again it holds them as they came, and they may be large.
            self._kept.pop(self._text, None)
        return rows

    def __getattr__(self, name: str) -> Any:
        return getattr(self._last, name)


class Runner(abc.ABC):
    """Runs prepared statements on a connection."""

    connection: Connection
    joined = False
    """Whether the transaction is the caller's own."""

    @abc.abstractmethod
    def rows(self, statement: Prepared, params: Mapping[str, Any]) -> list[Row]: ...

    @abc.abstractmethod
    def count(self, statement: Prepared, params: Mapping[str, Any]) -> int:
        """Run it for its effect; how many rows it matched."""

    @abc.abstractmethod
    def many(self, statement: Prepared, params: list[dict[str, Any]]) -> None: ...


class CallersConnection(Runner):
    """On a connection of the caller's.

    :param joined: in a transaction of theirs.
    """

    def __init__(self, connection: Connection, joined: bool = True) -> None:
        self.connection = connection
        self.joined = joined

    def rows(self, statement: Prepared, params: Mapping[str, Any]) -> list[Row]:
        return [tuple(row) for row in self.connection.execute(statement.statement, dict(params))]

    def count(self, statement: Prepared, params: Mapping[str, Any]) -> int:
        # Of an insert it is not kept by itself.
        kept = {"preserve_rowcount": True}
        return self.connection.execute(statement.statement, dict(params), execution_options=kept).rowcount

    def many(self, statement: Prepared, params: list[dict[str, Any]]) -> None:
        self.connection.execute(statement.statement, params)
