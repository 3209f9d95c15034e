"""How fast the Redis board is: against TaskFlow's, and as a board grows.

    PYTHONPATH=. python benchmarks/redis                                # everything, on servers of its own
    PYTHONPATH=. python benchmarks/redis wake --place "one core"
    PYTHONPATH=. python benchmarks/redis growth --jobs 1000000 --state delayed
    PYTHONPATH=. python benchmarks/redis taskflow --venv /tmp/taskflow  # installed there on the first run

taskflow  TaskFlow's Redis board, in a process and an environment of its own
growth    what a claim costs the server on a small and on a large board, and the memory for each job
trips     commands for each job that is claimed and consumed, with one and with eight workers
wake      from a post to a claimer that waits, against BLPOP; and how many of eight waiters a job wakes
walk      iterating over a large board: round trips, and the client's memory

Whatever is compared takes turns within one run, on one server, and figures are medians of the rounds. Servers append to
a file and leave it to the system when that reaches the disk: where each write waits for the disk (--durable), that is
most of what there is to measure, for both sides. Where client and server share a core a round trip costs the least and
the library counts the most.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import gettempdir

import against_taskflow
import growth
import trips
import wake
import walk
from common import PLACES

PROGRAMS = {
    "taskflow": against_taskflow.run,
    "growth": growth.run,
    "trips": trips.run,
    "wake": wake.run,
    "walk": walk.run,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python benchmarks/redis", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=(*PROGRAMS, "all"), default="all")
    parser.add_argument("--durable", action="store_true", help="servers that wait for the disk with each write")
    parser.add_argument("--place", action="append", choices=PLACES, help="taskflow, wake: what runs where")
    parser.add_argument("--rounds", type=int, default=21, help="taskflow: how often to take turns (%(default)s)")
    parser.add_argument(
        "--jobs", type=int, default=1_000_000, help="growth: how many jobs the large board has (%(default)s)"
    )
    parser.add_argument("--state", action="append", choices=growth.STATES, help="growth: what most of them are")
    parser.add_argument(
        "--venv", type=Path, default=Path(gettempdir()) / "jobboard-taskflow", help="taskflow: where it is installed"
    )
    given = parser.parse_args()
    given.place = given.place or list(PLACES)
    given.state = given.state or list(growth.STATES)
    for name, run in PROGRAMS.items():
        if given.what in (name, "all"):
            run(given)
    return 0


if __name__ == "__main__":
    sys.exit(main())
