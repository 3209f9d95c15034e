"""What a log record about a job tells to machines, beside its text to people."""

from __future__ import annotations

from jobboard.job import Job

Fields = dict[str, str | int | None]

NAMES = ("job", "job_name", "who", "token")
"""What :func:`fields` gives."""


def fields(job: Job) -> Fields:
    """``extra=`` of a log record about ``job``, as last seen. Never its details, which hold private data."""
    holder = job._record if job.claim is None else job.claim
    return of_claim(job.uuid, holder.token, job.name, holder.who)


def of_claim(uuid: str, token: int, job_name: str | None = None, who: str | None = None) -> Fields:
    """The same of a job of which no more is known than this.

    ``job_name``, since a :class:`logging.LogRecord` has a ``name`` already, the logger's.
    """
    return {"job": uuid, "job_name": job_name, "who": who, "token": token}
