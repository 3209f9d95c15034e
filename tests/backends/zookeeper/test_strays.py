"""What something else has written among a board's znodes, or over them: it is set aside, and the board goes on."""

import itertools
import logging
import uuid
from typing import Any

import msgpack
import pytest

from jobboard.backends.zookeeper.connection import Connection
from jobboard.backends.zookeeper.records import Tag, pack, pack_content
from jobboard.backends.zookeeper.requests import delete
from jobboard.backends.zookeeper.store import LAYOUT
from jobboard.exceptions import ClaimLost, JobFailure, NotFound
from jobboard.job import Entity
from jobboard.primitives import BoardStats
from jobboard.states import CLAIMED, COMPLETE, TRASHED, UNCLAIMED, Record
from jobboard.testing.conformance.support import LONG, take

pytestmark = pytest.mark.backends("zookeeper")

NOBODY = str(uuid.UUID(int=7))


def packed(**fields: Any) -> bytes:
    """A job's znode, but for these fields."""
    record = Record(NOBODY, "resize", 100, 0, None, 1, b"", UNCLAIMED, 0, None, 0, None, None, None, 1, 1)
    record = record._replace(**fields)
    return pack(record, Tag(0, 0, 0, "", "", ""), pack_content(record))


GARBAGE = {
    "empty": b"",
    "no msgpack": b"\xc1garbage",
    "cut off": packed()[:-3],
    "another shape": msgpack.packb({"a": 1}),
    "another length": msgpack.packb([1, 2, 3]),
    "another type": packed(attempts="0"),
    "no such state": packed(state=COMPLETE),
    "a claim of nobody's": packed(state=CLAIMED, token=1),
    "the last of all tokens": packed(token=2**64 - 1),
}


def odd(board: Any) -> list[tuple[str, str]]:
    return [(each.place, each.reason) for each in board.engine.examine()]


def path_of(board: Any, job: Any) -> str:
    return str(board.engine._opened.paths.job(job.uuid))


@pytest.mark.parametrize("garbage", GARBAGE)
def test_a_job_of_garbage(make_board: Any, caller: Any, caplog: pytest.LogCaptureFixture, garbage: str) -> None:
    board, other = make_board(), make_board()
    bad, *good = board.post_many([{"name": "resize"}] * 3)
    caller.set(path_of(board, bad), GARBAGE[garbage])
    with caplog.at_level(logging.WARNING, "jobboard"):
        assert list(board.iterjobs()) == good
    assert bad.uuid in caplog.text
    assert bad.state == TRASHED
    with pytest.raises(NotFound):
        other.claim(bad, "bert")
    [(place, what)] = odd(other)
    assert bad.uuid in place
    assert "decoded" in what
    # The claim that meets it moves it to the trash, and takes the next one.
    assert [take(other) for _ in good] == good
    assert other.claim_next("anna") is None
    assert board.stats() == BoardStats(unclaimed=0, scheduled=0, claimed=2, trashed=1)
    [trashed] = board.trashed()
    assert trashed == bad
    assert "decoded" in (trashed.error or "")
    assert odd(other) == []
    # Brought back, it is a posting that can't be decoded.
    board.restore(trashed)
    assert board.claim_next("anna") is None
    [trashed] = board.trashed()
    board.purge(trashed)
    assert board.stats().trashed == 0


def test_a_claimed_job_of_garbage(make_board: Any, caller: Any) -> None:
    board, other = make_board(), make_board()
    kept, fixed = board.post("resize"), board.post("resize")
    board.claim(kept, "anna")
    board.claim(fixed, "anna", LONG)
    for job in (kept, fixed):
        caller.set(path_of(board, job), b"garbage")
    for job in (kept, fixed):
        with pytest.raises(ClaimLost):
            board.consume(job, "anna")
    good = other.post("resize")
    assert take(other) == good


def test_trash_of_garbage(make_board: Any, caller: Any) -> None:
    board = make_board()
    first, second = board.post("resize"), board.post("resize")
    for job in (first, second):
        board.cancel(job)
    caller.set(path_of(board, first), b"garbage")
    errors = {job.uuid: job.error or "" for job in board.trashed()}
    assert errors.keys() == {first.uuid, second.uuid}
    assert "decoded" in errors[first.uuid]
    assert board.stats().trashed == 2
    assert len(odd(board)) == 1
    assert board.purge_trash(0) == 2
    assert list(board.trashed()) == []
    assert odd(board) == []


FOLDER = "ready/100/0000000/000"

STRAYS = (
    f"{FOLDER}/stray",
    f"{FOLDER}/1.{NOBODY}.resize.1.2.3",
    f"{FOLDER}/1.short.resize.0000000001",
    "ready/stray",
    "kept/stray",
    "kept/gone/stray",
    f"kept/gone/{NOBODY}",
    "timed/stray",
    "timed/000001/0001/00/stray",
    f"timed/000001/0001/00/{10**15:016d}.{NOBODY}",
    "trash/stray",
    "trash/000001/0001/00/stray",
    "jobs/00/stray",
    "sides/key/00/stray",
    "sides/answer/00/stray",
    "sides/entity/stray",
    "stray",
)


@pytest.mark.parametrize("data", [b"", b"\xffgarbage"])
def test_stray_children(make_board: Any, caller: Any, data: bytes) -> None:
    """The board counts, serves, shows and trashes what is its own, before and after they came."""
    early = make_board()
    held, waiting = early.post_many([{"name": "held"}, {"name": "waiting"}])
    early.claim(held, "anna")
    for stray in STRAYS:
        caller.create(f"{early.engine._opened.paths.root}/{stray}", data, makepath=True)
    late = make_board()
    for board in (early, late):
        stats = board.stats()
        assert (board.job_count, stats.unclaimed, stats.claimed, stats.scheduled) == (2, 1, 1, 0)
        assert list(board.iterjobs()) == [held, waiting]
        assert list(board.trashed()) == []
        assert list(board.wait(0)) == [waiting]
        assert board.entities() == []
        assert board.get(held.uuid).seen_state == CLAIMED
    board, taken = late, take(late)
    assert taken == waiting
    board.trash(taken, "anna")
    assert [job.uuid for job in board.trashed()] == [waiting.uuid]
    board.restore(waiting)
    board.post("later", key="k", delay=LONG)
    assert early.job_count == 3
    early.consume(held, "anna")
    root = board.engine._opened.paths.root
    # A keeper whose folder is empty has just ended.
    expected = {f"{root}/{stray}" for stray in STRAYS if stray != "kept/stray"}
    assert {place for place, _ in odd(board)} == expected


def test_strays_that_come_and_go(make_board: Any, caller: Any) -> None:
    board = make_board()
    path = board.engine._opened.paths.at(f"{FOLDER}/stray")
    for _ in range(2):
        caller.create(path, makepath=True)
        assert board.job_count == 0
        board.post("resize")
        assert board.job_count == 1
        caller.delete(path)
        assert board.job_count == 1
        board.consume(take(board), "anna")


def test_entities_of_garbage(make_board: Any, caller: Any) -> None:
    board, other = make_board(), make_board()
    board.register_entity(Entity("conductor", "one", {"a": 1}))
    paths = board.engine._opened.paths
    for number, garbage in enumerate([b"", b"[]", msgpack.packb(["a", "b", "c"]), b"\xff"]):
        caller.create(f"{paths.sides}/entity/{number}", garbage)
    assert [entity.name for entity in other.entities()] == ["one"]
    assert len(odd(other)) == 4
    board.close()
    assert other.entities() == []


def test_a_layout_of_garbage(make_board: Any, caller: Any) -> None:
    path = make_board().engine._opened.paths.layout
    caller.set(path, b"garbage")
    with pytest.raises(JobFailure, match=f"{LAYOUT} {LAYOUT}"):
        make_board()


def test_what_goes_with_a_job_and_is_odd(make_board: Any, caller: Any) -> None:
    board = make_board()
    paths = board.engine._opened.paths
    lost, timed = board.post("lost", key="a"), board.post("timed", delay=LONG)
    claimed, hidden = board.post("claimed"), board.post("hidden")
    board.claim(claimed, "anna")
    assert odd(board) == []
    key = paths.side("key", "a")
    caller.delete(key, recursive=True)
    tag = board.engine._opened.read([timed.uuid]).jobs[0].tag
    caller.delete(paths.at(tag.listed))
    caller.delete(paths.at(board.engine._opened.read([hidden.uuid]).jobs[0].tag.entry))
    caller.create(path_of(board, claimed) + "/stray")
    caller.create(path_of(board, claimed) + "~stray")
    found = dict(odd(board))
    assert found.keys() == {
        path_of(board, lost),
        path_of(board, timed),
        path_of(board, hidden),
        path_of(board, claimed),
        path_of(board, claimed) + "~stray",
    }


def test_a_job_that_moves_while_it_looks_is_not_odd(make_board: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others work on before each read of where jobs are listed, so that it meets none of them where it belongs."""
    board, other = make_board(), make_board()
    lost = board.post("lost")
    path = other.engine._opened.read([lost.uuid]).jobs[0].tag.entry
    other.engine._opened.connection.commit([delete(other.engine._opened.paths.at(path))])
    known = odd(other)
    assert [place for place, _ in known] == [path_of(board, lost)]
    jobs = [board.post("resize", key=f"k{number}") for number in range(4)]

    def work() -> None:
        given_back, done = jobs[2:]
        board.post("resize", key="k0", on_key="replace", priority=next(numbers) % 50)
        board.post("resize", key="k1", on_key="replace", delay=(None, LONG)[next(numbers) % 2])
        if board.find_owner(given_back) is None:
            board.claim(given_back, "anna")
        else:
            board.release(given_back)
        board.consume(board.claim(done, "anna").job, "anna")
        jobs[3] = board.post("resize", key="k3")

    numbers = itertools.count()
    mine, read = other.engine._opened.connection, Connection.read

    def meeting(connection: Any, reads: Any, **more: Any) -> Any:
        if connection is mine and all(f"{paths.root}/jobs" not in each.path for each in reads):
            work()
        return read(connection, reads, **more)

    paths = other.engine._opened.paths
    monkeypatch.setattr(Connection, "read", meeting)
    assert odd(other) == known
    assert next(numbers) > 20
