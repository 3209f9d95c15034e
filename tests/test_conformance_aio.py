"""The conformance suite once more, through the boards for asyncio: on SQLite, which blocks its thread, as coroutines
reach a backend by the sync board alone. ``tests/aio`` works on memory, and so does the full run."""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from stevedore import DriverManager

from jobboard.backends import NAMESPACE
from jobboard.conf import target
from jobboard.testing import conformance
from jobboard.testing.conformance import *  # noqa: F403 - this is how the suite is used
from tests.board.test_job_waits import TestJobWait  # noqa: F401
from tests.board.test_work import TestBooks, TestWorking, TestWorkingFunctions  # noqa: F401
from tests.full import FULL
from tests.support.through_asyncio import ThroughAsyncio

pytestmark = pytest.mark.backends(*(("memory", "sqlite") if FULL else ("sqlite",)))

VERBS = """
TestCancel TestClaiming TestCounting TestDelays TestErrors TestEvents TestGet TestHandles TestHeartbeats TestIterjobs
TestKeptAndFixed TestKeptOutcomes TestKeys TestLife TestLimitSetting TestLookingOnly TestLostReplies TestManyAtOnce
TestOutcomes TestPause TestPausedWaiters TestPosting TestPostingMany TestPurge TestRaces TestRelease TestReplacing
TestRestore TestResults TestSchedules TestSiblings TestSlotWaiters TestTokens TestTrash TestUnreachable TestWaiting
TestWakeUp TestFollowUps TestFollowUpKeys TestFollowUpBatches TestLostFollowUps
"""
"""Tests of the verbs. Coroutines reach all that is decided below the verbs in the same way: only in the full run."""
for _name in () if FULL else conformance.__all__:
    if _name.startswith("Test") and _name not in VERBS.split():
        del globals()[_name]

_serial = itertools.count(1)


@pytest.fixture
def make_board(backend: str, board_conf: dict[str, Any]) -> Iterator[Callable[..., Any]]:
    suffix = f"-aio{next(_serial)}" if backend == "memory" else ""
    with contextlib.ExitStack() as stack:

        def make(name: str = "board", **options: Any) -> Any:
            conf = {**board_conf, **options}
            store = DriverManager(NAMESPACE, target(conf).scheme).driver
            board = ThroughAsyncio(name + suffix, conf, store=store)
            stack.callback(board.close)
            board.connect()
            return board

        yield make
