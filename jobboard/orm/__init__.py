"""Claims on rows of the user's SQLAlchemy models.

:class:`Claimable` makes rows claimable. :class:`StatusTracker` takes each row through the statuses of a job: pending,
in progress, failed, succeeded and ignored. Both work on sessions and engines, sync and async.

``claimable`` and ``tracker`` have the two mixins, ``claims`` the verbs of the first, ``sessions`` the transactions and
``rows`` the fence. The leases themselves lie in ``jobboard.sql.lease``, and the models of Django in
``jobboard.contrib.django``.
"""

from jobboard.orm.claimable import Claimable
from jobboard.orm.claims import Acquisition, Batch, Moment, Reacquired
from jobboard.orm.errors import (
    JobAlreadySucceededError,
    JobExecutionError,
    JobIgnoredError,
    JobIsNotReadyToStartError,
    JobLockedError,
    JobLostError,
    JobNotFoundError,
)
from jobboard.orm.tracker import StatusTracker, Updates
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
