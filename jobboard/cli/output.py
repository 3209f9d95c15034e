"""What commands print. Names, errors and details of jobs are anybody's text: nothing in them reaches a terminal as an
instruction to it, and nothing is taken for markup."""

from __future__ import annotations

import contextlib
import datetime
import functools
import io
import itertools
import json
import logging
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from jobboard.job import Job

T = TypeVar("T")

_UNPRINTABLE = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
"""The categories of Unicode whose characters a terminal acts on, shows nothing of, or shows in a way of its own."""

_FILLERS = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
"""Characters of other categories that show nothing."""

_WIDTH = 100_000
"""More than any row takes: what does not fit is cut."""

_CELL = 200
_AROUND = 5
"""How many lines of a terminal go to what stands around a table, the shell's prompt included."""


SHOWN = 100
"""How many jobs a table shows in a pipe, unless it is asked for more."""

CHUNK = 500
"""How many jobs a pager is given at once."""

limit_option = click.option(
    "--limit",
    type=click.IntRange(min=1),
    help=f"At most so many.  [default: all on a terminal, through $PAGER, and with --json; else {SHOWN}]",
)


def safe(text: object, *, lines: bool = False) -> str:
    """Return ``text`` with each character that a terminal might act on, or show nothing of, written as an escape.

    :param lines: let it break lines and indent them.
    """
    kept, text = "\n\t" if lines else "", str(text)
    if text.isascii() and text.isprintable():
        return text
    return "".join(each if each in kept or _is_shown(each) else _escape(each) for each in text)


@functools.lru_cache(1024)
def _is_shown(character: str) -> bool:
    return unicodedata.category(character) not in _UNPRINTABLE and not _FILLERS.match(character)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def last_line(text: str | None) -> str:
    """Of an error, for a cell of a table."""
    from jobboard import outcomes

    line = outcomes.last_line(text)
    return line if len(line) <= _CELL else line[: _CELL - 1] + "…"


def say(text: object) -> None:
    click.echo(safe(text, lines=True))


def warn(text: object) -> None:
    click.echo(safe(text, lines=True), err=True)


def say_json(value: Any) -> None:
    """One line, in ASCII: JSON's own escapes keep it harmless."""
    click.echo(json.dumps(value, ensure_ascii=True, separators=(",", ":")))


def console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr, markup=False, emoji=False, highlight=False)


@contextlib.contextmanager
def bars(*, of_bytes: bool = False) -> Iterator[Progress | None]:
    """Where the bars of long work are drawn, on a terminal; None elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    done = DownloadColumn() if of_bytes else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), done, TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True)) as progress:
        yield progress


def table(columns: Iterable[str], rows: Iterable[Iterable[object]], *, numbers: Iterable[str] = ()) -> None:
    click.echo(as_table(columns, rows, numbers), nl=False)


def as_table(columns: Iterable[str], rows: Iterable[Iterable[object]], numbers: Iterable[str] = ()) -> str:
    """A line for each row, however narrow the terminal: what is folded can be neither copied nor searched for."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    right = set(numbers)
    for column in columns:
        made.add_column(Text(column), justify="right" if column in right else "left")
    for row in rows:
        made.add_row(*(Text(safe("" if cell is None else cell)) for cell in row))
    drawn = io.StringIO()
    Console(file=drawn, width=_WIDTH, markup=False, emoji=False, highlight=False, color_system=None).print(made)
    return "".join(line.rstrip() + "\n" for line in drawn.getvalue().splitlines())


def say_jobs(
    jobs: Iterator[T],
    limit: int | None,
    *,
    as_json: bool,
    title: str,
    nothing: Callable[[], str],
    columns: Sequence[str],
    row: Callable[[T], Iterable[object]],
    told: Callable[[T], dict[str, Any]] | None = None,
    go_on: Callable[[T], str] = lambda last: "see --limit",
) -> None:
    """All jobs, or outcomes: on a terminal page by page, and as JSON; elsewhere the first :data:`SHOWN`; or ``limit``.

    :param title: stands above them; ``nothing``, in their place.
    :param told: what is shown of one as JSON, if it is no job.
    :param go_on: what to do to see those behind the last one.
    """
    if as_json:
        for job in itertools.islice(jobs, limit):
            say_json(told(job) if told is not None else job_as_dict(job))  # type: ignore[arg-type]
        return
    paged = limit is None and sys.stdout.isatty()
    room = max(1, console().height - _AROUND) if paged else limit or SHOWN
    shown = list(itertools.islice(jobs, room))
    if not shown:
        say(nothing())
        return
    more = next(jobs, None)
    if more is not None and paged:
        rows = map(row, itertools.chain(shown, [more], jobs))
        click.echo_via_pager(itertools.chain([f"{safe(title)}\n"], _tables(columns, rows)))
        return
    say(title)
    table(columns, map(row, shown), numbers=["attempts"])
    if more is not None:
        say(f"There are more than {len(shown)}; {go_on(shown[-1])}.")


def _tables(columns: Sequence[str], rows: Iterator[Iterable[object]]) -> Iterator[str]:
    """Made when they are read: however many jobs there are, only some are in memory."""
    while chunk := list(itertools.islice(rows, CHUNK)):
        yield as_table(columns, chunk, ["attempts"])


def job_as_dict(job: Job, *, details: bool = False) -> dict[str, Any]:
    """``details``: these and the context, private data that only those who ask for it get to see."""
    shown: dict[str, Any] = {
        "uuid": job.uuid,
        "name": job.name,
        "state": str(job.seen_state),
        "owner": job.owner,
        "token": job._record.token if job.owner is not None else None,
        "priority": job.priority,
        "attempts": job.attempts,
        "retries": job.retries,
        "max_attempts": job.max_attempts,
        "key": job.key,
        "group": job.group,
        "due": job.due.isoformat() if job.due else None,
        "created_on": job.created_on.isoformat(),
        "last_modified": job.last_modified.isoformat(),
        "error": job.error,
        "errors": [
            {"when": each.when.isoformat(), "who": each.who, "attempt": each.attempt, "text": each.text}
            for each in job.errors
        ],
    }
    if details:
        shown["book"] = {"name": job.book_name, "uuid": job.book_uuid} if job.book_uuid else None
        shown["context"] = job.context
        shown["details"] = job.details
    return shown


def span(seconds: float) -> str:
    """A time in two units at most."""
    seconds = max(0.0, seconds)
    if seconds < 60:
        return f"{seconds:.1f}s" if seconds < 10 else f"{seconds:.0f}s"
    for unit, length, part, below in (("m", 60, "s", 1), ("h", 3600, "m", 60), ("d", 86400, "h", 3600)):
        if seconds < 100 * length or unit == "d":
            whole, rest = divmod(int(seconds), length)
            return f"{whole}{unit}{rest // below:02d}{part}"
    raise AssertionError("days have no limit")


class SafeFormatter(logging.Formatter):
    """For log lines that hold names and errors of jobs."""

    def format(self, record: logging.LogRecord) -> str:
        return safe(super().format(record), lines=True)


class JSONFormatter(logging.Formatter):
    """An object in one line for each record, with the fields of the job that it is about."""

    def format(self, record: logging.LogRecord) -> str:
        from jobboard.logs import NAMES

        at = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        told = {"time": at.isoformat(timespec="milliseconds"), "level": record.levelname, "logger": record.name}
        told["text"] = record.getMessage()
        told |= {name: getattr(record, name) for name in NAMES if hasattr(record, name)}
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str)


def log_to_stderr(level: int, *, as_json: bool = False) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(JSONFormatter() if as_json else SafeFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    # What drivers tell of their doings is not what was asked for.
    logging.getLogger("jobboard").setLevel(level)
