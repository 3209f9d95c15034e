"""What a backend may tell its board, and is told by it, beyond the primitives."""

from __future__ import annotations

import threading
from typing import Any, ClassVar

import pytest

from jobboard import board as boards
from jobboard.backends.memory import MemoryStore, forget
from jobboard.board import JobBoard
from jobboard.exceptions import ConnectionFailure
from jobboard.job import Entity
from jobboard.testing import eventually
from jobboard.testing.conformance.processes import in_child
from jobboard.testing.conformance.support import Background


class Tidying(MemoryStore):
    tidied = 0

    def tidy(self, seconds: float) -> bool:
        assert seconds == 0.01, "a small part of the lease"
        self.tidied += 1
        return self.tidied < 4


@pytest.mark.rule("A store tidies when it is opened and while it renews, on every backend.")
def test_a_store_tidies_when_it_is_opened_and_while_it_renews(monkeypatch: pytest.MonkeyPatch) -> None:
    board = JobBoard("tidying", {"board": "memory", "claim_ttl": 0.3}, store=Tidying)
    board.connect()
    assert board.engine.store.tidied == 1
    # This starts the heartbeat.
    board.register_entity(Entity("conductor", "one"))
    # There was more, so that the next heartbeats go on, until there is not.
    eventually(lambda: board.engine.store.tidied == 4)
    monkeypatch.setattr(boards, "TIDY_EVERY", 0.0)
    eventually(lambda: board.engine.store.tidied > 5)
    board.close()
    forget("tidying")


class Interrupted(Tidying):
    """One whose connection breaks with its first two steps of tidying."""

    def tidy(self, seconds: float) -> bool:
        super().tidy(seconds)
        if self.tidied < 3:
            raise ConnectionFailure("the connection broke")
        return False


@pytest.mark.rule("A connection that breaks in tidying keeps nobody from a board.")
def test_a_connection_that_breaks_in_tidying_up_keeps_nobody_from_a_board() -> None:
    board = JobBoard("interrupted", {"board": "memory", "claim_ttl": 0.3}, store=Interrupted)
    board.connect()
    board.post("resize")
    job = board.claim_next("anna")
    eventually(lambda: board.engine.store.tidied == 3)
    assert job is not None
    assert not job.claim.lost
    board.close()
    forget("interrupted")


class Unforkable(MemoryStore):
    def forked(self) -> None:
        raise OSError("no fork")


@pytest.mark.rule("A board whose backend fails in a forked child leaves the other boards as good there as ever.")
def test_a_board_that_fails_in_a_child_harms_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        JobBoard("unforkable", "memory", store=Unforkable) as broken,
        JobBoard("forkable", "memory", store=MemoryStore) as whole,
    ):
        monkeypatch.setattr(boards, "_boards", [broken, whole])
        assert in_child(lambda: whole.engine.handle)() != whole.engine.handle
    forget("unforkable")
    forget("forkable")


class Held(MemoryStore):
    """A store whose opening and closing wait."""

    moment: ClassVar[str]
    reached: ClassVar[threading.Event]
    left: ClassVar[threading.Event]

    def _wait_in(self, moment: str) -> None:
        if moment == self.moment and not self.left.is_set():
            self.reached.set()
            self.left.wait()

    def open(self, *args: Any) -> Any:
        self._wait_in("open")
        return super().open(*args)

    def tidy(self, *args: Any, **kwargs: Any) -> bool:
        self._wait_in("tidy")
        return super().tidy(*args, **kwargs)

    def close(self) -> None:
        self._wait_in("close")
        super().close()


@pytest.mark.parametrize("moment", ["open", "tidy", "close"])
def test_a_fork_while_another_thread_connects_or_closes(moment: str) -> None:
    Held.moment, Held.reached, Held.left = moment, threading.Event(), threading.Event()
    board = JobBoard("forked", "memory", store=Held)

    def live() -> None:
        board.connect()
        board.close()

    def child() -> Any:
        Held.moment = ""
        board.connect()
        job = board.post("resize")
        board.close()
        return job.name

    thread = Background(live)
    assert Held.reached.wait(10)
    try:
        answer = in_child(child)
    finally:
        Held.left.set()
    assert answer() == "resize"
    thread.wait()
    forget("forked")
