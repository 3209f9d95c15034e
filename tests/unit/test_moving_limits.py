"""What a move makes of limits."""

from jobboard.primitives import Limit
from tests.support.boards import Boards, boards

__all__ = ["boards"]


def test_limits_are_at_both(boards: Boards) -> None:
    source, target = boards.source, boards.target
    source.set_limit("mail", concurrency=2, rate=(3, 60))
    source.set_limit("mail", concurrency=1, per="group")
    target.set_limit("mail", concurrency=5, per="group")
    for _ in range(4):
        source.post("mail", group="one")
    boards.mover().run()
    assert source.limits() == [Limit("mail", "group", 1), Limit("mail", "name", 2, (3, 60))]
    # What has been set there stays.
    assert target.limits() == [Limit("mail", "group", 5), Limit("mail", "name", 2, (3, 60))]
    assert len(target.claim_many("anna", 10)) == 2


def test_what_a_mover_holds_takes_no_slot(boards: Boards) -> None:
    boards.source.post_many([{"name": "mail"}] * 3)
    boards.source.set_limit("mail", concurrency=1)
    boards.mover().run()
    boards.mover().run()
    job = boards.target.claim_next("anna")
    assert job is not None
    assert boards.target.claim_next("anna") is None
    boards.target.consume(job, "anna")
    assert boards.target.claim_next("anna") is not None
