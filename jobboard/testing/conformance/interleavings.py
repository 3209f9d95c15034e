"""Acts of others between two requests of one call. The commit decides, and the call reports it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import pytest

from jobboard.board import JobBoard
from jobboard.job import Claim, Job, Posting
from jobboard.runtime import boottime
from jobboard.states import CLAIMED, COMPLETE, TRASHED, UNCLAIMED, State
from jobboard.testing import eventually
from jobboard.testing.conformance.processes import outcome
from jobboard.testing.conformance.repetitions import MOST, claimed, clear, come_back, release, trashed
from jobboard.testing.conformance.support import LIMIT, LONG, SHORT, Background, let_lapse, take, until_free
from jobboard.testing.conformance.wire import Far, Wire


def at_each_request(
    board: JobBoard, wire: Wire, prepare: Callable[[JobBoard], Any], do: Callable[..., Any], others: Callable[..., Any]
) -> Any:
    """Stop a call before each of its requests in turn, while ``others`` is done; with each, what was prepared and what
    came of both."""
    far = wire.far()
    far(do, far.board, far(prepare, far.board))
    clear(board)
    for nth in range(1, MOST + 1):
        given = far(prepare, far.board)
        theirs: list[Background] = []
        waited: list[bool] = []

        def meanwhile(nth: int = nth, given: Any = given, theirs: Any = theirs, waited: Any = waited) -> None:
            theirs.append(wire.meanwhile(nth, lambda: others(board, given)))
            waited.append(theirs[0].running)

        stop = far.proxy.before(meanwhile, nth=nth)
        mine = far.begin(do, far.board, given).result(LIMIT)
        if not stop.happened:
            assert nth > 1, "it asked nothing of its server"
            far.proxy.restore()
            return
        yield given, mine, theirs[0].wait()
        clear(board)
        if waited[0]:
            # They wait for what this call has locked, at each of the requests that follow.
            return
    raise AssertionError(f"it needs more than {MOST} requests")


def outcome_of(do: Callable[[JobBoard, Job], Any], board: JobBoard, job: Job) -> str:
    return outcome(lambda: do(board, job))


def claim_of(job: Job) -> Claim:
    assert job.claim is not None
    return job.claim


def taken_over(board: JobBoard, job: Job) -> None:
    release(board, job)
    board.claim(board.get(job.uuid), "bert", LONG)


def taken(board: JobBoard, job: Job) -> None:
    board.claim(board.get(job.uuid), "bert", LONG)


def taken_and_given_back(board: JobBoard, job: Job) -> None:
    taken(board, job)
    board.abandon(board.get(job.uuid), "bert")


def buried_and_dug_out(board: JobBoard, job: Job) -> None:
    """Assert that only the job's token has changed."""
    board.cancel(board.get(job.uuid))
    board.restore(board.get(job.uuid))


def restored_and_taken(board: JobBoard, job: Job) -> None:
    board.restore(board.get(job.uuid))
    taken(board, job)


def moved_away_and_back(board: JobBoard, job: Job) -> None:
    board.consume(board.get(job.uuid), "anna")
    come_back(board, job)


def consumed(board: JobBoard, job: Job) -> None:
    board.consume(board.get(job.uuid), "anna")


def extended(board: JobBoard, job: Job) -> None:
    board.extend(board.get(job.uuid), "anna", 2 * LONG)


def abandoned(board: JobBoard, job: Job) -> None:
    board.abandon(board.get(job.uuid), "anna")


def stopped(board: JobBoard, job: Job) -> None:
    board.cancel(board.get(job.uuid), running=True)


def stopped_and_restored(board: JobBoard, job: Job) -> None:
    stopped(board, job)
    board.restore(board.get(job.uuid))


def posted(board: JobBoard) -> Job:
    return board.post("resize")


class Clash(NamedTuple):
    """A call, acts of others meanwhile, and the state of the job by both outcomes."""

    prepare: Callable[[JobBoard], Job]
    do: Callable[[JobBoard, Job], Any]
    others: Callable[[JobBoard, Job], None]
    may: Mapping[tuple[str, str], tuple[State, str | None]]


GONE = (COMPLETE, None)

FREE = (UNCLAIMED, None)

DEAD = (TRASHED, None)

MINE = (CLAIMED, "anna")

THEIRS = (CLAIMED, "bert")

LOST = {("ClaimLost", "ok"): THEIRS}

CLASHES = {
    "consume, taken over": Clash(
        claimed, lambda board, job: claim_of(job).consume(), taken_over, {**LOST, ("ok", "NotFound"): GONE}
    ),
    "abandon, taken over": Clash(
        claimed, lambda board, job: claim_of(job).abandon(), taken_over, {**LOST, ("ok", "NotFound"): FREE}
    ),
    "trash, taken over": Clash(
        claimed, lambda board, job: claim_of(job).trash(), taken_over, {**LOST, ("ok", "NotFound"): DEAD}
    ),
    "extend, taken over": Clash(
        claimed, lambda board, job: claim_of(job).extend(LONG), taken_over, {**LOST, ("ok", "ok"): THEIRS}
    ),
    "consume, moved away and back": Clash(
        claimed,
        lambda board, job: claim_of(job).consume(),
        moved_away_and_back,
        {("ClaimLost", "ok"): MINE, ("ok", "NotFound"): GONE},
    ),
    "claim, taken": Clash(
        posted,
        lambda board, job: board.claim(job, "anna"),
        taken,
        {("UnclaimableJob", "ok"): THEIRS, ("ok", "UnclaimableJob"): MINE},
    ),
    "claim, taken and given back": Clash(
        posted,
        lambda board, job: board.claim(job, "anna"),
        taken_and_given_back,
        {("ok", "ok"): MINE, ("ok", "UnclaimableJob"): MINE},
    ),
    "claim, cancelled and restored": Clash(
        posted,
        lambda board, job: board.claim(job, "anna"),
        buried_and_dug_out,
        {("ok", "ok"): MINE, ("ok", "UnclaimableJob"): MINE},
    ),
    "cancel, taken": Clash(
        posted,
        lambda board, job: board.cancel(job),
        taken,
        {("UnclaimableJob", "ok"): THEIRS, ("ok", "UnclaimableJob"): DEAD, ("ok", "NotFound"): DEAD},
    ),
    **{
        f"stop, {name}": Clash(claimed, lambda board, job: board.cancel(job, running=True), others, may)
        for name, others, may in (
            ("consumed", consumed, {("NotFound", "ok"): GONE, ("ok", "NotFound"): DEAD}),
            ("extended", extended, {("ok", "ok"): DEAD, ("ok", "NotFound"): DEAD}),
            ("abandoned", abandoned, {("ok", "ok"): DEAD, ("ok", "NotFound"): DEAD}),
            ("taken over", taken_over, {("ok", "ok"): DEAD, ("ok", "NotFound"): DEAD}),
            ("stopped and restored", stopped_and_restored, {("ok", "ok"): DEAD, ("ok", "NotFound"): DEAD}),
        )
    },
    "consume, stopped": Clash(
        claimed,
        lambda board, job: claim_of(job).consume(),
        stopped,
        {("ClaimLost", "ok"): DEAD, ("ok", "NotFound"): GONE},
    ),
    "extend, stopped": Clash(
        claimed,
        lambda board, job: claim_of(job).extend(LONG),
        stopped,
        {("ClaimLost", "ok"): DEAD, ("ok", "ok"): DEAD},
    ),
    "release, consumed": Clash(
        claimed,
        lambda board, job: board.release(job),
        consumed,
        {("NotFound", "ok"): GONE, ("ok", "NotFound"): FREE},
    ),
    "restore, restored and taken": Clash(
        trashed,
        lambda board, job: board.restore(job),
        restored_and_taken,
        {("JobFailure", "ok"): THEIRS, ("ok", "JobFailure"): FREE},
    ),
    "purge, restored and taken": Clash(
        trashed,
        lambda board, job: board.purge(job),
        restored_and_taken,
        {("JobFailure", "ok"): THEIRS, ("ok", "NotFound"): DEAD},
    ),
}


class TestBetweenLookAndCommit:
    any_driver = True

    @pytest.mark.parametrize(
        "verbs", ["consume", "abandon trash extend", "claim", "cancel release", "stop", "restore purge"]
    )
    def test_one_of_two_calls_succeeds(self, board: JobBoard, wire: Wire, verbs: str) -> None:
        """The second call is refused, and changes nothing."""
        if not wire:
            return
        for name, (prepare, do, others, may) in CLASHES.items():
            if name.partition(",")[0] not in verbs.split():
                continue
            for job, mine, theirs in at_each_request(
                board, wire, prepare, partial(outcome_of, do), partial(outcome_of, others)
            ):
                assert (mine, theirs) in may, name
                assert (job.state, board.find_owner(job)) == may[mine, theirs], name

    def test_a_key_that_is_taken_meanwhile(self, board: JobBoard, wire: Wire) -> None:
        if not wire:
            return
        for _, mine, theirs in at_each_request(
            board,
            wire,
            lambda board: None,
            lambda board, _: board.post("resize", key="k"),
            lambda board, _: board.post("resize", key="k"),
        ):
            assert mine == theirs
            assert [job.uuid for job in board.iterjobs(ensure_fresh=True)] == [mine.uuid]

    def test_a_key_that_is_given_free_meanwhile(self, board: JobBoard, wire: Wire) -> None:
        """Either job is a true answer; never a lost post."""
        if not wire:
            return
        for holder, mine, theirs in at_each_request(
            board,
            wire,
            lambda board: board.post("resize", key="k"),
            lambda board, _: board.post("crop", key="k"),
            lambda board, holder: outcome(lambda: board.cancel(board.get(holder.uuid))),
        ):
            assert theirs == "ok"
            live = list(board.iterjobs(ensure_fresh=True))
            assert live == [mine] if mine != holder else not live

    @pytest.mark.parametrize("names", [None, ["resize", "crop"]])
    def test_claim_passes_over_a_job_that_was_taken_meanwhile(
        self, board: JobBoard, wire: Wire, names: list[str] | None
    ) -> None:
        if not wire:
            return
        for jobs, mine, theirs in at_each_request(
            board,
            wire,
            lambda board: board.post_many([Posting("resize")] * 3),
            lambda board, _: take(board, names=names),
            lambda board, _: take(board, "bert"),
        ):
            assert {mine, theirs} == set(jobs[:2])
            assert (board.find_owner(mine), board.find_owner(theirs)) == ("anna", "bert")

    def test_claim_passes_over_no_job_that_was_posted_before(self, board: JobBoard, wire: Wire) -> None:
        """The call may take the better job or not, but it passes over no job that was posted before it began."""
        if not wire:
            return
        for jobs, mine, better in at_each_request(
            board,
            wire,
            lambda board: board.post_many([Posting("resize")] * 2),
            lambda board, _: take(board),
            lambda board, _: board.post("resize", priority="HIGH"),
        ):
            assert mine in (jobs[0], better)
            assert take(board) in (jobs[0], better)

    def test_a_lapsed_claim_that_is_revived_meanwhile(self, board: JobBoard, wire: Wire) -> None:
        """Between the look of another, who finds it free, and that one's claim."""
        if not wire:
            return

        def lapsed(far: JobBoard) -> Job:
            job = board.post("resize")
            let_lapse(board, job)
            return job

        for job, mine, theirs in at_each_request(
            board,
            wire,
            lapsed,
            lambda far, _: far.claim_next("bert", expiry=LONG),
            lambda board, job: outcome(lambda: board.extend(job, "anna", LONG)),
        ):
            assert (mine, theirs) in [(None, "ok"), (job, "ClaimLost")]
            assert board.find_owner(job) == ("anna" if mine is None else "bert")

    def test_a_lapse_meanwhile(self, board: JobBoard, wire: Wire) -> None:
        """The holder keeps a lease that lapses before its extension arrives, unless another worker has the job."""
        if not wire:
            return

        def short(far: JobBoard) -> Job:
            job = far.post("resize")
            far.claim(job, "anna", SHORT)
            return job

        def lapse(board: JobBoard, job: Job) -> Job | None:
            until_free(board, job)
            return board.claim_next("bert", expiry=LONG)

        for job, mine, theirs in at_each_request(
            board, wire, short, lambda far, job: outcome(lambda: far.extend(job, "anna", LONG)), lapse
        ):
            # Where there are locks, another's look may find it free and pass over it.
            passed = theirs is None and board.characteristics.transactional
            assert (mine, theirs) == ("ok" if passed else "ClaimLost", None if passed else job)
            assert board.find_owner(job) == ("anna" if passed else "bert")

    def test_a_claim_that_lapses_on_its_way(self, board: JobBoard, wire: Wire) -> None:
        """The server counts the lease from its own time, and the holder from before the request was sent."""
        if not wire:
            return

        def outlast(board: JobBoard, job: Job) -> None:
            stopped = boottime()
            eventually(lambda: boottime() > stopped + SHORT)

        for job, mine, _ in at_each_request(
            board, wire, lambda board: board.post("resize"), lambda board, _: take(board, expiry=SHORT), outlast
        ):
            assert mine == job
            assert mine.claim is not None
            assert mine.claim.lost


class TestQuickerOthers:
    """A call ends even if somebody changes its job before each of its requests."""

    any_driver = True

    @pytest.fixture(autouse=True)
    def _gives_up_soon(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("jobboard.engine.tries.CALL", 20)

    @staticmethod
    def hurried(wire: Wire, far: Far, call: Callable[..., Any], others: Callable[[], object]) -> str:
        stopped: list[int] = []

        def hurry() -> None:
            stopped.append(1)
            # Who waits for the lock of the call is not quicker.
            if not wire.meanwhile(len(stopped), others).running:
                far.proxy.before(hurry)

        far.proxy.before(hurry)
        try:
            return str(far.begin(outcome, lambda: call(far.board)).result(3 * LIMIT))
        finally:
            far.proxy.restore()
            assert stopped

    def test_act_ends_though_others_are_quicker(self, board: JobBoard, wire: Wire) -> None:
        """The act succeeds or fails, and never reports a loss: nobody else has taken the job."""
        if not wire:
            return
        far = wire.far(retry_for=0.5)
        job = far(claimed, far.board)
        same = board.get(job.uuid)

        told = self.hurried(
            wire, far, lambda board: claim_of(job).consume(), lambda: outcome(lambda: board.extend(same, "anna", LONG))
        )
        assert told in ("ok", "ConnectionFailure")
        assert job.state == (COMPLETE if told == "ok" else CLAIMED)

    def test_claim_next_ends_though_others_are_quicker(self, board: JobBoard, wire: Wire) -> None:
        """Always one is free: none is no answer."""
        if not wire:
            return
        far = wire.far(retry_for=0.5)
        board.post_many([Posting("resize")] * 500)
        got: list[Job | None] = []
        told = self.hurried(wire, far, lambda far: got.append(far.claim_next("anna")), lambda: take(board, "bert"))
        assert told == "ConnectionFailure" or (told == "ok" and got[0] is not None)
        assert board.stats().unclaimed > 0
        assert all(board.find_owner(job) == "anna" for job in got if job is not None)

    def test_claim_of_many_ends_though_others_claim_single_ones_of_them(self, board: JobBoard, wire: Wire) -> None:
        """Some of them are free, though never all of them together."""
        if not wire:
            return
        far = wire.far(retry_for=0.5)
        board.post_many([Posting("resize")] * 500)

        def take_eighth() -> None:
            free = list(itertools.islice(board.iterjobs(only_unclaimed=True, ensure_fresh=True), 8))
            outcome(lambda: board.claim(free[7], "bert"))

        got: list[Job] = []
        told = self.hurried(wire, far, lambda far: got.extend(far.claim_many("anna", 10)), take_eighth)
        assert told == "ok"
        assert got
        assert all(board.find_owner(job) == "anna" for job in got)
