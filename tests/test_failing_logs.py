"""Filters and handlers of logs that raise: no thread of the library ends, and no job is held."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jobboard
from jobboard.aio import AsyncConductor, AsyncJobBoard
from jobboard.conductor import Conductor
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.heartbeat import Heartbeat
from jobboard.logs import Log
from jobboard.notifier import Notifier
from jobboard.testing import eventually
from tests.conftest import Runner
from tests.support import handlers
from tests.support.conductors import LATE, WAIT, Hanging, MakeBoard, Outage, errors_of, run_async

pytestmark = pytest.mark.backends("memory")

KINDS = ("threads", "processes", "coroutines")


class Failing(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tracebacks = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.tracebacks += record.exc_info is not None
        self.texts.append(record.getMessage())
        raise ZeroDivisionError("no space left")

    def met(self, text: str) -> int:
        return sum(text in each for each in self.texts)


@pytest.fixture(autouse=True)
def failing() -> Iterator[Failing]:
    failing = Failing()
    log = logging.getLogger("jobboard")
    level = log.level
    log.setLevel(logging.DEBUG)
    log.addHandler(failing)
    yield failing
    log.removeHandler(failing)
    log.setLevel(level)


def run(kind: str, board: jobboard.JobBoard, works: dict[str, Any], jobs: int, **more: Any) -> Any:
    """Run a conductor of a kind until its jobs are done, and return it."""
    more = {"max_simultaneous_jobs": 3, "retry": LATE, **more}
    if kind == "coroutines":
        conductor: Any = AsyncConductor("one", AsyncJobBoard(board), works, **more)
        assert errors_of(lambda: run_async(conductor, jobs)) == []
    else:
        conductor = Conductor("one", board, works, workers=kind, **more)  # type: ignore[arg-type]
        assert errors_of(lambda: conductor.run(jobs)) == []
    return conductor


@pytest.mark.parametrize("kind", KINDS)
def test_ends_are_handed_over(make_board: MakeBoard, failing: Failing, kind: str) -> None:
    board = make_board()
    board.post_many([{"name": "bad"}, {"name": "refused"}] + [{"name": "good"}] * 4)

    async def fail(job: jobboard.Job) -> None:
        handlers.fail(job)

    works = {"bad": fail if kind == "coroutines" else handlers.fail, "refused": handlers.refuse, "good": handlers.idle}
    tally = run(kind, board, works, 6).tally
    assert (tally.abandoned, tally.trashed, tally.consumed, tally.lost) == (1, 1, 4, 0)
    assert board.stats().claimed == 0
    assert (
        failing.met("raised ValueError") == failing.met("is to be tried again") == failing.met("is in the trash") == 1
    )


@pytest.mark.parametrize("kind", ["threads", "coroutines"])
def test_timeouts_are_kept_to(make_board: MakeBoard, failing: Failing, kind: str) -> None:
    board = make_board()
    jobs = board.post_many([{"name": "slow"}] * 3)
    lost: set[str] = set()

    def until_lost(job: jobboard.Job) -> None:
        eventually(lambda: job.claim.lost)
        lost.add(job.uuid)

    async def until_cancelled(job: jobboard.Job) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            assert job.claim.lost
            lost.add(job.uuid)

    slow = until_lost if kind == "threads" else until_cancelled
    tally = run(kind, board, {"slow": slow}, 3, job_timeout=0.1).tally
    assert (tally.abandoned, tally.lost) == (3, 0)
    for job in jobs:
        assert "was still at work after" in board.get(job.uuid).error
    eventually(lambda: lost == {job.uuid for job in jobs})
    assert failing.met("raised TimeoutError") == 3


def test_claims_and_ends_go_on_after_an_outage(
    make_board: MakeBoard, failing: Failing, start: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobboard.retry.OUTAGE_BASE", 0.01)
    board = make_board(retry_for=0)
    outage = Outage(board, monkeypatch, "take", "finish", "post_due")
    hanging = Hanging()
    conductor = start(Conductor("one", board, hanging))
    board.post("a")
    hanging.await_begin()
    outage.on = True
    board.wake()
    hanging.gate.set()
    for what in ("could not claim", "could not finish", "could not post due jobs"):
        eventually(lambda what=what: failing.met(what) > 1)  # type: ignore[misc]
    outage.on = False
    board.post("a")
    eventually(lambda: conductor.tally.consumed == 2)


def test_jobs_that_still_run_at_the_end_are_given_back(make_board: MakeBoard, failing: Failing, start: Runner) -> None:
    board, hanging = make_board(), Hanging()
    board.post_many([{"name": "a"}] * 2)
    conductor = start(Conductor("one", board, hanging, drain_timeout=0.2))
    hanging.await_begin(2)
    conductor.stop()
    assert conductor.wait(WAIT)
    hanging.gate.set()
    assert [(job.seen_state, job.attempts) for job in board.iterjobs()] == [("UNCLAIMED", 0)] * 2
    assert failing.met("has to end") == 2


def test_heartbeat_goes_on(failing: Failing) -> None:
    errors = [ConnectionFailure("away"), JobFailure("refused"), ValueError("a bug")]
    again = threading.Event()

    def beat() -> None:
        if errors:
            raise errors.pop()
        again.set()

    heartbeat = Heartbeat("it", beat, 0.01)
    heartbeat.start()
    assert again.wait(20)
    heartbeat.stop()
    assert failing.met("could not renew") == 3
    # Only an unexpected error has a traceback.
    assert failing.tracebacks == 1


def test_listeners_go_on(failing: Failing) -> None:
    heard = threading.Event()

    def broken(event: str, details: dict[str, Any]) -> None:
        raise ValueError("a bug")

    notifier = Notifier()
    notifier.register("POSTED", broken)
    notifier.register("CLAIMED", lambda event, details: heard.set())
    notifier.notify("POSTED", {})
    notifier.notify("CLAIMED", {})
    assert heard.wait(20)
    notifier.close()
    assert failing.met("listener") == 1


class TestLog:
    def test_error_of_a_handler_is_shown(self, capsys: pytest.CaptureFixture[str]) -> None:
        Log("jobboard.some").info("%s", "news")
        assert "ZeroDivisionError: no space left" in capsys.readouterr().err

    def test_error_is_not_shown_if_logging_shows_none(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(logging, "raiseExceptions", False)
        Log("jobboard.some").info("news")
        assert capsys.readouterr().err == ""

    def test_error_of_a_filter_is_shown(self, capsys: pytest.CaptureFixture[str]) -> None:
        def refuse(record: logging.LogRecord) -> bool:
            raise OSError("not this one")

        logger = logging.getLogger("jobboard.filtered")
        logger.addFilter(refuse)
        try:
            Log("jobboard.filtered").warning("news")
        finally:
            logger.removeFilter(refuse)
        assert "OSError: not this one" in capsys.readouterr().err

    @pytest.mark.parametrize("level", ["info", "exception"])
    def test_record_names_the_module_that_wrote_it(self, caplog: pytest.LogCaptureFixture, level: str) -> None:
        log = Log("elsewhere")
        with caplog.at_level(logging.INFO):
            tell: Callable[..., None] = getattr(log, level)
            tell("%s news", "bad", extra={"job": "its"})
        [record] = caplog.records
        assert (record.name, record.funcName) == ("elsewhere", "test_record_names_the_module_that_wrote_it")
        assert record.filename == "test_failing_logs.py"
        assert (record.getMessage(), vars(record)["job"]) == ("bad news", "its")
        assert bool(record.exc_info) == (level == "exception")
