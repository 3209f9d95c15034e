"""What an operator does to jobs: ``jobboard release`` and ``cancel``; and how an act on many jobs is reported."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Callable, Iterable
from typing import TypeVar

import click

from jobboard.board import JobBoard
from jobboard.cli.common import DONE, FAILED, BoardOptions, board_options, example, find_job, opened
from jobboard.cli.output import say, say_json, warn
from jobboard.exceptions import ConnectionFailure, JobBoardError, UnclaimableJob
from jobboard.job import Job

T = TypeVar("T")

_reason = click.option("--reason", metavar="TEXT", help="Why; kept with the job.")


@click.command(
    epilog=example(
        "jobboard release 0d8a3c3e-9c53-4c5d-bc5a-ab1b0b1a9d5e --reason 'its host is gone'",
        "jobboard release 0d8a3c3e-9c53-4c5d-bc5a-ab1b0b1a9d5e --token 1784215532104417",
        "jobboard list --state CLAIMED --older 2h --json | jq -r .uuid | xargs -r jobboard release",
    )
)
@click.argument("uuids", nargs=-1, required=True, metavar="UUID...")
@click.option(
    "--token", type=int, metavar="N", help="Only while the claim has this token, as 'jobboard show' tells it."
)
@_reason
@board_options
def release(settings: BoardOptions, uuids: tuple[str, ...], token: int | None, reason: str | None) -> int:
    """Take jobs away from a holder that hangs: anybody may claim them again.

    The holder's claim is lost, and whatever it still does with the job is refused. Who has released it stands in the
    job's error, together with the reason. A job whose attempts are used up goes to the trash. By its uuid alone a job
    is also taken from whoever has claimed it a moment ago; --token keeps to the claim that was looked at.
    """
    if token is not None and len(uuids) > 1:
        raise click.UsageError("a token is that of one claim: give one UUID with --token")
    why = _signed("released", reason)
    with opened(settings) as board:

        def act(job: Job) -> None:
            holder = job.owner
            board.release(job, reason=why, token=token)
            if not settings.json:
                say(f"{job} was taken from {holder!r}.")

        return each(settings, "released", board, act, uuids)


@click.command(
    epilog=example(
        "jobboard cancel 0d8a3c3e-9c53-4c5d-bc5a-ab1b0b1a9d5e --reason 'posted twice'",
        "jobboard list --job resize --json | jq -r .uuid | xargs -r jobboard cancel",
    )
)
@click.argument("uuids", nargs=-1, required=True, metavar="UUID...")
@_reason
@board_options
def cancel(settings: BoardOptions, uuids: tuple[str, ...], reason: str | None) -> int:
    """Put jobs that nobody has claimed into the trash.

    Who has cancelled them stands in the job's error, together with the reason. 'jobboard trash restore' brings them
    back. A claimed job is not cancelled: 'jobboard release' frees it first.
    """
    why = _signed("cancelled", reason)
    with opened(settings) as board:
        return each(settings, "cancelled", board, lambda job: board.cancel(job, reason=why), uuids)


def _signed(done: str, reason: str | None) -> str:
    return f"{done} by {operator()}" + (f": {reason}" if reason else "")


def operator() -> str:
    """Who is at the keyboard, as far as the system can tell."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # In a container, a user need not have a name.
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def each(
    settings: BoardOptions, done: str, board: JobBoard, act: Callable[[Job], None], chosen: Iterable[Job | str]
) -> int:
    """Act on each job, or the one of a uuid."""

    def on(one: Job | str) -> None:
        act(find_job(board, one, to_act=True) if isinstance(one, str) else one)

    return one_by_one(settings, done, on, chosen)


def one_by_one(
    settings: BoardOptions, done: str, act: Callable[[T], None], chosen: Iterable[T], what: str = "job"
) -> int:
    """Act on each; what fails is said, and the others are acted on all the same."""
    count = failed = 0
    for one in chosen:
        try:
            act(one)
            count += 1
        except ConnectionFailure:
            warn(f"{count} {what}s were {done} before the backend could no longer be reached")
            raise
        except UnclaimableJob as error:
            job = error.job
            assert job is not None
            warn(f"jobboard: {job} is claimed: first 'jobboard release {job.uuid}', then 'jobboard cancel {job.uuid}'")
            failed += 1
        except JobBoardError as error:
            warn(f"jobboard: {error}")
            failed += 1
    return report(settings, done, count, failed, what)


def report(settings: BoardOptions, done: str, count: int, failed: int, what: str = "job") -> int:
    if settings.json:
        say_json({done: count, "failed": failed})
    else:
        say(f"{count} {what if count == 1 else f'{what}s'} {done}.")
    return FAILED if failed else DONE
