"""Task loops: recurring work over ids that the user already has, by doloop's verbs, on each SQL database.

``loop`` has the verbs, as methods and as functions, ``statements`` and ``tables`` the SQL, and ``worker`` the
conductor of a loop. Connections and transactions lie in ``jobboard.sql``, and so do the leases. No board is involved.

::

    from jobboard.taskloop import TaskLoop

    loop = TaskLoop(engine, "foo_loop")
    loop.create()
    loop.add(range(1000))
    ids = loop.get(100)
    ...
    loop.did(ids)

Each verb is also a function, ``get(connection, "foo_loop", 100)``, so that a program goes over by ``import
jobboard.taskloop as doloop``.
"""

from jobboard.taskloop.loop import (
    ONE_DAY,
    ONE_HOUR,
    ONE_WEEK,
    Held,
    IdsLost,
    TaskLoop,
    add,
    bump,
    check,
    create,
    did,
    get,
    remove,
    stats,
    unlock,
)
from jobboard.taskloop.tables import DEFAULT_ID_TYPE, DEFAULT_STORAGE_ENGINE, sql_for_create
from jobboard.taskloop.worker import LoopConductor, LoopTally

DoLoop = TaskLoop
"""doloop's name of a TaskLoop."""

__all__ = [
    "DEFAULT_ID_TYPE",
    "DEFAULT_STORAGE_ENGINE",
    "ONE_DAY",
    "ONE_HOUR",
    "ONE_WEEK",
    "DoLoop",
    "Held",
    "IdsLost",
    "LoopConductor",
    "LoopTally",
    "TaskLoop",
    "add",
    "bump",
    "check",
    "create",
    "did",
    "get",
    "remove",
    "sql_for_create",
    "stats",
    "unlock",
]
