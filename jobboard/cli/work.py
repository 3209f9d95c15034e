"""``jobboard work``: a worker process."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import click
from click.core import ParameterSource

from jobboard import logs
from jobboard.cli.common import BoardOptions, cipher_option, command, positive_duration
from jobboard.cli.loading import load
from jobboard.cli.output import log_to_stderr, logged
from jobboard.cli.summary import refuse_read_only, warn_of_empty
from jobboard.exceptions import ConnectionFailure
from jobboard.outcomes import ATTEMPTS, USUAL, OneFailure, RetryPolicy

if TYPE_CHECKING:
    from jobboard.board import JobBoard

LOG = logging.getLogger(__name__)

SECONDS: Any = {"type": positive_duration, "metavar": "DURATION"}
OF_THE_CONDUCTOR = frozenset(
    (
        *("jobs", "processes", "max_jobs_per_process", "job_timeout", "drain_timeout", "max_attempts", "one_failure"),
        *("max_retries", "cancel_grace", "retry_base", "retry_cap", "who", "schedules", "cipher"),
    )
)
"""The options that configure a conductor."""


@command(
    "jobboard work handlers:resize",
    "jobboard work app.jobs:HANDLERS --jobs 16",
    "jobboard work app.jobs:HANDLERS --processes --job-timeout 10m --drain-timeout 25s",
    "jobboard work app.jobs:HANDLERS --max-attempts 5 --retry-cap 1h",
    "jobboard work app.jobs:HANDLERS --metrics-port 9100 --log-format json",
)
@click.argument("handlers", metavar="MODULE:NAME")
@click.option("--jobs", default=8, show_default=True, type=click.IntRange(min=1), help="The number of jobs at once.")
@click.option("--processes", is_flag=True, help="Run each job in a process, not in a thread.")
@click.option(
    "--max-jobs-per-process",
    type=click.IntRange(min=1),
    help="Replace a process of --processes after this number of jobs.",
)
@click.option("--job-timeout", **SECONDS, help="Fail a job that takes longer than this.")
@click.option("--drain-timeout", **SECONDS, help="Give back jobs that still run this long after SIGTERM or Ctrl-C.")
@click.option(
    "--cancel-grace",
    default=10.0,
    **SECONDS,
    help="Kill a process that goes on this long after its job was taken away, as by 'jobboard cancel --running'.  "
    "[default: 10s]",
)
@click.option(
    "--max-attempts",
    type=click.IntRange(min=0),
    help="Trash a job after this number of attempts, those of dead workers included, or after its own lower limit. "
    f"0 sets no limit.  [default: {int(ATTEMPTS)}, for jobs posted without a limit]",
)
# For a framework with tasks that end with their first failure; --max-attempts takes its place.
@click.option("--one-failure", is_flag=True, hidden=True)
@click.option(
    "--max-retries",
    type=click.IntRange(min=1),
    help="Trash a job that asks for a retry more often than this.  [default: never]",
)
@click.option("--retry-base", default=USUAL.base, **SECONDS, help="The approximate pause after the first failure.")
@click.option("--retry-cap", default=USUAL.cap, **SECONDS, help="The longest pause after a failure.")
@click.option("--max-jobs", type=click.IntRange(min=1), help="Stop after this number of jobs.")
@click.option(
    "--until-empty",
    is_flag=True,
    help="Stop once no job can be claimed: delayed, paused and limited jobs are left.",
)
@click.option("--who", help="The name of the worker.  [default: host, pid and a random suffix]")
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    help="Serve metrics for Prometheus on this port; 0 is any free port.",
)
@click.option("--metrics-host", default="127.0.0.1", show_default=True, help="The address of this host for metrics.")
@click.option(
    "--health-port",
    type=click.IntRange(0, 65535),
    help="Serve /livez and /readyz on this port; 0 is any free port.",
)
@click.option("--health-host", default="127.0.0.1", show_default=True, help="The address of this host for probes.")
@cipher_option
@click.option("--schedules/--no-schedules", default=True, help="Also post the due jobs of schedules.  [default: yes]")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("-v", "--verbose", is_flag=True, help="Log a line for each job, and every traceback.")
def work(
    settings: BoardOptions,
    handlers: str,
    jobs: int,
    processes: bool,
    max_jobs_per_process: int | None,
    job_timeout: float | None,
    drain_timeout: float | None,
    cancel_grace: float,
    max_attempts: int | None,
    one_failure: bool,
    max_retries: int | None,
    retry_base: float,
    retry_cap: float,
    max_jobs: int | None,
    until_empty: bool,
    who: str | None,
    metrics_port: int | None,
    metrics_host: str,
    health_port: int | None,
    health_host: str,
    schedules: bool,
    cipher: object,
    log_format: str,
    verbose: bool,
) -> None:
    """Work on jobs until SIGTERM, SIGHUP or Ctrl-C.

    With --until-empty the command ends once nothing can be done.

    The worker finishes the jobs that it has begun. A second Ctrl-C ends the command at once. MODULE:NAME is a callable,
    called with every job, or a mapping of job names to callables. The current folder is searched for the module first.
    A job is done when its callable returns. When the callable raises, the job is tried again later. The worker waits
    for a backend that can't be reached.
    """
    from jobboard.aio import AsyncConductor
    from jobboard.conductor import Conductor
    from jobboard.conductor.events import JOB_FINISHED

    found = load(handlers)
    run: Callable[..., object]
    if isinstance(found, (AsyncConductor, Conductor)):
        _refuse_options(settings, handlers)
    if isinstance(found, AsyncConductor):
        conductor, run = found.sync, lambda most, **extra: asyncio.run(found.run(most, **extra))
    elif isinstance(found, Conductor):
        conductor, run = found, found.run
    else:
        board = settings.fetch(cipher=cipher)
        refuse_read_only(board)
        if isinstance(found, Mapping) and not found:
            raise click.UsageError(f"{handlers} is an empty mapping: there are no jobs to work on")
        if max_jobs_per_process is not None and not processes:
            raise click.UsageError("--max-jobs-per-process needs --processes: threads share one process")
        kind: Literal["processes", "threads"] = "processes" if processes else "threads"
        policy = OneFailure if one_failure and max_attempts is None else RetryPolicy
        attempts = ATTEMPTS if max_attempts is None else max_attempts or None
        try:
            conductor = Conductor(
                who or None,
                board,
                _with_options(found),
                max_simultaneous_jobs=jobs,
                workers=kind,
                job_timeout=job_timeout,
                drain_timeout=drain_timeout,
                cancel_grace=cancel_grace,
                max_jobs_per_process=max_jobs_per_process,
                schedules=schedules,
                retry=policy(retry_base, retry_cap, attempts, max_retries),
            )
        except (TypeError, ValueError) as error:
            raise click.UsageError(f"{handlers}: {error}") from None
        run = conductor.run
    board, who = conductor.board, conductor.name
    if log_format == "json":
        conductor.wraps(logged)
    log_to_stderr(logging.INFO if verbose else logging.WARNING, as_json=log_format == "json", conductor=who)
    logging.getLogger("jobboard.drivers").setLevel(logging.INFO if verbose else logging.CRITICAL)
    # The first line and the last ones are logged without -v, too.
    for name in (__name__, "jobboard.conductor.signals"):
        logging.getLogger(name).setLevel(logging.INFO)
    if verbose:
        conductor.notifier.register(JOB_FINISHED, _log_finished)
    with contextlib.ExitStack() as stack:
        LOG.info("%s works on the %s: %s", who, board, conductor.summary)
        if metrics_port is not None:
            from jobboard.contrib.prometheus import serving

            LOG.info("metrics are at %s", stack.enter_context(serving(conductor, metrics_port, metrics_host)))
        if health_port is not None:
            from jobboard.conductor.health import serving as serving_health

            LOG.info("health is at %s", stack.enter_context(serving_health(conductor, health_port, health_host)))
        stack.callback(board.close)
        connect_patiently(board)
        warn_of_empty(board)
        run(max_jobs, until_empty=until_empty)
    tally = dataclasses.asdict(conductor.tally)
    settings.tell(", ".join(f"{what} {count}" for what, count in tally.items()), **tally)


def _refuse_options(settings: BoardOptions, handlers: str) -> None:
    """Refuse options of the command line that a configured conductor has of its own."""
    context = click.get_current_context()
    given = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name in OF_THE_CONDUCTOR
        and context.get_parameter_source(parameter.name) == ParameterSource.COMMANDLINE
    ]
    given += ["--board"] * (settings.given is not None) + ["--name"] * (settings.name is not None)
    if given:
        raise click.UsageError(f"{handlers} is a conductor with options of its own: leave out {', '.join(given)}")


def _with_options(found: Any) -> Any:
    """Return handlers with the names and options by which a conductor of their module has registered them."""
    from jobboard.conductor.poster import Poster

    if isinstance(found, Mapping):
        posts = {name: getattr(handler, "post", None) for name, handler in found.items()}
        own = {name: post.handling for name, post in posts.items() if isinstance(post, Poster) and name in post.names}
        return {**found, **own}
    post = getattr(found, "post", None)
    return dict.fromkeys(post.names, post.handling) if isinstance(post, Poster) else found


def connect_patiently(board: JobBoard) -> None:
    """Wait for a backend that is away, as a conductor does. A backend that refuses is not waited for."""
    from jobboard.retry import outage_backoff

    failures = 0
    while True:
        try:
            return board.connect()
        except ConnectionFailure as error:
            if error.refused:
                raise
            failures += 1
            pause = outage_backoff(failures)
            LOG.warning("waiting for the backend, trying again in %.1f s: %s", pause, error)
            time.sleep(pause)


def _log_finished(event: str, told: dict[str, Any]) -> None:
    """Log a job whose handler has returned. The conductor itself logs the others."""
    if told["error"] is None:
        LOG.info("%s: done in %.3g s", told["job"], told["seconds"], extra=logs.fields(told["job"]))
