"""Follow-ups: jobs that the commit of a consume posts, or nothing happens."""

from __future__ import annotations

import contextlib
import itertools
import signal
import threading
from typing import Any

import pytest

from jobboard.board import JobBoard
from jobboard.conductor import Conductor
from jobboard.exceptions import ClaimLost, ConnectionFailure, JobFailures, NotFound
from jobboard.followups import Then, unique_key
from jobboard.job import Act, Job, Posting
from jobboard.primitives import POST_BATCH
from jobboard.states import CLAIMED, COMPLETE, TRASHED, UNCLAIMED
from jobboard.testing import eventually
from jobboard.testing.conformance.harness import Harness
from jobboard.testing.conformance.processes import reaches
from jobboard.testing.conformance.support import (
    LIMIT,
    LONG,
    PATIENCE,
    Background,
    EventLog,
    MakeBoard,
    Waiter,
    assert_order,
    let_lapse,
    take,
    uuids,
)
from jobboard.testing.puppet import Puppet
from jobboard.tracing import Tracing

CHAIN: list[Any] = [Posting("crop", details={"n": 1}), {"name": "mail", "priority": 7}]


def names(board: JobBoard, **wanted: Any) -> list[str]:
    return sorted(job.name for job in board.iterjobs(ensure_fresh=True, **wanted))


def claimed(board: JobBoard, who: str = "anna", **posting: Any) -> Job:
    """Return a new job that is claimed."""
    job = board.post("resize", **posting)
    board.claim(job, who)
    return job


UNFIT: list[tuple[Any, str]] = [
    ([Posting("crop", details={"a": object()})], r"posting 0, counted from 0: details\['a'\]"),
    ([Posting("crop"), Posting("")], "posting 1, counted from 0: a job's name"),
    ([{"nam": "crop"}], "posting 0, counted from 0"),
    (Posting("crop"), r"write \[posting\]"),
    ({"name": "crop"}, r"write \[posting\]"),
    ([Posting("crop")] * (POST_BATCH + 1), "501 follow-ups of .*: one commit stores 500"),
    ([Posting("crop", details={"a": "x" * 60_000})] * 9, "one commit stores"),
]
"""Follow-ups that no call takes, with what the error says."""


class TestFollowUps:
    @pytest.mark.rule("Follow-ups are posted by the commit that consumes, or nothing is.")
    def test_consume_posts_its_follow_ups(self, board: JobBoard, other: JobBoard) -> None:
        job = claimed(board)
        crop, mail = board.consume(job, "anna", then=CHAIN)
        assert job.state == COMPLETE
        assert (crop.name, crop.details, crop.created, crop.seen_state) == ("crop", {"n": 1}, True, UNCLAIMED)
        assert (mail.name, mail.priority) == ("mail", 7)
        assert_order(other, uuids(other.iterjobs(ensure_fresh=True)), [mail.uuid, crop.uuid])
        assert other.get(crop.uuid).details == {"n": 1}

    def test_claim_consumes_with_follow_ups(self, board: JobBoard) -> None:
        job = claimed(board)
        assert job.claim is not None
        assert job.claim.consume(then=(Posting(name) for name in ("crop", "mail")))[0].name == "crop"
        assert names(board) == ["crop", "mail"]

    def test_consume_without_follow_ups_returns_none(self, board: JobBoard) -> None:
        assert board.consume(claimed(board), "anna") == []
        assert board.consume(claimed(board), "anna", then=[]) == []

    def test_job_that_is_known_by_its_owner_has_follow_ups(self, board: JobBoard, other: JobBoard) -> None:
        job = claimed(board)
        other.consume(other.get(job.uuid), "anna", then=CHAIN)
        assert names(board) == ["crop", "mail"]

    def test_result_and_follow_ups_stand_together(self, keeper: JobBoard, other: JobBoard) -> None:
        job = claimed(keeper)
        keeper.consume(job, "anna", result={"width": 3}, then=CHAIN)
        assert job.result(LIMIT) == {"width": 3}
        assert names(other) == ["crop", "mail"]

    def test_follow_up_may_be_delayed(self, board: JobBoard) -> None:
        [job] = board.consume(claimed(board), "anna", then=[Posting("crop", delay=LONG)])
        assert (job.seen_state, job.state, job.attempts) == ("SCHEDULED", "SCHEDULED", 0)

    @pytest.mark.parametrize("taken", ["released", "lapsed and taken", "trashed"])
    def test_refused_consume_posts_nothing(self, board: JobBoard, other: JobBoard, taken: str) -> None:
        job = board.post("resize")
        if taken == "lapsed and taken":
            let_lapse(board, job)
            other.claim(other.get(job.uuid), "bert")
        else:
            board.claim(job, "anna")
            theirs = other.get(job.uuid)
            other.release(theirs) if taken == "released" else other.trash(theirs, "anna")
        with pytest.raises(ClaimLost):
            board.consume(job, "anna", then=CHAIN)
        assert job.claim is not None
        with pytest.raises(ClaimLost):
            job.claim.consume(then=CHAIN)
        assert set(names(other)) <= {"resize"}

    def test_absent_job_posts_nothing(self, board: JobBoard) -> None:
        job = claimed(board)
        board.consume(job, "anna")
        with pytest.raises(NotFound):
            board.consume(job, "anna", then=CHAIN)
        assert board.job_count == 0

    def test_lapsed_claim_posts_its_follow_ups_while_nobody_has_the_job(self, board: JobBoard) -> None:
        job = board.post("resize")
        let_lapse(board, job)
        board.consume(job, "anna", then=CHAIN)
        assert names(board) == ["crop", "mail"]

    def test_follow_ups_that_do_not_fit_send_no_request(self, board: JobBoard) -> None:
        job = claimed(board)
        sent: list[str] = []
        hooks = [Harness(board).requests.before(request, lambda: sent.append("sent")) for request in ("read", "commit")]
        for then, error in UNFIT:
            with hooks[0], hooks[1], pytest.raises((TypeError, ValueError), match=error):
                board.consume(job, "anna", then=then)
            with hooks[0], hooks[1], pytest.raises((TypeError, ValueError), match=error):
                board.finish_many([Act(job, "consume", then=then)], "anna")
        assert not sent
        assert job.state == CLAIMED
        assert names(board) == ["resize"]

    @pytest.mark.parametrize("verb", ["abandon", "trash"])
    def test_follow_ups_go_with_consume(self, board: JobBoard, verb: str) -> None:
        job = claimed(board)
        with pytest.raises(ValueError, match=f"then goes with consume, not with {verb}"):
            board.finish_many([Act(job, verb, then=CHAIN)], "anna")
        assert job.state == CLAIMED

    def test_as_many_as_one_commit_stores(self, board: JobBoard, other: JobBoard) -> None:
        posted = board.consume(claimed(board), "anna", then=[Posting("crop", details={"n": n}) for n in range(500)])
        assert len({job.uuid for job in posted}) == 500
        assert other.job_count == 500

    def test_as_large_as_one_commit_stores(self, board: JobBoard) -> None:
        """Bounds of stores are found before a request: keys and long names take room in a tree."""
        job = claimed(board)
        large = [
            Posting("n" * 200, group="g" * 200, key=f"{n}" * 50, details={"a": "x" * 900}) for n in range(100, 600)
        ]
        with contextlib.suppress(ValueError):
            board.consume(job, "anna", then=large)
        assert board.job_count in (1, 500)
        assert (job.state == COMPLETE) == (board.job_count == 500)

    def test_listeners_hear_of_follow_ups_once(self, board: JobBoard) -> None:
        events = EventLog(board)
        job = claimed(board)
        [crop] = board.consume(job, "anna", then=[Posting("crop")])
        events.expect(crop, "POSTED")
        events.expect(job, "POSTED", "CLAIMED", "CONSUMED", "REMOVAL")

    def test_follow_up_wakes_waiters(self, board: JobBoard, other: JobBoard) -> None:
        job = claimed(board)
        waiter = Waiter(other, lambda: other.claim_next("bert", names=["crop"], timeout=PATIENCE))
        [crop] = board.consume(job, "anna", then=[Posting("crop")])
        assert waiter.wait() == crop

    def test_tracing_follows(self, board: JobBoard) -> None:
        class Traced(Tracing):
            def post(self, postings: Any, insert: Any) -> Any:
                return insert([each._replace(context={"trace": each.name}) for each in postings])

        board.tracing = Traced()
        board.consume(claimed(board), "anna", then=CHAIN)
        board.finish_many([Act(claimed(board), "consume", then=[Posting("end")])], "anna")
        assert {job.name: job.context for job in board.iterjobs()} == {
            name: {"trace": name} for name in ("crop", "mail", "end")
        }


class TestFollowUpKeys:
    @pytest.mark.rule("A follow-up may have the key of the job that its commit consumes, unless the window runs.")
    def test_key_of_the_consumed_job_is_free(self, board: JobBoard, other: JobBoard) -> None:
        job = claimed(board, key="k")
        [again] = board.consume(job, "anna", then=[Posting("resize", key="k")])
        assert again.created
        assert again != job
        assert other.post("resize", key="k") == again

    @pytest.mark.parametrize("on_key", ["keep", "replace"])
    def test_key_with_a_window_is_kept(self, board: JobBoard, other: JobBoard, on_key: Any) -> None:
        job = claimed(board, key="k", key_for=LONG)
        [kept, crop] = board.consume(
            job, "anna", then=[Posting("resize", key="k", on_key=on_key), Posting("crop", key="l")]
        )
        assert (kept, kept.created, kept.replaced, kept.seen_state) == (job, False, False, COMPLETE)
        assert names(board) == ["crop"]
        again = other.post("resize", key="k")
        assert (again, again.created, again.state) == (job, False, COMPLETE)
        assert other.post("crop", key="l") == crop

    def test_window_alone_outlives_the_consume(self, board: JobBoard) -> None:
        job = claimed(board, key="k", key_for=LONG)
        board.consume(job, "anna", then=[Posting("crop", key="l")])
        assert board.post("resize", key="k") == job
        assert names(board) == ["crop"]

    def test_key_that_another_job_holds(self, board: JobBoard, other: JobBoard) -> None:
        held = other.post("crop", key="k", details={"n": 0})
        [kept, again, new] = board.consume(
            claimed(board),
            "anna",
            then=[Posting("crop", key="k"), Posting("mail", key="l"), Posting("mail", key="l", details={"n": 1})],
        )
        assert (kept, kept.created, kept.details) == (held, False, {"n": 0})
        assert (again.created, new.created, again == new) == (True, False, True)

    def test_follow_up_replaces_the_holder_of_its_key(self, board: JobBoard) -> None:
        held = board.post("crop", key="k", details={"n": 0})
        job = claimed(board)
        [replaced] = board.consume(job, "anna", then=[Posting("crop", None, {"n": 1}, key="k", on_key="replace")])
        assert (replaced, replaced.replaced, board.get(held.uuid).details) == (held, True, {"n": 1})

    @pytest.mark.parametrize("verb", ["consume", "abandon", "trash"])
    @pytest.mark.parametrize("window", [None, LONG])
    @pytest.mark.parametrize("lapses", [False, True])
    def test_key_of_another_job_of_the_batch(
        self, board: JobBoard, verb: str, window: float | None, lapses: bool
    ) -> None:
        holder, job = board.post("holder", key="k", key_for=window), claimed(board)
        let_lapse(board, holder) if lapses else board.claim(holder, "anna")
        posting = Posting("crop", details={"n": 1}, key="k", on_key="replace")
        board.finish_many([Act(holder, verb), Act(job, "consume", then=[posting])], "anna")
        expected = "crop" if verb != "abandon" and window is None else "holder"
        found = board.post("other", key="k")
        assert (found.created, found == holder) == (False, expected == "holder")
        assert holder.state == {"consume": COMPLETE, "abandon": UNCLAIMED, "trash": TRASHED}[verb]
        if verb == "abandon":
            # Nobody holds it any more, so that it has got the posting.
            assert (found.state, found.details) == (UNCLAIMED, {"n": 1})
        assert names(board) == [expected] * (verb == "abandon" or expected == "crop")

    def test_posters_that_race_for_a_key_find_one_job(self, board: JobBoard, other: JobBoard) -> None:
        """The key is taken between the reading of the consume and its commit."""
        job = claimed(board)
        once = itertools.count()

        def taken() -> None:
            if next(once) == 0:
                other.post("crop", key="k", details={"n": 0})

        with Harness(board).requests.before("commit", taken):
            [kept] = board.consume(job, "anna", then=[Posting("crop", key="k", details={"n": 1})])
        assert (kept.created, kept.details, job.state) == (False, {"n": 0}, COMPLETE)
        assert names(board) == ["crop"]

    def test_unique_key_is_one_for_equal_details(self, board: JobBoard) -> None:
        key = unique_key("mail", {"to": "anna", "parts": (1, 2)})
        first = board.post("mail", key=key)
        assert board.post("mail", key=unique_key("mail", {"parts": [1, 2], "to": "anna"})) == first
        others = [
            unique_key("mail", {"parts": [2, 1], "to": "anna"}),
            unique_key("mails", {"parts": [1, 2], "to": "anna"}),
            unique_key("mail", {"parts": [1, 2], "to": "anna"}, b"secret"),
            unique_key("mail", {"parts": [1, True], "to": "anna"}),
            unique_key("mail"),
        ]
        assert len({key, *others}) == 6
        assert unique_key("mail") == unique_key("mail", {})
        with pytest.raises(TypeError, match="details"):
            unique_key("mail", {"to": object()})
        with pytest.raises(TypeError, match="secret must be bytes"):
            unique_key("mail", secret="secret")  # type: ignore[arg-type]


class TestFollowUpBatches:
    def test_each_act_has_its_own(self, board: JobBoard, other: JobBoard) -> None:
        kept, lost, plain, failed = (claimed(board) for _ in range(4))
        other.release(other.get(lost.uuid))
        acts = [
            Act(kept, "consume", then=[Posting("of kept"), Posting("of kept")]),
            Act(lost, "consume", then=[Posting("of lost")]),
            Act(plain, "consume"),
            Act(failed, "trash", error="no use"),
        ]
        with pytest.raises(JobFailures) as caught:
            board.finish_many(acts, "anna")
        assert [getattr(error, "job", None) for error in caught.value.exceptions] == [lost]
        assert names(other) == ["of kept", "of kept", "resize"]
        assert [job.state for job in (kept, lost, plain, failed)] == [COMPLETE, UNCLAIMED, COMPLETE, TRASHED]

    def test_batch_falls_apart_where_one_commit_is_too_small(self, board: JobBoard) -> None:
        """300 and 300 do not fit together, nor do twice 300 KB."""
        for then in ([Posting("crop")] * 300, [Posting("crop", details={"a": "x" * 50_000})] * 6):
            jobs = [claimed(board) for _ in range(3)]
            board.finish_many([Act(job, "consume", then=then) for job in jobs], "anna")
            assert board.job_count == 3 * len(then)
            for job in board.iterjobs(ensure_fresh=True):
                board.cancel(job)

    def test_hundred_acts_with_follow_ups(self, board: JobBoard) -> None:
        board.post_many([Posting("resize")] * 100)
        jobs = board.claim_many("anna", 100)
        board.finish_many(
            [Act(job, "consume", then=[Posting("crop", details={"of": job.uuid})]) for job in jobs], "anna"
        )
        assert sorted(job.details["of"] for job in board.iterjobs(ensure_fresh=True)) == sorted(uuids(jobs))


class TestLostFollowUps:
    """The request was carried out, and its reply got lost."""

    any_driver = True

    @pytest.mark.rule("A repeated consume posts its follow-ups once.")
    def test_repeated_consume_posts_once(self, board: JobBoard) -> None:
        job = claimed(board, key="k")
        then = [Posting("crop", key="k"), Posting("mail", key="l"), Posting("mail", key="l")]
        with Harness(board).lost_reply():
            [crop, mail, same] = board.consume(job, "anna", then=then)
        assert [each.created for each in (crop, mail, same)] == [True, True, False]
        assert mail == same
        assert sorted(uuids(board.iterjobs(ensure_fresh=True))) == sorted([crop.uuid, mail.uuid])

    def test_follow_up_that_is_consumed_meanwhile(self, board: JobBoard, other: JobBoard) -> None:
        job = claimed(board)
        with Harness(board).lost_reply(lambda: other.consume(take(other, "bert", names=["crop"]), "bert")):
            [crop] = board.consume(job, "anna", then=[Posting("crop", details={"n": 1})])
        assert (crop.created, crop.seen_state, crop.details) == (True, COMPLETE, {"n": 1})
        assert board.job_count == 0

    def test_repeated_batch_tells_each_act_its_own(self, board: JobBoard, other: JobBoard) -> None:
        kept, lost, last = (claimed(board) for _ in range(3))
        other.release(other.get(lost.uuid))
        acts = [Act(job, "consume", then=[Posting(f"of {n}")] * n) for n, job in enumerate((kept, lost, last), 1)]
        with Harness(board).lost_reply(), pytest.raises(JobFailures):
            board.finish_many(acts, "anna")
        assert names(board) == ["of 1", "of 3", "of 3", "of 3", "resize"]

    def test_consume_of_unknown_outcome_has_both_or_neither(self, make_board: MakeBoard) -> None:
        board = make_board(retry_for=0)
        job = claimed(board)
        with Harness(board).lost_reply(), pytest.raises(ConnectionFailure) as caught:
            board.consume(job, "anna", then=CHAIN)
        assert caught.value.outcome == "unknown"
        assert (job.state, names(board)) == (COMPLETE, ["crop", "mail"])

    def test_request_that_never_came_posts_nothing(self, make_board: MakeBoard) -> None:
        board = make_board(retry_for=0)
        job = claimed(board)

        def away() -> None:
            raise ConnectionFailure("the server is away")

        with Harness(board).requests.before("commit", away), pytest.raises(ConnectionFailure):
            board.consume(job, "anna", then=CHAIN)
        assert (job.state, names(board)) == (CLAIMED, ["resize"])

    def test_job_that_is_taken_away_between_reading_and_commit(self, board: JobBoard, other: JobBoard) -> None:
        """The commit compares the claim, and the next try is refused."""
        job = claimed(board)
        once = itertools.count()

        def release() -> None:
            if next(once) == 0:
                other.release(other.get(job.uuid))

        with Harness(board).requests.before("commit", release), pytest.raises(ClaimLost):
            board.consume(job, "anna", then=CHAIN)
        assert names(board) == ["resize"]

    def test_two_that_consume_one_job_post_once(self, board: JobBoard, other: JobBoard) -> None:
        """Both go by the owner's name, and one is refused at its commit."""
        job = claimed(board)
        mine, theirs = board.get(job.uuid), other.get(job.uuid)
        at_commit = threading.Barrier(2, timeout=LIMIT)
        passed = itertools.count()

        def meet() -> None:
            if next(passed) < 2:
                with contextlib.suppress(threading.BrokenBarrierError):
                    at_commit.wait()

        with Harness(board).requests.before("commit", meet), Harness(other).requests.before("commit", meet):
            calls = [
                Background(lambda: board.consume(mine, "anna", then=[Posting("crop")])),
                Background(lambda: other.consume(theirs, "anna", then=[Posting("crop")])),
            ]
            for call in calls:
                call.join(LIMIT)
        assert sum(call.error is None for call in calls) == 1
        assert names(board) == ["crop"]

    @pytest.mark.parametrize("taken", [False, True])
    def test_holder_whose_session_or_lease_has_ended(self, board: JobBoard, puppet: Puppet, taken: bool) -> None:
        """A late holder posts with an end that still counts, and nothing once another holder has the job."""
        if not reaches(board, puppet):
            return
        job = board.post("resize")
        puppet("claim_next", "anna")
        puppet.signal(signal.SIGSTOP)
        eventually(lambda: job.state == UNCLAIMED, LIMIT)
        if taken:
            board.claim(job, "bert")
        puppet.tell("consume", "anna", then=[{"name": "crop"}])
        puppet.signal(signal.SIGCONT)
        assert puppet.answer() == ("ClaimLost" if taken else "ok")
        assert names(board) == (["resize"] if taken else ["crop"])

    def test_killed_process_leaves_no_half(self, board: JobBoard, puppet: Puppet) -> None:
        """A process works on a chain, and dies at any moment: each link is there exactly once."""
        if not reaches(board, puppet):
            return
        board.post_many([Posting("link", details={"chain": chain, "n": 0}) for chain in range(4)])
        puppet.tell("chain", "anna")
        eventually(lambda: any(job.details["n"] > 2 for job in board.iterjobs(ensure_fresh=True)), LIMIT)
        puppet.signal(signal.SIGKILL)
        for _ in range(2):
            left = sorted(job.details["chain"] for job in board.iterjobs(names=["link"], ensure_fresh=True))
            assert left == [0, 1, 2, 3]
            eventually(lambda: not names(board, states=[CLAIMED]), LIMIT)


class TestFollowUpSlots:
    def test_consume_frees_its_slot_for_its_follow_up(self, board: JobBoard, other: JobBoard) -> None:
        board.set_limit("resize", concurrency=1)
        job = claimed(board)
        waiter = Waiter(other, lambda: other.claim_next("bert", names=["resize"], timeout=PATIENCE))
        [again] = board.consume(job, "anna", then=[Posting("resize")])
        assert waiter.wait() == again
        assert again.uuid in uuids(board.iterjobs(states=[CLAIMED], ensure_fresh=True))

    def test_paused_follow_up_waits(self, board: JobBoard) -> None:
        job = claimed(board)
        board.pause(["crop"])
        [crop] = board.consume(job, "anna", then=[Posting("crop")])
        assert board.claim_next("bert") is None
        board.resume()
        assert take(board, "bert") == crop


def work(board: JobBoard, handlers: Any, dispatches: int, **options: Any) -> Conductor:
    """Return a conductor that has run."""
    conductor = Conductor("conductor", board, handlers, **options)
    running = Background(lambda: conductor.run(max_dispatches=dispatches))
    running.wait(2 * LIMIT)
    return conductor


class TestFollowUpsOfHandlers:
    any_driver = True

    def test_chain_and_fan_out(self, make_board: MakeBoard) -> None:
        board = make_board(keep_done=LONG)
        seen: list[str] = []

        def split(job: Job) -> Then:
            return Then({"parts": 3}, [Posting("part", details={"n": n}) for n in range(3)])

        def part(job: Job, *, n: int) -> Then | None:
            seen.append(f"part {n}")
            return Then(n, [{"name": "end"}]) if n == 2 else None

        first = board.post("split")
        handlers = {"split": split, "part": part, "end": lambda job: seen.append("end")}
        conductor = work(board, handlers, 5, max_simultaneous_jobs=2)
        assert sorted(seen) == ["end", "part 0", "part 1", "part 2"]
        assert conductor.tally.consumed == 5
        assert first.result(LIMIT) == {"parts": 3}
        assert board.job_count == 0

    @pytest.mark.rule("A follow-up that does not fit is its handler's failure.")
    @pytest.mark.parametrize(
        "then",
        [
            [Posting("crop", details={"a": {1, 2}})],
            [Posting("crop", details={"a": "x" * 60_000})] * 9,
            [Posting("crop")] * (POST_BATCH + 1),
            Posting("crop"),
        ],
    )
    def test_posting_that_does_not_fit_is_the_handlers_failure(self, board: JobBoard, then: Any) -> None:
        job = board.post("resize")
        failed: list[BaseException] = []
        conductor = work(
            board, lambda job: Then(1, then), 1, on_error=lambda job, error: failed.append(error), workers="threads"
        )
        assert [type(error) in (TypeError, ValueError) for error in failed] == [True]
        assert (conductor.tally.consumed, conductor.tally.abandoned) == (0, 1)
        assert names(board) == ["resize"]
        assert board.get(job.uuid).attempts == 1

    def test_result_that_can_not_be_stored_does_not_stop_follow_ups(self, keeper: JobBoard) -> None:
        job = keeper.post("resize")
        work(keeper, {"resize": lambda job: Then(object(), CHAIN)}, 1)
        assert names(keeper) == ["crop", "mail"]
        assert "object is not one of" in (keeper.outcome(job).refused or "")

    def test_handler_that_ends_its_claim_has_no_follow_ups_to_return(self, board: JobBoard) -> None:
        board.post("resize")
        failed: list[BaseException] = []

        def handler(job: Job) -> Then:
            assert job.claim is not None
            job.claim.consume()
            return Then(None, CHAIN)

        work(board, {"resize": handler}, 1, on_error=lambda job, error: failed.append(error))
        assert names(board) == []
        assert ["consume(then=)" in str(error) for error in failed] == [True]

    def test_lost_claim_posts_nothing(self, board: JobBoard, other: JobBoard) -> None:
        board.post("resize")

        def handler(job: Job) -> Then:
            other.release(other.get(job.uuid))
            other.cancel(other.get(job.uuid))
            return Then(None, CHAIN)

        conductor = work(board, {"resize": handler}, 1)
        assert conductor.tally.lost == 1
        assert names(board) == []

    def test_working_function_returns_follow_ups(self, keeper: JobBoard) -> None:
        @keeper.working("anna", timeout=0)
        def resize(job: Job) -> Then:
            return Then(3, CHAIN)

        job = keeper.post("resize")
        done = resize()
        assert done is not None
        assert (done.result, job.result(LIMIT), names(keeper)) == (3, 3, ["crop", "mail"])

    def test_working_function_whose_follow_up_does_not_fit_has_failed(self, board: JobBoard) -> None:
        @board.working("anna", timeout=0)
        def resize(job: Job) -> Then:
            return Then(None, [Posting("")])

        job = board.post("resize")
        with pytest.raises(ValueError, match="a job's name must not be empty"):
            resize()
        assert "a job's name must not be empty" in (board.get(job.uuid).error or "")
        assert names(board) == ["resize"]
