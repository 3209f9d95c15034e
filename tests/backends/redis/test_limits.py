"""Limits on Redis: takes beside full groups, and waiters that the server calls once a limit lets a job begin."""

import pytest

from jobboard.job import Posting
from jobboard.testing import eventually
from jobboard.testing.conformance.support import take
from tests.backends.redis.conftest import LIMIT, Place, Sleeper, stands_still

pytestmark = pytest.mark.backends("redis")


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


@pytest.mark.rule("A rate that opens wakes a waiter whose job it kept waiting.")
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
