"""Rollbacks undo acquisitions, renewals, returns and locks in objects as in rows, also rollbacks to savepoints."""

from __future__ import annotations

import datetime
from collections.abc import Callable

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from jobboard.exceptions import ClaimLost
from jobboard.orm import JobIgnoredError, Updates
from jobboard.testing import eventually
from jobboard.testing.conformance.support import HELD, SHORT
from tests.orm.models import Job, Picture, Status
from tests.orm.rows import ids

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")
SERVERS = pytest.mark.backends("postgresql", "mariadb")
ONE = pytest.mark.backends("sqlite")
ENDINGS = pytest.mark.parametrize("end", [Session.rollback, Session.close], ids=["rolled back", "closed"])


@pytest.fixture
def picture(session: Session) -> Picture:
    picture = Picture()
    session.add(picture)
    session.commit()
    return picture


@pytest.fixture
def job(session: Session) -> Job:
    return Job.create_and_save(session, "job-1", Status.PENDING)


@ONE
def test_a_rollback_undoes_an_acquisition(session: Session, picture: Picture) -> None:
    session.begin()
    assert Picture.acquire(session, "anna") == [picture]
    session.rollback()
    assert picture.acquisition.lost
    picture.done = True
    with pytest.raises(ClaimLost):
        session.commit()


@pytest.mark.rule("Renewals and locks are taken back with their transaction.")
@ENDINGS
def test_a_rollback_undoes_a_renewal(
    session: Session, other: Session, picture: Picture, end: Callable[[Session], None]
) -> None:
    assert Picture.acquire(session, "anna", timeout=SHORT) == [picture]
    session.begin()
    Picture.reacquire(session, "anna", [picture], timeout=600)
    assert picture.acquisition.expires_in() > 500
    end(session)
    assert picture.acquisition.expires_in() < SHORT
    eventually(lambda: len(Picture.acquire(other, "bert")) == 1)
    assert picture.acquisition.lost


@ENDINGS
def test_a_rollback_undoes_a_return(
    session: Session, other: Session, picture: Picture, end: Callable[[Session], None]
) -> None:
    Picture.acquire(session, "anna", timeout=SHORT)
    session.begin()
    Picture.unacquire(session, "anna", [picture])
    end(session)
    eventually(lambda: len(Picture.acquire(other, "bert")) == 1)
    session.add(picture)
    picture.done = True
    with pytest.raises(ClaimLost):
        session.commit()


@ONE
def test_a_rollback_undoes_a_hold_by_name(session: Session, other: Session, picture: Picture) -> None:
    Picture.acquire(other, "anna")
    session.begin()
    assert Picture.reacquire(session, "anna").kept == [picture]
    session.rollback()
    assert picture.acquisition is None
    picture.done = True
    session.commit()


@pytest.mark.rule("Renewals and locks are taken back with their transaction.")
@ONE
def test_a_renewal_that_is_not_committed_prolongs_nothing(engine: sa.Engine, picture: Picture) -> None:
    refused: list[bool] = []

    def refuse(connection: sa.Connection) -> None:
        refused.append(True)
        raise sa.exc.OperationalError("COMMIT", None, Exception("the connection is gone"))

    with Picture.acquiring(engine, "anna", timeout=HELD) as [mine]:
        sa.event.listen(engine, "commit", refuse)
        try:
            eventually(lambda: refused)
            eventually(lambda: mine.acquisition.expires_in() < HELD / 2)
        finally:
            sa.event.remove(engine, "commit", refuse)


# Savepoints, which SQLite's driver does not keep to


@pytest.mark.rule("A savepoint that is rolled back undoes its own acquisitions alone.")
@SERVERS
def test_a_savepoint_undoes_its_own_acquisitions_and_returns_alone(session: Session, other: Session) -> None:
    session.add_all([Picture() for _ in range(4)])
    session.commit()
    [kept] = Picture.acquire(session, "anna", limit=1)
    with session.begin():
        [mine, back] = Picture.acquire(session, "anna", limit=2)
        Picture.unacquire(session, "anna", [back])
        with session.begin_nested():
            [more] = Picture.acquire(session, "anna", limit=1, order_by=Picture.id.desc())
        with session.begin_nested() as savepoint:
            Picture.unacquire(session, "anna", [kept, mine])
            savepoint.rollback()
        back.done = mine.done = more.done = True
        assert not mine.acquisition.lost
        assert back.acquisition is None
    assert set(ids(Picture.acquired(other, "anna"))) == {kept.id, mine.id, more.id}
    assert kept.acquisition is not None
    session.commit()
    with session.begin():
        with session.begin_nested():
            Picture.unacquire(session, "anna", [kept])
        session.rollback()
    assert kept.acquisition is not None


@SERVERS
def test_a_savepoint_restores_the_attributes_of_objects(session: Session, picture: Picture, job: Job) -> None:
    with session.begin():
        with session.begin_nested() as savepoint:
            Picture.acquire(session, "anna")
            job.lock_it(session, Status.IN_PROGRESS)
            savepoint.rollback()
        assert (picture.acquired_by, picture.acquired_until, picture.acquired_token) == (None, None, 0)
        assert (job.lock, job.status) == (None, 10)
        job.update(session, Updates({"data": 1}))
        Picture.acquire(session, "anna", timeout=60)
        with session.begin_nested() as savepoint:
            Picture.reacquire(session, "anna", [picture], timeout=600)
            Picture.unacquire(session, "anna", [picture])
            savepoint.rollback()
        assert picture.acquired_by == "anna"
        assert picture.acquisition.expires_in() < 60
        assert picture.acquired_until - picture.acquired_at == datetime.timedelta(seconds=60)


@pytest.mark.rule("What was taken back with a savepoint is not taken back again.")
@SERVERS
def test_a_rollback_does_not_repeat_that_of_its_savepoint(session: Session, other: Session, picture: Picture) -> None:
    Picture.acquire(session, "anna", timeout=60)
    with session.begin() as whole:
        with session.begin_nested() as savepoint:
            Picture.reacquire(session, "anna", [picture], timeout=600)
            savepoint.rollback()
        assert Picture.unacquire(other, "anna") == 1
        assert Picture.reacquire(session, "anna", [picture]).lost == [picture]
        whole.rollback()
    assert picture.acquisition.lost


# Tracked jobs


@pytest.mark.rule("Renewals and locks are taken back with their transaction.")
@ENDINGS
def test_a_rollback_undoes_a_lock(session: Session, job: Job, end: Callable[[Session], None]) -> None:
    session.begin()
    job.lock_it(session, Status.IN_PROGRESS)
    end(session)
    session.add(job)
    job.update(session, Updates({"data": 1}))
    job.data = 2
    session.commit()
    assert (job.lock, job.status, job.data) == (None, 10, 2)


@ONE
def test_a_rollback_restores_the_earlier_lock(session: Session, job: Job) -> None:
    lock, _ = job.lock_it(session, Status.IN_PROGRESS)
    session.begin()
    job.lock_it(session, Status.IN_PROGRESS, expire=0)
    session.rollback()
    assert job.lock == lock
    job.data = 1
    session.commit()


@ONE
def test_a_job_that_is_ignored_at_its_start_is_not_locked(engine: sa.Engine, session: Session, job: Job) -> None:
    with engine.begin() as connection:
        long_ago = datetime.datetime(2000, 1, 1)  # noqa: DTZ001 - as the column has it
        connection.execute(sa.update(Job).values(lock="of the killed", lock_at=long_ago, status=Status.IN_PROGRESS))
    with pytest.raises(JobIgnoredError), Job.start(session, "job-1", *Status, expire=900, max_retry=1):
        pass
    job.update(session, Updates({"data": 1}))
    job.data = 2
    session.commit()
