"""Boards that get no thread to listen on, or to watch their connections, start one as soon as they can."""

import contextlib
import threading
from pathlib import Path

import pytest

from jobboard.testing import eventually
from tests.support.conductors import MakeBoard


@pytest.mark.rule("A listener whose thread cannot be started leaves no connection open.")
@pytest.mark.backends("redis", "etcd", "postgresql")
@pytest.mark.any_driver
def test_board_hears_of_schedules_once_it_has_a_thread(make_board: MakeBoard, refused: set[str]) -> None:
    """A poster that believes itself to hear of them sleeps for an hour."""
    board, other = make_board(), make_board()
    refused.update({"*-listener", "jobboard-watch"})
    with contextlib.suppress(RuntimeError):
        assert not board.engine.watch("schedules")
    refused.clear()
    assert board.engine.watch("schedules")
    alarms = board.waiters.alarms
    other.schedule("a", every=3600, name="a")
    eventually(lambda: board.waiters.alarms > alarms)


@pytest.mark.rule("A listener whose thread cannot be started leaves no connection open.")
@pytest.mark.backends("redis", "zookeeper")
@pytest.mark.any_driver
def test_listener_hears_of_others_once_it_has_a_thread(make_board: MakeBoard, refused: set[str]) -> None:
    board, other = make_board(), make_board()
    heard = threading.Event()

    def hear(*args: object) -> None:
        heard.set()

    refused.add("jobboard-listener")
    with pytest.raises(RuntimeError, match="new thread"):
        board.notifier.register("POSTED", hear)
    refused.clear()
    board.notifier.deregister("POSTED", hear)
    board.notifier.register("POSTED", hear)
    other.post("a")
    assert heard.wait(20)


@pytest.mark.rule("A listener whose thread cannot be started leaves no connection open.")
@pytest.mark.backends("postgresql")
@pytest.mark.any_driver
def test_wait_without_a_thread_leaves_no_connection_open(make_board: MakeBoard, refused: set[str]) -> None:
    board = make_board()
    refused.add("*-listener")
    opened = []
    for _ in range(3):
        assert board.claim_next("me", timeout=0.01) is None
        opened.append(len(list(Path("/proc/self/fd").iterdir())))
    assert opened[0] == opened[-1]


@pytest.mark.backends("postgresql", "mariadb")
@pytest.mark.any_driver
def test_requests_go_on_without_a_thread_that_watches_them(make_board: MakeBoard, refused: set[str]) -> None:
    before = set(threading.enumerate())
    refused.add("*-connections")
    board = make_board()
    job = board.post("a")
    assert not board.engine.store.links.watch.awake
    refused.clear()
    assert board.get(job.uuid) == job
    assert any(each.name.endswith("-connections") for each in {*threading.enumerate()} - before)
