"""Types of columns in migrations that were generated from a user's classes."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

import jobboard.orm
from tests.orm.models import Job, Picture

TYPES: list[Any] = [column.type for model in (Job, Picture) for column in sa.inspect(model).columns]
OURS = {f"jobboard.orm.{each!r}": each for each in TYPES if not type(each).__module__.startswith("sqlalchemy.")}


@pytest.mark.rule("Columns have public names in migrations.")
def test_migrations_write_types_by_public_names() -> None:
    assert sorted(OURS) == ["jobboard.orm.Exact(length=255)", "jobboard.orm.Moment()"]
    dialects: list[sa.Dialect] = [sqlite.dialect(), postgresql.dialect(), mysql.dialect()]
    for name, ours in OURS.items():
        again = eval(name, {"jobboard": jobboard})
        assert type(again).__name__ in jobboard.orm.__all__
        assert [again.compile(each) for each in dialects] == [ours.compile(each) for each in dialects]
