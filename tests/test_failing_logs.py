"""A program whose filters and handlers of logs raise: no thread ends of it, and no job is held for it."""

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
from tests.test_conductor import LATE, MakeBoard
from tests.test_conductor_trouble import Outage
from tests.test_conductor_unstarted import raised_by

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


def run(kind: str, board: jobboard.JobBoard, works: dict[str, Any], max_dispatches: int, **more: Any) -> Any:
    """A conductor that has run, on what its kind works with."""
    more = {"max_simultaneous_jobs": 3, "retry": LATE, **more}
    if kind != "coroutines":
        conductor = Conductor("one", board, works, workers=kind, **more)  # type: ignore[arg-type]
        assert raised_by(lambda: conductor.run(max_dispatches)) == []
        return conductor
    made: list[AsyncConductor] = []

    async def main() -> None:
        made.append(AsyncConductor("one", AsyncJobBoard(board), works, **more))
        await made[0].run(max_dispatches)

    assert raised_by(lambda: asyncio.run(main())) == []
    return made[0]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_done_is_handed_over(make_board: MakeBoard, failing: Failing, kind: str) -> None:
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


@pytest.mark.parametrize("kind", KINDS)
def test_each_timeout_is_kept_to(make_board: MakeBoard, failing: Failing, kind: str, tmp_path: Any) -> None:
    board = make_board()
    notes = str(tmp_path / "notes")
    jobs = board.post_many([{"name": "slow", "details": {"notes": notes}}] * 3)
    lost: list[str] = []

    def until_lost(job: jobboard.Job) -> None:
        eventually(lambda: job.claim.lost)
        lost.append(job.uuid)

    async def until_cancelled(job: jobboard.Job) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            assert job.claim.lost
            lost.append(job.uuid)

    slow = {"threads": until_lost, "coroutines": until_cancelled, "processes": handlers.until_lost}[kind]
    tally = run(kind, board, {"slow": slow}, 3, job_timeout=0.1).tally
    assert (tally.abandoned, tally.lost) == (3, 0)
    for job in jobs:
        assert "was still at work after" in board.get(job.uuid).error
    if kind != "processes":
        eventually(lambda: {*lost} == {job.uuid for job in jobs})
    assert failing.met("raised TimeoutError") == 3


@pytest.mark.parametrize("retry_for", [0, 0.2])
def test_claims_and_ends_go_on_after_an_outage(
    make_board: MakeBoard, failing: Failing, start: Runner, monkeypatch: pytest.MonkeyPatch, retry_for: float
) -> None:
    monkeypatch.setattr("jobboard.retry.OUTAGE_BASE", 0.01)
    board = make_board(retry_for=retry_for)
    outage = Outage(board, monkeypatch, "take", "finish", "post_due")
    begun, gate = threading.Event(), threading.Event()

    def work(job: jobboard.Job) -> None:
        begun.set()
        assert gate.wait(30)

    conductor = start(Conductor("one", board, work))
    board.post("a")
    assert begun.wait(30)
    outage.on = True
    board.wake()
    gate.set()
    for what in ("could not claim", "could not finish", "could not post due jobs"):
        eventually(lambda what=what: failing.met(what) > 1)  # type: ignore[misc]
    outage.on = False
    board.post("a")
    eventually(lambda: conductor.tally.consumed == 2)


def test_what_still_runs_at_the_end_is_given_back(make_board: MakeBoard, failing: Failing) -> None:
    board = make_board()
    jobs = board.post_many([{"name": "a"}] * 2)
    conductor = Conductor("one", board, lambda job: eventually(jobboard.cancelled), drain_timeout=0.2)
    threading.Thread(target=lambda: eventually(lambda: conductor.tally.dispatched == 2) and conductor.stop()).start()
    assert raised_by(conductor.run) == []
    assert [(board.get(job.uuid).seen_state, board.get(job.uuid).attempts) for job in jobs] == [("UNCLAIMED", 0)] * 2
    assert failing.met("has to end") == 2


def test_a_heartbeat_goes_on(failing: Failing) -> None:
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
    # A traceback tells of what nobody has foreseen alone.
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
    def test_it_shows_what_is_raised(self, capsys: pytest.CaptureFixture[str]) -> None:
        Log("jobboard.some").info("%s", "news")
        assert "ZeroDivisionError: no space left" in capsys.readouterr().err

    def test_unless_errors_of_logs_are_not_to_be_shown(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(logging, "raiseExceptions", False)
        Log("jobboard.some").info("news")
        assert capsys.readouterr().err == ""

    def test_a_filter(self, capsys: pytest.CaptureFixture[str]) -> None:
        def refuse(record: logging.LogRecord) -> bool:
            raise OSError("not this one")

        logger = logging.getLogger("jobboard.filtered")
        logger.addFilter(refuse)
        try:
            Log("jobboard.filtered").warning("news")
        finally:
            logger.removeFilter(refuse)
        assert "OSError: not this one" in capsys.readouterr().err

    @pytest.mark.parametrize("level", ["info", "warning", "error", "exception"])
    def test_a_record_names_who_has_written_it(self, caplog: pytest.LogCaptureFixture, level: str) -> None:
        log = Log("elsewhere")
        with caplog.at_level(logging.INFO):
            tell: Callable[..., None] = getattr(log, level)
            tell("%s news", "bad", extra={"job": "its"})
        [record] = caplog.records
        assert (record.name, record.funcName) == ("elsewhere", "test_a_record_names_who_has_written_it")
        assert record.filename == "test_failing_logs.py"
        assert (record.getMessage(), vars(record)["job"]) == ("bad news", "its")
        assert bool(record.exc_info) == (level == "exception")
