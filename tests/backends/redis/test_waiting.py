"""Waiting: a call reaches one who takes the job, nobody is asked in vain, and nothing swallows a call."""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from jobboard.exceptions import ConnectionFailure, JobFailure, NotFound
from jobboard.priorities import JobPriority
from jobboard.testing import eventually
from jobboard.testing.conformance.support import Background, replaced

pytestmark = pytest.mark.backends("redis")

LIMIT = 30.0
"""Less than the time after which a waiter looks by itself; see conftest.py."""

Sleeper = Callable[..., Background]


def stands_still(place: Any, seconds: float) -> None:
    """No client sends anything for this long."""
    before, end = place.calls, time.monotonic() + seconds
    while time.monotonic() < end:
        assert place.calls == before
        time.sleep(0.02)


class Held:
    """Holds up calls of one method of an object, until told to go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, target: Any, method: str) -> None:
        self._original = getattr(target, method)
        self.reached, self._go_on = threading.Event(), threading.Event()
        self._hold = False
        monkeypatch.setattr(target, method, self._call)

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        if self._hold:
            self.reached.set()
            assert self._go_on.wait(LIMIT)
        return self._original(*args, **kwargs)

    def hold(self) -> None:
        self._hold = True

    def go_on(self) -> None:
        self._hold = False
        self._go_on.set()


class TestOneForEach:
    @pytest.mark.parametrize("wish", [None, ["a"], ["a", "b"]])
    def test_eight_waiters(self, place: Any, sleeper: Sleeper, wish: Any) -> None:
        """Each job wakes one of them."""
        poster, near = place.board(), place.board()
        far = [place.waiters(wish, wish) for _ in range(2)]
        entries = len(wish or [None])
        place.until_asleep(4 * entries)
        here = [sleeper(near, names=wish) for _ in range(4)]
        got: list[str] = []

        def hear(waiters: Any) -> None:
            got.extend(waiters.next()[1] for _ in range(2))

        ears = [Background(lambda waiters=waiters: hear(waiters)) for waiters in far]  # type: ignore[misc]

        def taken() -> list[str]:
            return [*got, *(waiter.wait().uuid for waiter in here if not waiter.running)]

        place.count()
        posted = []
        for number in range(1, 9):
            posted.append(poster.post("a").uuid)
            eventually(lambda: len(taken()) == number, LIMIT)  # noqa: B023 - called right here
            assert place.asleep == (8 - number) * entries
            # A post, and the look of the one who was called.
            assert place.calls["evalsha"] == 2 * number
            assert place.calls["spublish"] == number
        stands_still(place, 0.2)
        for ear in ears:
            ear.wait()
        assert Counter(taken()) == Counter(posted)

    def test_a_batch_wakes_as_many_as_it_has_jobs(self, place: Any, sleeper: Sleeper) -> None:
        poster, board = place.board(), place.board()
        waiters = [sleeper(board) for _ in range(8)]
        place.count()
        poster.post_many([{"name": "a"}] * 3)
        eventually(lambda: sum(not waiter.running for waiter in waiters) == 3, LIMIT)
        stands_still(place, 0.2)
        assert place.calls["evalsha"] == 4
        assert place.asleep == 5


class TestTheRightOne:
    def test_of_many_sorts(self, place: Any) -> None:
        """Neither a waiter for another name nor one who only looks swallows a call."""
        poster = place.board()
        wishes: list[Any] = [["b"], "look", ["b"], None, ["a"], "look", ["a"], ["c", "b"], None]
        far = [place.waiters(*wishes) for _ in range(2)]
        place.until_asleep(20)
        posted = Counter[str]()
        taken = Counter[str]()
        looks = 0
        # Two for each who wants that name or more, and two for those who want any.
        for name in "abababbbaa":
            job = poster.post(name)
            posted[job.uuid] += 1
        got: list[list[Any]] = []
        for waiters in far:
            Background(lambda waiters=waiters: [got.append(waiters.next()) for _ in wishes])  # type: ignore[misc]
        # Four who take a, six who take b and four who take any meet five of each.
        eventually(lambda: sum(wishes[number] != "look" for number, _, _ in got) == 10, LIMIT)
        for number, uuid, name in got:
            wish = wishes[number]
            if wish == "look":
                looks += 1
            else:
                taken[uuid] += 1
                assert wish is None or name in wish
        assert taken == posted
        assert poster.stats().unclaimed == 0

    @pytest.mark.parametrize("others", [[["b"], ["b", "c"]], ["look", "look"], [["b"], "look"]])
    def test_first_in_the_queue_is_who_does_not_want_it(self, place: Any, sleeper: Sleeper, others: list[Any]) -> None:
        poster, board = place.board(), place.board()
        place.waiters(*others)
        place.until_asleep(sum(1 if wish == "look" else len(wish) for wish in others))
        waiter = sleeper(board, names=["a"])
        place.count()
        job = poster.post("a")
        assert waiter.wait(LIMIT) == job
        stands_still(place, 0.2)
        # The post, and a look.
        assert (place.calls["evalsha"], place.calls["spublish"]) == (2, 1)

    def test_all_who_look_wake(self, place: Any) -> None:
        poster, boards = place.board(), [place.board() for _ in range(2)]
        waiters = [Background(lambda board=board: list(board.wait(60))) for board in boards for _ in range(3)]  # type: ignore[misc]
        place.until_asleep(6)
        job = poster.post("a")
        for waiter in waiters:
            assert waiter.wait(LIMIT) == [job]

    def test_a_batch_calls_one_for_each_job(self, place: Any, sleeper: Sleeper) -> None:
        """Whoever comes first has the best job of its names, as anybody who claims."""
        poster, only_a, only_b = (place.board() for _ in range(3))
        waiters = [sleeper(only_a, names=["a"]), sleeper(only_b, names=["b"]), sleeper(only_a, names=["a"])]
        low, high, next_high = poster.post_many(
            {"name": name, "priority": priority}
            for name, priority in (("b", JobPriority.LOW), ("a", JobPriority.HIGH), ("a", JobPriority.HIGH))
        )
        assert waiters[1].wait(LIMIT) == low
        assert {waiters[0].wait(LIMIT), waiters[2].wait(LIMIT)} == {high, next_high}

    def test_many_at_once_are_filled_up(self, place: Any) -> None:
        poster, board = place.board(), place.board()
        waiter = Background(lambda: board.claim_many("anna", 5, timeout=None))
        place.until_asleep(1)
        jobs = poster.post_many([{"name": "a"}] * 3)
        assert waiter.wait(LIMIT) == jobs

    def test_an_event_of_an_earlier_night(self, place: Any, sleeper: Sleeper) -> None:
        board = place.board()
        everybody = place.key("waiters") + ":all"
        eventually(
            lambda: [board.claim_next("anna", timeout=0.1), place.call("SPUBLISH", everybody, "0" * 18)] == [None, 1]
        )
        place.count()
        sleeper(board)
        stands_still(place, 0.2)
        assert place.calls["evalsha"] == 2


class TestIdle:
    def test_nothing_is_sent(self, place: Any, sleeper: Sleeper) -> None:
        board = place.board()
        sleeper(board)
        sleeper(board, names=["a", "b"])
        Background(lambda: board.wait(None))
        place.until_asleep(4)
        place.count()
        stands_still(place, 1.2)
        assert not place.calls

    def test_a_far_event_is_not_told(self, place: Any, sleeper: Sleeper) -> None:
        board, other = place.board(), place.board()
        sleeper(board)
        place.count()
        other.post("a", delay=60)
        stands_still(place, 0.1)
        assert place.calls["spublish"] == 0

    @pytest.mark.parametrize("first", [None, 5])
    def test_a_job_that_comes_due(self, place: Any, sleeper: Sleeper, first: float | None) -> None:
        """Nobody looks before its time; an event that waiters have reckoned with is no reason to be late."""
        board, other = place.board(), place.board()
        if first:
            other.post("b", delay=first)
        waiter = sleeper(board)
        place.count()
        job = other.post("a", delay=0.4)
        start = time.monotonic()
        assert waiter.wait(LIMIT) == job
        assert 0.3 < time.monotonic() - start < 4.5
        # The post, the looks and commits that sweep and claim it, and, if these came too early, one night more.
        assert place.calls["evalsha"] <= 12

    @pytest.mark.parametrize("delay", [None, 0.3])
    def test_what_comes_between_the_look_and_the_sleep(
        self, place: Any, monkeypatch: pytest.MonkeyPatch, delay: float | None
    ) -> None:
        board, other = place.board(), place.board()
        posted = []

        def post(*args: Any) -> None:
            if not posted:
                posted.append(other.post("a", delay=delay))
            sleep(*args)

        sleep = board.engine.store.waiters._sleep
        monkeypatch.setattr(board.engine.store.waiters, "_sleep", post)
        waiter = Background(lambda: board.claim_next("anna", timeout=None))
        assert waiter.wait(LIMIT) == posted[0]

    def test_a_claim_that_lapses(self, place: Any, sleeper: Sleeper) -> None:
        board, other = place.board(), place.board()
        job = other.post("a")
        other.claim(job, "bert", expiry=60)
        waiter = sleeper(board)
        other.extend(job, "bert", expiry=0.3)
        assert waiter.wait(LIMIT) == job


class TestBrokenWaiters:
    @pytest.mark.parametrize(
        "harm",
        [
            [("SCRIPT", "FLUSH")],
            [("CLIENT", "KILL", "TYPE", "pubsub")],
            [("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")],
            [("CLIENT", "KILL", "TYPE", "pubsub"), ("CLIENT", "KILL", "TYPE", "normal"), ("SCRIPT", "FLUSH")],
        ],
        ids=["flush", "pubsub", "normal", "all"],
    )
    def test_what_a_server_may_do(self, place: Any, sleeper: Sleeper, harm: list[Any]) -> None:
        poster, boards = place.board(), [place.board() for _ in range(2)]
        waiters = [sleeper(board, names=names) for board in boards for names in (None, ["a"])]
        for command in harm:
            place.call(*command)
        # Posted before they are back, or after: it makes no difference.
        jobs = {poster.post("a").uuid for _ in range(2)}
        eventually(lambda: sum(not waiter.running for waiter in waiters) == 2, LIMIT)
        jobs |= {poster.post("a").uuid for _ in range(2)}
        assert {waiter.wait(LIMIT).uuid for waiter in waiters} == jobs

    @pytest.mark.parametrize("how", ["restart", "kill"])
    def test_a_server_that_ends(self, place: Any, sleeper: Sleeper, how: str) -> None:
        poster, board = place.board(), place.board()
        waiters = [sleeper(board), sleeper(board, names=["a"])]
        if how == "restart":
            place.server.restart()
        else:
            place.server.kill()
            place.server.start()
        jobs = {poster.post("a").uuid}
        eventually(lambda: not all(waiter.running for waiter in waiters), LIMIT)
        jobs.add(poster.post("a").uuid)
        assert {waiter.wait(LIMIT).uuid for waiter in waiters} == jobs

    def test_a_killed_process_swallows_nothing(self, place: Any, sleeper: Sleeper) -> None:
        poster, board = place.board(), place.board()
        far = place.waiters(None, ["a"])
        place.until_asleep(2)
        waiter = sleeper(board)
        far.end()
        assert place.asleep == 3
        job = poster.post("a")
        assert waiter.wait(LIMIT) == job
        assert place.asleep == 0

    def test_a_stopped_process_delays_a_job_by_its_lease(self, place: Any, sleeper: Sleeper) -> None:
        """It was called: others look by themselves after a while, as if it had claimed the job."""
        poster, board = place.board(), place.board()
        far = place.waiters(None)
        place.until_asleep(1)
        board.engine.store.poll_cap = 1.0
        waiter = sleeper(board)
        os.kill(far.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, far.pid, os.WSTOPPED | os.WNOWAIT)
        job = poster.post("a")
        assert waiter.wait(LIMIT) == job
        os.kill(far.pid, signal.SIGCONT)

    def test_a_connection_that_breaks_as_it_is_called(
        self, place: Any, sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        poster, board = place.board(), place.board()
        held = Held(monkeypatch, board.engine.store.waiters, "_listen")
        held.hold()
        waiter = sleeper(board)
        job = poster.post("a")
        place.call("CLIENT", "KILL", "TYPE", "pubsub")
        held.go_on()
        got = waiter.wait(LIMIT)
        assert (got, got.attempts) == (job, 1)
        board.consume(got, "anna")


class TestHandedOn:
    """Who was called and does not take the job lets another have it."""

    @pytest.mark.parametrize("names", [None, ["a"], ["b", "a"]])
    @pytest.mark.parametrize("looks_again", [True, False])
    def test_called_just_as_the_time_is_up(
        self, place: Any, sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch, names: Any, looks_again: bool
    ) -> None:
        poster, slow, other = (place.board() for _ in range(3))
        posted, woke = threading.Event(), threading.Event()
        listen = slow.engine.store.waiters._listen

        def too_late(*args: Any) -> bool:
            if posted.is_set():
                return listen(*args)
            assert posted.wait(LIMIT)
            woke.set()
            return False

        monkeypatch.setattr(slow.engine.store.waiters, "_listen", too_late)
        unless = None if looks_again else woke.is_set
        waiters = [sleeper(slow, names=names, unless=unless), sleeper(other, names=["a"] if names else None)]
        # A head that neither has a wake-up for, nor wants.
        if names:
            poster.post("c", priority=JobPriority.HIGH)
        job = poster.post("a")
        posted.set()
        if looks_again:
            eventually(lambda: not all(waiter.running for waiter in waiters), LIMIT)
            assert poster.find_owner(job) == "anna"
        else:
            assert waiters[1].wait(LIMIT) == job
            assert waiters[0].wait(LIMIT) is None

    def test_by_the_one_whose_wait_is_over(self, place: Any, sleeper: Sleeper) -> None:
        poster, one, other = (place.board() for _ in range(3))
        enough = threading.Event()
        waiters = [sleeper(one, unless=enough.is_set), sleeper(other)]
        enough.set()
        job = poster.post("a")
        assert waiters[1].wait(LIMIT) == job
        assert waiters[0].wait(LIMIT) is None

    @pytest.mark.parametrize("plain", [True, False])
    def test_by_one_who_takes_what_another_was_called_for(
        self, place: Any, sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch, plain: bool
    ) -> None:
        """The older of two jobs goes to the one who was called for the younger."""
        poster, slow, both, last = (place.board() for _ in range(4))
        if not plain:
            # By a search and a commit.
            poster.pause(["c"])
        held = Held(monkeypatch, slow.engine.raw, "take")
        waiters = [sleeper(slow, names=["a"]), sleeper(both, names=["b", "a"]), sleeper(last, names=["b"])]
        held.hold()
        a, b = poster.post_many([{"name": "a"}, {"name": "b"}])
        assert waiters[1].wait(LIMIT) == a
        held.go_on()
        assert waiters[2].wait(LIMIT) == b
        assert waiters[0].running

    def test_by_one_whose_place_another_thread_has(self, place: Any, sleeper: Sleeper) -> None:
        """Who forgoes a call takes nobody else out of the queue."""
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

    @pytest.mark.parametrize("method", ["_listen", "take"])
    def test_by_a_board_that_is_closed(
        self, place: Any, sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch, method: str
    ) -> None:
        """Called, it has not heard it yet; or it has, and not looked yet."""
        poster, one, other = (place.board() for _ in range(3))
        if method == "_listen":
            held = Held(monkeypatch, one.engine.store.waiters, method)
            held.hold()
            waiters = [sleeper(one)]
        else:
            held = Held(monkeypatch, one.engine.raw, method)
            waiters = [sleeper(one)]
            held.hold()
        waiters.append(sleeper(other))
        job = poster.post("a")
        assert held.reached.wait(LIMIT)
        one.close()
        assert waiters[1].wait(LIMIT) == job
        held.go_on()
        with pytest.raises(ConnectionFailure):
            waiters[0].wait(LIMIT)

    def test_a_board_that_was_closed_before(self, place: Any, sleeper: Sleeper) -> None:
        poster, one, other = (place.board() for _ in range(3))
        waiters = [sleeper(one), sleeper(one, names=["a"]), sleeper(other)]
        one.close()
        assert place.asleep == 1
        job = poster.post("a")
        assert waiters[2].wait(LIMIT) == job
        for waiter in waiters[:2]:
            with pytest.raises(ConnectionFailure):
                waiter.wait(LIMIT)

    @pytest.mark.parametrize("called", [True, False])
    def test_by_one_who_is_interrupted(
        self, place: Any, sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch, called: bool
    ) -> None:
        """Ctrl-C, in a process that goes on."""
        poster, one, other = (place.board() for _ in range(3))
        now = threading.Event()

        def interrupted(*args: Any) -> bool:
            assert now.wait(LIMIT)
            raise KeyboardInterrupt

        monkeypatch.setattr(one.engine.store.waiters, "_listen", interrupted)
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

    def test_by_one_who_is_woken(self, place: Any, sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch) -> None:
        """By wake(), after it was called."""
        poster, one, other = (place.board() for _ in range(3))
        enough = threading.Event()
        held = Held(monkeypatch, one.engine.store.waiters, "_listen")
        held.hold()
        waiters = [sleeper(one, unless=enough.is_set), sleeper(other)]
        job = poster.post("a")
        enough.set()
        one.wake()
        held.go_on()
        assert waiters[1].wait(LIMIT) == job
        assert waiters[0].wait(LIMIT) is None


class TestWake:
    def test_it_ends_a_wait_and_leaves_nothing(self, place: Any, sleeper: Sleeper) -> None:
        board, other = place.board(), place.board()
        enough = threading.Event()
        waiters = [sleeper(board, unless=enough.is_set, names=names) for names in (None, ["a", "b"])]
        stays = sleeper(other, unless=enough.is_set)
        enough.set()
        board.wake()
        assert [waiter.wait(LIMIT) for waiter in waiters] == [None, None]
        assert place.asleep == 1
        assert place.call("HLEN", place.key("bells")) == 1
        assert stays.running

    def test_those_who_are_not_done_sleep_on(self, place: Any, sleeper: Sleeper) -> None:
        poster, board = place.board(), place.board()
        waiter = sleeper(board, unless=lambda: False)
        for _ in range(3):
            [before] = place.call("HKEYS", place.key("bells"))
            board.wake()
            eventually(lambda: place.call("HKEYS", place.key("bells")) not in ([], [before]), LIMIT)  # noqa: B023
        job = poster.post("a")
        assert waiter.wait(LIMIT) == job

    def test_time_up_leaves_nothing(self, place: Any) -> None:
        board = place.board()
        assert board.claim_next("anna", names=["a", "b"], timeout=0.05) is None
        with pytest.raises(NotFound):
            board.wait(0.05)
        assert place.asleep == 0
        assert place.call("EXISTS", place.key("bells")) == 0


def test_a_wait_that_fails_leaves_nothing_to_a_later_call(place: Any) -> None:
    """Of the same thread and once the board is paused."""
    poster, board = place.board(), place.board()
    looks: list[int] = []

    def fail(original: Callable[..., Any], *args: Any) -> Any:
        looks.append(len(looks))
        if looks[1:]:
            raise JobFailure("refused")
        return original(*args)

    def call() -> Any:
        with replaced(board, "take", fail), pytest.raises(JobFailure, match="refused"):
            board.claim_next("anna", timeout=None)
        poster.pause()
        return board.claim_next("anna")

    waiter = Background(call)
    place.until_asleep(1)
    job = poster.post("a")
    assert waiter.wait() is None
    assert poster.find_owner(job) is None
    assert job.attempts == 0
