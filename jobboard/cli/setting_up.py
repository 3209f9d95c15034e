"""``jobboard setup``."""

from __future__ import annotations

import dataclasses

import click

from jobboard.cli.common import BoardOptions, board_options, example, fetch_board
from jobboard.cli.output import say, say_json


@click.command(epilog=example("jobboard --board postgresql://app@db/prod setup"))
@board_options
def setup(settings: BoardOptions) -> None:
    """Create what the board needs on its backend, or bring it up to date.

    Does no harm when it is repeated, or called by many at once; the jobs on the board stay.
    """
    board = fetch_board(settings.uri, settings.board_name)
    board.setup()
    board.connect()
    try:
        traits = dataclasses.asdict(board.characteristics)
        if settings.json:
            say_json({"board": settings.board_name, **traits})
        else:
            say(f"The {board} is ready.")
            for trait, value in traits.items():
                say(f"  {trait.replace('_', ' ')}: {_word(value)}")
    finally:
        board.close()


def _word(value: object) -> object:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
