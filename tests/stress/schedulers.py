"""Processes of the stress tests that post what schedules say; see test_schedules.py.

The argument is a JSON map. Prints the number of each process that it starts, and starts another in place of one that
has been killed, until it is killed itself, with all of them.
"""

import ctypes
import json
import os
import signal
import sys

import jobboard
from jobboard.conductor.scheduler import Scheduler
from jobboard.testing.puppet import set_clock

HOUR = 3600.0
SKEWS = (0.0, HOUR, -HOUR, 0.0)
_PR_SET_PDEATHSIG = 1


def post(given: dict[str, object], number: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if given["skewed"]:
        set_clock(SKEWS[number % len(SKEWS)])
    board = jobboard.fetch(str(given["board"]), dict(given["conf"]))  # type: ignore[call-overload]
    board.connect()
    Scheduler(f"scheduler {number}", board).run()


def main() -> None:
    given = json.loads(sys.argv[1])
    # What its backend imports, all of them have then.
    jobboard.fetch(given["board"], given["conf"])
    running: dict[int, int] = {}
    while True:
        for number in set(range(given["count"])) - set(running.values()):
            pid = os.fork()
            if not pid:
                post(given, number)
                os._exit(0)
            running[pid] = number
            print(pid, flush=True)
        running.pop(os.wait()[0])


if __name__ == "__main__":
    main()
