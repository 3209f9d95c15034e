"""Ten processes on one table, on databases at their default isolation, which is REPEATABLE READ on MariaDB."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from tests.orm import workers
from tests.orm.models import Done, Job, Picture, Status

pytestmark = [pytest.mark.backends("sqlite", "postgresql", "mariadb"), pytest.mark.xdist_group("processes")]


@pytest.fixture(autouse=True)
def _by_default(engine: sa.Engine, backend: str) -> None:
    with engine.connect() as connection:
        if backend == "mariadb":
            assert connection.get_isolation_level() == "REPEATABLE READ"


@pytest.mark.any_driver
def test_ten_processes_share_claimable_rows(engine: sa.Engine) -> None:
    with Session(engine) as session:
        session.add_all([Picture(rank=number % 3) for number in range(60)])
        session.commit()
        workers.run(workers.work_on_pictures, engine)
        pictures = session.scalars(sa.select(Picture)).all()
        done = session.scalars(sa.select(Done)).all()
    assert all(picture.done and picture.acquired_by is None for picture in pictures)
    assert sorted(int(each.key) for each in done) == sorted(picture.id for picture in pictures)
    assert {each.token for each in done} == {1}
    assert len({each.who for each in done}) > 1


@pytest.mark.any_driver
def test_ten_processes_share_tracked_rows(engine: sa.Engine) -> None:
    with Session(engine) as session:
        session.add_all([Job.create(f"job-{number}", Status.PENDING, data=[]) for number in range(30)])
        session.commit()
        workers.run(workers.work_on_jobs, engine)
        jobs = session.scalars(sa.select(Job)).all()
    assert {(job.status, job.lock, len(job.data)) for job in jobs} == {(40, None, 1)}
    assert len({job.data[0] for job in jobs}) > 1
