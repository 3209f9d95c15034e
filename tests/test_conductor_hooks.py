"""What a conductor tells, what may be put around its handlers, and how its retries are set."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest

import jobboard
from jobboard.conductor import Conductor
from jobboard.conductor.events import EVENTS
from jobboard.outcomes import RetryPolicy
from jobboard.states import TRASHED
from jobboard.testing import eventually
from tests.conftest import Runner
from tests.test_conductor import LATE, MakeBoard

pytestmark = pytest.mark.backends("memory")


def listening(conductor: Conductor) -> list[tuple[str, dict[str, Any]]]:
    heard: list[tuple[str, dict[str, Any]]] = []
    conductor.notifier.register("*", lambda event, details: heard.append((event, details)))
    return heard


def fail(error: BaseException) -> None:
    raise error


def release(job: jobboard.Job) -> None:
    """By another, so that its holder hears of it only as it ends."""
    with jobboard.backend(job.board.name, "memory") as other:
        other.release(other.get(job.uuid))


def not_yet(job: jobboard.Job) -> None:
    raise jobboard.Retry("not yet", delay=0)


@pytest.mark.parametrize(
    ("handler", "told"),
    [
        (lambda job: None, "claimed started finished consumed"),
        (lambda job: fail(ValueError("broken")), "claimed started finished failed abandoned"),
        (lambda job: fail(jobboard.Retry("later")), "claimed started finished abandoned"),
        (lambda job: fail(jobboard.Reject("never")), "claimed started finished trashed"),
        (lambda job: job.board.release(job), "claimed started finished lost"),
        (lambda job: [release(job), fail(ValueError("too late"))], "claimed started finished failed lost"),
    ],
    ids=["done", "failed", "retry", "reject", "lost", "failed and lost"],
)
def test_what_is_told(make_board: MakeBoard, handler: Callable[[Any], object], told: str) -> None:
    board = make_board()
    job = board.post("a")
    conductor = Conductor("one", board, handler)
    heard = listening(conductor)
    conductor.run(1)
    assert [event for event, _ in heard] == [f"job_{word}" for word in told.split()]
    assert {event for event, _ in heard} <= EVENTS
    assert all(details["job"] == job for _, details in heard)
    finished = dict(heard)["job_finished"]
    assert finished["seconds"] >= 0
    assert (finished["error"] is None) == (
        told in ("claimed started finished consumed", "claimed started finished lost")
    )


def test_a_handler_that_stops_because_its_claim_is_lost_has_not_failed(make_board: MakeBoard) -> None:
    board = make_board()
    board.post("a")

    def handler(job: jobboard.Job) -> None:
        job.board.release(job)
        with contextlib.suppress(jobboard.ClaimLost):
            job.claim.extend()
        assert not jobboard.cancelled(), "stopped"

    conductor = Conductor("one", board, handler)
    heard = listening(conductor)
    conductor.run(1)
    assert [event for event, _ in heard] == ["job_claimed", "job_started", "job_finished", "job_lost"]


def test_only_events_that_there_are(make_board: MakeBoard) -> None:
    conductor = Conductor("one", make_board(), print)
    with pytest.raises(ValueError, match="job_claimed"):
        conductor.notifier.register("CLAIMED", print)


def test_on_error(make_board: MakeBoard, caplog: pytest.LogCaptureFixture) -> None:
    board = make_board()
    board.post_many([{"name": "bad"}, {"name": "good"}, {"name": "later"}])
    called: list[tuple[str, BaseException]] = []

    def on_error(job: jobboard.Job, error: BaseException) -> None:
        called.append((job.name, error))
        raise RuntimeError("the hook itself")

    conductor = Conductor("one", board, on_error=on_error, max_simultaneous_jobs=1)
    conductor.handles("bad")(lambda job: fail(ValueError("broken")))
    conductor.handles("good")(lambda job: None)
    conductor.handles("later")(lambda job: fail(jobboard.Retry()))
    conductor.run(3)
    [(name, error)] = called
    assert (name, type(error), str(error)) == ("bad", ValueError, "broken")
    assert conductor.tally.abandoned == 2
    assert conductor.tally.consumed == 1
    assert "the hook itself" in caplog.text
    with pytest.raises(TypeError, match="on_error"):
        Conductor("one", board, on_error=7)  # type: ignore[arg-type]

    async def coroutine(job: jobboard.Job, error: BaseException) -> None: ...

    with pytest.raises(TypeError, match="on_error must be a plain function"):
        Conductor("one", board, on_error=coroutine)


def test_a_bad_listener_harms_nothing(make_board: MakeBoard, caplog: pytest.LogCaptureFixture) -> None:
    board = make_board()
    board.post_many([{"name": "a"}] * 5)
    conductor = Conductor("one", board, lambda job: None)
    conductor.notifier.register("*", lambda event, details: fail(RuntimeError("bad listener")))
    heard = listening(conductor)
    conductor.run(5)
    assert conductor.tally.consumed == 5
    assert len(heard) == 20
    assert "bad listener" in caplog.text


def test_wrappers_are_around_the_handler(make_board: MakeBoard) -> None:
    board = make_board()
    board.post("a")
    seen: list[str] = []
    thread: list[int] = []
    conductor = Conductor("one", board, lambda job: (seen.append("handler"), thread.append(threading.get_ident())))

    def wrapper(name: str) -> Any:
        @contextlib.contextmanager
        def context(job: jobboard.Job) -> Iterator[None]:
            thread.append(threading.get_ident())
            seen.append(f"{name} begins {job.name}")
            try:
                yield
            finally:
                seen.append(f"{name} ends")

        return context

    conductor.wraps(wrapper("outer"))
    conductor.wraps(wrapper("inner"))
    conductor.run(1)
    assert seen == ["outer begins a", "inner begins a", "handler", "inner ends", "outer ends"]
    assert len(set(thread)) == 1
    with pytest.raises(TypeError, match="wraps"):
        conductor.wraps(7)  # type: ignore[type-var]


def test_an_error_of_a_wrapper_is_one_of_the_handler(make_board: MakeBoard) -> None:
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


def test_a_retry_policy_of_its_own(make_board: MakeBoard) -> None:
    board = make_board()
    jobs = {name: board.post(name) for name in ("usual", "own", "later")}
    conductor = Conductor("one", board, retry=RetryPolicy(base=100))
    conductor.handles("usual")(lambda job: 1 / 0)
    conductor.handles("own", "later", retry=RetryPolicy(base=1000, cap=700))(
        lambda job: fail(jobboard.Retry()) if job.name == "later" else 1 / 0
    )
    conductor.run(3)
    for name, (least, most) in {"usual": (50, 100), "own": (350, 700), "later": (350, 700)}.items():
        jobs[name] = board.get(jobs[name].uuid)
        assert least <= (jobs[name].due - jobs[name].last_modified).total_seconds() <= most


@pytest.mark.parametrize("error", [ValueError("broken"), jobboard.Retry("broken", delay=0, count=True)])
def test_a_policys_last_attempt(make_board: MakeBoard, start: Runner, error: Exception) -> None:
    board = make_board()
    board.post("a")
    runs: list[int] = []
    conductor = Conductor("one", board)

    @conductor.handles("a", retry=RetryPolicy(base=1e-6, max_attempts=3))
    def handler(job: jobboard.Job) -> None:
        runs.append(job.attempts)
        raise error

    start(conductor)
    eventually(lambda: conductor.tally.trashed == 1)
    [job] = board.trashed()
    assert runs == [1, 2, 3]
    assert "broken" in job.error


@pytest.mark.parametrize("workers", ["threads", "processes"])
def test_retries_use_up_no_attempts(
    make_board: MakeBoard, start: Runner, workers: Literal["threads", "processes"]
) -> None:
    board = make_board()
    job = board.post("a", max_attempts=1)
    conductor = Conductor("one", board, {"a": not_yet}, workers=workers, retry=RetryPolicy(max_retries=2))
    start(conductor)
    eventually(lambda: conductor.tally.trashed == 1)
    assert conductor.tally.abandoned == 2
    assert (job.state, job.attempts, job.retries, job.error) == (TRASHED, 1, 2, "not yet")


@pytest.mark.parametrize("timeout", [None, 0.1])
def test_a_policy_that_raises(
    make_board: MakeBoard, start: Runner, monkeypatch: pytest.MonkeyPatch, timeout: float | None
) -> None:
    monkeypatch.setattr("jobboard.outcomes.USUAL", RetryPolicy(base=1000))

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

    start(conductor)
    eventually(lambda: conductor.tally.abandoned == 3)
    good.post()
    eventually(lambda: conductor.tally.consumed == 1)
    for job in jobs:
        assert "no such delay" in board.get(job.uuid).error


def test_policies_that_are_none(make_board: MakeBoard) -> None:
    for wrong in ({"base": 0}, {"cap": -1}, {"max_attempts": 0}, {"max_retries": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            RetryPolicy(**wrong)
    with pytest.raises(TypeError, match="RetryPolicy"):
        Conductor("one", make_board(), print, retry=3)  # type: ignore[arg-type]


def test_a_conductor_that_has_ended_is_shown_no_longer(make_board: MakeBoard, start: Runner) -> None:
    board = make_board()
    board.register_entity(jobboard.Entity("conductor", "other"))
    conductor = start(Conductor("one", board, {"b": print, "a": print}, max_simultaneous_jobs=3))
    eventually(lambda: len(board.entities("conductor")) == 2)
    [entity] = [each for each in board.entities() if each.name == "one"]
    assert entity.metadata["slots"] == 3
    assert entity.metadata["started"].endswith("+00:00")
    conductor.stop()
    assert conductor.wait(30)
    assert [each.name for each in board.entities()] == ["other"]


@pytest.mark.backends("memory", "sqlite")
def test_more_names_than_can_be_shown(make_board: MakeBoard, start: Runner) -> None:
    """Be it that they are as long as can be, and those of jobs that may have next to no details."""
    board = make_board(max_details=2)
    last = board.post("z")
    conductor = Conductor("one", board, {f"{number:04}" + "🎉" * 251: print for number in range(2000)} | {"z": print})
    start(conductor)
    eventually(lambda: conductor.tally.consumed == 1)
    assert last.state == "COMPLETE"
    [entity] = board.entities("conductor")
    assert [name[:4] for name in entity.metadata["names"]] == [f"{number:04}" for number in range(60)]
    assert entity.metadata["other_names"] == 1941


@pytest.mark.backends("memory")
def test_one_that_can_not_be_shown_works(
    make_board: MakeBoard, start: Runner, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(entity: object) -> None:
        raise ValueError("too much")

    board = make_board()
    monkeypatch.setattr(board, "register_entity", refuse)
    board.post_many([{"name": "a"}] * 3)
    conductor = start(Conductor("one", board, lambda job: None, max_simultaneous_jobs=1))
    eventually(lambda: conductor.tally.consumed == 3)
    assert caplog.text.count("too much") == 1
