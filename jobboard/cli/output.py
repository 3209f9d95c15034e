"""Text and JSON for a terminal, a file or a pipe.

Names, errors and details of jobs are anybody's text. No character of theirs reaches a terminal as an instruction, and
nothing in them is markup.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import json
import logging
import re
import sys
import unicodedata
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

_UNPRINTABLE = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
"""The categories of Unicode whose characters a terminal acts on, shows nothing of, or shows in a way of its own."""

_FILLERS = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
"""Characters of other categories that show nothing."""

_CELL = 200


def safe(text: object, *, lines: bool = False) -> str:
    """Return ``text`` with each character that a terminal might act on, or show nothing of, written as an escape.

    :param lines: keep line breaks and tabs.
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


def one_line(text: object) -> str:
    """Return safe text in one line. Other separators than blanks, tabs and line ends are shown as escapes."""
    return safe(re.sub("[ \t\r\n]+", " ", str(text)).strip(" "))


def last_line(text: str | None) -> str:
    """Return the last line of an error, for a cell of a table."""
    from jobboard import outcomes

    line = outcomes.last_line(text)
    return line if len(line) <= _CELL else line[: _CELL - 1] + "…"


def span(seconds: float) -> str:
    """Return a time in two units at most."""
    seconds = max(0.0, seconds)
    if seconds < 60:
        return f"{seconds:.1f}s" if seconds < 10 else f"{seconds:.0f}s"
    units = (("m", 60, "s", 1), ("h", 3600, "m", 60), ("d", 86400, "h", 3600))
    unit, length, part, below = next((each for each in units if seconds < 100 * each[1]), units[-1])
    whole, rest = divmod(int(seconds), length)
    return f"{whole}{unit}{rest // below:02d}{part}"


def time_of(when: datetime.datetime | None) -> str:
    return "" if when is None else f"{when:%Y-%m-%d %H:%M:%S}"


def say(text: object) -> None:
    click.echo(safe(text, lines=True))


def warn(text: object) -> None:
    click.echo(safe(text, lines=True), err=True)


def say_json(value: Any) -> None:
    """Print JSON in one line of ASCII: its own escapes keep the text harmless."""
    click.echo(json.dumps(value, ensure_ascii=True, separators=(",", ":"), default=_as_json))


def _as_json(value: Any) -> str:
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} is not JSON")


def console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr, markup=False, emoji=False, highlight=False)


@contextlib.contextmanager
def bars() -> Iterator[Progress | None]:
    """Give the progress bars of long work on a terminal; None elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True)) as progress:
        yield progress


class SafeFormatter(logging.Formatter):
    """Log lines, which hold names and errors of jobs."""

    def format(self, record: logging.LogRecord) -> str:
        return safe(super().format(record), lines=True)


class JSONFormatter(logging.Formatter):
    """An object in one line for each record, with the fields of its job."""

    def format(self, record: logging.LogRecord) -> str:
        from jobboard.logs import FIELD_NAMES

        at = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        shown = {"time": at.isoformat(timespec="milliseconds"), "level": record.levelname, "logger": record.name}
        shown["text"] = record.getMessage()
        shown |= {name: getattr(record, name) for name in FIELD_NAMES if hasattr(record, name)}
        if record.exc_info:
            shown["traceback"] = self.formatException(record.exc_info)
        return json.dumps(shown, default=str)


def log_to_stderr(level: int, *, as_json: bool = False) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(JSONFormatter() if as_json else SafeFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    # Log lines of drivers were not asked for.
    logging.getLogger("jobboard").setLevel(level)
