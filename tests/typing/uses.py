"""Uses of the public API for type checkers. A line with the comment BAD must be reported, and no other line.

``tests/test_typing.py`` runs mypy and pyright on this file. Nobody imports or runs it.
"""

import contextlib
import dataclasses
import datetime
from collections.abc import Iterator
from typing import assert_type

import sqlalchemy as sa
from sqlalchemy.orm import Session

import jobboard
import jobboard.aio

MINUTE = datetime.timedelta(minutes=1)


@dataclasses.dataclass
class Size:
    width: int


def names_of_the_package() -> None:
    assert_type(jobboard.fetch("board", "memory"), jobboard.JobBoard)
    jobboard.fetch("board", {"board": "sqlite"}, client=sa.create_engine("sqlite://"))
    jobboard.fetc("board", "memory")  # BAD
    print(jobboard.Conducter)  # BAD
    jobboard.fetch("board", "memory", claim_ttl=3)  # BAD
    with jobboard.backend("board", "memory") as board:
        assert_type(board, jobboard.JobBoard)
    jobboard.backend("board", "memory", clientt=None)  # BAD


def posts(board: jobboard.JobBoard, connection: sa.Connection, session: Session) -> None:
    assert_type(board.post("x", priority=3, delay=MINUTE, group="g", key="k", on_key="replace"), jobboard.Job)
    board.post("x", priority="HIGH", connection=connection, extra={"shard": 1})
    board.post_many([jobboard.Posting("x"), {"name": "y"}], connection=session)
    board.post("x", prioritty=3)  # BAD
    board.post("x", key="k", on_key="swap")  # BAD
    board.post("x", connection="sqlite://")  # BAD
    board.post("x", extra=3)  # BAD
    board.post_many([jobboard.Posting("x")], conection=connection)  # BAD
    jobboard.Posting("x", on_key="swap")  # BAD


def claims(board: jobboard.JobBoard, connection: sa.Connection) -> None:
    job = board.claim_next("m", timeout=3, names=["x"], where=board.table.c.attempts < 2)
    assert job is not None
    assert_type(job.claim, jobboard.Claim)
    job.claim.consume(result={"pages": 3})
    board.consume(job, "m", connection=connection)
    for each in board.claim_many("m", 10, expiry=3.5):
        print(each.claim.token)
    board.claim_next("m", tiemout=3)  # BAD
    board.claim_next("m", where="attempts < 2")  # BAD
    board.claim_many("m", 3, connection=connection)  # BAD
    board.claim_many("m", "3")  # BAD
    board.consume(job, "m", conection=connection)  # BAD
    print(board.get("0d8a3c3e").claim.token)  # BAD
    job.claim.consum()  # BAD
    board.finish_many([jobboard.Act(job, "consume")], "m", connection=connection)
    board.consume_many([job], "m", where=None)  # BAD


def work(board: jobboard.JobBoard) -> None:
    with board.working("m", names=["x"], timeout=1, expiry=3) as job:
        job.claim.extend(3)
    board.working("m", tiemout=1)  # BAD

    @board.working("m")
    def count(job: jobboard.ClaimedJob, factor: int) -> int:
        return job.claim.token * factor

    assert_type(count(3), int | None)
    count("three")  # BAD


def limits_and_schedules(board: jobboard.JobBoard) -> None:
    assert_type(board.set_limit("x", concurrency=1, per="group"), jobboard.Limit)
    board.set_limit("x", rate=(100, MINUTE))
    board.set_limit("x", concurrency=1, per="grp")  # BAD
    board.remove_limit("x", "grp")  # BAD
    board.schedule("nightly", "0 3 * * *", "x", missed="all")
    board.schedule("nightly", "0 3 * * *", "x", missed="every")  # BAD
    board.schedule("nightly", "0 3 * * *", "x", timezone="UTC")  # BAD


def conductors(board: jobboard.JobBoard) -> None:
    conductor = jobboard.Conductor("m", board, where=board.table.c.attempts < 2, job_timeout=MINUTE)

    @conductor.handles("x", timeout=3, retry=jobboard.RetryPolicy())
    def handle(job: jobboard.ClaimedJob, *, path: str = "") -> None:
        job.claim.extend()

    @conductor.handles("y")
    def plain(job: jobboard.Job) -> None:
        print(job.claim.token)  # BAD

    @conductor.handles("z")
    def without_job(*, path: str) -> None: ...

    assert_type(without_job.post(path="a.jpg"), jobboard.Job)
    without_job.post(paht="a.jpg")  # BAD
    without_job.post(path=3)  # BAD

    @conductor.handles("order", invalid="trash", unknown="retry")
    def order(job: jobboard.ClaimedJob, size: Size) -> None: ...

    @conductor.handles("size")
    def size(size: Size, /) -> None: ...

    assert_type(order.post(Size(3)), jobboard.Job)
    order.post.options(priority="HIGH")(Size(3))
    size.post(Size(3))
    order.post(3)  # BAD
    size.post("3")  # BAD
    without_job.post(path=MINUTE)  # BAD
    conductor.handles("v", invalid="ignore")  # BAD
    conductor.handles("v", unknown="drop")  # BAD

    @conductor.wraps
    @contextlib.contextmanager
    def logged(job: jobboard.ClaimedJob) -> Iterator[None]:
        print(job.claim.token)
        yield

    def report(job: jobboard.ClaimedJob, error: BaseException) -> None: ...

    jobboard.Conductor(None, board, handle, on_error=report)
    jobboard.Conductor("m", board, handle, on_error=print)
    jobboard.Conductor("m", board, handle, on_error=3)  # BAD
    conductor.handles("w", tiemout=3)  # BAD
    jobboard.Conductor("m", board, job_timout=3)  # BAD


async def coroutines(board: jobboard.aio.AsyncJobBoard) -> None:
    assert_type(await board.post("x", priority=3), jobboard.Job)
    job = await board.claim_next("m", timeout=3, where=board.table.c.attempts < 2)
    assert job is not None
    await board.consume(job, "m", result=job.claim.token)
    await board.post("x", prioritty=3)  # BAD
    await board.claim_next("m", tiemout=3)  # BAD
    await board.set_limit("x", concurrency=1, per="grp")  # BAD
    async with board.working("m", names=["x"]) as each:
        print(each.claim.token)
    board.working("m", tiemout=3)  # BAD
    jobboard.aio.fetch("board", "memory", claim_ttl=3)  # BAD
    conductor = jobboard.aio.AsyncConductor(None, board)

    @conductor.handles("x", timeout=3)
    async def handle(job: jobboard.ClaimedJob) -> None:
        print(job.claim.token)

    conductor.handles("y", tiemout=3)  # BAD
    jobboard.aio.AsyncConductor("m", board, job_timout=3)  # BAD
