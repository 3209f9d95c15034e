"""Limits: timeouts of handlers and drains, slots of a name or of a board, and threads that cannot be started."""

import datetime
import functools
import gc
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import jobboard
from jobboard import threads
from jobboard.conductor import Conductor
from jobboard.conductor.workers import WorkerThreads
from jobboard.testing import eventually
from jobboard.testing.requests import ENDS, POSTER_LOOKS, TAKES, RequestKind, requests
from tests.conftest import Runner
from tests.support import handlers
from tests.support.conductors import (
    LATE,
    WAIT,
    Hanging,
    MakeBoard,
    conductor_of,
    counts_of,
    errors_of,
    listen,
)

pytestmark = pytest.mark.backends("memory")

# Timeouts of handlers in threads


@pytest.mark.rule("No collection of garbage runs while a conductor reads where a late handler is.")
def test_the_stack_of_a_thread_is_read_without_a_collection() -> None:
    """On the first Pythons that jobboard works with, the process would hang."""
    began_in: list[str] = []

    def note(phase: str, info: dict[str, int]) -> None:
        began_in.append(sys._getframe(1).f_code.co_name)

    before, over = gc.get_threshold(), threading.Event()
    # The frame of each thread is a new object.
    waiting = [threads.started("waiting", over.wait) for _ in range(5)]
    gc.callbacks.append(note)
    gc.set_threshold(1)
    try:
        kept = [[number] for number in range(5)]
        where = threads.stack_of(threading.get_ident())
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(note)
        over.set()
    assert len(kept) == len(waiting)
    assert "in test_the_stack_of_a_thread_is_read_without_a_collection" in where
    assert set(began_in) - {"stack_of"}
    assert "stack_of" not in began_in
    assert gc.isenabled()


def test_handler_that_heeds_its_timeout_frees_its_slot(make_board: MakeBoard, start: Runner) -> None:
    board = make_board()
    job = board.post("a")
    lost: list[bool] = []

    def handler(job: jobboard.Job) -> None:
        eventually(jobboard.cancelled)
        lost.append(job.claim.lost)

    conductor = Conductor("one", board, handler, job_timeout=0.1, max_simultaneous_jobs=1, retry=LATE)
    heard = listen(conductor)
    board.post("a")
    conductor.run(2)
    assert conductor.tally.abandoned == 2
    eventually(lambda: lost == [True, True])
    assert job.state == "SCHEDULED"
    assert job.error.startswith("Where it was:")
    assert "in handler" in job.error
    assert job.error.endswith("was still at work after 0.1 s, its timeout\n")
    errors = [told["error"] for event, told in heard if event == "job_failed"]
    assert [type(error) for error in errors] == [TimeoutError, TimeoutError]
    assert [event for event, _ in heard].count("job_finished") == 2


@pytest.mark.rule("A handler that heeds no timeout keeps its slot, and the conductor shows that.")
def test_handler_that_heeds_no_timeout_keeps_its_slot(
    make_board: MakeBoard, start: Runner, hanging: Hanging, caplog: pytest.LogCaptureFixture
) -> None:
    board = make_board(claim_ttl=1.5)
    job = board.post("hang")
    conductor = Conductor("one", board, max_simultaneous_jobs=2, job_timeout=1000, retry=LATE)
    conductor.handles("hang", timeout=0.1)(hanging)
    threads: set[int] = set()

    @conductor.handles("a")
    def quick(job: jobboard.Job) -> None:
        threads.add(threading.get_ident())

    start(conductor)
    eventually(lambda: conductor.tally.abandoned == 1)
    assert job.state == "SCHEDULED"
    board.post_many([{"name": "a"}] * 6)
    eventually(lambda: conductor.tally.consumed == 6)
    assert len(threads) == 1
    eventually(lambda: counts_of(board) == (0, 1))
    hanging.gate.set()
    eventually(lambda: "does not count" in caplog.text)
    eventually(lambda: counts_of(board) == (0, 0))
    assert conductor.tally == type(conductor.tally)(7, 6, 1, 0, 0)


@pytest.mark.rule("A handler that heeds no timeout keeps its slot, and the conductor shows that.")
@pytest.mark.rule("A conductor whose slots all hang claims no more.")
def test_conductor_whose_slots_all_hang_claims_no_more_and_shows_that(
    make_board: MakeBoard, start: Runner, hanging: Hanging, caplog: pytest.LogCaptureFixture
) -> None:
    board = make_board(claim_ttl=1.5)
    conductor = start(Conductor("one", board, hanging, max_simultaneous_jobs=2, job_timeout=0.05, retry=LATE))
    board.post_many([{"name": "a"}] * 5)
    eventually(lambda: conductor.tally.abandoned == 2)
    assert board.stats().unclaimed == 3
    eventually(lambda: "keeps its slot until it ends: so do 2 now" in caplog.text)
    eventually(lambda: counts_of(board) == (0, 2))
    conductor.stop()
    assert conductor.wait(WAIT), "a handler that was given up must not hold up the end"
    assert not hanging.gate.is_set()


@pytest.mark.rule("A handler may have no limit where the others have one.")
@pytest.mark.rule("Limits of conductors may be timedeltas, and other values are refused.")
def test_handler_may_have_no_limit_where_the_others_have_one(
    make_board: MakeBoard, start: Runner, hanging: Hanging
) -> None:
    """Limits may be timedeltas."""
    board = make_board()
    board.post("slow")
    late = board.post("hangs")
    tenth = datetime.timedelta(seconds=0.1)
    policy = jobboard.RetryPolicy(base=datetime.timedelta(hours=1), cap=datetime.timedelta(hours=2))  # type: ignore[arg-type]
    conductor = Conductor("one", board, job_timeout=tenth, drain_timeout=tenth, retry=policy)
    conductor.handles("slow", timeout=None)(hanging)
    conductor.handles("hangs")(hanging)
    start(conductor)
    eventually(lambda: conductor.tally.abandoned == 1)
    assert late.state == "SCHEDULED"
    conductor.stop()
    assert conductor.wait(WAIT)
    assert conductor.tally.abandoned == 2


# Timeouts of drains


@pytest.mark.rule("A drain ends within its limit, and lets handlers end that end in time.")
def test_drain_that_is_over_gives_the_jobs_back(
    make_board: MakeBoard, start: Runner, hanging: Hanging, long_reserve: None
) -> None:
    board = make_board()
    job = board.post("a", max_attempts=1)
    conductor = start(Conductor("one", board, hanging, drain_timeout=2))
    hanging.await_begin()
    conductor.stop()
    assert conductor.wait(WAIT)
    assert not hanging.gate.is_set()
    assert hanging.jobs[0].claim is not None
    assert hanging.jobs[0].claim.lost
    assert (job.state, job.attempts, job.error) == ("UNCLAIMED", 0, None)
    assert conductor.tally.abandoned == 1
    hanging.gate.set()
    assert hanging.ended.acquire(timeout=WAIT)
    assert job.state == "UNCLAIMED"


@pytest.mark.rule("run() returns in time though the backend does not let go of the board.")
@pytest.mark.parametrize("stuck", [TAKES, ENDS, POSTER_LOOKS], ids=["take", "end", "post due"])
def test_backend_that_does_not_answer_does_not_hold_up_the_end(
    make_board: MakeBoard, start: Runner, monkeypatch: pytest.MonkeyPatch, stuck: RequestKind
) -> None:
    """Jobs that a late answer brings are given back."""
    monkeypatch.setattr("jobboard.conductor.scheduler.LINGER", 2.0 * WAIT)
    board = make_board()
    asked, silent, answered = threading.Event(), threading.Event(), threading.Event()

    def slow(request: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        asked.set()
        assert silent.wait(2 * WAIT)
        try:
            return request(*args, **kwargs)
        finally:
            answered.set()

    requests(board).around(stuck, slow)
    if stuck is not POSTER_LOOKS:
        board.post("a")
    conductor = start(Conductor("one", board, lambda job: None, drain_timeout=0.3))
    try:
        assert asked.wait(WAIT)
        conductor.stop()
        assert conductor.wait(WAIT)
        assert not answered.is_set()
    finally:
        silent.set()
    assert answered.wait(WAIT)
    eventually(lambda: (board.stats().claimed, board.job_count) == (0, 1 if stuck is TAKES else 0))
    assert [job.attempts for job in board.iterjobs()] == ([0] if stuck is TAKES else [])


@pytest.mark.rule("run() returns in time though the backend does not let go of the board.")
def test_backend_that_does_not_let_go_of_the_board_does_not_hold_up_the_end(
    make_board: MakeBoard, start: Runner
) -> None:
    board = make_board()
    board.close()
    silent, asked = threading.Event(), threading.Event()

    def slow() -> None:
        asked.set()
        assert silent.wait(2 * WAIT)

    conductor = start(Conductor("one", board, lambda job: None, drain_timeout=0.3))
    eventually(lambda: board.connected)
    requests(board).before("close", slow)
    conductor.stop()
    try:
        assert conductor.wait(WAIT)
        assert asked.wait(WAIT)
    finally:
        silent.set()
    eventually(lambda: board.closed)


def test_end_without_jobs_leaves_none_to_be_done_again(
    make_board: MakeBoard, start: Runner, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The backend does not answer that the conductor is shown no longer."""
    board = make_board()
    silent, asked, hide = threading.Event(), threading.Event(), board.deregister_entity

    def slow(entity: Any) -> None:
        asked.set()
        assert silent.wait(2 * WAIT)
        hide(entity)

    monkeypatch.setattr(board, "deregister_entity", slow)
    board.post("a")
    conductor = Conductor("one", board, lambda job: None, drain_timeout=0.1)
    start(conductor)
    eventually(lambda: conductor.tally.consumed)
    conductor.stop()
    try:
        assert conductor.wait(WAIT)
        assert asked.wait(WAIT)
    finally:
        silent.set()
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.rule("A claimer that ends after its run leaves no worker and no entity.")
@pytest.mark.parametrize(("of", "step"), [(jobboard.JobBoard, "register_entity"), (WorkerThreads, "put")])
def test_claimer_that_is_late_leaves_nothing_behind(
    make_board: MakeBoard, start: Runner, monkeypatch: pytest.MonkeyPatch, of: type, step: str
) -> None:
    """The run ends between two steps of the thread that claims."""
    board = make_board()
    board.post("a")
    call = getattr(of, step)
    reached, going_on = threading.Event(), threading.Event()

    def late(*args: Any) -> None:
        reached.set()
        assert going_on.wait(WAIT)
        call(*args)

    monkeypatch.setattr(of, step, late)
    name = uuid.uuid4().hex
    conductor = start(Conductor(name, board, lambda job: None))
    assert reached.wait(WAIT)
    conductor.stop(drain=False)
    assert conductor.wait(WAIT)
    going_on.set()
    eventually(lambda: not any(each.name.startswith(name) for each in threading.enumerate()))
    assert board.entities() == []
    assert [(job.seen_state, job.attempts) for job in board.iterjobs()] == [("UNCLAIMED", 0)]


@pytest.mark.parametrize(("workers", "timeout"), [("threads", 60), ("processes", 60), ("threads", None)])
def test_conductor_warns_once_of_a_limit_that_hanging_threads_would_exceed(
    make_board: MakeBoard, start: Runner, caplog: pytest.LogCaptureFixture, workers: Any, timeout: float | None
) -> None:
    board = make_board()
    board.set_limit("limited", concurrency=1)
    board.set_limit("rated", rate=(1000, 1))
    names = ("limited", "rated", "free")
    conductor = Conductor("one", board, dict.fromkeys(names, handlers.idle), workers=workers, job_timeout=timeout)
    board.post_many([{"name": name} for name in names])
    start(conductor)
    eventually(lambda: conductor.tally.consumed == 3, 60)
    warnings = [record.getMessage() for record in caplog.records if "counts claims, not threads" in record.getMessage()]
    assert len(warnings) == (workers == "threads" and timeout is not None)
    assert all("'limited'" in text and "free" not in text and "rated" not in text for text in warnings)


# Slots of a name: ``handles(max_simultaneous=)``


@pytest.mark.rule("A slow name leaves slots of its conductor to others.")
@pytest.mark.parametrize("kind", ["threads", "processes", "coroutines"])
def test_slow_name_leaves_slots_to_others(
    make_board: MakeBoard, start: Runner, tmp_path: Path, notes: Callable[[], list[str]], kind: str
) -> None:
    """Its other jobs stay on the board meanwhile, for other conductors."""
    board = make_board()
    board.post_many([{"name": "slow", "priority": "HIGH", "details": {"notes": str(tmp_path / "notes")}}] * 5)
    board.post_many([{"name": "fast"}] * 12)
    conductor, slow = conductor_of(board, kind, slots=4)
    conductor.handles("slow", max_simultaneous=2)(slow)
    conductor.handles("fast")(handlers.idle)
    running, most = Counter[str](), Counter[str]()

    # Only the thread of the listeners counts.
    def count(step: int, event: str, told: dict[str, Any]) -> None:
        name = told["job"].name
        running[name] += step
        most[name] = max(most[name], running[name])

    conductor.notifier.register("job_started", functools.partial(count, 1))
    conductor.notifier.register("job_finished", functools.partial(count, -1))
    start(conductor)
    eventually(lambda: conductor.tally.consumed == 12 and len(notes()) == 2, 60)
    assert (board.stats().claimed, board.stats().unclaimed) == (2, 3)
    (tmp_path / "notes.go").touch()
    eventually(lambda: conductor.tally.consumed == 17, 60)
    conductor.stop()
    assert conductor.sync.wait(WAIT) if kind == "coroutines" else conductor.wait(WAIT)
    eventually(lambda: running["slow"] == 0)
    assert most["slow"] == 2


@pytest.mark.rule("A slow name leaves slots of its conductor to others.")
@pytest.mark.backends("memory", "sqlite")
def test_free_slot_of_a_name_is_seen_while_other_names_are_waited_for(
    make_board: MakeBoard, start: Runner, hanging: Hanging
) -> None:
    board = make_board()
    conductor = Conductor("one", board, {"fast": lambda job: None})
    conductor.handles("slow", max_simultaneous=1)(hanging)
    board.post_many([{"name": "slow"}] * 2)
    start(conductor)
    hanging.await_begin()
    board.post("fast")
    eventually(lambda: conductor.tally.consumed == 1)
    assert board.stats().claimed == 1
    hanging.gate.set()
    eventually(lambda: conductor.tally.consumed == 3)


@pytest.mark.rule("A slow name leaves slots of its conductor to others.")
def test_hanging_handler_counts_among_the_slots_of_its_name(
    make_board: MakeBoard, start: Runner, hanging: Hanging
) -> None:
    board = make_board()
    conductor = Conductor("one", board, {"fast": lambda job: None}, retry=LATE, max_simultaneous_jobs=3)
    conductor.handles("slow", timeout=0.05, max_simultaneous=1)(hanging)
    first, second = board.post_many([{"name": "slow"}] * 2)
    start(conductor)
    eventually(lambda: conductor.tally.abandoned == 1)
    board.post_many([{"name": "fast"}] * 5)
    eventually(lambda: conductor.tally.consumed == 5)
    assert (hanging.jobs, second.state) == ([first], "UNCLAIMED")
    hanging.gate.set()
    eventually(lambda: len(hanging.jobs) == 2)


def test_names_of_one_handler_have_slots_of_their_own(make_board: MakeBoard, start: Runner, hanging: Hanging) -> None:
    board = make_board()
    conductor = Conductor("one", board)
    conductor.handles("a", "b", max_simultaneous=1)(hanging)
    board.post_many([{"name": name} for name in "aabb"])
    start(conductor)
    hanging.await_begin(2)
    assert sorted(job.name for job in hanging.jobs) == ["a", "b"]
    assert not hanging.begun.acquire(blocking=False)
    hanging.gate.set()
    eventually(lambda: conductor.tally.consumed == 4)


# Threads that the system does not start


@pytest.mark.rule("A run ends when no thread and no process can be started for it.")
def test_run_ends_if_no_thread_can_be_started_for_its_jobs(make_board: MakeBoard, refused: set[str]) -> None:
    board = make_board()
    job = board.post("a")
    refused.add("one-0")
    conductor = Conductor("one", board, lambda job: None)
    [error] = errors_of(conductor.run)
    assert "can't start new thread" in str(error)
    job = board.get(job.uuid)
    assert (job.seen_state, job.attempts) == ("UNCLAIMED", 0)
    refused.clear()
    conductor.run(1)
    assert job.state == "COMPLETE"


@pytest.mark.rule("A run ends when no thread and no process can be started for it.")
@pytest.mark.parametrize("name", ["one-claimer", "one-scheduler"])
def test_run_that_cannot_begin_leaves_no_thread(make_board: MakeBoard, refused: set[str], name: str) -> None:
    board = make_board()
    before = set(threading.enumerate())
    refused.add(name)
    [error] = errors_of(Conductor("one", board, lambda job: None).run)
    assert "can't start new thread" in str(error)
    eventually(lambda: not any(each.name.startswith("one-") for each in set(threading.enumerate()) - before))


@pytest.mark.rule("The end of a job is handed over though a listener's thread cannot be started.")
def test_end_of_a_job_is_handed_over_without_a_thread_for_listeners(make_board: MakeBoard, refused: set[str]) -> None:
    board = make_board()
    board.post_many([{"name": "a"}] * 3)
    heard: list[str] = []
    board.notifier.register("*", lambda event, details: heard.append(event))
    conductor = Conductor("one", board, lambda job: None, on_error=print)
    conductor.notifier.register("*", lambda event, details: heard.append(event))
    refused.update({"one-notifier", f"{board.name}-notifier"})
    assert errors_of(lambda: conductor.run(3)) == []
    assert conductor.tally.consumed == 3
    assert heard == []
    board.close()


@pytest.mark.rule("A thread that cannot be started for closing or clearing up keeps nothing open.")
def test_board_is_closed_without_a_thread_for_that(make_board: MakeBoard, refused: set[str]) -> None:
    board = make_board()
    board.close()
    refused.add(f"{board.name}-closer")
    conductor = Conductor("one", board, lambda job: None, drain_timeout=5)
    conductor.stop()
    assert errors_of(conductor.run) == []
    assert board.closed


@pytest.mark.rule("Claims are renewed though the first heartbeat got no thread.")
@pytest.mark.backends("sqlite")
def test_claims_are_renewed_though_the_first_heartbeat_got_no_thread(make_board: MakeBoard, refused: set[str]) -> None:
    """The claim that the missing thread was for lapses."""
    board = make_board(claim_ttl=1)
    board.post("a")
    refused.add(f"{board.name}-heartbeat")
    with pytest.raises(RuntimeError, match="new thread"):
        board.claim_next("me")
    refused.clear()
    job = board.claim_next("me", timeout=20)
    first = job.record.lock_until
    eventually(lambda: board.get(job.uuid).record.lock_until > first)
