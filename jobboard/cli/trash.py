"""``jobboard trash``: jobs that have failed for good, or were cancelled."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from jobboard.cli.acts import act_on_jobs
from jobboard.cli.common import BoardOptions, command, duration, group
from jobboard.cli.filters import Conditions, act_on_found, check_choice, conditions, yes_option
from jobboard.cli.jobs import age_column, job_columns
from jobboard.cli.summary import named, other_boards_if_empty
from jobboard.cli.tables import Column, limit_option, show
from jobboard.job import Job
from jobboard.primitives import span

if TYPE_CHECKING:
    from jobboard.finding import ErrorGroup

_everything = click.option("--all", "everything", is_flag=True, help="All jobs in the trash.")
_uuids = click.argument("uuids", nargs=-1, metavar="[UUID]...")


def _columns(now: float) -> list[Column[Job]]:
    titles = {"uuid": "uuid", "name": "name", "attempts": "tries", "error": "why"}
    fields = [replace(each, title=titles.get(each.key or "")) for each in job_columns()]
    when: Column[Job] = age_column("last_modified", "ago", lambda job: job.last_modified, now)
    return [when if each.key == when.key else each for each in sorted(fields, key=lambda each: each.key == "error")]


def _group_columns(now: float) -> list[Column[ErrorGroup]]:
    return [
        Column("count", lambda group: group.count, "count", number=True),
        Column("names", lambda group: list(group.names), "names", lambda group: ", ".join(group.labels)),
        Column("labels", lambda group: list(group.labels)),
        age_column("last", "last", lambda group: group.last, now),
        Column(None, lambda group: span(now - group.first.timestamp()), "first", number=True),
        Column("first", lambda group: group.first),
        Column("cause", lambda group: group.cause),
        Column("sample", lambda group: group.sample, "why"),
    ]


@group("jobboard trash list --by-error", "jobboard trash restore --group acme", "jobboard trash purge --older-than 7d")
def trash() -> None:
    """Look at jobs in the trash, bring them back, or remove them."""


@command("jobboard trash list --group acme", "jobboard trash list --by-error --json", group=trash, name="list")
@conditions()
@click.option("--by-error", is_flag=True, help="Count the newest jobs by the cause of their last error.")
@limit_option
def list_trash(settings: BoardOptions, chosen: Conditions, by_error: bool, limit: int | None) -> None:
    """List the jobs in the trash and their reasons, newest first.

    With --by-error, failures that differ in uuids, numbers and quoted texts alone are one.
    """
    if chosen and by_error:
        raise click.UsageError("--by-error counts the newest jobs of the whole trash: leave the conditions out")
    with settings.opened() as board:
        now = board.engine.now() / 1e6

        def nothing() -> str:
            if chosen:
                return f"No such job in the trash of {named(board)}{other_boards_if_empty(board)}."
            return f"The trash of {named(board)} is empty{other_boards_if_empty(board)}."

        if by_error:
            found = board.error_groups()
            title = f"causes of the newest {found.looked} jobs in the trash of {named(board)}"
            show(settings, found.groups, _group_columns(now), title=title, nothing=nothing, limit=limit)
            return
        jobs = chosen.find(board, "TRASHED") if chosen else board.trashed()
        show(settings, jobs, _columns(now), title=f"trash of {named(board)}", nothing=nothing, limit=limit)


@command(
    "jobboard trash restore 0d8a3c3e",
    "jobboard trash restore --group acme --error 'disk is full'",
    "jobboard trash restore --cause 'OSError: disk 7 is full' --yes",
    "jobboard trash restore --all",
    group=trash,
)
@_uuids
@_everything
@conditions()
@yes_option
def restore(settings: BoardOptions, uuids: tuple[str, ...], everything: bool, chosen: Conditions, yes: bool) -> int:
    """Bring jobs back to their old places, with all attempts."""
    check_choice(uuids, everything, chosen, options="the uuids of the jobs to restore, conditions, or --all")
    with settings.opened() as board:
        if uuids:
            return act_on_jobs(settings, "restored", board, board.restore, uuids)
        found = chosen.find(board, "TRASHED")
        count = board.stats().trashed if everything else None
        return act_on_found(settings, board, "restore", "restored", found, yes=yes or everything, count=count)


@command(
    "jobboard trash purge 0d8a3c3e",
    "jobboard trash purge --group acme --yes",
    "jobboard trash purge --older-than 7d",
    group=trash,
)
@_uuids
@_everything
@conditions()
@yes_option
@click.option(
    "--older-than", type=duration, metavar="AGE", help="Jobs trashed longer ago than this: 90s, 15m, 12h, 7d."
)
def purge(
    settings: BoardOptions,
    uuids: tuple[str, ...],
    everything: bool,
    chosen: Conditions,
    yes: bool,
    older_than: float | None,
) -> int:
    """Remove jobs from the trash for good. 'jobboard done delete' removes outcomes."""
    ways = "the uuids of the jobs to purge, conditions, --older-than or --all"
    check_choice(uuids, everything, chosen, older_than is not None, options=ways)
    with settings.opened() as board:
        if chosen:
            return act_on_found(settings, board, "purge", "purged", chosen.find(board, "TRASHED"), yes=yes)
        if not uuids:
            return settings.report("purged", board.purge_trash(older_than or 0))
        return act_on_jobs(settings, "purged", board, board.purge, uuids)
