"""Groups that are full, with most of a board's jobs, and what a board remembers so as to pass by them."""

from __future__ import annotations

from typing import Any

import pytest
from kazoo.client import KazooClient

from jobboard.backends.zookeeper import lists, writing
from jobboard.backends.zookeeper.records import pack_side
from jobboard.job import Job, Posting
from jobboard.testing.conformance.support import SHORT, take, until_free, uuids

pytestmark = pytest.mark.backends("zookeeper")

FOLDERS = 40
EACH = 5


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small folders, and fewer lists than there are of these."""
    monkeypatch.setattr(writing, "FULL", EACH)
    monkeypatch.setattr(lists, "_LISTS", 8)


def post_big(board: Any) -> list[Job]:
    return [job for _ in range(FOLDERS) for job in board.post_many([Posting("mail", group="big")] * EACH)]


def passed(board: Any) -> int:
    return len(board.engine._opened.view._lists._passed)


def sent(board: Any) -> int:
    return int(board.engine._opened.connection.sent)


def test_a_take_behind_a_full_group(make_board: Any) -> None:
    board, other = make_board(claim_ttl=60), make_board(claim_ttl=60)
    big = post_big(other)
    small = other.post_many([Posting("mail", group=f"group {n}") for n in range(8)])
    board.set_limit("mail", concurrency=1, per="group")
    held = take(other, "bert")
    assert held == big[0]
    assert take(board) == small[0]
    assert passed(board) > FOLDERS / 2
    for job in small[1:4]:
        before = sent(board)
        assert take(board) == job
        assert sent(board) - before < FOLDERS / 2
        board.consume(job, "anna")
    # What has come in since is looked for by the folders' stats alone.
    late = other.post("mail", group="late")
    assert uuids(board.claim_many("anna", 10)) == uuids([*small[4:], late])
    other.consume(held, "bert")
    assert take(board) == big[1]


@pytest.mark.parametrize("whose", ["its own", "another's"])
@pytest.mark.parametrize("group", [None, "small"])
def test_what_comes_back_to_a_folder_that_was_passed_by(make_board: Any, whose: str, group: str | None) -> None:
    board, other = make_board(claim_ttl=60), make_board(claim_ttl=60)
    holder = board if whose == "its own" else other
    first = other.post("mail", group=group)
    post_big(other)
    last = other.post("mail", group="last")
    first = holder.get(first.uuid)
    holder.claim(first, "bert")
    board.set_limit("mail", concurrency=1, per="group")
    take(other, "bert")
    assert take(board) == last
    assert passed(board) > FOLDERS / 2
    holder.abandon(first, "bert")
    assert take(board) == first


def test_what_lapses_in_a_folder_that_was_passed_by(make_board: Any) -> None:
    board, other = make_board(claim_ttl=60), make_board(claim_ttl=60)
    first = other.post("mail", group="small")
    post_big(other)
    last = other.post("mail", group="last")
    board.set_limit("mail", concurrency=1, per="group")
    other.claim(first, "bert", SHORT * 10)
    take(other, "bert")
    assert take(board) == last
    until_free(other, first)
    assert take(board) == first


def test_claims_that_stand_far_apart_count(make_board: Any) -> None:
    """Each is the last of its folder, with folders between them in which nothing is claimed."""
    board, other = make_board(claim_ttl=60), make_board(claim_ttl=60)
    big = post_big(board)
    for job in (big[EACH - 1], big[-1]):
        other.claim(other.get(job.uuid), "bert")
    board.set_limit("mail", concurrency=3, per="group")
    assert uuids(board.claim_many("anna", 10)) == uuids(big[:1])
    assert [job.uuid for job in other.iterjobs(states=["CLAIMED"])] == uuids([big[0], big[EACH - 1], big[-1]])


def test_groups_that_no_znode_can_be_called(make_board: Any) -> None:
    board, other = make_board(), make_board()
    groups = ["a.b", "a/b", "%", "0000000001", "ü\U0001f600"]
    board.set_limit("m.%/x", concurrency=1, per="group")
    posted = [board.post_many([Posting("m.%/x", group=group) for group in groups]) for _ in range(2)]
    assert uuids(board.claim_many("anna", 20)) == uuids(posted[0])
    assert other.claim_next("bert") is None
    board.consume(posted[0][1], "anna")
    assert take(other, "bert") == posted[1][1]
    assert [each.reason for each in other.engine.examine()] == []


def test_a_scope_of_garbage(make_board: Any, caller: KazooClient) -> None:
    """It is told, and made anew by the next claim there."""
    board, other = make_board(), make_board()
    board.set_limit("mail", concurrency=2)
    jobs = board.post_many([Posting("mail")] * 3)
    assert take(board) == jobs[0]
    path = board.engine._opened.paths.side("scope", "mail")
    caller.set(path, b"garbage")
    [odd] = other.engine.examine()
    assert odd.place == path
    assert "delete it" in odd.reason
    assert take(other) == jobs[1]
    assert list(other.engine.examine()) == []
    caller.set(path, pack_side("mark", None, b"garbage"))
    [odd] = other.engine.examine()
    assert odd.place == "what limits count of jobs named 'mail'"
    caller.delete(path, recursive=True)
    assert take(board) == jobs[2]
