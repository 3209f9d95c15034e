"""``jobboard post``: one job, or a job for each line of a file."""

from __future__ import annotations

import codecs
import datetime
import itertools
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from jobboard.cli.common import DONE, FAILED, BoardOptions, command, duration, named_options, plural
from jobboard.cli.jobs import job_dict
from jobboard.cli.output import bars, one_line, warn
from jobboard.cli.summary import refuse_memory
from jobboard.primitives import POST_BATCH

if TYPE_CHECKING:
    from jobboard.board import JobBoard
    from jobboard.job import Posting

F = TypeVar("F", bound=Callable[..., Any])


def job_options(function: F) -> F:
    """Add the options of a job that is posted at once, or by a schedule."""
    for option in (
        click.option("--max-attempts", type=int, help="Trash a job after this number of failed attempts."),
        click.option("--group", help="The group of the job, such as a customer."),
        click.option("--key", help="The key of the job. While a job has the key, a post with it returns that job."),
        click.option(
            "--expires",
            metavar="DURATION|TIME",
            help="Trash the job if nobody has claimed it after this time, as in 90s, 5m, 2h or 1d, or by "
            "2030-01-31T12:00:00Z. For a schedule, the time counts from each due time.",
        ),
        click.option("--context", multiple=True, metavar="KEY=VALUE", help="Context for programs around the work."),
        click.option(
            "--priority",
            help="From -100 to 100, or VERY_HIGH (100), HIGH (50), NORMAL (0), LOW (-50), VERY_LOW (-100).",
        ),
        click.option(
            "--details",
            metavar="JSON",
            help="The details of the job: a JSON object, @FILE with one, or - for standard input.",
        ),
    ):
        option(function)
    return function


@command(
    "jobboard post resize --details '{\"width\": 300}' --priority HIGH",
    "jobboard post resize --priority -20 --group customer-7",
    "jobboard post resize --details @picture.json --context trace=7f3a",
    "jobboard post report --delay 1h --key daily --max-attempts 5",
    "jobboard post welcome --key customer-7 --key-for 1d",
    "jobboard post thumbnail --expires 10m",
    "jobboard post --from jobs.jsonl",
    'echo \'{"name": "resize", "details": {"width": 300}}\' | jobboard post --from -',
)
@click.argument("job_name", metavar="[NAME]", required=False)
@job_options
@click.option(
    "--delay", type=duration, metavar="DURATION", help="Make the job claimable after this time: 90s, 5m, 2h, 1d."
)
@click.option("--due", metavar="TIME", help="Make the job claimable at this time: 2030-01-31T12:00:00Z.")
@click.option(
    "--key-for",
    type=duration,
    metavar="DURATION",
    help="Keep the key taken for this time, also after the job is done.",
)
@click.option(
    "--on-key",
    type=click.Choice(["keep", "replace"]),
    help="replace: an unclaimed job with the key gets these details, priority and due time.",
)
@click.option(
    "--from", "source", metavar="FILE", help="Post one job for each line of JSON in FILE; - is standard input."
)
@click.option("--skip-bad", is_flag=True, help="With --from: skip lines that can't be posted, and name them.")
def post(settings: BoardOptions, job_name: str | None, source: str | None, skip_bad: bool, **given: Any) -> int:
    """Post a job, or a whole file of them.

    Each line of FILE is an object with a "name" and, where wanted, "details", "priority", "delay" (in seconds, or as in
    "5m"), "due" (a time with its zone, as in 2030-01-31T12:00:00Z), "expires" (as "delay" or "due"), "key", "key_for"
    (as "delay"), "on_key", "group", "max_attempts" and "context". All lines are checked before the first one is posted.
    """
    if source is not None:
        if job_name is not None or any(value not in (None, ()) for value in given.values()):
            raise click.UsageError("with --from, the file describes the jobs: leave out NAME and the options of a job")
        refuse_memory(settings.uri)
        return _post_file(settings, source, skip_bad)
    if skip_bad:
        raise click.UsageError("--skip-bad goes with --from")
    if job_name is None:
        raise click.UsageError("give the NAME of the job, or --from FILE")
    arguments = read_arguments(given)
    refuse_memory(settings.uri)
    with settings.opened(create=True) as board, named_options():
        job = board.post(job_name, **arguments)
        settings.tell(job.uuid, **job_dict(job), created=job.created, replaced=job.replaced)
        if not (job.created or settings.json):
            warn(
                f"{job} has the key {job.key!r}, and was replaced"
                if job.replaced
                else f"nothing was posted: {job} has the key {job.key!r} already"
            )
    return DONE


def read_arguments(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options that were given, as a board takes them."""
    arguments = {name: value for name, value in given.items() if value not in (None, ())}
    if (priority := arguments.get("priority")) and priority.lstrip("+-").isdecimal():
        # The board refuses an unknown name.
        arguments["priority"] = int(priority)
    if (text := arguments.get("details")) is not None:
        try:
            arguments["details"] = json.loads(_read(text) if text == "-" or text.startswith("@") else text)
        except (ValueError, RecursionError) as error:
            raise click.UsageError(f"--details is not JSON: {error}") from None
        if not isinstance(arguments["details"], dict):
            shown = json.dumps(arguments["details"], ensure_ascii=False)
            raise click.UsageError(f'--details {shown}: must be a JSON object, as in {{"width": 300}}')
    for name, read in (("due", _time), ("expires", _expiry)):
        if name in arguments:
            try:
                arguments[name] = read(arguments[name])
            except ValueError as error:
                raise click.UsageError(f"--{name} {error}") from None
    if "context" in arguments:
        pairs = [pair.partition("=") for pair in arguments["context"]]
        for key, equals, value in pairs:
            if not (key and equals):
                raise click.UsageError(f"--context {key + equals + value!r} is not of the form KEY=VALUE")
        arguments["context"] = {key: value for key, _, value in pairs}
        if len(arguments["context"]) < len(pairs):
            raise click.UsageError("--context: a key is given twice")
    return arguments


def _time(given: str) -> datetime.datetime:
    try:
        time = datetime.datetime.fromisoformat(given)
    except ValueError:
        raise ValueError(f"{given!r} is not a time, as in 2030-01-31T12:00:00Z") from None
    if time.tzinfo is None:
        raise ValueError(f"{given!r} has no time zone: write {time.isoformat()}Z if it is UTC")
    return time


def _expiry(given: str) -> float | datetime.datetime:
    try:
        return duration(given)
    except click.BadParameter as error:
        if "T" not in given:
            raise ValueError(error.message) from None
        return _time(given)


def _post_file(settings: BoardOptions, source: str, skip_bad: bool) -> int:
    lines = _read("-" if source == "-" else f"@{source}").removeprefix(codecs.BOM_UTF8).split(b"\n")
    with settings.opened(create=True) as board, bars() as progress:
        faults: list[str] = []
        good: list[bytes] = []
        for number, line in enumerate(progress.track(lines, description="checking"), 1):
            if fault := _fault(board, line):
                faults.append(f"line {number}: {one_line(fault)}")
                if not skip_bad:
                    warn(f"jobboard: {faults[0]}; nothing was posted")
                    return FAILED
            elif line.strip():
                good.append(line)
        posted = _post_lines(board, progress.track(good, description="posting"), len(good))
    settings.tell(f"{plural(posted, 'job')} posted.", posted=posted, skipped=len(faults), faults=faults)
    for fault in faults:
        warn(f"skipped: {fault}")
    return FAILED if faults else DONE


def _post_lines(board: JobBoard, lines: Iterable[bytes], total: int) -> int:
    """Post checked lines in batches, and return the number of jobs."""
    from jobboard.exceptions import JobFailure

    posted, left = 0, iter(lines)
    # Lines are kept as bytes, which take far less memory than jobs.
    while batch := [_posting(line.decode()) for line in itertools.islice(left, POST_BATCH)]:
        try:
            posted += len(board.post_many(batch))
        except JobFailure as error:
            warn(f"jobboard: {posted + len(error.posted)} of {total} jobs were posted, then it failed")
            raise
    return posted


def _fault(board: JobBoard, line: bytes) -> str | None:
    """Return why a line can't be posted; None if it can, or is blank."""
    from jobboard import arguments

    try:
        if text := line.decode().strip():
            arguments.drafts([_posting(text)], board.options["max_details"], board.engine.wire)
        return None
    except json.JSONDecodeError as error:
        return f"not JSON: {error.msg} at column {error.colno}"
    except UnicodeDecodeError as error:
        return f"not UTF-8 at byte {error.start + 1}"
    except RecursionError:
        return "nested too deeply"
    except (TypeError, ValueError) as error:
        return str(error)


def _posting(text: str) -> Posting:
    from jobboard.job import Posting

    fields = json.loads(text)
    if not isinstance(fields, dict):
        raise TypeError("not a JSON object")
    # In a file, a field that is null is one that was left out.
    fields = {name: value for name, value in fields.items() if value is not None or name == "name"}
    known = {*Posting._fields} - {"book"}
    for name in fields:
        if name not in known:
            raise ValueError(f"unknown field {name!r}; a job has {', '.join(sorted(known))}")
    if "name" not in fields:
        raise ValueError('it has no "name"')
    if not isinstance(fields.get("details", {}), dict):
        raise TypeError("its details are not a JSON object")
    for name, read in (("delay", duration), ("key_for", duration), ("due", _time), ("expires", _expiry)):
        if isinstance(fields.get(name), str):
            try:
                fields[name] = read(fields[name])
            except (click.BadParameter, ValueError) as error:
                raise ValueError(f"{name}: {getattr(error, 'message', error)}") from None
    return Posting(**fields)


def _read(source: str) -> bytes:
    """Return the contents of standard input (``-``) or of ``@FILE``."""
    if source == "-" and sys.stdin is None:
        raise click.UsageError("can't read standard input: it is closed")
    try:
        return sys.stdin.buffer.read() if source == "-" else Path(source[1:]).read_bytes()
    except OSError as error:
        raise click.UsageError(f"can't read {source[1:]!r}: {error.strerror}") from None
