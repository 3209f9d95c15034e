"""``jobboard watch``: the events of a board, reported by its backend or found by comparing two looks."""

from __future__ import annotations

import contextlib
import datetime
import logging
import queue
import sys
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import click

from jobboard.board import JobBoard
from jobboard.cli.common import BoardOptions, command, names_option
from jobboard.cli.output import log_to_stderr, say_json, warn
from jobboard.cli.summary import warn_of_empty
from jobboard.cli.tables import Column, as_dict, name_column, table, uuid_column
from jobboard.exceptions import ConnectionFailure
from jobboard.job import Job
from jobboard.notifier import ABANDONED, CLAIMED, CONSUMED, EXTENDED, POSTED, RELEASED, REMOTE, REMOVAL, TRASHED
from jobboard.primitives import PAGE, span
from jobboard.reading import rest
from jobboard.reasons import reason_line
from jobboard.retry import outage_backoff
from jobboard.states import State

LOG = logging.getLogger(__name__)

INTERVAL = 0.6
"""The seconds between two looks."""

_EVENTS = [POSTED, CLAIMED, EXTENDED, ABANDONED, CONSUMED, TRASHED, RELEASED, REMOVAL]


@command(
    "jobboard watch",
    "jobboard watch --event ABANDONED --event TRASHED",
    "jobboard watch --job resize --json | jq -r .uuid",
)
@click.option(
    "--event",
    "events",
    multiple=True,
    type=click.Choice(_EVENTS, case_sensitive=False),
    metavar="EVENT",
    help="Only this event; may be repeated.",
)
@names_option
def watch(settings: BoardOptions, events: tuple[str, ...], names: tuple[str, ...]) -> None:
    """Print the events of a board, line by line, until Ctrl-C.

    A line has the time (UTC), the event, the job's uuid and name, its holder, the duration of the claim, and the reason
    of an end. The events are POSTED, CLAIMED, EXTENDED, ABANDONED, CONSUMED, TRASHED and RELEASED. REMOVAL goes with
    CONSUMED and TRASHED, and is shown when it is asked for.

    Redis and Valkey report these events. On other backends the command looks at the first 500 jobs about once a second,
    and prints the changes. A job that comes and goes between two looks is not seen, nor is EXTENDED.
    """
    log_to_stderr(logging.WARNING)
    with settings.opened() as board, contextlib.suppress(KeyboardInterrupt):
        shown = set(events) or REMOTE - {REMOVAL}
        remote = board.engine.store.traits.reported_events >= REMOTE
        if not remote and EXTENDED in events:
            # Each heartbeat extends a claim, too.
            raise click.UsageError(
                "EXTENDED does not show from one look to the next, and this backend does not report it"
            )
        if not remote:
            warn("jobboard: this backend reports no events; the changes of the first 500 jobs follow, once a second")
        if not settings.json:
            warn_of_empty(board)
        titles = sys.stdout.isatty()
        for event in Watcher(board, names).reported() if remote else Watcher(board, names).compared():
            if event.event not in shown or (names and event.name not in names):
                continue
            if settings.json:
                say_json(as_dict(_EVENT, event))
            else:
                table(_EVENT, [event], stream=True, titles=titles)
                titles = False


class Event(NamedTuple):
    """An act on a job. seconds: how long the claim lasted that it ended. reason: the error that it left. due: the time
    from which the job may be claimed again."""

    time: datetime.datetime
    event: str
    uuid: str
    name: str
    who: str | None
    seconds: float | None
    reason: str | None
    due: datetime.datetime | None
    label: str


def _exact(event: Event) -> str:
    return event.time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _took(event: Event) -> str | None:
    return None if event.seconds is None else span(event.seconds)


def _reason(event: Event) -> str:
    again = "" if event.due is None else f"due in {span((event.due - event.time).total_seconds())}"
    return ", ".join(filter(None, [again, reason_line(event.reason)]))


_EVENT: list[Column[Event]] = [
    Column("time", _exact, "time", lambda event: f"{event.time:%H:%M:%S}", size=8),
    Column("event", lambda event: event.event, "event", size=9),
    uuid_column(lambda event: event.uuid),
    name_column("name", lambda event: event.name, text=lambda event: event.label),
    Column("label", lambda event: event.label),
    name_column("who", lambda event: event.who),
    Column("seconds", lambda event: event.seconds, "took", _took, number=True, size=6),
    Column("reason", lambda event: event.reason, "reason", _reason),
    Column("due", lambda event: event.due),
]


class Watcher:
    """The events of a board: those that its backend reports, or the changes from one look at its jobs to the next.

    :param names: look only at jobs of these names; at all of them, if there are none.
    """

    def __init__(self, board: JobBoard, names: Sequence[str] = ()) -> None:
        self._board = board
        self._names = names or None
        self._ahead = board.engine.now() / 1e6 - time.time()
        self._before: dict[str, Job] | None = None
        self._end: Job | None = None

    def _event(self, event: str, job: Job, claimed: Job | None = None) -> Event:
        """Return an event.

        :param claimed: the job as its claim was seen; None if the event ends no claim, or the claim was not seen.
        """
        now = datetime.datetime.fromtimestamp(time.time() + self._ahead, datetime.UTC)
        last = job.errors[-1] if job.errors else None
        left = job.seen_state not in (State.CLAIMED, State.COMPLETE)
        seconds = None
        if claimed is not None:
            # The record of a consumed job does not say when it was consumed.
            end = job.last_modified if left else now
            seconds = round(max(0.0, (end - claimed.last_modified).total_seconds()), 3)
        # An earlier error stays with a job that is given back without one.
        reason = last.text if left and last is not None and last.when == job.last_modified else None
        who = claimed.owner if claimed is not None else None if event == POSTED else job.who
        return Event(now, event, job.uuid, job.name, who, seconds, reason, job.due, job.label)

    def reported(self) -> Iterator[Event]:
        """Yield the events that the backend reports, without end."""
        heard: queue.SimpleQueue[tuple[str, Job]] = queue.SimpleQueue()
        self._board.notifier.register(
            self._board.notifier.ANY, lambda event, details: heard.put((event, details["job"]))
        )
        claims: dict[str, Job] = {}
        while True:
            event, job = heard.get()
            if event in (CLAIMED, EXTENDED):
                if event == CLAIMED:
                    claims[job.uuid] = job
                yield self._event(event, job)
            else:
                # REMOVAL follows CONSUMED and TRASHED.
                ended = claims.get if event in (CONSUMED, TRASHED) else claims.pop
                yield self._event(event, job, ended(job.uuid, None))

    def compared(self) -> Iterator[Event]:
        """Yield the changes from one look at the first jobs to the next, without end."""
        failures = 0
        while True:
            began = time.monotonic()
            try:
                yield from self.look()
                failures, pause = 0, rest(time.monotonic() - began, INTERVAL)
            except ConnectionFailure as error:
                if self._board.closed:
                    raise
                failures += 1
                pause = outage_backoff(failures)
                LOG.warning("can't look at the board, trying again in %.1f s: %s", pause, error)
            time.sleep(pause)

    def look(self) -> list[Event]:
        """Return the events since the last look; none at the first look."""
        seen = self._board.engine.page(None, PAGE, self._names, None)
        page = [Job(self._board, each.record, each.record.posting, each.state) for each in seen if each.record]
        now = {job.uuid: job for job in page}
        end = page[-1] if len(seen) == PAGE else None
        before, last_end = self._before, self._end
        gone = [job for job in (before or {}).values() if job.uuid not in now and (end is None or job < end)]
        left = self._board.engine.read([job.uuid for job in gone]) if gone else []
        # Only now: the next look asks again for jobs that could not be read.
        self._before, self._end = now, end
        if before is None:
            return []
        events: list[Event] = []
        for job in page:
            was = before.get(job.uuid)
            if was is not None:
                if event := _change(was, job):
                    events.append(self._event(event, job, _claimed(was)))
            # A job that has moved up into the page is not new.
            elif last_end is None or not last_end < job:
                events.append(self._event(POSTED, job))
                if job.seen_state == State.CLAIMED:
                    events.append(self._event(CLAIMED, job))
        for was, after in zip(gone, left, strict=True):
            if event := {State.COMPLETE: CONSUMED, State.TRASHED: TRASHED}.get(after.state):
                job = Job(self._board, after.record, after.record.posting, after.state) if after.record else was
                events += [self._event(each, job, _claimed(was)) for each in (event, REMOVAL)]
        return events


def _claimed(job: Job) -> Job | None:
    return job if job.owner is not None else None


def _change(was: Job, job: Job) -> str | None:
    """Return the event that explains how a job on the board has changed."""
    again = job.token != was.token
    if job.owner is not None:
        return CLAIMED if again else None
    tries, tried = (job.attempts, job.retries), (was.attempts, was.retries)
    if was.owner is not None and again and tries == tried:
        return RELEASED
    # The holder of a claim that has lapsed stays in the record.
    if job.who is not None or not (was.owner is not None or again):
        return None
    # A post that replaces raises the token as well, and lets the attempts begin anew.
    return ABANDONED if was.owner is not None or sum(tries) > sum(tried) else POSTED
