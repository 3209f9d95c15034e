"""The entity that shows a conductor on its board."""

from __future__ import annotations

import datetime
import os
import socket
import time
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from jobboard.board import JobBoard
from jobboard.conductor.handlers import Handlers

SHOWN_NAMES = 60
"""The number of job names that are shown. The longest names together fit into the 64 KiB that an entity may have."""

_shown: WeakKeyDictionary[JobBoard, list[Presence]] = WeakKeyDictionary()
"""The presences on each board object. A board shows one entity of each name: the latest that has not ended."""


class Presence:
    """An entity whose metadata are counted anew at each heartbeat.

    :param counts: returns the number of running jobs, and the counts of ended jobs by outcome.
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
        self.pid = os.getpid()
        self._fixed = {"host": socket.gethostname(), "pid": self.pid, "workers": workers, "slots": slots}
        self._fixed |= {"started": started}

    @property
    def metadata(self) -> dict[str, Any]:
        names = sorted(self._handlers.named)
        told = {**self._fixed, "names": None if self._handlers.any else names[:SHOWN_NAMES]}
        if len(names) > SHOWN_NAMES:
            told["other_names"] = len(names) - SHOWN_NAMES
        # Seconds since the start, by a clock that does not jump.
        return {**told, "seconds": round(time.monotonic() - self._began, 3), **self._counts()}

    def show(self, board: JobBoard) -> None:
        """Register the entity. A second call registers it again, after the board was closed."""
        mine = _shown.setdefault(board, [])
        if self not in mine:
            mine.append(self)
        board.register_entity(self)

    def hide(self, board: JobBoard) -> None:
        """Deregister the entity, and show another one of its name that has not ended."""
        mine = _shown.setdefault(board, [])
        if self in mine:
            mine.remove(self)
        before: list[Presence] | None = None
        # Others may come and go during the request.
        while (others := self._others(mine)) != before:
            before = others
            if others:
                board.register_entity(others[-1])
            else:
                board.deregister_entity(self)

    def _others(self, presences: list[Presence]) -> list[Presence]:
        # A forked child inherits the presences of its parent.
        return [each for each in list(presences) if each.name == self.name and each.pid == os.getpid()]
