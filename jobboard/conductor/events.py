"""The events of a conductor's jobs, for listeners of ``conductor.notifier``.

``details`` holds the ``job``; with ``job_finished`` and ``job_failed`` also the ``seconds`` that the handler has run,
and its ``error`` (None if it returned). Each ``job_claimed`` is followed by ``job_started``, that by ``job_finished``,
and one of ``job_consumed``, ``job_abandoned``, ``job_trashed`` and ``job_lost`` comes last: what became of the claim.
Beside ``job_finished`` comes ``job_failed`` if the handler failed: it raised something other than Retry and Reject
while the claim stood (as far as was known), took too long, or took its process down with it. A job that is given back
as the conductor ends goes without what had not happened by then.
"""

JOB_CLAIMED = "job_claimed"
JOB_STARTED = "job_started"
JOB_FINISHED = "job_finished"
JOB_FAILED = "job_failed"
JOB_CONSUMED = "job_consumed"
JOB_ABANDONED = "job_abandoned"
JOB_TRASHED = "job_trashed"
JOB_LOST = "job_lost"

EVENTS = frozenset(
    {JOB_CLAIMED, JOB_STARTED, JOB_FINISHED, JOB_FAILED, JOB_CONSUMED, JOB_ABANDONED, JOB_TRASHED, JOB_LOST}
)
