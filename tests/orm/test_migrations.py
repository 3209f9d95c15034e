"""What a migration names that was generated from a user's classes."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

import jobboard.orm
from tests.orm.models import Job, Picture

TYPES: list[Any] = [column.type for model in (Job, Picture) for column in sa.inspect(model).columns]
OURS = {f"jobboard.orm.{each!r}": each for each in TYPES if not type(each).__module__.startswith("sqlalchemy.")}


def test_these_are_all() -> None:
    assert sorted(OURS) == ["jobboard.orm.Exact(length=255)", "jobboard.orm.Moment()"]


@pytest.mark.parametrize("named", sorted(OURS))
def test_a_type_is_written_down_by_a_public_name(named: str) -> None:
    again = eval(named, {"jobboard": jobboard})
    assert type(again).__name__ in jobboard.orm.__all__
    dialects: list[sa.Dialect] = [sqlite.dialect(), postgresql.dialect(), mysql.dialect()]
    for dialect in dialects:
        assert again.compile(dialect) == OURS[named].compile(dialect)
