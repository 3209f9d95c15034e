"""Old memories, wrong clocks and locks of others: none of them changes an outcome."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from jobboard.board import JobBoard
from jobboard.exceptions import ClaimLost, JobBoardError, JobFailures, NotFound
from jobboard.job import Job, Posting
from jobboard.primitives import Finish
from jobboard.runtime import boottime
from jobboard.states import CLAIMED, OK, SCHEDULED, UNCLAIMED, Record, Verb
from jobboard.testing import eventually, holds
from jobboard.testing.conformance.harness import Harness
from jobboard.testing.conformance.processes import TTL, reaches
from jobboard.testing.conformance.repetitions import clear, come_back, release
from jobboard.testing.conformance.schedules import one_for_each_by_the_servers_clock
from jobboard.testing.conformance.support import LIMIT, LONG, SHORT, MakeBoard, assert_order, take, until_free, uuids
from jobboard.testing.conformance.wire import Wire
from jobboard.testing.puppet import Puppet

DAY = 24 * 3600.0


def bury(board: JobBoard, job: Job) -> None:
    release(board, job)
    board.cancel(board.get(job.uuid))


def bury_and_dig_out(board: JobBoard, job: Job) -> None:
    bury(board, job)
    board.restore(board.get(job.uuid))


def claim_again(board: JobBoard, job: Job, who: str = "anna") -> None:
    board.claim(board.get(job.uuid), who, LONG)


def purge(board: JobBoard, job: Job) -> None:
    bury(board, job)
    board.purge(board.get(job.uuid))


def consume(board: JobBoard, job: Job) -> None:
    board.consume(board.get(job.uuid), "anna")


def give_back(board: JobBoard, job: Job) -> None:
    board.abandon(board.get(job.uuid), "anna")


HISTORIES: dict[str, list[list[Callable[[JobBoard, Job], None]]]] = {
    "claim": [[release, partial(claim_again, who="bert")], [release, claim_again], [give_back, claim_again, give_back]],
    "trash": [
        [bury],
        [bury_and_dig_out],
        [bury_and_dig_out, claim_again],
        [bury_and_dig_out, claim_again, bury_and_dig_out],
    ],
    "purge": [[purge], [purge, come_back], [purge, come_back, give_back]],
    "consume": [[consume], [consume, come_back], [consume, come_back, give_back]],
}
"""What others did to a job that somebody had claimed, by how that claim ended."""


class TestOldHandles:
    any_driver = True

    @holds("A holder that was overtaken changes nothing.")
    @pytest.mark.parametrize("ends", ["claim", "trash", "purge", "consume"])
    def test_old_handle_changes_nothing(self, board: JobBoard, other: JobBoard, ends: str) -> None:
        """The old holder is refused after every later change of the job."""
        for history in HISTORIES[ends]:
            board.post("resize")
            job = take(board, expiry=LONG)
            listed, seen = next(iter(board.iterjobs())), job.record
            for step in history:
                step(other, job)
            self.refused(board, other, job, seen)
            self.not_refused_from_memory(board, other, listed)
            clear(other)

    @staticmethod
    def refused(board: JobBoard, other: JobBoard, job: Job, seen: Record) -> None:
        claim, before = job.claim, Harness(other).record(job)
        assert claim is not None
        acts: list[Callable[[], object]] = [
            lambda: claim.extend(LONG),
            claim.extend,
            claim.abandon,
            claim.trash,
            claim.consume,
            lambda: board.abandon(job, "anna"),
        ]
        for act in acts:
            with pytest.raises((ClaimLost, NotFound)):
                act()
            assert Harness(other).record(job) == before
        for verb in (Verb.CANCEL, Verb.PURGE, Verb.CONSUME):
            assert Harness(board).calls.finish([Finish.of_seen(seen, verb)]) != [OK]
            assert Harness(other).record(job) == before

    @staticmethod
    def not_refused_from_memory(board: JobBoard, other: JobBoard, job: Job) -> None:
        """A free job can be claimed by a handle that has seen it claimed, too."""
        before = Harness(other).record(job)
        if before is not None and before.state == UNCLAIMED:
            highest = max(before.token, job.record.token)
            assert board.claim(job, "anna", LONG).token > highest
            return
        with pytest.raises(JobBoardError):
            board.claim(job, "anna", LONG)
        assert Harness(other).record(job) == before


ENDINGS = ("consume", "trash", "abandon")


class TestRememberedClaims:
    """A handle that remembers its claim ends the job as it is now."""

    any_driver = True

    @holds("An end of a just made claim needs no read, and never ends another life of the job.")
    @pytest.mark.parametrize("step", [bury_and_dig_out, purge, come_back])
    def test_another_life_of_the_job_is_not_ended(
        self, board: JobBoard, other: JobBoard, step: Callable[[JobBoard, Job], None]
    ) -> None:
        for verb in ENDINGS:
            posted = board.post(verb)
            job = take(board, names=[verb])
            assert job == posted
            if step is come_back:
                purge(other, job)
            step(other, job)
            before = Harness(other).record(job)
            with pytest.raises(ClaimLost):
                getattr(board, verb)(job, "anna")
            assert Harness(other).record(job) == before, verb

    @holds("An end of a just made claim needs no read, and never ends another life of the job.")
    def test_later_holder_ends_the_claim(self, board: JobBoard, other: JobBoard) -> None:
        """A remembered claim of another holder refuses nobody."""
        for verb in ENDINGS:
            board.post(verb)
            job = take(board, names=[verb])
            release(other, job)
            claim_again(other, job, "bert")
            getattr(board, verb)(board.get(job.uuid), "bert")
            assert other.find_owner(job) is None, verb

    @holds("A lapsed claim that nobody else took is revived by the next heartbeat, or by its holder.")
    @holds("An end of a just made claim needs no read, and never ends another life of the job.")
    def test_renewed_or_revived_claim_is_ended(self, board: JobBoard, other: JobBoard) -> None:
        board.post_many([Posting(name) for name in ("kept", "lapsed") for _ in ENDINGS] + [Posting("bait")])
        kept, lapsed = (
            board.claim_many("anna", len(ENDINGS), names=[name], expiry=expiry)
            for name, expiry in (("kept", None), ("lapsed", SHORT))
        )
        Harness(board).beat()
        for job in lapsed:
            until_free(other, job)
        assert take(other, "bert", names=["bait"])
        for job in lapsed:
            board.extend(job, "anna", LONG)
        for verb, *jobs in zip(ENDINGS, kept, lapsed, strict=True):
            for job in jobs:
                getattr(board, verb)(job, "anna")
                assert other.find_owner(job) is None, verb


@pytest.fixture(params=[-DAY, DAY], ids=["behind", "ahead"])
def astray(board: JobBoard, board_conf: dict[str, Any], request: pytest.FixtureRequest) -> Iterator[Puppet]:
    """Another process on the same board, whose clock is a day off."""
    puppet = Puppet(board.name, {**board_conf, "claim_ttl": TTL}, skew=request.param)
    yield puppet
    puppet.end()


class TestClocks:
    any_driver = True

    def test_wrong_clock_makes_no_difference(self, board: JobBoard, astray: Puppet) -> None:
        """A wrong clock of a client ends no lease, delay or schedule too early or too late."""
        if not reaches(board, astray):
            return
        theirs, mine = board.post("theirs"), board.post("mine")
        assert astray("claim_next", "bert", expiry=LONG)[0] == theirs.uuid
        assert take(board, expiry=LONG) == mine
        assert theirs.expires_in() == pytest.approx(LONG, abs=60)
        later = [board.post("later", delay=LONG).uuid, astray("post", "later", delay=LONG)]
        assert board.claim_next("anna") is None
        assert astray("claim_next", "bert") is None
        states = [CLAIMED, CLAIMED, SCHEDULED, SCHEDULED]
        for look in (lambda uuid: astray("state", uuid), lambda uuid: board.get(uuid).seen_state):
            assert [look(uuid) for uuid in [mine.uuid, theirs.uuid, *later]] == states
        soon = board.post("soon", delay=SHORT)
        assert astray("claim_next", "bert", expiry=SHORT, timeout=LIMIT)[0] == soon.uuid
        job = take(board, timeout=LIMIT)
        assert job == soon
        board.consume(job, "anna")
        uuid = astray("post", "soon", delay=SHORT)
        assert take(board, expiry=SHORT, timeout=LIMIT).uuid == uuid
        assert astray("claim_next", "bert", timeout=LIMIT)[0] == uuid
        one_for_each_by_the_servers_clock(board, astray)


def deadline_of(job: Job) -> float | None:
    """Return the end of a claim that its holder counts; None without an end."""
    assert job.claim is not None
    return job.claim.deadline


class TestLocksOfOthers:
    any_driver = True

    @holds("A job that lapses between a look and its commit costs only its own claim.")
    def test_locked_record_delays_itself_alone(self, board: JobBoard, make_board: MakeBoard) -> None:
        """Fifty of a thousand kept claims are lost. One beat renews all others, and one call finishes them."""
        keeper = make_board(claim_ttl=LONG)
        board.post_many([Posting("resize")] * 1000)
        jobs = keeper.claim_many("anna", 1000)
        assert len(jobs) == 1000
        lost, taken = jobs[::20], jobs[::40]
        for job in lost:
            board.release(board.get(job.uuid))
        for job in taken:
            board.claim(board.get(job.uuid), "bert", LONG)
        kept = [job for job in jobs if job not in lost]
        before = [deadline_of(job) for job in kept]
        Harness(keeper).beat()
        assert board.stats().claimed == len(kept) + len(taken)
        assert [job for job in kept if job.claim is None or job.claim.lost] == []
        renewed = [deadline_of(job) for job in kept]
        assert all(old is None or (new is not None and new > old) for old, new in zip(before, renewed, strict=True))
        with pytest.raises(JobFailures) as failures:
            keeper.consume_many(jobs, "anna")
        errors = [error for error in failures.value.exceptions if isinstance(error, ClaimLost)]
        assert len(errors) == len(failures.value.exceptions)
        assert [error.job for error in errors] == lost
        assert uuids(board.iterjobs(ensure_fresh=True)) == uuids(lost)
        assert board.stats().claimed == len(taken)


class TestRevival:
    any_driver = True

    @holds("A lapsed claim that nobody else took is revived by the next heartbeat, or by its holder.")
    @holds("A job that lapses between a look and its commit costs only its own claim.")
    def test_a_lapse_that_somebody_has_swept(self, board: JobBoard, make_board: MakeBoard) -> None:
        """The holder's next beat revives the claim, as nobody has taken the job."""
        keeper = make_board(claim_ttl=0.6)
        kept, another = board.post_many([Posting("resize"), Posting("crop")])
        beats: list[Any] = []

        def late(original: Callable[..., Any], handle: str, asked: list[tuple[str, int]], ttl: int) -> Any:
            if not beats:
                eventually(lambda: board.find_owner(kept) is None, LIMIT)
                # A claim of another name's settles what it meets, and leaves it.
                assert take(board, "bert", names=["crop"]) == another
                # No busy machine outlasts this lease.
                beats.append(original(handle, asked, 100 * ttl))
            return beats[0]

        with Harness(keeper).replaced("renew", late):
            job = take(keeper)
            record = Harness(board).record(job)
            assert record is not None
            if record.lock_until is None:
                # No lease is stored that could lapse while its holder lives.
                return
            eventually(lambda: beats, LIMIT)
            assert beats[0].lost == []
            assert board.find_owner(kept) == "anna"
            claim = job.claim
            assert claim is not None
            eventually(lambda: (claim.deadline or 0) > boottime() + 1, LIMIT)
            assert not claim.lost
            keeper.consume(job, "anna")


def live_through_a_lot(board: JobBoard) -> list[str]:
    """Do all that can be done to jobs, many times; those that are free in the end, in serving order."""
    for priority in ("LOW", "HIGH", "NORMAL"):
        board.post_many(
            [Posting(f"job {n % 3}", priority=priority, delay=SHORT if n % 4 == 3 else None) for n in range(24)]
        )
        jobs = board.claim_many("bert", 12)
        board.consume_many(jobs[:3], "bert")
        for claimed in jobs[3:6]:
            claimed.claim.abandon()
        for claimed in jobs[6:9]:
            claimed.claim.trash()
        for job in list(board.trashed())[:2]:
            board.restore(job)
        board.release(jobs[9])
        board.extend(jobs[10], "bert", SHORT)
        board.cancel(next(iter(board.iterjobs(only_unclaimed=True, ensure_fresh=True))))
    eventually(lambda: not board.stats().scheduled and board.stats().claimed == 3, LIMIT)
    return uuids(board.iterjobs(only_unclaimed=True, ensure_fresh=True))


class TestOldListings:
    """A handle that has looked, and then looked away: nothing stays hidden from it."""

    any_driver = True

    @staticmethod
    def look(board: JobBoard) -> None:
        board.post_many([Posting("old", priority=priority) for priority in ("HIGH", "LOW")])
        for job in board.claim_many("anna", 2):
            board.consume(job, "anna")
        assert list(board.iterjobs()) == []
        assert board.claim_next("anna") is None
        with contextlib.suppress(NotFound):
            board.wait(0)

    @staticmethod
    def see_all(board: JobBoard, free: list[str]) -> None:
        got = [take(board, "anna", timeout=LIMIT).uuid for _ in free]
        assert_order(board, got, free)
        assert board.claim_next("anna") is None

    @holds("A job that comes back, or is posted in front, is next, whatever the handle knew.")
    def test_old_listing_of_an_idle_handle_is_renewed(self, board: JobBoard, other: JobBoard) -> None:
        self.look(other)
        free = live_through_a_lot(board)
        self.see_all(other, free)

    def test_old_listing_of_a_disconnected_handle_is_renewed(self, board: JobBoard, wire: Wire) -> None:
        if not wire:
            return
        far = wire.far()
        far(self.look, far.board)
        far.proxy.refuse()
        far.proxy.cut()
        free = live_through_a_lot(board)
        far.proxy.restore()
        far(self.see_all, far.board, free)

    def test_old_listing_of_a_look_under_way_is_renewed(self, board: JobBoard, wire: Wire) -> None:
        """The listing returns an old answer, and must not rely on it for ever."""
        if not wire:
            return
        far = wire.far()
        far(self.look, far.board)
        free: list[str] = []
        far.proxy.before(lambda: free.extend(live_through_a_lot(board)))
        seen = far(lambda: list(far.board.iterjobs()))
        assert free
        assert uuids(seen) in ([], uuids(board.iterjobs()))
        far(self.see_all, far.board, free)
