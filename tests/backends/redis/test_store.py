"""The contract with the engine: tags and numbers never repeat, and a commit is done as a whole or not at all."""

import itertools
import uuid
from collections.abc import Callable
from typing import Any

import pytest
import redis

from jobboard.backends.redis.scripts import command
from jobboard.board import JobBoard
from jobboard.engine import Change, Mark, Stale
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.primitives import Draft, Nonce
from jobboard.testing.conformance.support import engine_of, let_lapse, uuids
from tests.backends.redis.conftest import Containers
from tests.support.jobs import make_draft

pytestmark = pytest.mark.backends("redis")
DAY = 86_400_000_000


@pytest.fixture
def board(make_board: Callable[..., JobBoard]) -> JobBoard:
    return make_board()


@pytest.fixture
def store(board: Any) -> Any:
    return board.engine.store


@pytest.fixture
def containers(board: JobBoard, client: redis.Redis) -> Containers:
    return Containers(board, client)


def drafts(count: int) -> list[Draft]:
    return [make_draft(str(uuid.uuid4()), "msgpack", name="mail") for _ in range(count)]


def post(board: JobBoard, count: int) -> list[int]:
    return [job.sequence for job in board.post_many([{"name": "mail"}] * count)]


class TestNumbers:
    @pytest.mark.rule("A damaged counter gives no number twice.")
    @pytest.mark.parametrize("counter", ["many", None])
    def test_a_damaged_counter_gives_no_number_twice(
        self, board: JobBoard, containers: Containers, counter: str | None
    ) -> None:
        """Numbers go on from the time, as after a failover that has lost some."""
        [before] = post(board, 1)
        if counter is None:
            containers.client.hdel(containers.meta, "last")
        else:
            containers.client.hset(containers.meta, "last", counter)
        numbers = [before, *post(board, 500), *post(board, 5)]
        assert numbers == sorted(set(numbers))
        assert len(board.claim_many("anna", 1_000)) == 506

    @pytest.mark.rule("A damaged counter gives no number twice.")
    def test_numbers_rise_though_the_clock_is_behind(self, board: JobBoard, containers: Containers) -> None:
        ahead = board.engine.now() + 10**9
        containers.client.hset(containers.meta, "last", ahead)
        numbers = [*post(board, 3), *post(board, 2)]
        assert numbers == sorted(set(numbers))
        assert numbers[0] > ahead

    @pytest.mark.rule("A batch is as many commands as two jobs, and counts each number once.")
    def test_a_commit_counts_each_number_that_it_gives(self, board: JobBoard, store: Any) -> None:
        stored = store.commit([Change(None, draft, None) for draft in drafts(2)]).jobs
        numbers = [*(job.record.sequence for job in stored), *post(board, 2)]
        assert numbers == sorted(set(numbers))


class TestCommit:
    @pytest.mark.rule("A commit stores all or nothing.")
    def test_a_commit_stores_all_or_nothing(self, board: JobBoard, store: Any) -> None:
        one, other = board.post("a"), board.post("b")
        [first, second] = store.read([one.uuid, other.uuid]).jobs
        [mark] = store.read([], [("entity", "x")]).sides
        board.claim(other, "anna")
        changed = first.record._replace(name="c")
        with pytest.raises(Stale) as caught:
            store.commit([Change(first, changed), Change(second, None)], [Mark(mark, b"value")])
        assert caught.value.uuids == {other.uuid}
        with pytest.raises(Stale) as caught:
            store.commit([Change(None, drafts(1)[0]._replace(uuid=one.uuid))])
        assert caught.value.uuids == {one.uuid}
        store.commit([], [Mark(mark, b"value", DAY)])
        with pytest.raises(Stale) as caught:
            store.commit([Change(first, changed)], [Mark(mark, b"value")])
        assert not caught.value.uuids
        assert store.read([one.uuid]).jobs == [first]
        assert [job.name for job in board.iterjobs()] == ["a", "b"]

    @pytest.mark.rule("A refusal behind a change on Redis, of its WAIT for instance, leaves the outcome unknown.")
    def test_a_refusal_behind_a_change_leaves_its_outcome_unknown(self, make_board: Callable[..., Any]) -> None:
        """As where the server became a replica between a script and the WAIT behind it."""
        board = make_board(retry_for=0)
        board.engine.store._wait = (command(b"WAIT", b"no", b"number"),)
        with pytest.raises(ConnectionFailure, match="can't do it now") as failure:
            board.post("mail")
        assert failure.value.outcome == "unknown"
        assert board.job_count == 1

    @pytest.mark.rule("A command that the server refuses half-way leaves no answer.")
    @pytest.mark.parametrize("container", ["ready", "live", "postings"])
    def test_a_command_that_the_server_refuses_half_way_leaves_no_answer(
        self, board: JobBoard, containers: Containers, container: str
    ) -> None:
        """No record is without its places, and a repetition of the call is not told that the call is done."""
        batch, place = drafts(3), getattr(containers, container)
        containers.client.set(place, "another's")
        with pytest.raises(JobFailure, match="WRONGTYPE"):
            engine_of(board).insert(Nonce("handle", 1, 1), batch)
        assert not containers.client.exists(containers.jobs)
        containers.client.delete(place)
        assert [posted.status for posted in engine_of(board).insert(Nonce("handle", 1, 1, 2), batch)] == ["ok"] * 3
        taken = engine_of(board).take(Nonce("handle", 1, 2), "anna", 3, None, None).records
        assert [record.uuid for record in taken] == [each.uuid for each in batch]


@pytest.mark.rule("The trash shows a job once that another call sweeps during the reading.")
@pytest.mark.parametrize("nth", range(1, 5))
def test_the_trash_shows_a_job_once_that_is_swept_meanwhile(make_board: Callable[..., Any], nth: int) -> None:
    board, other = make_board(), make_board()
    job = board.post("mail", max_attempts=1)
    let_lapse(board, job)
    store, requests = board.engine.store, itertools.count(1)
    call = store.connections.call

    def calling(*args: Any) -> Any:
        if next(requests) == nth:
            assert other.claim_next("bert") is None
        return call(*args)

    store.connections.call = calling
    assert uuids(board.trashed()) == [job.uuid]
