"""What log records tell to machines."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

import jobboard
from jobboard.logs import fields
from jobboard.testing import eventually
from jobboard.testing.conformance.support import plant
from jobboard.testing.requests import ENDS, requests

MakeBoard = Callable[..., Any]
SECRET = "correct-horse-battery-staple"
FIELDS = {"job", "job_name", "who", "token"}

pytestmark = pytest.mark.backends("sqlite")


@pytest.fixture(autouse=True)
def everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "jobboard")


def told(record: logging.LogRecord) -> dict[str, Any]:
    """What a formatter that writes JSON finds in it."""
    assert SECRET not in f"{vars(record)} {record.exc_text}"
    return {name: value for name, value in vars(record).items() if name in FIELDS}


@pytest.mark.rule("Log records of jobs carry uuid, name, holder and token.")
def test_the_life_of_a_job(make_board: MakeBoard, caplog: pytest.LogCaptureFixture) -> None:
    board = make_board()
    job = board.post("resize", details={"password": SECRET})
    claimed = board.claim_next("anna")
    board.abandon(claimed, "anna", error="no time")
    token = claimed.claim.token
    again = board.claim_next("ben")
    # A handle tells of its own claim, though another has the job by now.
    assert (fields(claimed)["who"], fields(board.get(job.uuid))["who"]) == ("anna", "ben")
    board.consume(again, "ben")
    about = {"job": job.uuid, "job_name": "resize"}
    assert [(record.getMessage().rpartition(" ")[2], told(record)) for record in caplog.records] == [
        ("POSTED", about | {"who": None, "token": 0}),
        ("CLAIMED", about | {"who": "anna", "token": token}),
        ("ABANDONED", about | {"who": "anna", "token": token}),
        ("CLAIMED", about | {"who": "ben", "token": again.claim.token}),
        ("CONSUMED", about | {"who": "ben", "token": again.claim.token}),
        ("REMOVAL", about | {"who": "ben", "token": again.claim.token}),
    ]


@pytest.mark.rule("Log records of jobs carry uuid, name, holder and token.")
def test_failures_are_logged_with_their_job(make_board: MakeBoard, caplog: pytest.LogCaptureFixture) -> None:
    board = make_board()

    def broken(event: str, details: dict[str, Any]) -> None:
        raise ValueError("a bug")

    uuid = plant(board, '{"details": "' + SECRET)
    list(board.iterjobs())
    board.notifier.register("TRASHED", broken)
    assert board.claim_next("anna") is None
    eventually(lambda: any("listener" in record.getMessage() for record in caplog.records))
    warnings = [record for record in caplog.records if record.levelno > logging.INFO]
    grave = {record.getMessage().partition(":")[0]: told(record) for record in warnings}
    token = grave[f"Job 'poison' ({uuid}) goes to the trash"].pop("token")
    assert token > 0
    about = {"job": uuid, "job_name": "poison"}
    assert grave == {
        "skipped": about | {"who": None, "token": 0},
        f"Job 'poison' ({uuid}) goes to the trash": about | {"who": "anna"},
        "a listener of TRASHED failed": about | {"who": "anna", "token": token},
    }


def test_a_conductor(make_board: MakeBoard, caplog: pytest.LogCaptureFixture) -> None:
    board = make_board()

    def resize(job: jobboard.Job) -> None:
        raise jobboard.Reject("no picture") if job.attempts > 1 else ValueError("no room")

    job = board.post("resize", details={"password": SECRET})
    retry = jobboard.RetryPolicy(base=1e-6)
    jobboard.Conductor("worker", board, {"resize": resize}, retry=retry).run(max_dispatches=2)
    records = [record for record in caplog.records if record.name.startswith("jobboard.conductor")]
    assert [(record.levelname, record.getMessage().partition(f"{job} ")[2]) for record in records] == [
        ("INFO", "raised ValueError"),
        ("WARNING", "is to be tried again: ValueError: no room"),
        ("INFO", "raised Reject"),
        ("WARNING", "is in the trash: no picture"),
    ]
    tokens = [record.token for record in records]
    assert tokens[0] == tokens[1] < tokens[2] == tokens[3]
    assert {(record.job, record.job_name, record.who) for record in records} == {(job.uuid, "resize", "worker")}
    assert SECRET not in caplog.text


def test_a_job_that_is_given_back(make_board: MakeBoard, caplog: pytest.LogCaptureFixture) -> None:
    """One line tells of it, and not the error of an earlier failure."""
    board = make_board()
    job = board.post("resize")
    board.abandon(board.claim_next("anna"), "anna", error="no room")
    conductor = jobboard.Conductor("worker", board, lambda job: eventually(jobboard.cancelled), drain_timeout=0.2)
    conductor.notifier.register("job_started", lambda event, details: conductor.stop())
    conductor.run()
    assert f"worker gives {job} back, as it has to end" in caplog.text
    assert "is to be tried again" not in caplog.text


@pytest.mark.rule("A conductor names each job that it leaves behind in an outage.")
def test_jobs_that_are_left_behind(make_board: MakeBoard, caplog: pytest.LogCaptureFixture) -> None:
    """Which they are is what somebody will want to know after the outage."""
    board = make_board(retry_for=0)
    jobs = board.post_many([{"name": "resize"}] * 2)

    def gone(*args: Any, **kwargs: Any) -> None:
        raise jobboard.ConnectionFailure("the server is gone")

    with requests(board).around(ENDS, gone):
        jobboard.Conductor("worker", board, lambda job: None).run(max_dispatches=2)
    left = {record.job: record for record in caplog.records if record.levelno == logging.ERROR}
    assert set(left) == {job.uuid for job in jobs}
    assert all(record.getMessage().endswith("to be done again: the server is gone") for record in left.values())
