"""``jobboard trash``: what has failed for good, or was thrown away."""

from __future__ import annotations

from collections.abc import Iterable

import click

from jobboard.cli.acting import each, report
from jobboard.cli.common import BoardOptions, Duration, Group, board_options, example, opened
from jobboard.cli.naming import named
from jobboard.cli.output import bars, last_line, limit_option, say_jobs
from jobboard.job import Job


@click.group(
    cls=Group,
    epilog=example("jobboard trash list", "jobboard trash restore --all", "jobboard trash purge --older-than 7d"),
)
@board_options
@click.pass_context
def trash(context: click.Context, settings: BoardOptions) -> None:
    """Look at the jobs in the trash, bring them back, or remove them for good."""
    context.obj = settings


@trash.command("list", epilog=example("jobboard trash list --limit 20", "jobboard trash list --json"))
@limit_option
@board_options
def list_trash(settings: BoardOptions, limit: int | None) -> None:
    """List the jobs in the trash, the last one first, and why they are there."""
    with opened(settings) as board:
        say_jobs(
            board.trashed(),
            limit,
            as_json=settings.json,
            title=f"trash of {named(board)}",
            nothing=lambda: f"The trash of {named(board)} is empty.",
            columns=("uuid", "name", "attempts", "trashed", "why"),
            row=lambda job: (
                job.uuid,
                job.name,
                job.attempts,
                f"{job.last_modified:%Y-%m-%d %H:%M:%S}",
                last_line(job.error),
            ),
        )


@trash.command(
    epilog=example("jobboard trash restore 0d8a3c3e-9c53-4c5d-bc5a-ab1b0b1a9d5e", "jobboard trash restore --all")
)
@click.argument("uuids", nargs=-1, metavar="[UUID]...")
@click.option("--all", "everything", is_flag=True, help="All that is in the trash.")
@board_options
def restore(settings: BoardOptions, uuids: tuple[str, ...], everything: bool) -> int:
    """Bring jobs back to the board, to their old places and with all their attempts."""
    if bool(uuids) == everything:
        raise click.UsageError("give the uuids of the jobs to restore, or --all")
    with opened(settings) as board:
        if uuids:
            return each(settings, "restored", board, board.restore, uuids)
        with bars() as progress:
            jobs: Iterable[Job] = board.trashed()
            if progress is not None:
                jobs = progress.track(jobs, board.stats().trashed, description="restoring")
            return each(settings, "restored", board, board.restore, jobs)


@trash.command(
    epilog=example("jobboard trash purge 0d8a3c3e-9c53-4c5d-bc5a-ab1b0b1a9d5e", "jobboard trash purge --older-than 7d")
)
@click.argument("uuids", nargs=-1, metavar="[UUID]...")
@click.option("--all", "everything", is_flag=True, help="All that is in the trash.")
@click.option("--older-than", type=Duration(), metavar="AGE", help="What has been there for longer: 90s, 15m, 12h, 7d.")
@board_options
def purge(settings: BoardOptions, uuids: tuple[str, ...], everything: bool, older_than: float | None) -> int:
    """Remove jobs from the trash for good."""
    if [bool(uuids), everything, older_than is not None].count(True) != 1:
        raise click.UsageError("give the uuids of the jobs to purge, --older-than or --all")
    with opened(settings) as board:
        if not uuids:
            return report(settings, "purged", board.purge_trash(older_than or 0), 0)
        return each(settings, "purged", board, board.purge, uuids)
