"""Statements that are compiled once."""

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.engine import Dialect

from jobboard.sql.prepared import Prepared, elements, param

ROWS = sa.table("things", sa.column("id"), sa.column("name"))
NAMED = Prepared(
    sa.select(ROWS.c.id).where(ROWS.c.id.in_(elements("ids", sa.types.NullType())), ROWS.c.name == param("name")),
    "p_ids",
)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_integers_are_written_into_the_text_for_mysql(count: int) -> None:
    text, values = NAMED.compiled(mysql.dialect(paramstyle="pyformat"), {"p_ids": range(count), "p_name": 5})
    assert f"things.id IN ({', '.join(map(str, range(count)))})" in text
    assert values == {"p_name": 5}


@pytest.mark.parametrize(
    ("dialect", "ids"),
    [
        (mysql.dialect(paramstyle="pyformat"), ["1) OR (1=1", 2]),
        (mysql.dialect(paramstyle="pyformat"), [True, 2]),
        (mysql.dialect(paramstyle="pyformat"), [1.5, 2]),
        (mysql.dialect(paramstyle="format"), [1, 2]),
        (postgresql.dialect(paramstyle="pyformat"), [1, 2]),
    ],
    ids=["text", "bool", "float", "by position", "another database"],
)
def test_all_else_goes_to_the_driver(dialect: Dialect, ids: list[object]) -> None:
    # Each dialect has a text of its own.
    text, values = Prepared(NAMED.statement, "p_ids").compiled(dialect, {"p_ids": ids, "p_name": 5})
    given = list(values.values() if isinstance(values, dict) else values)
    assert sorted(map(repr, given)) == sorted(map(repr, [*ids, 5]))
    assert text.count("%") == 3
