"""Claims jobs, runs their handlers, and ends each claim by what became of the work::

    conductor = Conductor("resizer", board)

    @conductor.handles("resize")
    def resize(job):
        ...

    conductor.run()

A handler that returns has its job consumed. One that raises has it abandoned, to be tried again after a backoff, with
the traceback in ``job.error``; :class:`~jobboard.outcomes.Retry` and :class:`~jobboard.outcomes.Reject` steer.
"""

from jobboard.conductor.conductor import Conductor
from jobboard.conductor.finishing import Tally

__all__ = ["Conductor", "Tally"]
