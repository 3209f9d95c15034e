"""``jobboard done``: the outcomes of consumed jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import click

from jobboard.cli.acts import act_on_each
from jobboard.cli.common import BoardOptions, cipher_option, command, find_job, group
from jobboard.cli.filters import Conditions, act_on_found, check_choice, conditions, yes_option
from jobboard.cli.jobs import PRIVATE, age_column, job_columns, readable, say_job
from jobboard.cli.output import say_json
from jobboard.cli.summary import named, other_boards_if_empty
from jobboard.cli.tables import Column, as_dict, limit_option, name_column, show
from jobboard.primitives import span

if TYPE_CHECKING:
    from jobboard.job import Job
    from jobboard.results import Outcome

_ONLY_LIVE = {"due", "owner", "token", "last_modified", "progress"}
"""The fields of a job on the board that an outcome does not have."""


def _of_job(column: Column[Job]) -> Column[Outcome]:
    """Return a field of an outcome's job as one of the outcome."""
    title, text = column.title if column.key in ("uuid", "name", "attempts") else None, column.text
    return replace(
        cast(Any, column),
        value=lambda left: column.value(left.job),
        text=None if text is None else lambda left: text(left.job),
        title=title,
    )


def _columns(now: float = 0.0) -> list[Column[Outcome]]:
    return [
        *(_of_job(column) for column in job_columns() if column.key not in _ONLY_LIVE),
        age_column("ended_on", "ended ago", lambda left: left.ended_on, now),
        Column(None, lambda left: span((left.ended_on - left.begun_on).total_seconds()), "took", number=True),
        name_column("who", lambda left: left.who),
        Column("refused", lambda left: left.refused, "result refused"),
        Column("workers", lambda left: list(left.workers)),
        Column("begun_on", lambda left: left.begun_on),
        Column("until", lambda left: left.until),
    ]


_RESULT: Column[Outcome] = Column("result", readable(lambda left: left.result))


@group("jobboard done list --job resize", "jobboard done show 0d8a3c3e --json")
def done() -> None:
    """Look at the outcomes of consumed jobs.

    An outcome has the result, the times and the workers of a job. It is kept for as long as the option keep_done says,
    of the board that consumed the job.
    """


@command("jobboard done list --limit 20", "jobboard done list --job resize --json", group=done, name="list")
@conditions()
@click.option("--after", metavar="UUID", help="Only jobs consumed before this job.")
@limit_option
def list_done(settings: BoardOptions, chosen: Conditions, after: str | None, limit: int | None) -> None:
    """List the outcomes, the last consumed job first.

    Details and results are left out, as they may be private; 'jobboard done show' has them.
    """
    with settings.opened() as board:
        behind = None if after is None else board.outcome(find_job(board, after))
        fits = chosen.judge(board)
        show(
            settings,
            (left for left in board.outcomes(names=chosen.names or None, after=behind) if fits(left.job)),
            _columns(board.engine.now() / 1e6),
            title=f"done on {named(board)}",
            nothing=lambda: (
                f"No outcome on {named(board)}: boards opened with ?keep_done=SECONDS keep them"
                f"{other_boards_if_empty(board)}."
            ),
            limit=limit,
            go_on=lambda last: f"see --limit, or go on with --after {last.uuid}",
        )


@command("jobboard done delete 0d8a3c3e", "jobboard done delete --group acme --yes", group=done, name="delete")
@click.argument("uuids", nargs=-1, metavar="[UUID]...")
@conditions()
@yes_option
def delete_done(settings: BoardOptions, uuids: tuple[str, ...], chosen: Conditions, yes: bool) -> int:
    """Delete outcomes before they expire, with details and results."""
    check_choice(uuids, chosen, options="the uuids of the jobs, or conditions such as --group")
    with settings.opened() as board:
        if chosen:
            return act_on_found(settings, board, "purge", "deleted", chosen.find(board, "COMPLETE"), yes=yes)

        def delete(uuid: str) -> None:
            board.purge(board.outcome(find_job(board, uuid)).job)

        return act_on_each(settings, "deleted", delete, uuids)


@command("jobboard done show 0d8a3c3e", group=done, name="show")
@click.argument("uuid")
@cipher_option
def show_done(settings: BoardOptions, uuid: str, cipher: object) -> None:
    """Show one outcome: result, details, workers and failures."""
    with settings.opened(cipher=cipher) as board:
        left = board.outcome(find_job(board, uuid))
        shown = {**as_dict(_columns(), left), **as_dict(PRIVATE, left.job), **as_dict([_RESULT], left)}
    (say_json if settings.json else say_job)(shown)
