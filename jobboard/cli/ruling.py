"""``jobboard pause`` and ``resume``: which jobs a board gives no claims of."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from jobboard.cli.common import BoardOptions, board_options, example, opened, wrong_call
from jobboard.cli.completing import job_names
from jobboard.cli.naming import named, paused_on
from jobboard.cli.output import say, say_json

if TYPE_CHECKING:
    from jobboard.board import JobBoard

_names = click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=job_names)


@click.command(epilog=example("jobboard pause", "jobboard pause mail resize"))
@_names
@board_options
def pause(settings: BoardOptions, names: tuple[str, ...]) -> None:
    """Give no more claims of jobs of these names, or without NAME of any job, until 'jobboard resume'.

    What is claimed already goes on, and jobs are posted as ever: they wait. To pause everything is a switch beside the
    names: 'jobboard resume NAME' does not undo it.
    """
    with opened(settings) as board:
        _rule(board.pause, names)
        _tell(settings, board)


@click.command(epilog=example("jobboard resume", "jobboard resume mail"))
@_names
@board_options
def resume(settings: BoardOptions, names: tuple[str, ...]) -> None:
    """Give claims of jobs of these names again; without NAME of all jobs, whatever was paused."""
    with opened(settings) as board:
        _rule(board.resume, names)
        _tell(settings, board)


def _rule(verb: Callable[[tuple[str, ...] | None], None], names: tuple[str, ...]) -> None:
    try:
        verb(names or None)
    except ValueError as error:
        raise wrong_call(error) from None


def _tell(settings: BoardOptions, board: JobBoard) -> None:
    paused = board.paused()
    if settings.json:
        say_json({"everything": paused.everything, "names": list(paused.names)})
    else:
        say(f"{named(board)}: {paused_on(paused) or 'nothing is paused'}")
