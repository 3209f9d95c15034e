"""Movers that are killed; see test_move_killed.py.

Its argument is a JSON map with the words of a ``jobboard move``, and when to kill each of a row of processes that runs
it: after how many changes of the source, and how many seconds further. One that nobody kills comes last; the statuses
of all are printed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import Any

from jobboard.cli import main
from jobboard.contrib.taskflow.source import TaskFlowOrigin, fetch_source
from jobboard.moving import mover

# So that there is something in between to be killed at.
mover.BATCH = 7


def killed(after: int, seconds: float) -> None:
    call = TaskFlowOrigin._call
    count = 0

    def counted(self: TaskFlowOrigin, store_call: Any, *args: Any) -> Any:
        nonlocal count
        count += store_call.__name__ in ("depart", "write_note", "remove_notes")
        if count == after:
            threading.Timer(seconds, os.kill, [os.getpid(), signal.SIGKILL]).start()
        return call(self, store_call, *args)

    TaskFlowOrigin._call = counted  # type: ignore[method-assign]


def run(words: list[str], kill: tuple[int, float] | None) -> int:
    child = os.fork()
    if child == 0:
        if kill is not None:
            killed(*kill)
        os._exit(main(words))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    # TaskFlow and its driver, once for all of them.
    fetch_source(given["words"][1])
    print(json.dumps([run(given["words"], kill) for kill in [*given["kills"], None]]))
