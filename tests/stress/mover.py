"""Movers that are killed; see test_moving.py.

Its argument is a JSON map with the words of a ``jobboard move``, and when to kill each of a row of processes that runs
it: after how many changes of a board, and how many seconds further. One that nobody kills comes last; its status and
that of the others are printed.
"""

import itertools
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from jobboard.backends import fetch
from jobboard.cli import main
from jobboard.engine import RetryingEngine
from jobboard.moving import mover

# So that there is something in between to be killed at.
mover.BATCH = 7


def killed(after: int, seconds: float) -> None:
    count = itertools.count(1)

    def counted(change: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **extra: Any) -> Any:
            if next(count) == after:
                threading.Timer(seconds, os.kill, [os.getpid(), signal.SIGKILL]).start()
            return change(*args, **extra)

        return call

    for call in ("_mutate", "keep", "remember"):
        setattr(RetryingEngine, call, counted(getattr(RetryingEngine, call)))


def run(words: list[str], kill: tuple[int, float] | None) -> int:
    child = os.fork()
    if child == 0:
        if kill is not None:
            killed(*kill)
        os._exit(main(words))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    for uri in given["words"][1:3]:
        # The drivers, once for all of them.
        fetch("board", uri)
    print(json.dumps([run(given["words"], kill) for kill in [*given["kills"], None]]))
