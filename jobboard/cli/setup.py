"""``jobboard setup``: the tables and the like of a board."""

from __future__ import annotations

import contextlib
import dataclasses

from jobboard.cli.common import BoardOptions, command, naming


@command("jobboard --board postgresql://app@db/prod setup")
def setup(settings: BoardOptions) -> None:
    """Create or update the tables and the like of a board.

    The command may be repeated, also by many processes at once. The jobs on the board stay.
    """
    board = settings.fetch()
    with naming(board):
        board.setup()
    with contextlib.closing(board):
        with naming(board):
            board.connect()
        traits = dataclasses.asdict(board.characteristics)
    lines = [f"  {name.replace('_', ' ')}: {_word(value)}" for name, value in traits.items()]
    settings.tell("\n".join([f"The {board} is ready.", *lines]), board=board.name, **traits)


def _word(value: object) -> object:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
