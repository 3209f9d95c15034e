"""What the engine may rely on: tags that never repeat, and commits that are done as a whole or not at all."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from jobboard import codec
from jobboard.board import JobBoard
from jobboard.engine import Change, Mark, Stale
from jobboard.primitives import Arrival, Draft, End, Finish, Nonce
from jobboard.states import Holder, Record, Verb

pytestmark = pytest.mark.backends("redis")

LONG = 600_000_000
DAY = 86_400_000_000


@pytest.fixture
def board(make_board: Callable[..., JobBoard]) -> JobBoard:
    return make_board()


@pytest.fixture
def store(board: JobBoard) -> Any:
    return board.engine.store


def draft(job: str, trashed_on: int | None = None) -> Draft:
    return Draft(job, "a", 100, "k", 1, b"posting", None, None, None, Arrival("anna", 1, (), 1_000, trashed_on, 0))


class TestTags:
    def test_no_version_of_a_job_has_the_tag_of_another(self, board: JobBoard, store: Any) -> None:
        engine, job = board.engine.raw, str(uuid.uuid4())
        number = iter(range(1, 100))
        tags: list[Any] = []

        def do(primitive: Callable[..., Any], *args: Any) -> None:
            primitive(*args, Nonce("handle", 1, next(number)))
            [stored] = store.read([job]).jobs
            if stored is not None:
                tags.append(stored.tag)

        for _ in range(3):
            do(engine.insert, [draft(job, trashed_on=2_000)])
            for _ in range(2):
                do(engine.operate, Verb.RESTORE, job, None)
                do(engine.claim, job, "anna", LONG)
                [stored] = store.read([job]).jobs
                holder = Holder("anna", stored.record.token)
                for lease in (LONG, LONG, 2 * LONG, LONG):
                    do(engine.extend, job, holder, lease)
                do(engine.finish, [Finish(job, holder, End(Verb.TRASH))])
            # Nothing but its tag tells that the job has been written again.
            [stored] = store.read([job]).jobs
            tags.append(store.commit([Change(stored, stored.record)]).jobs[0].tag)
            do(engine.operate, Verb.PURGE, job, None)
        assert len(tags) == len(set(tags)) == 3 * 16

    def test_nor_has_one_of_a_side_record(self, store: Any) -> None:
        tags = []
        for _ in range(3):
            for value in (b"same", b"same", None):
                [side] = store.read([], [("entity", "a")]).sides
                for written in store.commit([], [Mark(side, value)]).sides:
                    assert (written.value, written.until) == (value, None)
                    assert store.sides("entity", None, 10)[0].sides == [written]
                    tags.append(written.tag)
        assert len(tags) == len(set(tags)) == 6
        assert store.sides("entity", None, 10)[0].sides == []


class TestCommit:
    def test_all_or_nothing(self, board: JobBoard, store: Any) -> None:
        one, other = board.post("a"), board.post("b")
        [first, second] = store.read([one.uuid, other.uuid]).jobs
        [mark] = store.read([], [("entity", "x")]).sides
        board.claim(other, "anna")
        changed = first.record._replace(name="c")
        with pytest.raises(Stale) as caught:
            store.commit([Change(first, changed), Change(second, None)], [Mark(mark, b"value")])
        assert caught.value.uuids == {other.uuid}
        with pytest.raises(Stale) as caught:
            store.commit([Change(None, draft(one.uuid))])
        assert caught.value.uuids == {one.uuid}
        store.commit([], [Mark(mark, b"value", DAY)])
        with pytest.raises(Stale) as caught:
            store.commit([Change(first, changed)], [Mark(mark, b"value")])
        assert not caught.value.uuids
        assert store.read([one.uuid]).jobs == [first]
        assert [job.name for job in board.iterjobs()] == ["a", "b"]

    def test_a_mark_and_what_it_counts_for(self, store: Any) -> None:
        now, _, [absent] = store.read([], [("answer", "x:1")])
        assert (absent.value, absent.until, absent.tag) == (None, None, None)
        # Whatever bytes: none, and such as are msgpack themselves.
        for value in (b"", b"\x93\x01\x02\x03", b"\xc1"):
            [side] = store.read([], [("answer", "x:1")]).sides
            [written] = store.commit([], [Mark(side, value, DAY)]).sides
            assert written.value == value
            assert now + DAY <= written.until <= store.now() + DAY
            assert store.read([], [("answer", "x:1")]).sides == [written]

    def test_what_is_new_gets_its_place_and_wakes_who_waits(self, board: JobBoard, store: Any) -> None:
        posting = codec.encode(codec.Content({}, None), "msgpack")
        posted = Draft(str(uuid.uuid4()), "a", 100, "k", 1, posting, 3, None, None, None, "group")
        [stored] = store.commit([Change(None, posted, "POSTED")]).jobs
        expected: Record = posted.record(stored.record.sequence, stored.record.created_on)
        assert stored.record == expected
        assert store.look(1, None, 1).ready == [stored]
        assert board.claim_next("anna").uuid == posted.uuid
