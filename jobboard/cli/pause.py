"""``jobboard pause`` and ``jobboard resume``."""

from __future__ import annotations

from dataclasses import asdict

import click

from jobboard.cli.common import BoardOptions, command, named_options
from jobboard.cli.summary import named, pauses, warn_of_empty

_names = click.argument("names", nargs=-1, metavar="[NAME]...")


@command("jobboard pause mail resize", "jobboard pause")
@_names
def pause(settings: BoardOptions, names: tuple[str, ...]) -> None:
    """Stop claims of some names, or of all, until 'jobboard resume'.

    Claims that already exist go on, and posted jobs wait. Without NAME, everything is paused. This switch is separate
    from the names: 'jobboard resume NAME' does not undo it.
    """
    _change(settings, "pause", names)


@command("jobboard resume mail", "jobboard resume")
@_names
def resume(settings: BoardOptions, names: tuple[str, ...]) -> None:
    """Allow claims of paused names again; without NAME, of all."""
    _change(settings, "resume", names)


def _change(settings: BoardOptions, verb: str, names: tuple[str, ...]) -> None:
    with settings.opened() as board:
        with named_options():
            getattr(board, verb)(names or None)
        paused = board.paused()
        if not settings.json:
            warn_of_empty(board)
    settings.tell(f"{named(board)}: {pauses(paused) or 'nothing is paused'}", **asdict(paused))
