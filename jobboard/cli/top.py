"""``jobboard top``: a screen of a board's work, or a line of text or JSON for each look."""

from __future__ import annotations

import contextlib
import datetime
import logging
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import click

from jobboard.board import JobBoard
from jobboard.cli.common import SHORTEST, BoardOptions, command
from jobboard.cli.entities import ENTITY
from jobboard.cli.jobs import encrypted_column, error_column, job_name_columns, progress_column
from jobboard.cli.output import one_line, say, say_json, time_of
from jobboard.cli.summary import remarks, remarks_dict, warn_of_empty
from jobboard.cli.tables import WIDE, Column, as_dict, cut_middle, name_column, table_of, uuid_column
from jobboard.engine import Rules
from jobboard.exceptions import JobBoardError
from jobboard.job import Entity, Job
from jobboard.obstacles import unhandled
from jobboard.primitives import BoardStats, KeptStats, span
from jobboard.reading import ERRORS, SILENT, BoardLook, BoardReader, rest
from jobboard.retry import outage_backoff
from jobboard.states import SCHEDULED, UNCLAIMED

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

PARTS = ("stats", "rules", "kept", "entities", "claims", "jobs", "trashed")
"""The parts of a look at a board that a snapshot shows."""

_COUNTED = ("unclaimed", "scheduled", "claimed", "trashed", "on_board")


@command("jobboard top", "jobboard top --interval 10", "jobboard top --once --json | jq .counts.unclaimed")
@click.option(
    "--interval",
    type=click.FloatRange(min=1),
    default=4.0,
    show_default=True,
    metavar="SECONDS",
    help="The time between two looks; longer where the server takes long.",
)
@click.option("--once", is_flag=True, help="Show one snapshot, and end.")
def top(settings: BoardOptions, interval: float, once: bool) -> None:
    """Show the work on a board, until Ctrl-C.

    The screen has the jobs in each state and of each name, the job that waits longest, the claims and their holders,
    the conductors, and the last errors. A look takes about ten requests, however large the board is, and figures of the
    first jobs alone are marked. A conductor that hangs shows as a claim that grows old: 'jobboard release' frees its
    job.

    Into a pipe, and with --json, each snapshot is one line.
    """
    from rich.console import Console
    from rich.live import Live

    out = Console(markup=False, emoji=False, highlight=False)
    screen = out.is_terminal and not out.is_dumb_terminal and not settings.json
    # On a screen, an outage shows soon.
    options: dict[str, Any] = {} if once else {"retry_for": 1}
    with settings.opened(**options) as board, contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as stack:
        if not settings.json:
            warn_of_empty(board)
        if once:
            seen = look(board)
            out.print(seen) if screen else _say(settings, seen)
            return
        # An outage is shown. A log line would be written across the screen.
        logging.getLogger().addHandler(logging.NullHandler())
        # SIGTERM ends as Ctrl-C does, so that the terminal is put back.
        stack.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, signal.default_int_handler))
        live = stack.enter_context(Live(console=out, screen=True)) if screen else None
        for seen, pause in _looks(board, interval):
            live.update(seen, refresh=True) if live else _say(settings, seen)
            time.sleep(pause)


@dataclass(frozen=True)
class Overview:
    """A board at one time.

    at: the time of this machine. now: the server's time in seconds. jobs: the first jobs, in the order of serving.
    claims: the first claimed jobs, the oldest claim first. trashed: the last jobs in the trash. change: the change of
    each count per second since the look before. trouble: why the board can't be reached now.
    """

    board: JobBoard
    at: datetime.datetime
    now: float
    stats: BoardStats
    kept: KeptStats
    rules: Rules
    entities: Sequence[Entity]
    jobs: Sequence[Job]
    claims: Sequence[Job]
    trashed: Sequence[Job]
    change: dict[str, float]
    trouble: str | None = None

    def counts(self) -> dict[str, int]:
        return {**asdict(self.stats), "on_board": self.stats.on_board}

    def waiting(self) -> list[Job]:
        return [job for job in self.jobs if job.seen_state == UNCLAIMED]

    def oldest_waiting(self) -> Job | None:
        return min(self.waiting(), key=lambda job: job.created_on, default=None)

    def by_name(self) -> list[tuple[str, str, int, int, int]]:
        """(label, name, waiting, scheduled, running) of the jobs that were seen, the most frequent ones first."""
        scheduled = (job for job in self.jobs if job.seen_state == SCHEDULED)
        counts = [Counter((job.label, job.name) for job in each) for each in (self.waiting(), scheduled, self.claims)]
        total = sum(counts, Counter())
        kinds = sorted(total, key=lambda kind: (-total[kind], kind))
        return [(*kind, *(count[kind] for count in counts)) for kind in kinds]  # type: ignore[misc]

    def unhandled(self) -> list[str]:
        return unhandled([*self.jobs, *self.claims], self.rules, self.entities)

    def errors(self) -> list[Job]:
        """The jobs with the latest errors that were seen: in the trash, or to be tried again."""
        failed = {job.uuid: job for job in (*self.trashed, *self.jobs, *self.claims) if job.error}
        return sorted(failed.values(), key=lambda job: job.last_modified, reverse=True)[:ERRORS]

    def since(self, when: datetime.datetime) -> float:
        return max(0.0, self.now - when.timestamp())

    def lists(self) -> list[tuple[str, str, list[Column[Any]], Sequence[Any], int]]:
        """Return the lists of a snapshot: their names in JSON, titles, columns and rows, and the number of all rows."""

        def lease(job: Job) -> float | None:
            left = job.record.lock_until
            return None if left is None else round(left / 1e6 - self.now, 3)

        def lease_text(job: Job) -> str:
            kept = "fixed" if job.record.keeper is None else "kept"
            return kept if (left := lease(job)) is None else f"{kept}, {span(left)}"

        def attempt(job: Job) -> str:
            return f"{job.attempts}" if job.max_attempts is None else f"{job.attempts} of {job.max_attempts}"

        def age(job: Job) -> float:
            return round(self.since(job.last_modified), 3)

        running: list[Column[Job]] = [
            Column("seconds", age, "for", lambda job: span(age(job)), number=True),
            uuid_column(lambda job: job.uuid),
            *job_name_columns(),
            name_column("owner", lambda job: job.owner),
            Column("kept", lambda job: job.record.keeper is not None),
            Column("lease", lease, "lease", lease_text, whole=True),
            Column("attempts", lambda job: job.attempts, "attempt", attempt, whole=True),
            progress_column(),
            encrypted_column(),
        ]
        failed: list[Column[Job]] = [
            Column(None, lambda job: f"{span(age(job))} ago", "when", number=True),
            uuid_column(lambda job: job.uuid),
            *job_name_columns(),
            Column("state", lambda job: str(job.seen_state), "state", whole=True, least=WIDE),
            error_column("error"),
        ]
        errors = self.errors()
        return [
            ("running", "running, the longest first", running, self.claims, max(self.stats.claimed, len(self.claims))),
            ("entities", "conductors and others", ENTITY, self.entities, len(self.entities)),
            ("errors", "last errors", failed, errors, len(errors)),
        ]

    def notes(self) -> list[str]:
        """Return the lines between the counts and the lists."""
        notes = remarks(self.rules, self.kept, self.unhandled())
        if (oldest := self.oldest_waiting()) is not None:
            posted = f"posted {span(self.since(oldest.created_on))} ago"
            notes.insert(0, f"oldest waiting: {posted}, {oldest.uuid[:SHORTEST]} {oldest.label}")
        if len(self.jobs) < self.stats.on_board:
            notes.append(f"names, waiting jobs and errors: of the first {len(self.jobs)} of {self.stats.on_board} jobs")
        return [one_line(note) for note in notes]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Yield the screen, with as many rows of each list as fit into the height."""
        from rich.table import Table
        from rich.text import Text

        def line(text: str, style: str) -> Text:
            return Text(text, style, no_wrap=True, overflow="ellipsis")

        width, height = options.max_width, options.height or sys.maxsize
        states: list[Column[str]] = [
            Column(None, lambda name: name.replace("_", " "), "jobs", whole=True),
            Column(None, lambda name: f"{self.counts()[name]:,}", "", number=True),
            Column(None, lambda name: f"{self.change[name]:+.1f}" if self.change else "", "change/s", number=True),
        ]
        titles = ("by name", "waiting", "scheduled", "running")
        names: list[Column[Any]] = [
            Column(None, itemgetter(n), title, number=n > 0, cut=None if n else cut_middle)
            for n, title in enumerate(titles)
        ]
        rows = [(label, *counts) for label, _, *counts in self.by_name()]
        most = min(len(rows), max(len(_COUNTED), height // 4))
        rest = [sum(counts) for counts in list(zip(*rows[most:], strict=True))[1:]]
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        below = [(f"({len(rows) - most} more)", *rest)] if rest else []
        grid.add_row(table_of(states, _COUNTED, width), table_of(names, [*rows[:most], *below], width))
        above: list[RenderableType] = [line(f"{time_of(self.at)}Z  {one_line(self.board)}", "bold"), grid]
        if self.trouble is not None:
            above.insert(1, line(f"AWAY, trying again: {one_line(self.trouble)}", "bold red"))
        above += [line(note, "bold yellow") for note in self.notes()]
        yield from above
        room = height - len(above) - max(len(_COUNTED), most + len(below))
        parts: list[RenderableType] = []
        lists = [each for each in self.lists() if each[3]]
        # The list of claims is the last one here, and gets the room that the others leave.
        while lists:
            _, title, columns, found, total = lists[-1]
            shown = min(len(found), max(1, room // len(lists) - 2))
            part = f": {shown:,} of {total:,}" if shown < total else ""
            parts[:0] = [line(f"{title}{part}", "bold cyan"), table_of(columns, found[:shown], width)]
            room -= shown + 2
            lists.pop()
        yield from parts


def look(board: JobBoard, before: Overview | None = None) -> Overview:
    """Look at a board.

    :param before: the last look, from which the changes are taken.
    """
    reader = BoardReader(board)
    return _overview(reader, reader.read(PARTS), before)


def _overview(reader: BoardReader, look: BoardLook, before: Overview | None) -> Overview:
    if look.stats is None or look.kept is None or look.rules is None:
        raise AssertionError("a look has the parts that were asked for")
    lists = look.entities or (), look.jobs or (), look.claims or (), look.trashed or ()
    at = datetime.datetime.now(datetime.UTC)
    seen = Overview(reader.board, at, look.now, look.stats, look.kept, look.rules, *lists, {})
    if before is None or look.now <= before.now:
        return seen
    old, new, seconds = before.counts(), seen.counts(), look.now - before.now
    return replace(seen, change={name: (new[name] - old[name]) / seconds for name in new})


def _looks(board: JobBoard, interval: float) -> Iterator[tuple[Overview, float]]:
    """Look at a board again and again. Yield each look, or the last one in an outage, and the pause behind it."""
    reader, seen = BoardReader(board), None
    failures = 0
    while True:
        began, answer = time.monotonic(), reader.ask(PARTS)
        try:
            while (look := _look_or_trouble(reader, answer)).trouble is not None:
                if seen is not None:
                    yield _with_trouble(seen, look.trouble), 0
            seen = _overview(reader, look, seen)
        except JobBoardError as error:
            if seen is None:
                raise
            failures += 1
            yield _with_trouble(seen, error), outage_backoff(failures)
        else:
            failures = 0
            yield seen, rest(time.monotonic() - began, interval)


def _look_or_trouble(reader: BoardReader, answer: Callable[[float], BoardLook]) -> BoardLook:
    """Return the look that was asked for, or one whose ``trouble`` tells that the board does not answer."""
    while True:
        try:
            return answer(SILENT)
        except TimeoutError:
            look = reader.look(())
            if look.trouble is not None:
                return look


def _with_trouble(seen: Overview, error: JobBoardError) -> Overview:
    """Return the last look, with the error for which the board can't be read now."""
    return replace(seen, at=datetime.datetime.now(datetime.UTC), trouble=str(error))


def _say(settings: BoardOptions, seen: Overview) -> None:
    if settings.json:
        say_json(as_json(seen))
    else:
        say(as_line(seen))


def as_json(seen: Overview) -> dict[str, Any]:
    """Return a snapshot. Unknown values are null; ``seen`` is the number of jobs in the lists, of those in ``of``."""
    oldest, waiting, running = seen.oldest_waiting(), seen.waiting(), seen.claims
    counted = ("label", "name", "waiting", "scheduled", "running")
    by_name = [dict(zip(counted, each, strict=True)) for each in seen.by_name()]
    waits = None if oldest is None else round(seen.since(oldest.created_on), 3)
    return {
        "time": seen.at.isoformat(),
        "board": seen.board.name,
        "trouble": seen.trouble,
        "counts": seen.counts(),
        **remarks_dict(seen.rules, seen.kept, seen.unhandled()),
        "change_per_second": {name: round(seen.change[name], 3) if seen.change else None for name in _COUNTED},
        "seen": {"waiting": len(waiting), "running": len(running)},
        "of": {
            "waiting": max(seen.stats.unclaimed, len(waiting)),
            "running": max(seen.stats.claimed, len(running)),
        },
        "by_name": by_name,
        "oldest_waiting": oldest
        and {"uuid": oldest.uuid, "name": oldest.name, "label": oldest.label, "seconds": waits},
        **{name: [as_dict(columns, row) for row in rows] for name, _, columns, rows, _ in seen.lists()},
    }


def as_line(seen: Overview) -> str:
    """Return a snapshot for a file or a pipe."""
    if seen.trouble is not None:
        return f"{time_of(seen.at)}Z away: {one_line(seen.trouble)}"
    parts = [f"{state} {count}" for state, count in asdict(seen.stats).items()] + seen.notes()
    if seen.claims:
        parts.append(f"oldest running: for {span(seen.since(seen.claims[0].last_modified))}, {seen.claims[0].label}")
    return f"{time_of(seen.at)}Z {one_line(', '.join(parts))}"
