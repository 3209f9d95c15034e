"""The boards of this process. Django makes a task backend for each thread and each coroutine, and they share these."""

from __future__ import annotations

import atexit
import contextlib
import threading
from collections.abc import Iterator

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


def leave_databases() -> None:
    """Close the boards in Django's databases."""
    for key in list(_boards):
        if key[0] is not None and (board := _boards.pop(key, None)) is not None:
            board.close()


@contextlib.contextmanager
def emptying(database: str) -> Iterator[None]:
    """Keep the boards in a database closed for a block, so that they remember nothing of their jobs."""
    with _connecting:
        there = [board for (alias, _), board in list(_boards.items()) if alias == database and not board.closed]
        for board in there:
            board.close()
        yield
        for board in there:
            board.connect()
