"""Which index MySQL and MariaDB are to use; no other database reads these hints."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

PRIMARY = "PRIMARY"
"""What MySQL calls the index of the primary key."""


def by_index(statement: sa.Select[Any], table: sa.FromClause, index: str) -> sa.Select[Any]:
    """Have it walk along an index, where statistics could talk the optimiser out of it: a sort locks all that it reads,
    and a walk along another index meets rows that do not belong."""
    hint = f"FORCE INDEX ({index})"
    return statement.with_hint(table, hint, "mysql").with_hint(table, hint, "mariadb")


def delete_by_index(change: sa.Delete, table: sa.Table, index: str) -> sa.Delete:
    """As :func:`by_index`, by another one than the primary key: beside dead rows MariaDB reads the whole table then."""
    hint = f"FORCE INDEX ({index})"
    name: sa.ColumnClause[Any] = sa.column(table.name)
    for dialect in ("mysql", "mariadb"):
        change = change.prefix_with(name, dialect=dialect).with_hint(hint, table, dialect)
    return change


def by_key(change: sa.Update, table: sa.Table) -> sa.Update:
    """Have an update find rows by the primary key: a small table is read as a whole, and stays locked as a whole until
    a transaction at REPEATABLE READ ends."""
    hint = f"FORCE INDEX ({PRIMARY})"
    return change.with_hint(hint, table, "mysql").with_hint(hint, table, "mariadb")
