"""Moves from TaskFlow's boards that are ended or overtaken at each of their steps."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from taskflow import exceptions

import jobboard
from jobboard.backends import memory
from jobboard.board import JobBoard
from jobboard.moving import Mover
from tests.contrib.taskflow.moving.origins import Origin, origin_of
from tests.support.boards import Killed, Steps, case, watch

_serial = itertools.count(1)
_CHANGES = ("depart", "write_note", "remove")


class Way:
    """A move from a board of TaskFlow's to a board in memory."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.name = f"from TaskFlow {next(_serial)}"
        self.target = self.board()
        self.done: Counter[str] = Counter()
        self.uuids = [origin.posts.post(f"{n}", priority=("LOW", "HIGH")[n % 2]).uuid for n in range(3)]
        trashed = origin.posts.post("trashed")
        origin.trash(trashed)
        self.trashed = trashed.uuid

    def board(self) -> JobBoard:
        board = jobboard.fetch(self.name, "memory")
        assert isinstance(board, JobBoard)
        board.connect()
        return board

    def mover(self, meanwhile: Steps = None, lost: Steps = None) -> Mover:
        """Return a mover with handles of its own: see :func:`watch`."""
        source, target = self.origin.source(), self.board()
        changes = [(target.engine.store, "commit"), *((source._store, change) for change in _CHANGES)]
        watch(changes, meanwhile, lost, bool)
        return Mover(source, target)

    def kill(self) -> None:
        raise Killed

    def kill_at(self, step: int) -> bool:
        """Run a mover that is killed at this step. Return whether the move has so many steps."""
        try:
            self.mover({step: self.kill}).run()
        except Killed:
            return True
        return False

    def work_there(self) -> None:
        for job in self.target.claim_many("worker", 100):
            self.done[job.uuid] += 1
            self.target.consume(job, "worker")

    def work_here(self) -> None:
        """Execute one job as a conductor of TaskFlow's does."""
        for job in self.origin.jobs():
            try:
                self.origin.claim(job)
            except (exceptions.UnclaimableJob, exceptions.NotFound):
                continue
            self.done[job.uuid] += 1
            self.origin.consume(job, "conductor")
            return

    def try_here(self) -> None:
        for job in self.origin.jobs()[:1]:
            self.origin.claim(job)
            self.origin.abandon(job, "conductor")

    def check(self) -> None:
        """Finish the move, and find each job executed once, or in the trash."""
        assert self.mover().run().left == []
        assert self.origin.jobs() == []
        assert self.origin.source().trash_page(None, 10) == []
        self.work_there()
        assert list(self.target.iterjobs()) == []
        assert [job.uuid for job in self.target.trashed()] == [self.trashed]
        assert self.done == Counter(self.uuids)


@pytest.fixture
def way(origin: Origin) -> Iterator[Way]:
    made = Way(origin)
    yield made
    memory.forget(made.name)


STEPS = 10
"""The number of changes that a mover makes, if nobody is in its way."""


def test_the_number_of_steps_is_known(way: Way) -> None:
    count = itertools.count()
    mover = way.mover(dict.fromkeys(range(100), lambda: next(count)))
    mover.run()
    assert next(count) == STEPS


def test_a_mover_killed_at_each_step_loses_nothing(way: Way) -> None:
    for step in range(STEPS):
        way.kill_at(step)
        free = [job.uuid for job in way.target.iterjobs(only_unclaimed=True)]
        assert not set(free) & {job.uuid for job in way.origin.jobs()}
    way.check()


Act = Callable[[Way], object]

MEANWHILE: dict[str, Act] = {
    "nothing": lambda way: None,
    "the target is worked on": Way.work_there,
    "the source is worked on": Way.work_here,
    "both are worked on": lambda way: (way.work_here(), way.work_there()),
    "a job is tried in vain": Way.try_here,
    "another moves all": lambda way: way.mover().run(),
    "another moves all, which is done": lambda way: (way.mover().run(), way.work_there()),
    "another is killed": lambda way: way.kill_at(6),
}


@pytest.mark.kinds("redis")
@pytest.mark.parametrize("step", range(STEPS))
def test_acts_at_any_step_of_a_mover(origin: Origin, server_uris: dict[str, str], step: int) -> None:
    for (what, act), is_killed in itertools.product(MEANWHILE.items(), (False, True)):
        with case(what=what, is_killed=is_killed), origin_of(origin.kind, server_uris[origin.kind]) as fresh:
            way = Way(fresh)

            def meanwhile(way: Way = way, act: Act = act, is_killed: bool = is_killed) -> None:
                act(way)
                if is_killed:
                    way.kill()

            try:
                assert way.mover({step: meanwhile}).run().left == []
            except Killed:
                act(way)
            way.check()
            memory.forget(way.name)


@pytest.mark.parametrize("what", ["nothing", "both are worked on"])
def test_lost_replies_are_repeated(way: Way, what: str) -> None:
    lost = dict.fromkeys(range(0, 3 * STEPS, 2), functools.partial(MEANWHILE[what], way))
    assert way.mover(lost=lost).run().left == []
    way.check()
