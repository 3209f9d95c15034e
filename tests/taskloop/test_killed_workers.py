"""Workers on one loop that are killed at any moment, and replaced."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard.exceptions import JobFailure
from jobboard.taskloop import IdsLost, TaskLoop
from tests.support.killed_workers import Hold, KilledWorkers, held_by_two

pytestmark = [pytest.mark.backends("sqlite", "postgresql", "mariadb"), pytest.mark.xdist_group("processes")]

IDS = 300
BATCH = 5
LOCK = 1
"""The seconds for which ids are locked, and then rest. Nobody may get an id earlier, done or not."""
SECOND = 1_000_000


def test_no_id_is_held_by_two_or_left_behind(make_loop: Callable[..., Any], engine: sa.Engine, tmp_path: Path) -> None:
    loop = make_loop(*range(IDS))
    table = sa.table(loop.table, sa.column("id"), sa.column("lock_until"))

    def work(engine: sa.Engine) -> Iterator[list[Hold]]:
        with engine.connect() as connection:
            mine = TaskLoop(connection, loop.table)
            while True:
                try:
                    with connection.begin():
                        held = mine.get(BATCH, LOCK, LOCK, who="anybody")
                        until = dict(connection.execute(sa.select(table).where(table.c.id.in_(held))).all())
                except JobFailure:
                    # It lost against another transaction.
                    continue
                yield [Hold(id_, token, until[id_] * SECOND) for id_, token in held.tokens.items()]
                try:
                    mine.did(held, strict=True)
                except IdsLost:
                    continue

    holds = KilledWorkers(work, engine, tmp_path).run(lambda: all(updated for updated, _ in loop.rows().values()))
    assert held_by_two(holds) == []
    assert {hold.key for hold in holds} == set(range(IDS))
