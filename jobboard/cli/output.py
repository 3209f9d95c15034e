"""What commands print. Names, errors and details of jobs are anybody's text: nothing in them reaches a terminal as an
instruction to it, and nothing is taken for markup."""

from __future__ import annotations

import itertools
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

    from jobboard.job import Job

# Control characters, lone surrogates, line and paragraph separators, and what turns the direction of writing around.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
_PIPE_WIDTH = 1000


SHOWN = 100
"""How many jobs a table shows unless it is asked for more."""


def safe(text: object, *, lines: bool = False) -> str:
    """``text`` with everything that a terminal might act on written as an escape.

    :param lines: let it break lines and indent them.
    """
    kept = "\n\t" if lines else ""
    return _UNSAFE.sub(lambda found: found[0] if found[0] in kept else _escape(found[0]), str(text))


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def last_line(text: str | None) -> str:
    return (text or "").strip().rpartition("\n")[2]


def say(text: object) -> None:
    click.echo(safe(text, lines=True))


def warn(text: object) -> None:
    click.echo(safe(text, lines=True), err=True)


def say_json(value: Any) -> None:
    """One line, in ASCII: JSON's own escapes keep it harmless."""
    click.echo(json.dumps(value, ensure_ascii=True, separators=(",", ":")))


def console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    made = Console(stderr=stderr, markup=False, emoji=False, highlight=False)
    if not made.is_terminal:
        # What reads a pipe has no columns to fit into.
        made.width = _PIPE_WIDTH
    return made


def table(columns: Iterable[str], rows: Iterable[Iterable[object]], *, numbers: Iterable[str] = ()) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    right = set(numbers)
    for column in columns:
        made.add_column(Text(column), justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text(safe("" if cell is None else cell)) for cell in row))
    console().print(made)


def say_jobs(
    jobs: Iterator[Job],
    limit: int | None,
    *,
    as_json: bool,
    nothing: str,
    columns: Iterable[str],
    row: Callable[[Job], Iterable[object]],
) -> None:
    """The first ``limit`` jobs: :data:`SHOWN` of them by default in a table, all as JSON."""
    if as_json:
        for job in itertools.islice(jobs, limit):
            say_json(job_as_dict(job))
        return
    shown = list(itertools.islice(jobs, limit or SHOWN))
    if not shown:
        say(nothing)
        return
    table(columns, map(row, shown), numbers=["attempts"])
    if next(jobs, None) is not None:
        say(f"There are more than {len(shown)}; see --limit.")


def job_as_dict(job: Job, *, details: bool = False) -> dict[str, Any]:
    """``details``: private data that only those who ask for it get to see."""
    shown: dict[str, Any] = {
        "uuid": job.uuid,
        "name": job.name,
        "state": str(job.seen_state),
        "priority": str(job.priority),
        "attempts": job.attempts,
        "max_attempts": job.max_attempts,
        "key": job.key,
        "due": job.due.isoformat() if job.due else None,
        "created_on": job.created_on.isoformat(),
        "last_modified": job.last_modified.isoformat(),
        "error": job.error,
    }
    if details:
        shown["book"] = {"name": job.book_name, "uuid": job.book_uuid} if job.book_uuid else None
        shown["details"] = job.details
    return shown


class SafeFormatter(logging.Formatter):
    """For log lines that hold names and errors of jobs."""

    def format(self, record: logging.LogRecord) -> str:
        return safe(super().format(record), lines=True)


def log_to_stderr(level: int) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(SafeFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
