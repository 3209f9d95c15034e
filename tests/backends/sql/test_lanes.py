"""Takes on PostgreSQL beside a full group whose jobs crowd the front: what floors rise past is found all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard.backends.sql.postgresql.behind import NEAR, pages
from jobboard.board import JobBoard
from jobboard.job import Posting
from jobboard.testing.conformance.support import take, uuids

pytestmark = pytest.mark.backends("postgresql")

BIG = 300


class Crowd:
    """A board with a full group before all others."""

    def __init__(self, board: JobBoard) -> None:
        self.board = board
        board.set_limit("mail", concurrency=1, per="group")
        self.jobs = board.post_many([Posting("mail", group="big")] * BIG)
        self.held = take(board)
        self.work_off()
        [front] = board.engine._shortcuts._limited._lanes._fronts.values()
        assert front.lanes == "mail\nbig"
        [floors] = front.floors.values()
        assert min(floors.floors.values()) >= self.jobs[-1].sequence

    def work_off(self) -> None:
        """Have floors rise: each take looks around."""
        for _ in range(4):
            posted = self.board.post("mail")
            taken = take(self.board)
            assert taken == posted
            self.board.consume(taken, "anna")


@pytest.fixture
def crowd(board: JobBoard, monkeypatch: pytest.MonkeyPatch) -> Crowd:
    monkeypatch.setattr("jobboard.backends.sql.postgresql.behind.CROWD", 100)
    monkeypatch.setattr("jobboard.backends.sql.postgresql.entering.FAR", 50)
    monkeypatch.setattr("jobboard.backends.sql.postgresql.floors.OFTEN", 0)
    return Crowd(board)


def test_a_post_that_commits_late_is_next(crowd: Crowd, engine: sa.Engine) -> None:
    board = crowd.board
    with engine.begin() as connection:
        late = board.post("mail", connection=connection)
        grouped = board.post("mail", group="small", connection=connection)
        crowd.work_off()
    board.post("mail")
    assert [take(board) for _ in range(2)] == [late, grouped]


def test_a_post_to_the_full_group_that_commits_late(crowd: Crowd, engine: sa.Engine) -> None:
    board = crowd.board
    with engine.begin() as connection:
        late = board.post("mail", group="big", priority="HIGH", connection=connection)
        crowd.work_off()
    other = board.post("mail")
    assert take(board) == other
    board.consume(crowd.held, "anna")
    assert take(board) == late


def test_the_group_opens(crowd: Crowd) -> None:
    board, later = crowd.board, crowd.board.post("mail")
    board.consume(crowd.held, "anna")
    assert [take(board) for _ in range(2)] == [crowd.jobs[1], later]


def test_its_job_comes_back(crowd: Crowd) -> None:
    board, later = crowd.board, crowd.board.post("mail")
    board.abandon(crowd.held, "anna")
    assert [take(board) for _ in range(2)] == [crowd.jobs[0], later]


def test_a_job_of_no_group_comes_back(crowd: Crowd) -> None:
    board = crowd.board
    early = board.post("mail")
    assert take(board) == early
    held = board.get(early.uuid)
    crowd.work_off()
    board.post("mail")
    board.release(held)
    assert take(board) == early


def test_the_limit_is_raised(crowd: Crowd) -> None:
    board, later = crowd.board, crowd.board.post("mail")
    board.set_limit("mail", concurrency=3, per="group")
    assert [take(board) for _ in range(3)] == [*crowd.jobs[1:3], later]


def test_the_limit_is_removed(crowd: Crowd) -> None:
    crowd.board.remove_limit("mail")
    assert uuids(crowd.board.claim_many("anna", 5)) == uuids(crowd.jobs[1:6])


def test_another_full_group_behind_it(crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobboard.backends.sql.postgresql.lanes.AGAIN", 0)
    board = crowd.board
    [front] = board.engine._shortcuts._limited._lanes._fronts.values()
    front.again = 0
    second = board.post_many([Posting("mail", group="next")] * BIG)
    assert take(board) == second[0]
    other = board.post("mail")
    assert take(board) == other
    crowd.work_off()
    [front] = board.engine._shortcuts._limited._lanes._fronts.values()
    assert front.lanes == "mail\nbig\x1email\nnext"
    board.consume(crowd.held, "anna")
    assert take(board) == crowd.jobs[1]


@pytest.mark.parametrize("limit", [1, 3])
def test_what_is_full_beside_lanes_hides_nothing(crowd: Crowd, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    """As many jobs as it looks at beside them: what comes behind these is before what comes then in a lane."""
    monkeypatch.setattr("jobboard.backends.sql.postgresql.lanes.AGAIN", 0)
    board = crowd.board
    board.set_limit("resize", concurrency=1)
    held, *_ = board.post_many([Posting("resize")] * (NEAR + 20))
    alone = board.post_many([Posting("alone")] * 6)
    other = board.post_many([Posting("mail", group="next")] * BIG)
    board.claim(held, "anna")
    [front] = board.engine._shortcuts._limited._lanes._fronts.values()
    front.again = 0
    assert [job for _ in range(6 // limit) for job in board.claim_many("anna", limit)] == alone
    [front] = board.engine._shortcuts._limited._lanes._fronts.values()
    assert front.lanes == "mail\nbig\x1email\nnext"
    assert take(board) == other[0]


def test_a_take_reads_none_of_its_jobs(crowd: Crowd, spy: Callable[..., Any]) -> None:
    """But the first ones."""
    board, read = crowd.board, list[int]()
    other = board.post("mail")
    with spy(board) as seen:
        execute = seen.execute

        def explained(text: str, *params: Any) -> Any:
            if "_answers" not in text:
                told = execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT json) {text}", *params).fetchone()[0]
                read.append(pages(told))
            return execute(text, *params)

        seen.execute = explained
        assert take(board) == other
    # A survey, the candidates, and the take.
    assert [text.startswith("EXPLAIN") for text in seen.texts] == [True, False, True, False, False]
    assert max(read) < 30


def test_a_batch_has_room_together(board: JobBoard, spy: Callable[..., Any]) -> None:
    """Past full scopes, and past those that its own jobs fill."""
    board.set_limit("mail", concurrency=1, per="group")
    board.post_many([Posting("mail", group=group) for group in "aaabbbccc"])
    take(board)
    take(board)
    with spy(board) as seen:
        assert [job.group for job in board.claim_many("anna", 5)] == ["c"]
    board.set_limit("mail", concurrency=2, per="group")
    assert board.claim_many("anna", 1)
    with spy(board) as seen:
        assert [job.group for job in board.claim_many("anna", 5)] == ["b", "c"]
    assert len(seen.texts) == 1
