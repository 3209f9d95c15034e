"""``jobboard list``, ``show``, ``stats`` and ``entities``: they change nothing."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from jobboard.cli.common import BoardOptions, Duration, board_options, example, find_job, opened
from jobboard.cli.completing import names_option, states_on_board
from jobboard.cli.naming import kept_as_dict, kept_on, named, named_with_rules, others, rules_as_dict, rules_on
from jobboard.cli.output import job_as_dict, last_line, limit_option, safe, say, say_jobs, say_json, table

if TYPE_CHECKING:
    from jobboard.board import JobBoard
    from jobboard.job import Entity, Job

OF_METADATA = ("host", "pid", "runs", "running", "done", "more")
"""The columns that :func:`of_metadata` gives."""

_COLUMNS = ("host", "pid", "names", "running", "consumed")
_UNSHOWN = ("dispatched", "seconds")
_SELDOM = ("hung", "abandoned", "trashed", "lost")
"""What a conductor tells beside these, worth a word where there is any."""


@click.command(
    "list",
    epilog=example(
        "jobboard list --state CLAIMED --older 1h",
        "jobboard list --job resize --json | head",
        "jobboard list --limit 20 --after 0d8a3c3e-9c53-4c5d-bc5a-ab1b0b1a9d5e",
    ),
)
@click.option(
    "--state",
    "states",
    multiple=True,
    metavar="STATE",
    shell_complete=states_on_board,
    help="Only jobs in this state; may be repeated.",
)
@names_option
@click.option(
    "--older", type=Duration(), metavar="AGE", help="Only jobs posted longer ago than this: 90s, 15m, 12h, 7d."
)
@click.option("--newer", type=Duration(), metavar="AGE", help="Only jobs posted since.")
@click.option("--after", metavar="UUID", help="Only what is served after this job.")
@limit_option
@board_options
def list_jobs(
    settings: BoardOptions,
    states: tuple[str, ...],
    names: tuple[str, ...],
    older: float | None,
    newer: float | None,
    after: str | None,
    limit: int | None,
) -> None:
    """List the jobs on the board, in the order in which they are served.

    The states are UNCLAIMED, SCHEDULED and CLAIMED; 'jobboard trash list' shows the rest. Details are left out, as they
    may be private; 'jobboard show' has them. However many jobs there are, they are read a page at a time.
    """
    from jobboard.priorities import JobPriority
    from jobboard.states import LIVE, State

    live = {str(state): state for state in State if state in LIVE}
    for state in states:
        if state.upper() not in live:
            raise click.UsageError(f"{state!r} is not a state on the board; these are: {', '.join(live)}")
    wanted = [live[state.upper()] for state in states] or None
    narrowed = any((states, names, after)) or older is not None or newer is not None
    with opened(settings) as board:
        behind = None if after is None else find_job(board, after)
        jobs = board.iterjobs(ensure_fresh=True, names=names or None, states=wanted, after=behind)
        say_jobs(
            _of_age(board, jobs, older, newer),
            limit,
            as_json=settings.json,
            title=named_with_rules(board) if not settings.json else "",
            nothing=lambda: (
                f"No such job on {named(board)}." if narrowed else f"No job on {named(board)}{others(board)}."
            ),
            columns=("uuid", "name", "state", "priority", "group", "attempts", "posted", "owner", "last error"),
            row=lambda job: (
                job.uuid,
                job.name,
                job.seen_state,
                JobPriority.convert(job.priority),
                job.group,
                job.attempts,
                f"{job.created_on:%Y-%m-%d %H:%M:%S}",
                job.owner,
                last_line(job.error),
            ),
            go_on=lambda last: f"see --limit, or go on with --after {last.uuid}",
        )


def _of_age(board: JobBoard, jobs: Iterator[Job], older: float | None, newer: float | None) -> Iterator[Job]:
    if older is None and newer is None:
        return jobs
    # By the clock that jobs are stamped with; ours may be wrong.
    now = board.door.now() / 1e6
    oldest, newest = (-math.inf if newer is None else now - newer), now - (older or 0)
    return (job for job in jobs if oldest <= job.created_on.timestamp() <= newest)


@click.command(epilog=example("jobboard show 0d8a3c3e-9c53-4c5d-bc5a-ab1b0b1a9d5e"))
@click.argument("uuid")
@board_options
def show(settings: BoardOptions, uuid: str) -> None:
    """Show one job, on the board or in the trash, with its details and its last ten errors.

    The first characters of its uuid will do, four at least, unless there are more than 1000 jobs.
    """
    with opened(settings) as board:
        shown = job_as_dict(find_job(board, uuid), details=True)
    if settings.json:
        say_json(shown)
    else:
        say_job(shown)


def say_job(shown: dict[str, Any]) -> None:
    """A job as a dict, for people."""
    from jobboard.priorities import JobPriority

    _, errors = shown.pop("error"), shown.pop("errors")
    private = {what: shown.pop(what) for what in ("context", "details", "result") if what in shown}
    if not private["context"]:
        del private["context"]
    workers = shown.pop("workers", None)
    shown |= {"workers": ", ".join(workers)} if workers else {}
    shown["priority"] = JobPriority.convert(shown["priority"])
    for field, value in shown.items():
        if value is not None:
            say(f"{field.replace('_', ' ')}: {safe(value)}")
    for what, value in private.items():
        say(f"{what}: " + json.dumps(value, ensure_ascii=False, indent=2))
    for error in errors:
        by = f" by {safe(error['who'])}" if error["who"] is not None else ""
        say(f"error {error['when'][:19].replace('T', ' ')}, attempt {error['attempt']}{by}:\n{error['text']}")


@click.command(epilog=example("jobboard stats", "jobboard stats --json"))
@board_options
def stats(settings: BoardOptions) -> None:
    """Count the jobs in each state, and name the conductors that are at work."""
    with opened(settings) as board:
        counted = board.stats()
        there = board.entities()
        rules, kept = board.door.rules(), board.kept_stats()
        empty = not (counted.on_board or counted.trashed)
        title = f"{named(board)} is empty{others(board)}" if empty and not settings.json else named(board)
    if settings.json:
        found = [dataclasses.asdict(entity) for entity in there]
        counts = {**dataclasses.asdict(counted), "on_board": counted.on_board}
        beside = {**rules_as_dict(rules), **kept_as_dict(kept)}
        say_json({"board": board.name, **counts, **beside, "entities": found})
        return
    say(title)
    for line in (*rules_on(rules), *kept_on(kept)):
        say(line)
    table(("state", "jobs"), dataclasses.asdict(counted).items(), numbers=["jobs"])
    if there:
        _show_entities(there)


@click.command(epilog=example("jobboard entities", "jobboard entities --json | jq -r .name"))
@board_options
def entities(settings: BoardOptions) -> None:
    """List the conductors, and whoever else has registered with the board, that are alive."""
    with opened(settings) as board:
        there = board.entities()
    if settings.json:
        for entity in there:
            say_json(dataclasses.asdict(entity))
    elif there:
        _show_entities(there)
    else:
        say("Nobody is there.")


def _show_entities(there: Iterable[Entity]) -> None:
    rows = ((each.kind, each.name, *of_metadata(each)) for each in there)
    table(("who", "name", *OF_METADATA), rows)


def of_metadata(entity: Entity) -> tuple[object, ...]:
    """What an entity says of itself."""
    rest = dict(entity.metadata)
    host, pid, names, running, done = (rest.pop(field, None) for field in _COLUMNS)
    if running is not None and "slots" in rest:
        running = f"{running} of {rest.pop('slots')}"
    if entity.kind == "conductor":
        dull = {*_UNSHOWN, *(field for field in _SELDOM if not rest.get(field))}
        rest = {field: value for field, value in rest.items() if field not in dull}
    runs = (
        ", ".join(map(_as_text, names)) if isinstance(names, list) else "any job" if entity.kind == "conductor" else ""
    )
    if others := rest.pop("other_names", None):
        runs += f", {others} more"
    more = ", ".join(f"{field}={_as_text(value)}" for field, value in rest.items())
    host, pid, running, done = (None if each is None else _as_text(each) for each in (host, pid, running, done))
    return host, pid, runs, running, done, more


def _as_text(value: object) -> str:
    """Return a value of an entity's metadata as text: JSON, but for a str."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
