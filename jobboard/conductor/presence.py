"""How a conductor shows among the entities of its board."""

from __future__ import annotations

import datetime
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

MOST_NAMES = 60
"""So many names of jobs are shown at most, be they as long as can be: an entity may tell 64 KiB of itself."""


class Presence:
    """An entity that tells anew, each time it is asked, what the conductor does and has done.

    :param names: gives those of the jobs that it works on; None for any.
    :param counts: gives how many jobs run, and what came of those before.
    """

    kind = "conductor"

    def __init__(
        self,
        name: str,
        names: Callable[[], Sequence[str] | None],
        workers: str,
        slots: int,
        counts: Callable[[], Mapping[str, int]],
    ) -> None:
        self.name = name
        self._names = names
        self._counts = counts
        self._began = time.monotonic()
        self._fixed = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "workers": workers,
            "slots": slots,
            "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        }

    @property
    def metadata(self) -> dict[str, Any]:
        """``seconds``: how long it has been at work, and so when this was counted, by a clock that does not jump."""
        names = self._names()
        others = max(0, len(names or ()) - MOST_NAMES)
        return {
            **self._fixed,
            "names": None if names is None else sorted(names)[:MOST_NAMES],
            **({"other_names": others} if others else {}),
            "seconds": round(time.monotonic() - self._began, 3),
            **self._counts(),
        }
