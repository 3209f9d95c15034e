"""What a rollback takes back, in objects as well as in rows."""

from __future__ import annotations

import datetime
from collections.abc import Callable

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from jobboard.exceptions import ClaimLost
from jobboard.orm import JobIgnoredError, Updates
from jobboard.testing import eventually
from tests.orm.models import Job, Picture, Status

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")
ENDINGS = pytest.mark.parametrize("end", [Session.rollback, Session.close], ids=["rolled back", "closed"])
SHORT = 0.05


@pytest.fixture
def picture(session: Session) -> Picture:
    picture = Picture()
    session.add(picture)
    session.commit()
    return picture


@pytest.fixture
def job(session: Session) -> Job:
    return Job.create_and_save(session, "job-1", Status.PENDING)


@ENDINGS
def test_rows_are_held_no_longer_than_before(
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


def test_what_was_only_held_by_its_name_is_so_again(session: Session, other: Session, picture: Picture) -> None:
    Picture.acquire(other, "anna")
    session.begin()
    assert Picture.reacquire(session, "anna").kept == [picture]
    session.rollback()
    assert picture.acquisition is None
    picture.done = True
    session.commit()


@ENDINGS
def test_rows_are_not_given_back(
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


def test_a_renewal_that_is_not_committed(
    engine: sa.Engine, session: Session, picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[bool] = []

    def refuse(connection: sa.Connection) -> None:
        refused.append(True)
        raise sa.exc.OperationalError("COMMIT", None, Exception("the connection is gone"))

    with Picture.acquiring(engine, "anna", timeout=1.5) as [mine]:
        sa.event.listen(engine, "commit", refuse)
        try:
            eventually(lambda: refused)
            eventually(lambda: mine.acquisition.expires_in() < 0.9)
        finally:
            sa.event.remove(engine, "commit", refuse)


@ENDINGS
def test_a_job_is_not_locked(session: Session, job: Job, end: Callable[[Session], None]) -> None:
    session.begin()
    job.lock_it(session, Status.IN_PROGRESS)
    end(session)
    session.add(job)
    job.update(session, Updates({"data": 1}))
    job.data = 2
    session.commit()
    assert (job.lock, job.status, job.data) == (None, 10, 2)


def test_a_job_is_locked_as_it_was_before(engine: sa.Engine, session: Session, job: Job) -> None:
    lock, _ = job.lock_it(session, Status.IN_PROGRESS)
    session.begin()
    job.lock_it(session, Status.IN_PROGRESS, expire=0)
    session.rollback()
    assert job.lock == lock
    job.data = 1
    session.commit()


def test_a_job_that_ended_as_it_began_is_not_locked(engine: sa.Engine, session: Session, job: Job) -> None:
    with engine.begin() as connection:
        long_ago = datetime.datetime(2000, 1, 1)  # noqa: DTZ001 - as the column has it
        connection.execute(sa.update(Job).values(lock="of the killed", lock_at=long_ago, status=Status.IN_PROGRESS))
    statuses = [Status.PENDING, Status.IN_PROGRESS, Status.FAILED, Status.SUCCEEDED, Status.IGNORED]
    with pytest.raises(JobIgnoredError), Job.start(session, "job-1", *statuses, expire=900, max_retry=1):
        pass
    job.update(session, Updates({"data": 1}))
    job.data = 2
    session.commit()


@pytest.mark.backends("postgresql", "mariadb")
def test_a_savepoint(session: Session, picture: Picture, job: Job) -> None:
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
        assert 50 < picture.acquisition.expires_in() < 60
        assert picture.acquired_until - picture.acquired_at == datetime.timedelta(seconds=60)


@pytest.mark.backends("postgresql", "mariadb")
def test_what_was_taken_back_with_a_savepoint_is_not_again(session: Session, other: Session, picture: Picture) -> None:
    Picture.acquire(session, "anna", timeout=60)
    with session.begin() as whole:
        with session.begin_nested() as savepoint:
            Picture.reacquire(session, "anna", [picture], timeout=600)
            savepoint.rollback()
        assert Picture.unacquire(other, "anna") == 1
        assert Picture.reacquire(session, "anna", [picture]).lost == [picture]
        whole.rollback()
    assert picture.acquisition.lost
