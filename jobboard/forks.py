"""Forked children: their inherited connections and work, and the way to let go of them.

In a forked child, Python calls these functions before ``os.fork`` returns, in the order of the imports:

- ``_count`` here, which makes all claims of the parent *inherited*;
- ``JobBoard._forked_child`` for each board. It renews the locks, has the store drop its connections by
  ``Store.forked``, and begins a life with another handle, without claims, entities and a heartbeat;
- ``Bind.forked`` in :mod:`jobboard.sql.binds`, for the connections of task loops;
- ``_after_fork_in_child`` in :mod:`jobboard.sql.inherited`, for the engines of task loops and models.

A child that is forked during work ends at the end of the work, by :class:`ForkGuard`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import traceback
from typing import NoReturn

from jobboard.exceptions import JobFailure

generation = 0
"""The number of forks between this process and the process that has imported this module. An object of another
generation is inherited. A request to the kernel for the process's id takes several times as long."""


def _count() -> None:
    global generation  # noqa: PLW0603 - there is one for each process
    generation += 1


os.register_at_fork(after_in_child=_count)


def keep(*inherited: object) -> None:
    """Keep the parent's connections from being collected in a forked child.

    Most drivers' connections say goodbye to the server or shut their socket down when they are collected. The socket is
    the parent's too, and that would end its conversation.
    """
    for each in inherited:
        # A list of these objects would be collected at the end of the process.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))


class ForkGuard:
    """A block that a child forked within does not leave: the child's process ends there.

    Behind the block lies the parent's own work: its claims, its connections and its next job. The child ends without
    ``finally`` blocks and exit handlers, and writes out no buffers, which hold what the parent has yet to write.
    """

    __slots__ = ("_home",)

    def __enter__(self) -> None:
        self._home = generation

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if generation != self._home:
            _end_child(error)


def _end_child(error: BaseException | None) -> NoReturn:
    """End this process with the status, and the words on stderr, with which Python would end for ``error``."""
    status, words = 1, ""
    try:
        if error is None:
            status = 0
        elif not isinstance(error, SystemExit):
            words = "".join(traceback.format_exception(error))
        elif error.code is None or isinstance(error.code, int):
            status = (error.code or 0) & 0xFF
        else:
            words = f"{error.code}\n"
    finally:
        with contextlib.suppress(OSError):
            # Not by sys.stderr, whose lock another thread may have held when this process was forked.
            os.write(2, words.encode(errors="backslashreplace"))
        os._exit(status)


def check_home(home: int) -> None:
    """:raises JobFailure: this is not the process that has the client given as ``client=``, but a fork of it."""
    if os.getpid() != home:
        raise JobFailure(
            "the client given as client= belongs to the process that this one was forked from; "
            "a child needs a board with a client of its own"
        )
