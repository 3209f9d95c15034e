"""``jobboard move``: carries a board from one backend to another."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from jobboard.board import JobBoard
from jobboard.cli.common import (
    DONE,
    FAILED,
    BoardOptions,
    Duration,
    board_options,
    example,
    fetch_board,
    one_line,
    opened,
    without_secrets,
)
from jobboard.cli.naming import named, others, refuse_memory
from jobboard.cli.output import SHOWN, bars, say, say_json, warn
from jobboard.exceptions import JobFailure, NotFound

if TYPE_CHECKING:
    from jobboard.door import Origin
    from jobboard.moving import Moved

Told = tuple[Callable[[int], object], Callable[[int], object], Callable[[int, int], object]]

TASKFLOW = "taskflow+"
"""How the URI of a board of TaskFlow's begins."""


@click.command(
    epilog=example(
        "jobboard move sqlite:///jobs.db redis://host/0",
        "jobboard move redis://host/0 postgresql://app@db/prod --name pictures --wait",
        "jobboard move 'taskflow+redis://host/0?namespace=octavia' redis://host/1 --name octavia --wait",
    )
)
@click.argument("source", metavar="SRC")
@click.argument("target", metavar="DST")
@click.option("--to-name", metavar="NAME", help="The board's name at DST.  [default: as at SRC]")
@click.option("--wait", is_flag=True, help="Wait for the jobs that are claimed, and move those that come back.")
@click.option("--wait-limit", type=Duration(), metavar="TIME", help="Wait, but no longer than this: 90s, 15m, 12h.")
@click.option(
    "--trash/--no-trash", default=True, help="Move what lies in the trash, too, or leave it.  [default: move]"
)
@click.option(
    "--outcomes/--no-outcomes", default=True, help="Copy what consumed jobs have left, too, or not.  [default: copy]"
)
@click.option("--dry-run", is_flag=True, help="Say what would be moved, and change nothing.")
@functools.partial(board_options, board=None)
def move(
    settings: BoardOptions,
    source: str,
    target: str,
    to_name: str | None,
    wait: bool,
    wait_limit: float | None,
    trash: bool,
    outcomes: bool,
    dry_run: bool,
) -> int:
    """Move all jobs of the board at SRC to a board at DST, both given as URIs.

    Jobs that are claimed stay, and the exit status is 1 then. A move that was interrupted, in whatever way, is finished
    by the same command; nothing is lost or doubled. Work may go on at both boards meanwhile.

    SRC may be a board of OpenStack TaskFlow's: taskflow+redis://HOST/DB?namespace=…, taskflow+zookeeper://HOSTS/PATH or
    taskflow+etcd://HOST/PATH. Options stand behind the ? under the names that TaskFlow has for them.
    """
    from jobboard.moving import Mover, survey

    if settings.asked_for is not None:
        raise click.UsageError("'move' takes both boards as arguments: leave out --board")
    if to_name == "":
        raise click.UsageError("--to-name is empty")
    for uri in (source, target):
        refuse_memory(uri)
    there = replace(settings, asked_for=target, name=to_name or settings.name)
    with _existing(replace(settings, asked_for=source)) as from_board:
        if dry_run:
            wire = fetch_board(there.uri, there.board_name).engine.wire
            return _tell(settings, from_board, survey(from_board, wire, trash, outcomes), "would be moved")
        with opened(there, create=True) as to_board, _progress(from_board, trash) as tell:
            try:
                mover = Mover(from_board, to_board, *tell)
                result = mover.run(wait or wait_limit is not None, timeout=wait_limit, trash=trash, outcomes=outcomes)
            except KeyboardInterrupt:
                warn("not all is moved yet: run the same command again to go on")
                raise
        return _tell(settings, from_board, result, "moved")


def _tell(settings: BoardOptions, source: Origin, result: Moved, done: str) -> int:
    if settings.json:
        left = [each._asdict() for each in result.left]
        told = {"moved": result.moved, "trashed": result.trashed, "schedules": result.schedules}
        say_json({**told, "outcomes": result.outcomes, "keys": result.keys, "left": left})
    else:
        if result.moved or result.trashed or result.left or _beside(result):
            say(f"{_named(source)}: {result.moved} {done}, and {result.trashed} in the trash{_beside(result)}.")
        else:
            say(f"There was nothing to move on {source}{_others(source)}.")
        if result.left:
            warn(f"{len(result.left)} left:")
        for each in result.left[:SHOWN]:
            named = f"Job {each.name!r} ({each.uuid})" if each.what == "job" else f"{each.what.title()} {each.uuid!r}"
            warn(f"  {named}: {one_line(each.why)}")
        if len(result.left) > SHOWN:
            warn(f"  and {len(result.left) - SHOWN} more")
    return FAILED if result.left else DONE


def _beside(result: Moved) -> str:
    """What else was moved, beside jobs."""
    counts = {"schedule": result.schedules, "outcome": result.outcomes, "key": result.keys}
    told = [f"{count} {what}{'' if count == 1 else 's'}" for what, count in counts.items() if count]
    return f"; and {', '.join(told)}" if told else ""


def _named(source: Origin) -> str:
    return named(source) if isinstance(source, JobBoard) else f"TaskFlow's board {source.name!r}"


def _others(source: Origin) -> str:
    return others(source) if isinstance(source, JobBoard) else ""


@contextlib.contextmanager
def _existing(settings: BoardOptions) -> Iterator[Origin]:
    """The board to move from. Where nothing is made for a board, one on which nothing has been posted is not there: its
    name was mistyped, and it must not be reported as moved."""
    from jobboard.primitives import MENTIONED, mentioned

    if settings.uri.startswith(TASKFLOW):
        with _taskflow_board(settings.uri) as source:
            yield source
        return
    with opened(settings) as board:
        there = board.door.boards(MENTIONED)
        beside = bool(board.door.schedules()) or next(board.outcomes(), None) is not None
        if board.name not in there and not beside:
            raise JobFailure(f"nothing is there of {board}{mentioned(there)}")
        yield board


@contextlib.contextmanager
def _taskflow_board(uri: str) -> Iterator[Origin]:
    from jobboard.contrib.taskflow.source import fetch_source

    try:
        board = fetch_source(uri)
    except (NotFound, TypeError, ValueError) as error:
        raise click.UsageError(without_secrets(str(error), uri)) from None
    try:
        board.connect()
        yield board
    finally:
        board.close()


@contextlib.contextmanager
def _progress(source: Origin, trash: bool) -> Iterator[Told]:
    """What is told of jobs that were moved, of how many are waited for, and of outcomes: bars on a terminal, lines
    elsewhere."""
    with bars() as progress:
        if progress is None:
            yield lambda count: None, lambda count: warn(_waiting(count)), lambda count, total: None
            return
        counted = source.stats()
        task = progress.add_task("moving", total=counted.on_board + (counted.trashed if trash else 0))
        copying = progress.add_task("copying outcomes", total=None, visible=False)
        yield (
            lambda count: progress.advance(task, count),
            lambda count: progress.update(task, description=_waiting(count)),
            lambda count, total: progress.update(copying, completed=count, total=total, visible=True),
        )


def _waiting(claimed: int) -> str:
    return f"waiting for {claimed} claimed {'job' if claimed == 1 else 'jobs'}"
