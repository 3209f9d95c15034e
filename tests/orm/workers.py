"""What the processes of the tests do."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from jobboard.orm import Batch, JobIsNotReadyToStartError, JobLockedError
from tests.orm.models import Done, Job, Picture, Status

PROCESSES = 10


def work_on_pictures(url: str, who: str) -> None:
    """Batch after batch until there is nothing left."""
    engine = sa.create_engine(url)

    @Picture.acquiring(engine, who, where=~Picture.done, order_by=(Picture.rank.desc(), Picture.id), limit=3)
    def work(batch: Batch[Picture]) -> int:
        for picture in batch:
            picture.done = True
            batch.session.add(Done(key=str(picture.id), who=who, token=picture.acquisition.token))
        return len(batch)

    while work():
        pass
    engine.dispose()


def work_on_jobs(url: str, who: str) -> None:
    engine = sa.create_engine(url)
    while jobs := Job.query_by_status(engine, Status.PENDING, limit=5):
        for job in jobs:
            try:
                with Job.start(engine, job.id, *Status, expire=60, max_retry=3) as (mine, updates):
                    updates.set("data", [*mine.data, who])
            except (JobLockedError, JobIsNotReadyToStartError):
                continue
    engine.dispose()


def run(work: Callable[[str, str], Any], engine: sa.Engine) -> None:
    """Ten processes at it at once; whatever one of them raises is raised here."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    url = engine.url.render_as_string(hide_password=False)
    with context.Pool(PROCESSES, _know, (context.Barrier(PROCESSES),)) as pool:
        for each in [pool.apply_async(_meet, (work, url, f"worker {number}")) for number in range(PROCESSES)]:
            each.get(60)


def _know(barrier: Any) -> None:
    _barriers.append(barrier)


def _meet(work: Callable[[str, str], Any], url: str, who: str) -> None:
    sa.create_engine(url).connect().close()
    _barriers[-1].wait(60)
    work(url, who)


_barriers: list[Any] = []
