"""The boards of this process. Django makes a task backend for each thread and each coroutine; they share these."""

from __future__ import annotations

import atexit
import threading

from jobboard import backends
from jobboard.board import JobBoard
from jobboard.contrib.django.options import TaskOptions

_boards: dict[str, JobBoard] = {}
_connecting = threading.Lock()


def connected(options: TaskOptions) -> JobBoard:
    """The one board with these options, connected.

    :raises ConnectionFailure: its backend can't be reached.
    """
    key = repr((options.name, options.conf))
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
