"""Repeated calls: a lost reply is not a lost job, and a late first try changes nothing.

``ACTS`` stops each mutation at each of its requests in turn, on the wire: the server gets the bytes of the first try
when everything else is over."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest

from jobboard.board import JobBoard
from jobboard.exceptions import ClaimLost, ConnectionFailure, JobFailure, NotFound, UnclaimableJob
from jobboard.job import Job, Posting
from jobboard.primitives import End, Finish, Returned
from jobboard.states import CLAIMED, COMPLETE, SCHEDULED, TRASHED, UNCLAIMED, Holder, Verb
from jobboard.testing import eventually, holds
from jobboard.testing.conformance.harness import LONG_AGO, Harness, part
from jobboard.testing.conformance.support import (
    HELD,
    LIMIT,
    LONG,
    SHORT,
    Background,
    EventLog,
    MakeBoard,
    claim_one,
    take,
    trash_one,
    uuids,
)
from jobboard.testing.conformance.wire import Wire


class TestLostReplies:
    """The request was carried out, its reply got lost, and the library asks again."""

    any_driver = True

    @holds("A repeated call returns the answer of its first try.")
    def test_post(self, board: JobBoard) -> None:
        with Harness(board).lost_reply():
            job = board.post("resize", details={"a": 1}, key="k")
        assert uuids(board.iterjobs()) == [job.uuid]
        assert board.get(job.uuid).details == job.details == {"a": 1}
        with Harness(board).lost_reply():
            assert board.post("resize", key="k").uuid == job.uuid
        assert board.job_count == 1

    def test_post_of_a_job_that_is_consumed_meanwhile(self, board: JobBoard, other: JobBoard) -> None:
        with Harness(board).lost_reply(lambda: other.consume(take(other), "anna")):
            job = board.post("resize")
        assert job.state == COMPLETE
        assert board.job_count == 0

    @holds("A repeated post tells each posting of a key its own outcome.")
    def test_each_posting_of_a_key_keeps_its_outcome(self, board: JobBoard) -> None:
        held = board.post("resize", key="k")
        replacing = [Posting("resize", key="k", on_key="replace"), Posting("resize", key="l")]
        with Harness(board).lost_reply():
            jobs = board.post_many([*replacing, Posting("resize", key="l", on_key="replace")])
        assert [(job.created, job.replaced) for job in jobs] == [(False, True), (True, False), (False, True)]
        assert uuids(jobs) == [held.uuid, jobs[1].uuid, jobs[1].uuid]

    def test_post_tells_its_listeners_once(self, board: JobBoard) -> None:
        events = EventLog(board)
        with Harness(board).lost_reply():
            job = board.post("resize")
        events.expect(job, "POSTED")

    @holds("A repeated call returns the answer of its first try.")
    @pytest.mark.parametrize("expiry", [None, LONG])
    def test_claim(self, board: JobBoard, expiry: float | None) -> None:
        job = board.post("resize")
        with Harness(board).lost_reply():
            claim = board.claim(job, "anna", expiry)
        seen = board.get(job.uuid)
        assert (seen.attempts, seen.owner) == (1, "anna")
        assert not claim.lost
        board.consume(job, "anna")

    @holds(
        "An extension of unknown outcome leaves no claim that nobody holds, and takes no claim away before "
        "its lease ends."
    )
    def test_extension_of_unknown_outcome_keeps_no_job(self, make_board: MakeBoard) -> None:
        """The extension was carried out, so that nothing but this board ends the claim."""
        board = make_board(retry_for=0, claim_ttl=HELD)
        job = board.post("resize")
        claim = board.claim(job, "anna", expiry=SHORT)
        with Harness(board).lost_reply(), pytest.raises(ConnectionFailure):
            claim.extend()
        eventually(lambda: board.find_owner(job) is None, LIMIT)

    @holds(
        "An extension of unknown outcome leaves no claim that nobody holds, and takes no claim away before "
        "its lease ends."
    )
    def test_extension_of_unknown_outcome_takes_no_claim_away(self, make_board: MakeBoard) -> None:
        """Its holder may work on until the end of the lease before."""
        board = make_board(retry_for=0)
        job = board.post("resize")
        claim = board.claim(job, "anna", expiry=LONG)
        with Harness(board).lost_reply(), pytest.raises(ConnectionFailure):
            claim.extend()
        Harness(board).beat()
        assert board.find_owner(job) == "anna"
        assert not claim.lost
        claim.extend()
        Harness(board).beat()
        assert (board.find_owner(job), Harness(board).held()) == ("anna", [claim])

    def test_claim_that_was_refused(self, board: JobBoard, other: JobBoard) -> None:
        """A first try that changed nothing may be repeated afresh: either answer is true."""
        job = board.post("resize")
        taken = take(other, "bert")
        owner = None
        with (
            Harness(board).lost_reply(lambda: other.abandon(taken, "bert")),
            contextlib.suppress(UnclaimableJob),
        ):
            owner = board.claim(job, "anna").who
        assert board.find_owner(job) == owner

    @pytest.mark.parametrize("then", ["lapsed", "taken"])
    def test_claim_that_has_lapsed_meanwhile(self, board: JobBoard, other: JobBoard, then: str) -> None:
        job = board.post("resize")

        def lapse() -> None:
            eventually(lambda: other.find_owner(other.get(job.uuid)) is None, LIMIT)
            if then == "taken":
                take(other, "anna")

        with Harness(board).lost_reply(lapse), pytest.raises(ClaimLost):
            board.claim(job, "anna", expiry=SHORT)
        assert job.state == (CLAIMED if then == "taken" else UNCLAIMED)

    @holds("A repeated call returns the answer of its first try.")
    @pytest.mark.parametrize("expiry", [None, LONG])
    def test_claim_next(self, board: JobBoard, expiry: float | None) -> None:
        posted = board.post_many([Posting("resize")] * 3)
        with Harness(board).lost_reply():
            job = take(board, expiry=expiry)
        assert job == posted[0]
        assert uuids(board.iterjobs(states=[CLAIMED])) == [job.uuid]
        assert job.attempts == board.get(job.uuid).attempts == 1
        board.consume(job, "anna")

    @pytest.mark.parametrize("then", ["lapsed", "taken"])
    def test_claim_next_takes_another_for_one_that_has_lapsed(
        self, board: JobBoard, other: JobBoard, then: str
    ) -> None:
        first, second = board.post_many([Posting("resize")] * 2)

        def lapse() -> None:
            eventually(lambda: other.find_owner(other.get(first.uuid)) is None, LIMIT)
            if then == "taken":
                assert take(other, "bert") == first

        with Harness(board).lost_reply(lapse):
            job = take(board, expiry=SHORT)
        assert job == (second if then == "taken" else first)

    @holds("A repeated claim of many returns its jobs in serving order.")
    def test_claim_many_in_serving_order(self, board: JobBoard) -> None:
        posted = board.post_many([Posting("resize", priority=priority) for priority in ("LOW", "NORMAL", "HIGH")])
        with Harness(board).lost_reply():
            jobs = board.claim_many("anna", 3)
        assert jobs == posted[::-1]

    @holds("A repeated call returns the answer of its first try.")
    @pytest.mark.parametrize(
        ("verb", "arguments", "state"),
        [
            ("consume", {}, COMPLETE),
            ("abandon", {}, UNCLAIMED),
            ("abandon", {"delay": LONG, "error": "later"}, SCHEDULED),
            ("trash", {"reason": "no use"}, TRASHED),
        ],
    )
    def test_the_ends_of_a_claim(self, board: JobBoard, verb: str, arguments: dict[str, Any], state: str) -> None:
        events = EventLog(board, {"consume": "CONSUMED", "abandon": "ABANDONED", "trash": "TRASHED"}[verb])
        job = claim_one(board)
        with Harness(board).lost_reply():
            getattr(board, verb)(job, "anna", **arguments)
        assert job.state == state
        assert job.attempts == 1
        assert job.claim is not None
        assert not job.claim.lost
        events.expect(job, {"consume": "CONSUMED", "abandon": "ABANDONED", "trash": "TRASHED"}[verb])

    @pytest.mark.parametrize("verb", ["consume", "abandon"])
    def test_an_end_that_another_follows(self, board: JobBoard, other: JobBoard, verb: str) -> None:
        """An act by name must not end the next claim of the same owner when it is repeated."""
        job = claim_one(board)
        by_name = board.get(job.uuid)

        def again() -> None:
            if verb == "abandon":
                take(other, "anna")

        with Harness(board).lost_reply(again):
            getattr(board, verb)(by_name, "anna")
        assert job.state == (CLAIMED if verb == "abandon" else COMPLETE)

    def test_batches(self, board: JobBoard) -> None:
        with Harness(board).lost_reply():
            posted = board.post_many([Posting("resize", key=f"k{n % 7}") for n in range(10)])
        assert uuids(posted) == [*uuids(board.iterjobs()), *uuids(posted[:3])]
        with Harness(board).lost_reply():
            jobs = board.claim_many("anna", 5)
        assert jobs == posted[:5]
        assert board.stats().claimed == 5
        with Harness(board).lost_reply():
            board.consume_many(jobs, "anna")
        assert board.job_count == 2

    @pytest.mark.parametrize("expiry", [None, LONG])
    def test_extend(self, board: JobBoard, expiry: float | None) -> None:
        job = claim_one(board, expiry=2 * LONG)
        with Harness(board).lost_reply():
            board.extend(job, "anna", expiry)
        assert job.expires_in() == (expiry and pytest.approx(expiry, abs=60))

    def test_acts_of_an_operator(self, board: JobBoard, other: JobBoard) -> None:
        """The repetition does not hit the next claim, nor a job that has come back or has gone on."""
        job = claim_one(board)
        with Harness(board).lost_reply(lambda: take(other, "bert")):
            board.release(job)
        assert (board.find_owner(job), job.attempts) == ("bert", 2)
        other.abandon(board.get(job.uuid), "bert")
        with Harness(board).lost_reply(lambda: other.restore(other.get(job.uuid))):
            board.cancel(job)
        assert job.state == UNCLAIMED
        board.cancel(job)
        with Harness(board).lost_reply(lambda: take(other, "bert")):
            board.restore(job)
        assert board.find_owner(job) == "bert"
        with Harness(board).lost_reply():
            board.purge(trash_one(board))
        assert board.stats().trashed == 0

    @holds("Closing a board gives up its claims at the first failure, and waits for no dead server.")
    def test_close(self, board: JobBoard, other: JobBoard) -> None:
        board.post_many([Posting("resize")] * 3)
        board.claim_many("anna", 3)
        with Harness(board).lost_reply():
            board.close()
        assert [(job.seen_state, job.attempts) for job in other.iterjobs(ensure_fresh=True)] == [(UNCLAIMED, 0)] * 3

    def test_calls_in_between_keep_their_answers_apart(self, board: JobBoard) -> None:
        """While one call waits to be repeated, others of the same handle go on."""
        board.post_many([Posting("resize")] * 30)
        others: list[Job] = []

        def meanwhile() -> None:
            for _ in range(5):
                others.extend(Background(lambda: board.claim_many("bert", 2)).wait())

        with Harness(board).lost_reply(meanwhile):
            mine = board.claim_many("anna", 3)
        assert len({*mine, *others}) == 13
        assert board.stats().claimed == 13
        board.consume_many(mine, "anna")
        board.consume_many(others, "bert")


class TestRepeatedPosts:
    """A post that has stored its job is done; one that was answered with another's stands for as long as that one."""

    @holds("A post that stored nothing and lost its reply posts its draft if the holder of its key has gone meanwhile.")
    @pytest.mark.parametrize("fate", ["consumed", "trashed", "purged"])
    def test_post_whose_keys_holder_goes_meanwhile(self, board: JobBoard, other: JobBoard, fate: str) -> None:
        """The first try has stored nothing, and the job that it would have returned is gone."""
        events = EventLog(board, "POSTED")
        holder = other.post("crop", key="k")

        def go() -> None:
            theirs = take(other, "bert")
            if fate == "consumed":
                other.consume(theirs, "bert")
                return
            other.trash(theirs, "bert")
            if fate == "purged":
                other.purge(theirs)

        with Harness(board).lost_reply(go):
            job = board.post("resize", details={"a": 1}, key="k")
        assert job != holder
        assert (job.state, job.name, job.details) == (UNCLAIMED, "resize", {"a": 1})
        assert uuids(other.iterjobs(ensure_fresh=True)) == [job.uuid]
        assert board.post("resize", key="k") == job
        events.expect(job, "POSTED")

    def test_post_whose_keys_holder_goes_and_comes_back(self, board: JobBoard, other: JobBoard) -> None:
        holder = other.post("crop", key="k")

        def go_and_come() -> None:
            other.cancel(holder)
            other.restore(holder)

        with Harness(board).lost_reply(go_and_come):
            assert board.post("resize", key="k") == holder
        assert board.job_count == 1

    @holds(
        "A post that stored a part has the answer of its first try, also where the holder of a key has gone meanwhile."
    )
    def test_post_many_of_which_some_have_gone(self, board: JobBoard, other: JobBoard) -> None:
        """The answer is that of the first try: jobs that were stored then, and holders of keys, gone ones too."""
        gone, stays = other.post("gone", key="gone"), other.post("stays", key="stays")

        def consume() -> None:
            for name in ("gone", "mine"):
                other.consume(take(other, "bert", names=[name]), "bert")

        with Harness(board).lost_reply(consume):
            jobs = board.post_many(
                [
                    Posting("mine", key="mine", details={"n": 0}),
                    Posting("again", key="mine"),
                    Posting("new", key="gone", details={"n": 2}),
                    Posting("newer", key="gone"),
                    Posting("kept out", key="stays"),
                    Posting("free"),
                ]
            )
        assert [job.state for job in jobs] == [*[COMPLETE] * 4, UNCLAIMED, UNCLAIMED]
        assert [job.created for job in jobs] == [True, False, False, False, False, True]
        assert jobs[0] == jobs[1]
        assert jobs[0].details == {"n": 0}
        assert jobs[2] == jobs[3] == gone
        assert jobs[4] == stays
        assert sorted(uuids(other.iterjobs(ensure_fresh=True))) == sorted({job.uuid for job in jobs[4:]})


MOST = 60
"""No mutation of one job needs more requests."""


_numbers = itertools.count(1)


Step = Callable[..., Any]
"""Is called with a board and what was prepared, and perhaps with the answer to a call."""


def of_board(verb: str, *arguments: Any, **named: Any) -> Step:
    """Return a call of the board."""
    return lambda board, *given: getattr(board, verb)(*arguments, **named)


def of_job(verb: str, *arguments: Any) -> Step:
    """Return a call on the prepared job, by a handle that has no claim."""
    return lambda board, job, *given: getattr(board, verb)(board.get(job.uuid), *arguments)


def all_in_turn(*steps: Step) -> Step:
    return lambda board, *given: [step(board, *given) for step in steps]


def nothing(board: JobBoard, *given: Any) -> None:
    """Prepare nothing, and do nothing."""


def replacing(board: JobBoard, *given: Any) -> Job:
    """Replace the job of the key by one with other details each time."""
    return board.post("resize", details={"n": next(_numbers)}, key="k", on_key="replace")


claimed = functools.partial(claim_one, expiry=LONG)


def by_name(board: JobBoard) -> Job:
    """Return a claimed job without its claim: the act goes by the owner's name."""
    return board.get(claimed(board).uuid)


def keep(board: JobBoard, job: Job) -> None:
    """Consume it so that an outcome is left."""
    end = End(Verb.CONSUME, result=Returned(job.record.posting))
    Harness(board).finish(Finish(job.uuid, Holder("anna", None), end, keep=3_600_000_000))


def follow(board: JobBoard, job: Job) -> None:
    """Consume it with follow-ups."""
    board.consume(job, "anna", then=[Posting("crop", key="k"), Posting("mail")])


def trashed(board: JobBoard) -> Job:
    job = board.post("resize", key="k")
    board.cancel(job)
    return job


def drain(board: JobBoard, *given: Any) -> None:
    """Somebody works on all that is there."""
    while job := board.claim_next("bert"):
        board.consume(job, "bert")


def consume_first(board: JobBoard, given: Any, answer: Job | list[Job]) -> None:
    """Consume the claimed job. The other jobs would suit another claim."""
    done = answer[0] if isinstance(answer, list) else answer
    board.consume(board.get(done.uuid), "anna")


def come_back(board: JobBoard, job: Job, *given: Any) -> None:
    """Moved to another board and back, it is claimed by the same owner again."""
    harness = Harness(board)
    harness.free(harness.arrive(harness.arrival()._replace(uuid=job.uuid)))
    claim_anew(board, job)


def come_back_trashed(board: JobBoard, job: Job, *given: Any) -> None:
    harness = Harness(board)
    harness.arrive(harness.arrival(trashed_on=LONG_AGO)._replace(uuid=job.uuid))


def part_with(board: JobBoard, job: Job) -> None:
    Harness(board).finish(part(job.record, Verb.CANCEL))


one, three = of_board("post", "resize"), of_board("post_many", [Posting("resize")] * 3)
keyed = of_board("post", "resize", key="k")
release, restore, cancel = of_job("release"), of_job("restore"), of_job("cancel")
# By another process of the same owner.
claim_anew = of_job("claim", "anna", LONG)
pause, resume = of_board("pause", ["resize"]), of_board("resume")
limit, remove_limit = of_board("set_limit", "resize", concurrency=1), of_board("remove_limit", "resize")
# Another number, and an empty count.
limit_anew = all_in_turn(remove_limit, of_board("set_limit", "resize", concurrency=2))
schedule = of_board("schedule", "nightly", every=LONG, name="resize")
unschedule = of_board("unschedule", "nightly")
pause_schedule, resume_schedule = of_board("pause_schedule", "nightly"), of_board("resume_schedule", "nightly")


class LateCall(NamedTuple):
    """``go_on`` makes what would suit the first try best, if it were carried out again."""

    prepare: Step
    do: Step
    go_on: Step


ACTS = {
    "posting": {
        "post": LateCall(nothing, one, drain),
        "post that expires": LateCall(nothing, of_board("post", "resize", expires=LONG), drain),
        "post with a key": LateCall(nothing, keyed, drain),
        "post that replaces": LateCall(keyed, replacing, replacing),
        "post_many": LateCall(nothing, three, drain),
    },
    "claiming": {
        "claim": LateCall(one, lambda board, job: board.claim(job, "anna"), release),
        "claim_next": LateCall(three, of_board("claim_next", "anna"), consume_first),
        "claim_next of a name": LateCall(three, of_board("claim_next", "anna", names=["resize"]), consume_first),
        "claim_next of names": LateCall(three, of_board("claim_next", "anna", names=["resize", "crop"]), consume_first),
        "claim_many": LateCall(three, of_board("claim_many", "anna", 2, expiry=LONG), consume_first),
    },
    "ending": {
        "abandon": LateCall(by_name, lambda board, job: board.abandon(job, "anna"), claim_anew),
        "abandon with a delay": LateCall(claimed, lambda board, job: board.abandon(job, "anna", delay=LONG), nothing),
        "consume": LateCall(by_name, lambda board, job: board.consume(job, "anna"), come_back),
        "consume with an outcome": LateCall(by_name, keep, come_back),
        "consume with follow-ups": LateCall(by_name, follow, all_in_turn(drain, come_back)),
        "trash": LateCall(by_name, lambda board, job: board.trash(job, "anna"), all_in_turn(restore, claim_anew)),
    },
    "holding": {
        "extend": LateCall(
            claimed, lambda board, job: board.extend(job, "anna", 2 * LONG), all_in_turn(release, claim_anew)
        ),
        "release": LateCall(claimed, lambda board, job: board.release(job), claim_anew),
        "cancel of a running job": LateCall(
            claimed, lambda board, job: board.cancel(job, running=True), all_in_turn(restore, claim_anew)
        ),
    },
    "the trash": {
        "cancel": LateCall(one, lambda board, job: board.cancel(job), restore),
        "part": LateCall(one, part_with, restore),
        "restore": LateCall(trashed, lambda board, job: board.restore(job), cancel),
        "purge": LateCall(trashed, lambda board, job: board.purge(job), come_back_trashed),
    },
    "pausing": {
        "pause": LateCall(nothing, pause, resume),
        "pause of all": LateCall(nothing, of_board("pause"), resume),
        "resume": LateCall(pause, resume, pause),
    },
    "limiting": {
        "set_limit": LateCall(claimed, limit, remove_limit),
        "set_limit of what is set anew": LateCall(claimed, limit, limit_anew),
        "remove_limit": LateCall(limit, remove_limit, limit),
    },
    "scheduling": {
        "schedule": LateCall(nothing, schedule, unschedule),
        "schedule another": LateCall(
            schedule, of_board("schedule", "nightly", every=LONG, name="mail"), all_in_turn(unschedule, schedule)
        ),
        "unschedule": LateCall(schedule, unschedule, schedule),
        "pause_schedule": LateCall(schedule, pause_schedule, resume_schedule),
        "resume_schedule": LateCall(all_in_turn(schedule, pause_schedule), resume_schedule, pause_schedule),
        "post_now": LateCall(schedule, of_board("post_now", "nightly"), drain),
    },
}
"""Every mutation."""


def all_of(board: JobBoard) -> list[Any]:
    """Return all that the store has: jobs, outcomes, counts, rules and schedules."""
    harness = Harness(board)
    live = [seen.record for seen in harness.calls.page(None, 100)]
    jobs = [live, harness.calls.trash_page(None, 100), harness.engine.outcome_page(None, 100), board.stats()]
    return [*jobs, harness.calls.rules(), harness.calls.all_schedules()]


def clear(board: JobBoard) -> None:
    """Leave no job on it."""
    for job in board.iterjobs(states=["CLAIMED"], ensure_fresh=True):
        with contextlib.suppress(NotFound):  # it may have lapsed since
            board.release(job)
    for job in board.iterjobs(ensure_fresh=True):
        board.cancel(job)
    board.purge_trash(0)


def clear_all(board: JobBoard) -> None:
    """Leave no job on it, and nothing that is set."""
    if board.paused():
        board.resume()
    for bound in board.limits():
        board.remove_limit(bound.name, bound.per)
    for entry in board.schedules():
        board.unschedule(entry.id)
    clear(board)


class TestLateTries:
    """A first try that is held back as a whole, on backends that have no wire, too."""

    any_driver = True

    @holds("A first try of a fast path that comes behind its own repetition does nothing.")
    @pytest.mark.parametrize("kind", ACTS)
    def test_late_first_try_changes_nothing(self, board: JobBoard, other: JobBoard, kind: str) -> None:
        for name, act in ACTS[kind].items():
            given = act.prepare(board)
            with Harness(board).first_try_held() as late:
                answer = act.do(board, given)
            act.go_on(other, given, answer)
            # The slot holds the answer of this call, and then that of a later one.
            for _ in range(2):
                before = all_of(other)
                with contextlib.suppress(JobFailure):
                    late[0]()
                assert all_of(other) == before, f"the first {name} was carried out when it came"
                board.post("later")
            clear_all(board)


class TestLateOnTheWire:
    any_driver = True

    @holds("A request that arrives after a later call of its slot changes nothing.")
    @pytest.mark.parametrize("kind", ACTS)
    def test_late_first_try_changes_nothing(self, board: JobBoard, wire: Wire, kind: str) -> None:
        if not wire:
            return
        for name, act in ACTS[kind].items():
            self.late_at_each_request(board, wire, name, act)
            clear_all(board)

    @staticmethod
    def late_at_each_request(board: JobBoard, wire: Wire, name: str, act: LateCall) -> None:
        far = wire.far()
        # All that is done but once, on this connection: scripts, statements that are prepared.
        far(act.do, far.board, far(act.prepare, far.board))
        clear_all(board)
        for nth in range(1, MOST + 1):
            given = far(act.prepare, far.board)
            kept = far.proxy.keep(nth=nth)
            answer = far.begin(act.do, far.board, given)
            done = wire.meanwhile(nth, partial(answer.result, 2 * LIMIT))
            if not kept.happened:
                assert nth > 1, f"{name} asked nothing of its server"
                far.proxy.restore()
                return
            locked = done.running
            if locked:
                # The repetition waits for what the first try has locked: it comes second.
                kept.let_go()
            gone_on = wire.meanwhile(nth, partial(act.go_on, board, given, done.wait()))
            if gone_on.running and kept.held:
                kept.let_go()
            gone_on.wait()
            before = all_of(board)
            if kept.held:
                kept.let_go()
            assert all_of(board) == before, f"request {nth} of the first {name} was carried out when it came"
            if locked:
                # And so it does at each of the requests that follow.
                return
            clear_all(board)
        raise AssertionError(f"{name} needs more than {MOST} requests")
