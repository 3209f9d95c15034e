"""The loader of a board's statements: named texts in ``postgresql.sql``, ``mariadb.sql`` and ``sqlite.sql``.

A text that databases share stands in ``common.sql``. The text of a database's own file takes its place.

A text begins with a line ``-- name: verb``, and comments behind it are for its readers only. In a text stand

- ``:name``: a parameter. A list in its place is an array on PostgreSQL, as in ``= any(:uuids)``. Other databases get
  it written out, as in ``in (:uuids)``, also where a shared text has an array;
- ``json_table(:places, …)``: a list in its place is written as JSON;
- ``values :rows``: rows of values, written out, see :meth:`Statements.row`. MariaDB has only these: an INSERT … SELECT
  that waits for a lock would keep the lock on the table's counter of ids, and all other posts waiting;
- ``{name}``: a table (``jobs``, ``answers``, ``sides``, ``outcomes``), ``record`` (the columns of a job), ``gate`` (the
  place of the gate's side record), ``now`` (the time at which the statement began, in µs since 1970), ``key`` or
  ``call`` (a column whose name MariaDB reserves), a number of :data:`NUMBERS`, or another text;
- ``{by_wake}`` and the like: a hint that forces MariaDB to use this index, and nothing on other databases, unless their
  file has a text of that name;
- ``{name?}``: a text that the caller may give, see :meth:`Statements.made`.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy.engine import Dialect

from jobboard.backends.sql import columns
from jobboard.backends.sql.tables import Tables, place_of
from jobboard.codec import MAX_TEXT
from jobboard.engine import GATE, OVERDUE
from jobboard.engine.answers import KEPT
from jobboard.engine.limits import MOST_LAPSED
from jobboard.primitives import HELD_UNTIL, PAGE
from jobboard.sql.dialects import MySQLDatabase
from jobboard.sql.expressions import Now
from jobboard.units import HOUR, MINUTE, SECOND

LONGEST = 1000
"""The most elements of a list."""

NAMES_AT_ONCE = 20
"""The number of names for which one statement looks at most, as its text has a part for each name. For more names, a
look first finds the names whose first jobs come first. For 100 names that takes 8 ms on MariaDB, not 110 ms."""

_SIZES = (1, 2, 5, 10, 25, 50, 100, 200, 500, LONGEST)
"""The numbers of elements with which lists are written out. The last element fills a list up to the next number, so
that the database plans few texts."""

STAMP_STEP = 600 * SECOND
"""The µs in which the stamp of a slot's answer changes once at most, as the stamp is indexed."""

RANK_STEP = 2**48
"""The distance of two priorities in a rank, a job's place in serving order as one number. Ids are below this number."""

TIDIED = 1000
"""The most answers, and the most side records, that one tidying drops."""

TIDIED_OUTCOMES = 500
"""The most outcomes that one request drops."""

TIDIED_OUTCOMES_ALONE = 250
"""The same on SQLite, where nobody else writes meanwhile."""

SETTLED = 20_000
"""The number of overdue jobs among which a page of the trash looks for claims that have lapsed for the last time."""

NUMBERS = {
    "answer_age": KEPT + STAMP_STEP,  # an answer is kept, although its stamp is as old as a stamp may be
    "duplicate": MySQLDatabase.duplicate,
    "held_until": HELD_UNTIL,
    "hour": HOUR,
    "most_lapsed": MOST_LAPSED,
    "minute": MINUTE,
    "most_overdue": OVERDUE,
    "most_settled": SETTLED,
    "most_text": MAX_TEXT,
    "page": PAGE,
    "rank_step": RANK_STEP,
    "second": SECOND,
    "stamp_step": STAMP_STEP,
    "tidied": TIDIED,
}
"""The numbers in texts, by their names there. A text has no other number above 100."""

_HERE = "\0"
"""The place of rows in a text."""

_MADE = 200
"""The number of texts with parts that are remembered at most."""

_FILES = {"postgresql": "postgresql", "sqlite": "sqlite", "mysql": "mariadb", "mariadb": "mariadb"}
_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n?|\s+--.*$", re.MULTILINE)
_PLACE = re.compile(r"\{(\w+)(\??)\}")
_ARRAY = re.compile(r"(= any|<> all)\(:(\w+)\)")
_LIST = re.compile(r"\bin \(:(\w+)\)")
_JSON = re.compile(r"json_table\(:(\w+),")
_ROWS = re.compile(r"\bvalues :(\w+)")
# Strings and PostgreSQL's casts look like parameters, and are none.
_PARAMETER = re.compile(r"'(?:[^']|'')*'|(?<![:\w]):([a-z_]\w*)")


_NUMBERED = {"numeric": ":", "numeric_dollar": "$"}
"""The styles that number values, with the sign before a number."""


@functools.cache
def texts_of(database: str) -> dict[str, str]:
    """Return the texts for a database, by their names, without comments."""
    texts: dict[str, str] = {}
    for file in ("common", _FILES[database]):
        _, *parts = _NAME.split((Path(__file__).parent / f"{file}.sql").read_text("utf-8"))
        texts |= zip(parts[::2], (_COMMENT.sub("", text).strip() for text in parts[1::2]), strict=True)
    if database == "postgresql":
        return texts
    lists = {"= any": "in", "<> all": "not in"}
    return {name: _ARRAY.sub(lambda found: f"{lists[found[1]]} (:{found[2]})", text) for name, text in texts.items()}


class Statement:
    """A statement for one database.

    parameters: the names of its parameters, in the order of their first use.
    """

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.parameters = tuple(dict.fromkeys(found[1] for found in _PARAMETER.finditer(text) if found[1]))
        self._lists = tuple(dict.fromkeys(_LIST.findall(text)))
        self._arrays = tuple(dict.fromkeys(name for _, name in _ARRAY.findall(text)))
        self._jsons = tuple(dict.fromkeys(_JSON.findall(text)))
        self._rows = _ROWS.findall(text)
        self._texts: dict[tuple[object, ...], tuple[str, tuple[str, ...]]] = {}

    def __repr__(self) -> str:
        return f"<Statement {self.name}>"

    def compiled(self, dialect: Dialect, params: Mapping[str, Any]) -> tuple[str, Any]:
        """Return the text and the parameters as the driver takes them.

        :raises KeyError: a parameter is missing.
        """
        style = _style(dialect)
        values = {name: params[name] for name in self.parameters}
        sizes: list[tuple[str, int]] = []
        for name in self._lists:
            value = values[name]
            if not isinstance(value, (list, tuple)):
                # A value of the caller's condition.
                continue
            del values[name]
            size = next(size for size in _SIZES if size >= len(value))
            sizes.append((name, size))
            last = value[-1] if value else None
            values.update((f"{name}_{i}", value[i] if i < len(value) else last) for i in range(size))
        for name in self._arrays:
            # asyncpg, whose style that is, takes a list alone.
            values[name] = list(values[name]) if style == "numeric_dollar" else _array(values[name])
        for name in self._jsons:
            if isinstance(values[name], (list, tuple)):
                values[name] = json.dumps(values[name])
        rows = [values.pop(name) for name in self._rows]
        key = (style, *sizes)
        text, order = self._texts.get(key) or self._texts.setdefault(key, self._written(style, dict(sizes)))
        for written in rows:
            text = text.replace(_HERE, ", ".join(written), 1)
        if style in ("named", "pyformat"):
            return text, values
        return text, tuple(values[name] for name in order)

    def _written(self, style: str, sizes: Mapping[str, int]) -> tuple[str, tuple[str, ...]]:
        order: list[str] = []

        def mark(name: str) -> str:
            if style not in _NUMBERED:
                order.append(name)
                return {"qmark": "?", "format": "%s", "pyformat": f"%({name})s", "named": f":{name}"}[style]
            if name not in order:
                order.append(name)
            return f"{_NUMBERED[style]}{order.index(name) + 1}"

        def put(found: re.Match[str]) -> str:
            name = found[1]
            if name is None:
                return found[0]
            if name in self._rows:
                return _HERE
            if name not in sizes:
                return mark(name)
            return ", ".join(mark(f"{name}_{i}") for i in range(sizes[name]))

        text = self.text.replace("%", "%%") if style in ("format", "pyformat") else self.text
        return _PARAMETER.sub(put, text), tuple(order)


def _literal(value: str | int | None) -> str:
    """Return a value as MariaDB reads it, in any SQL mode and of any character set. A driver takes longer to quote."""
    if value is None:
        return "null"
    return f"_utf8mb4 X'{value.encode().hex()}'" if isinstance(value, str) else str(int(value))


def _array(values: Sequence[Any]) -> str:
    """Return a list as PostgreSQL reads an array: psycopg takes 15 µs to write one."""
    quoted = (str(value).replace("\\", "\\\\").replace('"', '\\"') for value in values)
    return "{" + ",".join([f'"{value}"' for value in quoted]) + "}"


def _style(dialect: Dialect) -> str:
    # SQLite's driver takes both styles, and finds a value that stands in several places once by its name.
    takes_both = dialect.driver == "pysqlite" and dialect.paramstyle == "qmark"
    return "named" if takes_both else dialect.paramstyle


class Statements:
    """The statements of the boards in one set of tables, for one kind of database."""

    def __init__(self, dialect: Dialect, tables: Tables) -> None:
        self._texts = texts_of(dialect.name) | columns.texts(_FILES[dialect.name])
        quoted = dialect.identifier_preparer.format_table
        jobs = quoted(tables.jobs)
        self._names = {
            "jobs": jobs,
            "answers": quoted(tables.answers),
            "sides": quoted(tables.sides),
            "outcomes": quoted(tables.outcomes),
            "record": ", ".join(f"{jobs}.{column.name}" for column in tables.record),
            "prefix": tables.prefix,
            "now": str(Now().compile(dialect=dialect)),
            "tidied_outcomes": str(TIDIED_OUTCOMES_ALONE if dialect.name == "sqlite" else TIDIED_OUTCOMES),
            **{name: str(number) for name, number in NUMBERS.items()},
            "gate": f"kind = '{GATE[0]}' and place = '{place_of(GATE[1])}'",
            **{name: dialect.identifier_preparer.quote(name) for name in ("key", "call")},
        }
        indexes = [str(index.name) for table in (tables.jobs, tables.outcomes) for index in table.indexes]
        for index in (*indexes, "primary"):
            place = "by_" + index.removeprefix(f"{tables.prefix}_").removeprefix("by_")
            if place not in self._texts:
                self._names[place] = f"force index (`{index}`)" if _FILES[dialect.name] == "mariadb" else ""
        self._whole: dict[str, str] = {}
        self._made: dict[tuple[object, ...], Statement] = {}
        self._ones: dict[tuple[object, ...], str] = {}
        self._rows: dict[str, tuple[str, tuple[str, ...]]] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._texts

    def __getitem__(self, name: str) -> Statement:
        return self.fill(name)

    def text(self, *names: str, **parts: str) -> str:
        """Return texts of the file, one behind the other, for :meth:`fill`."""
        if parts or len(names) != 1:
            return " ".join(self._filled(self._texts[name], parts) for name in names)
        [name] = names
        text = self._whole.get(name)
        if text is None:
            text = self._whole[name] = self._filled(self._texts[name], {})
        return text

    def fill(self, name: str, **parts: str) -> Statement:
        """Return the statement of this name.

        :param parts: texts in place of ``{part?}``, where nothing stands without them.
        """
        key = (name, *sorted(parts.items()))
        made = self._made.get(key)
        if made is None:
            while len(self._made) >= _MADE:
                self._made.pop(next(iter(self._made)), None)
            made = self._made[key] = Statement(name, self._filled(self._texts[name], parts))
        return made

    def row(self, name: str, values: Mapping[str, str | int | None]) -> str:
        """Return the text of this name with these values in it, for ``values :rows``."""
        row = self._rows.get(name)
        if row is None:
            row = self._rows[name] = Statement(name, self.text(name))._written("format", {})
        text, order = row
        return text % tuple([_literal(values[each]) for each in order])

    def union(self, name: str, one: str, number: int, **parts: str) -> Statement:
        """Return the statement ``name`` with ``number`` times the text ``one`` in place of ``{ones?}``."""
        return self.fill(name, ones=self.repeat(one, number, **parts))

    def repeat(self, name: str, number: int, begin: int = 0, /, **parts: str) -> str:
        """Return the text of this name ``number`` times: its parameters ``:one`` and ``:one_…`` are numbered, from
        ``begin`` on."""
        key = (name, number, begin, *parts.items())
        text = self._ones.get(key)
        if text is None:
            if len(self._ones) >= _MADE:
                self._ones = {}
            part = self._filled(self._texts[name], parts)
            numbered = (re.sub(r":one(?![a-z0-9])", f":one{begin + i}", part) for i in range(number))
            text = self._ones[key] = "\nunion all\n".join(numbered)
        return text

    def _filled(self, text: str, parts: Mapping[str, str]) -> str:
        def put(found: re.Match[str]) -> str:
            name, optional = found.groups()
            if optional:
                return parts.get(name, "")
            if name in self._names:
                return self._names[name]
            return self._filled(self._texts[name], parts)

        return _PLACE.sub(put, text)


def chunks(items: Sequence[Any], size: int = LONGEST) -> list[Sequence[Any]]:
    """Return the items in lists that one statement takes."""
    return [items[start : start + size] for start in range(0, len(items), size)]
