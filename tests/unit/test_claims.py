"""The claims that a board keeps: their heartbeat, and what comes in between."""

import threading
import time
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from jobboard.claims import Claims
from jobboard.exceptions import ConnectionFailure
from jobboard.heartbeat import Heartbeat
from jobboard.job import Claim
from jobboard.primitives import Renewed
from jobboard.runtime import boottime
from jobboard.testing import eventually


class Harness:
    """Claims whose renewals are answered by the test."""

    def __init__(self, interval: float = 0.02) -> None:
        self.lost: list[Claim] = []
        self.beats: list[list[Claim]] = []
        self.answer = Renewed([], 60_000_000)
        self.failing = False
        engine: Any = SimpleNamespace(renew=self.renew)
        self.claims = Claims("test", engine, 60_000_000, self.lost.append)
        self.claims.begin(interval)

    def renew(self, held: Sequence[tuple[str, int]], ttl: int) -> Renewed:
        self.beats.append([claim for claim in self.claims.held() if (claim.uuid, claim.token) in held])
        if self.failing:
            raise ConnectionFailure("down")
        return self.answer


@pytest.fixture
def harness() -> Iterator[Harness]:
    harness = Harness()
    yield harness
    harness.claims.end()


def claim(uuid: str = "u", token: int = 1, deadline: float | None = 0) -> Claim:
    """A kept claim; by default its lease ends in a minute."""
    until = None if deadline is None else boottime() + (deadline or 60)
    return Claim(SimpleNamespace(uuid=uuid), token, "anna", True, until)


class TestKeeping:
    def test_without_a_claim_there_is_no_heartbeat(self, harness: Harness) -> None:
        mine = claim()
        mine.mark_ended()
        harness.claims.hold(mine)
        assert harness.claims.held() == []
        assert "test-heartbeat" not in [thread.name for thread in threading.enumerate()]

    def test_one_heartbeat_for_all(self, harness: Harness) -> None:
        for number in range(5):
            harness.claims.hold(claim(f"u{number}"))
        harness.claims.start_beating()
        eventually(lambda: harness.beats)
        assert [thread.name for thread in threading.enumerate()].count("test-heartbeat") == 1

    def test_a_lost_claim_is_told_once(self, harness: Harness) -> None:
        mine, newer = claim("u", 1), claim("u", 2)
        harness.answer = Renewed([("u", 1)], 60_000_000)
        harness.claims.hold(mine)
        harness.claims.hold(newer)
        eventually(lambda: harness.lost)
        eventually(lambda: len(harness.beats) > 4)
        assert harness.lost == [mine]
        assert mine.lost
        assert not newer.lost
        assert harness.claims.held() == [newer]

    @pytest.mark.rule("A claim that no renewal reaches in time is reported as lost.")
    def test_a_claim_that_no_renewal_reaches_is_told_lost(self, harness: Harness) -> None:
        harness.failing = True
        mine = claim(deadline=0.05)
        harness.claims.hold(mine)
        eventually(lambda: harness.lost == [mine])
        assert mine.lost
        assert harness.claims.held() == []

    @pytest.mark.rule("A failed beat is repeated soon, well within the lease.")
    def test_failed_beats_are_repeated_soon(self) -> None:
        harness = Harness(interval=3600)
        harness.failing = True
        harness.claims.hold(claim())
        harness.claims.beat_soon()
        eventually(lambda: len(harness.beats) >= 3)
        harness.failing = False
        harness.claims.end()

    def test_a_claim_that_ends_during_a_beat_is_not_reported_lost(self, harness: Harness) -> None:
        """A claim that its owner ends meanwhile is not told lost."""
        mine = claim()
        harness.claims.hold(mine)
        harness.claims.let_go(mine)
        harness.claims.confirm([mine], boottime(), Renewed([("u", 1)], 1_000_000))
        assert not mine.lost
        assert harness.lost == []

    @pytest.mark.rule(
        "A renewal distinguishes lost claims, claims that another handle keeps, and claims with a fixed lease."
    )
    @pytest.mark.parametrize("left", [None, 5_000_000, 0])
    def test_a_claim_that_is_no_longer_kept_lasts_as_long_as_its_lease(
        self, harness: Harness, left: int | None
    ) -> None:
        """It is let go of, with what is left of its lease: if that is nothing, it is told lost. What another handle
        keeps may be another session's of this process."""
        mine, other = claim("u"), claim("v")
        before = mine.deadline
        harness.claims.hold(mine, other)
        sent = boottime()
        harness.claims.confirm([mine, other], sent, Renewed([], 60_000_000, unkept=[("u", 1, left)]))
        deadline = before if left is None else sent + left / 1e6
        assert (mine.kept, mine.deadline, mine.lost) == (left is None, deadline, left == 0)
        assert (other.kept, other.deadline) == (True, sent + 60)
        assert harness.claims.held() == [other]
        assert harness.lost == ([mine] if left == 0 else [])

    @pytest.mark.rule(
        "A renewal distinguishes lost claims, claims that another handle keeps, and claims with a fixed lease."
    )
    def test_a_claim_that_a_renewal_missed_is_held_further(self, harness: Harness) -> None:
        mine = claim()
        before = mine.deadline
        harness.claims.hold(mine)
        harness.claims.confirm([mine], boottime(), Renewed([], 90_000_000, missed=[("u", 1)]))
        assert (mine.deadline, harness.claims.held()) == (before, [mine])

    @pytest.mark.rule("A renewal leaves a claim alone that was extended during the beat.")
    @pytest.mark.parametrize(
        "answer", [Renewed([], 90_000_000), Renewed([("u", 1)], 1), Renewed([], 1, unkept=[("u", 1, 0)])]
    )
    @pytest.mark.parametrize("kept", [True, False])
    def test_a_claim_that_was_extended_during_a_beat_keeps_its_extension(
        self, harness: Harness, answer: Renewed, kept: bool
    ) -> None:
        mine = claim()
        harness.claims.hold(mine)
        sent = boottime()
        harness.claims.extended(mine, sent + 30, kept)
        harness.claims.confirm([mine], sent, answer)
        assert (mine.kept, mine.deadline, mine.lost, harness.lost) == (kept, sent + 30, False, [])
        assert harness.claims.held() == ([mine] if kept else [])

    @pytest.mark.rule("A claim that its holder has read as lost is never renewed, and another worker gets the job.")
    def test_claim_of_a_later_batch_that_is_read_as_lost_is_not_renewed(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("jobboard.claims.RENEW_BATCH", 1)
        first, second = claim("u"), claim("v")
        renewed: list[str] = []

        def renew(held: Sequence[tuple[str, int]], ttl: int) -> Renewed:
            renewed.extend(uuid for uuid, _ in held)
            second.refuse()
            return harness.answer

        monkeypatch.setattr(harness.claims._engine, "renew", renew)
        harness.claims.hold(first, second)
        eventually(lambda: len(renewed) > 2)
        assert (set(renewed), harness.lost) == ({"u"}, [second])

    @pytest.mark.rule("An end that is refused keeps a claim in the heartbeat as before.")
    def test_an_end_that_comes_to_nothing(self, harness: Harness) -> None:
        """What was kept is kept again, unless it was let go of meanwhile."""
        claims = harness.claims
        kept, fixed, extended, shortened = (claim(uuid) for uuid in ("kept", "fixed", "extended", "shortened"))
        claims.hold(kept, shortened)
        begun = claims.begin_ends([kept, fixed, extended, shortened])
        assert claims.begin_ends([kept]) == []
        assert claims.held() == []
        claims.hold(extended)
        claims.let_go(shortened)
        assert claims.held() == []
        claims.complete_ends(begun)
        assert claims.held() == [kept, extended]

    @pytest.mark.rule("A claim that ends while it is being extended is not kept.")
    def test_an_ended_claim_is_not_kept(self, harness: Harness) -> None:
        claims = harness.claims
        mine, others = claim("u"), claim("v")
        claims.hold(mine, others)
        claims.complete_ends(claims.begin_ends([mine, others]), [mine])
        claims.hold(mine)
        assert (mine.ended, others.ended) == (True, False)
        assert claims.held() == [others]


class TestHeartbeat:
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

    def test_a_slow_beat_delays_no_other(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The lease counts from the time at which a beat was sent. So does the interval."""
        clock, beats = [0.0], []
        monkeypatch.setattr("jobboard.runtime.boottime", lambda: clock[0])

        def beat() -> None:
            beats.append(1)
            clock[0] += 3600

        heartbeat = Heartbeat("test", beat, 3600)
        heartbeat.start()
        heartbeat.soon()
        eventually(lambda: len(beats) >= 2)
        heartbeat.stop()

    def test_any_error_is_survived(self) -> None:
        errors = [ValueError("a bug"), ConnectionFailure("down")]
        beats: list[int] = []

        def beat() -> None:
            beats.append(1)
            if errors:
                raise errors.pop()

        heartbeat = Heartbeat("test", beat, 0.03)
        heartbeat.start()
        eventually(lambda: len(beats) >= 4)
        heartbeat.stop()
