"""A request that arrives when its own repetition has been done, and the job has gone on since: nothing happens.

Each mutation is stopped at each of its requests in turn, on the wire: the server gets the bytes of the first try when
everything else is over.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest

from jobboard.board import JobBoard
from jobboard.exceptions import NotFound
from jobboard.job import Job, Posting
from jobboard.primitives import End, Finish, Returned
from jobboard.states import Holder, Verb
from jobboard.testing.conformance.arriving import arrival, arrived, finish, free, part
from jobboard.testing.conformance.support import LIMIT, LONG, take
from jobboard.testing.conformance.wire import Wire

MOST = 60
"""No mutation of one job needs more requests."""


def nothing(board: JobBoard, *given: Any) -> None:
    """Nothing has to be prepared, or goes on."""


def three(board: JobBoard) -> list[Job]:
    return board.post_many([Posting("resize")] * 3)


def claimed(board: JobBoard) -> Job:
    job = board.post("resize")
    board.claim(job, "anna", LONG)
    return job


def by_name(board: JobBoard) -> Job:
    """A claimed job without its claim: only the owner's name tells whose act it is."""
    return board.get(claimed(board).uuid)


def keep(board: JobBoard, job: Job) -> None:
    """Consume it so that an outcome is left."""
    finish(
        board,
        Finish(
            job.uuid, Holder("anna", None), End(Verb.CONSUME, result=Returned(job.record.posting)), keep=3_600_000_000
        ),
    )


def trashed(board: JobBoard) -> Job:
    job = board.post("resize", key="k")
    board.cancel(job)
    return job


def drain(board: JobBoard, *given: Any) -> None:
    """Somebody works on all that is there."""
    while job := board.claim_next("bert"):
        board.consume(job, "bert")


def consume_first(board: JobBoard, given: Any, answer: Job | list[Job]) -> None:
    """What was claimed is done; what is left would do for another claim."""
    done = answer[0] if isinstance(answer, list) else answer
    board.consume(board.get(done.uuid), "anna")


def release(board: JobBoard, job: Job, *given: Any) -> None:
    board.release(board.get(job.uuid))


def claim_anew(board: JobBoard, job: Job, *given: Any) -> None:
    """By another process of the same owner's."""
    board.claim(board.get(job.uuid), "anna", LONG)


def claim_anew_after_release(board: JobBoard, job: Job, *given: Any) -> None:
    release(board, job)
    claim_anew(board, job)


def claim_anew_after_restore(board: JobBoard, job: Job, *given: Any) -> None:
    board.restore(board.get(job.uuid))
    claim_anew(board, job)


def come_back(board: JobBoard, job: Job, *given: Any) -> None:
    """Moved to another board and back, it is claimed by the same owner again."""
    finish(board, free(arrived(board, arrival(board)._replace(uuid=job.uuid))))
    claim_anew(board, job)


def come_back_trashed(board: JobBoard, job: Job, *given: Any) -> None:
    arrived(board, arrival(board, trashed_on=1_000_000)._replace(uuid=job.uuid))


def restore(board: JobBoard, job: Job, *given: Any) -> None:
    board.restore(board.get(job.uuid))


def cancel(board: JobBoard, job: Job, *given: Any) -> None:
    board.cancel(board.get(job.uuid))


def resume(board: JobBoard, *given: Any) -> None:
    board.resume()


def pause(board: JobBoard, *given: Any) -> None:
    board.pause(["resize"])


def limit(board: JobBoard, *given: Any) -> None:
    board.set_limit("resize", concurrency=1)


def limit_anew(board: JobBoard, *given: Any) -> None:
    """It binds another number, and counts anew."""
    board.remove_limit("resize")
    board.set_limit("resize", concurrency=2)


def remove_limit(board: JobBoard, *given: Any) -> None:
    board.remove_limit("resize")


def schedule(board: JobBoard, *given: Any) -> None:
    board.schedule("nightly", every=LONG, name="resize")


def schedule_anew(board: JobBoard, *given: Any) -> None:
    board.unschedule("nightly")
    schedule(board)


def unschedule(board: JobBoard, *given: Any) -> None:
    board.unschedule("nightly")


def part_with(board: JobBoard, job: Job) -> None:
    finish(board, part(job.record, Verb.CANCEL))


class LateCall(NamedTuple):
    """``go_on`` makes what would suit the first try best, if it were carried out again."""

    prepare: Callable[[JobBoard], Any]
    do: Callable[[JobBoard, Any], Any]
    go_on: Callable[..., None]


ACTS = {
    "posting": {
        "post": LateCall(nothing, lambda board, _: board.post("resize"), drain),
        "post with a key": LateCall(nothing, lambda board, _: board.post("resize", key="k"), drain),
        "post_many": LateCall(nothing, lambda board, _: three(board), drain),
    },
    "claiming": {
        "claim": LateCall(lambda board: board.post("resize"), lambda board, job: board.claim(job, "anna"), release),
        "claim_next": LateCall(three, lambda board, _: take(board), consume_first),
        "claim_next of a name": LateCall(three, lambda board, _: take(board, names=["resize"]), consume_first),
        "claim_many": LateCall(three, lambda board, _: board.claim_many("anna", 2, expiry=LONG), consume_first),
    },
    "ending": {
        "abandon": LateCall(by_name, lambda board, job: board.abandon(job, "anna"), claim_anew),
        "abandon with a delay": LateCall(claimed, lambda board, job: board.abandon(job, "anna", delay=LONG), nothing),
        "consume": LateCall(by_name, lambda board, job: board.consume(job, "anna"), come_back),
        "consume with an outcome": LateCall(by_name, keep, come_back),
        "trash": LateCall(by_name, lambda board, job: board.trash(job, "anna"), claim_anew_after_restore),
    },
    "holding": {
        "extend": LateCall(claimed, lambda board, job: board.extend(job, "anna", 2 * LONG), claim_anew_after_release),
        "release": LateCall(claimed, lambda board, job: board.release(job), claim_anew),
    },
    "the trash": {
        "cancel": LateCall(lambda board: board.post("resize"), lambda board, job: board.cancel(job), restore),
        "part": LateCall(lambda board: board.post("resize"), part_with, restore),
        "restore": LateCall(trashed, lambda board, job: board.restore(job), cancel),
        "purge": LateCall(trashed, lambda board, job: board.purge(job), come_back_trashed),
    },
    "pausing": {
        "pause": LateCall(nothing, pause, resume),
        "pause of all": LateCall(nothing, lambda board, _: board.pause(), resume),
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
            schedule, lambda board, _: board.schedule("nightly", every=LONG, name="mail"), schedule_anew
        ),
        "unschedule": LateCall(schedule, unschedule, schedule),
    },
}
"""Every mutation."""


def all_of(board: JobBoard) -> list[Any]:
    """All that is stored of its jobs, what they have left, how many there are in each state; rules and schedules."""
    live = [seen.record for seen in board.engine.page(None, 100)]
    jobs = [live, board.engine.trash_page(None, 100), board.engine.raw.done_page(None, 100), board.stats()]
    return [*jobs, board.engine.rules(), board.engine.all_schedules()]


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


class TestLateOnTheWire:
    any_driver = True

    @pytest.mark.parametrize("kind", ACTS)
    def test_nothing_happens(self, board: JobBoard, wire: Wire, kind: str) -> None:
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
