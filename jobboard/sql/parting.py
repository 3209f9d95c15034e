"""Forks of a process that uses SQLite.

SQLite's library keeps in the memory of the process which locks that holds on a file, beside mutexes of its own. A child
has all of it as it was: what another thread was about to let go of would be held for good there, and a lock that the
parent's connections share with the kernel is not the child's. So before a fork the threads that work in SQLite come to
an end of that, and the boards close their connections, which parent and child make anew.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from typing import Any

LOG = logging.getLogger(__name__)

PATIENCE = 5.0
"""For how many seconds a fork waits at most."""
_LOOK = 0.001


class Inside:
    """While a thread is in it no child is made, and while a child is made no other thread comes into it."""

    def __init__(self) -> None:
        self._depths: dict[int, int] = {}
        self._forker: int | None = None
        self._over = threading.Condition()
        self._one = threading.Lock()
        # Whatever has connections to close, by its method rest().
        self.users = weakref.WeakSet[Any]()

    @property
    def awaited(self) -> bool:
        """Whether a fork waits, or is under way."""
        return self._forker is not None

    def __enter__(self) -> None:
        me, depths = threading.get_ident(), self._depths
        if me in depths:
            depths[me] += 1
            return
        # In this order: who forks looks at these in the other one.
        depths[me] = 1
        while self._forker not in (None, me):
            del depths[me]
            with self._over:
                self._over.wait_for(lambda: self._forker is None)
            depths[me] = 1

    def __exit__(self, *error: object) -> None:
        me, depths = threading.get_ident(), self._depths
        if depths[me] > 1:
            depths[me] -= 1
        else:
            del depths[me]

    def before(self) -> None:
        self._one.acquire()
        self._forker = me = threading.get_ident()
        until = time.monotonic() + PATIENCE
        while any(thread != me for thread in list(self._depths)):
            if time.monotonic() > until:
                LOG.warning(
                    "forking though a thread has worked in SQLite for %g s: its locks stay the child's", PATIENCE
                )
                return
            time.sleep(_LOOK)
        for user in list(self.users):
            user.rest()

    def after_in_parent(self) -> None:
        with self._over:
            self._forker = None
            self._over.notify_all()
        self._one.release()

    def after_in_child(self) -> None:
        me = threading.get_ident()
        depth = self._depths.get(me)
        self._depths = {} if depth is None else {me: depth}
        self._forker, self._over, self._one = None, threading.Condition(), threading.Lock()


SQLITE = Inside()

os.register_at_fork(before=SQLITE.before, after_in_parent=SQLITE.after_in_parent, after_in_child=SQLITE.after_in_child)
