"""The fields of jobs, in tables and in JSON."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from jobboard.cli.output import safe, say, time_of
from jobboard.cli.tables import NARROW, WIDE, Column, as_dict, cut_end, name_column, uuid_column
from jobboard.exceptions import NoKey
from jobboard.primitives import span
from jobboard.priorities import JobPriority
from jobboard.reasons import reason_line
from jobboard.states import SCHEDULED, UNCLAIMED

if TYPE_CHECKING:
    from jobboard.job import Job

T = TypeVar("T")

ENCRYPTED = "encrypted"
"""The text in the place of details that the board can't decrypt."""

LEAST_WORDS = 17
"""The width that the first words of a reason need beside a host."""

_FAILURE = ("when", "who", "attempt", "text", "kind")
"""The fields of a failure."""


def progress_column() -> Column[Job]:
    def value(job: Job) -> dict[str, Any] | None:
        return None if job.progress is None else job.progress._asdict()

    def text(job: Job) -> str | None:
        return None if (found := value(job)) is None else _progress_line(found)

    return Column("progress", value, "progress", text)


def encrypted_column() -> Column[Job]:
    return Column(
        "encrypted", lambda job: job.is_encrypted, "encrypted", lambda job: "yes" if job.is_encrypted else None
    )


def _progress_line(progress: dict[str, Any]) -> str:
    parts = [] if progress["percent"] is None else [f"{progress['percent']:.3g}%"]
    return " ".join([*parts, progress["text"] or ""]).strip()


def job_name_columns() -> list[Column[Job]]:
    """Return the name of a job, of which a table shows the label."""
    return [
        name_column("name", lambda job: job.name, text=lambda job: job.label),
        Column("label", lambda job: job.label),
    ]


def age_column(key: str, title: str, when: Callable[[T], datetime.datetime], now: float, least: int = 0) -> Column[T]:
    """Return a column of times, which a table shows as seconds before ``now``."""
    return Column(key, when, title, lambda row: span(now - when(row).timestamp()), number=True, least=least)


def error_column(title: str) -> Column[Job]:
    return Column("error", lambda job: job.error, title, lambda job: reason_line(job.error), cut=_cut_reason)


_HOST = re.compile(
    r"""(?:host=|//(?:[^/@\s]*@)?|\b(?:at|to|server|host)\s)['"]?((?:[\w-]+\.)+[\w-]{2,}(?::\d+)?|\d+(?:\.\d+){3}(?::\d+)?)"""
)


def _cut_reason(text: str, width: int) -> str:
    """Return the parts by which a reason differs from others: the class of the error without its module, the first
    words, and the host."""
    kind, colon, rest = text.partition(":")
    if colon and re.fullmatch(r"(\w+\.)+\w+", kind):
        text = f"{kind.rpartition('.')[2]}:{rest}"
    if len(text) <= width:
        return text
    found = _HOST.search(text)
    if found is not None and found.end() > width - 1 and len(found[1]) + LEAST_WORDS <= width:
        return f"{cut_end(text, width - len(found[1]) - 1)} {found[1]}"
    return cut_end(text, width)


def job_columns(now: float = 0.0) -> list[Column[Job]]:
    """Return the fields of a job on the board.

    :param now: the server's time in seconds. Tables count ages from it.
    """

    def due(job: Job) -> str | None:
        return None if job.due is None else span(job.due.timestamp() - now)

    def priority(job: Job) -> str | None:
        return str(JobPriority.convert(job.priority)) if job.priority else None

    return [
        uuid_column(lambda job: job.uuid),
        *job_name_columns(),
        Column("state", lambda job: str(job.seen_state), "state", whole=True),
        Column("due", lambda job: job.due, "due in", due, number=True),
        Column("expires", lambda job: job.expires if job.seen_state in (UNCLAIMED, SCHEDULED) else None),
        Column("priority", lambda job: job.priority, "priority", priority, whole=True, least=NARROW),
        Column("group", lambda job: job.group, "group", least=WIDE),
        age_column("created_on", "age", lambda job: job.created_on, now, least=WIDE),
        Column("attempts", lambda job: job.attempts, "tries", lambda job: job.attempts or None, number=True),
        name_column("owner", lambda job: job.owner),
        progress_column(),
        encrypted_column(),
        error_column("last error"),
        Column("token", lambda job: job.token if job.owner is not None else None),
        Column("retries", lambda job: job.retries),
        Column("max_attempts", lambda job: job.max_attempts),
        Column("key", lambda job: job.key),
        Column("last_modified", lambda job: job.last_modified),
        Column("errors", lambda job: [{name: getattr(each, name) for name in _FAILURE} for each in job.errors]),
    ]


def readable(value: Callable[[T], Any]) -> Callable[[T], Any]:
    """Return a value that is "encrypted" where the board can't decrypt it."""

    def shown(row: T) -> Any:
        try:
            return value(row)
        except NoKey:
            return ENCRYPTED

    return shown


PRIVATE: list[Column[Job]] = [
    Column("book", readable(lambda job: {"name": job.book_name, "uuid": job.book_uuid} if job.book_uuid else None)),
    Column("context", lambda job: job.context),
    Column("details", readable(lambda job: job.details)),
]
"""Fields that may be private: only a command about one job shows them."""


_CHECKPOINT: Column[Job] = Column("checkpoint", readable(lambda job: job.checkpoint))


def job_dict(job: Job) -> dict[str, Any]:
    """Return a job with its private fields."""
    return as_dict([*job_columns(), *PRIVATE, _CHECKPOINT], job)


def outcome_hint(job: Job) -> str:
    """Return where to look for a job that is no longer on the board."""
    return f"{job} is consumed: 'jobboard done show {job.uuid}' has its outcome"


def say_job(shown: dict[str, Any]) -> None:
    """Print a job, or an outcome, as lines of text."""
    _, _, errors = shown.pop("error"), shown.pop("encrypted"), shown.pop("errors")
    private = {name: shown.pop(name) for name in ("context", "details", "result", "checkpoint") if name in shown}
    for name in ("context", "checkpoint"):
        if not private.get(name):
            private.pop(name, None)
    if (progress := shown.pop("progress", None)) is not None:
        shown["progress"] = f"{_progress_line(progress)} ({time_of(progress['on'])} UTC)"
    if workers := shown.pop("workers", None):
        shown["workers"] = ", ".join(workers)
    shown["priority"] = JobPriority.convert(shown["priority"])
    if shown["label"] == shown["name"]:
        del shown["label"]
    for name, value in shown.items():
        if value is not None:
            text = f"{time_of(value)} UTC" if isinstance(value, datetime.datetime) else safe(value)
            say(f"{name.replace('_', ' ')}: {text}")
    for name, value in private.items():
        say(f"{name}: " + json.dumps(value, ensure_ascii=False, indent=2))
    for error in errors:
        by = f" by {safe(error['who'])}" if error["who"] is not None else ""
        what = f"attempt {error['attempt']}{by}, {safe(error['kind'])}"
        say(f"error {time_of(error['when'])} UTC, {what}:\n{error['text']}")
