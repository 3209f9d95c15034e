"""Handlers of conductors: their errors, retries, results, contexts and wrappers, and the events of their jobs."""

import asyncio
import contextlib
import contextvars
import functools
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

import jobboard
from jobboard.aio import AsyncConductor, AsyncJobBoard
from jobboard.conductor import Conductor
from jobboard.conductor.events import EVENTS
from jobboard.outcomes import RetryPolicy
from jobboard.testing import eventually
from tests.conftest import Runner
from tests.support import handlers
from tests.support.conductors import LATE, MakeBoard, errors_of, fail, listen, run_async
from tests.support.handlers import TENANT

pytestmark = pytest.mark.backends("memory")

# Failures


@pytest.mark.backends("memory", "sqlite")
@pytest.mark.usefixtures("soon")
def test_failure_is_tried_again_with_its_traceback_kept(make_board: MakeBoard, start: Runner) -> None:
    board = make_board()
    board.post("a", max_attempts=3)
    errors: list[str | None] = []

    def handler(job: jobboard.Job) -> None:
        errors.append(job.error)
        raise ValueError(f"wrong {job.attempts}")

    conductor = start(Conductor("one", board, handler))
    eventually(lambda: conductor.tally.trashed == 1)
    [job] = board.trashed()
    assert (job.attempts, conductor.tally.abandoned) == (3, 2)
    assert [error and error.rstrip().splitlines()[-1] for error in errors] == [
        None,
        "ValueError: wrong 1",
        "ValueError: wrong 2",
    ]
    assert "Traceback" in job.error
    assert job.error.endswith("ValueError: wrong 3\n")


def test_traceback_begins_with_the_handler(make_board: MakeBoard) -> None:
    """Within wrappers, too. An error of the library about a handler has the frames of the library."""
    board = make_board()
    conductor = Conductor("one", board, {"broken": lambda job: fail(ValueError("broken"))})
    conductor.wraps(lambda job: contextlib.nullcontext())
    conductor.handles("generator")(lambda job: (each for each in ()))
    board.post_many([{"name": "broken", "max_attempts": 1}, {"name": "generator", "max_attempts": 1}])
    conductor.run(2)
    first = {job.name: job.error.splitlines()[:2] for job in board.trashed()}
    assert [lines[0] for lines in first.values()] == ["Traceback (most recent call last):"] * 2
    assert Path(__file__).name in first["broken"][1]
    assert "jobboard" in first["generator"][1]


@pytest.mark.rule("A delay that is none is a failure of the work.")
def test_handler_that_asks_for_the_impossible_has_failed_and_harms_no_other(make_board: MakeBoard) -> None:
    board = make_board()
    mistakes = {
        "delay": lambda job: fail(jobboard.Retry(delay=-1)),
        "reason": lambda job: fail(jobboard.Reject(7)),  # type: ignore[arg-type]
        "exit": lambda job: fail(SystemExit(2)),
    }
    wrong = [board.post(name) for name in mistakes]
    board.post_many([{"name": "good"}] * 5)
    conductor = Conductor("one", board, {**mistakes, "good": lambda job: None}, retry=LATE)
    conductor.run(8)
    assert (conductor.tally.abandoned, conductor.tally.consumed) == (3, 5)
    for job in wrong:
        assert job.state == "SCHEDULED"
        assert "Traceback" in job.error


class Resizer:
    def __init__(self, job: jobboard.Job) -> None: ...


@pytest.mark.rule("A handler that returns a coroutine or generator has done nothing, and its job is not consumed.")
def test_handler_that_only_promises_its_work_is_rejected(make_board: MakeBoard) -> None:
    async def coroutine(job: jobboard.Job) -> None: ...

    def generator(job: jobboard.Job) -> Iterator[None]:
        yield

    board = make_board()
    for handler in (coroutine, generator):
        with pytest.raises(TypeError, match="plain function"):
            Conductor("one", board, {"a": handler})
    with pytest.raises(TypeError, match="instance that has __call__"):
        Conductor("one", board).handles("a")(Resizer)
    job = board.post("a")
    conductor = Conductor("one", board, functools.partial(lambda work, job: work(job), coroutine), retry=LATE)
    conductor.run(1)
    assert (job.state, conductor.tally.abandoned) == ("SCHEDULED", 1)
    assert "returned a coroutine" in job.error


# Retry policies


def test_retry_policy_rejects_wrong_values() -> None:
    for wrong in ({"base": 0}, {"cap": -1}, {"max_attempts": 0}, {"max_retries": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            RetryPolicy(**wrong)
    with pytest.raises(ValueError, match=r"^base=700: must be at most cap=600, the longest delay$"):
        RetryPolicy(base=700)


def test_handlers_have_retry_policies_of_their_own(make_board: MakeBoard) -> None:
    board = make_board()
    jobs = {name: board.post(name) for name in ("usual", "own", "later")}
    conductor = Conductor("one", board, retry=RetryPolicy(base=100))
    conductor.handles("usual")(lambda job: 1 / 0)
    conductor.handles("own", "later", retry=RetryPolicy(base=700, cap=700))(
        lambda job: fail(jobboard.Retry()) if job.name == "later" else 1 / 0
    )
    conductor.run(3)
    for name, (least, most) in {"usual": (50, 100), "own": (350, 700), "later": (350, 700)}.items():
        job = board.get(jobs[name].uuid)
        assert least <= (job.due - job.last_modified).total_seconds() <= most


@pytest.mark.rule("A policy that raises is not asked again, and its error counts as a failure.")
@pytest.mark.parametrize("timeout", [None, 0.1])
def test_policy_that_raises_delays_the_job_as_usual(
    make_board: MakeBoard, monkeypatch: pytest.MonkeyPatch, timeout: float | None
) -> None:
    monkeypatch.setattr("jobboard.outcomes.USUAL", LATE)

    class Own(RetryPolicy):
        def delay(self, times: int) -> float:
            raise KeyError("no such delay")

    board = make_board()
    jobs = board.post_many([{"name": "bad"}] * 3)
    conductor = Conductor("one", board, max_simultaneous_jobs=2)

    @conductor.handles("good")
    def good() -> None: ...

    @conductor.handles("bad", retry=Own(), timeout=timeout)
    def bad(job: jobboard.Job) -> None:
        if timeout is not None:
            eventually(jobboard.cancelled)
        raise ValueError("broken")

    good.post()
    conductor.run(4)
    assert (conductor.tally.abandoned, conductor.tally.consumed) == (3, 1)
    for job in jobs:
        assert "no such delay" in board.get(job.uuid).error


def test_policy_that_cannot_count_attempts_leaves_no_claim(make_board: MakeBoard) -> None:
    """The board goes on without the conductor, and would renew the claim."""

    class Own(RetryPolicy):
        def attempts_of(self, job: jobboard.Job) -> int | None:
            raise KeyError("no such count")

    board = make_board()
    job = board.post("a")
    [error] = errors_of(Conductor("one", board, lambda job: None, retry=Own()).run)
    assert "no such count" in str(error)
    job = board.get(job.uuid)
    assert (job.seen_state, job.attempts) == ("UNCLAIMED", 0)


# Events


def release_elsewhere(job: jobboard.Job) -> None:
    """Release the job by another handle, so that its holder is told only at its end."""
    with jobboard.backend(job.board.name, "memory") as other:
        other.release(other.get(job.uuid))


def stop_as_the_claim_is_lost(job: jobboard.Job) -> None:
    job.board.release(job)
    with contextlib.suppress(jobboard.ClaimLost):
        job.claim.extend()
    assert not jobboard.cancelled(), "stopped"


@pytest.mark.rule("Work that no listener hears of is reported as lost if its claim is lost.")
@pytest.mark.parametrize(
    ("handler", "told"),
    [
        (lambda job: None, "claimed started finished consumed"),
        (lambda job: fail(ValueError("broken")), "claimed started finished failed abandoned"),
        (lambda job: fail(jobboard.Retry("later")), "claimed started finished abandoned"),
        (lambda job: fail(jobboard.Reject("never")), "claimed started finished trashed"),
        (lambda job: job.board.release(job), "claimed started finished lost"),
        (lambda job: [release_elsewhere(job), fail(ValueError("too late"))], "claimed started finished failed lost"),
        (stop_as_the_claim_is_lost, "claimed started finished lost"),
    ],
    ids=["done", "failed", "retry", "reject", "lost", "failed and lost", "stopped"],
)
def test_events_of_a_job_come_in_order(
    make_board: MakeBoard, handler: Callable[[Any], object], told: str, request: pytest.FixtureRequest
) -> None:
    board = make_board()
    job = board.post("a")
    conductor = Conductor("one", board, handler)
    heard = listen(conductor)
    conductor.run(1)
    assert [event for event, _ in heard] == [f"job_{word}" for word in told.split()]
    assert {event for event, _ in heard} <= EVENTS
    assert all(details["job"] == job for _, details in heard)
    finished = dict(heard)["job_finished"]
    assert finished["seconds"] >= 0
    assert (finished["error"] is None) == (request.node.callspec.id.split("-")[-1] in ("done", "lost"))


@pytest.mark.rule("A bad listener of a conductor harms nothing.")
def test_on_error_is_called_for_failures_alone(make_board: MakeBoard, caplog: pytest.LogCaptureFixture) -> None:
    """Its own error harms neither the jobs nor other listeners."""
    board = make_board()
    board.post_many([{"name": "bad"}, {"name": "good"}, {"name": "later"}])
    called: list[tuple[str, str]] = []

    def on_error(job: jobboard.Job, error: BaseException) -> None:
        called.append((job.name, repr(error)))
        raise RuntimeError("the hook itself")

    conductor = Conductor("one", board, on_error=on_error, max_simultaneous_jobs=1)
    conductor.handles("bad")(lambda job: fail(ValueError("broken")))
    conductor.handles("good")(lambda job: None)
    conductor.handles("later")(lambda job: fail(jobboard.Retry()))
    heard = listen(conductor)
    conductor.run(3)
    assert len(heard) == 3 * 4 + 1
    assert called == [("bad", "ValueError('broken')")]
    assert (conductor.tally.abandoned, conductor.tally.consumed) == (2, 1)
    assert "the hook itself" in caplog.text


@pytest.mark.rule("on_success gets each consumed job and its stored result, after the commit.")
@pytest.mark.backends("memory", "sqlite")
@pytest.mark.parametrize("keep_done", [0, 60])
def test_on_success_is_called_with_the_stored_result(
    make_board: MakeBoard, caplog: pytest.LogCaptureFixture, keep_done: int
) -> None:
    """Also of a handler that consumes its job itself. Its own error harms nothing."""
    board = make_board(keep_done=keep_done)
    called: list[tuple[str, Any]] = []

    def on_success(job: jobboard.Job, result: Any) -> None:
        called.append((job.name, result))
        assert board.get(job.uuid).state == "COMPLETE" if keep_done else not list(board.iterjobs(names=[job.name]))
        raise RuntimeError("the hook itself")

    conductor = Conductor("one", board, on_success=on_success, max_simultaneous_jobs=1)
    conductor.handles("good")(lambda job: (1, "two"))
    conductor.handles("odd")(lambda job: {object})
    conductor.handles("own")(lambda job: job.claim.consume(result=5 if keep_done else None))
    conductor.handles("then")(lambda job: jobboard.Then("done", [jobboard.Posting("other")]))
    conductor.handles("bad")(lambda job: fail(ValueError("broken")))
    conductor.handles("later")(lambda job: fail(jobboard.Retry()))
    board.post_many([{"name": name} for name in ("good", "odd", "own", "then", "bad", "later")])
    conductor.run(6)
    results = {"good": [1, "two"], "odd": None, "own": 5, "then": "done"}
    assert dict(called) == {name: result if keep_done else None for name, result in results.items()}
    assert len(called) == conductor.tally.consumed == 4
    assert caplog.text.count("RuntimeError: the hook itself") == 4


# Wrappers


def test_wrappers_are_around_the_handler(make_board: MakeBoard) -> None:
    board = make_board()
    board.post("a")
    seen: list[tuple[str, int]] = []
    conductor = Conductor("one", board, lambda job: seen.append(("handler", threading.get_ident())))

    def wrapper(name: str) -> Any:
        @contextlib.contextmanager
        def context(job: jobboard.Job) -> Iterator[None]:
            seen.append((f"{name} begins {job.name}", threading.get_ident()))
            try:
                yield
            finally:
                seen.append((f"{name} ends", threading.get_ident()))

        return context

    conductor.wraps(wrapper("outer"))
    conductor.wraps(wrapper("inner"))
    conductor.run(1)
    assert [step for step, _ in seen] == ["outer begins a", "inner begins a", "handler", "inner ends", "outer ends"]
    assert len({thread for _, thread in seen}) == 1


def test_error_of_a_wrapper_is_an_error_of_the_handler(make_board: MakeBoard) -> None:
    board = make_board()
    job = board.post("a")
    ran: list[str] = []
    conductor = Conductor("one", board, lambda job: ran.append(job.uuid), retry=LATE)

    @conductor.wraps
    @contextlib.contextmanager
    def broken(job: jobboard.Job) -> Iterator[None]:
        raise ValueError("no span")
        yield

    conductor.run(1)
    assert ran == []
    assert job.state == "SCHEDULED"
    assert "no span" in job.error


# Results

HANDLERS: dict[str, Callable[[jobboard.Job], object]] = {
    "echo": handlers.echo,
    "odd": handlers.return_oddly,
    "fail": handlers.fail,
    "raises": handlers.return_what_raises,
    "ends": handlers.return_what_ends,
    "variables": handlers.leave_variables,
}


@contextlib.contextmanager
def tenant_wrapped(job: jobboard.Job) -> Iterator[None]:
    TENANT.set(f"{TENANT.get()}, wrapped")
    yield


def run_threads(board: Any, jobs: int, workers: Literal["threads", "processes"] = "threads") -> None:
    conductor = Conductor("one", board, HANDLERS, workers=workers, max_simultaneous_jobs=1)
    conductor.wraps(tenant_wrapped)
    conductor.run(jobs)


def run_processes(board: Any, jobs: int) -> None:
    run_threads(board, jobs, "processes")


def run_tasks(board: Any, jobs: int) -> None:
    async def coroutine(job: jobboard.Job) -> object:
        await asyncio.sleep(0)
        return HANDLERS[job.name](job)

    called = {**HANDLERS, **dict.fromkeys(("echo", "raises", "ends", "variables"), coroutine)}
    conductor = AsyncConductor("one", AsyncJobBoard(board), called, max_simultaneous_jobs=1)
    conductor.wraps(tenant_wrapped)
    run_async(conductor, jobs)


@pytest.mark.rule("A handler's result that cannot be looked at does not keep its job from being consumed.")
@pytest.mark.parametrize("work", [run_threads, run_processes, run_tasks])
def test_returned_value_is_the_result(
    make_board: MakeBoard, work: Callable[[Any, int], None], caplog: pytest.LogCaptureFixture
) -> None:
    board = make_board(keep_done=600)
    names = ["echo", "echo", "odd", "raises", "fail", "ends"]
    returns = [{"ü": [1, 2.5, None]}, None, 1, 1, 1, 1]
    jobs = [
        board.post(name, details={"returns": value}, max_attempts=1) for name, value in zip(names, returns, strict=True)
    ]
    with caplog.at_level(logging.WARNING):
        work(board, len(jobs))
    assert [job.result(0) for job in jobs[:2]] == [{"ü": [1, 2.5, None]}, None]
    outcomes = {outcome.uuid: outcome for outcome in board.outcomes()}
    assert set(outcomes) == {job.uuid for job in jobs[:4]}
    odd, raises = (outcomes[job.uuid] for job in jobs[2:4])
    assert (odd.result, raises.result) == (None, None)
    assert "result: set is not one of" in odd.refused
    # The value raises as its items are looked at.
    assert "Unspeakable" in raises.refused
    assert f"the result of {jobs[2]} is not kept" in caplog.text
    with pytest.raises(jobboard.NotFound, match="result: set"):
        jobs[2].result()
    assert [job.state for job in jobs[4:]] == ["TRASHED", "TRASHED"]
    # A process does not survive the look at such a value.
    assert "no row any more" in board.get(jobs[5].uuid).error or work is run_processes


@pytest.mark.parametrize("work", [run_threads, run_processes, run_tasks])
def test_returned_value_is_ignored_where_no_result_is_kept(
    make_board: MakeBoard, work: Callable[[Any, int], None], caplog: pytest.LogCaptureFixture
) -> None:
    board = make_board()
    board.post("odd")
    work(board, 1)
    assert (board.stats().on_board, board.stats().trashed) == (0, 0)
    assert "is not kept" not in caplog.text


# Context variables


@pytest.mark.rule("A job sees no context variable that another job has set.")
@pytest.mark.parametrize("work", [run_threads, run_processes, run_tasks])
def test_job_sees_no_context_variable_of_the_job_before(
    make_board: MakeBoard, work: Callable[[Any, int], None]
) -> None:
    """In a process the context is that of the process after its imports, and else that of the caller of run()."""
    board = make_board(keep_done=60)
    jobs = board.post_many([{"name": "variables"}] * 3)
    context = contextvars.copy_context()
    context.run(TENANT.set, "ours")
    context.run(work, board, 3)
    seen = "nobody's, wrapped" if work is run_processes else "ours, wrapped"
    assert [job.result() for job in jobs] == [seen] * 3
    assert context[TENANT] == "ours"
