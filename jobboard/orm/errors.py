"""What can be wrong with a job of a status tracker's."""

from jobboard.exceptions import ClaimLost, JobFailure, NotFound, UnclaimableJob


class JobExecutionError(JobFailure):
    """The job could not be started, or not be finished."""


class JobLockedError(JobExecutionError, UnclaimableJob):
    """Somebody else is working on the job."""


class JobIsNotReadyToStartError(JobExecutionError, UnclaimableJob):
    """The job's status is none from which it may be started."""


class JobAlreadySucceededError(JobIsNotReadyToStartError):
    """The job is done."""


class JobIgnoredError(JobIsNotReadyToStartError):
    """The job has failed too often."""


class JobLostError(JobExecutionError, ClaimLost):
    """The lock has expired and another has taken it; nothing was written."""


class JobNotFoundError(NotFound, ValueError):
    """There is no such job."""
