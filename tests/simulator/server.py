"""A simulated key-value server, its sessions and bells, and the network between the server and its clients."""

from __future__ import annotations

import functools
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from jobboard.backends.memory import Shelf
from jobboard.exceptions import ConnectionFailure
from jobboard.kv.driver import ALIVE, CONNECTED, MISSED, Node, Op, Refused, Version
from tests.simulator.world import EPOCH, Task, World

if TYPE_CHECKING:
    from tests.simulator.driver import SimulatedDriver

PATIENCE = 1_000_000
"""The µs after which a client takes a request for lost."""

FREE = frozenset({"add", "remove", "ring"})
"""The operations that are never refused."""


class Habits(NamedTuple):
    """The habits of a server and its client, as far as the contract of a driver leaves them open.

    keeps: the keeper of a claim without an ``expiry``.
    has_network: requests take time, and may be lost.
    lag: the µs by which a client's estimate of the server's time may be behind it.
    has_clock: the server has a clock. Otherwise clients use their own, and never one behind a time that they have seen.
    compares_times: the commit compares ``before``. Otherwise the client does so before it sends the commit.
    follows: a reading that is not ``fresh`` may come from a member that is behind.
    reads_in_parts: a reading is one request for the records, and one for each index, and not one instant.
    pings: the client prolongs its session by itself. Otherwise ``beat`` does.
    """

    keeps: str
    has_network: bool = True
    lag: int = 0
    has_clock: bool = True
    compares_times: bool = False
    follows: bool = False
    reads_in_parts: bool = False
    pings: bool = False


HABITS = {
    "memory": Habits("process", has_network=False, compares_times=True),
    "zookeeper": Habits("session", lag=5_000, follows=True, reads_in_parts=True, pings=True),
    "etcd": Habits("session", has_clock=False),
}

FAULTS = ("refuse", "drop", "lose", "lose", "late", "late", "slow")
"""What may happen to a request.

- refuse: the client knows at once that the request was not sent.
- drop: the request is lost, and the client waits in vain.
- lose: the server does it, and the reply is lost.
- late: the server does it after the client has given it up.
- slow: the request takes up to a second.
"""


class Server:
    """The records of one board, its sessions and watches, and the network.

    :param ttl: the µs for which a session outlives its last sign of life.
    :param fault: returns the fault of a request (or None) by the key of its call and its number in the call.
    :param saw: called after each commit with its operations.
    """

    def __init__(
        self, world: World, habits: Habits, ttl: int, fault: Callable[[Any, int], str | None], counts: Counter[str]
    ) -> None:
        self.world, self.habits, self.ttl, self.fault, self.counts = world, habits, ttl, fault, counts
        self.saw: Callable[[Sequence[Op]], None] = lambda ops: None
        self.step = 0
        """The µs by which the server's clock has been set forward."""
        self.serving: Any = None
        """The call whose request the server does now."""
        self.sent = 0
        """When the commit that the server does now was sent."""
        self.fired: list[tuple[Any, int, str]] = []
        self.sessions: dict[str, tuple[SimulatedDriver, int]] = {}
        self.armed: dict[SimulatedDriver, set[str]] = {}
        self.rung: Counter[str] = Counter()
        self.floor = 0
        """The latest time that a client without a server's clock has counted from."""
        self.shelf, self._follower = Shelf(lambda: self.now() / 1e6), Shelf(lambda: self.now() / 1e6)
        self.commits = self._followed = 0
        self._log: deque[tuple[int, Sequence[Op], Mapping[str, Version]]] = deque()

    def now(self) -> int:
        return EPOCH + self.world.now + self.step

    # The network

    def ask(self, driver: SimulatedDriver, act: Callable[[], Any], writes: bool = True) -> Any:
        """Have the server do this, with the delays and faults of this request."""
        world, task = self.world, self.world.task
        assert task is not None
        if world.is_over or driver.is_closed:
            raise ConnectionFailure("the driver is closed")
        call = task.call
        key, number = call.key, call.requests + 1
        call.requests = number
        if not self.habits.has_network:
            return self._done_at_once(call, act, task)
        fault = self._drawn_fault(key, number)
        if world.now < task.process.cut_until or fault == "refuse":
            task.park(self.delay(key, number, "refused"))
            raise ConnectionFailure("refused by the network")
        out, back = self.delay(key, number, "out"), self.delay(key, number, "back")
        patience = min(PATIENCE, int(driver.patience * 1e6))
        if fault == "late":
            out = patience + int(world.draw(key, number, "late") ** 3 * 8_000_000)
        elif fault == "slow":
            out += int(world.draw(key, number, "slow") * 900_000)
        turn = task.turn
        reply = functools.partial(task.come, turn)

        def arrive() -> None:
            before = self.commits
            self._hear(driver)
            try:
                answer: Any = (self._served(call, act),)
            except Refused as refused:
                answer = refused
            if task.turn != turn and (self.commits > before or isinstance(answer, Refused)):
                self.counts["late commits" if self.commits > before else "late commits refused"] += 1
            if fault != "lose":
                world.after(back, functools.partial(reply, answer))

        if fault != "drop":
            world.after(out, arrive)
        answer = task.park(patience)
        if answer is False:
            raise ConnectionFailure("no reply came", outcome="unknown" if writes else "none")
        return answer[0]

    def _drawn_fault(self, key: Any, number: int) -> str | None:
        fault = self.fault(key, number)
        if fault:
            self.fired.append((key, number, fault))
            self.counts[f"request: {fault}"] += 1
        return fault

    def _done_at_once(self, call: Any, act: Callable[[], Any], task: Task) -> Any:
        """Do this without a network. A thread may be held up before the act, and behind it."""
        task.park(self.delay(call.key, call.requests, "out") // 20)
        answer = self._served(call, act)
        task.park(self.delay(call.key, call.requests, "back") // 20)
        return answer

    def _served(self, call: Any, act: Callable[[], Any]) -> Any:
        self.serving = call
        try:
            return act()
        finally:
            self.serving = None

    def delay(self, *key: object) -> int:
        draw = self.world.draw(*key)
        return int(200 + 1_500 * draw if draw < 0.9 else 2_000 + 200_000 * (draw - 0.9))

    # The records

    def commit(self, ops: Sequence[Op], sent: int = 0) -> tuple[dict[str, Version], int]:
        """Do all operations or none. Return the new versions, and the number of the commit.

        :param sent: when the client has sent the commit.
        """
        if wrong := [op.path for op in ops if op.do not in FREE and not self._fits(op)]:
            for kind in {_kind_of(op) for op in ops if op.path in wrong}:
                self.counts[f"refused: {kind}"] += 1
            raise Refused(*wrong)
        self.commits += 1
        self.sent = sent
        versions = done(self.shelf, ops, self.commits)
        if self.habits.follows:
            self._log.append((self.commits, ops, versions))
        self.saw(ops)
        for op in ops:
            if op.do == "ring":
                self.ring(op.path)
            elif op.do == "add" and op.path.startswith("timed/"):
                self.floor = max(self.floor, self.now()) if not self.habits.has_clock else 0
        return versions, self.commits

    def _fits(self, op: Op) -> bool:
        if op.do == "before" and not self.habits.compares_times:
            return self.habits.has_clock or self.floor < int(op.path)
        return self.shelf.fits(op)

    def shown(self, seen: int, fresh: bool) -> tuple[Shelf, int]:
        """Return the records that a reading shows, and the number of the last commit in them.

        A member may lag behind the leader, and never behind what the reader has ``seen``."""
        if fresh or not self.habits.follows:
            return self.shelf, self.commits
        target = max(seen, self.commits - int(self.world.draw("lag", self.commits, seen) * 6))
        while self._log and self._log[0][0] <= target:
            number, ops, versions = self._log.popleft()
            done(self._follower, ops, number, versions)
            self._followed = number
        return self._follower, self._followed

    # Sessions and bells

    def begin(self, driver: SimulatedDriver, name: str) -> tuple[str, int]:
        self.commit([Op("add", f"{ALIVE}/{name}")])
        self.sessions[name] = driver, self.world.now
        self.world.after(self.ttl // 3, functools.partial(self._watch_over, name))
        return name, self.commits

    def _watch_over(self, name: str) -> None:
        """End a session whose client has given no sign of life for ``ttl``. Clients that ping give one in time."""
        if name not in self.sessions:
            return
        driver, last = self.sessions[name]
        process, now = driver.process, self.world.now
        is_silent = process.is_dead or process.is_stopped or now < process.cut_until
        if self.habits.pings and not is_silent:
            self.sessions[name] = driver, now
        elif now - last >= self.ttl:
            self.counts["sessions expired"] += 1
            self.expire(name)
            return
        self.world.after(self.ttl // 3, functools.partial(self._watch_over, name))

    def _hear(self, driver: SimulatedDriver) -> None:
        """Take a request for a sign of life, as a ping is."""
        if self.habits.pings:
            self.beat(driver.session_name)

    def expire(self, name: str) -> None:
        if name in self.sessions:
            driver, _ = self.sessions.pop(name)
            self.commit([Op("remove", f"{ALIVE}/{name}")])
            self.ring(MISSED)
            self._tell(driver, CONNECTED)

    def beat(self, name: str | None) -> bool:
        if name is None or name not in self.sessions:
            return False
        self.sessions[name] = self.sessions[name][0], self.world.now
        return True

    def arm(self, driver: SimulatedDriver, words: Sequence[str]) -> dict[str, int]:
        """Watch for these words. Each is reported once. Return how often each bell has rung."""
        self.armed[driver] = set(words)
        return dict(self.rung)

    def ring(self, bell: str) -> None:
        self.rung[bell] += 1
        for driver in [driver for driver, words in self.armed.items() if bell in words]:
            self.armed[driver].discard(bell)
            driver.heard_of[bell] = self.rung[bell]
            # The message is lost, and the client finds out later that it may have missed one.
            is_lost = self.habits.has_network and self.fault((driver.process.name, "bell"), self.rung[bell])
            if is_lost:
                self.fired.append(((driver.process.name, "bell"), self.rung[bell], "late"))
                self.counts["watches late"] += 1
            self._tell(driver, MISSED if is_lost else bell, 1_500_000 if is_lost else 0)

    def _tell(self, driver: SimulatedDriver, word: str, more: int = 0) -> None:
        def spawn() -> None:
            driver.process.spawn("bell", lambda: None if driver.is_closed else driver.heard(word))

        delay = more + self.delay(driver.process.name, word, self.rung[word])
        self.world.after(delay, functools.partial(driver.process.do, spawn))


def _kind_of(op: Op) -> str:
    """Return what an operation compares: *lives*, *before*, or the folder of a record."""
    return op.do if op.do in ("lives", "before") else op.path.rpartition("/")[0] or op.path


def done(shelf: Shelf, ops: Sequence[Op], number: int, versions: Mapping[str, Version] | None = None) -> dict[str, Any]:
    """Do the operations of a commit. Return the new versions.

    :param versions: the versions of the same commit on another shelf.
    """
    made: dict[str, Version] = {}
    for do, path, value, _ in ops:
        if do == "add":
            shelf.add(path)
        elif do == "remove":
            shelf.remove(path)
        elif do in ("create", "put"):
            made[path] = shelf.write(path, value)
            if versions is not None:
                shelf.records[path] = Node(value, versions[path])
        elif do == "delete":
            del shelf.records[path]
            shelf.remove(path)
    return made
