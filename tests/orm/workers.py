"""What the processes of the tests do."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any, NamedTuple

import sqlalchemy as sa

from jobboard.orm import Batch, JobIsNotReadyToStartError, JobLockedError
from jobboard.testing import eventually
from tests.orm.models import Done, Job, Picture, Status

PROCESSES = 10


def work_on_pictures(url: str, who: str) -> None:
    """Batch after batch until there is nothing left."""
    engine = sa.create_engine(url)

    @Picture.acquiring(engine, who, where=~Picture.done, order_by=(Picture.rank.desc(), Picture.id), limit=3)
    def work(batch: Batch[Picture]) -> int:
        if batch:
            not_alone(who)
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
                    not_alone(who)
                    updates.set("data", [*mine.data, who])
            except (JobLockedError, JobIsNotReadyToStartError):
                continue
    engine.dispose()


def not_alone(who: str) -> None:
    """Whoever has something to do first could be done with all of it before the others have compiled a statement."""
    if who not in _at_work:
        _at_work.append(who)
        _shared[-1].at_work.release()
    eventually(lambda: _shared[-1].at_work.get_value() > 1)


class _Shared(NamedTuple):
    ready: Any
    at_work: Any


def run(work: Callable[[str, str], Any], engine: sa.Engine) -> None:
    """Ten processes at it at once; whatever one of them raises is raised here."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    url = engine.url.render_as_string(hide_password=False)
    with context.Pool(PROCESSES, _know, (context.Barrier(PROCESSES), context.Semaphore(0))) as pool:
        for each in [pool.apply_async(_meet, (work, url, f"worker {number}")) for number in range(PROCESSES)]:
            each.get(60)


def _know(ready: Any, at_work: Any) -> None:
    _shared.append(_Shared(ready, at_work))


def _meet(work: Callable[[str, str], Any], url: str, who: str) -> None:
    sa.create_engine(url).connect().close()
    _shared[-1].ready.wait(60)
    work(url, who)


_shared: list[_Shared] = []
_at_work: list[str] = []
