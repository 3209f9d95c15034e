"""A move of a board on which limits, schedules, windows and outcomes are in use at once."""

from jobboard.primitives import Limit
from jobboard.testing.conformance.support import take, uuids
from tests.support.boards import Boards, boards

__all__ = ["boards"]


def test_live_limits_and_schedules(boards: Boards) -> None:
    """What is claimed stays where it is and counts there; what a schedule posts afterwards is bound at the target."""
    source, target = boards.source, boards.target
    source.set_limit("mail", concurrency=1, per="group")
    source.set_limit("mail", rate=(100, 60))
    source.schedule("hourly", name="mail", every=3600, group="one")
    posted = source.post_many([{"name": "mail", "group": group} for group in ("one", "one", "two")])
    held = take(source)
    result = boards.mover().run()
    assert result.schedules == 1
    assert uuids(result.left) == [held.uuid]
    assert source.limits() == target.limits() == [Limit("mail", "group", 1), Limit("mail", "name", None, (100, 60))]
    assert source.schedules() == []
    # The slot of the one board is not that of the other.
    assert uuids(target.claim_many("bert", 5)) == [posted[1].uuid, posted[2].uuid]
    boards.clock.advance(3601)
    assert source.post_due() is None or list(source.iterjobs()) == [held]
    target.post_due()
    assert target.claim_next("bert") is None
    target.consume(posted[1], "bert")
    due = take(target, "bert")
    assert due.schedule is not None
    assert due.group == "one"
    source.abandon(held, "anna")
    assert boards.mover().run().left == []
    # It was posted first, and its group is full again.
    assert target.claim_next("bert") is None
    target.consume(due, "bert")
    assert take(target, "bert").uuid == held.uuid


def test_a_window_whose_job_holds_a_slot(boards: Boards) -> None:
    """The key moves with the job, and stays taken for the rest of its window."""
    source, target = boards.source, boards.target
    source.set_limit("mail", concurrency=1)
    ended = source.post("mail", key="a", key_for=600)
    source.consume(take(source), "anna")
    live = source.post("mail", key="b", key_for=600)
    held = take(source)
    assert uuids(boards.mover().run().left) == [held.uuid]
    assert target.post("mail", key="a") == ended
    assert target.job_count == 0
    source.abandon(held, "anna")
    assert boards.mover().run().left == []
    assert target.post("mail", key="b") == live
    assert take(target).uuid == live.uuid
    assert target.claim_next("anna") is None
    target.consume(live, "anna")
    assert target.post("mail", key="b") == live
    boards.clock.advance(601)
    again = target.post("mail", key="b")
    assert again.created
    assert take(target) == again
