"""Conductors: they claim jobs, run handlers, and end each claim by the outcome of the work::

    conductor = Conductor(None, board)

    @conductor.handles("resize")
    def resize(job):
        ...

    conductor.run()

The job of a handler that returns is consumed. The job of a handler that raises is abandoned, to be tried again after a
backoff, with the traceback in ``job.error``; :class:`~jobboard.outcomes.Retry` and :class:`~jobboard.outcomes.Reject`
steer.

Here lie the claimer, the workers (threads and processes), the finisher, timeouts, drains, signals and the scheduler.
:mod:`jobboard.outcomes` has the rules for the end of a claim, which ``board.working()`` shares. Coroutines as handlers
are in :mod:`jobboard.aio`, the command ``jobboard work`` in :mod:`jobboard.cli.work`.
"""

from jobboard.conductor.conductor import Conductor
from jobboard.conductor.finisher import Tally

__all__ = ["Conductor", "Tally"]
