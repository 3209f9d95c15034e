"""``jobboard schedule``: what is posted at certain times, and a process that does it where no conductor runs."""

from __future__ import annotations

import dataclasses
import logging
import threading
from typing import TYPE_CHECKING, Any

import click

from jobboard.cli.acting import one_by_one
from jobboard.cli.common import (
    DONE,
    BoardOptions,
    Duration,
    Group,
    board_options,
    example,
    fetch_board,
    opened,
    worker_name,
    wrong_call,
)
from jobboard.cli.completing import priorities
from jobboard.cli.naming import named, refuse_memory, refuse_read_only
from jobboard.cli.output import log_to_stderr, say, say_json, span, table
from jobboard.cli.posting import read_arguments
from jobboard.cli.working import connect_patiently

if TYPE_CHECKING:
    from jobboard.scheduling import Schedule

LOG = logging.getLogger(__name__)


@click.group(
    cls=Group,
    epilog=example(
        "jobboard schedule set nightly report --cron '30 3 * * *' --tz Europe/Berlin",
        "jobboard schedule list",
        "jobboard schedule run",
    ),
)
@board_options
@click.pass_context
def schedule(context: click.Context, settings: BoardOptions) -> None:
    """Have jobs posted at certain times: set, list and remove what is posted when, and post it.

    Conductors post what is due, 'jobboard work' too; 'jobboard schedule run' is for a board without any.
    """
    context.obj = settings


@schedule.command("list", epilog=example("jobboard schedule list", "jobboard schedule list --json | jq -r .id"))
@board_options
def list_schedules(settings: BoardOptions) -> None:
    """List the schedules, and when each is due next."""
    with opened(settings) as board:
        found = board.schedules()
        if settings.json:
            for each in found:
                say_json(_as_dict(each))
        elif not found:
            say(f"There are no schedules on {named(board)}.")
        else:
            say(f"schedules of {named(board)}; times are UTC")
            table(
                ("id", "name", "when", "missed", "next due", "last posted for"),
                (
                    (each.id, each.name, _when(each), each.missed, _next(each), _time(each.last_posted))
                    for each in found
                ),
            )


@schedule.command(
    "set",
    epilog=example(
        "jobboard schedule set nightly report --cron '30 3 * * *' --tz Europe/Berlin",
        "jobboard schedule set ping ping --every 5m --missed none --key ping",
    ),
)
@click.argument("schedule_id", metavar="ID")
@click.argument("job_name", metavar="NAME")
@click.option("--cron", metavar="EXPRESSION", help="When: minute, hour, day of month, month, day of week; or @daily.")
@click.option("--every", type=Duration(positive=True), metavar="DURATION", help="Instead: 90s, 5m, 2h, from now on.")
@click.option("--tz", metavar="ZONE", help="The time zone of --cron.  [default: UTC]")
@click.option(
    "--missed",
    type=click.Choice(["one", "all", "none"]),
    help="Of the times at which nobody posted, the latest, the latest 1,000, or none.  [default: one]",
)
@click.option("--details", metavar="JSON", help="As in 'jobboard post', like what follows.")
@click.option("--priority", shell_complete=priorities, help="From -100 to 100, or the name of one.")
@click.option("--context", multiple=True, metavar="KEY=VALUE", help="For programs around the work; may be repeated.")
@click.option("--key", help="No job is posted while an earlier one that has this key is on the board.")
@click.option("--group", help="Whose work it is.")
@click.option("--max-attempts", type=int, help="To the trash when so many attempts have failed.")
@board_options
def set_schedule(settings: BoardOptions, schedule_id: str, job_name: str, **given: Any) -> int:
    """Have jobs called NAME posted from now on; a schedule that has this ID is replaced."""
    arguments = {key: value for key, value in given.items() if value not in (None, ())}
    read_arguments(arguments)
    if ("cron" in arguments) == ("every" in arguments):
        raise click.UsageError("give either --cron or --every")
    refuse_memory(settings.uri)
    with opened(settings, create=True) as board:
        try:
            made = board.schedule(schedule_id, name=job_name, **arguments)
        except (TypeError, ValueError) as error:
            raise wrong_call(error) from None
    if settings.json:
        say_json({**_as_dict(made), "details": made.details})
    else:
        say(f"{made.id}: next due {_next(made)} UTC" if made.held is None else f"{made.id} is held: {made.held}")
    return DONE


@schedule.command(epilog=example("jobboard schedule remove nightly"))
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@board_options
def remove(settings: BoardOptions, ids: tuple[str, ...]) -> int:
    """Remove schedules; the jobs that they have posted stay."""
    with opened(settings) as board:
        return one_by_one(settings, "removed", board.unschedule, ids, "schedule")


@schedule.command(epilog=example("jobboard schedule run", "jobboard schedule run --log-format json"))
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@board_options
def run(settings: BoardOptions, log_format: str) -> int:
    """Post what is due, until SIGTERM or Ctrl-C.

    Any number of these may run, beside conductors too: each due time is posted for once. A backend that can't be
    reached is waited for.
    """
    from jobboard.conductor.scheduling import Scheduler
    from jobboard.conductor.signals import stopped_by_signals

    board = fetch_board(settings.uri, settings.board_name)
    refuse_read_only(board)
    log_to_stderr(logging.INFO, as_json=log_format == "json")
    who, ended = worker_name(), threading.Event()
    scheduler = Scheduler(who, board, ended.is_set)
    connect_patiently(board)
    try:
        LOG.info("%s posts what the schedules of the board %r at %s say", who, board.name, board._shown)
        with stopped_by_signals(who, scheduler.stop):
            scheduler.start()
            scheduler.wait()
    finally:
        board.close()
    return DONE


def _when(made: Schedule) -> str:
    if made.every is not None:
        return f"every {span(made.every)}"
    return f"{made.cron}, {made.tz}"


def _next(made: Schedule) -> str:
    return _time(made.next_due) if made.held is None else "held, see --json"


def _time(time: Any) -> str:
    return "" if time is None else f"{time:%Y-%m-%d %H:%M:%S}"


def _as_dict(made: Schedule) -> dict[str, Any]:
    """Without what may be private: details and context."""
    told = {field.name: getattr(made, field.name) for field in dataclasses.fields(made) if field.repr}
    return {name: value.isoformat() if hasattr(value, "isoformat") else value for name, value in told.items()}
