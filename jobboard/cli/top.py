"""``jobboard top``: a screen of a board's work, or a line of text or JSON for each look."""

from __future__ import annotations

import contextlib
import datetime
import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

import click

from jobboard.cli.common import SHORTEST, BoardOptions, command
from jobboard.cli.entities import ENTITY
from jobboard.cli.jobs import WIDE
from jobboard.cli.output import console, last_line, safe, say, say_json, span
from jobboard.cli.sampler import BESIDE, COUNTS, EVENTS, Sampler
from jobboard.cli.summary import kept_dict, kept_line, rules_dict, rules_lines, unhandled_line
from jobboard.cli.tables import Column, as_dict, made, uuid_column
from jobboard.exceptions import JobBoardError
from jobboard.job import Entity
from jobboard.retry import outage_pause
from jobboard.states import Record

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

T = TypeVar("T")

REDRAW = 1.0
"""The screen is drawn anew after so many seconds without news: the terminal may have another size."""

_STATES = ("unclaimed", "scheduled", "claimed", "trashed", "on_board")
_TIGHT = 28
"""The largest height of a screen without blank lines between its lists."""

_NAMES, _FEWEST = 6, 3
"""The number of lines for the names of jobs, and the number on a small screen."""


@command("jobboard top", "jobboard top --interval 10", "jobboard top --once --json | jq .counts.unclaimed")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="The time between two counts; longer where it would take more than two looks a second.",
)
@click.option("--once", is_flag=True, help="Show one snapshot, and end.")
def top(settings: BoardOptions, interval: float, once: bool) -> None:
    """Show the work on a board, until q or Ctrl-C.

    The screen has the jobs in each state and of each name, the rates of posts and ends, the job that waits longest,
    the claims and their holders, the conductors, and the last errors. The command looks at most twice a second, however
    large the board is, and marks figures of the first jobs alone. A conductor that hangs shows as a claim that grows
    old: 'jobboard release' frees its job.

    Into a pipe, and with --json, each snapshot is one line.
    """
    out = console()
    screen = out.is_terminal and not out.is_dumb_terminal and not settings.json
    # On a screen, an outage shows soon.
    options: dict[str, Any] = {} if once else {"retry_for": 1}
    with settings.opened(**options) as board, _ended_by_signals():
        sampler = Sampler(board)
        if not once:
            # An outage is shown. A log line would be written across the screen.
            logging.getLogger().addHandler(logging.NullHandler())
            (_screen if screen else _print_lines)(settings, sampler, interval, out)
            return
        while not sampler.complete:
            sampler.look()
        if screen:
            out.print(render(sampler, None, 200, out, live=False))
        else:
            _say(settings, sampler, None)


def _looks(sampler: Sampler, interval: float) -> Iterator[tuple[str | None, float]]:
    """Look, again and again: yield the reason of an outage, and the seconds until the next look."""
    failures = 0
    while True:
        try:
            sampler.look()
        except JobBoardError as error:
            failures += 1
            yield str(error), max(sampler.pace.pause(), outage_pause(failures))
        else:
            failures = 0
            # The first round is as fast as it may be.
            yield None, max(sampler.pace.pause(), interval / (1 + BESIDE) if sampler.complete else 0.0)


def _print_lines(settings: BoardOptions, sampler: Sampler, interval: float, out: Console) -> None:
    """Print a line after each count, once all has been seen, and after each look at a board that is away."""
    counted = None
    for trouble, pause in _looks(sampler, interval):
        if trouble is not None or (sampler.complete and sampler.counted_at != counted):
            counted = sampler.counted_at
            _say(settings, sampler, trouble)
            sys.stdout.flush()
        time.sleep(pause)


def _screen(settings: BoardOptions, sampler: Sampler, interval: float, out: Console) -> None:
    from rich.live import Live

    with _keys() as pressed, Live(console=out, screen=True, auto_refresh=False) as live:
        for trouble, pause in _looks(sampler, interval):
            until = time.monotonic() + pause
            while True:
                live.update(render(sampler, trouble, out.height, out), refresh=True)
                left = until - time.monotonic()
                if "q" in pressed(max(0.0, min(REDRAW, left))).lower():
                    return
                if left <= REDRAW:
                    break


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Give a function that returns the keys pressed within some seconds, which are not echoed."""
    import termios

    def pressed(seconds: float) -> str:
        if not sys.stdin.isatty():
            time.sleep(seconds)
            return ""
        if not select.select([sys.stdin], [], [], seconds)[0]:
            return ""
        # A terminal that has gone away is always ready to be read.
        return os.read(sys.stdin.fileno(), 1024).decode(errors="replace") or "q"

    if not sys.stdin.isatty():
        yield pressed
        return
    before = termios.tcgetattr(sys.stdin)
    now = termios.tcgetattr(sys.stdin)
    now[3] &= ~(termios.ICANON | termios.ECHO)
    # Stopped by Ctrl-Z, top would leave its screen behind.
    now[6][termios.VSUSP] = b"\0"
    try:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, now)
        yield pressed
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSAFLUSH, before)


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """End at Ctrl-C, which is no failure here, and put the terminal back at SIGTERM and SIGHUP, too."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    numbers = (signal.SIGTERM, signal.SIGHUP) if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


# Text and JSON


def _say(settings: BoardOptions, known: Sampler, trouble: str | None) -> None:
    if settings.json:
        say_json(as_json(known, trouble))
    else:
        say(as_line(known, trouble))


def as_json(known: Sampler, trouble: str | None) -> dict[str, Any]:
    """Return a snapshot. Unknown values are null; ``seen`` is the number of jobs in the lists, of those in ``of``."""
    stats, oldest = known.stats, known.oldest_waiting
    by_name = [dict(zip(("name", "waiting", "scheduled", "running"), each, strict=True)) for each in known.by_name]
    waits = None if oldest is None else round(known.now - oldest.created_on / 1e6, 3)
    return {
        "time": _when(known.now),
        "board": known.board.name,
        "trouble": trouble,
        "counts": None if stats is None else {**asdict(stats), "on_board": stats.on_board},
        **rules_dict(known.rules),
        **kept_dict(known.kept),
        "change_per_second": {name: _rounded(known.changes.get(name)) for name in _STATES},
        "rate_per_second": {name: _rounded(known.rates.get(name)) for name in EVENTS.values()},
        "seen": {"waiting": len(known.waiting), "running": len(known.running)},
        "of": {"waiting": known.waiting_of, "running": known.running_of},
        "by_name": by_name,
        "unhandled": known.unhandled,
        "oldest_waiting": None if oldest is None else {"uuid": oldest.uuid, "name": oldest.name, "seconds": waits},
        **{name: [as_dict(columns, row) for row in rows] for name, columns, rows in _lists(known)},
    }


def as_line(known: Sampler, trouble: str | None) -> str:
    """Return a snapshot for a file or a pipe."""
    at = _when(known.now)
    if trouble is not None:
        return f"{at} away: {safe(trouble)}"
    parts = [f"{state} {count}" for state, count in asdict(known.stats).items()] if known.stats else []
    parts += [f"{name} {known.rates[name]:.1f}/s" for name in EVENTS.values() if name in known.rates]
    parts += map(safe, filter(None, _remarks(known)))
    if (oldest := known.oldest_waiting) is not None:
        parts.append(f"oldest waiting {span(known.now - oldest.created_on / 1e6)} {safe(oldest.name)}")
    if known.running:
        parts.append(f"oldest running {span(_lasted(known, known.running[0]))} {safe(known.running[0].name)}")
    return f"{at} {', '.join(parts)}"


def _remarks(known: Sampler) -> list[str]:
    return [*rules_lines(known.rules), kept_line(known.kept), unhandled_line(known.unhandled)]


def _lists(known: Sampler) -> list[tuple[str, list[Column[Any]], Sequence[Any]]]:
    """Return the lists of a snapshot: their names in JSON, columns and rows."""

    def consumed(entity: Entity) -> float | None:
        return known.conductors.rates_of(entity).get("consumed")

    per_minute: Column[Entity] = Column(
        "consumed_per_second",
        lambda entity: _rounded(consumed(entity)),
        "/min",
        lambda entity: None if (rate := consumed(entity)) is None else f"{rate * 60:.0f}",
        number=True,
    )
    running: list[Column[Record]] = [
        Column(
            "seconds",
            lambda record: round(_lasted(known, record), 3),
            "for",
            lambda record: span(_lasted(known, record)),
            number=True,
        ),
        uuid_column(lambda record: record.uuid),
        Column("name", lambda record: record.name, "name"),
        Column("owner", lambda record: record.who, "owner"),
        Column("kept", lambda record: record.keeper is not None),
        Column(
            "lease",
            lambda record: _lease(known, record),
            "lease",
            lambda record: _lease_text(known, record),
            whole=True,
        ),
        Column("attempts", lambda record: record.attempts, "attempt", _attempt, whole=True),
    ]
    errors: list[Column[Record]] = [
        Column(None, lambda record: f"{span(known.now - record.modified_on / 1e6)} ago", "when", number=True),
        uuid_column(lambda record: record.uuid),
        Column("name", lambda record: record.name, "name"),
        Column("state", lambda record: str(record.state), "state", whole=True, least=WIDE),
        Column("error", lambda record: last_line(record.error), "error"),
    ]
    return [
        ("running", running, known.running),
        ("entities", [*ENTITY[1:-1], per_minute, ENTITY[-1], ENTITY[0]], known.entities),
        ("errors", errors, known.errors),
    ]


def _lasted(known: Sampler, record: Record) -> float:
    """Return how long a claim had lasted when it was seen. Nothing is known of it since."""
    return max(0.0, known.running_at - record.modified_on / 1e6)


def _lease(known: Sampler, record: Record) -> float | None:
    """Return the seconds left of a lease; None: it lasts as long as its process."""
    return None if record.lock_until is None else round(record.lock_until / 1e6 - known.running_at, 3)


def _lease_text(known: Sampler, record: Record) -> str:
    seconds, kept = _lease(known, record), "kept" if record.keeper is not None else "fixed"
    return kept if seconds is None else f"{kept}, {span(seconds)}"


def _attempt(record: Record) -> str:
    return f"{record.attempts}" if record.max_attempts is None else f"{record.attempts} of {record.max_attempts}"


def _when(seconds: float) -> str:
    return f"{datetime.datetime.fromtimestamp(seconds, datetime.UTC):%Y-%m-%d %H:%M:%S}"


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 3)


# The screen


def render(known: Sampler, trouble: str | None, height: int, out: Console, *, live: bool = True) -> RenderableType:
    """Return the screen: the counts, and as many rows of each list as fit into ``height`` lines."""
    from rich.console import Group
    from rich.text import Text

    gap = 0 if height <= _TIGHT else 1
    lists = [each for each in _lists(known) if each[2]]
    # A list has a title, and a line of the columns' titles.
    taken = sum(2 + gap for _ in lists)

    def lines(parts: Sequence[RenderableType]) -> int:
        return len(out.render_lines(Group(*parts), pad=False))

    parts = _above(known, trouble, height, out, live, 0)
    # Names of jobs get the lines that no list needs.
    spare = height - lines(parts) - taken - sum(len(rows) for _, _, rows in lists)
    if spare > 0:
        parts = _above(known, trouble, height, out, live, spare)
    room = max(len(lists), height - lines(parts) - taken)
    # The first list, of the claims, gets the room that the others leave.
    sizes = [min(len(rows), max(1, room // 4)) for _, _, rows in lists[1:]]
    for (name, columns, rows), size in zip(lists, [room - sum(sizes), *sizes], strict=False):
        title = {
            "running": f"running, the longest first{_of(size, len(rows), known.running_of)}",
            "entities": f"who is there{_of(size, len(rows), len(rows))}",
            "errors": "last errors",
        }[name]
        parts.append(Text("\n" * gap + title, style="bold cyan", no_wrap=True, overflow="ellipsis"))
        parts.append(made(columns[:-1] if name == "entities" else columns, rows[:size], out.width, "dim"))
    return Group(*parts)


def _above(
    known: Sampler, trouble: str | None, height: int, out: Console, live: bool, spare: int
) -> list[RenderableType]:
    """Return the part of the screen above the lists, with ``spare`` more lines for names of jobs than the fewest."""
    from rich.columns import Columns
    from rich.text import Text

    width = out.width
    blocks = [_counts(known), _rates(known), _names(known, _NAMES + spare, width // 3)]
    beside = sum(out.measure(block).maximum + 4 for block in blocks) <= width
    if height <= _TIGHT and not beside:
        blocks[-1] = _names(known, _FEWEST + spare, width // 3)
    parts: list[RenderableType] = [
        Text(_head(known, live, width // 3), style="bold", no_wrap=True, overflow="ellipsis"),
        *(Columns(row, padding=(0, 2)) for row in ([blocks] if beside else [blocks[:2], blocks[2:]])),
        *(Text(line, style=style, no_wrap=True, overflow="ellipsis") for line, style in _notes(known) if line),
    ]
    if trouble is not None:
        parts.insert(1, Text(f"AWAY, trying again: {safe(' '.join(trouble.split()))}", style="bold red"))
    return parts


def _head(known: Sampler, live: bool, longest: int) -> str:
    name, place = known.board.name, str(known.board).partition(" at ")[2]
    every = f"  every {known.interval:.1f} s" if live and known.interval else ""
    return safe(f"{_when(known.now)}  {_cut(name, longest)}{every}{'  q quits' if live else ''}  {place}")


def _notes(known: Sampler) -> Iterator[tuple[str, str]]:
    """Yield lines below the counts, each with its style."""
    oldest, seen, total = known.oldest_waiting, len(known.waiting), known.waiting_of
    if oldest is not None:
        since = span(known.now - oldest.created_on / 1e6)
        yield f"oldest waiting: posted {since} ago, {oldest.uuid[:SHORTEST]} {safe(oldest.name)}", ""
    for line in _remarks(known):
        yield safe(line), "bold yellow"
    if not known.is_reported:
        yield "rates: what conductors report of themselves, every third of their claim_ttl", "dim"
    if seen < total:
        yield f"by name, and errors: of the first {seen:,} of {total:,} that wait", "dim"


def _block(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """Return a table of names and figures."""
    columns: list[Column[Any]] = [Column(None, itemgetter(at), title, number=at > 0) for at, title in enumerate(titles)]
    return made(columns, rows, None, "bold cyan")


def _counts(known: Sampler) -> Table:
    rows = []
    for state in _STATES:
        count = "" if known.stats is None else f"{getattr(known.stats, state):,}"
        rate = known.changes.get(state)
        rows.append((state.replace("_", " "), count, "" if rate is None else f"{rate:+.1f}"))
    return _block(("jobs", "", "change/s"), rows)


def _rates(known: Sampler) -> Table:
    rows = []
    for name in (EVENTS if known.is_reported else COUNTS).values():
        rate = known.rates.get(name)
        rows.append((name, "" if rate is None else f"{rate:.1f}", "" if rate is None else f"{rate * 60:.0f}"))
    return _block(("rates", "/s", "/min"), rows)


def _names(known: Sampler, most: int, longest: int) -> Table:
    names = [(_cut(name, longest), *counts) for name, *counts in known.by_name]
    rest = names[most - 1 :] if len(names) > most else []
    rows = [*names[: len(names) - len(rest)]]
    if rest:
        rows.append((f"({len(rest)} more)", *(sum(counts) for counts in list(zip(*rest, strict=True))[1:])))
    return _block(("by name", "waiting", "scheduled", "running"), rows)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _of(shown: int, seen: int, total: int) -> str:
    """Return how much of a list is on the screen, and how much was seen."""
    if shown < seen:
        return f": {shown} of {seen:,} shown" + (f", the first of {total:,}" if seen < total else "")
    return f": the first {seen:,} of {total:,}" if seen < total else ""
