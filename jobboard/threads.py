"""The start of the library's own threads."""

from __future__ import annotations

import sys
from collections.abc import Callable

from jobboard import runtime


def started(name: str, target: Callable[..., object], *args: object) -> runtime.Thread:
    """Start a daemon that runs ``target(*args)``. Raise RuntimeError if the system starts no more threads."""
    if sys.is_finalizing():
        # Before Python 3.12 the start would wait for ever: coroutines and objects may be closed this late.
        raise RuntimeError("can't start new thread at interpreter shutdown")
    thread = runtime.Thread(target=target, args=args, name=name, daemon=True)
    thread.start()
    return thread
