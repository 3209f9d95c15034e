"""What a forked child inherits of its parent's connections, and how it lets go of them."""

from __future__ import annotations

import ctypes
import os

from jobboard.exceptions import JobFailure

generation = 0
"""How many forks lie between this process and the one that has imported this: what was made in another generation is
inherited. To ask the kernel for the process's id takes several times as long."""


def _count() -> None:
    global generation  # noqa: PLW0603 - there is one for each process
    generation += 1


os.register_at_fork(after_in_child=_count)


def keep(*inherited: object) -> None:
    """In a forked child: have connections of the parent's never collected.

    Most drivers' connections say goodbye to the server or shut their socket down when they are collected. The socket is
    the parent's too, and that would end its conversation.
    """
    for each in inherited:
        # Not in a list: at the end of the process Python lets go of that too.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))


def check_home(home: int) -> None:
    """:raises JobFailure: this is not the process that has the client given as ``client=``, but a fork of it."""
    if os.getpid() != home:
        raise JobFailure(
            "the client given as client= belongs to the process that this one was forked from; "
            "a child needs a board with a client of its own"
        )
