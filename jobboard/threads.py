"""Threads of the library's own."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable


def started(name: str, target: Callable[..., object], *args: object) -> threading.Thread:
    """Start a daemon that runs ``target(*args)``. Raise RuntimeError if the system starts no more threads."""
    if sys.is_finalizing():
        # Before Python 3.12 the start would wait for ever: coroutines and objects may be closed this late.
        raise RuntimeError("can't start new thread at interpreter shutdown")
    thread = threading.Thread(target=target, args=args, name=name, daemon=True)
    thread.start()
    return thread
