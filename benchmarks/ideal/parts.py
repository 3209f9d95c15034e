"""Where the client's time goes: samples of its CPU time, by the part of the code that was running."""

from __future__ import annotations

import collections
import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any

# The innermost frame that one of these fits tells the part; what is written in C counts for its caller.
PARTS = (
    ("/jobboard/sql/connections.py", "driver"),
    ("/jobboard/sql/dialects.py", "driver"),
    ("/jobboard/backends/", "store"),
    ("/jobboard/sql/", "store"),
    ("/jobboard/engine/", "engine"),
    ("/jobboard/codec.py", "codec"),
    ("/jobboard/conductor/", "conductor"),
    ("/jobboard/", "board"),
    ("/json/", "codec"),
    ("/msgpack/", "codec"),
    ("/sqlalchemy/", "SQLAlchemy"),
    ("/psycopg/", "driver"),
    ("/pymysql/", "driver"),
    ("/redis/", "driver"),
    ("/kazoo/", "driver"),
)
# A folder of a checkout may be called anything.
CHECKOUT = ("/benchmarks/", "/jobboard/testing/")
EVERY = 0.001


def part_of(frame: FrameType | None) -> str:
    while frame is not None:
        name = frame.f_code.co_filename
        if not any(each in name for each in CHECKOUT):
            for piece, part in PARTS:
                if piece in name:
                    return part
        frame = frame.f_back
    return "the rest"


@contextlib.contextmanager
def sampled(samples: collections.Counter[str]) -> Iterator[None]:
    """Counts samples while the block runs, of the main thread, whenever this process has used so much CPU time."""

    def sample(number: int, frame: FrameType | None) -> Any:
        samples[part_of(frame)] += 1

    before = signal.signal(signal.SIGPROF, sample)
    signal.setitimer(signal.ITIMER_PROF, EVERY, EVERY)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
