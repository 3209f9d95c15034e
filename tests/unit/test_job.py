"""Jobs, claims and priorities as objects: what they compare by, show and know without a server."""

import datetime
import json
import pickle
import re
import uuid
from typing import Any

import pytest

from jobboard import arguments, runtime
from jobboard.codec import Content, decode
from jobboard.exceptions import JobFailure, JobFailures, NotFound
from jobboard.job import Claim, Job
from jobboard.priorities import JobPriority, rank_of
from jobboard.states import CLAIMED, SCHEDULED, Failure
from tests.support.jobs import make_draft


class Board:
    """Answers what a job asks, and remembers it."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def _extend(self, *args: Any, **further: Any) -> None:
        self.asked.append((*args, further) if further else args)

    _end = _extend

    def _decoded(self, posting: bytes) -> Content:
        self.asked.append(posting)
        return Content({"n": 1}, None, {"user": "anna"})


def make(uuid: str = "u", name: str = "n", priority: int = 100, sequence: int = 1, content: Any = None, **other) -> Job:
    draft = make_draft(uuid, name=name, priority=priority, posting=b"")
    record = draft.record(sequence, 1_500_000)._replace(**other)
    return Job(Board(), record, content or Content({}, None), record.state)


def test_priorities() -> None:
    assert [*map(str, JobPriority)] == ["VERY_HIGH", "HIGH", "NORMAL", "LOW", "VERY_LOW"]
    assert list(JobPriority) == [100, 50, 0, -50, -100]
    assert [rank_of(priority) for priority in JobPriority] == [0, 50, 100, 150, 200]
    for given in ("high", "HIGH", "High", b"high", JobPriority.HIGH, 50):
        assert JobPriority.convert(given) is JobPriority.HIGH
    assert (JobPriority("HIGH"), f"{JobPriority.HIGH}", json.dumps(JobPriority.HIGH)) == (50, "HIGH", "50")
    assert JobPriority.HIGH > JobPriority.NORMAL != "NORMAL"
    assert (pickle.loads(pickle.dumps(JobPriority.HIGH)), hash(JobPriority.HIGH)) == (JobPriority.HIGH, hash(50))
    assert [JobPriority.convert(given) for given in (-100, -99, 1, 99, 100)] == [-100, -99, 1, 99, 100]
    assert {f"{JobPriority.convert(51)}", repr(JobPriority.convert(51))} == {"51"}
    wrong = {ValueError: ("", "higher", "50", b"\xff", 101, -101, 2**70), TypeError: (True, False, 50.0, None, [50])}
    for kind, values in wrong.items():
        for given in values:
            way_out = re.escape(f"{given!r} is not a priority") if given != b"\xff" else "not a priority"
            with pytest.raises(kind, match=f"{way_out}.*-100 to 100.*VERY_HIGH, HIGH, NORMAL, LOW, VERY_LOW"):
                JobPriority.convert(given)


def test_reorder() -> None:
    pairs = [("low", "a"), (JobPriority.VERY_HIGH, "b"), ("LOW", "c"), ("normal", "d"), (1, "e"), (-50, "f")]
    assert JobPriority.reorder(*pairs) == ("b", "e", "d", "a", "c", "f")
    assert JobPriority.reorder(("low", "a")) == "a"
    assert JobPriority.reorder(("low", {}), ("high", {})) == ({}, {})  # the values are never compared
    with pytest.raises(ValueError, match="at least one"):
        JobPriority.reorder()
    with pytest.raises(ValueError, match="nonsense"):
        JobPriority.reorder(("nonsense", 1), ("low", 2))


def test_jobs_are_equal_by_uuid() -> None:
    assert make("a", "x") == make("a", "y")
    assert make("a") != make("b")
    assert make("a") != "a"
    assert len({make("a"), make("a"), make("b")}) == 2


def test_a_job_shows_the_fields_of_its_record() -> None:
    failure = Failure(1_500_000, "anna", 2, "e")
    job = make(key="k", attempts=2, max_attempts=3, errors=(Failure(0, None, 0, "d"), failure), group="g")
    assert (job.uuid, job.name, job.sequence, job.key, job.attempts, job.max_attempts) == ("u", "n", 1, "k", 2, 3)
    assert (job.error, job.priority, job.details, job.group) == ("e", JobPriority.NORMAL, {}, "g")
    assert (make().error, make().errors) == (None, ())
    assert (job.errors[-1], job.errors[-1].when) == (failure, job.created_on)
    assert job.created_on == datetime.datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=datetime.UTC)
    assert job.due is None
    later = make(state=SCHEDULED, lock_until=2_000_001)
    assert later.due == datetime.datetime(1970, 1, 1, 0, 0, 2, 1, tzinfo=datetime.UTC)
    assert make(state=CLAIMED, lock_until=2_000_001).due is None
    with pytest.raises(AttributeError):
        job.unknown = 1


@pytest.mark.rule("A job is shown by the label of its context, else by its name.")
def test_a_job_has_a_label() -> None:
    assert make(content=Content({}, None, {"label": "pictures.tasks.resize"})).label == "pictures.tasks.resize"
    assert {make(content=Content({}, None, context)).label for context in (None, {}, {"label": ""})} == {"n"}
    damaged = make(content=b"posting")
    damaged.board._decoded = lambda posting: decode(posting, "msgpack")
    assert damaged.label == "n"


def test_details_are_not_shown() -> None:
    job = make(content=Content({"password": "geheim"}, None))
    assert str(job) == "Job 'n' (u)"
    assert "geheim" not in repr(job)
    assert repr(job) == "<Job 'n' u NORMAL UNCLAIMED>"
    assert [repr(make(priority=rank)).split()[3] for rank in (0, 1, 150, 200, 201)] == [
        *("VERY_HIGH", "99", "LOW", "VERY_LOW", "VERY_LOW")
    ]


def test_what_was_posted_is_decoded_once_and_when_asked_for() -> None:
    job = make(content=b"posting")
    assert (job.uuid, job.board.asked) == ("u", [])
    assert (job.details, job.context, job.book_name) == ({"n": 1}, {"user": "anna"}, None)
    assert job.details is job.details
    assert job.board.asked == [b"posting"]
    job.context = {}
    assert job.context == {}


class TestClaim:
    def test_lost_by_its_own_clock(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Read from the clock at that moment: true after a SIGSTOP before any thread has run."""
        now = [100.0]
        monkeypatch.setattr(runtime, "boottime", lambda: now[0])
        claim = Claim(make(), 7, "anna", False, 105.0)
        assert (claim.lost, claim.expires_in()) == (False, 5.0)
        now[0] = 104.999
        assert not claim.lost
        now[0] = 105.0
        assert (claim.lost, claim.expires_in()) == (True, 0.0)
        assert ", lost" in repr(claim)
        claim.confirm(110.0, kept=True)
        assert (claim.lost, claim.expires_in()) == (True, 0.0)
        claim.confirm(110.0, kept=True, extended=True)
        assert (claim.lost, claim.expires_in(), claim.kept) == (False, None, True)
        now[0] = 110.0
        assert claim.lost
        claim.mark_ended()
        assert not claim.lost

    def test_the_boot_clock_goes_on_in_sleep(self) -> None:
        import time

        clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        assert runtime.boottime() == pytest.approx(time.clock_gettime(clock), abs=60)

    def test_extend_expiry_needs_a_claim(self) -> None:
        with pytest.raises(JobFailure, match="extend"):
            make().extend_expiry(5)


def test_errors_keep_their_cause() -> None:
    cause = ValueError("underneath")
    for kind in (JobFailure, NotFound):
        error = kind("message", cause)
        assert (error.message, error.cause, error.__cause__) == ("message", cause, cause)
        assert kind("message").cause is None
    many = JobFailures("2 of 3", [JobFailure("a"), NotFound("b")], cause)
    assert (many.message, many.cause) == ("2 of 3", cause)
    matched, rest = many.split(NotFound)
    assert isinstance(matched, JobFailures)
    assert [type(error) for error in rest.exceptions] == [JobFailure]


@pytest.mark.rule("The uuids of jobs that are posted together begin alike, and differ.")
def test_uuids_of_jobs_posted_together_begin_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobboard.runtime.wall_time", lambda: 1_700_000_000.07)
    made = {*arguments.new_uuids(100), *arguments.new_uuids(0)}
    assert len(made) == 100
    assert {each[:3] for each in made} == {"001"}
    assert {str(uuid.UUID(each)) for each in made} == made
    assert {uuid.UUID(each).version for each in made} == {4}
    assert {uuid.UUID(each).variant for each in made} == {uuid.RFC_4122}
    assert {len({each[n] for each in made}) > 1 for n in (3, 9, 15, 19, 24, 35)} == {True}
