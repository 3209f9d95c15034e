"""What a backend may tell its board, and is told by it, beyond the primitives."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from jobboard import base, notifier
from jobboard.backends.memory import MemoryEngine, forget
from jobboard.board import JobBoard
from jobboard.exceptions import ConnectionFailure
from jobboard.heartbeat import Heartbeat
from jobboard.job import Entity
from jobboard.states import Record
from jobboard.testing import eventually


class Hearing(MemoryEngine):
    """An engine that tells what other processes do."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.listening: list[bool] = []
        super().__init__(*args, **kwargs)

    def listen(self, on: bool) -> None:
        self.listening.append(on)

    def hear(self, event: str, record: Record) -> None:
        self._heard(event, record)


def ignore(event: str, details: dict[str, Any]) -> None:
    """A listener that has nothing to do."""


def test_a_store_is_told_when_somebody_listens_and_when_the_last_one_stops() -> None:
    board = JobBoard("hearing", "memory", engine=Hearing)
    board.notifier.register(notifier.POSTED, ignore)
    assert board.engine.listening == [], "nothing is heard before it is connected"
    board.connect()
    assert board.engine.listening == [True]
    board.notifier.register(notifier.ANY, ignore)
    board.notifier.deregister(notifier.POSTED, ignore)
    assert board.engine.listening == [True], "one more listener, or one less, changes nothing"
    board.notifier.deregister(notifier.ANY, ignore)
    assert board.engine.listening == [True, False]
    board.close()
    forget("hearing")


def test_what_a_store_hears_reaches_the_listeners_as_a_job() -> None:
    board = JobBoard("hearing", "memory", engine=Hearing)
    board.connect()
    heard: list[tuple[str, str, Any]] = []
    come = threading.Event()

    def listen(event: str, details: dict[str, Any]) -> None:
        heard.append((event, details["job"].name, details["job"].details))
        come.set()

    record = board.post("resize", details={"width": 3})._record
    board.notifier.register(notifier.CLAIMED, listen)
    board.engine.hear(notifier.CLAIMED, record)
    assert come.wait(10)
    come.clear()
    board.engine.hear(notifier.CLAIMED, record._replace(posting=b"\xc1"))
    assert come.wait(10)
    board.close()
    forget("hearing")
    assert heard == [("CLAIMED", "resize", {"width": 3}), ("CLAIMED", "resize", {})]


class Tidying(MemoryEngine):
    tidied = 0

    def tidy(self, seconds: float = 1.0) -> bool:
        assert seconds == 0.01, "a small part of the lease"
        self.tidied += 1
        return self.tidied < 4


def test_a_store_tidies_when_it_is_opened_and_while_it_renews(monkeypatch: pytest.MonkeyPatch) -> None:
    board = JobBoard("tidying", {"board": "memory", "claim_ttl": 0.3}, engine=Tidying)
    board.connect()
    board.register_entity(Entity("conductor", "one"))
    assert board.engine.tidied == 1
    # There was more, so that the next heartbeats go on, until there is not.
    eventually(lambda: board.engine.tidied == 4)
    monkeypatch.setattr(base, "TIDY_EVERY", 0.0)
    eventually(lambda: board.engine.tidied > 5)
    board.close()
    forget("tidying")


class Interrupted(Tidying):
    """One whose connection breaks with its first two steps of tidying."""

    def tidy(self, seconds: float = 1.0) -> bool:
        super().tidy(seconds)
        if self.tidied < 3:
            raise ConnectionFailure("the connection broke")
        return False


def test_a_connection_that_breaks_in_tidying_up_keeps_nobody_from_a_board() -> None:
    board = JobBoard("interrupted", {"board": "memory", "claim_ttl": 0.3}, engine=Interrupted)
    board.connect()
    board.post("resize")
    job = board.claim_next("anna")
    eventually(lambda: board.engine.tidied == 3)
    assert job is not None
    assert not job.claim.lost
    board.close()
    forget("interrupted")


def test_a_heartbeat_can_be_called_for() -> None:
    beaten = threading.Event()
    heartbeat = Heartbeat("test", beaten.set, interval=3600)
    heartbeat.start()
    heartbeat.soon()
    assert beaten.wait(10)
    heartbeat.stop()
