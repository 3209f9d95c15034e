"""``jobboard release`` and ``jobboard cancel``."""

from __future__ import annotations

import getpass
import os
import socket

import click

from jobboard.cli.acts import act_on_jobs
from jobboard.cli.common import BoardOptions, command
from jobboard.cli.filters import Conditions, act_on_found, check_choice, conditions, yes_option
from jobboard.cli.output import say
from jobboard.job import Job

_WAYS = "UUIDs of jobs, or conditions such as --job"

_uuids = click.argument("uuids", nargs=-1, metavar="[UUID]...")
_token = click.option(
    "--token", type=int, metavar="N", help="Only while the job has this token, as 'jobboard show' prints it."
)
_reason = click.option("--reason", metavar="TEXT", help="The reason, which is kept with the job.")


@command(
    "jobboard release 0d8a3c3e --reason 'its host is gone'",
    "jobboard release 0d8a3c3e --token 1784215532104417",
    "jobboard release --owner worker-7 --yes",
)
@_uuids
@conditions("CLAIMED")
@yes_option
@_token
@_reason
def release(
    settings: BoardOptions,
    uuids: tuple[str, ...],
    chosen: Conditions,
    yes: bool,
    token: int | None,
    reason: str | None,
) -> int:
    """Take jobs away from a holder that hangs.

    The jobs are those of the uuids, or all claimed jobs that meet the conditions, after a question.

    The holder loses its claim, further acts of the holder on the job are refused, and anybody may claim the job again.
    The job's error names the operator and the reason. A job whose attempts are used up goes to the trash. Without
    --token, the job is also taken from a holder that claimed it a moment ago.
    """
    check_choice(uuids, chosen, options=_WAYS)
    _check_token(uuids, token)
    why = _signed("released", reason)
    with settings.opened() as board:
        if chosen:
            found = chosen.find(board, "CLAIMED")
            return act_on_found(settings, board, "release", "released", found, yes=yes, reason=why)

        def act(job: Job) -> None:
            holder = job.owner
            board.release(job, reason=why, token=token)
            if not settings.json:
                say(f"{job} was taken from {holder!r}.")

        return act_on_jobs(settings, "released", board, act, uuids)


@command(
    "jobboard cancel 0d8a3c3e --reason 'posted twice'",
    "jobboard cancel --running 0d8a3c3e --reason 'wrong input'",
    "jobboard cancel --job resize --older 1d",
)
@_uuids
@conditions("UNCLAIMED", "SCHEDULED", "CLAIMED")
@yes_option
@click.option("--running", is_flag=True, help="Also cancel claimed jobs: their holders are stopped.")
@_token
@_reason
def cancel(
    settings: BoardOptions,
    uuids: tuple[str, ...],
    chosen: Conditions,
    yes: bool,
    running: bool,
    token: int | None,
    reason: str | None,
) -> int:
    """Put jobs into the trash.

    The jobs are those of the uuids, or all jobs that meet the conditions, after a question. Without --running and
    --state, conditions choose jobs that nobody has claimed.

    The job's error names the operator and the reason. 'jobboard trash restore' brings the job back. A claimed job is
    cancelled with --running alone. Its holder loses the claim, and learns of the loss by its next heartbeat: a
    conductor stops the work in coroutines and worker processes, and tells threads.
    """
    check_choice(uuids, chosen, options=_WAYS)
    _check_token(uuids, token)
    why = _signed("cancelled", reason)
    with settings.opened() as board:
        if chosen:
            found = chosen.find(board, *([] if running or chosen.owner else ["UNCLAIMED", "SCHEDULED"]))
            options = {"yes": yes, "running": running}
            return act_on_found(settings, board, "cancel", "cancelled", found, reason=why, **options)

        def act(job: Job) -> None:
            board.cancel(job, reason=why, running=running, token=token)

        return act_on_jobs(settings, "cancelled", board, act, uuids)


def _check_token(uuids: tuple[str, ...], token: int | None) -> None:
    if token is not None and len(uuids) != 1:
        raise click.UsageError("--token belongs to one claim: give one UUID")


def _signed(act: str, reason: str | None) -> str:
    return f"{act} by {operator()}" + (f": {reason}" if reason else "")


def operator() -> str:
    """Return the user of this process and its host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # In a container, a user need not have a name.
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"
