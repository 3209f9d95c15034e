"""The driver of a simulated process: the contract of :mod:`jobboard.kv.driver`, used to its bounds."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from jobboard.engine import Seat
from jobboard.exceptions import ConnectionFailure
from jobboard.kv.driver import JOBS, MISSED, SCHEDULES, Driver, Numbers, Op, Range, Refused, Snapshot, Version
from jobboard.kv.store import KVStore
from jobboard.primitives import Characteristics
from tests.simulator.server import Server
from tests.simulator.world import Process

COUNTER = "next"
"""The record of the last number of a job."""

WORDS = (JOBS, SCHEDULES, MISSED)


class SimulatedDriver(Driver):
    """The driver of one simulated process, with the habits of its server."""

    poll_cap = 60.0

    def __init__(self, seat: Seat) -> None:
        self.server: Server
        self.process: Process
        self.server, self.process = seat.client
        self.patience = 10.0
        self.heard: Callable[[str], None] = lambda word: None
        self.heard_of: Counter[str] = Counter()
        """How often each bell had rung when it was last reported."""
        self.is_closed = False
        self._ttl = self.server.ttl
        self.session_name: str | None = None
        self._renewed = 0
        self._counter: tuple[int, Version] | None = None
        self._watches = False
        # The number of the last commit that this driver has shown, and the latest time that it has seen.
        self._seen = self._floor = 0
        self._lag = int(self.precision * self.server.world.draw(self.process.name, "lag"))

    @property
    def precision(self) -> int:  # type: ignore[override]
        return self.server.habits.lag

    @property
    def margin(self) -> int | None:  # type: ignore[override]
        habits = self.server.habits
        if habits.keeps == "process":
            return None
        return self._ttl * 2 // 3 if habits.pings else self._renewed + self._ttl - self.server.world.now

    def open(self, create: bool, first: Sequence[Op], heard: Callable[[str], None]) -> Characteristics:
        self.heard, self.is_closed = heard, False
        with contextlib.suppress(Refused):
            self.commit([*first, Op("create", COUNTER, b"0")])
        return Characteristics(
            durable=True,
            survives_failover=True,
            exact_order=True,
            blocking_wait=True,
            remote_events=False,
            transactional=False,
            claim_ttl=self._ttl / 1e6,
            server_clock=self.server.habits.has_clock,
        )

    def close(self) -> None:
        server, session, self.session_name = self.server, self.session_name, None
        self.is_closed, self._watches, self._counter = True, False, None
        self.heard_of.clear()
        server.armed.pop(self, None)
        if session is not None and not server.world.is_over:
            server.world.after(server.delay(self.process.name, "close"), lambda: server.expire(session))

    def forked(self) -> None:
        """Do nothing: no simulated process forks. That of the tests does, which has the boards of past worlds still."""

    def now(self, exact: bool = False) -> int:
        server = self.server
        if not server.habits.has_clock:
            return max(self._floor, server.now() + self.process.wall)
        return int(server.ask(self, server.now, writes=False)) if exact else server.now() - self._lag

    def _ask(self, act: Callable[[], Any], writes: bool = True) -> Any:
        answer, self._floor = self.server.ask(self, lambda: (act(), self.server.floor), writes)
        return answer

    # Reading

    def read(self, paths: Sequence[str], ranges: Sequence[Range] = (), fresh: bool = True) -> Snapshot:
        def part(paths: Sequence[str], ranges: Sequence[Range]) -> tuple[list[Any], list[list[str]]]:
            def act() -> Any:
                shelf, number = self.server.shown(self._seen, fresh)
                names = [shelf.names[place].range(after, most) for place, most, after in ranges]
                return number, [shelf.records.get(path) for path in paths], names

            number, nodes, names = self._ask(act, writes=False)
            self._seen = max(self._seen, number)
            return nodes, names

        if not self.server.habits.reads_in_parts:
            nodes, names = part(paths, ranges)
            return Snapshot(self.now(), nodes, names)
        before = self.now()
        nodes, names = part(paths, ()) if paths or not ranges else ([], [])
        for each in ranges:
            names = [*names, *part((), [each])[1]]
        # The time may be that of the first request, or one behind the last.
        is_early = self.server.world.draw(self.process.name, self._seen, "time") < 0.5
        return Snapshot(before if is_early else self.now(), nodes, names)

    def count(self, place: str) -> int:
        return int(self._ask(lambda: len(self.server.shelf.names[place]), writes=False))

    # Changing

    def commit(self, ops: Sequence[Op]) -> dict[str, Version]:
        ends = [op.path for op in ops if op.do == "before"]
        latest = self.now() + self.precision
        if not self.server.habits.compares_times and (late := [end for end in ends if latest >= int(end)]):
            self.server.counts["refused: before"] += 1
            raise Refused(*late)
        try:
            sent = self.server.world.now
            made, number = self._ask(lambda: self.server.commit(ops, sent))
        except Refused as refused:
            if COUNTER in refused.paths:
                self._counter = None
            if self.session_name in refused.paths:
                self.session_name = None
            raise
        except ConnectionFailure:
            self._counter = None
            raise
        self._seen, versions = max(self._seen, number), dict(made)
        if COUNTER in versions:
            self._counter = next(int(op.value) for op in ops if op.path == COUNTER), versions.pop(COUNTER)
        return versions

    def number(self, count: int, beaten: bool) -> Numbers:
        server = self.server
        if server.habits.keeps == "process" or beaten:

            def draw() -> tuple[int, Version]:
                node = server.shelf.records[COUNTER]
                last = int(node.value) + count
                server.commit([Op("put", COUNTER, str(last).encode(), node.version)])
                return last, server.shelf.records[COUNTER].version

            last, version = self._counter = self._ask(draw)
            return Numbers(last - count + 1, ())
        if self._counter is None:
            node = self._ask(lambda: server.shelf.records[COUNTER], writes=False)
            self._counter = int(node.value), node.version
        last, version = self._counter
        return Numbers(last + 1, [Op("put", COUNTER, str(last + count).encode(), version)])

    # The session and the bells

    def session(self) -> str:
        if not self.server.habits.pings and self.session_name is not None and (self.margin or 0) < self._ttl / 2:
            self.beat()
        if self.session_name is None:
            name = f"{self.process.name}-{int(self.server.world.noise('session') * 1e9)}"
            sent = self.server.world.now
            self.session_name, _ = self._ask(lambda: self.server.begin(self, name))
            self._renewed = sent
        return str(self.session_name)

    def beat(self) -> None:
        if self.server.habits.keeps == "session" and not self.server.habits.pings and self.session_name is not None:
            sent, session = self.server.world.now, self.session_name
            if self._ask(lambda: self.server.beat(session)):
                self._renewed = sent
            elif self.session_name == session:
                self.session_name = None

    def watch(self) -> None:
        if len(self.server.armed.get(self, ())) == len(WORDS):
            return
        rung = self._ask(lambda: self.server.arm(self, WORDS), writes=False)
        first, self._watches = not self._watches, True
        heard_of, self.heard_of = self.heard_of, Counter(rung)
        for bell in () if first else rung:
            if heard_of[bell] != rung[bell]:
                self.heard(bell)


class KeepsBySession(SimulatedDriver):
    keeps: ClassVar[Any] = "session"


class KeepsByProcess(SimulatedDriver):
    keeps: ClassVar[Any] = "process"
    poll_cap = 3600.0


class SessionStore(KVStore):
    """A board whose kept claims last as long as the session of their process."""

    driver = KeepsBySession


class ProcessStore(KVStore):
    """A board in memory, shared by threads and not by processes, whose kept claims last for ever."""

    driver = KeepsByProcess


STORES = {"session": SessionStore, "process": ProcessStore}
