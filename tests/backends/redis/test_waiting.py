"""Waiters in the queue of the server: each job calls one waiter that takes it, and no call is lost.

A waiter that is *called* has been taken out of the queue by the script that made a job claimable.
"""

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from jobboard.exceptions import ConnectionFailure, JobFailure, NotFound
from jobboard.job import Posting
from jobboard.priorities import JobPriority
from jobboard.testing import eventually
from jobboard.testing.conformance.support import Background, replaced
from jobboard.testing.puppet import Puppet
from jobboard.testing.requests import TAKES, Request, RequestHooks, requests
from tests.backends.redis.conftest import LIMIT, Place, Sleeper, stands_still

pytestmark = pytest.mark.backends("redis")


class Held:
    """Requests of a board, or its listening for calls, held up until ``go_on``."""

    def __init__(self, board: Any, request: Request) -> None:
        self.reached, self._go_on = threading.Event(), threading.Event()
        self._hold = False
        (RequestHooks(waiters_of(board)) if request == "listen" else requests(board)).before(request, self._wait)

    def _wait(self) -> None:
        if self._hold:
            self.reached.set()
            assert self._go_on.wait(LIMIT)

    def hold(self) -> None:
        self._hold = True

    def go_on(self) -> None:
        self._hold = False
        self._go_on.set()


@pytest.fixture
def puppet(place: Place) -> Iterator[Puppet]:
    """Another process with a handle on the board."""
    puppet = Puppet("board", {"board": place.server.uri})
    yield puppet
    puppet.end()


def waiters_of(board: Any) -> Any:
    return board.engine.store.waiters


class TestOneForEachJob:
    @pytest.mark.parametrize("wish", [None, ["a", "b"]])
    def test_each_job_wakes_one_of_eight_waiters(self, place: Place, sleeper: Sleeper, wish: Any) -> None:
        poster, boards = place.board(), [place.board() for _ in range(2)]
        waiters = [sleeper(board, names=wish) for board in boards for _ in range(4)]
        place.count()
        posted = []
        for number in range(1, 9):
            posted.append(poster.post("a").uuid)
            eventually(lambda: sum(not waiter.running for waiter in waiters) == number, LIMIT)  # noqa: B023
            assert place.asleep == (8 - number) * len(wish or [None])
            # A post, and the take of the waiter that was called.
            assert (place.calls["evalsha"], place.calls["spublish"]) == (2 * number, number)
        assert Counter(waiter.wait().uuid for waiter in waiters) == Counter(posted)

    @pytest.mark.rule("A batch calls one waiter for each of its jobs.")
    def test_a_batch_wakes_as_many_waiters_as_it_has_jobs(self, place: Place, sleeper: Sleeper) -> None:
        poster, board = place.board(), place.board()
        waiters = [sleeper(board) for _ in range(8)]
        place.count()
        poster.post_many([{"name": "a"}] * 3)
        eventually(lambda: sum(not waiter.running for waiter in waiters) == 3, LIMIT)
        stands_still(place, 0.2)
        assert (place.calls["evalsha"], place.asleep) == (4, 5)

    @pytest.mark.rule("A batch calls one waiter for each of its jobs.")
    def test_a_batch_calls_waiters_for_the_names_of_its_jobs(self, place: Place, sleeper: Sleeper) -> None:
        poster, only_a, only_b = (place.board() for _ in range(3))
        waiters = [sleeper(only_a, names=["a"]), sleeper(only_b, names=["b"]), sleeper(only_a, names=["a"])]
        low, high, next_high = poster.post_many(
            {"name": name, "priority": priority}
            for name, priority in (("b", JobPriority.LOW), ("a", JobPriority.HIGH), ("a", JobPriority.HIGH))
        )
        assert waiters[1].wait(LIMIT) == low
        assert {waiters[0].wait(LIMIT), waiters[2].wait(LIMIT)} == {high, next_high}

    @pytest.mark.rule("A wake-up that its waiter does not follow goes to another waiter.")
    def test_a_waiter_behind_others_that_do_not_want_the_job_is_called(self, place: Place, sleeper: Sleeper) -> None:
        poster, other, board = (place.board() for _ in range(3))
        Background(lambda: next(other.wait(None)))
        place.until_asleep(1)
        for names in (["b"], ["b", "c"]):
            sleeper(other, names=names)
        waiter = sleeper(board, names=["a"])
        place.count()
        job = poster.post("a")
        assert waiter.wait(LIMIT) == job
        stands_still(place, 0.2)
        assert place.calls["spublish"] == 1

    def test_a_job_wakes_all_waiters_that_only_look(self, place: Place) -> None:
        poster, boards = place.board(), [place.board() for _ in range(2)]
        waiters = [Background(lambda board=board: list(board.wait(60))) for board in boards for _ in range(3)]  # type: ignore[misc]
        place.until_asleep(6)
        job = poster.post("a")
        for waiter in waiters:
            assert waiter.wait(LIMIT) == [job]


class TestIdle:
    def test_sleeping_waiters_send_nothing(self, place: Place, sleeper: Sleeper) -> None:
        board = place.board()
        sleeper(board)
        sleeper(board, names=["a", "b"])
        Background(lambda: board.wait(None))
        place.until_asleep(4)
        place.count()
        stands_still(place, 1.2)
        assert not place.calls

    @pytest.mark.rule("A job of another name wakes no waiter.")
    def test_a_job_of_another_name_wakes_no_waiter(self, place: Place, sleeper: Sleeper) -> None:
        board = place.board()
        waiter = sleeper(place.board(), names=["a"])
        place.count()
        board.post_many([Posting("b"), Posting("b", delay=0.1)])
        stands_still(place, 0.3)
        assert place.calls["evalsha"] == 1
        job = board.post("a")
        assert waiter.wait(LIMIT) == job

    def test_a_waiter_ignores_messages_of_an_earlier_sleep(self, place: Place, sleeper: Sleeper) -> None:
        board = place.board()
        everybody = place.key("waiters") + ":all"
        eventually(
            lambda: [board.claim_next("anna", timeout=0.1), place.call("SPUBLISH", everybody, "0" * 18)] == [None, 1]
        )
        place.count()
        sleeper(board)
        stands_still(place, 0.2)
        assert place.calls["evalsha"] == 2

    @pytest.mark.parametrize("first", [None, 600])
    def test_a_delay_that_ends_wakes_a_waiter(self, place: Place, sleeper: Sleeper, first: float | None) -> None:
        """Also a waiter that has reckoned with a later one."""
        board, other = place.board(), place.board()
        if first:
            other.post("b", delay=first)
        waiter = sleeper(board)
        job = other.post("a", delay=0.4)
        assert waiter.wait(LIMIT) == job

    @pytest.mark.rule("A call for a job that is gone goes on to the next waiter.")
    @pytest.mark.parametrize("delay", [None, 0.3])
    def test_a_job_posted_between_look_and_sleep_is_not_slept_through(self, place: Place, delay: float | None) -> None:
        board, other = place.board(), place.board()
        posted: list[Any] = []

        def post(original: Callable[..., None], *args: Any, **kwargs: Any) -> None:
            if not posted:
                posted.append(other.post("a", delay=delay))
            original(*args, **kwargs)

        with replaced(board, "wait", post):
            waiter = Background(lambda: board.claim_next("anna", timeout=None))
            assert waiter.wait(LIMIT) == posted[0]


KILL_LISTENERS = ("CLIENT", "KILL", "TYPE", "pubsub")
KILL_CALLERS = ("CLIENT", "KILL", "TYPE", "normal")
HARM: dict[str, Callable[[Place], object]] = {
    "flush": lambda place: place.call("SCRIPT", "FLUSH"),
    "listeners": lambda place: place.call(*KILL_LISTENERS),
    "connections": lambda place: (place.call(*KILL_LISTENERS), place.call(*KILL_CALLERS)),
    "restart": lambda place: place.server.restart(),
    "kill": lambda place: (place.server.kill(), place.server.start()),
}


class TestBrokenWaiters:
    @pytest.mark.parametrize("harm", HARM)
    def test_waiters_survive_what_happens_to_the_server(self, place: Place, sleeper: Sleeper, harm: str) -> None:
        poster, boards = place.board(), [place.board() for _ in range(2)]
        waiters = [sleeper(board, names=names) for board in boards for names in (None, ["a"])]
        HARM[harm](place)
        # Some waiters are back by now and some are not.
        jobs = {poster.post("a").uuid for _ in range(2)}
        eventually(lambda: sum(not waiter.running for waiter in waiters) == 2, LIMIT)
        jobs |= {poster.post("a").uuid for _ in range(2)}
        assert {waiter.wait(LIMIT).uuid for waiter in waiters} == jobs

    def test_a_killed_process_swallows_no_call(self, place: Place, sleeper: Sleeper, puppet: Puppet) -> None:
        puppet.tell("claim_next", "bert", timeout=600)
        place.until_asleep(1)
        poster, board = place.board(), place.board()
        waiter = sleeper(board)
        puppet.end()
        assert place.asleep == 2
        job = poster.post("a")
        assert waiter.wait(LIMIT) == job
        assert place.asleep == 0

    @pytest.mark.rule("A stopped process delays a job for which it was called by its lease alone.")
    def test_a_stopped_process_delays_a_job_by_its_lease(self, place: Place, sleeper: Sleeper, puppet: Puppet) -> None:
        """The stopped process was called. Others look by themselves after a while, as if the job was claimed."""
        puppet.tell("claim_next", "bert", timeout=600)
        place.until_asleep(1)
        poster, board = place.board(), place.board()
        store: Any = board.engine.store
        store.traits = replace(store.traits, poll_cap=1.0)
        waiter = sleeper(board)
        puppet.signal(signal.SIGSTOP)
        job = poster.post("a")
        assert waiter.wait(LIMIT) == job

    @pytest.mark.rule("A connection that breaks as its waiter is called strands no job.")
    def test_a_connection_that_breaks_as_its_waiter_is_called_strands_no_job(
        self, place: Place, sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        poster, board = place.board(), place.board()
        held = Held(board, "listen")
        held.hold()
        waiter = sleeper(board)
        job = poster.post("a")
        place.call(*KILL_LISTENERS)
        held.go_on()
        got = waiter.wait(LIMIT)
        assert (got, got.attempts) == (job, 1)


class TestHandedOn:
    """A waiter that was called and does not take the job hands its call on to another waiter."""

    @pytest.mark.parametrize("names", [None, ["b", "a"]])
    @pytest.mark.parametrize("looks_again", [True, False])
    def test_by_a_waiter_whose_time_was_up_as_it_was_called(
        self, place: Place, sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch, names: Any, looks_again: bool
    ) -> None:
        poster, slow, other = (place.board() for _ in range(3))
        posted, woke = threading.Event(), threading.Event()
        listen = waiters_of(slow).listen

        def too_late(*args: Any) -> Any:
            if posted.is_set():
                return listen(*args)
            assert posted.wait(LIMIT)
            woke.set()
            return None

        monkeypatch.setattr(waiters_of(slow), "listen", too_late)
        unless = None if looks_again else woke.is_set
        waiters = [sleeper(slow, names=names, unless=unless), sleeper(other, names=["a"] if names else None)]
        if names:
            # A better job that neither of them wants.
            poster.post("c", priority=JobPriority.HIGH)
        job = poster.post("a")
        posted.set()
        if looks_again:
            eventually(lambda: not all(waiter.running for waiter in waiters), LIMIT)
            assert poster.find_owner(job) == "anna"
        else:
            assert waiters[1].wait(LIMIT) == job
            assert waiters[0].wait(LIMIT) is None

    @pytest.mark.parametrize("plain", [True, False])
    def test_by_a_waiter_that_takes_the_job_of_another_call(
        self, place: Place, sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch, plain: bool
    ) -> None:
        poster, slow, both, last = (place.board() for _ in range(4))
        if not plain:
            # Beside a pause, a take is a search and a commit.
            poster.pause(["c"])
        held = Held(slow, TAKES)
        waiters = [sleeper(slow, names=["a"]), sleeper(both, names=["b", "a"]), sleeper(last, names=["b"])]
        held.hold()
        a, b = poster.post_many([{"name": "a"}, {"name": "b"}])
        assert waiters[1].wait(LIMIT) == a
        held.go_on()
        assert waiters[2].wait(LIMIT) == b
        assert waiters[0].running

    def test_without_taking_another_thread_out_of_the_queue(self, place: Place, sleeper: Sleeper) -> None:
        poster, board = place.board(), place.board()
        woke, enough = threading.Event(), threading.Event()
        posted: list[Any] = []

        def unless() -> bool:
            if not posted:
                return False
            woke.set()
            return enough.wait(LIMIT)

        first = sleeper(board, names=["a"], unless=unless)
        posted.append(None)
        poster.post("a")
        assert woke.wait(LIMIT)
        second = sleeper(board, names=["b"])
        enough.set()
        assert first.wait(LIMIT) is None
        job = poster.post("b")
        assert second.wait(LIMIT) == job

    @pytest.mark.rule("A wake-up that its waiter does not follow goes to another waiter.")
    @pytest.mark.parametrize("heard", [False, True])
    def test_by_a_board_that_is_closed(
        self, place: Place, sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch, heard: bool
    ) -> None:
        """``heard``: its waiter has heard the call, and not looked yet."""
        poster, one, other = (place.board() for _ in range(3))
        held = Held(one, TAKES if heard else "listen")
        if heard:
            waiters = [sleeper(one)]
            held.hold()
        else:
            held.hold()
            waiters = [sleeper(one)]
        waiters.append(sleeper(other))
        job = poster.post("a")
        assert held.reached.wait(LIMIT)
        one.close()
        assert waiters[1].wait(LIMIT) == job
        held.go_on()
        with pytest.raises(ConnectionFailure):
            waiters[0].wait(LIMIT)

    @pytest.mark.rule("A wake-up that its waiter does not follow goes to another waiter.")
    @pytest.mark.parametrize("called", [True, False])
    def test_by_a_waiter_that_is_interrupted(
        self, place: Place, sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch, called: bool
    ) -> None:
        """By Ctrl-C, in a process that goes on."""
        poster, one, other = (place.board() for _ in range(3))
        now = threading.Event()

        def interrupted(*args: Any) -> bool:
            assert now.wait(LIMIT)
            raise KeyboardInterrupt

        monkeypatch.setattr(waiters_of(one), "listen", interrupted)
        waiters = [sleeper(one), sleeper(other)]
        if called:
            job = poster.post("a")
        now.set()
        with pytest.raises(KeyboardInterrupt):
            waiters[0].wait(LIMIT)
        if not called:
            assert place.asleep == 1
            job = poster.post("a")
        assert waiters[1].wait(LIMIT) == job


class TestLeaving:
    """A waiter that ends its wait leaves the queue."""

    def test_after_wake(self, place: Place, sleeper: Sleeper) -> None:
        board, other = place.board(), place.board()
        enough = threading.Event()
        waiters = [sleeper(board, unless=enough.is_set, names=names) for names in (None, ["a", "b"])]
        stays = sleeper(other, unless=enough.is_set)
        enough.set()
        board.wake()
        assert [waiter.wait(LIMIT) for waiter in waiters] == [None, None]
        assert (place.asleep, place.call("HLEN", place.key("bells"))) == (1, 1)
        assert stays.running

    def test_after_its_time(self, place: Place) -> None:
        board = place.board()
        assert board.claim_next("anna", names=["a", "b"], timeout=0.05) is None
        with pytest.raises(NotFound):
            board.wait(0.05)
        assert (place.asleep, place.call("HLEN", place.key("bells"))) == (0, 0)

    def test_not_after_a_wake_that_finds_it_still_waiting(self, place: Place, sleeper: Sleeper) -> None:
        poster, board = place.board(), place.board()
        waiter = sleeper(board, unless=lambda: False)
        for _ in range(3):
            [before] = place.call("HKEYS", place.key("bells"))
            board.wake()
            eventually(lambda: place.call("HKEYS", place.key("bells")) not in ([], [before]), LIMIT)  # noqa: B023
        job = poster.post("a")
        assert waiter.wait(LIMIT) == job


@pytest.mark.rule("A failed wait leaves no claim to a later call of its thread.")
def test_a_wait_that_fails_leaves_nothing_to_a_later_call(place: Place) -> None:
    """Not even to a call of the same thread."""
    poster, board = place.board(), place.board()
    looks: list[int] = []

    def fail(original: Callable[..., Any], *args: Any) -> Any:
        looks.append(len(looks))
        if looks[1:]:
            raise JobFailure("refused")
        return original(*args)

    def call() -> Any:
        with requests(board).around(TAKES, fail), pytest.raises(JobFailure, match="refused"):
            board.claim_next("anna", timeout=None)
        poster.pause()
        return board.claim_next("anna")

    waiter = Background(call)
    place.until_asleep(1)
    job = poster.post("a")
    assert waiter.wait(LIMIT) is None
    assert poster.find_owner(job) is None
    assert job.attempts == 0
