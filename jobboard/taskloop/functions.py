"""doloop's functions: each is the method of :class:`~jobboard.taskloop.TaskLoop` of its name, on a table named in the
call. ``dbconn`` is what a TaskLoop takes, and best a Connection: of an Engine each call opens one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from sqlalchemy.engine import Connection, Engine

from jobboard.taskloop.loop import ONE_HOUR, Ids, TaskLoop
from jobboard.taskloop.tables import DEFAULT_ID_TYPE, DEFAULT_STORAGE_ENGINE

Bound: TypeAlias = Engine | Connection | Callable[[], Connection]


def create(dbconn: Bound, table: str, id_type: str = DEFAULT_ID_TYPE, engine: str = DEFAULT_STORAGE_ENGINE) -> None:
    """See :meth:`TaskLoop.create <jobboard.taskloop.TaskLoop.create>`."""
    with TaskLoop(dbconn, table) as loop:
        loop.create(id_type, engine)


def add(dbconn: Bound, table: str, id_or_ids: Ids, updated: bool = False, test: bool = False) -> int:
    """See :meth:`TaskLoop.add <jobboard.taskloop.TaskLoop.add>`."""
    with TaskLoop(dbconn, table) as loop:
        return loop.add(id_or_ids, updated, test)


def remove(dbconn: Bound, table: str, id_or_ids: Ids, test: bool = False) -> int:
    """See :meth:`TaskLoop.remove <jobboard.taskloop.TaskLoop.remove>`."""
    with TaskLoop(dbconn, table) as loop:
        return loop.remove(id_or_ids, test=test)


def get(
    dbconn: Bound,
    table: str,
    limit: int,
    lock_for: float = ONE_HOUR,
    min_loop_time: float = ONE_HOUR,
    test: bool = False,
) -> list[Any]:
    """See :meth:`TaskLoop.get <jobboard.taskloop.TaskLoop.get>`."""
    with TaskLoop(dbconn, table) as loop:
        return loop.get(limit, lock_for, min_loop_time, test)


def did(dbconn: Bound, table: str, id_or_ids: Ids, auto_add: bool = True, test: bool = False) -> int:
    """See :meth:`TaskLoop.did <jobboard.taskloop.TaskLoop.did>`."""
    with TaskLoop(dbconn, table) as loop:
        return loop.did(id_or_ids, auto_add, test)


def unlock(dbconn: Bound, table: str, id_or_ids: Ids, auto_add: bool = True, test: bool = False) -> int:
    """See :meth:`TaskLoop.unlock <jobboard.taskloop.TaskLoop.unlock>`."""
    with TaskLoop(dbconn, table) as loop:
        return loop.unlock(id_or_ids, auto_add, test)


def bump(
    dbconn: Bound, table: str, id_or_ids: Ids, lock_for: float = 0, auto_add: bool = True, test: bool = False
) -> int:
    """See :meth:`TaskLoop.bump <jobboard.taskloop.TaskLoop.bump>`."""
    with TaskLoop(dbconn, table) as loop:
        return loop.bump(id_or_ids, lock_for, auto_add, test)


def check(dbconn: Bound, table: str, id_or_ids: Ids) -> dict[Any, tuple[int | None, int | None]]:
    """See :meth:`TaskLoop.check <jobboard.taskloop.TaskLoop.check>`."""
    with TaskLoop(dbconn, table) as loop:
        return loop.check(id_or_ids)


def stats(dbconn: Bound, table: str) -> dict[str, Any]:
    """See :meth:`TaskLoop.stats <jobboard.taskloop.TaskLoop.stats>`."""
    with TaskLoop(dbconn, table) as loop:
        return loop.stats()
