"""jobboard: work that must not be lost, posted, claimed and consumed on SQL, Redis, ZooKeeper or etcd.

    board = jobboard.fetch("images", "postgresql://app@db/prod")

The names below are loaded when they are first asked for, so that importing the package costs next to nothing.
"""

from __future__ import annotations

import contextlib
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobboard.backends import backend, fetch
    from jobboard.board import JobBoard
    from jobboard.conductor import Conductor
    from jobboard.exceptions import (
        ClaimLost,
        ConnectionFailure,
        JobBoardError,
        JobFailure,
        JobFailures,
        JobTrashed,
        MissingDriver,
        NotFound,
        UnclaimableJob,
    )
    from jobboard.iterator import JobBoardIterator
    from jobboard.job import Act, Claim, ClaimedJob, Entity, Job, Posting
    from jobboard.outcomes import Reject, Retry, RetryPolicy, cancelled
    from jobboard.primitives import BoardStats, Characteristics, KeptStats, Limit, Paused
    from jobboard.priorities import JobPriority
    from jobboard.results import Outcome
    from jobboard.schedules import Schedule
    from jobboard.states import Failure, State, Verb

# redis-py imports this, and Python refuses to load it in a thread once the main thread has ended.
with contextlib.suppress(RuntimeError):
    importlib.import_module("concurrent.futures.thread")

_HOMES = {
    "backends": ("backend", "fetch"),
    "board": ("JobBoard",),
    "conductor": ("Conductor",),
    "exceptions": (
        "ClaimLost",
        "ConnectionFailure",
        "JobBoardError",
        "JobFailure",
        "JobFailures",
        "JobTrashed",
        "MissingDriver",
        "NotFound",
        "UnclaimableJob",
    ),
    "iterator": ("JobBoardIterator",),
    "job": ("Act", "Claim", "ClaimedJob", "Entity", "Job", "Posting"),
    "outcomes": ("Reject", "Retry", "RetryPolicy", "cancelled"),
    "priorities": ("JobPriority",),
    "primitives": ("BoardStats", "Characteristics", "KeptStats", "Limit", "Paused"),
    "results": ("Outcome",),
    "schedules": ("Schedule",),
    "states": ("Failure", "State", "Verb"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Act",
    "BoardStats",
    "Characteristics",
    "Claim",
    "ClaimLost",
    "ClaimedJob",
    "Conductor",
    "ConnectionFailure",
    "Entity",
    "Failure",
    "Job",
    "JobBoard",
    "JobBoardError",
    "JobBoardIterator",
    "JobFailure",
    "JobFailures",
    "JobPriority",
    "JobTrashed",
    "KeptStats",
    "Limit",
    "MissingDriver",
    "NotFound",
    "Outcome",
    "Paused",
    "Posting",
    "Reject",
    "Retry",
    "RetryPolicy",
    "Schedule",
    "State",
    "UnclaimableJob",
    "Verb",
    "backend",
    "cancelled",
    "fetch",
]


# Hidden from type checkers, which would take any name for one of the package.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"jobboard.{_HOME[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
