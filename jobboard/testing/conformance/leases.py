"""Leases, tokens, attempts and heartbeats: the end of a claim that nobody renews, and the reports to its holder."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import pytest

from jobboard.board import JobBoard
from jobboard.exceptions import ClaimLost, ConnectionFailure, NotFound, UnclaimableJob
from jobboard.job import Claim, Entity, Job, Posting
from jobboard.runtime import boottime
from jobboard.states import CLAIMED, COMPLETE, SCHEDULED, TRASHED, UNCLAIMED
from jobboard.testing import eventually, holds
from jobboard.testing.conformance.harness import Harness
from jobboard.testing.conformance.support import (
    HELD,
    HOLDS,
    LIMIT,
    LONG,
    SHORT,
    STEADY,
    EventLog,
    MakeBoard,
    claim_one,
    let_lapse,
    take,
    until_free,
    uuids,
)

VERBS = ("consume", "trash", "abandon", "extend")


class TestLapse:
    any_driver = True

    def test_a_lapsed_job_comes_back_and_counts_its_attempt(self, board: JobBoard) -> None:
        job = board.post("resize")
        claim = board.claim(job, "anna", expiry=SHORT)
        until_free(board, job)
        eventually(lambda: claim.lost, LIMIT)
        assert claim.expires_in() == 0
        assert job.claim is claim
        assert job.state == UNCLAIMED
        assert (job.attempts, board.job_count) == (1, 1)
        assert board.stats().unclaimed == 1
        with pytest.raises(NotFound):
            job.expires_in()
        again = take(board, "bert")
        assert again == job
        assert again.attempts == 2

    def test_extend_revives_a_lapsed_claim(self, board: JobBoard) -> None:
        job = board.post("resize")
        let_lapse(board, job)
        claim = job.claim
        assert claim is not None
        eventually(lambda: claim.lost, LIMIT)
        token = claim.token
        claim.extend(LONG)
        assert not claim.lost
        assert claim.token == token
        assert board.find_owner(job) == "anna"
        assert job.attempts == 1
        with pytest.raises(UnclaimableJob):
            board.claim(board.get(job.uuid), "bert")
        assert board.claim_next("bert") is None
        board.consume(job, "anna")

    @pytest.mark.parametrize("who", ["anna", "bert"])
    def test_once_taken_by_another_the_claim_is_lost(self, board: JobBoard, other: JobBoard, who: str) -> None:
        job = board.post("resize")
        let_lapse(board, job)
        new = take(other, who, expiry=LONG)
        before = Harness(board).record(job)
        for verb in (*VERBS, *VERBS):
            with pytest.raises(ClaimLost) as failure:
                getattr(board, verb)(job, "anna")
            assert failure.value.job is job
            assert job.claim is not None
            assert job.claim.lost
        assert Harness(board).record(job) == before
        other.consume(new, who)
        assert job.state == COMPLETE
        for verb in VERBS:
            with pytest.raises(ClaimLost):  # absent, and never finished by this handle
                getattr(board, verb)(job, "anna")

    def test_the_holder_may_claim_again(self, board: JobBoard) -> None:
        job = board.post("resize")
        let_lapse(board, job)
        old = job.claim
        new = board.claim(job, "anna")
        assert job.claim is new is not old
        assert old is not None
        assert new.token > old.token
        board.consume(job, "anna")


class TestTokens:
    any_driver = True

    @holds("Tokens of one job only rise, also across any number of acts.")
    def test_tokens_only_rise(self, board: JobBoard, other: JobBoard) -> None:
        job = board.post("resize")
        tokens = []

        def claim() -> int:
            claim = board.claim(job, "anna")
            tokens.append(claim.token)
            return claim.token

        claim()
        board.abandon(job, "anna")
        claim()
        board.release(job)
        claim()
        board.trash(job, "anna")
        board.restore(job)
        claim()
        board.extend(job, "anna", LONG)
        board.extend(job, "anna")
        board.abandon(job, "anna")
        board.cancel(job)
        board.restore(job)
        claim()
        board.abandon(job, "anna")
        let_lapse(board, job)
        assert job.claim is not None
        tokens.append(job.claim.token)
        taken = take(other)
        assert taken.claim is not None
        tokens.append(taken.claim.token)
        assert all(earlier < later for earlier, later in itertools.pairwise(tokens))

    @holds("Tokens of one job only rise, also across any number of acts.")
    @pytest.mark.parametrize("verb", ["consume", "extend"])
    def test_a_stale_holder_after_any_number_of_acts(
        self, make_board: MakeBoard, board: JobBoard, other: JobBoard, verb: str
    ) -> None:
        """A store may count the writes of a job, and begin anew when the job is restored."""
        third = make_board()
        for acts in range(4):
            job = claim_one(board)
            seen = other.get(job.uuid)
            other.release(seen)
            other.claim(seen, "bert")
            other.trash(seen, "bert")
            other.restore(seen)
            theirs = take(third, "carl")
            for _ in range(acts):
                third.extend(theirs, "carl", LONG)
            before = Harness(third).record(job)
            with pytest.raises(ClaimLost):
                getattr(board, verb)(job, "anna")
            assert Harness(third).record(job) == before, acts
            third.consume(theirs, "carl")
            assert job.state == COMPLETE

    @holds("A holder that has read a later token gains nothing by that.")
    @pytest.mark.parametrize("expiry", [None, LONG])
    @pytest.mark.parametrize("end", ["trash", "cancel"])
    def test_tokens_rise_for_one_who_has_read_ahead(
        self, board: JobBoard, other: JobBoard, end: str, expiry: float | None
    ) -> None:
        """A handle that was read before the job was trashed and restored does not tell its token."""
        tokens = []
        first, job = board.post_many([Posting("resize")] * 2)
        assert take(board) == first
        theirs = other.get(job.uuid)
        for _ in range(2):
            tokens.append(other.claim(theirs, "bert").token)
            if end == "trash":
                other.trash(theirs, "bert")
            else:
                other.abandon(theirs, "bert")
                other.cancel(theirs)
            other.restore(theirs)
            taken = take(board, expiry=expiry)
            assert (taken, taken.attempts) == (job, 1)
            assert taken.claim is not None
            tokens.append(taken.claim.token)
            board.abandon(taken, "anna")
        assert all(earlier < later for earlier, later in itertools.pairwise(tokens)), tokens


class TestKeptAndFixed:
    any_driver = True

    def test_expires_in_tells_the_rest_of_a_lease(self, board: JobBoard, other: JobBoard) -> None:
        kept, fixed, free = board.post("kept"), board.post("fixed"), board.post("free")
        board.claim(kept, "anna")
        claim = board.claim(fixed, "anna", expiry=LONG)
        assert (kept.expires_in(), other.get(kept.uuid).expires_in()) == (None, None)
        assert kept.claim is not None
        assert kept.claim.expires_in() is None
        left = other.get(fixed.uuid).expires_in()
        mine = claim.expires_in()
        assert left is not None
        assert mine is not None
        assert LONG - 60 < left <= LONG
        assert LONG - 60 < mine <= LONG
        with pytest.raises(NotFound):
            free.expires_in()

    @holds("A claim counts its deadline from before its request was sent.")
    @pytest.mark.parametrize("primitive", ["claim", "take", "extend"])
    def test_a_deadline_counts_from_before_the_request(self, board: JobBoard, primitive: str) -> None:
        job = board.post("resize")
        if primitive == "extend":
            board.claim(job, "anna")
        answered: list[float] = []

        def reply_late(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            answer = original(*args, **kwargs)
            answered.append(boottime())
            eventually(lambda: boottime() > answered[0] + SHORT)
            return answer

        with Harness(board).replaced(primitive, reply_late):
            if primitive == "claim":
                board.claim(job, "anna", expiry=LONG)
            elif primitive == "take":
                job = take(board, expiry=LONG)
            else:
                board.extend(job, "anna", LONG)
        assert job.claim is not None
        assert job.claim.deadline is not None
        assert job.claim.deadline < answered[0] + LONG

    def test_extend_fixes_and_keeps_a_claim(self, board: JobBoard, other: JobBoard) -> None:
        job = board.post("resize")
        claim = board.claim(job, "anna")
        board.extend(job, "anna", LONG)
        assert claim.expires_in() == pytest.approx(LONG, abs=60)
        assert other.get(job.uuid).expires_in() == pytest.approx(LONG, abs=60)
        board.extend(job, "anna")
        assert claim.expires_in() is None
        assert other.get(job.uuid).expires_in() is None
        claim.extend(2 * LONG)
        assert other.get(job.uuid).expires_in() == pytest.approx(2 * LONG, abs=60)
        claim.extend(LONG / 2)  # shorter, too
        assert other.get(job.uuid).expires_in() == pytest.approx(LONG / 2, abs=60)
        assert not claim.lost

    def test_kept_claims_and_entities_outlive_claim_ttl(self, make_board: MakeBoard) -> None:
        """A claim that was kept and is fixed now does not outlive its lease."""
        board, other = make_board(claim_ttl=STEADY), make_board()
        ttl = board.characteristics.claim_ttl
        board.post_many([Posting("kept"), Posting("turned"), Posting("taken"), Posting("fixed")])
        kept, turned = take(board, names=["kept"]), take(board, names=["turned"], expiry=SHORT)
        [taken], fixed = board.claim_many("anna", 1, names=["taken"]), take(board, names=["fixed"])
        eventually(lambda: other.find_owner(turned) is None, LIMIT)
        board.extend(turned, "anna")  # revived, and kept from now on
        board.extend(fixed, "anna", SHORT)
        eventually(lambda: other.find_owner(fixed) is None, LIMIT)
        guest = Entity("conductor", "one")
        board.register_entity(guest)
        until = time.monotonic() + HOLDS * ttl
        while time.monotonic() < until:
            assert [other.find_owner(job) for job in (kept, turned, taken)] == ["anna"] * 3
            assert uuids(other.iterjobs(only_unclaimed=True)) == [fixed.uuid]
            assert other.entities() == [guest]
            time.sleep(0.2)
        assert not any(job.claim is None or job.claim.lost for job in (kept, turned, taken))
        board.consume_many([kept, turned, taken], "anna")

    @holds("Closing a board gives back its claims and uses up no attempt.")
    def test_close_gives_back_what_it_keeps(self, board: JobBoard, other: JobBoard) -> None:
        kept, last, fixed = board.post("a"), board.post("b", max_attempts=1), board.post("c")
        claims = [board.claim(kept, "anna"), board.claim(last, "anna")]
        board.claim(fixed, "anna", expiry=LONG)
        board.close()
        assert all(claim.lost for claim in claims)
        for job in (kept, last):
            theirs = other.get(job.uuid)
            assert (theirs.state, theirs.attempts, theirs.error) == (UNCLAIMED, 0, None)
        assert other.find_owner(other.get(fixed.uuid)) == "anna"
        board.connect()
        board.consume(fixed, "anna")  # a fixed claim survives the board
        with pytest.raises(NotFound):
            board.consume(kept, "anna")
        taken = take(other)
        assert taken == kept
        with pytest.raises(ClaimLost):
            board.consume(kept, "anna")
        other.consume(taken, "anna")

    @holds("Closing a board leaves fixed claims, and claims of other handles, alone.")
    def test_close_spares_claims_of_others(self, board: JobBoard, other: JobBoard) -> None:
        job = claim_one(board)
        other.release(other.get(job.uuid))
        theirs = take(other, "anna")
        board.close()
        assert other.find_owner(theirs) == "anna"
        assert theirs.attempts == 2
        other.consume(theirs, "anna")

    def test_close_gives_back_more_claims_than_one_batch(self, board: JobBoard, other: JobBoard) -> None:
        board.post_many([Posting("resize")] * 120)
        assert len(board.claim_many("anna", 120)) == 120
        board.close()
        assert other.stats().unclaimed == 120

    def test_a_finished_claim_is_not_given_back(self, board: JobBoard, other: JobBoard) -> None:
        job = claim_one(board)
        other.abandon(other.get(job.uuid), "anna", delay=LONG)
        board.close()
        theirs = other.get(job.uuid)
        assert (theirs.seen_state, theirs.attempts) == (SCHEDULED, 1)

    @holds("A claim that ends while it is being extended is not kept.")
    @pytest.mark.parametrize("first", ["extend", "finish"])
    def test_claim_that_ends_while_it_is_extended_is_not_kept(self, board: JobBoard, first: str) -> None:
        for verb in ("consume", "trash", "abandon"):
            board.post("resize")
            claim = take(board).claim
            assert claim is not None
            end = getattr(claim, verb)

            def both(
                original: Callable[..., Any], *args: Any, claim: Claim = claim, end: Callable[[], None] = end
            ) -> Any:
                if first == "finish":
                    claim.extend()
                    assert Harness(board).held() == []
                    return original(*args)
                answer = original(*args)
                end()
                return answer

            with Harness(board).replaced(first, both):
                claim.extend() if first == "extend" else end()
            assert Harness(board).held() == []
            assert claim.ended, verb
            assert not claim.lost, verb

    def test_a_holder_learns_at_once_of_a_release_by_its_own_board(self, board: JobBoard) -> None:
        board.post("resize")
        taken, other = take(board), board.post("other")
        kept = board.claim(other, "anna")
        board.release(board.get(taken.uuid))
        assert taken.claim is not None
        assert taken.claim.lost
        assert not kept.lost
        again = board.claim(board.get(taken.uuid), "anna")
        assert not again.lost
        with pytest.raises(ClaimLost):
            board.consume(taken, "anna")
        assert not again.lost


class TestAttempts:
    any_driver = True

    def test_each_claim_counts(self, board: JobBoard) -> None:
        job = board.post("resize", max_attempts=3)
        for attempt in (1, 2):
            taken = take(board)
            assert taken.attempts == attempt
            board.abandon(taken, "anna")
            assert job.state == UNCLAIMED
        let_lapse(board, job)
        assert job.state == TRASHED
        assert job.attempts == 3

    def test_lapse_of_the_last(self, board: JobBoard, other: JobBoard) -> None:
        """Trashed at the instant of the lapse, whoever looks first and in whatever way."""
        looks: list[Any] = [
            lambda job: board.get(job.uuid).seen_state == TRASHED,
            lambda job: board.get(job.uuid).state == TRASHED,
            lambda job: uuids(board.trashed()) == [job.uuid],
            lambda job: board.stats().trashed == 1,
            lambda job: board.job_count == 0,
            lambda job: uuids(board.iterjobs()) == [],
            lambda job: board.find_owner(board.get(job.uuid)) is None,
            lambda job: board.claim_next("bert") is None,
        ]
        for look in looks:
            job = board.post("resize", max_attempts=1)
            let_lapse(board, job)
            assert look(job)
            with pytest.raises(ClaimLost):  # its attempts are used up: too late to finish
                board.consume(job, "anna")
            [trashed] = board.trashed()
            assert trashed.error
            assert "attempts" in trashed.error
            board.purge(job)


class TestWornOut:
    """A job whose last allowed attempt has lapsed lies in the trash from that instant on."""

    any_driver = True

    @holds(
        "A job that others see in the trash, as its last claim has lapsed, is not ended or extended by an "
        "act decided before."
    )
    @pytest.mark.parametrize("verb", ["consume", "abandon", "trash", "extend"])
    def test_an_act_that_is_stored_after_the_lapse(self, board: JobBoard, other: JobBoard, verb: str) -> None:
        """The holder's process stops between the reading and the commit. Others see the job in the trash meanwhile."""
        board.post("resize", max_attempts=1)
        job = take(board, expiry=HELD)

        def stopped(original: Callable[..., Any], wanted: Any, *sides: Any) -> Any:
            found = original(wanted, *sides)
            if wanted:
                eventually(lambda: uuids(other.trashed()) == [job.uuid], LIMIT)
            return found

        harness = Harness(board)
        # By the engine's way, whose reading and commit are two requests on every store.
        with (
            harness.replaced("consume", lambda *args: False),
            harness.requests.around("read", stopped),
            pytest.raises(ClaimLost),
        ):
            getattr(board, verb)(job, "anna")
        assert uuids(other.trashed()) == [job.uuid]
        assert other.claim_next("bert") is None


def kept(board: JobBoard, **posting: Any) -> tuple[Job, Claim]:
    """Claim a job that the board keeps."""
    board.post("resize", **posting)
    job = take(board)
    assert job.claim is not None
    assert job.claim.kept
    return job, job.claim


class TestHeartbeats:
    any_driver = True

    def test_a_holder_learns_of_its_loss(self, make_board: MakeBoard) -> None:
        board, other = make_board(claim_ttl=HELD), make_board()
        events = EventLog(board, "LOST")
        job = board.post("resize")
        claim = board.claim(job, "anna")
        other.release(other.get(job.uuid))
        events.expect(job, "LOST")
        assert claim.lost

    @pytest.mark.parametrize("by", ["its board", "another"])
    def test_a_fixed_lease_by_the_owners_name(self, board: JobBoard, other: JobBoard, by: str) -> None:
        job, claim = kept(board)
        acting = board if by == "its board" else other
        acting.extend(acting.get(job.uuid), "anna", LONG)
        Harness(board).beat()
        theirs, mine = job.expires_in(), claim.expires_in()
        assert theirs is not None
        assert mine is not None
        assert LONG - 60 < mine <= theirs
        assert (claim.kept, claim.lost, Harness(board).held()) == (False, False, [])
        claim.extend()
        assert (claim.kept, claim.expires_in(), Harness(board).held()) == (True, None, [claim])
        Harness(board).beat()
        assert (claim.lost, job.expires_in()) == (False, None)
        board.consume(job, "anna")

    @holds("An extension by the owner's name, without an expiry, leaves a claim kept by its board, or fixed.")
    @pytest.mark.parametrize("by", ["its board", "another"])
    def test_an_extension_by_the_owners_name_leaves_a_kept_claim_to_its_board(
        self, board: JobBoard, make_board: MakeBoard, by: str
    ) -> None:
        job, claim = kept(board)
        acting = board if by == "its board" else make_board()
        acting.extend(acting.get(job.uuid), "anna")
        if acting is not board:
            acting.close()
        assert (job.state, job.owner, job.expires_in()) == (CLAIMED, "anna", None)
        Harness(board).beat()
        assert (claim.kept, claim.lost, Harness(board).held()) == (True, False, [claim])
        board.close()
        board.connect()
        assert job.state == UNCLAIMED

    @holds("An extension by the owner's name, without an expiry, leaves a claim kept by its board, or fixed.")
    def test_an_extension_by_the_owners_name_leaves_a_fixed_claim_fixed(self, board: JobBoard, other: JobBoard) -> None:
        """Nobody would renew the claim as a kept one."""
        ttl = board.characteristics.claim_ttl
        board.post_many([Posting("short"), Posting("long")])
        short, long = take(board, names=["short"], expiry=ttl / 2), take(board, names=["long"], expiry=ttl + LONG)
        for job in (short, long):
            other.extend(other.get(job.uuid), "anna")
        left = short.expires_in()
        assert left is not None
        assert ttl / 2 < left <= ttl
        left = long.expires_in()
        assert left is not None
        assert ttl < left

    @pytest.mark.parametrize("met", ["before its end", "after its end"])
    def test_the_lease_by_the_owners_name_ends(self, board: JobBoard, other: JobBoard, met: str) -> None:
        """The holder's beats do not prolong the lease, and the holder knows of its end no later than others."""
        job, claim = kept(board)
        other.extend(other.get(job.uuid), "anna", 6 * SHORT if met == "before its end" else SHORT)
        if met == "after its end":
            until_free(other, job)
        Harness(board).beat()
        until_free(other, job)
        assert claim.lost
        assert (claim.kept, claim.expires_in(), Harness(board).held()) == (False, 0, [])
        Harness(board).beat()
        assert take(other, "bert") == job
        with pytest.raises(ClaimLost):
            board.consume(job, "anna")

    @holds("A heartbeat revives no claim whose attempts are used up.")
    def test_a_late_beat_revives_no_claim_whose_attempts_are_used_up(self, make_board: MakeBoard) -> None:
        """Readers have seen the job in the trash, though no sweep has written that down."""
        board, other = make_board(claim_ttl=HELD / 3), make_board()
        harness = Harness(board)
        job, claim = kept(board, max_attempts=1)
        [stored] = harness.store.read([job.uuid]).jobs
        if stored.record.lock_until is None:
            return  # as where a session keeps the claim, which ends for good
        late: list[str] = []

        def lapsed(original: Callable[..., Any], *args: Any) -> Any:
            late.append("sent")
            eventually(lambda: other.get(job.uuid).seen_state == TRASHED, LIMIT)
            answer = original(*args)
            late.remove("sent")
            return answer

        with harness.replaced("renew", lapsed):
            # To read claim.lost would stop the renewals.
            eventually(lambda: not (late or harness.held()), LIMIT)
        assert claim.lost
        assert uuids(other.trashed()) == [job.uuid]
        assert other.claim_next("bert") is None

    def test_the_beat_comes_by_itself(self, make_board: MakeBoard) -> None:
        board, other = make_board(claim_ttl=HELD), make_board()
        job, claim = kept(board)
        other.extend(other.get(job.uuid), "anna", SHORT)
        eventually(lambda: claim.lost, LIMIT)
        assert other.find_owner(job) is None

    @holds("A claim that its holder has read as lost is never renewed, and another worker gets the job.")
    @pytest.mark.parametrize("read", ["before", "after"])
    def test_read_as_lost_while_it_is_renewed(self, make_board: MakeBoard, read: str) -> None:
        """The holder may have dropped the job. The renewal under way is the last, whether the server has carried it out
        yet or not."""
        board, other = make_board(claim_ttl=HELD), make_board()
        job, claim = kept(board)
        if claim.deadline is None:
            return  # as in memory, where the process itself is the lease
        renewed: list[tuple[str, int]] = []

        def late(original: Callable[..., Any], handle: str, asked: list[tuple[str, int]], ttl: int) -> Any:
            renewed.extend(asked)
            if read == "before":
                eventually(lambda: claim.lost, LIMIT)
            answer = original(handle, asked, ttl)
            eventually(lambda: claim.lost, LIMIT)
            return answer

        with Harness(board).replaced("renew", late):
            eventually(lambda: renewed, LIMIT)
            eventually(lambda: not claim.kept, LIMIT)
            assert take(other, "bert", timeout=LIMIT) == job
        assert renewed == [(job.uuid, claim.token)]
        assert (claim.lost, claim.seen_lost, claim.expires_in(), Harness(board).held()) == (True, True, 0, [])
        with pytest.raises(ClaimLost):
            board.consume(job, "anna")

    @holds("Only a successful extend of the holder has a claim that was read as lost kept again.")
    def test_read_as_lost_and_extended(self, make_board: MakeBoard) -> None:
        board, other = make_board(claim_ttl=HELD), make_board()
        events = EventLog(board, "LOST")
        job, claim = kept(board)
        if claim.deadline is None:
            return

        def fail(original: Callable[..., Any], *args: Any) -> Any:
            raise ConnectionFailure("down")

        with Harness(board).replaced("renew", fail):
            eventually(lambda: claim.lost, LIMIT)
            events.expect(job, "LOST")
        Harness(board).beat()
        assert (claim.lost, claim.kept, Harness(board).held()) == (True, False, [])
        claim.extend()
        Harness(board).beat()
        assert (claim.lost, claim.kept, Harness(board).held()) == (False, True, [claim])
        assert other.find_owner(other.get(job.uuid)) == "anna"
