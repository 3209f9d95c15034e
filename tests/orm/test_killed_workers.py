"""Workers on one table that are killed at any point, and replaced."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from jobboard.exceptions import ClaimLost
from jobboard.orm import JobAlreadySucceededError, JobLockedError, JobLostError
from jobboard.states import instant
from tests.orm.models import Done, Job, Picture, Status
from tests.support.killed_workers import Hold, KilledWorkers, held_by_two

pytestmark = [pytest.mark.backends("sqlite", "postgresql", "mariadb"), pytest.mark.xdist_group("processes")]

ROWS = 300
BATCH = 4
JOBS = 60
TIMEOUT = 0.5


@pytest.mark.rule("Killed workers lose no row and no tracked job.")
@pytest.mark.any_driver
def test_each_row_is_finished_once(engine: sa.Engine, tmp_path: Path) -> None:
    with Session(engine) as session:
        session.add_all([Picture() for _ in range(ROWS)])
        session.commit()

    def left() -> bool:
        with engine.connect() as connection:
            return bool(connection.scalar(sa.select(sa.exists(sa.select(Picture.id).where(~Picture.done)))))

    holds = KilledWorkers(work_on_pictures, engine, tmp_path).run(lambda: not left())
    assert held_by_two(holds) == []
    with Session(engine) as session:
        keys = set(session.scalars(sa.select(Picture.id)))
        finished = [int(key) for key in session.scalars(sa.select(Done.key))]
    assert sorted(finished) == sorted(keys)
    assert {hold.key for hold in holds} == keys


def work_on_pictures(engine: sa.Engine) -> Iterator[list[Hold]]:
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


@pytest.mark.any_driver
def test_each_job_succeeds(engine: sa.Engine, tmp_path: Path) -> None:
    with Session(engine) as session:
        session.add_all([Job.create(str(number), Status.PENDING) for number in range(JOBS)])
        session.commit()
    holds = KilledWorkers(work_on_jobs, engine, tmp_path).run(lambda: not unfinished(engine))
    assert held_by_two(holds) == []
    assert {hold.key for hold in holds} == set(range(JOBS))


def work_on_jobs(engine: sa.Engine) -> Iterator[list[Hold]]:
    while True:
        for id_ in unfinished(engine):
            try:
                with Job.start(engine, id_, *Status, expire=TIMEOUT, max_retry=JOBS) as (job, _):
                    begin = instant(job.lock_at.replace(tzinfo=datetime.UTC))
                    yield [Hold(int(id_), begin, begin + round(TIMEOUT * 1_000_000))]
            except (JobLockedError, JobLostError, JobAlreadySucceededError):
                continue
        yield []


def unfinished(engine: sa.Engine) -> list[str]:
    with Session(engine) as session:
        return list(session.scalars(sa.select(Job.id).where(Job.status != Status.SUCCEEDED.value)))
