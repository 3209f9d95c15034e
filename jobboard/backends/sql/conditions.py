"""Conditions of callers, ``where=``, as texts that a statement takes in."""

from __future__ import annotations

import copy
import re
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect

GIVEN = "given_"
"""The prefix of the names of a caller's parameters. No statement has names with it."""


def condition_text(where: Any, table: sa.Table, dialect: Dialect) -> tuple[str, dict[str, Any]]:
    """Return the text of a condition on a table, with ``:name`` in place of its values, and the values.

    :raises TypeError: ``where`` is no condition.
    """
    try:
        # Within a statement, so that a condition on other tables finds this one outside of itself.
        select: sa.Select[Any] = sa.select(sa.literal_column("1")).select_from(table).where(where)
    except sa.exc.ArgumentError as error:
        raise TypeError(f"where= must be a condition on board.table, not {where!r}") from error
    named: Any = copy.copy(dialect)
    named.paramstyle, named.positional = "named", False
    named.identifier_preparer = named.preparer(named)
    compiled: Any = select.compile(dialect=named, compile_kwargs={"render_postcompile": True})
    _, _, text = str(compiled).partition("WHERE ")
    try:
        values = dict(compiled.construct_params())
    except sa.exc.InvalidRequestError as error:
        raise TypeError(f"where= has a parameter without a value: {error}") from error
    for name, bind in compiled.binds.items():
        processor = bind.type.dialect_impl(named).bind_processor(named)
        if processor is not None and name in values:
            values[name] = processor(values[name])
    for name in values:
        text = re.sub(rf"(?<![:\w]):{re.escape(name)}\b", f":{GIVEN}{name}", text)
    return text, {f"{GIVEN}{name}": value for name, value in values.items()}
