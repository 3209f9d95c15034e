"""A program that kills movers: a row of processes runs one ``jobboard move``, and all but the last are killed.

Its argument is a JSON map: ``words``, the command, and ``kills``, the number of changes of a board after which each of
the processes is killed, and a number of seconds further. The statuses of all processes are printed.
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

# There are several batches, with something between them to be killed at.
mover.BATCH = 7


def changes_of(uris: list[str]) -> list[tuple[type, str]]:
    """Return the methods by which a move changes these boards. Their drivers are imported once for all processes."""
    found: list[tuple[type, str]] = [(RetryingEngine, call) for call in ("mutate", "store_outcomes", "store_keys")]
    for uri in uris:
        if not uri.startswith("taskflow+"):
            fetch("board", uri)
            continue
        from jobboard.contrib.taskflow.source import fetch_source
        from jobboard.contrib.taskflow.source.store import OriginStore

        fetch_source(uri)
        found += itertools.product(OriginStore.__subclasses__(), ("depart", "write_note", "remove_notes"))
    return found


def kill_after(number: int, seconds: float, changes: list[tuple[type, str]]) -> None:
    """Have this process killed some seconds after a change."""
    count = itertools.count(1)

    def counted(change: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **extra: Any) -> Any:
            if next(count) == number:
                threading.Timer(seconds, os.kill, [os.getpid(), signal.SIGKILL]).start()
            return change(*args, **extra)

        return call

    for owner, name in changes:
        setattr(owner, name, counted(getattr(owner, name)))


def run(words: list[str], kill: tuple[int, float] | None, changes: list[tuple[type, str]]) -> int:
    child = os.fork()
    if child == 0:
        if kill is not None:
            kill_after(*kill, changes)
        os._exit(main(words))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    changes = changes_of(given["words"][1:3])
    print(json.dumps([run(given["words"], kill, changes) for kill in [*given["kills"], None]]))
