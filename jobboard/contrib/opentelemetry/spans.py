"""The spans of jobs: see :func:`instrument`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from opentelemetry import context, propagate, trace
from opentelemetry.trace import Link, SpanKind, StatusCode, TracerProvider

from jobboard import codec, runtime
from jobboard.board import JobBoard
from jobboard.conductor import Conductor
from jobboard.contrib.figures import twin_of
from jobboard.job import Job, Posting
from jobboard.outcomes import Retry
from jobboard.tracing import Tracing

if TYPE_CHECKING:
    from jobboard.aio import AsyncConductor

SCOPE = "jobboard.contrib.opentelemetry"

MAX_HEADER = codec.MAX_CONTEXT // 4
"""The largest header, in characters. Only baggage can be longer: it does not travel then, and the job is posted."""


def instrument(traced: JobBoard | Conductor | AsyncConductor, tracer_provider: TracerProvider | None = None) -> None:
    """Trace a board, or a conductor and its board. ``board.sync`` stands for a board for asyncio.

    :param tracer_provider: the global provider if None. No other reaches the processes of a conductor.
    """
    conductor = twin_of(traced)
    board = conductor.board if conductor is not None else traced
    if not isinstance(board, JobBoard):
        raise TypeError(f"instrument() takes a board or a conductor, not {type(traced).__name__}")
    board.tracing = tracing = _Spans(board.name, board.options["keep_done"], tracer_provider)
    if conductor is not None:
        conductor.wraps(tracing.run)


class _Spans(Tracing):
    """The tracing of a board.

    :param keep_done: the seconds for which the board keeps outcomes.
    """

    def __init__(self, board: str, keep_done: float, tracer_provider: TracerProvider | None) -> None:
        self._made_of = (board, keep_done, tracer_provider)
        self._board = board
        self._keep_done = keep_done
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)

    def __reduce__(self) -> Any:
        # A tracer may hold locks and connections: another process makes its own tracer.
        return type(self), self._made_of

    def post(self, postings: Sequence[Posting], insert: Callable[[Sequence[Posting]], list[Job]]) -> list[Job]:
        names = {(posting.context or {}).get("label") or posting.name for posting in postings}
        name = names.pop() if len(names) == 1 else "jobs"
        attributes = self._attributes("post", "send") | {"messaging.batch.message_count": len(postings)}
        groups = {posting.group for posting in postings}
        if len(groups) == 1 and None not in groups:
            attributes["jobboard.group"] = str(*groups)
        with self._tracer.start_as_current_span(f"post {name}", kind=SpanKind.PRODUCER, attributes=attributes) as span:
            headers = _headers()
            jobs = insert([each._replace(context={**headers, **(each.context or {})}) for each in postings])
            if len(jobs) == 1:
                span.set_attribute("messaging.message.id", jobs[0].uuid)
            return jobs

    def claimed(self, job: Job, since: float) -> None:
        span, poster = self._claim(job, since)
        span.end()
        job.context = {**job.context, **_headers(trace.set_span_in_context(span, poster))}

    def refused(self, job: Job, why: str, since: float) -> None:
        span, _ = self._claim(job, since)
        span.set_attribute("error.type", why)
        span.set_status(StatusCode.ERROR, why)
        span.end()

    def _claim(self, job: Job, since: float) -> tuple[trace.Span, context.Context]:
        asking = trace.get_current_span().get_span_context()
        poster = propagate.extract(job.context)
        span = self._tracer.start_span(
            f"claim {job.label}",
            poster,
            SpanKind.CLIENT,
            self._attributes("claim", "receive", job),
            [Link(asking)] if asking.is_valid else None,
            start_time=time.time_ns() - round((runtime.boottime() - since) * 1e9),
        )
        return span, poster

    @contextlib.contextmanager
    def run(self, job: Job) -> Iterator[None]:
        poster = propagate.extract(job.context)
        attributes = self._attributes("run", "process", job) | self._kept()
        span = self._tracer.start_span(f"run {job.label}", poster, SpanKind.CONSUMER, attributes)
        token = context.attach(trace.set_span_in_context(span, poster))
        try:
            yield
        except Retry as again:
            span.add_event("retry", {"message": str(again)})
            raise
        except BaseException as error:
            # SystemExit fails the job like any other error.
            span.record_exception(error)
            span.set_status(StatusCode.ERROR, f"{type(error).__name__}: {error}")
            raise
        finally:
            # Not context.detach(), which logs an error where another task leaves the block: that has its own context.
            with contextlib.suppress(ValueError):
                token.var.reset(token)
            span.end()

    def _kept(self) -> dict[str, str | int | float]:
        return {"jobboard.keep_done": self._keep_done} if self._keep_done else {}

    def _attributes(self, verb: str, kind: str, job: Job | None = None) -> dict[str, str | int | float]:
        """Return the attributes of a span, by the conventions for messaging where there is one."""
        attributes: dict[str, str | int | float] = {
            "messaging.system": "jobboard",
            "messaging.destination.name": self._board,
            "messaging.operation.name": verb,
            "messaging.operation.type": kind,
        }
        if job is not None:
            attributes |= {"messaging.message.id": job.uuid, "jobboard.attempt": job.attempts}
            if job.group is not None:
                attributes["jobboard.group"] = job.group
            if job.schedule is not None:
                schedule, due = job.schedule
                attributes |= {"jobboard.schedule": schedule, "jobboard.schedule.due": due.isoformat()}
        if job is not None and job.claim is not None:
            attributes |= {"jobboard.who": job.claim.who, "jobboard.token": job.claim.token}
        return attributes


def _headers(of: context.Context | None = None) -> dict[str, str]:
    """Return the headers that the global propagator adds for a context; None: for the current span."""
    headers: dict[str, str] = {}
    propagate.inject(headers, of)
    return {name: value for name, value in headers.items() if len(value) <= MAX_HEADER}
