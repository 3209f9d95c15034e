"""``jobboard done``: what consumed jobs have left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from jobboard.cli.common import BoardOptions, Group, board_options, example, find_job, opened
from jobboard.cli.completing import names_option
from jobboard.cli.looking import say_job
from jobboard.cli.naming import named
from jobboard.cli.output import job_as_dict, limit_option, say_jobs, say_json, span

if TYPE_CHECKING:
    from jobboard.done import Outcome


@click.group(cls=Group, epilog=example("jobboard done list --job resize", "jobboard done show 0d8a3c3e --json"))
@board_options
@click.pass_context
def done(context: click.Context, settings: BoardOptions) -> None:
    """Look at what consumed jobs have left: who did them and when, and their results.

    It is there for as long as the option keep_done of the board says through which they were consumed.
    """
    context.obj = settings


@done.command("list", epilog=example("jobboard done list --limit 20", "jobboard done list --job resize --json"))
@names_option
@click.option("--after", metavar="UUID", help="Only what was consumed before this job.")
@limit_option
@board_options
def list_done(settings: BoardOptions, names: tuple[str, ...], after: str | None, limit: int | None) -> None:
    """List the jobs that were consumed, the last one first. Details and results are left out, as they may be private:
    'jobboard done show' has them."""
    with opened(settings) as board:
        behind = None if after is None else board.outcome(board.get(after))
        say_jobs(
            board.outcomes(names=names or None, after=behind),
            limit,
            as_json=settings.json,
            title=f"done on {named(board)}",
            nothing=lambda: f"No job that was consumed on {named(board)} has left anything; see the option keep_done.",
            columns=("uuid", "name", "attempts", "ended", "took", "who"),
            row=lambda left: (
                left.uuid,
                left.name,
                left.attempts,
                f"{left.ended_on:%Y-%m-%d %H:%M:%S}",
                span((left.ended_on - left.begun_on).total_seconds()),
                left.who,
            ),
            told=outcome_as_dict,
            go_on=lambda last: f"see --limit, or go on with --after {last.uuid}",
        )


@done.command("show", epilog=example("jobboard done show 0d8a3c3e-9c53-4c5d-bc5a-ab1b0b1a9d5e"))
@click.argument("uuid")
@board_options
def show_done(settings: BoardOptions, uuid: str) -> None:
    """Show what one job has left: its result, its details, who has worked on it, and its failures."""
    with opened(settings) as board:
        shown = outcome_as_dict(board.outcome(find_job(board, uuid)), private=True)
    if settings.json:
        say_json(shown)
    else:
        say_job(shown)


def outcome_as_dict(left: Outcome, *, private: bool = False) -> dict[str, Any]:
    """``private``: with details and result, which only those who ask for them get to see."""
    shown = job_as_dict(left.job, details=private)
    shown |= {
        "owner": None,
        "who": left.who,
        "workers": list(left.workers),
        "begun_on": left.begun_on.isoformat(),
        "ended_on": left.ended_on.isoformat(),
        "until": left.until.isoformat(),
        "refused": left.refused,
    }
    del shown["last_modified"], shown["due"], shown["token"], shown["owner"]
    return {**shown, "result": left.result} if private else shown
