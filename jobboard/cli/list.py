"""``jobboard list``: the jobs on a board."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from jobboard.cli.common import BoardOptions, command, duration, find_job, names_option
from jobboard.cli.jobs import job_columns
from jobboard.cli.output import one_line
from jobboard.cli.summary import named, other_boards, other_boards_if_empty, rules_lines
from jobboard.cli.tables import limit_option, show
from jobboard.obstacles import obstacles

if TYPE_CHECKING:
    from jobboard.board import JobBoard
    from jobboard.job import Job


_state = click.Choice(["UNCLAIMED", "SCHEDULED", "CLAIMED"], case_sensitive=False)


@command(
    "jobboard list --state CLAIMED --older 1h",
    "jobboard list --job resize --json | head",
    "jobboard list --limit 20 --after 0d8a3c3e",
    name="list",
)
@click.option("--state", "states", multiple=True, type=_state, help="Only jobs in this state; may be repeated.")
@names_option
@click.option("--older", type=duration, metavar="AGE", help="Only jobs posted longer ago than this: 90s, 15m, 12h, 7d.")
@click.option("--newer", type=duration, metavar="AGE", help="Only jobs posted within this time.")
@click.option("--after", metavar="UUID", help="Only jobs served after this job.")
@limit_option
def list_jobs(
    settings: BoardOptions,
    states: tuple[str, ...],
    names: tuple[str, ...],
    older: float | None,
    newer: float | None,
    after: str | None,
    limit: int | None,
) -> None:
    """List the jobs on the board, in the order of serving.

    'jobboard trash list' and 'jobboard done list' show the other jobs. Details are left out, as they may be private;
    'jobboard show' has them. A terminal shows the first 8 characters of a uuid, which every command accepts.
    """
    narrowed = any((states, names, after)) or older is not None or newer is not None
    with settings.opened() as board:
        behind = None if after is None else find_job(board, after)
        jobs = board.iterjobs(ensure_fresh=True, names=names or None, states=states or None, after=behind)
        # Ages count by the clock of the posts: the server's.
        now = board.engine.now() / 1e6
        show(
            settings,
            _of_age(jobs, now, older, newer),
            job_columns(now),
            title="" if settings.json else _title(board),
            nothing=lambda: (
                f"No such job on {named(board)}{other_boards_if_empty(board)}."
                if narrowed
                else f"No job on {named(board)}{other_boards(board)}."
            ),
            limit=limit,
            go_on=lambda last: f"see --limit, or go on with --after {last.uuid}",
        )


def _title(board: JobBoard) -> str:
    first = ", ".join([named(board), *rules_lines(board.engine.rules())])
    # The first line has the pauses.
    return "\n".join([first, *(one_line(each) for each in obstacles(board) if each.kind != "paused")])


def _of_age(jobs: Iterator[Job], now: float, older: float | None, newer: float | None) -> Iterator[Job]:
    if older is None and newer is None:
        return jobs
    oldest, newest = (-math.inf if newer is None else now - newer), now - (older or 0)
    return (job for job in jobs if oldest <= job.created_on.timestamp() <= newest)
