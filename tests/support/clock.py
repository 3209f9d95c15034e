"""A monotonic clock that a test sets."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from jobboard import runtime


class Clock:
    """A clock that stands still until ``now`` is set."""

    def __init__(self) -> None:
        self.now = runtime.monotonic()

    def __call__(self) -> float:
        return self.now


@contextlib.contextmanager
def set_clock() -> Iterator[Clock]:
    """Replace the library's monotonic clock within the block."""
    clock = Clock()
    with runtime.replaced({"monotonic": clock}):
        yield clock
