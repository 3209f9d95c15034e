"""``jobboard list``, ``show`` and ``stats``: they change nothing."""

from __future__ import annotations

import dataclasses
import json

import click

from jobboard.cli.common import Settings, board_options, example, opened
from jobboard.cli.output import SHOWN, job_as_dict, last_line, safe, say, say_jobs, say_json, table


@click.command(
    "list",
    epilog=example("jobboard list --state CLAIMED", "jobboard list --job resize --json | head"),
)
@click.option("--state", "states", multiple=True, metavar="STATE", help="Only jobs in this state; may be repeated.")
@click.option("--job", "names", multiple=True, metavar="NAME", help="Only jobs of this name; may be repeated.")
@click.option("--limit", type=click.IntRange(min=1), help=f"At most so many.  [default: {SHOWN}; all with --json]")
@board_options
def list_jobs(settings: Settings, states: tuple[str, ...], names: tuple[str, ...], limit: int | None) -> None:
    """List the jobs on the board, in the order in which they are served.

    The states are UNCLAIMED, SCHEDULED and CLAIMED; 'jobboard trash list' shows the rest. Details are left out, as they
    may be private; 'jobboard show' has them.
    """
    from jobboard.states import LIVE, State

    live = {str(state): state for state in State if state in LIVE}
    for state in states:
        if state.upper() not in live:
            raise click.UsageError(f"{state!r} is not a state on the board; these are: {', '.join(live)}")
    wanted = [live[state.upper()] for state in states] or None
    with opened(settings) as board:
        say_jobs(
            board.iterjobs(names=names or None, states=wanted),
            limit,
            as_json=settings.json,
            nothing="No such job on the board." if states or names else "No job on the board.",
            columns=("uuid", "name", "state", "priority", "attempts", "posted", "last error"),
            row=lambda job: (
                job.uuid,
                job.name,
                job.seen_state,
                job.priority,
                job.attempts,
                f"{job.created_on:%Y-%m-%d %H:%M:%S}",
                last_line(job.error),
            ),
        )


@click.command(epilog=example("jobboard show 0d8a3c3e-9c53-4c5d-bc5a-ab1b0b1a9d5e"))
@click.argument("uuid")
@board_options
def show(settings: Settings, uuid: str) -> None:
    """Show one job, on the board or in the trash, with its details and its last error."""
    with opened(settings) as board:
        job = board.get(uuid)
        shown = job_as_dict(job, details=True)
        shown["owner"] = board.find_owner(job)
    if settings.json:
        say_json(shown)
        return
    error, details = shown.pop("error"), shown.pop("details")
    for field, value in shown.items():
        if value is not None:
            say(f"{field.replace('_', ' ')}: {safe(value)}")
    say("details: " + json.dumps(details, ensure_ascii=False, indent=2))
    if error is not None:
        say(f"error:\n{error}")


@click.command(epilog=example("jobboard stats", "jobboard stats --json"))
@board_options
def stats(settings: Settings) -> None:
    """Count the jobs in each state, and name the conductors that are at work."""
    with opened(settings) as board:
        counted = board.stats()
        entities = board.entities()
    if settings.json:
        found = [dataclasses.asdict(entity) for entity in entities]
        say_json({**dataclasses.asdict(counted), "on_board": counted.on_board, "entities": found})
        return
    table(("state", "jobs"), dataclasses.asdict(counted).items(), numbers=["jobs"])
    if entities:
        rows = ((each.kind, each.name, each.metadata.get("host"), each.metadata.get("pid")) for each in entities)
        table(("who", "name", "host", "pid"), rows)
