"""Text and JSON for a terminal, a file or a pipe.

Names, errors and details of jobs are anybody's text. No character of theirs reaches a terminal as an instruction, and
nothing in them is markup.
"""

from __future__ import annotations

import contextlib
import contextvars
import datetime
import json
import logging
import os
import re
import select
import sys
import time
import unicodedata
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TextIO

import click

from jobboard import reasons

if TYPE_CHECKING:
    from rich.progress import Progress

    from jobboard.job import Job


def safe(text: object, *, lines: bool = False) -> str:
    """Return ``text`` with each character that a terminal might act on, or show nothing of, written as an escape.

    :param lines: keep line breaks and tabs.
    """
    kept, text = "\n\t" if lines else "", str(text)
    if text.isprintable():
        return text
    return "".join(
        each
        if each.isprintable() or each in kept or unicodedata.category(each) == "Zs"
        else each.encode("unicode_escape").decode()
        for each in text
    )


def one_line(text: object) -> str:
    """Return safe text in one line. Other separators than blanks, tabs and line ends are shown as escapes."""
    return safe(re.sub("[ \t\r\n]+", " ", str(text)).strip(" "))


def time_of(when: datetime.datetime | None) -> str:
    return "" if when is None else f"{when:%Y-%m-%d %H:%M:%S}"


def say(text: object) -> None:
    click.echo(hinting(safe(text, lines=True)))


def warn(text: object) -> None:
    click.echo(hinting(safe(text, lines=True)), err=True)


def hinting(text: str, program: str | None = None) -> str:
    """Return ``text`` with its hints at commands as the user of this command types them."""
    context = click.get_current_context(silent=True)
    return reasons.hinting(text, program or (context and context.find_root().info_name) or "jobboard")


def say_json(value: Any) -> None:
    """Print JSON in one line of ASCII: its own escapes keep the text harmless."""
    click.echo(json.dumps(value, separators=(",", ":"), default=datetime.datetime.isoformat))


def bars() -> Progress:
    """Return the progress bars of long work, which only a terminal shows."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    out = Console(stderr=True)
    return Progress(*columns, console=out, disable=not out.is_terminal)


def is_printed(record: logging.LogRecord) -> bool:
    """Return whether a handler of the record's own loggers, as Django has one, prints it on this terminal."""
    logger: logging.Logger | None = logging.getLogger(record.name)
    while logger is not None and logger is not logging.root:
        for handler in logger.handlers:
            if (
                isinstance(handler, logging.StreamHandler)
                and handler.stream in (sys.stdout, sys.stderr)
                and record.levelno >= handler.level
                and handler.filter(record)
            ):
                return True
        logger = logger.parent
    return False


class SafeFormatter(logging.Formatter):
    """Log lines, which hold names and errors of jobs. Times are UTC, as in all output of commands."""

    converter = staticmethod(time.gmtime)
    default_msec_format = "%s.%03dZ"

    def format(self, record: logging.LogRecord) -> str:
        return safe(super().format(record), lines=True)


PATIENCE = 1.0
"""Seconds for which a log line waits for room in standard error."""


class StderrHandler(logging.StreamHandler[TextIO]):
    """Log lines on standard error. Lines are lost where nobody reads them: a full pipe must not hold up the work."""

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        self._lost = 0
        self._is_torn = False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            file = self.stream.fileno()
        except (OSError, ValueError):
            # A stream of the program's own, without a file.
            super().emit(record)
            return
        try:
            if self._lost:
                what = f"{self._lost} log lines were lost: nobody read standard error"
                lost = logging.makeLogRecord({"name": __name__, "levelname": "WARNING", "msg": what})
                if not self._write(file, self.terminator * self._is_torn + self.format(lost) + self.terminator, 0):
                    self._lost += 1
                    return
                self._lost = 0
            if not self._write(file, self.format(record) + self.terminator, PATIENCE):
                self._lost = 1
        except Exception:  # noqa: BLE001 - as logging does
            self.handleError(record)

    def _write(self, file: int, text: str, patience: float) -> bool:
        """Return whether the file has taken the whole text within so many seconds for each part."""
        data = text.encode(self.stream.encoding, "backslashreplace")
        poll = select.poll()
        poll.register(file, select.POLLOUT)
        while data:
            if not poll.poll(patience * 1000):
                return False
            # A ready pipe takes so many bytes without blocking.
            data = data[os.write(file, data[: select.PIPE_BUF]) :]
            self._is_torn = True
        self._is_torn = False
        return True


_working_on: contextvars.ContextVar[Job | None] = contextvars.ContextVar("jobboard_logged", default=None)


@contextlib.contextmanager
def logged(job: Job) -> Iterator[None]:
    """Give the records of the block the fields of a job."""
    before = _working_on.set(job)
    try:
        yield
    finally:
        _working_on.reset(before)


class JSONFormatter(logging.Formatter):
    """An object in one line for each record, with the name of the conductor and the fields of the job."""

    def __init__(self, conductor: str | None) -> None:
        super().__init__()
        self._conductor = {} if conductor is None else {"conductor": conductor}

    def format(self, record: logging.LogRecord) -> str:
        from jobboard.logs import FIELD_NAMES, fields

        at = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        shown: dict[str, Any] = {"time": at.isoformat(timespec="milliseconds"), "level": record.levelname}
        shown |= {"logger": record.name, "text": record.getMessage(), **self._conductor}
        if (job := _working_on.get()) is not None:
            shown |= fields(job)
        shown |= {name: getattr(record, name) for name in FIELD_NAMES if hasattr(record, name)}
        if record.exc_info:
            shown["traceback"] = self.formatException(record.exc_info)
        return json.dumps(shown, default=str)


def log_to_stderr(level: int, *, as_json: bool = False, conductor: str | None = None) -> None:
    handler = StderrHandler()
    handler.addFilter(lambda record: not is_printed(record))
    text = SafeFormatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JSONFormatter(conductor) if as_json else text)
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    # Log lines of drivers were not asked for.
    logging.getLogger("jobboard").setLevel(level)
