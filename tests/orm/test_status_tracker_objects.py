"""Tracked jobs by objects that this process has made, not loaded, as sqlalchemy_mate's users do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import Session

from jobboard.orm import JobLockedError, JobLostError, JobNotFoundError, Updates
from tests.orm.models import Job, ShardJob, Word
from tests.orm.test_status_tracker import start, stored

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")


def test_an_object_that_create_made_locks_and_updates_the_stored_job(engine: sa.Engine) -> None:
    Job.create_and_save(engine, "job-1", 10, {"n": 1})
    job = Job.create("job-1", 10)
    job.update(engine, Updates({"data": {"n": 2}}))
    assert (job.data, stored(engine).data) == ({"n": 2}, {"n": 2})
    lock, lock_at = job.lock_it(engine, 20)
    assert (job.status, job.lock, job.lock_at) == (20, lock, lock_at)
    assert (stored(engine).status, stored(engine).lock) == (20, lock)
    with pytest.raises(JobLockedError, match="Job 'job-1' is locked"):
        Job.create("job-1", 10).lock_it(engine, 20)


def test_it_is_fenced_as_a_loaded_one_is(engine: sa.Engine) -> None:
    Job.create_and_save(engine, "job-1", 10)
    job = Job.create("job-1", 10)
    job.lock_it(engine, 20)
    Job.create("job-1", 10).lock_it(engine, 20, expire=0)
    with pytest.raises(JobLostError, match="'job-1'"):
        job.update(engine, Updates({"data": 1}))
    assert stored(engine).data is None


@pytest.mark.parametrize("autoflush", [True, False])
@pytest.mark.parametrize("verb", ["lock_it", "update"])
def test_a_job_that_was_added_to_the_session_is_stored_before(engine: sa.Engine, verb: str, autoflush: bool) -> None:
    with Session(engine, autoflush=autoflush) as session:
        job = Job.create("job-1", 10)
        session.add(job)
        if verb == "lock_it":
            job.lock_it(session, 20)
        else:
            job.update(session, Updates({"data": [1]}))
        session.commit()
        assert (job.status, job.data) == ((20, None) if verb == "lock_it" else (10, [1]))
    assert (stored(engine).status, stored(engine).data) == ((20, None) if verb == "lock_it" else (10, [1]))


def test_a_job_that_nobody_has_stored_is_not_found(engine: sa.Engine) -> None:
    job = Job.create("job-1", 10)
    with pytest.raises(JobNotFoundError, match="'job-1'"):
        job.lock_it(engine, 20)
    with pytest.raises(JobNotFoundError, match="'job-1'"):
        job.update(engine, Updates({"data": 1}))
    with pytest.raises(ValueError, match="Job has no id yet: set it"):
        Job(status=10).lock_it(engine, 20)


def test_a_key_of_several_columns(engine: sa.Engine) -> None:
    ShardJob.create_and_save(engine, (1, "job-1"), Word.PENDING)
    job = ShardJob.create((1, "job-1"), Word.PENDING)
    job.lock_it(engine, Word.IN_PROGRESS)
    assert stored(engine, (1, "job-1"), ShardJob).status is Word.IN_PROGRESS


def test_on_an_async_engine(engine: sa.Engine, with_async: Callable[..., Any]) -> None:
    Job.create_and_save(engine, "job-1", 10)

    async def main(async_engine: AsyncEngine) -> None:
        job = Job.create("job-1", 10)
        await job.lock_it(async_engine, 20)
        await job.update(async_engine, Updates({"data": 1}))

    with_async(main)
    assert (stored(engine).status, stored(engine).data) == (20, 1)


@pytest.mark.backends("mariadb")
def test_what_an_update_does_not_change_is_there_nevertheless(engine: sa.Engine) -> None:
    """On connections of the caller's that count what was changed."""
    import pymysql

    url = engine.url
    raw = lambda: pymysql.connect(host=url.host, port=url.port, user=url.username, database=url.database)  # noqa: E731
    changed = sa.create_engine("mariadb+pymysql://", creator=raw)
    job = Job.create_and_save(changed, "job-1", 10, {"n": 1})
    job.update(changed, Updates({"data": {"n": 1}}))
    job.lock_it(changed, 20)
    job.update(changed, Updates({"data": {"n": 1}}))
    with pytest.raises(JobNotFoundError):
        Job.create("job-2", 10).update(changed, Updates({"data": 1}))
    changed.dispose()


@pytest.mark.parametrize("committed", [True, False])
def test_a_block_may_delete_its_job(engine: sa.Engine, committed: bool) -> None:
    Job.create_and_save(engine, "job-1", 10)
    with Session(engine) as session:
        with start(session) as (job, _):
            session.delete(job)
            if committed:
                session.commit()
        assert session.get(Job, "job-1") is None


def test_a_block_that_fails_has_not_deleted_its_job(engine: sa.Engine) -> None:
    Job.create_and_save(engine, "job-1", 10)
    with Session(engine) as session, start(session, skip_error=True) as (job, _):
        session.delete(job)
        session.flush()
        raise ValueError
    assert (stored(engine).status, stored(engine).lock, stored(engine).retry) == (30, None, 1)


def test_only_its_holder_deletes_a_job(engine: sa.Engine) -> None:
    def overtaken(session: Session) -> None:
        with start(session) as (job, _):
            Job.create("job-1", 10).lock_it(engine, 20, expire=0)
            session.delete(job)

    Job.create_and_save(engine, "job-1", 10)
    with Session(engine) as session, pytest.raises(JobLostError, match="another took it"):
        overtaken(session)
    assert stored(engine).status == 20
