"""Filters and handlers of logs that raise: they end no thread of the library, as its loggers let no error through."""

import logging
import pkgutil
from collections.abc import Callable, Iterator
from importlib import import_module

import pytest

import jobboard.aio
import jobboard.conductor
from jobboard.conductor import Conductor
from jobboard.logs import Log
from tests.support.conductors import MakeBoard, errors_of

pytestmark = pytest.mark.backends("memory")

MODULES = [
    *(f"jobboard.{each.name}" for each in pkgutil.iter_modules(jobboard.__path__) if not each.ispkg),
    *(f"jobboard.aio.{each.name}" for each in pkgutil.iter_modules(jobboard.aio.__path__)),
    *(f"jobboard.conductor.{each.name}" for each in pkgutil.iter_modules(jobboard.conductor.__path__)),
]
"""Modules whose threads hold claims: a failing log may end none of them."""


@pytest.mark.rule("A failing log costs no claim, no end and no timeout.")
def test_modules_whose_threads_hold_claims_log_without_harm() -> None:
    logs = {name: module.LOG for name in MODULES if hasattr(module := import_module(name), "LOG")}
    assert {"jobboard.board", "jobboard.conductor.conductor", "jobboard.heartbeat", "jobboard.notifier"} <= logs.keys()
    assert [name for name, log in logs.items() if not isinstance(log, Log)] == []


@pytest.fixture
def failing() -> Iterator[logging.Logger]:
    """A logger with a failing handler."""

    class Failing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise ZeroDivisionError("no space left")

    logger, handler = logging.getLogger("jobboard.failing"), Failing()
    logger.addHandler(handler)
    yield logger
    logger.removeHandler(handler)


@pytest.mark.rule("A failing log costs no claim, no end and no timeout.")
@pytest.mark.rule("A filter or handler that fails in a log costs nothing, and its error is shown.")
@pytest.mark.parametrize("shown", [True, False])
def test_error_of_a_handler_is_shown_as_logging_shows_its_own(
    failing: logging.Logger, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, shown: bool
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", shown)
    Log(failing.name).warning("%s", "news")
    assert ("ZeroDivisionError: no space left" in capsys.readouterr().err) == shown


@pytest.mark.rule("A filter or handler that fails in a log costs nothing, and its error is shown.")
def test_error_of_a_filter_is_shown(failing: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(record: logging.LogRecord) -> bool:
        raise OSError("not this one")

    failing.addFilter(refuse)
    try:
        Log(failing.name).warning("news")
    finally:
        failing.removeFilter(refuse)
    assert "OSError: not this one" in capsys.readouterr().err


def test_handler_that_exits_ends_the_main_thread_alone(failing: logging.Logger, make_board: MakeBoard) -> None:
    """The end of a conductor's thread would leave its claims to nobody."""

    def leave(record: logging.LogRecord) -> bool:
        raise SystemExit(record.getMessage())

    failing.addFilter(leave)
    with pytest.raises(SystemExit, match="news"):
        Log(failing.name).warning("news")
    failing.removeFilter(leave)
    board, log = make_board(), logging.getLogger("jobboard.conductor.finisher")
    board.post_many([{"name": "a", "max_attempts": 1}] * 2)
    conductor = Conductor("one", board, lambda job: 1 / 0)
    log.addFilter(leave)
    try:
        assert errors_of(lambda: conductor.run(2)) == []
    finally:
        log.removeFilter(leave)
    assert conductor.tally.trashed == 2


@pytest.mark.rule("A log record names the module that wrote it.")
@pytest.mark.parametrize("level", ["info", "exception"])
def test_record_names_the_module_that_wrote_it(caplog: pytest.LogCaptureFixture, level: str) -> None:
    log = Log("elsewhere")
    with caplog.at_level(logging.INFO):
        tell: Callable[..., None] = getattr(log, level)
        tell("%s news", "bad", extra={"job": "its"})
    [record] = caplog.records
    assert (record.name, record.funcName) == ("elsewhere", "test_record_names_the_module_that_wrote_it")
    assert record.filename == "test_failing_logs.py"
    assert (record.getMessage(), vars(record)["job"]) == ("bad news", "its")
    assert bool(record.exc_info) == (level == "exception")
