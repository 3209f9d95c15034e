"""The suite that every backend has to pass, with the same assertions.

A backend's author writes a test module with one import and one fixture::

    from jobboard.testing.conformance import *

    @pytest.fixture
    def board_conf():
        \"\"\"A configuration for jobboard.fetch that shares jobs with no other test.\"\"\"
        return {"board": "mine://localhost", "namespace": uuid.uuid4().hex}

    @pytest.fixture
    def make_board(board_conf):
        with contextlib.ExitStack() as stack:
            def make(name="board", **options):
                board = jobboard.fetch(name, {**board_conf, **options})
                stack.callback(board.close)
                board.connect()
                return board
            yield make

``make_board(name, **options)`` gives a connected board, and another handle on the same board for the same name. The
backend is found through its entry point, in other processes too, to which ``board_conf`` travels as JSON.

What may differ between backends is asked of ``board.characteristics``, and nothing is skipped. Leases and delays run on
the server's clock, in real time; the suite takes a minute or less. A class with ``any_driver = True`` sends the server
nothing that others do not send, too: once it has passed, it need not be run with another version of the driver.
"""

import pytest

_MODULES = (
    "boards",
    "claims",
    "damage",
    "entities",
    "errors",
    "events",
    "interleavings",
    "keys",
    "leases",
    "limits",
    "model",
    "moves",
    "order",
    "outcomes",
    "pauses",
    "posts",
    "processes",
    "races",
    "reads",
    "repetitions",
    "rules",
    "schedules",
    "support",
    "transitions",
    "trash",
    "waits",
    "wire",
)
# Before they are imported: otherwise a failing assertion would not say what the values were.
pytest.register_assert_rewrite(*(f"{__name__}.{module}" for module in _MODULES))

from jobboard.testing.conformance.boards import TestIdentity, TestLife, TestUnreachable  # noqa: E402
from jobboard.testing.conformance.claims import TestClaiming, TestHandles, TestManyAtOnce, TestSizes  # noqa: E402
from jobboard.testing.conformance.damage import TestDamagedGate, TestExamining, TestExaminingDamage, TestPoison  # noqa: E402
from jobboard.testing.conformance.entities import TestEntities  # noqa: E402
from jobboard.testing.conformance.errors import TestErrors, TestFailures, TestLapseErrors  # noqa: E402
from jobboard.testing.conformance.events import TestEvents  # noqa: E402
from jobboard.testing.conformance.interleavings import TestBetweenLookAndCommit, TestQuickerOthers  # noqa: E402
from jobboard.testing.conformance.keys import (  # noqa: E402
    TestKeys,
    TestReplacing,
    TestSimilarNames,
    TestWindows,
    TestWindowsBetweenRequests,
)
from jobboard.testing.conformance.leases import TestAttempts, TestHeartbeats, TestKeptAndFixed, TestLapse, TestTokens  # noqa: E402
from jobboard.testing.conformance.limits import (  # noqa: E402
    TestConcurrencyLimits,
    TestIdleScopes,
    TestLimitedLapses,
    TestLimitRaces,
    TestLimitSetting,
    TestRateLimits,
    TestRatesBetweenRequests,
    TestRepeatedSettings,
    TestSlotsBetweenRequests,
    TestSlotWaiters,
)
from jobboard.testing.conformance.model import TestModel  # noqa: E402
from jobboard.testing.conformance.moves import TestArrivals, TestDepartures  # noqa: E402
from jobboard.testing.conformance.order import TestOrder, TestPlaces  # noqa: E402
from jobboard.testing.conformance.outcomes import TestKeptOutcomes, TestOutcomes, TestResults, keeper  # noqa: E402
from jobboard.testing.conformance.pauses import (  # noqa: E402
    TestPause,
    TestPauseBetweenRequests,
    TestPausedWaiters,
    TestPauseUnderWay,
)
from jobboard.testing.conformance.posts import TestDelays, TestPosting, TestPostingMany  # noqa: E402
from jobboard.testing.conformance.processes import TestFork, TestOtherProcesses, puppet  # noqa: E402
from jobboard.testing.conformance.races import TestContention, TestRaces  # noqa: E402
from jobboard.testing.conformance.reads import (  # noqa: E402
    TestCounting,
    TestGet,
    TestIterjobs,
    TestLookingOnly,
    TestSiblings,
    TestTheServerIsAsked,
)
from jobboard.testing.conformance.repetitions import (  # noqa: E402
    TestLateOnTheWire,
    TestLostReplies,
    TestRepeatedPosts,
)
from jobboard.testing.conformance.rules import (  # noqa: E402
    TestClocks,
    TestLocksOfOthers,
    TestOldHandles,
    TestOldListings,
    TestRememberedClaims,
    TestRevival,
    astray,
)
from jobboard.testing.conformance.schedules import TestSchedules, TestSchedulesInTrouble  # noqa: E402
from jobboard.testing.conformance.support import board, other  # noqa: E402
from jobboard.testing.conformance.transitions import TestLifecycle  # noqa: E402
from jobboard.testing.conformance.trash import TestCancel, TestPurge, TestRelease, TestRestore, TestTrash  # noqa: E402
from jobboard.testing.conformance.waits import TestWaiting, TestWakeUp  # noqa: E402
from jobboard.testing.conformance.wire import wire  # noqa: E402

__all__ = [
    "TestArrivals",
    "TestAttempts",
    "TestBetweenLookAndCommit",
    "TestCancel",
    "TestClaiming",
    "TestClocks",
    "TestConcurrencyLimits",
    "TestContention",
    "TestCounting",
    "TestDamagedGate",
    "TestDelays",
    "TestDepartures",
    "TestEntities",
    "TestErrors",
    "TestEvents",
    "TestExamining",
    "TestExaminingDamage",
    "TestFailures",
    "TestFork",
    "TestGet",
    "TestHandles",
    "TestHeartbeats",
    "TestIdentity",
    "TestIdleScopes",
    "TestIterjobs",
    "TestKeptAndFixed",
    "TestKeptOutcomes",
    "TestKeys",
    "TestLapse",
    "TestLapseErrors",
    "TestLateOnTheWire",
    "TestLife",
    "TestLifecycle",
    "TestLimitRaces",
    "TestLimitSetting",
    "TestLimitedLapses",
    "TestLocksOfOthers",
    "TestLookingOnly",
    "TestLostReplies",
    "TestManyAtOnce",
    "TestModel",
    "TestOldHandles",
    "TestOldListings",
    "TestOrder",
    "TestOtherProcesses",
    "TestOutcomes",
    "TestPause",
    "TestPauseBetweenRequests",
    "TestPauseUnderWay",
    "TestPausedWaiters",
    "TestPlaces",
    "TestPoison",
    "TestPosting",
    "TestPostingMany",
    "TestPurge",
    "TestQuickerOthers",
    "TestRaces",
    "TestRateLimits",
    "TestRatesBetweenRequests",
    "TestRelease",
    "TestRememberedClaims",
    "TestRepeatedPosts",
    "TestRepeatedSettings",
    "TestReplacing",
    "TestRestore",
    "TestResults",
    "TestRevival",
    "TestSchedules",
    "TestSchedulesInTrouble",
    "TestSiblings",
    "TestSimilarNames",
    "TestSizes",
    "TestSlotWaiters",
    "TestSlotsBetweenRequests",
    "TestTheServerIsAsked",
    "TestTokens",
    "TestTrash",
    "TestUnreachable",
    "TestWaiting",
    "TestWakeUp",
    "TestWindows",
    "TestWindowsBetweenRequests",
    "astray",
    "board",
    "keeper",
    "other",
    "puppet",
    "wire",
]
