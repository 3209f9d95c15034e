"""Acts on many jobs or other things, one after the other, and the report of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from jobboard.board import JobBoard
from jobboard.cli.common import BoardOptions, find_job, plural
from jobboard.cli.jobs import outcome_hint
from jobboard.cli.output import warn
from jobboard.exceptions import ConnectionFailure, JobBoardError, NotFound, UnclaimableJob
from jobboard.job import Job
from jobboard.states import COMPLETE

T = TypeVar("T")


def act_on_jobs(
    settings: BoardOptions, act: str, board: JobBoard, on: Callable[[Job], None], chosen: Iterable[Job | str]
) -> int:
    """Act on each job, or on the job of each uuid, and report the number of acts. Return the exit status.

    :param act: the act in words, as in ``3 jobs released``.
    :param on: the function that does the act.
    """

    def find_and_act(one: Job | str) -> None:
        job = find_job(board, one, to_act=True) if isinstance(one, str) else one
        if job.seen_state == COMPLETE:
            raise NotFound(outcome_hint(job))
        on(job)

    return act_on_each(settings, act, find_and_act, chosen)


def act_on_each(
    settings: BoardOptions, act: str, on: Callable[[T], None], chosen: Iterable[T], what: str = "job"
) -> int:
    """Act on each item, also after failures, and report the numbers of acts and failures. Return the exit status."""
    count = failed = 0
    for one in chosen:
        try:
            on(one)
            count += 1
        except ConnectionFailure:
            warn(f"{plural(count, what)} {act} before the backend could no longer be reached")
            raise
        except UnclaimableJob as error:
            job = error.job
            assert job is not None
            warn(f"jobboard: {job} is claimed: 'jobboard cancel --running {job.uuid}' takes it from its holder")
            failed += 1
        except JobBoardError as error:
            warn(f"jobboard: {error}")
            failed += 1
    return settings.report(act, count, failed, what)
