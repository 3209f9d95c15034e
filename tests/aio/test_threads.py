"""The few threads on which calls of coroutines are made, where the system starts no more."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from jobboard.aio.threads import Threads

WAIT = 20
NAME = "few"


@pytest.fixture
def threads() -> Iterator[Threads]:
    threads = Threads(NAME, 2)
    yield threads
    threads.close()


def test_a_call_for_which_there_is_no_thread_is_not_made(threads: Threads, refused: set[str]) -> None:
    made: list[str] = []
    refused.add(NAME)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="new thread"):
            threads.begin(made.append, "refused")
    refused.clear()
    threads.begin(made.append, "one").result(WAIT)
    threads.begin(made.append, "two").result(WAIT)
    assert made == ["one", "two"]


def test_a_call_waits_for_the_threads_that_there_are(threads: Threads, refused: set[str]) -> None:
    gate = threading.Event()
    busy = threads.begin(gate.wait, WAIT)
    refused.add(NAME)
    others = [threads.begin(int, number) for number in "123"]
    gate.set()
    assert busy.result(WAIT)
    assert [other.result(WAIT) for other in others] == [1, 2, 3]


def test_they_are_as_many_as_before_once_they_can_be_started(threads: Threads, refused: set[str]) -> None:
    gate = threading.Event()
    busy = threads.begin(gate.wait, WAIT)
    refused.add(NAME)
    refusals = [threads.begin(int) for _ in range(3)]
    refused.clear()
    threads.begin(gate.set)
    assert busy.result(WAIT)
    assert [each.result(WAIT) for each in refusals] == [0, 0, 0]
