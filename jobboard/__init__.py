"""jobboard: work that must not be lost, posted, claimed and consumed on SQL, Redis, ZooKeeper or etcd.

    board = jobboard.fetch("images", "postgresql://app@db/prod")

The names below are loaded when they are first asked for, so that importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobboard.backends import backend as backend
    from jobboard.backends import fetch as fetch
    from jobboard.board import JobBoard as JobBoard
    from jobboard.board import JobBoardIterator as JobBoardIterator
    from jobboard.ciphers import Cipher as Cipher
    from jobboard.conductor import Conductor as Conductor
    from jobboard.exceptions import ClaimLost as ClaimLost
    from jobboard.exceptions import ConnectionFailure as ConnectionFailure
    from jobboard.exceptions import JobBoardError as JobBoardError
    from jobboard.exceptions import JobFailure as JobFailure
    from jobboard.exceptions import JobFailures as JobFailures
    from jobboard.exceptions import JobTrashed as JobTrashed
    from jobboard.exceptions import MissingDriver as MissingDriver
    from jobboard.exceptions import NoKey as NoKey
    from jobboard.exceptions import NotFound as NotFound
    from jobboard.exceptions import UnclaimableJob as UnclaimableJob
    from jobboard.finding import Acted as Acted
    from jobboard.finding import ErrorGroup as ErrorGroup
    from jobboard.finding import ErrorGroups as ErrorGroups
    from jobboard.finding import NameStats as NameStats
    from jobboard.finding import Page as Page
    from jobboard.followups import Then as Then
    from jobboard.followups import unique_key as unique_key
    from jobboard.job import Act as Act
    from jobboard.job import Claim as Claim
    from jobboard.job import ClaimedJob as ClaimedJob
    from jobboard.job import Entity as Entity
    from jobboard.job import Job as Job
    from jobboard.job import Posting as Posting
    from jobboard.outcomes import Cancelled as Cancelled
    from jobboard.outcomes import Reject as Reject
    from jobboard.outcomes import Retry as Retry
    from jobboard.outcomes import RetryPolicy as RetryPolicy
    from jobboard.outcomes import cancelled as cancelled
    from jobboard.outcomes import raise_if_cancelled as raise_if_cancelled
    from jobboard.primitives import BoardStats as BoardStats
    from jobboard.primitives import Characteristics as Characteristics
    from jobboard.primitives import KeptStats as KeptStats
    from jobboard.primitives import Limit as Limit
    from jobboard.primitives import Paused as Paused
    from jobboard.priorities import JobPriority as JobPriority
    from jobboard.results import Outcome as Outcome
    from jobboard.schedules import Schedule as Schedule
    from jobboard.states import Failure as Failure
    from jobboard.states import State as State
    from jobboard.states import Verb as Verb

_HOMES = {
    "backends": ("backend", "fetch"),
    "board": ("JobBoard", "JobBoardIterator"),
    "ciphers": ("Cipher",),
    "conductor": ("Conductor",),
    "exceptions": (
        "ClaimLost",
        "ConnectionFailure",
        "JobBoardError",
        "JobFailure",
        "JobFailures",
        "JobTrashed",
        "MissingDriver",
        "NoKey",
        "NotFound",
        "UnclaimableJob",
    ),
    "finding": ("Acted", "ErrorGroup", "ErrorGroups", "NameStats", "Page"),
    "followups": ("Then", "unique_key"),
    "job": ("Act", "Claim", "ClaimedJob", "Entity", "Job", "Posting", "Progress"),
    "outcomes": ("Cancelled", "Reject", "Retry", "RetryPolicy", "cancelled", "raise_if_cancelled"),
    "priorities": ("JobPriority",),
    "primitives": ("BoardStats", "Characteristics", "KeptStats", "Limit", "Paused"),
    "results": ("Outcome",),
    "schedules": ("Schedule",),
    "states": ("Failure", "State", "Verb"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [*_HOME]  # noqa: PLE0604 - str they are


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
