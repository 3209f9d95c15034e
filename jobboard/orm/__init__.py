"""Claiming for rows of one's own SQLAlchemy models.

:class:`Claimable` makes rows claimable, :class:`StatusTracker` tracks each through pending, in progress, failed,
succeeded and ignored. Both work on sessions and engines, sync and async.
"""

from jobboard.orm.acquiring import Batch
from jobboard.orm.claimable import Claimable
from jobboard.orm.errors import (
    JobAlreadySucceededError,
    JobExecutionError,
    JobIgnoredError,
    JobIsNotReadyToStartError,
    JobLockedError,
    JobLostError,
    JobNotFoundError,
)
from jobboard.orm.holding import Acquisition, Moment
from jobboard.orm.tracker import StatusTracker, Updates
from jobboard.orm.verbs import Reacquired
from jobboard.sql.expressions import Exact

__all__ = [
    "Acquisition",
    "Batch",
    "Claimable",
    "Exact",
    "JobAlreadySucceededError",
    "JobExecutionError",
    "JobIgnoredError",
    "JobIsNotReadyToStartError",
    "JobLockedError",
    "JobLostError",
    "JobNotFoundError",
    "Moment",
    "Reacquired",
    "StatusTracker",
    "Updates",
]
