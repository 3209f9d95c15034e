"""``jobboard list``: the jobs on a board."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from jobboard.cli.common import BoardOptions, command, find_job
from jobboard.cli.filters import Conditions, conditions
from jobboard.cli.jobs import job_columns
from jobboard.cli.output import one_line
from jobboard.cli.summary import named, other_boards, other_boards_if_empty, rules_lines
from jobboard.cli.tables import limit_option, show
from jobboard.obstacles import obstacles

if TYPE_CHECKING:
    from jobboard.board import JobBoard


@command(
    "jobboard list --state CLAIMED --older 1h",
    "jobboard list --job resize --json | head",
    "jobboard list --limit 20 --after 0d8a3c3e",
    name="list",
)
@conditions("UNCLAIMED", "SCHEDULED", "CLAIMED")
@click.option("--after", metavar="UUID", help="Only jobs served after this job.")
@limit_option
def list_jobs(settings: BoardOptions, chosen: Conditions, after: str | None, limit: int | None) -> None:
    """List the jobs on the board, in the order of serving.

    'jobboard trash list' and 'jobboard done list' show the other jobs. Details are left out, as they may be private;
    'jobboard show' has them. A terminal shows the first 8 characters of a uuid, which every command accepts.
    """
    with settings.opened() as board:
        behind = None if after is None else find_job(board, after)
        names, states = chosen.names or None, chosen.states or None
        jobs = board.iterjobs(ensure_fresh=True, names=names, states=states, after=behind)
        fits = chosen.judge(board)
        # Ages count by the clock of the posts: the server's.
        now = board.engine.now() / 1e6
        show(
            settings,
            (job for job in jobs if fits(job)) if after or not chosen.owner else chosen.find(board),
            job_columns(now),
            title="" if settings.json else _title(board),
            nothing=lambda: (
                f"No such job on {named(board)}{other_boards_if_empty(board)}."
                if chosen or after
                else f"No job on {named(board)}{other_boards(board)}."
            ),
            limit=limit,
            go_on=lambda last: f"see --limit, or go on with --after {last.uuid}",
        )


def _title(board: JobBoard) -> str:
    first = ", ".join([named(board), *rules_lines(board.engine.rules())])
    # The first line has the pauses.
    return "\n".join([first, *(one_line(each) for each in obstacles(board) if each.kind != "paused")])
