"""A connection that breaks in the middle of a call: what was done is done once, and the caller learns of it."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

import jobboard
from jobboard import codec, states
from jobboard.board import JobBoard
from jobboard.engine import Answer, Change, Deed, Mark, slot_of
from jobboard.engine.answers import KEPT
from jobboard.exceptions import ConnectionFailure, JobFailure, JobFailures
from jobboard.primitives import Draft, End, Finish, Nonce
from jobboard.states import OK, Holder, Status, Verb
from jobboard.testing.faults import FaultyProxy

pytestmark = pytest.mark.backends("postgresql", "mariadb")


@pytest.mark.parametrize("what", ["reply", "request"])
class TestOnce:
    def test_post(self, far: JobBoard, proxy: FaultyProxy, decisive: bytes, what: Any) -> None:
        fault = proxy.lose(what, matching=decisive)
        job = far.post("a")
        assert fault.happened
        assert [each.uuid for each in far.iterjobs()] == [job.uuid]

    def test_post_with_a_key(self, far: JobBoard, proxy: FaultyProxy, what: Any) -> None:
        fault = proxy.lose(what, matching=b"COMMIT")
        job = far.post("a", key="k")
        assert fault.happened
        assert far.post("b", key="k").uuid == job.uuid
        assert far.job_count == 1

    def test_claim(self, far: JobBoard, proxy: FaultyProxy, decisive: bytes, what: Any) -> None:
        job = far.post("a")
        fault = proxy.lose(what, matching=decisive)
        claim = far.claim(job, "anna")
        assert fault.happened
        assert far.get(job.uuid).attempts == 1
        claim.consume()

    @pytest.mark.parametrize("options", [{}, {"names": ["a"]}, {"names": ["a", "b"]}])
    def test_take(self, far: JobBoard, proxy: FaultyProxy, decisive: bytes, what: Any, options: Any) -> None:
        far.post_many([{"name": "a"}] * 5)
        fault = proxy.lose(what, matching=decisive)
        jobs = far.claim_many("anna", 2, **options)
        assert fault.happened
        assert len(jobs) == 2
        assert far.stats().claimed == 2
        assert [job.attempts for job in far.iterjobs(states=["CLAIMED"])] == [1, 1]
        far.consume_many(jobs, "anna")
        assert far.job_count == 3

    def test_take_of_several_tokens(self, far: JobBoard, proxy: FaultyProxy, decisive: bytes, what: Any) -> None:
        """A token only rises, also where the clock was set back since the job's last claim."""
        ahead, behind = far.post_many([{"name": "a"}] * 2)
        token = 10**16
        with far.engine.store.links.engine.begin() as connection:
            connection.execute(sa.update(far.table).where(far.table.c.uuid == ahead.uuid).values(token=token))
        fault = proxy.lose(what, matching=decisive)
        jobs = far.claim_many("anna", 2)
        assert fault.happened
        assert [job.uuid for job in jobs] == [ahead.uuid, behind.uuid]
        assert jobs[0].claim.token == token + 1 > jobs[1].claim.token
        far.consume_many(jobs, "anna")
        assert far.job_count == 0

    def test_consume(self, far: JobBoard, proxy: FaultyProxy, decisive: bytes, what: Any) -> None:
        job = far.post("a")
        far.claim(job, "anna")
        fault = proxy.lose(what, matching=decisive)
        far.consume(job, "anna")
        assert fault.happened
        assert far.job_count == 0

    def test_consume_many(self, far: JobBoard, proxy: FaultyProxy, decisive: bytes, what: Any) -> None:
        far.post_many([{"name": "a"}] * 5)
        jobs = far.claim_many("anna", 5)
        fault = proxy.lose(what, matching=decisive)
        far.consume_many(jobs, "anna")
        assert fault.happened
        assert far.job_count == 0

    def test_consume_many_of_which_one_is_lost(
        self, far: JobBoard, proxy: FaultyProxy, decisive: bytes, what: Any
    ) -> None:
        far.post_many([{"name": "a"}] * 5)
        jobs = far.claim_many("anna", 5)
        far.release(jobs[2])
        fault = proxy.lose(what, matching=decisive)
        with pytest.raises(JobFailures) as raised:
            far.consume_many(jobs, "anna")
        assert fault.happened
        assert [error.job.uuid for error in raised.value.exceptions] == [jobs[2].uuid]
        assert [job.uuid for job in far.iterjobs()] == [jobs[2].uuid]

    def test_abandon(self, far: JobBoard, proxy: FaultyProxy, decisive: bytes, what: Any) -> None:
        job = far.post("a")
        far.claim(job, "anna")
        fault = proxy.lose(what, matching=decisive)
        far.abandon(job, "anna", error="later")
        assert fault.happened
        assert far.get(job.uuid).error == "later"
        assert far.get(job.uuid).attempts == 1

    def test_release(self, far: JobBoard, proxy: FaultyProxy, decisive: bytes, what: Any) -> None:
        job = far.post("a")
        far.claim(job, "anna")
        fault = proxy.lose(what, matching=decisive)
        far.release(job)
        assert fault.happened
        assert far.get(job.uuid).state == "UNCLAIMED"


class TestLate:
    """A first try that was held up on its way, and arrives after its own repetition."""

    @staticmethod
    def draft(number: int) -> Draft:
        posting = codec.encode(codec.Content({}, None), "json")
        return Draft(f"00000000-0000-4000-8000-{number:012d}", "a", 1, None, codec.VERSION, posting, *[None] * 3)

    def test_a_first_try_that_is_under_way_when_its_repetition_comes(
        self, board: JobBoard, make_board: Callable[..., Any], spy: Any
    ) -> None:
        """The repetition waits for it, and answers what it did."""
        other = make_board()
        nonce = Nonce("handle", 1, 5)
        board.engine.raw.insert([self.draft(n) for n in (1, 2)], Nonce("handle", 1, 4))
        began, go_on = threading.Event(), threading.Event()
        results: list[Any] = []

        def first() -> None:
            store = board.engine.store
            with store.transaction():
                look = store.look(1, None, codec.VERSION)
                [stored] = store.lock(look.ready)
                _, record = states.claim(stored.record, look.now, "anna", None, look.now + 60_000_000)
                assert record is not None
                answer = Answer(nonce.call, 1, (Deed(OK, record.uuid, record.token),))
                [slot] = store.read([], [slot_of(nonce)]).sides
                store.commit([Change(stored, record)], [Mark(slot, answer.packed(), KEPT)])
                # It is written, and not committed yet.
                began.set()
                go_on.wait(10)

        def again() -> None:
            results.append(other.engine.raw.take("anna", 1, 60_000_000, None, 1, nonce._replace(attempt=2)))

        threads = [threading.Thread(target=first)]
        threads[0].start()
        assert began.wait(10)
        threads.append(threading.Thread(target=again))
        threads[1].start()
        go_on.set()
        for thread in threads:
            thread.join(10)
        assert [record.uuid for record in results[0].records] == [self.draft(1).uuid]
        assert results[0].replayed
        assert board.stats().claimed == 1

    @pytest.mark.parametrize("kept", [4, 6])
    def test_nothing_of_an_overtaken_call_happens(
        self, board: JobBoard, make_board: Callable[..., Any], kept: int
    ) -> None:
        """As it arrives after the slot has gone on, or after the repetition found nothing to do."""
        calls: dict[str, Callable[[Nonce], Any]] = {
            "insert": lambda nonce: board.engine.raw.insert([self.draft(9)], nonce),
            "claim": lambda nonce: board.engine.raw.claim(self.draft(1).uuid, "anna", None, nonce),
            "take": lambda nonce: board.engine.raw.take("anna", 5, None, None, 1, nonce),
            "extend": lambda nonce: board.engine.raw.extend(self.draft(2).uuid, Holder("anna", token), 1, nonce),
            "consume": lambda nonce: board.engine.raw.finish(
                [Finish(self.draft(2).uuid, holder, End(Verb.CONSUME))], nonce
            ),
            "cancel": lambda nonce: board.engine.raw.operate(Verb.CANCEL, self.draft(1).uuid, None, nonce),
        }
        board.engine.raw.insert([self.draft(n) for n in (1, 2)], Nonce("setup", 1, 1))
        claimed = board.engine.raw.claim(self.draft(2).uuid, "anna", 600_000_000, Nonce("setup", 1, 2))
        token = claimed.record.token
        holder, other = Holder("anna", token), make_board()
        for slot, (name, call) in enumerate(calls.items()):
            nothing = [Finish("none", Holder("x", 1), End(Verb.CONSUME))]
            assert other.engine.raw.finish(nothing, Nonce("late", slot, kept, 2)) == [Status.ABSENT]
            before = board.engine.raw.read([self.draft(n).uuid for n in (1, 2, 9)])
            if kept > 5:
                with pytest.raises(JobFailure):
                    call(Nonce("late", slot, 5))
                after = board.engine.raw.read([self.draft(n).uuid for n in (1, 2, 9)])
                assert [seen.record for seen in after] == [seen.record for seen in before], name
        if kept < 5:
            assert calls["consume"](Nonce("late", 0, 5)) == [OK]

    def test_a_repetition_that_found_nothing_keeps_the_first_try_out(self, board: JobBoard) -> None:
        first, again = Nonce("handle", 1, 1), Nonce("handle", 1, 1, 2)
        posted = Nonce("other", 1, 1)
        assert not board.engine.raw.take("anna", 1, None, None, 1, again).records
        board.engine.raw.insert([self.draft(1)], posted)
        # The first try begins as if it knew of no repetition.
        assert not board.engine.raw.take("anna", 1, None, None, 1, first).records
        assert board.stats().claimed == 0


def test_a_server_that_is_down_is_a_failure_of_ours_and_tells_no_secret(board_conf: dict[str, Any]) -> None:
    scheme = board_conf["board"].partition(":")[0]
    board = jobboard.fetch("board", f"{scheme}://anna:s3cret%40%25@127.0.0.1:9/db?retry_for=0.1&connect_timeout=2")
    with pytest.raises(ConnectionFailure) as caught:
        board.connect()
    shown = f"{caught.value} {caught.value.__cause__} {caught.value.__context__} {board!r}"
    assert "s3cret" not in shown


def test_an_outcome_that_nobody_knows_is_said_to_be_unknown(
    far: JobBoard, proxy: FaultyProxy, board: JobBoard, decisive: bytes
) -> None:
    far.engine.retry_for = 0.2
    fault = proxy.lose("reply", matching=decisive)
    proxy.refuse()
    with pytest.raises(ConnectionFailure) as caught:
        far.post("a")
    assert fault.happened
    assert caught.value.outcome == "unknown"
    assert board.job_count == 1
    proxy.restore()
    assert far.job_count == 1
