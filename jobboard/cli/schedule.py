"""``jobboard schedule``: jobs posted at certain times, and a process that posts them where no conductor runs."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import click

from jobboard.arguments import worker_name
from jobboard.board import JobBoard
from jobboard.cli.acts import act_on_each
from jobboard.cli.common import DONE, BoardOptions, command, group, named_options, positive_duration
from jobboard.cli.jobs import job_dict
from jobboard.cli.output import log_to_stderr, time_of, warn
from jobboard.cli.post import job_options, read_arguments
from jobboard.cli.summary import named, refuse_memory, refuse_read_only
from jobboard.cli.tables import Column, as_dict, name_column, show
from jobboard.cli.work import connect_patiently
from jobboard.exceptions import NotFound
from jobboard.primitives import span

if TYPE_CHECKING:
    from jobboard.schedules import Schedule

LOG = logging.getLogger(__name__)


def _when(made: Schedule) -> str:
    return f"{made.cron}, {made.tz}" if made.every is None else f"every {span(made.every)}"


def _next(made: Schedule) -> str:
    if made.held is not None:
        return "held, see --json"
    return "paused" if made.is_paused else time_of(made.next_due)


# Details and context are left out, as they may be private.
_SCHEDULE: list[Column[Schedule]] = [
    Column("id", attrgetter("id"), "id"),
    name_column("name", attrgetter("name")),
    Column(None, _when, "when"),
    Column("missed", attrgetter("missed"), "missed", whole=True),
    Column("next_due", attrgetter("next_due"), "next due", _next, whole=True),
    Column("last_posted", attrgetter("last_posted"), "last posted for", lambda made: time_of(made.last_posted)),
    *(
        Column(name, attrgetter(name))
        for name in ("cron", "every", "tz", "priority", "key", "group", "max_attempts", "expires", "held", "is_paused")
    ),
]


@group(
    "jobboard schedule set nightly report --cron '30 3 * * *' --tz Europe/Berlin",
    "jobboard schedule list",
    "jobboard schedule run",
)
def schedule() -> None:
    """Have jobs posted at certain times.

    Conductors post due jobs, 'jobboard work' too. 'jobboard schedule run' is for a board without a conductor.
    """


@command("jobboard schedule list", "jobboard schedule list --json | jq -r .id", group=schedule, name="list")
def list_schedules(settings: BoardOptions) -> None:
    """List the schedules, and when each is due next."""
    with settings.opened() as board:
        found, name = board.schedules(), named(board)
    nothing = f"There are no schedules on {name}."
    title = f"schedules of {name}; times are UTC"
    show(settings, found, _SCHEDULE, title=title, nothing=lambda: nothing, limit=len(found))


@command(
    "jobboard schedule set nightly report --cron '30 3 * * *' --tz Europe/Berlin",
    "jobboard schedule set ping ping --every 5m --missed none --key ping",
    group=schedule,
    name="set",
)
@click.argument("schedule_id", metavar="ID")
@click.argument("job_name", metavar="NAME")
@click.option(
    "--cron", metavar="EXPRESSION", help="The times: minute, hour, day of month, month, day of week; or @daily."
)
@click.option(
    "--every",
    type=positive_duration,
    metavar="DURATION",
    help="The interval from now on, instead of --cron: 90s, 5m, 2h.",
)
@click.option("--tz", metavar="ZONE", help="The time zone of --cron.  [default: UTC]")
@click.option(
    "--missed",
    type=click.Choice(["one", "all", "none"]),
    help="Post for the latest missed time, for the latest 1,000, or for none.  [default: one]",
)
@job_options
def set_schedule(settings: BoardOptions, schedule_id: str, job_name: str, **given: Any) -> None:
    """Have jobs called NAME posted from now on.

    A schedule that has this ID is replaced.
    """
    arguments = read_arguments(given)
    if ("cron" in arguments) == ("every" in arguments):
        raise click.UsageError("give either --cron or --every")
    refuse_memory(settings.uri)
    with settings.opened(create=True) as board, named_options():
        made = board.schedule(schedule_id, name=job_name, **arguments)
    text = f"{made.id}: next due {_next(made)} UTC" if made.held is None else f"{made.id} is held: {made.held}"
    if made.is_paused:
        text = f"{made.id} is paused: 'jobboard schedule resume' has it posted again"
    settings.tell(text, **as_dict(_SCHEDULE, made), details=made.details)


@command("jobboard schedule remove nightly", group=schedule)
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
def remove(settings: BoardOptions, ids: tuple[str, ...]) -> int:
    """Remove schedules; the jobs that they have posted stay."""
    return _act("removed", JobBoard.unschedule, settings, ids)


@command("jobboard schedule pause nightly", group=schedule)
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
def pause(settings: BoardOptions, ids: tuple[str, ...]) -> int:
    """Post no jobs of schedules until they are resumed."""
    return _act("paused", JobBoard.pause_schedule, settings, ids)


@command("jobboard schedule resume nightly", group=schedule)
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
def resume(settings: BoardOptions, ids: tuple[str, ...]) -> int:
    """Post the jobs of paused schedules again. --missed of a schedule decides about due times in the pause."""
    return _act("resumed", JobBoard.resume_schedule, settings, ids)


@command("jobboard schedule now nightly", group=schedule)
@click.argument("schedule_id", metavar="ID")
def now(settings: BoardOptions, schedule_id: str) -> int:
    """Post a job of a schedule now, also of a paused one. The next due time stays."""
    with settings.opened() as board, _hinting():
        job = board.post_now(schedule_id)
        settings.tell(job.uuid, **job_dict(job), created=job.created)
        if not (job.created or settings.json):
            warn(f"nothing was posted: {job} has the key {job.key!r} already")
    return DONE


def _act(act: str, verb: Callable[[JobBoard, str], None], settings: BoardOptions, ids: Sequence[str]) -> int:
    with settings.opened() as board:

        def on(id_: str) -> None:
            with _hinting():
                verb(board, id_)

        return act_on_each(settings, act, on, ids, "schedule")


@contextlib.contextmanager
def _hinting() -> Iterator[None]:
    try:
        yield
    except NotFound as error:
        raise NotFound(f"{error}; 'jobboard schedule list' shows them") from None


@command("jobboard schedule run", "jobboard schedule run --log-format json", group=schedule)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def run(settings: BoardOptions, log_format: str) -> None:
    """Post due jobs, until SIGTERM or Ctrl-C.

    Any number of these processes may run, beside conductors too: one job is posted for each due time. The process waits
    for a backend that can't be reached.
    """
    from jobboard.conductor.scheduler import Scheduler
    from jobboard.conductor.signals import stopped_by_signals

    board = settings.fetch()
    refuse_read_only(board)
    log_to_stderr(logging.INFO, as_json=log_format == "json")
    who = worker_name()
    scheduler = Scheduler(who, board)
    connect_patiently(board)
    try:
        LOG.info("%s posts the due jobs of schedules of the %s", who, board)
        with stopped_by_signals(who, scheduler.stop):
            scheduler.start()
            scheduler.wait()
    finally:
        board.close()
