"""The entity that shows a conductor on its board."""

from __future__ import annotations

import datetime
import os
import socket
import time
from collections.abc import Callable
from typing import Any

from jobboard.conductor.handlers import Handlers

MOST_NAMES = 60
"""How many names of jobs are shown at most: the longest ones together fit into the 64 KiB that an entity may have."""


class Presence:
    """An entity whose metadata are counted anew at each heartbeat.

    :param counts: returns how many jobs run, and what came of the jobs before.
    """

    kind = "conductor"

    def __init__(
        self, name: str, workers: str, slots: int, handlers: Handlers, counts: Callable[[], dict[str, int]]
    ) -> None:
        self.name = name
        self._handlers = handlers
        self._counts = counts
        self._began = time.monotonic()
        started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self._fixed = {"host": socket.gethostname(), "pid": os.getpid(), "workers": workers, "slots": slots}
        self._fixed |= {"started": started}

    @property
    def metadata(self) -> dict[str, Any]:
        names = sorted(self._handlers.named)
        told = {**self._fixed, "names": None if self._handlers.any else names[:MOST_NAMES]}
        if len(names) > MOST_NAMES:
            told["other_names"] = len(names) - MOST_NAMES
        # Seconds since the start, by a clock that does not jump.
        return {**told, "seconds": round(time.monotonic() - self._began, 3), **self._counts()}
