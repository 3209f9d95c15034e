"""How a thread of the library's own begins."""

from __future__ import annotations

import threading
from collections.abc import Callable


def started(name: str, target: Callable[..., object], *args: object) -> threading.Thread:
    """A daemon that runs ``target(*args)``. Keep it by this answer alone: one that could not be started is none.

    :raises RuntimeError: the system lets no more be started.
    """
    thread = threading.Thread(target=target, args=args, name=name, daemon=True)
    thread.start()
    return thread
