"""What MariaDB's compound statements are put together from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from jobboard.backends.sql.statements import Statements, now
from jobboard.sql.hints import PRIMARY, by_index
from jobboard.sql.prepared import Compound, Prepared, param, text

ALL = """IF ROW_COUNT() <> %(p_count)s THEN
  SIGNAL SQLSTATE '23000' SET MYSQL_ERRNO = 1062, MESSAGE_TEXT = 'not all of these claims stand';
END IF;"""


def kept(st: Statements, answer: sa.ColumnElement[str] | None = None) -> Sequence[Prepared | str]:
    """Keep the answer of a call, in a parameter unless said otherwise. It comes before what locks: in this order a
    repetition locks, too."""
    again, first = st.answering(text("answer") if answer is None else answer)
    return again, "IF ROW_COUNT() = 0 THEN", first, "END IF;"


def committed(st: Statements, *parts: Prepared | str, lists: Sequence[str] = ()) -> Compound:
    """A mutation that keeps its answer, and commits."""
    return Compound(*kept(st), *parts, "COMMIT;", lists=lists)


def as_text(st: Statements, instant: sa.ColumnElement[Any] = now) -> sa.ColumnElement[str]:
    """A row and the time as one text: to tell of each column costs the server and the driver more."""
    # Of columns with different collations it takes none unless it is told of one.
    uuid, *rest = st.tables.record
    return sa.func.json_array(sa.collate(uuid, "utf8mb4_bin"), *rest, instant)


def into(variables: str, *values: Any, of: sa.FromClause | None = None) -> Prepared:
    """Select one row into variables."""
    select = sa.select(*values).suffix_with(f"INTO {variables}")
    return Prepared(select if of is None else select.select_from(of))


def variable(name: str, type_: Any = None) -> sa.ColumnElement[Any]:
    return sa.literal_column(name, type_)


_IDS = "JSON_TABLE(:p_ids, '$[*]' COLUMNS (id BIGINT PATH '$')) AS found"


def first_of(st: Statements, select: sa.Select[Any], ids: sa.TextClause | None = None) -> sa.Select[Any]:
    """The first rows in the order of ``p_ids``, and no more of them than are wanted: to sort them would be to lock them
    all.

    :param ids: others than those.
    """
    source = sa.text(_IDS).bindparams(text("ids")) if ids is None else ids
    chosen = (
        select.prefix_with("STRAIGHT_JOIN").select_from(source, st.jobs).where(st.jobs.c.id == variable("found.id"))
    )
    return by_index(chosen.limit(param("limit", sa.Integer())), st.jobs, PRIMARY)
