"""What a move makes of keys that outlive their jobs."""

from jobboard.states import TRASHED
from tests.unit.test_moving import Boards, boards

__all__ = ["boards"]


def test_what_is_left_of_a_window_comes_along(boards: Boards) -> None:
    job, over = boards.source.post("a", key="k", key_for=600), boards.source.post("a", key="l", key_for=1e-6)
    buried = boards.source.post("a", key="m", key_for=600)
    boards.source.cancel(buried)
    boards.mover().run()
    for moved, created in ((job, False), (over, True)):
        target = boards.target
        target.claim(target.get(moved.uuid), "anna")
        target.consume(target.get(moved.uuid), "anna")
        assert target.post("a", key=moved.key).created == created
    # In the trash, its key is nobody's.
    assert boards.target.get(buried.uuid).seen_state == TRASHED
    assert boards.target.post("a", key="m").created
