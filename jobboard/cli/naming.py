"""Which board a command is about; and what else there is, for who has mistyped its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from jobboard.cli.output import warn

if TYPE_CHECKING:
    from jobboard.board import JobBoard
    from jobboard.primitives import Paused


def named(board: JobBoard) -> str:
    return f"board {board.name!r}"


def paused_on(paused: Paused) -> str:
    """What is paused on a board; "" if nothing is."""
    told = ["everything"] * paused.everything + [repr(name) for name in paused.names]
    return f"paused: {', '.join(told)}" if told else ""


def named_with_rules(board: JobBoard) -> str:
    """The board, and what is paused on it."""
    paused = paused_on(board.paused())
    return f"{named(board)}, {paused}" if paused else named(board)


def others(board: JobBoard) -> str:
    """How what is said about an empty board goes on."""
    from jobboard.primitives import mentioned

    there = mentioned(board.siblings())
    return f"{there} (see --name)" if there else ""


def warn_of_empty(board: JobBoard) -> None:
    """Who works on an empty board waits for jobs, which is right, unless the jobs are on another."""
    there = "" if board.job_count else others(board)
    if there:
        warn(f"{named(board)} is empty{there}")


def refuse_memory(uri: str) -> None:
    """For commands that would leave jobs behind."""
    if uri.partition(":")[0] == "memory":
        raise click.UsageError(f"{uri!r} ends with this command, and all that is on it")
