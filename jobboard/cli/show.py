"""``jobboard show``: one job."""

from __future__ import annotations

from dataclasses import asdict

import click

from jobboard.cli.common import BoardOptions, cipher_option, command, find_job
from jobboard.cli.jobs import job_dict, outcome_hint, say_job
from jobboard.cli.output import one_line, say_json, warn
from jobboard.cli.tables import say_lines
from jobboard.obstacles import obstacles
from jobboard.states import COMPLETE


@command("jobboard show 0d8a3c3e-9c53-4c5d-bc5a-ab1b0b1a9d5e", "jobboard show 0d8a3c3e --json | jq .details")
@click.argument("uuid")
@cipher_option
def show(settings: BoardOptions, uuid: str, cipher: object) -> None:
    """Show one job, with its details and last ten errors.

    The job is on the board, in the trash, or consumed and kept. The first 8 characters of its uuid will do.
    A job that waits is shown with what it waits for.
    """
    with settings.opened(cipher=cipher) as board:
        job = find_job(board, uuid)
        shown = job_dict(job)
        if job.seen_state != COMPLETE:
            shown["place"] = board.engine.backend.place(job.uuid)
        waits_for = obstacles(board, job)
    if settings.json:
        is_paused = any(each.kind == "paused" for each in waits_for)
        say_json(shown | {"paused": is_paused, "waits_for": [asdict(each) for each in waits_for]})
        return
    say_job(shown)
    for each in waits_for:
        say_lines(f"{'held' if each.kind == 'claimed' else 'waits'}: {one_line(each)}")
    if job.seen_state == COMPLETE:
        warn(outcome_hint(job))
