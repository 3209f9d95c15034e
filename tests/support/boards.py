"""Two boards in memory, and movers that are stopped at any step."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pytest

import jobboard
from jobboard.backends import memory
from jobboard.board import JobBoard
from jobboard.exceptions import ConnectionFailure
from jobboard.moving import Mover

_serial = itertools.count(1)

opened = contextlib.ExitStack()
"""Closes all boards of this module, each of which has a thread."""


@contextlib.contextmanager
def case(**given: object) -> Iterator[None]:
    """Name one of many cases in the error of a test that fails in it."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the case {given}")
        raise


class Killed(BaseException):
    """The end of a killed mover."""


Steps = Mapping[int, Callable[[], object]] | None
"""Acts by the number of the change."""


def watch(changes: Iterable[tuple[Any, str]], meanwhile: Steps, lost: Steps, pass_time: Callable[[], object]) -> None:
    """Act at changes of boards.

    :param changes: the objects and the names of their methods that change a board. A call with nothing but empty
        arguments changes nothing.
    :param meanwhile: acts before the n-th change.
    :param lost: acts after the n-th change, whose reply is then lost.
    :param pass_time: called before each change.
    """
    count = itertools.count()

    def watched(original: Callable[..., Any], *what: Any, **extra: Any) -> Any:
        step = next(count) if any(what) else -1
        pass_time()
        (meanwhile or {}).get(step, bool)()
        answer = original(*what, **extra)
        if lost and step in lost:
            lost[step]()
            raise ConnectionFailure("the connection broke", outcome="unknown")
        return answer

    for owner, name in changes:
        owner.__dict__[name] = functools.partial(watched, getattr(owner, name))


class Clocks(memory.ManualClock):
    """The clock of the source. ``there`` is the clock of the target, ``behind`` seconds slower."""

    def __init__(self, behind: float) -> None:
        super().__init__()
        self.there = memory.ManualClock(self() - behind)

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        self.there.advance(seconds)


class Boards:
    """A source and a target, and movers between them."""

    def __init__(self, behind: float = 0) -> None:
        self.names = [f"moving {next(_serial)}", f"moving {next(_serial)}"]
        self.behind = behind
        self.clock = Clocks(behind)
        self.source, self.target = (self.board(name) for name in self.names)
        self.done: Counter[str] = Counter()

    def board(self, name: str) -> JobBoard:
        clock = self.clock if name == self.names[0] else self.clock.there
        board = jobboard.fetch(name, {"board": "memory", "clock": clock})
        assert isinstance(board, JobBoard)
        return opened.enter_context(board)

    def stranger(self) -> JobBoard:
        """Return a third board."""
        self.names.append(f"moving {next(_serial)}")
        return self.board(self.names[-1])

    def mover(self, meanwhile: Steps = None, lost: Steps = None) -> Mover:
        """Return a mover with handles of its own, which are ``ends``: see :func:`watch`."""
        self.ends = [self.board(name) for name in self.names[:2]]
        changes = [(board.engine.store, "commit") for board in self.ends]
        watch(changes, meanwhile, lost, lambda: self.clock.advance(0.001))
        return Mover(*self.ends)

    def work(self, board: JobBoard, limit: int = 100) -> None:
        """Claim and consume jobs."""
        for job in board.claim_many("worker", limit):
            self.done[job.uuid] += 1
            board.consume(job, "worker")

    def kill(self) -> None:
        raise Killed

    def kill_at(self, step: int) -> bool:
        """Run a mover to this step. Return whether the mover has reached the step."""
        try:
            self.mover({step: self.kill}).run()
        except Killed:
            return True
        return False


@pytest.fixture
def boards(request: pytest.FixtureRequest) -> Iterator[Boards]:
    """Yield two boards with equal clocks, unless a test asks for a slower target."""
    made = Boards(getattr(request, "param", 0))
    yield made
    for name in made.names:
        memory.forget(name)
