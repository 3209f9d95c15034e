"""Errors of tracked jobs."""

from jobboard.exceptions import ClaimLost, JobFailure, NotFound, UnclaimableJob


class JobExecutionError(JobFailure):
    """The job could not be started or finished."""


class JobLockedError(JobExecutionError, UnclaimableJob):
    """Another worker has locked the job."""


class JobIsNotReadyToStartError(JobExecutionError, UnclaimableJob):
    """The job can't start from its status."""


class JobAlreadySucceededError(JobIsNotReadyToStartError):
    """The job has succeeded."""


class JobIgnoredError(JobIsNotReadyToStartError):
    """The job has failed too often."""


class JobLostError(JobExecutionError, ClaimLost):
    """The lock expired and another worker took it. Nothing was written."""


class JobNotFoundError(NotFound, ValueError):
    """The job does not exist."""
