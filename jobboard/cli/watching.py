"""``jobboard watch``: what happens on a board, as it happens."""

from __future__ import annotations

import contextlib
import datetime
import logging
import queue
import sys
import time
from collections.abc import Collection
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from jobboard.cli.common import DONE, Settings, board_options, example, opened
from jobboard.cli.completing import event_names, names_option
from jobboard.cli.output import log_to_stderr, safe, say, say_json, warn
from jobboard.cli.sampling import Pace

if TYPE_CHECKING:
    from jobboard.board import JobBoard
    from jobboard.job import Job

_OFTEN = 1.0
"""How often the jobs are counted where there are no events, in seconds."""


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
def watch(settings: Settings, events: tuple[str, ...], names: tuple[str, ...]) -> int:
    """Print what happens on a board, line by line, until Ctrl-C.

    When (UTC), what, the job's uuid and name, and who has it. The events are POSTED, CLAIMED, EXTENDED, ABANDONED,
    CONSUMED, TRASHED and RELEASED. (REMOVAL goes with CONSUMED and TRASHED; it is shown when it is asked for.)

    Only Redis and Valkey tell a process of what others do. Elsewhere the jobs are counted every second, and each change
    of the counts is a line; there is nothing to pick by event or name then.
    """
    from jobboard.notifier import EVENTS, REMOVAL

    wanted = {event.upper() for event in events}
    if wanted - EVENTS:
        raise click.UsageError(
            f"{min(wanted - EVENTS)!r} is not an event; these are: {', '.join(sorted(EVENTS - {'LOST'}))}"
        )
    log_to_stderr(logging.WARNING)
    with opened(settings) as board, contextlib.suppress(KeyboardInterrupt):
        if board.characteristics.remote_events:
            _print_events(settings, board, wanted or EVENTS - {REMOVAL}, names)
        elif events or names:
            raise click.UsageError(
                "this backend does not tell of what other processes do, so there is nothing to pick by --event or "
                "--job; without them, changes of the counts are shown"
            )
        else:
            warn("jobboard: this backend does not tell of what other processes do; these are changes of the counts")
            _print_counts(settings, board)
    return DONE


def _print_events(settings: Settings, board: JobBoard, events: Collection[str], names: Collection[str]) -> None:
    from jobboard.notifier import CLAIMED, EXTENDED

    heard: queue.SimpleQueue[tuple[str, Job]] = queue.SimpleQueue()
    board.notifier.register(board.notifier.ANY, lambda event, details: heard.put((event, details["job"])))
    if not settings.json and sys.stderr.isatty():
        warn("jobboard: listening; Ctrl-C ends it")
    holders: dict[str, str] = {}
    while True:
        event, job = heard.get()
        # Who gives a job back no longer stands in it.
        who = job._record.who or holders.get(job.uuid)
        if who is not None and event in (CLAIMED, EXTENDED):
            holders[job.uuid] = who
        else:
            holders.pop(job.uuid, None)
        if event not in events or (names and job.name not in names):
            continue
        if settings.json:
            say_json({"time": _now(), "event": event, "name": job.name, "uuid": job.uuid, "who": who})
        else:
            by = f" by {safe(who)}" if who is not None else ""
            say(f"{_now()[11:-1]}  {event:<9}  {job.uuid}  {safe(job.name)}{by}")
        sys.stdout.flush()


def _print_counts(settings: Settings, board: JobBoard) -> None:
    pace = Pace(board)
    before: dict[str, int] | None = None
    while True:
        counts: dict[str, int] = asdict(pace.ask(board.stats))
        if counts != before:
            change = {state: count - (before or counts)[state] for state, count in counts.items()}
            if settings.json:
                shown: dict[str, Any] = {"time": _now(), "event": "COUNTS", **counts}
                say_json({**shown, "change": change if before else None})
            else:
                changes = {state: f" ({number:+})" if number else "" for state, number in change.items()}
                say(
                    f"{_now()[11:-1]}  COUNTS  "
                    + ", ".join(f"{state} {counts[state]}{changes[state]}" for state in counts)
                )
            sys.stdout.flush()
            before = counts
        time.sleep(max(_OFTEN, pace.pause()))


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
