"""Connections that a forked child has inherited: left to the parent, and on SQLite closed before the child's first own.

SQLite remembers in memory, for all connections of a process to a file, which locks they hold and by which descriptors.
The kernel gives the child none of the locks. So the child closes inherited connections before it opens one: it would
otherwise count on locks that it does not have. A child that never opens one does not call SQLite, as another thread of
the parent may have been inside SQLite at the fork.

SQLite closes, locks and writes files by the numbers of their descriptors. A daemon has closed all descriptors, and may
have opened files of its own that have these numbers now.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import threading
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from jobboard import forks, runtime
from jobboard.exceptions import JobFailure
from jobboard.sql.dialects import database
from jobboard.threads import started

File = tuple[int, int]
"""The device and the inode of a file."""

_CLONE_FILES = 0x400
_CLOSE_RANGE = 436  # the number of this system call on every architecture
_CLOSE_RANGE_UNSHARE = 2

_engines: weakref.WeakSet[Engine] = weakref.WeakSet()
_lock = runtime.Lock()
_closings: list[Callable[[], object]] = []
_files: dict[int, File] = {}
"""The files that were open at the fork, by the numbers of their descriptors."""


def follow(engine: Engine) -> None:
    """Have a forked child leave the connections in a caller's pool to the parent."""
    if not engine.dialect.is_async:
        _engines.add(engine)


def close_later(close: Callable[[], object]) -> None:
    """Call ``close``, which closes an inherited connection of SQLite's, before the child opens a connection."""
    if not _closings:
        _files.update(_open_files())
    _closings.append(close)


def close_inherited() -> None:
    """Close the inherited connections of SQLite. The parent loses nothing.

    :raises JobFailure: their descriptors belong to other files by now, which this system can't keep out of it.
    """
    if not _closings:
        return
    with _lock:
        others = [number for number, file in _files.items() if _file(number) != file]
        if others:
            _close_beside(others)
        else:
            _close_all()
        _files.clear()


def _close_all() -> None:
    while _closings:
        with contextlib.suppress(Exception):
            _closings[-1]()
        _closings.pop()


def _close_beside(others: Iterable[int]) -> None:
    """Close the connections in a thread with descriptors of its own, without those that are other files by now."""
    process, closed, errors = threading.get_native_id(), set[int](), list[BaseException]()

    def run() -> None:
        try:
            # A green thread has the descriptors of the process.
            if threading.get_native_id() == process or not _has_own_descriptors():
                raise JobFailure(
                    "this process was forked, and has closed the descriptors of its SQLite connections since: fetch "
                    "and connect boards and engines after that"
                )
            for number in others:
                with contextlib.suppress(OSError):
                    os.close(number)
            before = set(filter(_file, _files))
            _close_all()
            closed.update(number for number in before if _file(number) is None)
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    started("inherited-connections", run).join()
    for error in errors:
        raise error
    # SQLite has closed these for the thread alone.
    for number in closed:
        os.close(number)


def _has_own_descriptors() -> bool:
    """Give this thread a copy of the process's descriptors, and return whether the system can do that."""
    libc = ctypes.CDLL(None)
    with contextlib.suppress(AttributeError):
        if not libc.unshare(_CLONE_FILES):
            return True
        # Containers may refuse the former. This closes no descriptor, as none has the highest number.
        highest = ctypes.c_uint(0xFFFFFFFF)
        return not libc.syscall(_CLOSE_RANGE, highest, highest, _CLOSE_RANGE_UNSHARE)
    return False


def _open_files() -> dict[int, File]:
    try:
        numbers: Iterable[int] = [int(path.name) for path in Path("/dev/fd").iterdir()]
    except OSError:
        numbers = range(1024)
    return {number: file for number in numbers if (file := _file(number))}


def _file(number: int) -> File | None:
    """Return the regular file of a descriptor; None for other descriptors."""
    try:
        status = os.fstat(number)
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def _after_fork_in_child() -> None:
    global _lock  # noqa: PLW0603 - a thread that is not there may hold it
    _lock = runtime.Lock()
    for engine in list(_engines):
        pool = engine.pool
        forks.keep(pool)
        if database(engine.dialect).exclusive:
            close_later(pool.dispose)
            sa.event.listen(engine, "do_connect", _before_connect)
        engine.dispose(close=False)


def _before_connect(*_: object) -> None:
    close_inherited()


os.register_at_fork(after_in_child=_after_fork_in_child)
