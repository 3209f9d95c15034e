"""``jobboard move``: carries a board from one backend to another."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

import click

from jobboard.board import JobBoard
from jobboard.cli.common import DONE, FAILED, BoardOptions, board_options, example, one_line, opened
from jobboard.cli.naming import named, others, refuse_memory
from jobboard.cli.output import SHOWN, console, say, say_json, warn


@click.command(
    epilog=example(
        "jobboard move sqlite:///jobs.db redis://host/0",
        "jobboard move redis://host/0 postgresql://app@db/prod --name pictures --wait",
    )
)
@click.argument("source", metavar="SRC")
@click.argument("target", metavar="DST")
@click.option("--to-name", metavar="NAME", help="The board's name at DST.  [default: as at SRC]")
@click.option("--wait", is_flag=True, help="Wait for the jobs that are claimed, and move those that come back.")
@board_options
def move(settings: BoardOptions, source: str, target: str, to_name: str | None, wait: bool) -> int:
    """Move all jobs of the board at SRC to a board at DST, both given as URIs.

    Jobs that are claimed stay, and the exit status is 1 then. A move that was interrupted, in whatever way, is finished
    by the same command; nothing is lost or doubled. Work may go on at both boards meanwhile.
    """
    from jobboard.moving import Mover

    if settings.asked_for is not None:
        raise click.UsageError("'move' takes both boards as arguments: leave out --board")
    for uri in (source, target):
        refuse_memory(uri)
    there = replace(settings, asked_for=target, name=to_name or settings.name)
    with (
        _existing(replace(settings, asked_for=source)) as from_board,
        opened(there, create=True) as to_board,
        _progress(from_board) as moved,
    ):
        try:
            result = Mover(from_board, to_board, moved).run(wait)
            siblings = "" if result.moved or result.trashed or result.left else others(from_board)
        except KeyboardInterrupt:
            warn("not all is moved yet: run the same command again to go on")
            raise
    if settings.json:
        left = [each._asdict() for each in result.left]
        say_json({"moved": result.moved, "trashed": result.trashed, "left": left})
    else:
        if result.moved or result.trashed or result.left:
            say(f"{named(from_board)}: {result.moved} moved, and {result.trashed} in the trash.")
        else:
            say(f"There was nothing to move on {from_board!r}{siblings}.")
        if result.left:
            warn(f"{len(result.left)} left:")
        for each in result.left[:SHOWN]:
            warn(f"  Job {each.name!r} ({each.uuid}): {one_line(each.why)}")
        if len(result.left) > SHOWN:
            warn(f"  and {len(result.left) - SHOWN} more")
    return FAILED if result.left else DONE


@contextlib.contextmanager
def _existing(settings: BoardOptions) -> Iterator[JobBoard]:
    """The board to move from. Where nothing is made for a board, one on which nothing has been posted is not there: its
    name was mistyped, and it must not be reported as moved."""
    from jobboard.exceptions import JobFailure
    from jobboard.primitives import MENTIONED, mentioned

    with opened(settings) as board:
        there = board.door.boards(MENTIONED)
        if board.name not in there:
            raise JobFailure(f"nothing is there of {board!r}{mentioned(there)}")
        yield board


@contextlib.contextmanager
def _progress(board: JobBoard) -> Iterator[Callable[[int], object]]:
    """A bar on a terminal; elsewhere nothing."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    counted = board.stats()
    with Progress(*columns, console=console(stderr=True)) as progress:
        task = progress.add_task("moving", total=counted.on_board + counted.trashed)
        yield lambda count: progress.advance(task, count)
