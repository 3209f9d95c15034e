"""Limits on Redis: takes beside full groups, and waiters that the server calls once a limit lets a job begin."""

from typing import Any

import pytest

from jobboard.engine import SCOPE, Listed, Mark
from jobboard.job import Posting
from jobboard.testing import eventually
from jobboard.testing.conformance.support import take
from tests.backends.redis.conftest import LIMIT, Place, Sleeper, stands_still

pytestmark = pytest.mark.backends("redis")

LONG = 600.0


def test_a_take_reads_no_record_of_a_full_group(place: Place) -> None:
    board = place.board()
    board.set_limit("mail", per="group", concurrency=1)
    board.claim(board.post("mail", group="big"), "hog")

    def take_two() -> int:
        """Return the number of commands that scripts have carried out."""
        board.post_many([Posting("mail", group=group) for group in "xy"])
        place.count()
        taken = [take(board) for _ in "xy"]
        spent = sum(count for name, count in place.calls.items() if name.startswith(("h", "z")))
        assert [job.group for job in taken] == ["x", "y"]
        board.consume_many(taken, "anna")
        return spent

    few = take_two()
    board.post_many([Posting("mail", group="big", priority="HIGH")] * 3000)
    assert take_two() <= few + 300 < 1000
    # Behind more than one request passes over.
    board.post_many([Posting("mail", group="big", priority="HIGH")] * 6000)
    take_two()


@pytest.mark.parametrize("per", ["name", "group"])
def test_a_waiter_sends_nothing_until_a_slot_is_free(place: Place, sleeper: Sleeper, per: str) -> None:
    board = place.board()
    board.set_limit("mail", per=per, concurrency=1)
    jobs = board.post_many([Posting("mail", group="x")] * 3)
    held = take(board)
    waiters = [sleeper(place.board()) for _ in range(2)]
    place.count()
    stands_still(place, 0.3)
    assert not place.calls
    board.consume(held, "anna")
    eventually(lambda: not all(waiter.running for waiter in waiters), LIMIT)
    [first] = [waiter for waiter in waiters if not waiter.running]
    assert first.wait() == jobs[1]
    board.consume(jobs[1], "anna")
    waiters.remove(first)
    assert waiters[0].wait(LIMIT) == jobs[2]


def test_a_job_without_a_slot_swallows_no_call(place: Place, sleeper: Sleeper) -> None:
    board = place.board()
    board.set_limit("mail", concurrency=1)
    board.post("mail")
    held = take(board)
    waiter = sleeper(place.board())
    late, other = board.post("mail"), board.post("resize")
    assert waiter.wait(LIMIT) == other
    board.consume(held, "anna")
    assert take(board) == late


def test_a_rate_from_before_the_clock_was_set_back_keeps_nobody_out(place: Place) -> None:
    board = place.board()
    board.set_limit("mail", rate=(2, LONG))
    board.post_many([Posting("mail")] * 5)
    assert len(board.claim_many("anna", 5)) == 2
    store: Any = board.engine.store  # type: ignore[attr-defined]
    for ahead, more in ((LONG / 2, 0), (LONG + 3, 2)):
        [side] = store.read([], [(SCOPE, "mail")]).sides
        starts = tuple(int(store.now() + ahead * 1e6) for _ in range(2))
        store.commit([], [Mark(side, Listed.of(side)._replace(starts=starts).packed())])
        assert len(board.claim_many("anna", 5)) == more
    # The claims of now count, and those of the future no longer.
    assert board.claim_next("anna") is None


@pytest.mark.parametrize("comes", ["job", "slot"])
def test_a_rate_that_opens_wakes_a_waiter(place: Place, sleeper: Sleeper, comes: str) -> None:
    """Before it fell asleep, the waiter could not know when the rate lets another job begin."""
    board = place.board()
    board.set_limit("mail", concurrency=1, rate=(1, 1.5))
    held = board.post("mail")
    board.claim(held, "anna")
    if comes == "job":
        board.consume(held, "anna")
    else:
        board.post("mail")
    waiter = sleeper(place.board())
    if comes == "job":
        board.post("mail")
    else:
        board.consume(held, "anna")
    assert waiter.wait(LIMIT).name == "mail"


def test_a_rate_that_opens_wakes_no_waiter_for_other_names(place: Place, sleeper: Sleeper) -> None:
    board = place.board()
    board.set_limit("mail", rate=(1, 0.3))
    waiter = sleeper(place.board(), names=["resize"])
    for _ in range(2):
        board.post("mail")
        board.claim_next("anna", names=["mail"])
    place.count()
    stands_still(place, 0.6)
    job = board.post("resize")
    assert waiter.wait(LIMIT) == job
