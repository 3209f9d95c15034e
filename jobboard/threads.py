"""The start of the library's own threads, and the stack of any thread."""

from __future__ import annotations

import gc
import sys
import traceback
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


def stack_of(ident: int) -> str:
    """Return where a thread is now, as a traceback has it; empty if it has ended."""
    collects = gc.isenabled()
    # Before Python 3.11.9 a collection within this call may hang the process for good: Python code that it runs lets
    # other threads go on, and these wait for the lock that this call holds.
    gc.disable()
    try:
        frame = sys._current_frames().get(ident)
    finally:
        if collects:
            gc.enable()
    return "".join(traceback.format_stack(frame)) if frame else ""
