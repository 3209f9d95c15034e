"""Work by ``working()``: the end of a claim by the outcome of the block or the function."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable
from typing import Any

import pytest

import jobboard
from jobboard.board import JobBoard
from jobboard.exceptions import ClaimLost, ConnectionFailure, NotFound
from jobboard.job import Act, Job
from jobboard.outcomes import IN_VAIN, Reject, Retry, cancelled
from jobboard.states import CLAIMED, COMPLETE, SCHEDULED, TRASHED, UNCLAIMED
from jobboard.testing import eventually
from jobboard.testing.conformance.posts import Book
from jobboard.testing.conformance.support import (
    HELD,
    LIMIT,
    LONG,
    SHORT,
    Background,
    MakeBoard,
    Waiter,
    let_lapse,
    take,
    until_free,
)
from jobboard.testing.requests import ENDS, requests

# No backend can differ in these.
pytestmark = pytest.mark.backends("memory", "sqlite")


def fail(error: BaseException) -> None:
    """Not written out in the bodies: a type checker takes what follows those for unreachable."""
    raise error


class Later(Retry):
    """As nobody should write one: it has neither a delay nor a count."""

    def __init__(self, code: int) -> None:
        self.code = code


class Hopeless(Reject):
    def __init__(self, code: int) -> None:
        self.code = code


class Never(Retry):
    def __init__(self, code: int) -> None:
        super().__init__()
        self.delay = -code


class Persistence:
    """A logbook store as TaskFlow's: counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.closed = 0

    def get_connection(self) -> Persistence:
        return self

    def get_logbook(self, uuid: str) -> str:
        self.asked.append(uuid)
        return f"logbook {uuid}"

    def close(self) -> None:
        self.closed += 1


class TestWorking:
    @pytest.mark.rule("A job without an attempt left goes to the trash, and its work does not run.")
    def test_a_job_without_an_attempt_left(self, board: JobBoard) -> None:
        """The job goes to the trash, its work does not run, and the next job is worked on."""
        spent, allowed, last = board.post_many([{"name": "a"}, {"name": "b", "max_attempts": 50}, {"name": "c"}])
        for job in (spent, allowed):
            for _ in range(25):
                board.abandon(take(board, names=[job.name]), "anna")
        worked = []
        for _ in range(2):
            with board.working("bert", names=iter("abc"), timeout=LIMIT) as job:
                worked.append(job)
        assert worked == [allowed, last]
        with pytest.raises(NotFound), board.working("bert", timeout=0):
            pass
        [trashed] = board.trashed()
        assert (trashed, trashed.attempts) == (spent, 26)
        assert [failure[1:4] for failure in trashed.errors] == [("bert", 26, trashed.error)]
        assert "its 25 attempts are used up" in trashed.errors[0].text

    @pytest.mark.rule("A Retry or Reject that asks for the impossible is a failure like any other.")
    @pytest.mark.rule("A delay that is none is a failure of the work.")
    @pytest.mark.parametrize(
        ("raised", "passes_on", "state", "attempts", "retries", "told"),
        [
            (None, (), COMPLETE, 1, 0, []),
            (Retry("not yet", delay=LONG), (), SCHEDULED, 0, 1, ["not yet"]),
            (Retry("not yet", delay=0), (), UNCLAIMED, 0, 1, ["not yet"]),
            (Retry("not yet"), (), SCHEDULED, 0, 1, ["not yet"]),
            (Reject("no such picture"), (), TRASHED, 1, 0, ["no such picture"]),
            (ValueError("broken"), ValueError, SCHEDULED, 1, 0, ["Traceback", "broken"]),
            (KeyboardInterrupt("broken"), KeyboardInterrupt, SCHEDULED, 1, 0, ["Traceback", "broken"]),
            (SystemExit("broken"), SystemExit, SCHEDULED, 1, 0, ["Traceback", "broken"]),
            (Later(7), AttributeError, SCHEDULED, 1, 0, ["Later", "count"]),
            (Hopeless(7), AttributeError, SCHEDULED, 1, 0, ["Hopeless", "reason"]),
            (Never(7), ValueError, SCHEDULED, 1, 0, ["Never", "delay"]),
        ],
    )
    def test_body_ends_the_claim_by_its_outcome(
        self, board: JobBoard, raised: Any, passes_on: Any, state: str, attempts: int, retries: int, told: list[str]
    ) -> None:
        job = board.post("resize", details={"a": 1})
        with pytest.raises(passes_on, match=told[-1]) if passes_on else contextlib.nullcontext():  # noqa: SIM117
            with board.working("anna") as mine:
                assert (mine, mine.details, board.find_owner(job)) == (job, {"a": 1}, "anna")
                if raised is not None:
                    raise raised
        assert job.state == state
        if state != COMPLETE:
            assert (job.attempts, job.retries) == (attempts, retries)
            assert [word for word in told if word not in (job.error or "")] == []

    @pytest.mark.rule("A retry is counted apart and uses up no attempt.")
    def test_retries_use_up_no_attempts(self, board: JobBoard, other: JobBoard) -> None:
        job = board.post("resize", max_attempts=1)
        for retries in range(3):
            with board.working("anna", timeout=0) as mine:
                assert (mine.attempts, mine.retries) == (1, retries)
                fail(Retry("not yet", delay=0))
        found = other.get(job.uuid)
        assert (found.state, found.attempts, found.retries) == (UNCLAIMED, 0, 3)
        assert [seen.retries for seen in other.iterjobs()] == [3]
        with board.working("anna", timeout=0):
            fail(Retry("not yet", delay=0, count=True))
        assert (job.state, job.attempts, job.retries) == (TRASHED, 1, 3)
        assert [seen.retries for seen in other.trashed()] == [3]
        other.restore(other.get(job.uuid))
        assert (job.state, job.attempts, job.retries) == (UNCLAIMED, 0, 0)

    @pytest.mark.rule("A job that is given back counts neither an attempt nor a retry.")
    def test_job_that_is_given_back_counts_no_retry(self, board: JobBoard, make_board: MakeBoard) -> None:
        jobs = board.post_many([{"name": "a"}, {"name": "b"}])
        closing = make_board()
        take(closing)
        board.finish_many([Act(take(board), "abandon", refund=True)], "anna")
        closing.close()
        assert [(job.state, job.attempts, job.retries) for job in jobs] == [(UNCLAIMED, 0, 0)] * 2

    @pytest.mark.rule("Failures and lapses are no retries.")
    def test_failures_and_lapses_are_no_retries(self, board: JobBoard) -> None:
        job = board.post("resize")
        let_lapse(board, job)
        with pytest.raises(ValueError, match="broken"), board.working("anna", timeout=0):
            raise ValueError("broken")
        assert (job.state, job.attempts, job.retries) == (SCHEDULED, 2, 0)

    def test_wait_without_a_job_raises_in_time_and_once_it_is_called_off(self, board: JobBoard) -> None:
        job = board.post("resize")
        for wait in ({"names": ["crop"], "timeout": 0}, {"unless": lambda: True}):
            with pytest.raises(NotFound), board.working("anna", **wait):
                pytest.fail("there is no job")
        with board.working("anna", unless=lambda: False):
            pass
        assert job.state == COMPLETE

    @pytest.mark.rule("A job whose claim working() could not give back lapses.")
    @pytest.mark.parametrize(("verb", "state"), [("consume", COMPLETE), ("trash", TRASHED), ("abandon", UNCLAIMED)])
    @pytest.mark.parametrize("through", ["claim", "board"])
    @pytest.mark.parametrize("then", ["returns", "fails"])
    def test_a_body_that_finishes_the_job_itself(
        self, board: JobBoard, verb: str, state: str, through: str, then: str
    ) -> None:
        job = board.post("resize")
        late = pytest.raises(ValueError, match="late") if then == "fails" else contextlib.nullcontext()
        with late, board.working("anna") as mine:
            getattr(mine.claim, verb)() if through == "claim" else getattr(board, verb)(mine, "anna")
            if then == "fails":
                fail(ValueError("late"))
        assert job.state == state

    @pytest.mark.rule("A claim that nobody works under any more comes back, on a board in memory, too.")
    @pytest.mark.rule("A job whose claim working() could not give back lapses.")
    @pytest.mark.parametrize("ends", ["well", "badly"])
    @pytest.mark.parametrize("as_function", [False, True], ids=["block", "function"])
    def test_an_end_that_can_not_be_told(
        self, board: JobBoard, make_board: MakeBoard, ends: str, as_function: bool
    ) -> None:
        """Nobody works on the job any more, so that its claim may not be kept."""
        mine = make_board(retry_for=0, claim_ttl=HELD)
        job = board.post("resize")

        def refuse(original: Callable[..., Any], *args: Any) -> None:
            raise ConnectionFailure("the backend is away")

        def work(job: Job) -> None:
            worked.append(job)
            if ends == "badly":
                raise ValueError("broken")

        def in_a_block() -> None:
            with mine.working("anna") as claimed:
                work(claimed)

        worked: list[Job] = []
        run = mine.working("anna")(work) if as_function else in_a_block
        kind, text = (ConnectionFailure, "away") if ends == "well" else (ValueError, "broken")
        with requests(mine).around(ENDS, refuse), pytest.raises(kind, match=text):
            run()
        assert len(worked) == 1
        assert mine.claims.held() == []
        until_free(board, job)

    def test_a_lost_claim(self, board: JobBoard, other: JobBoard) -> None:
        job = board.post("resize")

        def lose() -> None:
            other.release(other.get(job.uuid))
            take(other, "bert")

        with pytest.raises(ClaimLost), board.working("anna"):
            lose()
        assert other.find_owner(job) == "bert"
        other.abandon(other.get(job.uuid), "bert")
        with pytest.raises(ValueError, match="broken"), board.working("anna"):  # noqa: PT012 - its own error goes first
            lose()
            raise ValueError("broken")
        assert job.state == CLAIMED

    def test_a_lease_that_runs_out(self, board: JobBoard) -> None:
        """With nobody else in: the body may have stopped half-way, and the job is to be done again."""
        job = board.post("resize")
        with pytest.raises(ClaimLost), board.working("anna", expiry=SHORT):
            eventually(cancelled, LIMIT)
        assert (job.state, job.attempts, job.error) == (SCHEDULED, 1, IN_VAIN)

    @pytest.mark.rule("A block of working() may be left in another thread or context.")
    def test_a_block_that_is_left_in_another_context(self, board: JobBoard) -> None:
        """As by a framework that enters and leaves it on threads of a pool."""
        job = board.post("resize")
        working = board.working("anna", timeout=0)
        contextvars.copy_context().run(working.__enter__)
        contextvars.copy_context().run(working.__exit__, None, None, None)
        assert job.state == COMPLETE

    @pytest.mark.rule("A second thread cannot enter a block of working() that still waits.")
    def test_block_is_entered_once_at_a_time(self, board: JobBoard) -> None:
        board.post_many([{"name": "a"}, {"name": "b"}])
        working = board.working("anna", timeout=0)
        with working as first, pytest.raises(RuntimeError, match="already"), working:
            pytest.fail("it was entered twice")
        with working as second:
            assert (first.name, second.name) == ("a", "b")
        with pytest.raises(NotFound):
            working.__enter__()
        assert board.job_count == 0

    @pytest.mark.rule("A second thread cannot enter a block of working() that still waits.")
    def test_thread_cannot_enter_a_block_in_use(self, board: JobBoard) -> None:
        """Be it that the first one still waits for a job."""
        working = board.working("anna", timeout=LONG)
        first = Waiter(board, working.__enter__)
        with pytest.raises(RuntimeError, match="already"):
            Background(working.__enter__).wait()
        job = board.post("resize")
        assert first.wait() == job
        working.__exit__(None, None, None)
        assert job.state == COMPLETE


class TestWorkingFunctions:
    def test_each_call_works_on_a_job(self, board: JobBoard) -> None:
        jobs = board.post_many([{"name": "resize", "details": {"n": n}} for n in range(2)])

        @board.working("anna", names=["resize"], timeout=0)
        def resize(job: Job, factor: int, *, plus: int = 0) -> int:
            "Makes it larger."
            assert board.find_owner(job) == "anna"
            assert not cancelled()
            return int(job.details["n"]) * factor + plus

        assert (resize(3), resize(3, plus=1)) == (0, 4)
        assert [job.state for job in jobs] == [COMPLETE, COMPLETE]
        assert (resize.__name__, resize.__doc__) == ("resize", "Makes it larger.")
        with pytest.raises(NotFound):
            resize(3)

    @pytest.mark.rule("A function that only promises its work is refused by working().")
    def test_functions_that_only_promise_to_work(self, board: JobBoard) -> None:
        async def coroutine(job: Job) -> None: ...

        class Resizer:
            def __init__(self, job: Job) -> None: ...

        with pytest.raises(TypeError, match="plain function"):
            board.working("anna")(coroutine)
        with pytest.raises(TypeError, match="instance that has __call__"):
            board.working("anna")(Resizer)
        job = board.post("resize")
        with pytest.raises(TypeError, match="generator"):
            board.working("anna")(lambda job: (n for n in range(3)))()
        assert job.state == SCHEDULED


class TestBooks:
    def test_loaded_when_asked_for(self, board: JobBoard, board_conf: dict[str, Any]) -> None:
        board.post("resize", Book())
        board.post("plain")
        persistence = Persistence()
        with jobboard.backend(board.name, board_conf, persistence=persistence) as mine:
            job, plain = mine.iterjobs()
            assert (job.book_name, job.book_uuid, plain.book_name) == ("log", "u1", None)
            assert persistence.asked == []
            assert job.book == job.book == "logbook u1"
            assert plain.book is None
            assert (persistence.asked, persistence.closed) == (["u1"], 1)
            taken = take(mine)
            assert taken.book == "logbook u1"


def test_claim_that_is_interrupted_before_its_job_is_made_comes_back(
    board: JobBoard, make_board: MakeBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = make_board(claim_ttl=HELD)
    job = board.post("resize")
    monkeypatch.setattr("jobboard.board.ClaimedJob", lambda *args: fail(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        mine.claim_next("anna")
    until_free(board, job)
