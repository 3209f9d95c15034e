"""Schedules: one job for each due time, whoever posts it, and whatever goes wrong meanwhile."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from jobboard.board import JobBoard
from jobboard.engine import StoredSchedule
from jobboard.exceptions import ConnectionFailure, NotFound
from jobboard.job import Job
from jobboard.notifier import POSTED
from jobboard.priorities import JobPriority
from jobboard.states import moment
from jobboard.testing import eventually, holds
from jobboard.testing.conformance.harness import Harness
from jobboard.testing.conformance.support import LIMIT, LONG, PATIENCE, EventLog, MakeBoard, Waiter, take, uuids
from jobboard.testing.puppet import Puppet

SECOND = 1_000_000

MINUTE = 60 * SECOND


def put_back(board: JobBoard, schedule: str, seconds: float) -> datetime:
    """Let a schedule have been due for so long; its due time."""

    def make(now: int, before: StoredSchedule | None) -> StoredSchedule:
        assert before is not None
        return before._replace(due=now - int(seconds * 1e6))

    entry = Harness(board).calls.set_schedule(schedule, make)
    assert entry is not None
    return moment(entry.due)


def due_times(board: JobBoard) -> list[datetime]:
    """Return the due times of the jobs on the board."""
    return [job.schedule[1] for job in board.iterjobs(ensure_fresh=True) if job.schedule is not None]


def one_for_each_by_the_servers_clock(board: JobBoard, astray: Puppet) -> None:
    """The clock of another process does not matter."""
    mine = board.schedule("mine", name="report", every=LONG)
    theirs = datetime.fromisoformat(astray("schedule", "theirs", name="report", every=LONG))
    assert abs(theirs - mine.next_due) < timedelta(seconds=60)
    assert astray("post_due") == pytest.approx(LONG, abs=60)
    assert due_times(board) == []
    due = put_back(board, "mine", 1)
    astray("post_due")
    assert due_times(board) == [due]
    board.post_due()
    assert due_times(board) == [due]


class TestSchedules:
    any_driver = True

    def test_schedule_is_set_shown_replaced_and_removed(self, board: JobBoard, other: JobBoard) -> None:
        assert board.schedules() == []
        odd = list(board.examine())
        nightly = board.schedule(
            "nightly",
            "30 3 * * *",
            "report",
            details={"secret": "ä"},
            priority="HIGH",
            key="k",
            max_attempts=3,
            group="g",
            context={"trace": "secret"},
            tz="Europe/Berlin",
            missed="all",
        )
        ping = board.schedule("a ping", name="ping", every=timedelta(minutes=10))
        for each in (board, other):
            assert each.schedules() == [ping, nightly]
        told = (nightly.cron, nightly.every, nightly.tz, nightly.missed, nightly.last_posted)
        assert told == ("30 3 * * *", None, "Europe/Berlin", "all", None)
        posts = (nightly.name, nightly.details, nightly.priority, nightly.key, nightly.max_attempts, nightly.group)
        assert posts == ("report", {"secret": "ä"}, JobPriority.HIGH, "k", 3, "g")
        assert nightly.context == {"trace": "secret"}
        assert "secret" not in repr(nightly) + str(nightly)
        assert (ping.cron, ping.every, ping.missed) == (None, 600.0, "one")
        assert list(board.examine()) == odd
        again = other.schedule("nightly", name="report", every=60)
        assert board.schedules() == [ping, again]
        assert again.next_due < ping.next_due
        other.unschedule("nightly")
        assert board.schedules() == [ping]
        with pytest.raises(NotFound, match="nightly"):
            board.unschedule("nightly")
        assert board.job_count == 0

    @holds("One commit posts the job of a due time and advances the schedule.")
    def test_posted_job_has_the_schedules_arguments(self, board: JobBoard, other: JobBoard) -> None:
        arguments: dict[str, Any] = {"details": {"a": [1, None]}, "priority": -7, "key": "k", "max_attempts": 3}
        board.schedule("nightly", name="report", every=60, group="g", context={"b": "ä"}, **arguments)
        assert board.post_due() == pytest.approx(60, abs=30)
        assert board.job_count == 0
        due = put_back(board, "nightly", 1)
        events = EventLog(board)
        waiter = Waiter(other, lambda: take(other, timeout=PATIENCE))
        left = board.post_due()
        assert left == pytest.approx(59, abs=30)
        job = waiter.wait()
        assert isinstance(job, Job)
        assert job.schedule == ("nightly", due)
        assert (job.name, job.details, job.priority, job.key) == ("report", {"a": [1, None]}, -7, "k")
        assert (job.max_attempts, job.group, job.context, job.attempts) == (3, "g", {"b": "ä"}, 1)
        eventually(lambda: "POSTED" in events.of(job), LIMIT)
        assert events.of(job).count("POSTED") == 1
        [schedule] = other.schedules()
        assert (schedule.last_posted, schedule.next_due) == (due, due + timedelta(seconds=60))
        assert other.post_due() == pytest.approx(59, abs=30)
        assert board.job_count == 1
        other.consume(job, "anna")
        assert board.post("by hand").schedule is None

    @holds("Missed due times post one job, all jobs or none, as set.")
    @pytest.mark.parametrize("every", [0.1, 10, 60])
    def test_missed_decides_about_missed_times(self, board: JobBoard, every: float) -> None:
        """``missed`` posts the latest due time, each of them in order, or none that is over a minute late."""
        for missed in ("one", "all", "none"):
            board.schedule(missed, name=missed, every=every, missed=missed)
        due = {missed: put_back(board, missed, 30.5 * every) for missed in ("one", "all", "none")}
        board.post_due()
        found: dict[str, list[datetime]] = {}
        for job in board.iterjobs():
            assert job.schedule is not None
            found.setdefault(job.name, []).append(job.schedule[1])
        now = moment(Harness(board).now())
        for missed, times in found.items():
            # More of them become due meanwhile, on a busy machine.
            numbers = [(time - due[missed]) / timedelta(seconds=every) for time in times]
            last = (now - due[missed]) // timedelta(seconds=every)
            assert numbers == [round(number) for number in numbers]
            assert numbers in [list(range(n + 1) if missed == "all" else [n]) for n in range(30, last + 1)]
        assert set(found) == {"one", "all", "none"}
        put_back(board, "none", 3600.5)
        board.post_due()
        if every > 0.1:
            # The latest is half a minute late at most, or less.
            assert [job.name for job in board.iterjobs()].count("none") == 2

    @holds("Missed due times post one job, all jobs or none, as set.")
    def test_missed_none_makes_up_for_nothing(self, board: JobBoard) -> None:
        board.schedule("hourly", name="hourly", every=3600, missed="none")
        due = put_back(board, "hourly", 90)
        assert board.post_due() == pytest.approx(3510, abs=30)
        assert board.job_count == 0
        [schedule] = board.schedules()
        assert (schedule.last_posted, schedule.next_due) == (None, due + timedelta(hours=1))

    def test_a_cron_expression(self, board: JobBoard) -> None:
        board.schedule("minutely", "* * * * *", "report", missed="all")
        due = put_back(board, "minutely", 150)
        board.post_due()
        first, *times = due_times(board)
        # The stored one counts, whatever the expression says.
        assert first == due
        assert len(times) in (2, 3)
        assert all(due < time and not time.second + time.microsecond for time in times)
        [schedule] = board.schedules()
        assert schedule.last_posted == times[-1]
        assert schedule.next_due - times[-1] == timedelta(minutes=1)

    @holds("A key keeps runs of a schedule from overlapping.")
    def test_a_key_keeps_runs_from_overlapping(self, board: JobBoard) -> None:
        """The due time counts as posted."""
        for missed in ("one", "all"):
            board.schedule(missed, name=missed, every=60, key=missed, missed=missed)
            put_back(board, missed, 90)
        board.post_due()
        assert sorted(job.name for job in board.iterjobs()) == ["all", "one"]
        for missed in ("one", "all"):
            due = put_back(board, missed, 1)
            board.post_due()
            [schedule] = [each for each in board.schedules() if each.id == missed]
            assert schedule.last_posted == due
        assert board.job_count == 2
        for name in ("one", "all"):
            board.consume(take(board, names=[name]), "anna")
            put_back(board, name, 1)
        board.post_due()
        assert board.job_count == 2

    def test_set_again_it_does_not_post_for_the_same_time(self, board: JobBoard) -> None:
        """Though the server's clock has been put back since."""
        board.schedule("nightly", "0 3 * * *", "report")

        def ahead(now: int, before: StoredSchedule | None) -> StoredSchedule:
            assert before is not None
            return before._replace(last=before.due, due=before.due + 24 * 60 * MINUTE)

        entry = Harness(board).calls.set_schedule("nightly", ahead)
        last = entry.last
        again = board.schedule("nightly", "0 3 * * *", "report", priority=1)
        assert again.next_due == moment(last) + timedelta(days=1)

    @holds("A schedule that is set again alike goes on as before.")
    def test_set_again_alike_it_goes_on(self, board: JobBoard, other: JobBoard) -> None:
        """However often an application starts, its schedule is due."""
        arguments: dict[str, Any] = {"name": "report", "context": {"b": "c", "d": "e"}, "every": 3600}
        board.schedule("hourly", details={"a": [1], "z": {}}, **arguments)
        due = put_back(board, "hourly", 1)
        tag = Harness(board).side("schedule", "hourly").tag
        again = other.schedule("hourly", details={"z": {}, "a": [1]}, **arguments)
        assert again.next_due == due
        assert Harness(board).side("schedule", "hourly").tag == tag
        other.post_due()
        assert due_times(board) == [due]
        changes: list[dict[str, Any]] = [{"details": {}}, {"every": 3601}, {"priority": 1}, {"missed": "all"}]
        for change in changes:
            before = put_back(board, "hourly", 1)
            anew = other.schedule("hourly", **{**arguments, "details": {"a": [1], "z": {}}, **change})
            assert anew.next_due > before + timedelta(minutes=30)

    @holds("A paused schedule posts nothing; once it is resumed, missed decides about the times in the pause.")
    def test_paused_schedule_posts_nothing_until_it_is_resumed(self, board: JobBoard, other: JobBoard) -> None:
        """Setting it again, alike or not, resumes nothing."""
        setting: dict[str, Any] = {"name": "report", "every": 60, "missed": "all"}
        board.schedule("ping", **setting)
        soon = board.schedule("soon", name="soon", every=LONG)
        due = put_back(board, "ping", 90)
        other.pause_schedule("ping")
        tag = Harness(board).side("schedule", "ping").tag
        other.pause_schedule("ping")
        assert board.schedule("ping", **setting).is_paused
        assert Harness(board).side("schedule", "ping").tag == tag
        assert [each.is_paused for each in other.schedules()] == [True, False]
        assert (board.kept_stats().next_due, board.kept_stats().late) == (soon.next_due, 0.0)
        assert board.post_due() == pytest.approx(LONG, abs=30)
        assert due_times(board) == []
        board.resume_schedule("ping")
        board.post_due()
        assert due_times(other) == [due, due + timedelta(minutes=1)]
        board.pause_schedule("ping")
        assert board.schedule("ping", name="report", every=3600).is_paused
        other.unschedule("ping")
        assert not board.schedule("ping", **setting).is_paused
        for verb in (board.pause_schedule, board.resume_schedule, board.post_now):
            with pytest.raises(NotFound, match="no schedule 'nightly'"):
                verb("nightly")

    @holds("A job of a schedule is posted now, once, and the next due time stays.")
    def test_job_is_posted_now(self, board: JobBoard, other: JobBoard) -> None:
        before = board.schedule("ping", name="report", every=LONG, details={"a": 1}, group="g")
        board.pause_schedule("ping")
        with Harness(other).lost_reply():
            job = other.post_now("ping")
        again = board.post_now("ping")
        assert {*uuids(board.iterjobs(ensure_fresh=True))} == {job.uuid, again.uuid}
        assert (job.created, job.name, job.details, job.group) == (True, "report", {"a": 1}, "g")
        assert job.schedule is not None
        assert job.schedule[0] == "ping"
        assert before.next_due - timedelta(seconds=LONG) <= job.schedule[1] <= moment(Harness(board).now())
        [after] = board.schedules()
        assert (after.next_due, after.last_posted) == (before.next_due, None)
        board.schedule("keyed", name="keyed", every=LONG, key="k")
        first, second = board.post_now("keyed"), other.post_now("keyed")
        assert (first.created, second.created, second) == (True, False, first)

    @holds("Schedules and outcomes are counted, with how late the first is.")
    def test_kept_stats_counts_schedules_and_outcomes(self, make_board: MakeBoard) -> None:
        board = make_board(keep_done=LONG)
        counts = board.kept_stats()
        assert (counts.schedules, counts.next_due, counts.late) == (0, None, 0.0)
        late = board.schedule("late", name="late", every=LONG)
        assert board.kept_stats().next_due == late.next_due
        assert board.kept_stats().late == 0.0
        soon = board.schedule("soon", name="soon", every=LONG / 2)
        Harness(board).set_side("schedule", "broken", b"")
        found = board.kept_stats()
        assert (found.schedules, found.next_due) == (3, soon.next_due)
        due = put_back(board, "late", 50)
        found = board.kept_stats()
        assert found.next_due == due
        assert found.late == pytest.approx(50, abs=LIMIT)
        assert found.outcomes in (0, None)
        for name in ("one", "two"):
            board.post(name)
            board.consume(take(board, names=[name]), "anna")
        assert board.kept_stats().outcomes in (2, None)
        assert (counts.outcomes is None) == (board.kept_stats().outcomes is None)


class TestSchedulesInTrouble:
    any_driver = True

    def test_unreadable_schedule_keeps_no_other_from_being_posted(
        self, board: JobBoard, caplog: pytest.LogCaptureFixture
    ) -> None:
        good = board.schedule("good", name="good", every=60)
        stored = Harness(board).engine.schedules()[0]
        newer = stored.packed().replace(b"\x01", b"\x02", 1)
        assert newer != stored.packed()
        elsewhere = stored._replace(timetable=stored.timetable._replace(every=None, cron="* * * * *", tz="Moon/Base"))
        long = stored._replace(timetable=stored.timetable._replace(every=None, cron=f"{'*,' * 50_000}* * * * *"))
        planted = {"damaged": b"\xc1", "empty": b"", "newer": newer, "elsewhere": elsewhere.packed()}
        number = stored._replace(timetable=stored.timetable._replace(every=None, cron=5))
        planted |= {"long": long.packed(), "number": number.packed()}
        for schedule, value in planted.items():
            Harness(board).set_side("schedule", schedule, value)
        put_back(board, "good", 1)
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                assert board.post_due() == pytest.approx(59, abs=30)
        assert [job.name for job in board.iterjobs()] == ["good"]
        warned = [record.getMessage() for record in caplog.records if "posts nothing" in record.getMessage()]
        assert sorted(text.split("'")[1] for text in warned) == sorted(planted)
        [shown] = board.schedules()
        assert shown.id == good.id
        for schedule in planted:
            board.schedule(schedule, name="mended", every=60)
        assert len(board.schedules()) == len(planted) + 1
        for schedule in planted:
            board.unschedule(schedule)

    def test_lost_replies(self, board: JobBoard) -> None:
        with Harness(board).lost_reply():
            board.schedule("nightly", name="report", every=60)
        due = put_back(board, "nightly", 1)
        with Harness(board).lost_reply():
            board.post_due()
        assert due_times(board) == [due]
        with Harness(board).lost_reply():
            board.unschedule("nightly")
        with pytest.raises(NotFound), Harness(board).lost_reply():
            board.unschedule("nightly")

    @pytest.mark.parametrize("retries", [True, False])
    def test_posted_job_is_reported_though_a_later_reply_is_lost(self, make_board: MakeBoard, retries: bool) -> None:
        """Once each; without a repetition, as far as is known."""
        board, told = make_board(retry_for=LIMIT if retries else 0), list[str]()
        for schedule in ("one", "two", "three"):
            board.schedule(schedule, name="report", every=LONG)
            put_back(board, schedule, 1)
        board.notifier.register(POSTED, lambda event, details: told.append(details["job"].uuid))
        commits: list[bool] = []

        def loses_the_second_reply(commit: Callable[..., Any], *args: Any, **more: Any) -> Any:
            answer = commit(*args, **more)
            commits.append(True)
            if len(commits) == 2:
                raise ConnectionFailure("the connection broke", outcome="unknown")
            return answer

        failure = contextlib.nullcontext() if retries else pytest.raises(ConnectionFailure)
        with Harness(board).replaced("commit", loses_the_second_reply), failure:
            board.post_due()
        there = uuids(board.iterjobs(ensure_fresh=True))
        assert len(there) == (3 if retries else 2)
        eventually(lambda: len(told) >= (3 if retries else 1), LIMIT)
        board.close()
        assert len(told) == (3 if retries else 1)
        assert {*told} <= {*there}

    def test_a_setting_that_is_removed_before_its_reply_comes(self, board: JobBoard, other: JobBoard) -> None:
        with Harness(board).lost_reply(lambda: other.unschedule("nightly")):
            assert board.schedule("nightly", name="report", every=60).name == "report"
        assert other.schedules() == []

    @pytest.mark.parametrize("what", ["posts", "sets", "removes", "pauses"])
    def test_quicker_poster_is_not_repeated(self, board: JobBoard, other: JobBoard, what: str) -> None:
        board.schedule("nightly", name="report", every=60, missed="all")
        due = put_back(board, "nightly", 90)
        acts: dict[str, Callable[[], object]] = {
            "posts": other.post_due,
            "sets": lambda: other.schedule("nightly", name="another", every=60),
            "removes": lambda: other.unschedule("nightly"),
            "pauses": lambda: other.pause_schedule("nightly"),
        }
        came: list[bool] = []

        def late(commit: Callable[..., Any], *args: Any, **more: Any) -> Any:
            if not came:
                came.append(True)
                acts[what]()
            return commit(*args, **more)

        with Harness(board).replaced("commit", late):
            board.post_due()
        assert due_times(board) == ([due, due + timedelta(minutes=1)] if what == "posts" else [])

    def test_concurrent_posters_post_each_due_time_once(self, make_board: MakeBoard) -> None:
        """Each due time is posted for once, by whichever of eight handles."""
        boards = [make_board() for _ in range(8)]
        ends = threading.Event()
        for number in range(3):
            boards[0].schedule(f"number {number}", name="report", every=0.1, missed="all")

        def post(board: JobBoard) -> None:
            while not ends.is_set():
                ends.wait(board.post_due())

        threads = [threading.Thread(target=post, args=[board]) for board in boards]
        for thread in threads:
            thread.start()
        try:
            eventually(lambda: boards[0].job_count >= 30, LIMIT)
        finally:
            ends.set()
            for thread in threads:
                thread.join()
        jobs = list(boards[0].iterjobs(ensure_fresh=True))
        assert len(set(uuids(jobs))) == len(jobs)
        for schedule in boards[0].schedules():
            times = sorted(job.schedule[1] for job in jobs if job.schedule and job.schedule[0] == schedule.id)
            first = schedule.next_due - len(times) * timedelta(seconds=0.1)
            assert times == [first + n * timedelta(seconds=0.1) for n in range(len(times))]
            assert times[-1] == schedule.last_posted
