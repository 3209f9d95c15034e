"""Traces and metrics for OpenTelemetry; needs the extra ``opentelemetry``, and an SDK to show them::

    instrument(board)           # where jobs are posted
    instrument(conductor)       # where they are worked on; and its board
    measure(board, conductor)   # once in a process

With :func:`instrument` each job has three spans in the trace of its poster, each the child of the one before:
``post resize``, ``claim resize`` for each claim, and ``run resize`` for the work. They have the label of the job. The
caller's own span around a claim by hand is linked. The context travels with the posting, in the formats of the global
propagator. A job without a context begins a trace with its claim.

:func:`measure` has the figures of :mod:`jobboard.contrib.prometheus`.
"""

from jobboard.exceptions import MissingDriver

try:
    from jobboard.contrib.opentelemetry.metrics import measure
    from jobboard.contrib.opentelemetry.spans import instrument
except ModuleNotFoundError as error:
    raise MissingDriver(
        f"{__name__} needs {error.name}: pip install '.[opentelemetry]' in a clone of jobboard", error
    ) from error

__all__ = ["instrument", "measure"]
