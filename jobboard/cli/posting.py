"""``jobboard post``: one job, or as many as a file has lines."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import click

from jobboard.cli.common import (
    DONE,
    FAILED,
    BoardOptions,
    Duration,
    age,
    board_options,
    example,
    one_line,
    opened,
    wrong_call,
)
from jobboard.cli.completing import priorities
from jobboard.cli.naming import refuse_memory
from jobboard.cli.output import bars, job_as_dict, say, say_json, warn

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from jobboard.board import JobBoard
    from jobboard.job import Posting

BATCH = 500
COMPLAINTS = 20
_SLACK = 64 * 1024


class InputLine(NamedTuple):
    """One line of the input: ``end`` is where the next one begins, ``posting`` is None where it is bad or blank."""

    number: int
    end: int
    posting: Posting | None
    fault: str | None


@click.command(
    epilog=example(
        "jobboard post resize --details '{\"width\": 300}' --priority HIGH",
        "jobboard post resize --priority -20 --group customer-7",
        "jobboard post resize --details @picture.json --context trace=7f3a",
        "jobboard post report --delay 1h --key daily --max-attempts 5",
        "jobboard post welcome --key customer-7 --key-for 1d",
        "jobboard post --from jobs.jsonl",
        'echo \'{"name": "resize", "details": {"width": 300}}\' | jobboard post --from -',
    )
)
@click.argument("job_name", metavar="[NAME]", required=False)
@click.option(
    "--details",
    metavar="JSON",
    help="What the work needs: a JSON object, or @FILE that holds one; - is standard input.",
)
@click.option(
    "--priority",
    shell_complete=priorities,
    help="From -100 to 100, or VERY_HIGH (100), HIGH (50), NORMAL (0), LOW (-50), VERY_LOW (-100).",
)
@click.option("--delay", type=Duration(), metavar="DURATION", help="Not to be claimed before: 90s, 5m, 2h, 1d.")
@click.option("--due", metavar="TIME", help="The same as a time with its zone: 2030-01-31T12:00:00Z.")
@click.option("--context", multiple=True, metavar="KEY=VALUE", help="For programs around the work; may be repeated.")
@click.option("--key", help="At most one job on the board has this key; posting it again answers that job.")
@click.option(
    "--key-for", type=Duration(), metavar="DURATION", help="The key stays taken for so long, also when the job is done."
)
@click.option(
    "--on-key",
    type=click.Choice(["keep", "replace"]),
    help="replace: a job that has the key, and is not claimed, gets these details, priority and due time.",
)
@click.option("--group", help="Whose work it is, a customer's for instance.")
@click.option("--max-attempts", type=int, help="To the trash when so many attempts have failed.")
@click.option(
    "--from", "source", metavar="FILE", help="Post one job for each line of JSON in FILE; - is standard input."
)
@click.option("--skip-bad", is_flag=True, help="With --from: leave out the lines that can't be posted, and say which.")
@board_options
def post(settings: BoardOptions, job_name: str | None, source: str | None, skip_bad: bool, **given: Any) -> int:
    """Post a job, or a whole file of them.

    Each line of FILE is an object with a "name" and, where wanted, "details", "priority", "delay" (in seconds, or as in
    "5m"), "due" (a time with its zone, as in 2030-01-31T12:00:00Z), "key", "key_for" (as "delay"), "on_key", "group",
    "max_attempts" and "context". All lines are checked before the first one is posted.
    """
    arguments = {key: value for key, value in given.items() if value not in (None, ())}
    if source is not None:
        if job_name is not None or arguments:
            raise click.UsageError("with --from, what to post stands in the file")
        refuse_memory(settings.uri)
        return _post_file(settings, source, skip_bad)
    if skip_bad:
        raise click.UsageError("--skip-bad goes with --from")
    if job_name is None:
        raise click.UsageError("give the NAME of the job, or --from FILE")
    read_arguments(arguments)
    refuse_memory(settings.uri)
    with opened(settings, create=True) as board:
        try:
            job = board.post(job_name, **arguments)
        except (TypeError, ValueError) as error:
            raise wrong_call(error) from None
        if settings.json:
            say_json({**job_as_dict(job, details=True), "created": job.created, "replaced": job.replaced})
        else:
            say(job.uuid)
    return DONE


def read_arguments(arguments: dict[str, Any]) -> None:
    """What was given as text, as the board takes it."""
    if "priority" in arguments:
        # Of a name that is none, the board says so.
        with contextlib.suppress(ValueError):
            arguments["priority"] = int(arguments["priority"])
    if "details" in arguments:
        try:
            arguments["details"] = json.loads(_text_of(arguments["details"]))
        except (ValueError, RecursionError) as error:
            raise click.UsageError(f"--details is not JSON: {error}") from None
        if not isinstance(arguments["details"], dict):
            shown = json.dumps(arguments["details"], ensure_ascii=False)
            raise click.UsageError(f'--details {shown}: must be a JSON object, as in {{"width": 300}}')
    if "due" in arguments:
        try:
            arguments["due"] = datetime.datetime.fromisoformat(arguments["due"])
        except ValueError:
            raise click.UsageError(f"--due {arguments['due']!r} is not a time, as in 2030-01-31T12:00:00Z") from None
    if "context" in arguments:
        pairs = [each.partition("=") for each in arguments["context"]]
        for pair in pairs:
            if not (pair[0] and pair[1]):
                raise click.UsageError(f"--context {''.join(pair)!r} is not of the form KEY=VALUE")
        context = {key: value for key, _, value in pairs}
        if len(context) < len(pairs):
            raise click.UsageError("--context: a KEY is given twice")
        arguments["context"] = context


def _post_file(settings: BoardOptions, source: str, skip_bad: bool) -> int:
    with _readable_twice(source) as file, opened(settings, create=True) as board, bars(of_bytes=True) as drawn:
        progress = _Bar(drawn)
        size = file.seek(0, os.SEEK_END)
        good, faults, bad = _check(board, file, size, skip_bad, progress)
        if bad and not skip_bad:
            warn(f"jobboard: {faults[0]}; nothing was posted")
            return FAILED
        posted = _post_lines(board, file, size, skip_bad, progress, good)
    if settings.json:
        say_json({"posted": posted, "skipped": bad, "faults": faults})
    else:
        say(f"{posted} {'job' if posted == 1 else 'jobs'} posted.")
    if bad:
        for fault in faults:
            warn(f"skipped: {fault}")
        if bad > len(faults):
            warn(f"skipped: {bad - len(faults)} more lines")
    return FAILED if bad else DONE


def _check(board: JobBoard, file: IO[bytes], size: int, skip_bad: bool, progress: _Bar) -> tuple[int, list[str], int]:
    """How many lines can be posted, what is wrong with the first of the others, and how many others there are."""
    good = bad = 0
    faults: list[str] = []
    with progress.step("checking", size) as advance:
        for line in _lines(board, file, size):
            advance(line.end)
            if line.fault is not None:
                bad += 1
                if len(faults) < COMPLAINTS:
                    faults.append(f"line {line.number}: {one_line(line.fault)}")
                if not skip_bad:
                    break
            elif line.posting is not None:
                good += 1
    return good, faults, bad


def _post_lines(board: JobBoard, file: IO[bytes], size: int, skip_bad: bool, progress: _Bar, good: int) -> int:
    from jobboard.exceptions import JobFailure

    posted = 0
    batch: list[Posting] = []

    def flush() -> None:
        nonlocal posted
        try:
            posted += len(board.post_many(batch))
        except JobFailure as error:
            warn(f"jobboard: {posted + len(error.posted)} of {good} jobs were posted, then it failed")
            raise
        batch.clear()

    with progress.step("posting", size) as advance:
        for line in _lines(board, file, size):
            if line.posting is not None:
                batch.append(line.posting)
            elif line.fault is not None and not skip_bad:
                flush()
                raise click.ClickException(
                    f"line {line.number} has changed since it was checked; {posted} of {good} jobs were posted"
                )
            if len(batch) == BATCH:
                flush()
                advance(line.end)
        if batch:
            flush()
    return posted


def _lines(board: JobBoard, file: IO[bytes], size: int) -> Iterator[InputLine]:
    """The lines from the beginning up to ``size``: one that grows meanwhile is posted as it was when it was checked."""
    from jobboard import arguments

    most = board._conf["max_details"]
    # Every character may be written as an escape of six.
    longest = 6 * most + _SLACK
    file.seek(0)
    number = end = 0
    while end < size and (raw := file.readline(min(longest + 1, size - end))):
        number += 1
        end += len(raw)
        if len(raw) > longest:
            while end < size and not raw.endswith(b"\n") and (raw := file.readline(min(longest, size - end))):
                end += len(raw)
            yield InputLine(number, end, None, f"longer than {longest} bytes")
            continue
        posting, fault = None, None
        try:
            text = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip()
            if text:
                posting = _posting(text)
                arguments.drafts([posting], most, board.engine.wire)
        except (TypeError, ValueError, RecursionError) as error:
            posting, fault = None, _fault(error)
        yield InputLine(number, end, posting, fault)


def _posting(text: str) -> Posting:
    from jobboard.job import Posting

    fields = json.loads(text)
    if not isinstance(fields, dict):
        raise TypeError("not a JSON object")
    if not isinstance(fields.get("details"), dict | None):
        raise TypeError("its details are not a JSON object")
    known = {*Posting._fields} - {"book"}
    for name in fields:
        if name not in known:
            raise ValueError(f"unknown field {name!r}; a job has {', '.join(sorted(known))}")
    if "name" not in fields:
        raise ValueError('it has no "name"')
    for name in ("delay", "key_for"):
        if isinstance(fields.get(name), str):
            try:
                fields[name] = age(fields[name])
            except click.BadParameter as error:
                raise ValueError(f"{name}: {error.message}") from None
    if (given := fields.get("due")) is not None:
        try:
            fields["due"] = datetime.datetime.fromisoformat(given)
        except (TypeError, ValueError):
            raise ValueError(f"due: {given!r} is not a time, as in 2030-01-31T12:00:00Z") from None
    # In a file, a field that is null is one that was left out.
    return Posting(**{name: value for name, value in fields.items() if value is not None or name == "name"})


def _fault(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON: {error.msg} at column {error.colno}"
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 at byte {error.start + 1}"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return str(error)


@contextlib.contextmanager
def _readable_twice(source: str) -> Iterator[IO[bytes]]:
    """The input as a file that can be read a second time, wherever it comes from, without holding it in memory."""
    with contextlib.ExitStack() as stack:
        file: IO[bytes] = sys.stdin.buffer if source == "-" else stack.enter_context(_open(source))
        if source == "-" or not Path(source).is_file():
            spool = stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(file, spool)
            file = spool
        yield file


def _text_of(details: str) -> str | bytes:
    """Of ``-`` and ``@FILE``, what is in there."""
    if details == "-":
        return sys.stdin.buffer.read()
    if not details.startswith("@"):
        return details
    with _open(details[1:]) as file:
        return file.read()


def _open(source: str) -> IO[bytes]:
    try:
        return Path(source).open("rb")
    except OSError as error:
        raise click.UsageError(f"can't read {source!r}: {error.strerror}") from None


class _Bar:
    """A progress bar on a terminal; elsewhere nothing."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress

    @contextlib.contextmanager
    def step(self, what: str, size: int) -> Iterator[Any]:
        if self._progress is None:
            yield lambda done: None
            return
        task: TaskID = self._progress.add_task(what, total=size)
        progress = self._progress
        yield lambda done: progress.update(task, completed=done)
        progress.update(task, completed=size)
