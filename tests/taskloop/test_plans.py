"""Query plans: a verb reads the ids that it takes, however many ids are locked, or not due yet."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")

ROWS = 9_000


@pytest.fixture
def full(make_loop: Callable[..., Any], backend: str) -> Any:
    """A third of the ids is locked, a third was updated a moment ago, and all but a few of the rest an hour ago."""
    loop = make_loop()
    third = ROWS // 3
    table = sa.table(loop.table, *(sa.column(name) for name in ("id", "last_updated", "lock_until")))
    now = 2_000_000_000
    rows = [{"id": i, "last_updated": 1_000_000 + i % 7, "lock_until": None} for i in range(third - 5)]
    rows += [{"id": i, "last_updated": None, "lock_until": None} for i in range(third - 5, third)]
    rows += [{"id": i, "last_updated": 10 * now, "lock_until": None} for i in range(third, 2 * third)]
    rows += [{"id": i, "last_updated": None, "lock_until": 10 * now + i} for i in range(2 * third, ROWS)]
    with loop.engine.begin() as connection:
        connection.execute(sa.insert(table), rows)
    analyze = {"postgresql": "VACUUM ANALYZE", "mariadb": "ANALYZE TABLE"}.get(backend)
    if analyze:
        with loop.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(sa.text(f"{analyze} {loop.table}"))
    return loop


def test_verbs_read_the_index_and_sort_nothing(full: Any, backend: str) -> None:
    explain = {"sqlite": "EXPLAIN QUERY PLAN ", "postgresql": "EXPLAIN "}.get(backend, "EXPLAIN FORMAT=JSON ")
    plans: list[str] = []

    def explained(connection: sa.Connection, cursor: Any, text: str, values: Any, *args: Any) -> None:
        if text.startswith(("SELECT", "UPDATE", "WITH", "DELETE")):
            with full.engine.connect() as other:
                explaining = other.connection.cursor()
                explaining.execute(explain + text, values)
                plans.append("\n".join(str(row[-1]) for row in explaining.fetchall()))

    full.get(5)
    sa.event.listen(full.engine, "before_cursor_execute", explained)
    try:
        taken = full.get(100)
        full.did(taken)
        full.bump(taken[:10])
        full.unlock(taken)
    finally:
        sa.event.remove(full.engine, "before_cursor_execute", explained)
    assert len(plans) >= 5
    for plan in plans:
        if backend == "sqlite":
            assert re.search(rf"SEARCH {full.table} USING", plan), plan
            assert "TEMP B-TREE" not in plan
        elif backend == "postgresql":
            assert f"Seq Scan on {full.table}" not in plan, plan
            assert "Sort" not in plan, plan
        else:
            nodes = json.loads(plan)
            # Of what the walk has found, as a join need not keep its order.
            assert all("<derived" in sort["table"]["table_name"] for sort in _nodes(nodes, "filesort")), plan
            tables = [table for table in _nodes(nodes, "table") if "<derived" not in table["table_name"]]
            assert {table["access_type"] for table in tables} <= {"range", "ref", "eq_ref", "const"}, plan


def _nodes(node: Any, name: str) -> list[Any]:
    """Return the parts of a plan that have this name, at any depth."""
    if isinstance(node, dict):
        found = [node[name]] if isinstance(node.get(name), dict) else []
        return found + [each for value in node.values() for each in _nodes(value, name)]
    return [each for value in node for each in _nodes(value, name)] if isinstance(node, list) else []
