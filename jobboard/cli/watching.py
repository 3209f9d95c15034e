"""``jobboard watch``: what happens on a board, as it happens."""

from __future__ import annotations

import contextlib
import datetime
import logging
import sys

import click

from jobboard.cli.common import DONE, BoardOptions, board_options, example, opened
from jobboard.cli.completing import event_names, names_option
from jobboard.cli.output import log_to_stderr, safe, say, say_json, warn


@click.command(
    epilog=example(
        "jobboard watch",
        "jobboard watch --event ABANDONED --event TRASHED",
        "jobboard watch --job resize --json | jq -r .uuid",
    )
)
@click.option(
    "--event",
    "events",
    multiple=True,
    metavar="EVENT",
    shell_complete=event_names,
    help="Only this event; may be repeated.",
)
@names_option
@board_options
def watch(settings: BoardOptions, events: tuple[str, ...], names: tuple[str, ...]) -> int:
    """Print what happens on a board, line by line, until Ctrl-C.

    When (UTC), what, the job's uuid and name, and who has it. The events are POSTED, CLAIMED, EXTENDED, ABANDONED,
    CONSUMED, TRASHED and RELEASED. (REMOVAL goes with CONSUMED and TRASHED; it is shown when it is asked for.)

    Redis and Valkey report all of these events. ZooKeeper and etcd report POSTED, TRASHED and REMOVAL: name some of
    these with --event to have them reported. Otherwise the command looks at the first 500 jobs about once a second, and
    prints the changes. A job that comes and goes between two looks is not seen, nor is EXTENDED.
    """
    from jobboard.cli.happening import NOTICED, noticed, told
    from jobboard.notifier import REMOTE, REMOVAL

    wanted = {event.upper() for event in events}
    if wanted - REMOTE:
        raise click.UsageError(f"{min(wanted - REMOTE)!r} is not an event here; these are: {', '.join(sorted(REMOTE))}")
    log_to_stderr(logging.WARNING)
    with opened(settings) as board, contextlib.suppress(KeyboardInterrupt):
        shown = wanted or REMOTE - {REMOVAL}
        remote = board.engine.reported_events >= shown
        if not remote and wanted - NOTICED:
            raise click.UsageError(
                f"{min(wanted - NOTICED)} does not show from one look to the next, and this backend does not report it"
            )
        if not remote:
            warn(
                "jobboard: this backend does not report all of these events; the first 500 jobs are looked at about "
                "once a second, and a job that comes and goes in between is not seen"
            )
        elif not settings.json and sys.stderr.isatty():
            warn("jobboard: listening; Ctrl-C ends it")
        for event, uuid, name, who in told(board) if remote else noticed(board, names):
            if event not in shown or (names and name not in names):
                continue
            if settings.json:
                say_json({"time": _now(), "event": event, "name": name, "uuid": uuid, "who": who})
            else:
                by = f" by {safe(who)}" if who is not None else ""
                say(f"{_now()[11:-1]}  {event:<9}  {uuid}  {safe(name)}{by}")
            sys.stdout.flush()
    return DONE


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
