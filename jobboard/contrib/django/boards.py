"""The boards of this process. Django makes a task backend for each thread and each coroutine; they share these."""

from __future__ import annotations

import atexit
import contextlib
import threading
from collections.abc import Iterator
from typing import NamedTuple

from jobboard import backends
from jobboard.board import JobBoard
from jobboard.contrib.django.options import TaskOptions


class _Which(NamedTuple):
    database: str | None
    """As :class:`~jobboard.contrib.django.options.TaskOptions` has it."""
    configured: str


_boards: dict[_Which, JobBoard] = {}
_connecting = threading.Lock()


def connected(options: TaskOptions) -> JobBoard:
    """The one board with these options, connected.

    :raises ConnectionFailure: its backend can't be reached.
    """
    key = _Which(options.database, repr((options.name, options.conf)))
    board = _boards.get(key)
    if board is None or board.closed:
        with _connecting:
            board = _boards.setdefault(key, board or backends.fetch(options.name, options.conf))
            board.connect()
    return board


@atexit.register
def close() -> None:
    """Close them all; who needs one again connects it anew."""
    while _boards:
        _boards.popitem()[1].close()


def leave_databases() -> None:
    """Close those that are in databases of Django's."""
    for key in list(_boards):
        if key.database is not None and (board := _boards.pop(key, None)) is not None:
            board.close()


@contextlib.contextmanager
def emptying(database: str) -> Iterator[None]:
    """Within, those in this database are closed, so that they remember nothing of what was there."""
    with _connecting:
        there = [board for key, board in list(_boards.items()) if key.database == database and not board.closed]
        for board in there:
            board.close()
        yield
        for board in there:
            board.connect()
