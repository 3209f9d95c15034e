"""Several processes: what dies, stops, comes back or is forked; and who owns what then."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jobboard.board import JobBoard
from jobboard.exceptions import JobBoardError
from jobboard.job import Posting
from jobboard.runtime import boottime
from jobboard.states import CLAIMED, COMPLETE, LAPSED, UNCLAIMED
from jobboard.testing import eventually, holds
from jobboard.testing.conformance.support import (
    HOLDS,
    LIMIT,
    LONG,
    PATIENCE,
    SHORT,
    STEADY,
    Background,
    EventLog,
    MakeBoard,
    take,
)
from jobboard.testing.puppet import Puppet

TTL = 1.0


@pytest.fixture
def puppet(board: JobBoard, board_conf: dict[str, Any]) -> Iterator[Puppet]:
    """Another process with a handle on the same board, whose claims last for ``TTL``."""
    puppet = Puppet(board.name, {**board_conf, "claim_ttl": TTL})
    yield puppet
    puppet.end()


def reaches(board: JobBoard, puppet: Puppet) -> bool:
    """Return whether other processes see this board's jobs. Only a board that is not durable may be a process's own."""
    job = board.post("to be seen")
    seen = puppet("state", job.uuid) == UNCLAIMED
    board.cancel(job)
    assert seen or not board.characteristics.durable
    return bool(seen)


class TestOtherProcesses:
    any_driver = True

    def test_a_killed_holder(self, board: JobBoard, puppet: Puppet) -> None:
        if not reaches(board, puppet):
            return
        job = board.post("resize")
        uuid, token = puppet("claim_next", "anna")
        assert uuid == job.uuid
        puppet.signal(signal.SIGKILL)
        taken = take(board, "anna", timeout=TTL + LIMIT)
        assert taken == job
        assert taken.claim is not None
        assert taken.claim.token > token
        assert taken.attempts == 2
        assert [failure[1:4] for failure in taken.errors] == [("anna", 1, LAPSED)]

    def test_a_stopped_holder_that_comes_back(self, board: JobBoard, puppet: Puppet) -> None:
        """A stopped holder finishes a job that nobody else took. Its claim is lost by its own clock once another holder
        has taken over, and its later acts are refused, though the next holder has the same name."""
        if not reaches(board, puppet):
            return
        job = board.post("resize")
        puppet("claim_next", "anna", expiry=SHORT)
        puppet.signal(signal.SIGSTOP)
        eventually(lambda: job.state == UNCLAIMED, LIMIT)
        puppet.signal(signal.SIGCONT)
        assert puppet("consume", "anna") == "ok"
        assert job.state == COMPLETE
        job = board.post("resize")
        uuid, token = puppet("claim_next", "anna")
        assert uuid == job.uuid
        puppet.signal(signal.SIGSTOP)
        taken = take(board, "anna", timeout=TTL + LIMIT)
        assert taken.claim is not None
        assert taken.claim.token > token
        # Asked while it sleeps, so that this is the first thing that it looks at.
        puppet.tell("lost")
        puppet.signal(signal.SIGCONT)
        assert puppet.answer() is True
        assert puppet("extend", "anna") == "ClaimLost"
        assert puppet("consume", "anna") == "ClaimLost"
        assert puppet("lost") is True
        assert board.find_owner(job) == "anna"
        board.consume(taken, "anna")
        assert puppet("consume", "anna") == "ClaimLost"
        assert job.state == COMPLETE

    @holds("A claim that its holder has read as lost is never renewed, and another worker gets the job.")
    def test_a_stopped_holder_that_drops_its_job(self, board: JobBoard, puppet: Puppet) -> None:
        """The holder has read that its claim is lost. Others get the job, though the process renews other claims."""
        if not reaches(board, puppet):
            return
        job = board.post("resize")
        puppet("register", "anna")
        uuid, _ = puppet("claim_next", "anna")
        assert uuid == job.uuid
        lost = False
        for _ in range(20):
            puppet.signal(signal.SIGSTOP)
            eventually(lambda: job.state == UNCLAIMED and not board.entities(), LIMIT)
            puppet.tell("lost")
            puppet.signal(signal.SIGCONT)
            lost = puppet.answer()
            # If not, the claim was renewed before it was asked for.
            if lost:
                break
        assert lost
        # The entity comes back with the first beat that succeeds.
        eventually(board.entities, LIMIT)
        assert take(board, "bert", timeout=LIMIT) == job
        assert puppet("consume", "anna") == "ClaimLost"

    def test_acts_of_another_process_wake_waiters(self, board: JobBoard, puppet: Puppet) -> None:
        if not reaches(board, puppet):
            return
        waiter = Background(lambda: board.claim_next("anna", timeout=PATIENCE))
        uuid = puppet("post", "resize")
        job = waiter.wait()
        assert job.uuid == uuid
        if board.characteristics.remote_events:
            events = EventLog(board)
            posted = puppet("post", "crop")
            eventually(lambda: events.of(posted) == ["POSTED"], LIMIT)
            board.cancel(board.get(posted))
        board.abandon(job, "anna")
        assert puppet("claim_next", "anna")[0] == uuid
        waiter = Background(lambda: board.claim_next("bert", timeout=PATIENCE))
        # A claim that is given back uses up no attempt.
        puppet("close")
        assert waiter.wait() == job
        assert board.get(uuid).attempts == 2


def in_child(act: Callable[[], Any]) -> Callable[[], Any]:
    """Fork and do it there; call what is returned for the answer."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork with threads about is what this is about
        pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            os.close(reader)
            try:
                told = ["did", act()]
            except BaseException as error:  # noqa: BLE001 - told to the parent
                told = ["raised", f"{type(error).__name__}: {error}"]
            os.write(writer, json.dumps(told).encode())
        os._exit(0)
    os.close(writer)

    def answer() -> Any:
        try:
            ready, _, _ = select.select([reader], [], [], 60)
            assert ready, "the child hangs"
            how, what = json.loads(os.read(reader, 65536))
        finally:
            os.close(reader)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        assert how == "did", what
        return what

    return answer


def outcome(act: Callable[[], object]) -> str:
    try:
        act()
    except JobBoardError as error:
        return type(error).__name__
    return "ok"


class TestFork:
    """The ways in which services fork: multiprocessing, os.fork, and a server that loads the application first."""

    @holds("Claims of the parent are lost to a forked child alone, and both keep their own.")
    def test_inherited_claims_are_lost_to_the_child_alone(self, board: JobBoard) -> None:
        jobs = board.post_many([Posting("resize")] * 3)
        kept, fixed, own = take(board), take(board, expiry=LONG), take(board)

        def child() -> Any:
            lost = [job.claim is not None and job.claim.lost for job in (kept, fixed)]
            acts = [
                outcome(lambda: board.consume(kept, "anna")),
                outcome(lambda: board.abandon(fixed, "anna")),
                outcome(lambda: board.extend(fixed, "anna", LONG)),
                outcome(lambda: board.trash(own, "anna")),
            ]
            return lost, acts

        lost, acts = in_child(child)()
        assert lost == [True, True]
        assert acts == ["ClaimLost"] * 4
        assert [board.find_owner(job) for job in jobs] == ["anna"] * 3
        assert not any(job.claim is None or job.claim.lost for job in (kept, fixed, own))
        board.consume_many([kept, fixed, own], "anna")

    def test_the_childs_claims_are_its_own(self, board: JobBoard) -> None:
        board.post("first")
        mine = take(board)
        board.post("second")

        def child() -> Any:
            job = take(board, "bert")
            states = [job.state, board.find_owner(job)]
            board.consume(job, "bert")
            return [job.name, *states, job.state, board.job_count]

        assert in_child(child)() == ["second", CLAIMED, "bert", COMPLETE, 1]
        board.consume(mine, "anna")

    @holds("A forked child makes its SQLite connections again.")
    def test_both_go_on_at_the_same_time(self, board: JobBoard) -> None:
        """A shared connection would bring the answers for one process to the other."""

        def work(who: str) -> int:
            for number in range(25):
                posted = board.post(who, details={"who": who, "number": number})
                job = take(board, who, names=[who])
                assert (job.uuid, job.details) == (posted.uuid, {"who": who, "number": number})
                board.consume(job, who)
            return number

        answer = in_child(lambda: work("bert"))
        assert work("anna") == 24
        assert answer() == 24

    @holds("A child may be made while threads of its parent work, but for SQLite.")
    def test_fork_while_other_threads_work(self, board: JobBoard) -> None:
        """Locks that other threads hold at the fork do not bind the child. The threads are connected: a thread that
        connects may hold a lock of OpenSSL's."""
        if board.characteristics.notes.startswith("sqlite"):
            pytest.skip("SQLite: a fork while another thread is inside of it is the service's to avoid")
        ended = threading.Event()
        connected: set[str] = set()

        def work(who: str) -> None:
            while not ended.is_set():
                board.post(who)
                board.consume(take(board, who, names=[who]), who)
                connected.add(who)

        def child() -> Any:
            job = board.post("carl")
            board.claim(job, "carl")
            return [board.find_owner(job), outcome(lambda: board.consume(job, "carl"))]

        threads = [Background(lambda who=who: work(who)) for who in ("anna", "bert")]  # type: ignore[misc]
        try:
            eventually(lambda: len(connected) == 2, LIMIT)
            for _ in range(4):
                assert in_child(child)() == ["carl", "ok"]
        finally:
            ended.set()
        for thread in threads:
            thread.wait()

    @holds("Claims of the parent are lost to a forked child alone, and both keep their own.")
    def test_both_keep_their_claims(self, make_board: MakeBoard) -> None:
        """The parent's heartbeat goes on, and the child starts its own."""
        board = make_board(claim_ttl=STEADY)
        board.post("held by parent")
        held = take(board)
        until = boottime() + HOLDS * board.characteristics.claim_ttl

        def hold(job: Any) -> str:
            while boottime() < until:
                assert board.find_owner(job) == job.claim.who
                assert not job.claim.lost
                time.sleep(0.2)
            board.consume(job, job.claim.who)
            return "held"

        def child() -> str:
            board.post("held by child")
            return hold(take(board, "bert", names=["held by child"]))

        answer = in_child(child)
        assert hold(held) == "held"
        assert answer() == "held"

    @holds("A forked child that closes a board ends nothing of the parent's.")
    def test_a_child_that_closes(self, board: JobBoard) -> None:
        job = board.post("resize")
        taken = take(board)

        def child() -> Any:
            board.close()
            closed = board.connected
            board.connect()
            return [closed, board.job_count]

        assert in_child(child)() == [False, 1]
        assert board.find_owner(job) == "anna"
        assert job.attempts == 1
        board.consume(taken, "anna")

    def test_a_child_of_a_child(self, board: JobBoard) -> None:
        board.post("resize")

        def child() -> Any:
            mine = take(board, "bert")
            lost = in_child(lambda: [mine.claim is not None and mine.claim.lost, board.job_count])()
            board.consume(mine, "bert")
            return lost

        assert in_child(child)() == [True, 1]

    @holds("A notifier works in a forked child.")
    def test_a_child_waits_and_listens(self, board: JobBoard) -> None:
        """Threads do not survive a fork: the child's own waiters, heartbeat and notifier have to start anew."""
        before = EventLog(board)
        board.post("before")
        board.consume(take(board), "anna")
        eventually(lambda: len(before.seen) == 4, LIMIT)

        def child() -> Any:
            before.seen.clear()
            waiter = Background(lambda: board.claim_next("bert", timeout=PATIENCE))
            time.sleep(SHORT)
            posted = board.post("resize")
            job = waiter.wait()
            # Two threads tell, each when it gets to it.
            eventually(lambda: sorted(before.of(posted)) == ["CLAIMED", "POSTED"], LIMIT)
            board.abandon(job, "bert")
            return job.name

        assert in_child(child)() == "resize"

    def test_a_closed_board_is_not_touched(self, board: JobBoard, other: JobBoard) -> None:
        board.close()

        def child() -> Any:
            closed = board.connected
            board.connect()
            board.post("by the child")
            return [closed, board.job_count, other.job_count]

        assert in_child(child)() == [False, 1, 1]
        assert not board.connected
