"""The columns of a record's fields, and the lists of them in statements: the place of a new field on SQL databases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import sqlalchemy as sa

from jobboard.codec import MAX_TEXT
from jobboard.sql.expressions import Exact, LongText, serial
from jobboard.states import Record

POST, REPLACE, CHANGE = range(3)
"""The writes of a column: once by the post, again by a post that replaces the job, or by every change of the job."""


class FieldColumn(NamedTuple):
    """The column of a record's field.

    written: by which writes. is_kept: the outcome of a consumed job has the column, too.
    """

    name: str
    type: sa.types.TypeEngine[Any]
    nullable: bool = False
    written: int = POST
    is_kept: bool = True


FIELDS: Mapping[str, FieldColumn] = {
    "uuid": FieldColumn("uuid", Exact(64)),
    "name": FieldColumn("name", Exact(MAX_TEXT)),
    "priority": FieldColumn("priority", sa.SmallInteger(), written=REPLACE),
    "sequence": FieldColumn("id", serial()),
    "key": FieldColumn("key", Exact(MAX_TEXT), nullable=True),
    "version": FieldColumn("version", sa.Integer(), written=REPLACE),
    "posting": FieldColumn("posting", LongText(), written=REPLACE),
    "state": FieldColumn("state", Exact(9), written=CHANGE, is_kept=False),
    "attempts": FieldColumn("attempts", sa.Integer(), written=CHANGE),
    "max_attempts": FieldColumn("max_attempts", sa.Integer(), nullable=True),
    "token": FieldColumn("token", sa.BigInteger(), written=CHANGE),
    "who": FieldColumn("who", Exact(MAX_TEXT), nullable=True, written=CHANGE),
    "keeper": FieldColumn("keeper", Exact(64), nullable=True, written=CHANGE, is_kept=False),
    "lock_until": FieldColumn("lock_until", sa.BigInteger(), nullable=True, written=CHANGE, is_kept=False),
    "created_on": FieldColumn("created_on", sa.BigInteger()),
    "modified_on": FieldColumn("modified_on", sa.BigInteger(), written=CHANGE),
    "errors": FieldColumn("errors", LongText(), nullable=True, written=CHANGE),
    "retries": FieldColumn("retries", sa.Integer(), written=CHANGE),
    "group": FieldColumn("job_group", Exact(MAX_TEXT), nullable=True),
    "key_until": FieldColumn("key_until", sa.BigInteger(), nullable=True, is_kept=False),
    "expires": FieldColumn("expires", sa.BigInteger(), nullable=True, written=CHANGE, is_kept=False),
    "note": FieldColumn("note", LongText(), nullable=True, written=CHANGE, is_kept=False),
}
"""The fields of a record, in its order."""

assert tuple(FIELDS) == Record._fields, "each field of a record has a column, in the order of the fields"

RECORD_COLUMNS = len(FIELDS)
"""The number of leading columns of the jobs' table that make a :class:`~jobboard.states.Record`, in its order. In the
rows of statements, the tag comes behind these columns, and then the time."""

DERIVED: Mapping[str, sa.types.TypeEngine[Any]] = {
    # The key of a live job: unique, which the keys of trashed jobs are not.
    "live_key": Exact(MAX_TEXT),
    # The instant at which a row next needs a look: indexed in the place of lock_until, which every heartbeat writes and
    # which no index may contain if those writes are to stay cheap.
    "wake_at": sa.BigInteger(),
    # When it went to the trash. An index by state would move with each claim.
    "gone_on": sa.BigInteger(),
}
"""Columns that follow from the record, and that every change writes."""

KEPT = {field: each.name for field, each in FIELDS.items() if each.is_kept}
"""The fields of a record that an outcome keeps, with their columns."""

OUTCOME_COLUMNS = (*KEPT.values(), "begun", "until", "result", "refused")
"""The columns of the outcomes' table beside the board's name."""

CHANGED = {field: each.name for field, each in FIELDS.items() if each.written == CHANGE}
"""The fields that a change of a job writes, with their columns."""

REPLACED = {field: each.name for field, each in FIELDS.items() if each.written == REPLACE}
"""The fields that another post brings, with their columns."""

INSERTED = {field: each.name for field, each in FIELDS.items() if field not in ("sequence", "keeper")}
"""The fields that a new job brings, with their columns."""

_TYPES = {each.name: each.type for each in FIELDS.values()} | dict(DERIVED)


def texts(database: str) -> dict[str, str]:
    """Return the lists of columns in the statements for a database, by their names."""
    changed, replaced = [*CHANGED.values(), *DERIVED], list(REPLACED.values())
    # A statement that consumes a job writes the time of the end itself.
    kept = [name for name in KEPT.values() if name != "modified_on"]
    inserted = [*INSERTED.values(), *DERIVED]
    return {
        "outcome_columns": _listed(OUTCOME_COLUMNS),
        "outcome_values": ", ".join(f":{name}" for name in OUTCOME_COLUMNS),
        "kept_at_an_end": _listed(kept),
        "kept_of_jobs": ", ".join(f"{{jobs}}.{_quoted(name)}" for name in kept),
        "inserted": _listed(inserted),
        "inserted_values": ", ".join(f":{name}" for name in inserted),
        "inserted_rows": ", ".join("{woken}" if name == "wake_at" else _quoted(name) for name in inserted),
        "inserted_types": ", ".join(_typed(name, database) for name in inserted),
        "change": ", ".join(_typed(name, database) for name in ("id", *changed, "was")),
        "changed": ", ".join(_assigned(name, database) for name in changed),
        "replacement": ", ".join(_typed(name, database) for name in replaced),
        "replaced": ", ".join(_assigned(name, database) for name in replaced),
    }


def _quoted(name: str) -> str:
    """Return a column as statements name it: MariaDB knows the word "key" by itself."""
    return "{key}" if name == "key" else name


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(_quoted, names))


def _assigned(name: str, database: str) -> str:
    if database == "sqlite":
        return f"{name} = :{name}"
    value = "{woken}" if name == "wake_at" else f"c.{name}"
    return f"j.{name} = {value}" if database == "mariadb" else f"{name} = {value}"


def _typed(name: str, database: str) -> str:
    """Return the declaration of a column in a list of rows that is written as JSON."""
    kind = _TYPES.get(name)
    if kind is None or isinstance(kind, sa.BigInteger) or name == "id":
        text = "bigint"
    elif isinstance(kind, sa.SmallInteger):
        text = "smallint"
    elif isinstance(kind, sa.Integer):
        text = "int"
    elif database == "mariadb":
        text = f"varchar({kind.length}) {{utf8}}" if isinstance(kind, Exact) else "longtext {utf8}"
    else:
        text = "text"
    return f"{name} {text} path '$.{name}'" if database == "mariadb" else f"{_quoted(name)} {text}"
