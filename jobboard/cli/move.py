"""``jobboard move``: the move of a board to another backend."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from jobboard.board import JobBoard
from jobboard.cli.common import DONE, FAILED, BoardOptions, command, duration, plural
from jobboard.cli.output import bars, one_line, warn
from jobboard.cli.redaction import without_secrets
from jobboard.cli.summary import named, other_boards, refuse_memory, refuse_read_only
from jobboard.cli.tables import SHOWN
from jobboard.exceptions import JobFailure, NotFound

if TYPE_CHECKING:
    from jobboard.moving import Moved
    from jobboard.moving.origin import Origin

Progress = tuple[Callable[[int], object], Callable[[int], object], Callable[[int, int], object]]

TASKFLOW = "taskflow+"
"""The beginning of the URI of a TaskFlow board."""


@command(
    "jobboard move sqlite:///jobs.db redis://host/0",
    "jobboard move redis://host/0 postgresql://app@db/prod --name pictures --wait",
    "jobboard move 'taskflow+redis://host/0?namespace=octavia' redis://host/1 --name octavia --wait",
    board=None,
)
@click.argument("source", metavar="SRC")
@click.argument("target", metavar="DST")
@click.option("--to-name", metavar="NAME", help="The board's name at DST.  [default: as at SRC]")
@click.option("--wait", is_flag=True, help="Wait for claimed jobs, and move the ones that come back.")
@click.option("--wait-limit", type=duration, metavar="TIME", help="Wait for at most this time: 90s, 15m, 12h.")
@click.option("--trash/--no-trash", default=True, help="Also move jobs in the trash, or leave them.  [default: move]")
@click.option(
    "--outcomes/--no-outcomes", default=True, help="Also copy outcomes of consumed jobs, or not.  [default: copy]"
)
@click.option("--dry-run", is_flag=True, help="Report the move, and change nothing.")
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
    """Move all jobs of a board to another one.

    SRC and DST are URIs. Claimed jobs stay, and the exit status is 1 then. The same command finishes an interrupted
    move, and no job is lost or doubled. Work may go on at both boards meanwhile.

    SRC may be a board of OpenStack TaskFlow: taskflow+redis://HOST/DB?namespace=…, taskflow+zookeeper://HOSTS/PATH or
    taskflow+etcd://HOST/PATH. Options stand behind the ? under TaskFlow's names.
    """
    from jobboard.moving import Mover, SameBoard, survey

    if settings.given is not None:
        raise click.UsageError("'move' takes both boards as arguments: leave out --board")
    if to_name == "":
        raise click.UsageError("--to-name is empty")
    for uri in (source, target):
        refuse_memory(uri)
    there = dataclasses.replace(settings, given=target, name=to_name or settings.name)
    with _existing(dataclasses.replace(settings, given=source)) as from_board:
        if dry_run:
            return _report(
                settings, from_board, survey(from_board, there.fetch().engine.wire, trash, outcomes), "would be moved"
            )
        # Before anything is made at the target.
        for board in (from_board, there.fetch()):
            if isinstance(board, JobBoard):
                refuse_read_only(board)
        with there.opened(create=True) as to_board, _progress(from_board, trash) as progress:
            try:
                mover = Mover(from_board, to_board, *progress)
                result = mover.run(wait or wait_limit is not None, timeout=wait_limit, trash=trash, outcomes=outcomes)
            except SameBoard as error:
                raise click.UsageError(str(error)) from None
            except KeyboardInterrupt:
                warn("the move is not complete: run the same command again to go on")
                raise
        return _report(settings, from_board, result, "moved")


def _report(settings: BoardOptions, source: Origin, result: Moved, act: str) -> int:
    counts = {"schedule": result.schedules, "outcome": result.outcomes, "key": result.keys}
    beside = ", ".join(plural(count, what) for what, count in counts.items() if count)
    own = source if isinstance(source, JobBoard) else None
    if result.moved or result.trashed or result.left or beside:
        name = named(own) if own else f"TaskFlow's board {source.name!r}"
        text = f"{name}: {result.moved} {act}, and {result.trashed} in the trash{beside and f'; and {beside}'}."
    else:
        text = f"There was nothing to move on {source}{other_boards(own) if own else ''}."
    settings.tell(text, **{**dataclasses.asdict(result), "left": [each._asdict() for each in result.left]})
    if result.left and not settings.json:
        warn(f"{len(result.left)} left:")
        for each in result.left[:SHOWN]:
            name = f"Job {each.name!r} ({each.uuid})" if each.what == "job" else f"{each.what.title()} {each.uuid!r}"
            warn(f"  {name}: {one_line(each.why)}")
        if len(result.left) > SHOWN:
            warn(f"  and {len(result.left) - SHOWN} more")
    return FAILED if result.left else DONE


@contextlib.contextmanager
def _existing(settings: BoardOptions) -> Iterator[Origin]:
    """Give the board to move from.

    :raises JobFailure: nothing is on it. Some stores make nothing for a board: its name may be mistyped.
    """
    from jobboard.primitives import MENTIONED, mentioned

    if settings.uri.startswith(TASKFLOW):
        from jobboard.contrib.taskflow.source import fetch_source

        try:
            origin = fetch_source(settings.uri)
        except (NotFound, TypeError, ValueError) as error:
            raise click.UsageError(without_secrets(str(error), settings.uri)) from None
        with contextlib.closing(origin):
            origin.connect()
            yield origin
        return
    with settings.opened() as board:
        there = board.engine.boards(MENTIONED)
        beside = bool(board.engine.all_schedules()) or next(board.outcomes(), None) is not None
        if board.name not in there and not beside:
            raise JobFailure(f"nothing is there of {board}{mentioned(there)}")
        yield board


@contextlib.contextmanager
def _progress(source: Origin, trash: bool) -> Iterator[Progress]:
    """Give callbacks for moved jobs, awaited jobs and outcomes, which a terminal shows as bars."""

    def wait(count: int) -> None:
        waiting = f"waiting for {plural(count, 'claimed job')}"
        progress.update(task, description=waiting)
        if progress.disable:
            warn(waiting)

    with bars() as progress:
        counted = source.stats()
        task = progress.add_task("moving", total=counted.on_board + (counted.trashed if trash else 0))
        copying = progress.add_task("copying outcomes", total=None, visible=False)
        yield (
            lambda count: progress.advance(task, count),
            wait,
            lambda count, total: progress.update(copying, completed=count, total=total, visible=True),
        )
