"""doloop's functions: the methods of :class:`~jobboard.taskloop.TaskLoop`, on a table named in the call.

Each takes ``dbconn`` and ``table`` first: the arguments of a TaskLoop. A Connection suits best, as with an Engine each
call opens one.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeAlias, TypeVar, cast

from sqlalchemy.engine import Connection, Engine

from jobboard.taskloop.loop import Ids, TaskLoop

P = ParamSpec("P")
T = TypeVar("T")
Bound: TypeAlias = Engine | Connection | Callable[[], Connection]


def _function(method: Callable[Concatenate[TaskLoop, P], T]) -> Callable[Concatenate[Bound, str, P], T]:
    """Return the function for a method of a task loop."""

    @functools.wraps(method)
    def function(dbconn: Bound, table: str, *args: P.args, **kwargs: P.kwargs) -> T:
        with TaskLoop(dbconn, table) as loop:
            return method(loop, *args, **kwargs)

    own = (
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=kind)
        for name, kind in (("dbconn", "Bound"), ("table", "str"))
    )
    signature = inspect.signature(method)
    _, *others = signature.parameters.values()
    vars(function)["__signature__"] = signature.replace(parameters=[*own, *others])
    return cast("Callable[Concatenate[Bound, str, P], T]", function)


create = _function(TaskLoop.create)
add = _function(TaskLoop.add)
get = _function(TaskLoop.get)
did = _function(TaskLoop.did)
unlock = _function(TaskLoop.unlock)
bump = _function(TaskLoop.bump)
check = _function(TaskLoop.check)
stats = _function(TaskLoop.stats)


def remove(dbconn: Bound, table: str, id_or_ids: Ids, test: bool = False) -> int:
    """Remove ids from the loop, and return the number of ids that were in the loop.

    As in doloop, the function has no ``updated``: only :meth:`TaskLoop.remove <jobboard.taskloop.TaskLoop.remove>` has.
    """
    with TaskLoop(dbconn, table) as loop:
        return loop.remove(id_or_ids, test=test)
