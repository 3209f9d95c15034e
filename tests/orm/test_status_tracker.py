"""Tracked rows: the rules of sqlalchemy_mate's status tracker, and its faults that are gone."""

from __future__ import annotations

import asyncio
import datetime
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from jobboard import runtime
from jobboard.exceptions import ClaimLost, JobFailure, NotFound, UnclaimableJob
from jobboard.orm import (
    JobAlreadySucceededError,
    JobExecutionError,
    JobIgnoredError,
    JobIsNotReadyToStartError,
    JobLockedError,
    JobLostError,
    JobNotFoundError,
    Updates,
)
from tests.orm.models import Done, Job, ShardJob, Status, Word

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")

LONG_AGO = datetime.datetime(2000, 1, 1)  # noqa: DTZ001 - as the column has it
ONE = pytest.mark.backends("sqlite")


def start(target: Any, id_: Any = "job-1", of: type[Any] = Job, statuses: Any = Status, **options: Any) -> Any:
    return of.start(
        target,
        id_,
        pending_status=statuses.PENDING,
        in_progress_status=statuses.IN_PROGRESS,
        failed_status=statuses.FAILED,
        succeeded_status=statuses.SUCCEEDED,
        ignored_status=statuses.IGNORED,
        **{"expire": 900, "max_retry": 3, **options},
    )


def fail(target: Any, error: BaseException, **options: Any) -> None:
    with start(target, **options):
        raise error


def succeed(target: Any, **options: Any) -> None:
    with start(target, **options):
        pass


def stored(engine: sa.Engine, id_: Any = "job-1", of: type[Any] = Job) -> Any:
    with Session(engine) as session:
        job = session.get(of, id_)
        assert job is not None
        session.expunge(job)
        return job


def let_expire(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        connection.execute(sa.update(Job).values(lock_at=LONG_AGO))


@pytest.fixture
def job(engine: sa.Engine) -> Job:
    return Job.create_and_save(engine, "job-1", Status.PENDING, data={"version": 1})


@ONE
def test_create_returns_a_job_that_is_not_stored(session: Session) -> None:
    job = Job.create(id="job-1", status=10, data={"version": 1})
    assert (job.id, job.status, job.data, job.lock, job.retry, job.errors) == ("job-1", 10, {"version": 1}, None, 0, {})
    assert session.get(Job, "job-1") is None
    session.add(job)
    session.commit()
    assert job.create_at == job.update_at > LONG_AGO
    assert job.lock_at == datetime.datetime(1970, 1, 1)  # noqa: DTZ001


@ONE
def test_create_and_save_stores_a_job(engine: sa.Engine, session: Session) -> None:
    by_engine = Job.create_and_save(engine, id="job-1", status=10)
    by_session = Job.create_and_save(session, "job-2", Status.PENDING, {"version": 2})
    assert by_engine.update_at > LONG_AGO
    assert not session.in_transaction()
    assert [stored(engine, job.id).status for job in (by_engine, by_session)] == [10, 10]
    with pytest.raises(sa.exc.IntegrityError):
        Job.create_and_save(engine, "job-1", 10)


def test_a_locked_job_cannot_be_locked_again(engine: sa.Engine, session: Session, job: Job) -> None:
    assert not job.is_locked(expire=900)
    lock, lock_at = job.lock_it(engine, Status.IN_PROGRESS, debug=True)
    assert (job.lock, job.lock_at, job.status) == (lock, lock_at, 20)
    assert stored(engine).lock == lock
    assert job.is_locked(expire=900)
    assert not job.is_locked(expire=0)
    mine = session.get(Job, "job-1")
    session.commit()
    for verb in (lambda: mine.lock_it(session, 20), lambda: job.lock_it(engine, 20, expire=900)):
        with pytest.raises(JobLockedError, match="Job 'job-1' is locked"):
            verb()


def test_a_success_writes_the_updates(engine: sa.Engine, job: Job) -> None:
    with start(engine, debug=True) as (mine, updates):
        assert mine.data == {"version": 1}
        assert (mine.status, stored(engine).status) == (20, 20)
        assert mine.lock is not None
        updates.set(key="data", value={"version": 2})
    for seen in (mine, stored(engine)):
        assert (seen.status, seen.data, seen.lock, seen.retry) == (40, {"version": 2}, None, 0)
        assert seen.update_at > job.update_at


SHOWING = """
import sqlalchemy as sa
from tests.orm.models import Base, Job

engine = sa.create_engine("sqlite:///jobs.db")
Base.metadata.create_all(engine)
Job.create_and_save(engine, "job-1", 10)
for debug in (True, False):
    with Job.start(engine, "job-1", 10, 20, 30, 40, 50, expire=900, max_retry=3, more_pending_status=40, debug=debug):
        pass
"""


@pytest.mark.rule("A tracked run with debug shows itself without logging set up.")
@ONE
def test_debug_shows_the_run_without_logging_set_up(tmp_path: Path) -> None:
    # pytest sets logging up in its own process.
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    program = [sys.executable, "-c", SHOWING]
    run = subprocess.run(program, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout == ""
    assert run.stderr.splitlines() == ["Job 'job-1' started", "Job 'job-1' ended with status 40"]


@ONE
def test_a_failure_stores_the_error_and_the_traceback(engine: sa.Engine, job: Job) -> None:
    with pytest.raises(ValueError, match="no picture"):
        fail(engine, ValueError("no picture"))
    after = stored(engine)
    assert (after.status, after.lock, after.retry) == (30, None, 1)
    assert after.errors.keys() == {"error", "traceback"}
    assert after.errors["error"] == "ValueError('no picture')"
    assert "in fail\n" in after.errors["traceback"]
    fail(engine, ValueError("no picture"), traceback_stack_limit=1, skip_error=True)
    assert "in fail\n" not in stored(engine).errors["traceback"]


@pytest.mark.rule("No text of an error, nor an error that cannot be shown, keeps a tracked job locked.")
def test_no_text_of_an_error_keeps_the_job_locked(engine: sa.Engine, job: Job) -> None:
    fail(engine, ValueError("first\ud800 \0" + 16 * 1024 * "x" + "last"), skip_error=True)
    after = stored(engine)
    assert (after.status, after.lock) == (30, None)
    for text in after.errors.values():
        assert len(text) == 16 * 1024
        assert "first" not in text
        assert "last" in text
    fail(engine, ValueError("\ud800 \0"), skip_error=True)
    assert stored(engine).errors["traceback"].endswith("ValueError: ? \ufffd\n")


@pytest.mark.rule("No text of an error, nor an error that cannot be shown, keeps a tracked job locked.")
@ONE
def test_an_error_that_cannot_be_shown_ends_the_job_all_the_same(engine: sa.Engine, job: Job) -> None:
    class Mute(Exception):
        def __repr__(self) -> str:
            raise AttributeError("no picture")

    fail(engine, Mute(), skip_error=True)
    after = stored(engine)
    assert (after.status, after.lock) == (30, None)
    assert "Mute object" in after.errors["error"]


@ONE
def test_skip_error_hides_errors_of_the_block_alone(engine: sa.Engine, job: Job) -> None:
    with start(engine, skip_error=True) as (failed, _):
        raise ValueError("no picture")
    assert (failed.status, failed.errors["error"]) == (30, "ValueError('no picture')")
    with (
        pytest.raises((TypeError, sa.exc.StatementError), match="JSON serializable"),
        start(engine, skip_error=True) as (_, updates),
    ):
        updates.set("data", object())
    assert (stored(engine).status, stored(engine).retry) == (30, 2)
    with start(engine), pytest.raises(JobLockedError):
        succeed(engine, skip_error=True)


def test_a_job_that_fails_too_often_is_ignored(engine: sa.Engine, job: Job) -> None:
    seen = []
    for _ in range(3):
        fail(engine, ValueError("no picture"), skip_error=True)
        seen.append((stored(engine).status, stored(engine).retry))
    assert seen == [(30, 1), (30, 2), (50, 3)]
    with pytest.raises(JobIgnoredError, match="failed 3 times and is ignored; more_pending_status=50 lets it"):
        succeed(engine)


@ONE
def test_a_success_sets_retry_to_zero(engine: sa.Engine, job: Job) -> None:
    fail(engine, ValueError("no picture"), skip_error=True)
    succeed(engine)
    assert (stored(engine).status, stored(engine).retry) == (40, 0)
    with pytest.raises(JobAlreadySucceededError, match="more_pending_status=40 lets it start"):
        succeed(engine)


@ONE
@pytest.mark.parametrize("more", [60, [60], [70, 60], (60,)])
def test_more_pending_status_is_one_or_several(engine: sa.Engine, more: Any) -> None:
    Job.create_and_save(engine, "job-1", 60)
    with pytest.raises(JobIsNotReadyToStartError, match=r"status 60, and may start from .*; more_pending_status=60"):
        succeed(engine)
    succeed(engine, more_pending_status=more)
    assert stored(engine).status == 40


@pytest.mark.rule("more_pending_status forces an ended job to run again.")
@ONE
@pytest.mark.parametrize("ended", [Status.SUCCEEDED, Status.IGNORED])
def test_more_pending_status_forces_an_ended_job_to_run_again(engine: sa.Engine, ended: Status) -> None:
    Job.create_and_save(engine, "job-1", ended)
    with pytest.raises(JobIsNotReadyToStartError):
        succeed(engine)
    with pytest.raises(KeyboardInterrupt):
        fail(engine, KeyboardInterrupt(), more_pending_status=ended)
    assert stored(engine).status == ended
    succeed(engine, more_pending_status=[ended])
    assert stored(engine).status == Status.SUCCEEDED


@ONE
def test_errors_are_of_both_trees() -> None:
    assert issubclass(JobLockedError, JobExecutionError)
    assert issubclass(JobAlreadySucceededError, JobIsNotReadyToStartError)
    assert issubclass(JobIgnoredError, JobIsNotReadyToStartError)
    assert issubclass(JobIsNotReadyToStartError, JobExecutionError)
    assert issubclass(JobExecutionError, JobFailure)
    assert issubclass(JobLockedError, UnclaimableJob)
    assert issubclass(JobLostError, ClaimLost)


@ONE
def test_updates_refuse_columns_of_the_tracker(engine: sa.Engine, job: Job) -> None:
    with start(engine) as (_, updates):
        for key in ("id", "status", "create_at", "update_at", "lock", "lock_at", "retry"):
            for each in (updates, Updates()):
                with pytest.raises(KeyError, match=f"'{key}' is written by the tracker"):
                    each.set(key, 1)


@pytest.mark.rule("Updates of a tracked job refuse its primary key and unknown columns.")
@ONE
def test_updates_refuse_the_primary_key_and_unknown_columns(engine: sa.Engine) -> None:
    job = ShardJob.create_and_save(engine, (1, "a"), Word.PENDING)
    wrong = {"shard": "'shard' tells the row", "edition": "'edition' tells", "colour": "no column 'colour', but shard,"}
    with start(engine, (1, "a"), ShardJob, Word) as (_, updates):
        for key, message in wrong.items():
            with pytest.raises(KeyError, match=message):
                updates.set(key, 5)
        updates.set("data", 5)
    for key, message in wrong.items():
        by_hand = Updates()
        by_hand.set(key, 5)
        with pytest.raises(KeyError, match=message):
            job.update(engine, by_hand)
    assert stored(engine, (1, "a"), ShardJob).data == 5


def test_update_writes_at_once(engine: sa.Engine, session: Session, job: Job) -> None:
    updates = Updates()
    updates.set("data", {"version": 3})
    job.update(engine, updates)
    assert job.data == stored(engine).data == {"version": 3}
    job.lock_it(engine, 20)
    let_expire(engine)
    with start(session), pytest.raises(JobLostError):
        job.update(engine, updates)


def test_query_by_status_returns_the_oldest_jobs_up_to_a_limit(engine: sa.Engine, session: Session) -> None:
    for number in range(4):
        Job.create_and_save(engine, f"job-{number}", Status.PENDING if number else Status.FAILED)
    with engine.begin() as connection:
        connection.execute(sa.update(Job).where(Job.id == "job-3").values(update_at=LONG_AGO))
    jobs = Job.query_by_status(session, Status.PENDING)
    assert [job.id for job in jobs] == ["job-3", "job-1", "job-2"]
    assert not session.in_transaction()
    assert [job.id for job in Job.query_by_status(engine, 10, limit=2)] == ["job-3", "job-1"]
    assert len(Job.query_by_status(engine, 10, limit=2, older_task_first=False)) == 2
    assert Job.query_by_status(engine, 10, limit=0) == []
    for number in range(4, 14):
        Job.create_and_save(engine, f"job-{number}", Status.PENDING)
    assert [len(Job.query_by_status(engine, 10)), len(Job.query_by_status(engine, 10, limit=None))] == [10, 13]
    with pytest.raises(ValueError, match="limit=-1"):
        Job.query_by_status(engine, 10, limit=-1)


def test_an_expired_lock_can_be_taken_again(engine: sa.Engine, job: Job) -> None:
    job.lock_it(engine, Status.IN_PROGRESS)
    with pytest.raises(JobLockedError):
        succeed(engine)
    let_expire(engine)
    with start(engine) as (mine, _):
        assert mine.lock != job.lock
        assert mine.retry == 1
    assert (stored(engine).status, stored(engine).retry) == (40, 0)
    first, _ = stored(engine).lock_it(engine, Status.IN_PROGRESS)
    let_expire(engine)
    second, _ = stored(engine).lock_it(engine, Status.IN_PROGRESS, expire=900)
    assert stored(engine).lock == second != first


def test_a_job_that_kills_its_workers_is_ignored(engine: sa.Engine, job: Job) -> None:
    job.lock_it(engine, Status.IN_PROGRESS)
    killed = [start(engine), start(engine)]
    for each in killed:
        let_expire(engine)
        each.__enter__()
    let_expire(engine)
    with pytest.raises(JobIgnoredError, match="failed 3 times, the last time as its lock expired"):
        succeed(engine)
    after = stored(engine)
    assert (after.status, after.retry, after.lock) == (50, 3, None)
    assert "expired" in after.errors["error"]
    for each in killed:
        with pytest.raises(JobLostError):
            each.__exit__(None, None, None)


@ONE
@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_an_interrupt_gives_the_job_back_as_it_was(engine: sa.Engine, job: Job, error: BaseException) -> None:
    with pytest.raises(type(error)):
        fail(engine, error, skip_error=True)
    after = stored(engine)
    assert (after.status, after.lock, after.retry, after.errors) == (10, None, 0, {})
    succeed(engine)


def test_a_success_of_an_overtaken_worker_is_refused(engine: sa.Engine, job: Job) -> None:
    def overtaken(rescue: Any) -> None:
        with start(engine) as (_, updates):
            updates.set("data", "of the zombie")
            let_expire(engine)
            rescue.__enter__()

    rescue = start(engine)
    with pytest.raises(JobLostError, match="Job 'job-1': its lock expired and another took it, or it was deleted"):
        overtaken(rescue)
    assert (stored(engine).status, stored(engine).data) == (20, {"version": 1})
    rescue.__exit__(None, None, None)
    assert stored(engine).status == 40


def test_a_failure_of_an_overtaken_worker_changes_nothing(
    engine: sa.Engine, job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    with start(engine, skip_error=True):
        let_expire(engine)
        rescue = start(engine)
        rescue.__enter__()
        raise ValueError("no picture")
    after = stored(engine)
    assert (after.status, after.errors) == (20, {"error": f"the lock of {LONG_AGO} expired", "traceback": ""})
    assert "was lost" in caplog.text
    rescue.__exit__(None, None, None)


@pytest.mark.rule("A starter is refused if another has begun and finished the job meanwhile.")
@pytest.mark.backends("postgresql", "mariadb")
@pytest.mark.parametrize("failed", [False, True])
def test_a_start_is_refused_if_another_has_finished_the_job_meanwhile(
    engine: sa.Engine, job: Job, failed: bool
) -> None:
    def finish() -> None:
        if failed:
            fail(engine, ValueError("broken"), skip_error=True)
        else:
            succeed(engine)

    def finish_first(*args: Any) -> None:
        if args[2].startswith("UPDATE") and between:
            between.pop()()

    between = [finish]
    if failed:
        finish()
    late = sa.create_engine(engine.url)
    sa.event.listen(late, "before_cursor_execute", finish_first)
    with pytest.raises(JobLockedError), start(late):
        pytest.fail("it is no longer as it was seen")
    late.dispose()
    left = stored(engine)
    assert (left.status, left.retry, left.lock) == ((Status.FAILED, 2, None) if failed else (Status.SUCCEEDED, 0, None))


@ONE
def test_an_unknown_id_is_named(engine: sa.Engine) -> None:
    with pytest.raises(NotFound, match="no Job 'job-7'"):
        succeed(engine, id_="job-7")
    with pytest.raises(ValueError, match="no Job 'job-7'"):
        succeed(engine, id_="job-7")


def test_the_clock_of_this_machine_decides_nothing(
    engine: sa.Engine, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    utc_now = runtime.utc_now
    monkeypatch.setattr(runtime, "utc_now", lambda: utc_now() + datetime.timedelta(days=1))
    job.lock_it(engine, Status.IN_PROGRESS)
    assert not job.is_locked(900)
    with pytest.raises(JobLockedError):
        succeed(engine)
    monkeypatch.undo()
    assert stored(engine).is_locked(900)


def test_changes_of_the_block_are_committed_with_its_success_alone(
    engine: sa.Engine, session: Session, job: Job
) -> None:
    def work(error: Exception | None) -> None:
        with start(session, skip_error=True) as (mine, _):
            session.add(Done(key="job-1", who="anna"))
            mine.data = {"version": 2}
            session.flush()
            if error:
                raise error

    def marks() -> int | None:
        with Session(engine) as other:
            return other.scalar(sa.select(sa.func.count()).select_from(Done))

    work(ValueError("no picture"))
    assert (marks(), stored(engine).data) == (0, {"version": 1})
    work(None)
    assert (marks(), stored(engine).data) == (1, {"version": 2})
    assert not session.in_transaction()


def test_keys_may_have_several_columns_and_statuses_may_be_words(engine: sa.Engine) -> None:
    ShardJob.create_and_save(engine, (1, "a"), Word.PENDING)
    ShardJob.create_and_save(engine, {"name": "a", "shard": 2}, Word.PENDING)
    ShardJob.create((1, "a"), Word.PENDING).lock_it(engine, Word.IN_PROGRESS)
    assert stored(engine, (1, "a"), ShardJob).status is Word.IN_PROGRESS
    succeed(engine, id_=(1, "a"), of=ShardJob, statuses=Word, expire=0)
    fail(engine, ValueError(), id_={"shard": 2, "name": "a"}, of=ShardJob, statuses=Word, skip_error=True)
    assert stored(engine, (1, "a"), ShardJob).status is Word.SUCCEEDED
    assert [job.shard for job in ShardJob.query_by_status(engine, Word.FAILED)] == [2]
    with pytest.raises(NotFound, match="ShardJob 3, 'a'"):
        succeed(engine, id_=(3, "a"), of=ShardJob, statuses=Word)
    with pytest.raises(ValueError, match="key of ShardJob is shard, name; give"):
        succeed(engine, id_="a", of=ShardJob, statuses=Word)


def test_async_sessions_and_engines_are_awaited(engine: sa.Engine, with_async: Callable[..., Any]) -> None:
    async def main(async_engine: AsyncEngine) -> None:
        await Job.create_and_save(async_engine, "job-1", 10)
        async with start(async_engine) as (job, updates):
            updates.set("data", 1)
        assert (job.status, job.data) == (40, 1)
        async with AsyncSession(async_engine) as session:
            job = await Job.create_and_save(session, "job-2", 10)
            async with start(session, "job-2", skip_error=True):
                raise ValueError("no picture")
            assert (job.status, job.retry) == (30, 1)
            [again] = await Job.query_by_status(session, 30)
            assert again is job
            await job.lock_it(session, 20)
            updates = Updates()
            updates.set("data", 2)
            await job.update(session, updates)
            with pytest.raises(JobLockedError):
                async with start(session, "job-2"):
                    pass

        held = asyncio.Event()
        await Job.create_and_save(async_engine, "job-3", 10)

        async def work() -> None:
            async with start(async_engine, "job-3"):
                held.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await held.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with_async(main)
    assert [stored(engine, f"job-{number}").status for number in (1, 2, 3)] == [40, 20, 10]
    assert stored(engine, "job-2").data == 2
    assert stored(engine, "job-3").lock is None


@ONE
@pytest.mark.parametrize("updates", [{"data": 1}, None, Updates([1])])
def test_updates_of_another_type_are_refused(engine: sa.Engine, job: Job, updates: Any) -> None:
    with pytest.raises(TypeError, match="Updates"):
        job.update(engine, updates)


@ONE
@pytest.mark.parametrize("option", ["max_retry", "traceback_stack_limit"])
def test_an_option_of_another_type_is_refused_before_the_work(engine: sa.Engine, option: str) -> None:
    with pytest.raises(TypeError, match=f"{option} must be an int, not str"):
        start(engine, **{option: "3"})
    with pytest.raises(TypeError, match="expire must be a number of seconds, not None"):
        start(engine, expire=None)


# Objects that this process has made and another has stored, as sqlalchemy_mate's users have them


@pytest.mark.rule("An object that create made locks and updates the stored job.")
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
    Job.create("job-1", 10).lock_it(engine, 20, expire=0)
    with pytest.raises(JobLostError, match="'job-1'"):
        job.update(engine, Updates({"data": 1}))
    assert stored(engine).data == {"n": 2}


@ONE
@pytest.mark.parametrize("autoflush", [True, False])
def test_a_job_that_was_added_to_the_session_is_stored_before(engine: sa.Engine, autoflush: bool) -> None:
    with Session(engine, autoflush=autoflush) as session:
        locked, updated = Job.create("job-1", 10), Job.create("job-2", 10)
        session.add_all([locked, updated])
        locked.lock_it(session, 20)
        updated.update(session, Updates({"data": [1]}))
        session.commit()
        assert (locked.status, updated.data) == (20, [1])
    assert (stored(engine).status, stored(engine, "job-2").data) == (20, [1])


@ONE
def test_a_job_that_nobody_has_stored_is_not_found(engine: sa.Engine) -> None:
    job = Job.create("job-1", 10)
    with pytest.raises(JobNotFoundError, match="'job-1'"):
        job.lock_it(engine, 20)
    with pytest.raises(JobNotFoundError, match="'job-1'"):
        job.update(engine, Updates({"data": 1}))
    with pytest.raises(ValueError, match="Job has no id yet: set it"):
        Job(status=10).lock_it(engine, 20)


@pytest.mark.backends("mariadb")
def test_an_update_that_changes_nothing_finds_its_job(engine: sa.Engine) -> None:
    """On connections of the caller's that count changed rows."""
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


@pytest.mark.rule("A block may delete its own job, and only its holder may.")
@ONE
@pytest.mark.parametrize("committed", [True, False])
def test_a_block_may_delete_its_job(engine: sa.Engine, committed: bool) -> None:
    Job.create_and_save(engine, "job-1", 10)
    with Session(engine) as session:
        with start(session) as (job, _):
            session.delete(job)
            if committed:
                session.commit()
        assert session.get(Job, "job-1") is None


@ONE
def test_a_block_that_fails_has_not_deleted_its_job(engine: sa.Engine) -> None:
    Job.create_and_save(engine, "job-1", 10)
    with Session(engine) as session, start(session, skip_error=True) as (job, _):
        session.delete(job)
        session.flush()
        raise ValueError
    assert (stored(engine).status, stored(engine).lock, stored(engine).retry) == (30, None, 1)


@pytest.mark.rule("A block may delete its own job, and only its holder may.")
def test_only_its_holder_deletes_a_job(engine: sa.Engine) -> None:
    def overtaken(session: Session) -> None:
        with start(session) as (job, _):
            Job.create("job-1", 10).lock_it(engine, 20, expire=0)
            session.delete(job)

    Job.create_and_save(engine, "job-1", 10)
    with Session(engine) as session, pytest.raises(JobLostError, match="another took it"):
        overtaken(session)
    assert stored(engine).status == 20
