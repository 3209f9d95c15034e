"""Threads of the library's own."""

from __future__ import annotations

import threading
from collections.abc import Callable


def started(name: str, target: Callable[..., object], *args: object) -> threading.Thread:
    """Start a daemon that runs ``target(*args)``. Raise RuntimeError if the system starts no more threads."""
    thread = threading.Thread(target=target, args=args, name=name, daemon=True)
    thread.start()
    return thread
