"""Conductors: what becomes of jobs whose handlers end well, badly, late, or not at all."""

import functools
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jobboard
from jobboard.conductor import Conductor
from jobboard.exceptions import ConnectionFailure
from jobboard.outcomes import RetryPolicy
from jobboard.testing import eventually
from jobboard.testing.conformance.support import HELD, HOLDS
from tests.conftest import Runner

MakeBoard = Callable[..., Any]

LATE = RetryPolicy(base=1000)
"""Jobs that have failed stay away for the rest of the test."""


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failed jobs come back at once."""
    monkeypatch.setattr("jobboard.outcomes.USUAL", RetryPolicy(base=1e-6))


def test_handlers_by_name(make_board: MakeBoard, start: Runner) -> None:
    board = make_board()
    seen: list[tuple[str, int]] = []
    conductor = Conductor("one", board, {"resize": lambda job: seen.append(("resize", job.details["n"]))})

    @conductor.handles("crop", "turn")
    def cut(job: jobboard.Job) -> None:
        seen.append((job.name, job.details["n"]))

    for number, name in enumerate(["resize", "crop", "other", "turn"]):
        board.post(name, details={"n": number})
    start(conductor)
    eventually(lambda: conductor.tally.consumed == 3)
    assert sorted(seen) == [("crop", 1), ("resize", 0), ("turn", 3)]
    assert [job.name for job in board.iterjobs()] == ["other"]


def test_one_callable_takes_jobs_of_any_name(make_board: MakeBoard) -> None:
    board = make_board()
    board.post_many([{"name": f"job{n}"} for n in range(20)])
    seen: list[str] = []
    conductor = Conductor("one", board, lambda job: seen.append(job.name), max_simultaneous_jobs=3)
    conductor.run(max_dispatches=20)
    assert sorted(seen) == sorted(f"job{n}" for n in range(20))
    assert board.job_count == 0
    assert conductor.tally.consumed == conductor.tally.dispatched == 20
    assert conductor.wait(0)


def test_max_dispatches_is_exact(make_board: MakeBoard) -> None:
    board = make_board()
    board.post_many([{"name": "a"}] * 10)
    Conductor("one", board, lambda job: None, max_simultaneous_jobs=8).run(max_dispatches=3)
    assert board.stats().unclaimed == 7
    assert board.stats().claimed == 0


def test_no_more_at_once_than_allowed_and_none_claimed_in_advance(make_board: MakeBoard, start: Runner) -> None:
    board = make_board()
    board.post_many([{"name": "a"}] * 9)
    gate, begun = threading.Event(), threading.Semaphore(0)

    def handler(job: jobboard.Job) -> None:
        begun.release()
        assert gate.wait(30)

    conductor = start(Conductor("one", board, handler, max_simultaneous_jobs=4))
    for _ in range(4):
        assert begun.acquire(timeout=30)
    assert board.stats().claimed == 4
    assert not begun.acquire(blocking=False)
    gate.set()
    eventually(lambda: conductor.tally.consumed == 9)


@pytest.mark.usefixtures("soon")
def test_a_failure_is_tried_again_with_its_traceback_kept(make_board: MakeBoard, start: Runner) -> None:
    board = make_board()
    board.post("a", max_attempts=3)
    errors: list[str | None] = []

    def handler(job: jobboard.Job) -> None:
        errors.append(job.error)
        raise ValueError(f"wrong {job.attempts}")

    conductor = start(Conductor("one", board, handler))
    [job] = eventually(lambda: list(board.trashed()))
    assert job.attempts == 3
    assert len(errors) == 3
    assert errors[0] is None
    assert errors[1] is not None
    assert errors[1].rstrip().endswith("ValueError: wrong 1")
    assert "Traceback" in job.error
    assert job.error.rstrip().endswith("ValueError: wrong 3")
    eventually(lambda: conductor.tally.trashed == 1)
    assert conductor.tally.abandoned == 2


def test_a_failure_backs_off(make_board: MakeBoard, start: Runner) -> None:
    board = make_board()
    job = board.post("a")
    conductor = start(Conductor("one", board, lambda job: 1 / 0))
    eventually(lambda: conductor.tally.abandoned == 1)
    assert job.state == jobboard.State.SCHEDULED
    assert job.due > job.last_modified


def test_retry_and_reject(make_board: MakeBoard, start: Runner) -> None:
    board = make_board()
    later, bad = board.post("later"), board.post("bad")
    conductor = Conductor("one", board)

    @conductor.handles("later")
    def give_back(job: jobboard.Job) -> None:
        raise jobboard.Retry("not today", delay=3600)

    @conductor.handles("bad")
    def refuse(job: jobboard.Job) -> None:
        raise jobboard.Reject("no such picture")

    start(conductor)
    eventually(lambda: (conductor.tally.abandoned, conductor.tally.trashed) == (1, 1))
    assert (later.state, later.error) == ("SCHEDULED", "not today")
    assert 3590 < (later.due - later.last_modified).total_seconds() <= 3600
    assert (bad.state, bad.error) == ("TRASHED", "no such picture")


@pytest.mark.parametrize(
    "mistake",
    [lambda: jobboard.Retry(delay=-1), lambda: jobboard.Reject(7), lambda: SystemExit(2)],
    ids=["negative delay", "reason that is none", "exit"],
)
def test_a_mad_handler_is_a_failure_and_harms_no_other(
    make_board: MakeBoard, start: Runner, mistake: Callable[[], BaseException]
) -> None:
    board = make_board()
    mad = board.post("mad")
    board.post_many([{"name": "good"}] * 5)

    def handler(job: jobboard.Job) -> None:
        if job.name == "mad":
            raise mistake()

    conductor = start(Conductor("one", board, handler, retry=LATE))
    eventually(lambda: (conductor.tally.abandoned, conductor.tally.consumed) == (1, 5))
    assert mad.state == "SCHEDULED"
    assert "Traceback" in mad.error


class Resizer:
    def __init__(self, job: jobboard.Job) -> None: ...


def test_a_handler_that_would_do_nothing_is_no_success(make_board: MakeBoard, start: Runner) -> None:
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
    conductor = start(Conductor("one", board, functools.partial(lambda work, job: work(job), coroutine), retry=LATE))
    eventually(lambda: conductor.tally.abandoned == 1)
    assert job.state == "SCHEDULED"
    assert "returned a coroutine" in job.error


def test_a_handler_may_end_the_claim_itself(make_board: MakeBoard, start: Runner) -> None:
    board = make_board()
    first, second = board.post("consume"), board.post("trash")

    def handler(job: jobboard.Job) -> None:
        job.claim.trash(reason="mine") if job.name == "trash" else job.claim.consume()

    conductor = start(Conductor("one", board, handler))
    eventually(lambda: (conductor.tally.consumed, conductor.tally.trashed) == (1, 1))
    assert (first.state, second.state, second.error) == ("COMPLETE", "TRASHED", "mine")


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("ends_well", [True, False])
def test_a_claim_lost_in_the_middle(make_board: MakeBoard, start: Runner, ends_well: bool) -> None:
    """The result of the first try counts neither as a success nor as a failure; that of the second does."""
    board, operator = make_board(), make_board()
    job = board.post("a", max_attempts=2)
    gate, begun = threading.Event(), threading.Semaphore(0)

    def handler(job: jobboard.Job) -> None:
        begun.release()
        if job.attempts == 1:
            assert gate.wait(30)
            assert ends_well, "too late to fail"

    conductor = start(Conductor("one", board, handler))
    assert begun.acquire(timeout=30)
    operator.release(operator.get(job.uuid))
    assert begun.acquire(timeout=30)
    eventually(lambda: conductor.tally.consumed == 1)
    gate.set()
    eventually(lambda: conductor.tally.lost == 1)
    assert conductor.tally.abandoned == conductor.tally.trashed == 0
    assert job.state == "COMPLETE"


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(
    ("act", "state"),
    [
        (lambda board, job: board.release(job), "UNCLAIMED"),
        # Nobody has taken it since, so that it is given back in the end.
        (lambda board, job: board.extend(job, "one", 0.05), "SCHEDULED"),
    ],
)
def test_a_handler_can_ask_whether_it_is_still_wanted(
    make_board: MakeBoard, start: Runner, act: Any, state: str
) -> None:
    board, operator = make_board(claim_ttl=HELD), make_board()
    job = board.post("a")
    stopped, begun = threading.Event(), threading.Event()

    def handler(job: jobboard.Job) -> None:
        assert not jobboard.cancelled()
        begun.set()
        eventually(jobboard.cancelled)
        stopped.set()

    conductor = start(Conductor("one", board, handler), 1)
    assert begun.wait(30)
    act(operator, operator.get(job.uuid))
    assert stopped.wait(30)
    assert conductor.wait(30)
    assert conductor.tally.lost == 1
    assert job.state == state
    assert not jobboard.cancelled()


@pytest.mark.backends("sqlite")
def test_claims_are_kept_alive(make_board: MakeBoard, start: Runner) -> None:
    board, other = make_board(claim_ttl=HELD), make_board()
    job = board.post("a")
    gate, begun = threading.Event(), threading.Event()

    def handler(job: jobboard.Job) -> None:
        begun.set()
        assert gate.wait(30)

    conductor = start(Conductor("one", board, handler))
    assert begun.wait(30)
    assert other.claim_next("other", timeout=HOLDS * HELD) is None
    gate.set()
    eventually(lambda: conductor.tally.consumed == 1)
    assert conductor.tally.lost == 0
    assert job.state == "COMPLETE"


def test_stop_ends_an_idle_wait_at_once_and_lets_work_end(make_board: MakeBoard, start: Runner) -> None:
    board = make_board()
    gate, begun = threading.Event(), threading.Event()

    def handler(job: jobboard.Job) -> None:
        begun.set()
        assert gate.wait(30)

    conductor = start(Conductor("one", board, handler, max_simultaneous_jobs=2))
    assert not conductor.wait(0)
    eventually(lambda: conductor.dispatching)
    board.post("a")
    assert begun.wait(30)
    conductor.stop()
    assert not conductor.wait(0.05)
    assert conductor.dispatching
    gate.set()
    assert conductor.wait(30)
    assert not conductor.dispatching
    assert conductor.tally.consumed == 1
    assert board.job_count == 0


def test_stop_before_run(make_board: MakeBoard) -> None:
    board = make_board()
    job = board.post("a")
    conductor = Conductor("one", board, lambda job: None)
    conductor.stop()
    assert conductor.wait(0)
    conductor.run()
    assert job.state == "UNCLAIMED"


def test_it_waits_without_looking_again(make_board: MakeBoard, start: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle conductor sleeps in one claim, however many jobs other names get."""
    board = make_board()
    calls = Counter[str]()
    claim_many = board.claim_many

    def counting(*args: Any, **kwargs: Any) -> Any:
        calls["claim_many"] += 1
        return claim_many(*args, **kwargs)

    monkeypatch.setattr(board, "claim_many", counting)
    done = threading.Event()
    conductor = Conductor("one", board, {"mine": lambda job: done.set()})
    start(conductor)
    eventually(lambda: calls["claim_many"] == 1)
    for _ in range(5):
        board.post("other")
    board.post("mine")
    assert done.wait(30)
    conductor.stop()
    assert conductor.wait(30)
    assert calls["claim_many"] <= 2


def test_one_act_that_is_refused_with_a_crash_harms_no_other(
    make_board: MakeBoard, start: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = make_board()
    end_claims = board.end_claims

    def picky(ends: Any, who: str) -> Any:
        if any(job.name == "bad" for job, _ in ends):
            raise RuntimeError("what is that?")
        return end_claims(ends, who)

    monkeypatch.setattr(board, "end_claims", picky)
    bad = board.post("bad")
    board.post_many([{"name": "good"}] * 20)
    conductor = start(Conductor("one", board, lambda job: None))
    eventually(lambda: (conductor.tally.consumed, conductor.tally.lost) == (20, 1))
    assert bad.state == "SCHEDULED"


def test_a_job_that_it_lost_and_did_again_at_once(
    make_board: MakeBoard, start: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ends go in one batch: one counts, the other does not."""
    board, operator = make_board(), make_board()
    end_claims, handing_over, gate = board.end_claims, threading.Event(), threading.Event()
    ended = threading.Semaphore(0)

    def slow(ends: Any, who: str) -> Any:
        handing_over.set()
        assert gate.wait(30)
        return end_claims(ends, who)

    def handler(job: jobboard.Job) -> None:
        if job.name == "released" and job.attempts == 1:
            operator.release(operator.get(job.uuid))
            assert again.wait(30)
        elif job.name == "released":
            again.set()
        ended.release()

    again = threading.Event()
    monkeypatch.setattr(board, "end_claims", slow)
    board.post("slow")
    conductor = Conductor("one", board, handler, max_simultaneous_jobs=2)
    events: list[tuple[str, int]] = []
    for event in ("consumed", "lost"):
        conductor.notifier.register(
            f"job_{event}", lambda kind, details: events.append((kind, details["job"].attempts))
        )
    start(conductor)
    assert handing_over.wait(30)
    operator.post("released")
    assert all(ended.acquire(timeout=20) for _ in range(3))
    eventually(lambda: not conductor.at_work)
    gate.set()
    eventually(lambda: len(events) == 3)
    assert sorted(events) == [("job_consumed", 1), ("job_consumed", 2), ("job_lost", 1)]


def test_the_board_closed_under_it(make_board: MakeBoard, caplog: pytest.LogCaptureFixture) -> None:
    board = make_board()
    board.post("a")
    conductor = Conductor("one", board, lambda job: board.close())
    with pytest.raises(ConnectionFailure):
        conductor.run()
    assert not conductor.dispatching
    assert conductor.tally.lost == 1
    # The end of the board has removed the conductor's entity.
    assert "among the entities" not in caplog.text


def test_it_connects_a_board_that_is_not_and_closes_it(make_board: MakeBoard) -> None:
    board = make_board()
    board.post("a")
    board.close()
    conductor = Conductor("one", board, lambda job: None)
    conductor.run(1)
    assert conductor.tally.consumed == 1
    assert not board.connected


def test_it_shows_among_the_entities(make_board: MakeBoard, start: Runner) -> None:
    board = make_board()
    start(Conductor("one", board, {"b": print, "a": print}))
    [entity] = eventually(lambda: board.entities("conductor"))
    assert entity.name == "one"
    assert entity.metadata["pid"] == os.getpid()
    assert entity.metadata["names"] == ["a", "b"]
    assert entity.metadata["host"]


def test_what_is_refused(make_board: MakeBoard) -> None:
    board = make_board()
    with pytest.raises(ValueError, match=r"'one' has no handlers: .* handles\(\)"):
        Conductor("one", board).run()
    with pytest.raises(ValueError, match="looking only: leave out read_only"):
        Conductor("one", make_board(read_only=True), print).run()
    with pytest.raises(TypeError, match="callable"):
        Conductor("one", board, {"a": 7})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="'a' have a handler already: leave"):
        Conductor("one", board, {"a": print}).handles("a")(print)
    with pytest.raises(ValueError, match=r"'a' can't have .* any name: give it a mapping"):
        Conductor("one", board, print).handles("a")(print)
    with pytest.raises(TypeError, match=r"names of the jobs .* as in"):
        Conductor("one", board).handles()
    with pytest.raises(
        TypeError, match=r"Conductor\(\) of a \w+ board has no argument 'job_timout'; did you mean 'job_timeout'"
    ):
        Conductor("one", board, print, job_timout=5)
    for wrong in (0, -1):
        with pytest.raises(ValueError, match="1 or more"):
            Conductor("one", board, print, max_simultaneous_jobs=wrong)
        with pytest.raises(ValueError, match="1 or more"):
            Conductor("one", board, print).run(wrong)
    with pytest.raises(ValueError, match="empty"):
        Conductor("", board, print)


def test_it_runs_once_at_a_time(make_board: MakeBoard, start: Runner) -> None:
    conductor = start(Conductor("one", make_board(), print))
    eventually(lambda: conductor.dispatching)
    with pytest.raises(RuntimeError, match="'one' is running already: make another"):
        conductor.run()


# The hook by which stop() reaches a wait


def test_a_wait_ends_when_it_is_called_off(make_board: MakeBoard) -> None:
    board = make_board()
    off = threading.Event()
    answers: list[Any] = []
    waiters = [
        threading.Thread(target=lambda: answers.append(board.claim_many("me", 2, timeout=None, unless=off.is_set))),
        threading.Thread(target=lambda: answers.append(board.claim_next("me", timeout=None, unless=off.is_set))),
    ]
    for waiter in waiters:
        waiter.start()
    board.wake()
    off.set()
    board.wake()
    for waiter in waiters:
        waiter.join(30)
        assert not waiter.is_alive()
    assert [] in answers
    assert None in answers
    board.post("a")
    assert board.claim_next("me", unless=off.is_set) is None
    board.close()
    board.wake()


def test_a_wait_that_is_called_off_while_it_looks_does_not_begin(
    make_board: MakeBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = make_board()
    off = threading.Event()
    take = board.engine.raw.take

    def called_off(*args: Any, **kwargs: Any) -> Any:
        off.set()
        board.wake()
        return take(*args, **kwargs)

    monkeypatch.setattr(board.engine.raw, "take", called_off)
    answers: list[Any] = []
    waiter = threading.Thread(
        target=lambda: answers.append(board.claim_next("me", timeout=30, unless=off.is_set)), daemon=True
    )
    waiter.start()
    waiter.join(10)
    assert answers == [None]
