"""The session under a board: slots and repetitions of its calls, the claims that it keeps, and its naps."""

import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.heartbeat import Heartbeat
from jobboard.job import Claim, boottime
from jobboard.primitives import Renewed
from jobboard.session import Session, time_left
from jobboard.standing import Trigger
from jobboard.testing import eventually


class Harness:
    """A session whose renewals are answered by the test."""

    def __init__(self, interval: float = 0.02, retry_for: float = 5) -> None:
        self.lost: list[Claim] = []
        self.beats: list[list[Claim]] = []
        self.answer = Renewed([], 60_000_000)
        self.failing = False
        self.session = Session("test", interval, retry_for, self.renew, self.lost.append)

    def renew(self, session: Session) -> None:
        held, sent = session.held(), boottime()
        self.beats.append(held)
        if self.failing:
            raise ConnectionFailure("down")
        session.confirm(held, sent, self.answer)


@pytest.fixture
def harness() -> Iterator[Harness]:
    harness = Harness()
    yield harness
    harness.session.end()


def claim(uuid: str = "u", token: int = 1, deadline: float | None = 0) -> Claim:
    """A kept claim; by default its lease ends in a minute."""
    until = None if deadline is None else boottime() + (deadline or 60)
    return Claim(SimpleNamespace(uuid=uuid), token, "anna", True, until)


class TestCalls:
    def test_each_call_has_a_nonce_of_its_own(self, harness: Harness) -> None:
        nonces = [harness.session.mutate(lambda nonce: nonce)[0] for _ in range(3)]
        assert {(nonce.handle, nonce.slot, nonce.attempt) for nonce in nonces} == {(harness.session.handle, 1, 1)}
        assert [nonce.call for nonce in nonces] == [1, 2, 3]

    def test_calls_at_the_same_time_are_in_slots_of_their_own(self, harness: Harness) -> None:
        def outer(nonce: Any) -> Any:
            inner, _ = harness.session.mutate(lambda inner: inner)
            return nonce, inner

        (first, second), _ = harness.session.mutate(outer)
        assert (first.slot, second.slot) == (1, 2)
        again = [harness.session.mutate(outer)[0] for _ in range(2)]
        assert {nonce.slot for pair in again for nonce in pair} == {1, 2}
        calls = [(nonce.slot, nonce.call) for pair in [(first, second), *again] for nonce in pair]
        assert len(set(calls)) == len(calls)

    def test_a_repetition_keeps_its_nonce(self, harness: Harness) -> None:
        seen: list[Any] = []

        def call(what: str, nonce: Any, **extra: Any) -> str:
            assert extra == {"extra": 1}
            seen.append(nonce)
            if len(seen) < 4:
                raise ConnectionFailure("down")
            return what

        before = boottime()
        answer, sent = harness.session.mutate(call, "what", extra=1)
        assert answer == "what"
        assert sent > before + 0.01  # of the try that was answered
        assert [(nonce.slot, nonce.call, nonce.attempt) for nonce in seen] == [(1, 1, n) for n in (1, 2, 3, 4)]
        assert harness.session.mutate(lambda nonce: nonce)[0].call == 2

    def test_other_errors_are_not_repeated(self, harness: Harness) -> None:
        calls: list[int] = []

        def fail(nonce: Any) -> None:
            calls.append(nonce.call)
            raise JobFailure("refused")

        for _ in range(2):
            with pytest.raises(JobFailure):
                harness.session.mutate(fail)
        assert calls == [1, 2]

    @pytest.mark.parametrize(
        ("outcomes", "expected"),
        [(["none"], "none"), (["unknown", "none"], "unknown"), (["none", "unknown", "none"], "unknown")],
    )
    def test_what_is_said_when_the_retries_run_out(self, outcomes: list[Any], expected: str) -> None:
        session = Harness(retry_for=0.1).session

        def fail(*nonce: Any) -> None:
            raise ConnectionFailure("down", outcome=outcomes.pop(0) if len(outcomes) > 1 else outcomes[0])

        with pytest.raises(ConnectionFailure) as failure:
            session.mutate(fail)
        assert failure.value.outcome == expected

    def test_queries_are_repeated_too(self, harness: Harness) -> None:
        calls: list[int] = []

        def look(what: int) -> int:
            calls.append(what)
            if len(calls) < 3:
                raise ConnectionFailure("down")
            return what

        assert harness.session.query(look, 7) == 7
        assert calls == [7, 7, 7]

    def test_no_time_for_a_second_try(self) -> None:
        session = Harness(retry_for=0).session
        left: list[float | None] = []

        def fail(*nonce: Any) -> None:
            left.append(time_left())
            raise ConnectionFailure("down", outcome="unknown")

        for call in (session.mutate, session.query):
            with pytest.raises(ConnectionFailure) as failure:
                call(fail)
            assert failure.value.outcome == "unknown"
        assert left == [0, 0]

    def test_the_first_try_counts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """However long it takes: all tries together have the time that the call has."""
        session = Harness(retry_for=60).session
        late = 1000.0  # whole seconds, which no sum rounds
        left: list[float | None] = []

        def fail(*nonce: Any) -> None:
            nonlocal late
            left.append(time_left())
            late += 45
            raise ConnectionFailure("down")

        monkeypatch.setattr("jobboard.session.boottime", lambda: late)
        monkeypatch.setattr(session, "pause", lambda seconds: None)
        for call in (session.mutate, session.query):
            with pytest.raises(ConnectionFailure):
                call(fail)
        assert left == [60, 15, 60, 15]
        assert time_left() is None

    def test_no_pause_goes_beyond_the_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        session = Harness(retry_for=0.3).session
        pauses: list[float] = []
        pause = session.pause
        monkeypatch.setattr(session, "pause", lambda seconds: pauses.append(seconds) or pause(seconds))

        def fail() -> None:
            raise ConnectionFailure("down")

        with pytest.raises(ConnectionFailure):
            session.query(fail)
        assert sum(pauses) <= 0.3

    def test_the_end_ends_the_retries(self) -> None:
        session = Harness(retry_for=60).session
        calls: list[int] = []

        def fail() -> None:
            calls.append(1)
            raise ConnectionFailure("down")

        raised: list[BaseException] = []

        def run() -> None:
            try:
                session.query(fail)
            except ConnectionFailure as error:
                raised.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        eventually(lambda: len(calls) > 1, 10)
        session.end()
        thread.join(5)
        assert not thread.is_alive()
        assert len(raised) == 1


class TestKeeping:
    def test_held_claims_are_renewed(self, harness: Harness) -> None:
        one, two = claim("u", 1, 0.2), claim("v", 1, 0.2)
        harness.session.hold(one)
        harness.session.hold(two)
        eventually(lambda: len(harness.beats) > 3 and len(harness.beats[-1]) == 2, 10)
        assert not one.lost
        assert one.deadline is not None
        assert one.deadline > boottime() + 30
        assert harness.session.let_go(one)
        assert not harness.session.let_go(one)
        eventually(lambda: harness.beats[-1] == [two], 10)

    def test_without_a_claim_there_is_no_heartbeat(self, harness: Harness) -> None:
        mine = claim()
        mine._step(Trigger.ENDED)
        harness.session.hold(mine)
        assert harness.session.held() == []
        assert "test-heartbeat" not in [thread.name for thread in threading.enumerate()]

    def test_one_heartbeat_for_all(self, harness: Harness) -> None:
        for number in range(5):
            harness.session.hold(claim(f"u{number}"))
        harness.session.enlist("conductor", "one", "{}")
        eventually(lambda: harness.beats, 10)
        assert [thread.name for thread in threading.enumerate()].count("test-heartbeat") == 1

    def test_a_lost_claim_is_told_once(self, harness: Harness) -> None:
        mine, newer = claim("u", 1), claim("u", 2)
        harness.answer = Renewed([("u", 1)], 60_000_000)
        harness.session.hold(mine)
        harness.session.hold(newer)
        eventually(lambda: harness.lost, 10)
        eventually(lambda: len(harness.beats) > 4, 10)
        assert harness.lost == [mine]
        assert mine.lost
        assert not newer.lost
        assert harness.session.held() == [newer]

    def test_a_claim_that_no_renewal_reaches_is_told_lost(self, harness: Harness) -> None:
        harness.failing = True
        mine = claim(deadline=0.05)
        harness.session.hold(mine)
        eventually(lambda: harness.lost == [mine], 10)
        assert mine.lost
        assert harness.session.held() == []

    def test_failed_beats_are_repeated_soon(self) -> None:
        harness = Harness(interval=1.5)
        harness.failing = True
        harness.session.hold(claim())
        eventually(lambda: len(harness.beats) >= 3, 4.5)
        harness.failing = False
        harness.session.end()

    def test_what_was_let_go_of_during_a_beat(self, harness: Harness) -> None:
        """A claim that its owner ends meanwhile is not told lost."""
        mine = claim()
        harness.session.hold(mine)
        harness.session.let_go(mine)
        harness.session.confirm([mine], boottime(), Renewed([("u", 1)], 1_000_000))
        assert not mine.lost
        assert harness.lost == []

    @pytest.mark.parametrize("left", [None, 5_000_000, 0])
    def test_what_is_kept_no_longer(self, harness: Harness, left: int | None) -> None:
        """It is let go of, with what is left of its lease: if that is nothing, it is told lost. What another handle
        keeps may be another session's of this process."""
        mine, other = claim("u"), claim("v")
        before = mine.deadline
        harness.session.hold(mine, other)
        sent = boottime()
        harness.session.confirm([mine, other], sent, Renewed([], 60_000_000, unkept=[("u", 1, left)]))
        deadline = before if left is None else sent + left / 1e6
        assert (mine.kept, mine.deadline, mine.lost) == (left is None, deadline, left == 0)
        assert (other.kept, other.deadline) == (True, sent + 60)
        assert harness.session.held() == [other]
        assert harness.lost == ([mine] if left == 0 else [])

    def test_what_was_missed(self, harness: Harness) -> None:
        mine = claim()
        before = mine.deadline
        harness.session.hold(mine)
        harness.session.confirm([mine], boottime(), Renewed([], 90_000_000, missed=[("u", 1)]))
        assert (mine.deadline, harness.session.held()) == (before, [mine])

    @pytest.mark.parametrize(
        "answer", [Renewed([], 90_000_000), Renewed([("u", 1)], 1), Renewed([], 1, unkept=[("u", 1, 0)])]
    )
    @pytest.mark.parametrize("kept", [True, False])
    def test_what_was_extended_during_a_beat(self, harness: Harness, answer: Renewed, kept: bool) -> None:
        mine = claim()
        harness.session.hold(mine)
        sent = boottime()
        harness.session.extended(mine, sent + 30, kept)
        harness.session.confirm([mine], sent, answer)
        assert (mine.kept, mine.deadline, mine.lost, harness.lost) == (kept, sent + 30, False, [])
        assert harness.session.held() == ([mine] if kept else [])

    def test_an_end_that_comes_to_nothing(self, harness: Harness) -> None:
        """What was kept is kept again, unless it was let go of meanwhile."""
        session = harness.session
        kept, fixed, extended, shortened = (claim(uuid) for uuid in ("kept", "fixed", "extended", "shortened"))
        session.hold(kept, shortened)
        begun = session.ending([kept, fixed, extended, shortened])
        assert session.ending([kept]) == []
        assert session.held() == []
        session.hold(extended)
        session.let_go(shortened)
        assert session.held() == []
        session.over(begun)
        assert session.held() == [kept, extended]

    def test_what_has_ended_is_not_kept(self, harness: Harness) -> None:
        session = harness.session
        mine, others = claim("u"), claim("v")
        session.hold(mine, others)
        session.over(session.ending([mine, others]), [mine])
        session.hold(mine)
        assert (mine.ended, others.ended) == (True, False)
        assert session.held() == [others]

    def test_let_go_of_a_job(self, harness: Harness) -> None:
        one, two, other = claim("u", 1), claim("u", 2), claim("v", 1)
        for each in (one, two, other):
            harness.session.hold(each)
        harness.session.let_go_of("u")
        assert harness.session.held() == [other]
        assert (one.ended, two.ended, other.ended) == (True, True, False)

    def test_the_end_answers_what_was_kept(self, harness: Harness) -> None:
        mine = claim()
        harness.session.hold(mine)
        assert harness.session.end() == [mine]
        assert harness.session.held() == []
        beats = len(harness.beats)
        harness.session.hold(claim("v"))
        assert "test-heartbeat" not in [thread.name for thread in threading.enumerate()]
        assert len(harness.beats) == beats


class TestNaps:
    def test_woken(self, harness: Harness) -> None:
        session = harness.session
        session.look()
        threading.Timer(0.02, session.wake).start()
        assert session.nap(10)

    def test_what_came_since_the_look_is_not_slept_through(self, harness: Harness) -> None:
        session = harness.session
        session.look()
        session.wake()
        assert session.nap(10)
        assert session.nap(10)  # until the next look
        session.look()
        assert not session.nap(0.01)

    def test_the_end_wakes(self, harness: Harness) -> None:
        harness.session.look()
        threading.Timer(0.02, harness.session.end).start()
        start = time.monotonic()
        assert harness.session.nap(10)
        harness.session.pause(10)
        assert time.monotonic() - start < 5


class TestHeartbeat:
    def test_beats_until_it_is_stopped(self) -> None:
        beats: list[int] = []
        heartbeat = Heartbeat("test", lambda: beats.append(1), 0.01)
        heartbeat.start()
        eventually(lambda: len(beats) >= 3, 10)
        heartbeat.stop()
        count = len(beats)
        assert not heartbeat._thread.is_alive()
        assert len(beats) == count

    def test_stop_waits_for_the_beat_under_way(self) -> None:
        begun, done = threading.Event(), []

        def beat() -> None:
            begun.set()
            time.sleep(0.05)
            done.append(1)

        heartbeat = Heartbeat("test", beat, 0.01)
        heartbeat.start()
        assert begun.wait(10)
        heartbeat.stop()
        assert done

    def test_any_error_is_survived(self) -> None:
        errors = [ValueError("a bug"), ConnectionFailure("down")]
        beats: list[int] = []

        def beat() -> None:
            beats.append(1)
            if errors:
                raise errors.pop()

        heartbeat = Heartbeat("test", beat, 0.03)
        heartbeat.start()
        eventually(lambda: len(beats) >= 4, 10)
        heartbeat.stop()

    def test_stop_before_the_start_and_twice(self) -> None:
        heartbeat = Heartbeat("test", lambda: None, 0.01)
        heartbeat.stop()
        heartbeat = Heartbeat("test", lambda: None, 0.01)
        heartbeat.start()
        heartbeat.stop()
        heartbeat.stop()
