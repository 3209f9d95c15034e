"""``jobboard trash``: jobs that have failed for good, or were cancelled."""

from __future__ import annotations

from dataclasses import replace

import click

from jobboard.cli.acts import act_on_jobs
from jobboard.cli.common import BoardOptions, command, duration, group
from jobboard.cli.jobs import age_column, job_columns
from jobboard.cli.output import bars
from jobboard.cli.summary import named, other_boards_if_empty
from jobboard.cli.tables import Column, limit_option, show
from jobboard.job import Job

_everything = click.option("--all", "everything", is_flag=True, help="All jobs in the trash.")
_uuids = click.argument("uuids", nargs=-1, metavar="[UUID]...")


def _columns(now: float) -> list[Column[Job]]:
    titles = {"uuid": "uuid", "name": "name", "attempts": "tries", "error": "why"}
    fields = [replace(each, title=titles.get(each.key or "")) for each in job_columns()]
    when: Column[Job] = age_column("last_modified", "ago", lambda job: job.last_modified, now)
    return [when if each.key == when.key else each for each in sorted(fields, key=lambda each: each.key == "error")]


@group("jobboard trash list", "jobboard trash restore --all", "jobboard trash purge --older-than 7d")
def trash() -> None:
    """Look at jobs in the trash, bring them back, or remove them."""


@command("jobboard trash list --limit 20", "jobboard trash list --json", group=trash, name="list")
@limit_option
def list_trash(settings: BoardOptions, limit: int | None) -> None:
    """List the jobs in the trash and their reasons, newest first."""
    with settings.opened() as board:
        show(
            settings,
            board.trashed(),
            _columns(board.engine.now() / 1e6),
            title=f"trash of {named(board)}",
            nothing=lambda: f"The trash of {named(board)} is empty{other_boards_if_empty(board)}.",
            limit=limit,
        )


@command("jobboard trash restore 0d8a3c3e", "jobboard trash restore --all", group=trash)
@_uuids
@_everything
def restore(settings: BoardOptions, uuids: tuple[str, ...], everything: bool) -> int:
    """Bring jobs back to their old places, with all attempts."""
    if bool(uuids) == everything:
        raise click.UsageError("give the uuids of the jobs to restore, or --all")
    with settings.opened() as board:
        if uuids:
            return act_on_jobs(settings, "restored", board, board.restore, uuids)
        with bars() as progress:
            jobs = progress.track(board.trashed(), board.stats().trashed, description="restoring")
            return act_on_jobs(settings, "restored", board, board.restore, jobs)


@command("jobboard trash purge 0d8a3c3e", "jobboard trash purge --older-than 7d", group=trash)
@_uuids
@_everything
@click.option(
    "--older-than", type=duration, metavar="AGE", help="Jobs trashed longer ago than this: 90s, 15m, 12h, 7d."
)
def purge(settings: BoardOptions, uuids: tuple[str, ...], everything: bool, older_than: float | None) -> int:
    """Remove jobs from the trash for good."""
    if [bool(uuids), everything, older_than is not None].count(True) != 1:
        raise click.UsageError("give the uuids of the jobs to purge, --older-than or --all")
    with settings.opened() as board:
        if not uuids:
            return settings.report("purged", board.purge_trash(older_than or 0))
        return act_on_jobs(settings, "purged", board, board.purge, uuids)
