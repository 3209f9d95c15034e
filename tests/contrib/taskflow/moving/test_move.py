"""``jobboard move`` from TaskFlow's own boards."""

from __future__ import annotations

import datetime
import itertools
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from taskflow.jobs.base import JobPriority

import jobboard
from jobboard.board import JobBoard
from jobboard.cli import main
from jobboard.contrib.taskflow.encoding import decode_details
from jobboard.contrib.taskflow.source.store import Folder
from jobboard.exceptions import ConnectionFailure, UnclaimableJob
from jobboard.moving import Mover, survey
from jobboard.primitives import Finish
from jobboard.states import COMPLETE, OK, TRASHED, UNCLAIMED, Status, Verb
from tests.contrib.taskflow.moving.origins import Origin, origin_of

DONE, FAILED, USAGE, UNREACHABLE = range(4)
BOOK = SimpleNamespace(name="book", uuid=str(uuid.uuid4()))
PRIORITIES = [JobPriority.LOW, JobPriority.VERY_HIGH, JobPriority.NORMAL, JobPriority.VERY_LOW, JobPriority.HIGH]

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def target(tmp_path: Path) -> Iterator[JobBoard]:
    board: JobBoard = jobboard.fetch("jobboard", f"sqlite:///{tmp_path}/target.db")
    board.connect()
    yield board
    board.close()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], origin: Origin, tmp_path: Path) -> Run:
    def call(*args: str, source: str = origin.uri) -> tuple[int, str, str]:
        capsys.readouterr()
        return main(["move", source, f"sqlite:///{tmp_path}/target.db", *args]), *capsys.readouterr()

    return call


def move(origin: Origin, target: JobBoard, **options: Any) -> list[str]:
    """Move jobs, and return the reasons of those that are left."""
    return [left.why for left in Mover(origin.source(), target).run(**options).left]


def test_waiting_jobs_move_in_their_order(origin: Origin, target: JobBoard) -> None:
    before = datetime.datetime.now(datetime.UTC)
    posted = [
        origin.posts.post(f"{number}", details={"n": number, "é": [None, {"a": 0.5}]}, priority=priority, book=BOOK)
        for number in range(3)
        for priority in PRIORITIES
    ]
    plain = origin.posts.post("plain")
    after = datetime.datetime.now(datetime.UTC)
    assert move(origin, target) == []
    assert origin.jobs() == []
    order = ["VERY_HIGH", "HIGH", "NORMAL", "LOW", "VERY_LOW"]
    expected = [job for name in order for job in [*posted, plain] if job.priority.value == name]
    found = list(target.iterjobs())
    assert [job.uuid for job in found] == [job.uuid for job in expected]
    for job, theirs in zip(found, expected, strict=True):
        assert (job.name, job.details) == (theirs.name, theirs.details)
        assert (job.book_name, job.book_uuid) == ((None, None) if theirs == plain else (BOOK.name, BOOK.uuid))
        assert str(jobboard.JobPriority.convert(job.priority)) == theirs.priority.value
        assert (job.attempts, job.seen_state) == (0, UNCLAIMED)
        # ZooKeeper knows milliseconds.
        assert before - datetime.timedelta(milliseconds=1) <= job.created_on <= after
    claimed = target.claim_many("worker", 100)
    target.consume_many(claimed, "worker")
    assert [job.uuid for job in claimed] == [job.uuid for job in expected]
    assert move(origin, target) == []
    assert target.job_count == 0
    assert list(target.trashed()) == []


@pytest.mark.rule("Details that JSON cannot say come over from TaskFlow's boards.")
@pytest.mark.kinds("redis")
def test_details_that_json_cannot_hold_move(origin: Origin, target: JobBoard) -> None:
    details = {
        "on": datetime.datetime(2026, 11, 22, 12, 0, 1),  # noqa: DTZ001 - as TaskFlow's are
        "set": {1, "a"},
        "id": uuid.UUID(int=5),
        "raw": b"\xff",
        "by number": {1: "one"},
        "large": 2**64 - 1,
    }
    origin.posts.post("odd", details=details)
    assert move(origin, target) == []
    [job] = target.iterjobs()
    assert decode_details(job.details) == details


def test_the_trash_moves(origin: Origin, target: JobBoard) -> None:
    jobs = [origin.posts.post(f"{number}", details={"n": number}) for number in range(3)]
    for job in jobs:
        origin.trash(job)
    assert move(origin, target, trash=False) == []
    assert list(target.trashed()) == []
    result = Mover(origin.source(), target).run()
    assert (result.moved, result.trashed, result.left) == (0, 3, [])
    found = list(target.trashed())
    assert [(job.uuid, job.name, job.details) for job in found] == [
        (job.uuid, job.name, job.details) for job in jobs[::-1]
    ]
    target.restore(found[0])
    assert target.claim_next("worker") == found[0]
    assert Mover(origin.source(), target).run().trashed == 0


@pytest.mark.rule("Claimed jobs of TaskFlow's boards stay and are named in a move.")
def test_claimed_jobs_stay_and_are_named(origin: Origin, target: JobBoard, run: Run) -> None:
    job, other = origin.posts.post("one"), origin.posts.post("two")
    origin.claim(job, "anna")
    status, out, err = run()
    board = {"redis": origin.path, "zookeeper": f"/{origin.path}/jobs", "etcd": f"{origin.path}/jobs"}[origin.kind]
    assert (status, out) == (FAILED, f"TaskFlow's board '{board}': 1 moved, and 0 in the trash.\n")
    assert err == f"1 left:\n  Job 'one' ({job.uuid}): claimed by anna\n"
    assert [each.uuid for each in target.iterjobs()] == [other.uuid]
    # It is the conductor's still.
    origin.consume(job, "anna")
    assert run() == (DONE, f"There was nothing to move on {origin.source()}.\n", "")


def test_damaged_postings_stay_as_they_are(origin: Origin, target: JobBoard) -> None:
    broken, damaged, fine = (origin.posts.post(name) for name in ("broken", "damaged", "fine"))
    places = [origin.place_of(job) for job in (broken, damaged)]
    origin.posts.close()
    whole = origin.read(places[1])
    assert whole is not None
    odd = whole.replace(damaged.uuid.encode(), b"no uuid".ljust(36))
    for place, raw in zip(places, (b"\xc1?", odd), strict=True):
        origin.write(place, raw)
    left = Mover(origin.source(), target).run().left
    assert all("can't be moved" in each.why for each in left)
    assert len(left) == 2
    assert [job.uuid for job in target.iterjobs()] == [fine.uuid]
    assert [origin.read(place) for place in places] == [b"\xc1?", odd]
    origin.write(places[1], whole)
    assert len(move(origin, target)) == 1
    assert [job.uuid for job in target.iterjobs()] == [fine.uuid, damaged.uuid]


def test_a_dry_run_changes_nothing(origin: Origin, run: Run, tmp_path: Path) -> None:
    jobs = [origin.posts.post("job") for _ in range(4)]
    origin.trash(jobs[0])
    origin.claim(jobs[1])
    (tmp_path / "target.db").unlink(missing_ok=True)
    status, out, err = run("--dry-run")
    assert (status, "2 would be moved, and 1 in the trash." in out) == (FAILED, True)
    assert "claimed by conductor" in err
    assert not (tmp_path / "target.db").exists()
    source = origin.source()
    assert source.trash_page(None, 10) == [source.read([jobs[0].uuid])[0].record]
    assert source.read([jobs[0].uuid])[0].state == TRASHED
    assert len(origin.jobs()) == 3
    assert survey(origin.source(), "json", trash=False).trashed == 0


def test_no_job_is_lost_to_a_claim_that_comes_first(origin: Origin, target: JobBoard) -> None:
    """A conductor takes a job whose copy is at the target already."""
    job = origin.posts.post("job")
    source = origin.source()
    depart = source._store.depart
    source._store.depart = lambda leaving: (origin.claim(job), depart(leaving))[1]  # type: ignore[method-assign]
    [left] = Mover(source, target).run().left
    assert left.why == "claimed by conductor"
    with pytest.raises(UnclaimableJob):
        target.claim(target.get(job.uuid), "worker")
    origin.consume(job, "conductor")
    assert move(origin, target) == []
    assert target.job_count == 0


def test_a_moved_job_cannot_be_claimed_at_the_source(origin: Origin, target: JobBoard) -> None:
    job = origin.posts.post("job")
    conductors = origin.board()
    [theirs] = conductors.iterjobs(ensure_fresh=True)
    assert move(origin, target) == []
    # TaskFlow's boards say so by several errors.
    with pytest.raises(Exception, match=r"not found|already deleted|unknown job"):
        conductors.claim(theirs, "conductor")
    assert target.claim_next("worker") == target.get(job.uuid)


def test_the_note_of_a_run_stays(origin: Origin, target: JobBoard) -> None:
    """A copy of its may come to light later."""
    origin.posts.post("job")
    mover = Mover(origin.source(), target)
    mover.run()
    source = origin.source()
    assert source.read([mover._run])[0].state == TRASHED
    assert source.read([str(uuid.uuid4())])[0].state == COMPLETE
    assert source.trash_page(None, 10) == []


@pytest.mark.rule("An earlier try of a departure is known by its note alone.")
def test_a_job_that_goes_while_it_is_read_is_not_taken_for_finished(origin: Origin) -> None:
    job = origin.posts.post("job")
    source, other = origin.source(), origin.source()
    assert source.read([job.uuid])[0].state == UNCLAIMED
    read = source._store.read

    def gone(folder: Folder, places: Any = None) -> Any:
        if folder is Folder.JOBS:
            source._store.read = read  # type: ignore[method-assign]
            [seen] = other.page(None, 10)
            assert seen.record is not None
            assert other.finish([Finish.of_seen(seen.record, Verb.CANCEL, "gone")]) == [OK]
        return read(folder, places)

    source._store.read = gone  # type: ignore[method-assign]
    [seen] = source.read([job.uuid])
    assert seen.state == TRASHED
    assert seen.record is not None
    assert seen.record.error == "gone"
    assert other.finish([Finish.of_seen(seen.record, Verb.CANCEL, "again")]) == [Status.ABSENT]


def test_more_than_a_page(origin: Origin, target: JobBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobboard.moving.origin.PAGE", 10)
    monkeypatch.setattr("jobboard.moving.mover.BATCH", 4)
    posted = [origin.posts.post("job", priority=PRIORITIES[number % 2]).uuid for number in range(34)]
    moved: list[int] = []
    assert Mover(origin.source(), target, moved.append).run().moved == sum(moved) == 34
    assert [job.uuid for job in target.iterjobs()] == posted[1::2] + posted[::2]


def test_a_board_beside_it_is_left_alone(origin: Origin, target: JobBoard) -> None:
    """With a path below that of the board, or with names alike."""
    origin.posts.post("ours")
    other = Origin.__new__(Origin)
    other.__dict__.update(origin.__dict__)
    # No digit, which would make it the board of a later test.
    separator = {"redis": "b", "zookeeper": "/job", "etcd": "/job"}[origin.kind]
    option = "namespace" if origin.kind == "redis" else "path"
    other._conf = {**origin._conf, option: origin._conf[option] + separator}
    theirs = other.board()
    theirs.post("theirs")
    assert move(origin, target) == []
    assert [job.name for job in target.iterjobs()] == ["ours"]
    assert [job.name for job in theirs.iterjobs(ensure_fresh=True)] == ["theirs"]


def test_a_wrong_move_changes_nothing(origin: Origin, run: Run) -> None:
    origin.posts.post("job")
    base = origin.uri.partition("?")[0]
    elsewhere = f"{base}?namespace=nobody" if origin.kind == "redis" else f"{base}/nobody"
    port = origin.uri.split(":")[2].split("/")[0].split("?")[0]
    for source, status, words in [
        (elsewhere, FAILED, "nothing is there"),
        (f"{base}?namespce=x", USAGE, "namespce"),
        ("taskflow+sqlite:///x", USAGE, "taskflow+redis"),
        (f"{origin.uri.replace(port, '1')}&retry_for=0".replace("?&", "?"), UNREACHABLE, "can't be reached"),
    ]:
        ended, out, err = run(source=source)
        assert (ended, out) == (status, ""), source
        assert words in err
    assert len(origin.jobs()) == 1


@pytest.mark.kinds("redis")
def test_a_password_is_not_shown(run: Run) -> None:
    ended, _, err = run(source="taskflow+redis://me:s3cret@127.0.0.1:1?retry_for=0")
    assert ended == UNREACHABLE
    assert "s3cret" not in err


@pytest.mark.kinds("redis")
def test_a_missing_taskflow_is_named(origin: Origin, tmp_path: Path) -> None:
    program = "import sys; sys.modules['taskflow'] = None; from jobboard.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "move", origin.uri, f"sqlite:///{tmp_path}/other.db"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ})
    assert ended.returncode == FAILED
    assert "[taskflow]" in ended.stderr


def test_a_move_goes_on_after_an_outage(origin: Origin, target: JobBoard, private_server: Callable[[str], Any]) -> None:
    server = private_server(origin.kind)
    with origin_of(origin.kind, server.uri) as there:
        jobs = [there.posts.post("job").uuid for _ in range(5)]
        source = there.source("&retry_for=60")
        depart = source._store.depart
        tries = itertools.count()

        def broken(leaving: Any) -> Any:
            answer = depart(leaving)
            if next(tries) == 0:
                server.kill()
                server.start()
                # Done, and asked for once more.
                raise ConnectionFailure("the reply was lost", outcome="unknown")
            return answer

        source._store.depart = broken  # type: ignore[method-assign]
        result = Mover(source, target).run()
    assert (result.moved, result.left) == (5, [])
    assert [job.uuid for job in target.iterjobs()] == jobs
