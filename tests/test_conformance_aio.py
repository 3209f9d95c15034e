"""The conformance suite once more, through the boards for asyncio: on memory and SQLite, as coroutines reach a backend
by the sync board alone."""

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from stevedore import DriverManager

from jobboard.backends import NAMESPACE
from jobboard.conf import target
from jobboard.testing.conformance import *  # noqa: F403 - this is how the suite is used
from tests.board.test_job_waits import TestJobWait  # noqa: F401
from tests.board.test_work import TestBooks, TestWorking, TestWorkingFunctions  # noqa: F401
from tests.support.through_asyncio import ThroughAsyncio

FULL = bool(os.environ.get("JOBBOARD_TEST_FULL"))
pytestmark = pytest.mark.backends("memory", "sqlite")

BELOW = (
    "TestArrivals",
    "TestBetweenLookAndCommit",
    "TestClocks",
    "TestContention",
    "TestEntities",
    "TestFork",
    "TestLapse",
    "TestLateOnTheWire",
    "TestLateRequests",
    "TestLifecycle",
    "TestModel",
    "TestOldHandles",
    "TestOldListings",
    "TestOtherProcesses",
    "TestQuickerOthers",
    "TestDepartures",
    "TestRememberedClaims",
    "TestRepeatedPosts",
    "TestRevival",
    "TestTheServerIsAsked",
    "TestLocksOfOthers",
)
"""Tests of decisions below the verbs, which coroutines reach in the same way: only in the full run."""
for _name in () if FULL else BELOW:
    del globals()[_name]

_serial = itertools.count(1)


@pytest.fixture
def make_board(backend: str, board_conf: dict[str, Any]) -> Iterator[Callable[..., Any]]:
    suffix = f"-aio{next(_serial)}" if backend == "memory" else ""
    with contextlib.ExitStack() as stack:

        def make(name: str = "board", **options: Any) -> Any:
            conf = {**board_conf, **options}
            engine = DriverManager(NAMESPACE, target(conf).scheme).driver
            board = ThroughAsyncio(name + suffix, conf, engine=engine)
            stack.callback(board.close)
            board.connect()
            return board

        yield make
