"""Workers on one table that are killed at any point, and replaced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from jobboard.exceptions import ClaimLost
from jobboard.job import instant
from tests.mortals import Hold, Mortals, held_by_two
from tests.orm.models import Done, Picture

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")

ROWS = 300
BATCH = 4
TIMEOUT = 0.5


def test_each_row_is_finished_once(engine: sa.Engine, tmp_path: Path) -> None:
    with Session(engine) as session:
        session.add_all([Picture() for _ in range(ROWS)])
        session.commit()

    def left() -> bool:
        with engine.connect() as connection:
            return bool(connection.scalar(sa.select(sa.exists(sa.select(Picture.id).where(~Picture.done)))))

    holds = Mortals(work, engine, tmp_path).run(lambda: not left())
    assert held_by_two(holds) == []
    with Session(engine) as session:
        keys = set(session.scalars(sa.select(Picture.id)))
        finished = [int(key) for key in session.scalars(sa.select(Done.key))]
    assert sorted(finished) == sorted(keys)
    assert {hold.key for hold in holds} == keys


def work(engine: sa.Engine) -> Iterator[list[Hold]]:
    with Session(engine, expire_on_commit=False) as session:
        while True:
            pictures = Picture.acquire(session, "anybody", where=~Picture.done, limit=BATCH, timeout=TIMEOUT)
            yield [Hold(each.id, instant(each.acquired_at), instant(each.acquired_until)) for each in pictures]
            for picture in pictures:
                picture.done = True
                session.add(Done(key=str(picture.id), who="anybody", token=picture.acquisition.token))
            try:
                session.commit()
            except (ClaimLost, sa.exc.OperationalError):
                # The rows were lost, or this transaction against another.
                session.rollback()
