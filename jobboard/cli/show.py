"""``jobboard show``: one job."""

from __future__ import annotations

import click

from jobboard.cli.common import BoardOptions, command, find_job
from jobboard.cli.jobs import job_dict, outcome_hint, say_job
from jobboard.cli.output import say_json, warn
from jobboard.states import COMPLETE, LIVE


@command("jobboard show 0d8a3c3e-9c53-4c5d-bc5a-ab1b0b1a9d5e", "jobboard show 0d8a3c3e --json | jq .details")
@click.argument("uuid")
def show(settings: BoardOptions, uuid: str) -> None:
    """Show one job, with its details and last ten errors.

    The job is on the board, in the trash, or consumed and kept. The first 8 characters of its uuid will do.
    """
    with settings.opened() as board:
        job = find_job(board, uuid)
        shown = job_dict(job)
        if job.seen_state != COMPLETE:
            shown["place"] = board.engine.backend.place(job.uuid)
        is_paused = job.seen_state in LIVE and job.name in board.paused()
    if settings.json:
        say_json(shown | {"paused": is_paused})
        return
    say_job(shown)
    if is_paused:
        warn(f"jobs named {job.name!r} are paused: 'jobboard resume' lets them be claimed again")
    if job.seen_state == COMPLETE:
        warn(outcome_hint(job))
