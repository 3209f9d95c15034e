"""Traces for OpenTelemetry, recorded by its SDK."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import jobboard
from jobboard import Conductor, Posting, Reject, Retry, UnclaimableJob
from jobboard.aio import AsyncJobBoard
from jobboard.backends.memory import ManualClock
from jobboard.contrib.opentelemetry import instrument
from jobboard.testing import eventually
from tests.contrib import traced

MakeBoard = Callable[..., Any]

pytestmark = pytest.mark.backends("sqlite")


class Spans:
    """An SDK and its finished spans."""

    def __init__(self) -> None:
        self.provider = TracerProvider()
        self._exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("test")

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        [span] = self.named(name)
        return span

    @property
    def names(self) -> list[str]:
        return sorted(span.name for span in self._exporter.get_finished_spans())


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
def board(make_board: MakeBoard, spans: Spans) -> Any:
    board = make_board()
    instrument(board, spans.provider)
    return board


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    return span.context.trace_id == parent.context.trace_id and span.parent.span_id == parent.context.span_id


def conduct(conf: dict[str, Any], sender: Any) -> None:
    """Run a conductor in another process, and send its spans."""
    spans = Spans()
    trace.set_tracer_provider(spans.provider)

    def resize(job: jobboard.Job) -> None:
        with trace.get_tracer("handler").start_as_current_span("pixels"):
            job.board.post("tell")

    with jobboard.backend("board", conf) as board:
        conductor = Conductor("worker", board, {"resize": resize})
        instrument(conductor)
        conductor.run(max_dispatches=1)
    found = [spans.one(name) for name in ("claim resize", "run resize", "pixels", "post tell")]
    sender.send([(span.context, span.parent, span.kind, dict(span.attributes)) for span in found])


@pytest.mark.rule("A trace goes from one process to another.")
def test_a_trace_goes_from_one_process_to_another(board: Any, board_conf: dict[str, Any], spans: Spans) -> None:
    with spans.tracer.start_as_current_span("request"):
        job = board.post("resize")
    posted = spans.one("post resize")
    assert posted.kind == SpanKind.PRODUCER
    assert is_child(posted, spans.one("request"))
    receiver, sender = multiprocessing.Pipe(duplex=False)
    worker = multiprocessing.get_context("spawn").Process(target=conduct, args=(board_conf, sender))
    worker.start()
    assert receiver.poll(60)
    found = receiver.recv()
    worker.join()
    assert {each.trace_id for each, *_ in found} == {posted.context.trace_id}
    ids = [posted.context.span_id, *(each.span_id for each, *_ in found)]
    assert [parent.span_id for _, parent, *_ in found] == ids[:-1], "each is the child of the one before"
    (claim, run, *_) = found
    assert (claim[2], run[2]) == (SpanKind.CLIENT, SpanKind.CONSUMER)
    token = run[3].pop("jobboard.token")
    assert token > 0
    assert run[3] == {
        "messaging.system": "jobboard",
        "messaging.destination.name": "board",
        "messaging.operation.name": "run",
        "messaging.operation.type": "process",
        "messaging.message.id": job.uuid,
        "jobboard.attempt": 1,
        "jobboard.who": "worker",
    }


def test_a_handler_in_a_process_continues_the_trace(
    board: Any, spans: Spans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler's module sets up an SDK. The parent of its span comes from the conductor's process."""
    monkeypatch.setenv("SPANS", str(tmp_path / "spans"))
    board.post("resize")
    conductor = Conductor("worker", board, {"resize": traced.resize}, workers="processes")
    instrument(conductor)
    instrument(board, spans.provider)
    conductor.run(max_dispatches=1)
    [run] = [json.loads(line) for line in (tmp_path / "spans").read_text().splitlines()]
    claim = spans.one("claim resize")
    assert run["name"] == "run resize"
    assert run["parent_id"] == f"0x{claim.context.span_id:016x}"
    assert run["context"]["trace_id"] == f"0x{spans.one('post resize').context.trace_id:032x}"
    assert run["status"] == {"status_code": "ERROR", "description": "ValueError: no picture"}


def test_only_boards_and_conductors_are_traced() -> None:
    with pytest.raises(TypeError, match="a board or a conductor, not str"):
        instrument("sqlite:///jobs.db")  # type: ignore[arg-type]


def test_failures_are_errors_of_their_runs(board: Any, spans: Spans, monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that asks for another try has not failed."""
    raised = iter([Retry("not now", delay=0), ValueError("no picture"), SystemExit(3), Reject("never")])

    def resize(job: jobboard.Job) -> None:
        raise next(raised)

    conductor = Conductor("worker", board, {"resize": resize}, retry=jobboard.RetryPolicy(base=1e-6))
    instrument(conductor, spans.provider)
    board.post("resize")
    conductor.run(max_dispatches=4)
    assert spans.names == ["claim resize"] * 4 + ["post resize"] + ["run resize"] * 4
    runs, claims = spans.named("run resize"), spans.named("claim resize")
    assert all(is_child(claim, spans.one("post resize")) for claim in claims)
    assert all(is_child(run, claim) for run, claim in zip(runs, claims, strict=True))
    assert [run.attributes["jobboard.attempt"] for run in runs] == [1, 1, 2, 3]
    codes = [(run.status.status_code, run.status.description) for run in runs]
    assert codes == [
        (StatusCode.UNSET, None),
        (StatusCode.ERROR, "ValueError: no picture"),
        (StatusCode.ERROR, "SystemExit: 3"),
        (StatusCode.ERROR, "Reject: never"),
    ]
    events = [[event.name for event in run.events] for run in runs]
    assert events == [["retry"], ["exception"], ["exception"], ["exception"]]
    assert "no picture" in runs[1].events[0].attributes["exception.stacktrace"]


def test_work_that_another_task_ends_is_traced_without_an_error(
    board: Any, spans: Spans, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        block = AsyncJobBoard(board).working("ben")
        await asyncio.create_task(block.__aenter__())
        await asyncio.create_task(block.__aexit__(None, None, None))

    board.post("resize")
    asyncio.run(main())
    assert spans.one("run resize").status.status_code == StatusCode.UNSET
    assert caplog.records == []


@pytest.mark.rule("A job is shown by the label of its context, else by its name.")
def test_spans_are_named_by_labels(board: Any, spans: Spans) -> None:
    board.post("default", context={"label": "resize"})
    with board.working("ben"):
        pass
    assert spans.names == ["claim resize", "post resize", "run resize"]


def test_a_batch_has_one_span_of_its_post(board: Any, spans: Spans) -> None:
    jobs = board.post_many([Posting("resize", context={"user": "anna"}), Posting("crop")])
    posted = spans.one("post jobs")
    assert posted.attributes["messaging.batch.message_count"] == 2
    claimed = board.claim_many("ben", 2)
    assert claimed == jobs
    assert is_child(spans.one("claim resize"), posted)
    assert is_child(spans.one("claim crop"), posted)
    assert claimed[0].context["user"] == "anna"


def test_a_job_without_a_trace_begins_one(make_board: MakeBoard, board: Any, spans: Spans) -> None:
    """The span in which the job is claimed by hand is linked."""
    make_board().post("resize")
    with spans.tracer.start_as_current_span("by hand") as mine:
        board.claim_next("ben")
    claim = spans.one("claim resize")
    assert claim.parent is None
    assert claim.context.trace_id != mine.get_span_context().trace_id
    assert [link.context.span_id for link in claim.links] == [mine.get_span_context().span_id]


@pytest.mark.rule("A trace goes from one process to another.")
def test_a_claim_begins_with_the_request_that_got_the_job(board: Any, spans: Spans) -> None:
    """The wait for the job, which may have lasted for hours, is no part of the span."""
    asked: list[int] = []

    def unless() -> bool:
        asked.append(time.time_ns())
        return False

    waiter = threading.Thread(target=board.claim_next, args=("ben",), kwargs={"timeout": 30, "unless": unless})
    waiter.start()
    eventually(lambda: len(asked) >= 2)  # before a look, and after it has found nothing
    board.post("resize")
    waiter.join()
    claim = spans.one("claim resize")
    assert asked[1] < claim.start_time < claim.end_time < time.time_ns()


def test_baggage_travels_unless_there_is_too_much_of_it(board: Any) -> None:
    seen = []
    for size in (10, 3000):
        token = context.attach(baggage.set_baggage("more", "y" * size, baggage.set_baggage("user", "x" * size)))
        board.post("resize")
        context.detach(token)
        with board.working("ben"):
            seen.append(baggage.get_baggage("user"))
    assert seen == ["x" * 10, None]
    assert baggage.get_baggage("user") is None


@pytest.mark.backends("memory")
def test_spans_tell_of_groups_schedules_and_outcomes(make_board: MakeBoard, spans: Spans) -> None:
    clock = ManualClock()
    board = make_board(clock=clock, keep_done=60)
    instrument(board, spans.provider)
    due = board.schedule("nightly", every=60, name="report", group="anna").next_due
    clock.advance(61)
    board.post_due()
    with board.working("ben"):
        pass
    board.post("resize", group="carl")
    board.post_many([Posting("crop", group="carl"), Posting("crop", group="dora")])
    for name in ("claim report", "run report"):
        attributes = spans.one(name).attributes
        told = [attributes[f"jobboard.{each}"] for each in ("group", "schedule", "schedule.due")]
        assert told == ["anna", "nightly", due.isoformat()]
    assert spans.one("run report").attributes["jobboard.keep_done"] == 60
    assert spans.one("post resize").attributes["jobboard.group"] == "carl"
    assert "jobboard.group" not in spans.one("post crop").attributes


@pytest.mark.rule("A refused claim says why in its span.")
@pytest.mark.backends("memory")
def test_a_refused_claim_says_why(make_board: MakeBoard, spans: Spans) -> None:
    board = make_board()
    instrument(board, spans.provider)
    board.set_limit("resize", concurrency=1)
    first, second = board.post("resize"), board.post("resize")
    board.claim(first, "ben")
    for job in (first, second):
        with pytest.raises(UnclaimableJob):
            board.claim(job, "anna")
    _, *refused = spans.named("claim resize")
    assert [span.attributes["messaging.message.id"] for span in refused] == [first.uuid, second.uuid]
    assert [span.attributes["error.type"] for span in refused] == ["claimed", "limited"]
    assert {span.status.status_code for span in refused} == {StatusCode.ERROR}
    assert is_child(refused[1], spans.named("post resize")[1])


def test_tracing_needs_no_sdk(make_board: MakeBoard) -> None:
    """A process without an SDK hands on the context of a job."""
    board = make_board()
    instrument(board)
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert board.post("resize", context={"traceparent": parent}).context == {"traceparent": parent}
    with board.working("ben") as job:
        assert job.context == {"traceparent": parent}
        assert f"{trace.get_current_span().get_span_context().span_id:x}" == parent.split("-")[2]
