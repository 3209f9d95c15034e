"""``jobboard work``."""

from __future__ import annotations

import dataclasses
import importlib
import logging
import os
import socket
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from jobboard.cli.common import Settings, board_options, example, fetch_board
from jobboard.cli.naming import warn_of_empty
from jobboard.cli.output import log_to_stderr, say, say_json

SECONDS: Any = {"type": click.FloatRange(min=0, min_open=True), "metavar": "SECONDS"}


@click.command(
    epilog=example(
        "jobboard work handlers:resize",
        "jobboard work app.jobs:HANDLERS --jobs 16",
        "jobboard work app.jobs:HANDLERS --processes --job-timeout 600 --drain-timeout 25",
    )
)
@click.argument("handlers", metavar="MODULE:NAME")
@click.option("--jobs", default=8, show_default=True, type=click.IntRange(min=1), help="How many jobs at once.")
@click.option("--processes", is_flag=True, help="Run each job in a process, not in a thread.")
@click.option("--job-timeout", **SECONDS, help="Give a job up that takes longer, as a failure.")
@click.option("--drain-timeout", **SECONDS, help="Give back what still runs so long after SIGTERM or Ctrl-C.")
@click.option("--max-jobs", type=click.IntRange(min=1), help="Stop after so many.")
@click.option("--who", help="The name to claim as.  [default: host and process]")
@click.option("-v", "--verbose", is_flag=True, help="Log more; every traceback, too.")
@board_options
def work(
    settings: Settings,
    handlers: str,
    jobs: int,
    processes: bool,
    job_timeout: float | None,
    drain_timeout: float | None,
    max_jobs: int | None,
    who: str | None,
    verbose: bool,
) -> None:
    """Work on jobs until SIGTERM or Ctrl-C, then finish what was begun.

    MODULE:NAME is a callable, called with every job, or a mapping of job names to callables; the current folder is
    searched for the module first. A callable that returns has done its job; one that raises will be called again later.
    """
    from jobboard.conductor import Conductor

    board = fetch_board(settings.uri, settings.board_name)
    found = load(handlers)
    if isinstance(found, Mapping) and not found:
        raise click.UsageError(f"{handlers} is an empty mapping: there are no jobs to work on")
    try:
        conductor = Conductor(
            who or f"{socket.gethostname()}-{os.getpid()}",
            board,
            found,
            max_simultaneous_jobs=jobs,
            workers="processes" if processes else "threads",
            job_timeout=job_timeout,
            drain_timeout=drain_timeout,
        )
    except (TypeError, ValueError) as error:
        raise click.UsageError(f"{handlers}: {error}") from None
    log_to_stderr(logging.INFO if verbose else logging.WARNING)
    board.connect()
    try:
        warn_of_empty(board)
        conductor.run(max_jobs)
    finally:
        board.close()
    tally = dataclasses.asdict(conductor.tally)
    if settings.json:
        say_json(tally)
    else:
        say(", ".join(f"{what} {count}" for what, count in tally.items()))


def load(spec: str) -> Mapping[str, Any] | Any:
    """What MODULE:NAME means."""
    module_name, colon, name = spec.partition(":")
    if not (module_name and colon and name):
        raise click.UsageError(f"{spec!r} is not of the form MODULE:NAME")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a module of the user's may raise anything
        raise click.UsageError(f"can't import {module_name!r}: {_what_and_where(error)}") from None
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise click.UsageError(f"the module {module_name!r} has no {name!r}") from None
    return found


def _what_and_where(error: BaseException) -> str:
    """An error in the user's own module in one line, with where it was raised if that is in a file of theirs."""
    what = f"{type(error).__name__}: {error}"
    frames = [each for each in traceback.extract_tb(error.__traceback__) if not _is_plumbing(each.filename)]
    return f"{what} ({frames[-1].filename}, line {frames[-1].lineno})" if frames else what


def _is_plumbing(filename: str) -> bool:
    return filename.startswith("<") or filename in (__file__, importlib.__file__)
