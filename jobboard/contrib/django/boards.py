"""The boards of this process. Django makes a task backend for each thread and each coroutine, and they share these."""

from __future__ import annotations

import atexit
import threading

from jobboard import backends
from jobboard.board import JobBoard
from jobboard.contrib.django.options import TaskOptions

_boards: dict[tuple[str | None, str], JobBoard] = {}
"""Boards by the alias of Django's database, None for a board elsewhere, and by their configuration."""

_connecting = threading.Lock()


def connected(options: TaskOptions) -> JobBoard:
    """Return the board with these options, connected.

    :raises ConnectionFailure: its backend can't be reached.
    """
    key = options.database, repr((options.name, options.conf))
    board = _boards.get(key)
    if board is None or board.closed:
        with _connecting:
            board = _boards.setdefault(key, board or backends.fetch(options.name, options.conf))
            board.connect()
    return board


@atexit.register
def close() -> None:
    """Close all boards. The next use connects a board again."""
    while _boards:
        _boards.popitem()[1].close()


def leave_databases(database: str | None = None) -> None:
    """Close the boards in Django's databases, or in one of them. The next use connects a board again."""
    for key in list(_boards):
        if key[0] is not None and database in (None, key[0]) and (board := _boards.pop(key, None)) is not None:
            board.close()
