"""Conductors: they claim jobs, run their handlers, and end each claim by what became of the work::

    conductor = Conductor("resizer", board)

    @conductor.handles("resize")
    def resize(job):
        ...

    conductor.run()

The job of a handler that returns is consumed. The job of a handler that raises is abandoned, to be tried again after a
backoff, with the traceback in ``job.error``; :class:`~jobboard.outcomes.Retry` and :class:`~jobboard.outcomes.Reject`
steer.
"""

from jobboard.conductor.conductor import Conductor
from jobboard.conductor.finisher import Tally

__all__ = ["Conductor", "Tally"]
