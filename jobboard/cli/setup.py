"""``jobboard setup``: the tables and the like of a board."""

from __future__ import annotations

import contextlib
import dataclasses

import click

from jobboard.cli.common import DONE, FAILED, BoardOptions, command, naming
from jobboard.cli.output import say, say_json


@command(
    "jobboard --board postgresql://app@db/prod setup", "jobboard setup --check", "jobboard setup --sql | psql prod"
)
@click.option("--check", is_flag=True, help="Only print what is to be done; the exit status is 1 if there is anything.")
@click.option("--sql", is_flag=True, help="Only print the SQL statements of what is to be done.")
def setup(settings: BoardOptions, check: bool, sql: bool) -> int:
    """Create or update the tables and the like of a board.

    The command prints what it has changed. It may be repeated, also by many processes at once. The jobs on the board
    stay.
    """
    if check and sql:
        raise click.UsageError("give --check or --sql")
    board = settings.fetch()
    if sql and not hasattr(board, "table"):
        raise click.UsageError(f"{board} is not in an SQL database: leave out --sql")
    if check or sql:
        with naming(board):
            steps = board.engine.raw.setup_steps()
        if settings.json:
            say_json({"board": board.name, "to_do": [step._asdict() for step in steps]})
        elif sql:
            for step in steps:
                say(f"-- {step.what}{'' if step.statements else ': `jobboard setup` does this, and no statement'}")
                for statement in step.statements:
                    say(f"{statement};")
        else:
            for step in steps:
                say(f"to do: {step.what}")
            say(f"The {board} {'needs `jobboard setup`' if steps else 'is up to date'}.")
        return FAILED if check and steps else DONE
    with naming(board):
        changed = board.setup()
    with contextlib.closing(board):
        with naming(board):
            board.connect()
        traits = dataclasses.asdict(board.characteristics)
    lines = [f"The {board} is ready.", *(f"  done: {what}" for what in changed)]
    lines += [] if changed else ["  nothing was to be done"]
    lines += [f"  {name.replace('_', ' ')}: {_word(value)}" for name, value in traits.items()]
    settings.tell("\n".join(lines), board=board.name, changed=changed, **traits)
    return DONE


def _word(value: object) -> object:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
