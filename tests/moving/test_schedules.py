"""Moving schedules, ended or overtaken at each step: no due time is posted for twice, nor at two boards, nor never."""

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jobboard.board import JobBoard
from jobboard.moving import Mover, survey
from jobboard.testing.conformance.harness import Harness
from tests.support.boards import Boards, Killed, case

pytestmark = pytest.mark.backends("memory")

SPAN = 60


class Scheduled(Boards):
    """Boards whose schedules post jobs."""

    def post_due(self) -> None:
        """Conductors of both boards."""
        self.clock.advance(SPAN / 4)
        for board in (self.source, self.target):
            board.post_due()


def active(board: JobBoard) -> list[Any]:
    return [schedule for schedule in board.schedules() if schedule.held is None]


def check(made: Scheduled, began: int) -> None:
    """One job for each due time until now."""
    for _ in range(8):
        made.post_due()
    moved = made.mover().run()
    assert moved.left == []
    assert made.source.schedules() == []
    made.post_due()
    [schedule] = active(made.target)
    jobs = [*made.source.iterjobs(), *made.target.iterjobs()]
    times = Counter(int(job.schedule[1].timestamp()) for job in jobs if job.schedule is not None)
    due = int(schedule.next_due.timestamp())
    assert times == Counter(range(began + SPAN, due, SPAN))
    assert 0 < due - made.clock() <= SPAN
    assert list(made.source.trashed()) == list(made.target.trashed()) == []


SAME: dict[str, Any] = {"name": "ping", "every": SPAN, "missed": "all", "details": {"a": [1]}, "priority": "HIGH"}


def scheduled() -> Scheduled:
    pair = Scheduled()
    pair.source.schedule("ping", **SAME)
    return pair


@pytest.fixture
def made() -> Scheduled:
    return scheduled()


BEGAN = 1_000_000_000


def steps() -> int:
    for step in itertools.count():
        pair = Scheduled()
        pair.source.schedule("ping", name="ping", every=SPAN)
        if not pair.kill_at(step):
            return step
    raise AssertionError


STEPS = steps()


@pytest.mark.rule("A mover that is killed at any step loses no job and posts none twice.")
@pytest.mark.parametrize("step", range(STEPS))
def test_a_mover_killed_at_any_step(made: Scheduled, step: int) -> None:
    assert made.kill_at(step)
    assert len([*active(made.source), *active(made.target)]) <= 1
    for again in range(step + 1):
        made.post_due()
        made.kill_at(again)
        assert len([*active(made.source), *active(made.target)]) <= 1
    check(made, BEGAN)


Act = Callable[[Scheduled], object]

MEANWHILE: dict[str, Act] = {
    "nothing": bool,
    "something is due": lambda made: [made.post_due() for _ in range(6)],
    "another moves all": lambda made: made.mover().run(),
    "another moves all, and something is due": lambda made: (
        made.mover().run(),
        [made.post_due() for _ in range(6)],
    ),
}


@pytest.mark.parametrize("step", range(STEPS))
def test_acts_at_any_step_of_a_mover(step: int) -> None:
    for (what, act), end in itertools.product(MEANWHILE.items(), ("goes on", "is killed", "loses the reply")):
        with case(what=what, mover=end):
            made = scheduled()

            def meanwhile(made: Scheduled = made, act: Act = act, end: str = end) -> None:
                act(made)
                if end == "is killed":
                    made.kill()

            mover = made.mover(**{"lost" if end == "loses the reply" else "meanwhile": {step: meanwhile}})
            with contextlib.suppress(Killed):
                assert mover.run().left == []
            check(made, BEGAN)


@pytest.mark.parametrize("step", range(STEPS))
def test_another_mover_killed_at_any_step_meanwhile(step: int) -> None:
    for other in range(STEPS):
        with case(other=other):
            made = scheduled()

            def meanwhile(made: Scheduled = made, other: int = other) -> None:
                made.kill_at(other)
                made.post_due()

            made.mover({step: meanwhile}).run()
            check(made, BEGAN)


@pytest.mark.parametrize("step", range(STEPS))
def test_a_schedule_removed_at_any_step(made: Scheduled, step: int) -> None:
    """At the source it is gone for good, unless it had left it already; set anew, it is another."""

    def remove() -> Iterator[JobBoard]:
        for board in (made.source, made.target):
            if active(board):
                board.unschedule("ping")
                yield board

    removed: list[JobBoard] = []
    made.mover({step: lambda: removed.extend(remove())}).run()
    there = made.source.schedules(), made.target.schedules()
    assert there == ([], []) if removed else len(there[1]) == 1


@pytest.mark.rule("Schedules are moved once, and a schedule that cannot be read is named.")
def test_a_schedule_whose_id_is_taken_at_the_target_stays(made: Scheduled) -> None:
    made.target.schedule("ping", name="ping", every=5)
    [left] = made.mover().run().left
    assert (left.uuid, left.what) == ("ping", "schedule")
    assert "remove one of the two" in left.why
    made.target.unschedule("ping")
    check(made, BEGAN)


def test_a_held_schedule_that_is_set_alike_stays_held(made: Scheduled) -> None:
    """Else a service that starts meanwhile would have it posted at both boards."""
    for step in range(STEPS):
        pair = scheduled()
        pair.kill_at(step)
        for board in (pair.source, pair.target):
            for schedule in board.schedules():
                assert board.schedule("ping", **SAME) == schedule
        check(pair, BEGAN)


@pytest.mark.rule("Schedules are moved once, and a schedule that cannot be read is named.")
def test_an_unreadable_schedule_is_named(made: Scheduled) -> None:
    Harness(made.source).set_side("schedule", "broken", b"\xc1")
    [left] = survey(made.source, "msgpack").left
    assert [left] == made.mover().run().left
    assert (left.uuid, left.what) == ("broken", "schedule")
    assert "damaged" in left.why


def test_halves_of_other_moves_are_left_alone(made: Scheduled) -> None:
    """Held at the target for another source; and gone from this source to another target."""
    held = next(step for step in range(STEPS) if made.kill_at(step) and made.target.schedules())
    third = Scheduled()
    [left] = Mover(third.source, made.target).run().left
    assert "must be run again" in left.why
    assert left.what == "schedule"
    while made.source.schedules()[0].held is None:
        held += 1
        made.kill_at(held)
    result = Mover(made.source, third.target).run()
    assert [each.what for each in result.left] == ["schedule"]
    assert third.target.schedules() == []
    check(made, BEGAN)
