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
    "arriving",
    "between",
    "claiming",
    "contention",
    "damaging",
    "entities",
    "errors",
    "events",
    "examining",
    "failures",
    "holding",
    "idling",
    "keys",
    "late",
    "leases",
    "life",
    "lifecycle",
    "limits",
    "looking",
    "model",
    "ordering",
    "outcomes",
    "pausing",
    "posting",
    "processes",
    "races",
    "reposting",
    "rules",
    "scheduling",
    "setting",
    "sizes",
    "slots",
    "support",
    "trash",
    "waiting",
    "windows",
    "wire",
    "working",
)
# Before they are imported: otherwise a failing assertion would not say what the values were.
pytest.register_assert_rewrite(*(f"{__name__}.{module}" for module in _MODULES))

from jobboard.testing.conformance.arriving import TestArriving, TestParting  # noqa: E402
from jobboard.testing.conformance.between import TestBetweenLookAndCommit, TestOthersAreAlwaysQuicker  # noqa: E402
from jobboard.testing.conformance.claiming import TestArguments, TestClaiming, TestHandles, TestManyAtOnce  # noqa: E402
from jobboard.testing.conformance.contention import TestContention  # noqa: E402
from jobboard.testing.conformance.damaging import TestDamagedGate  # noqa: E402
from jobboard.testing.conformance.entities import TestEntities  # noqa: E402
from jobboard.testing.conformance.errors import TestErrors, TestFailures, TestLapseErrors  # noqa: E402
from jobboard.testing.conformance.events import TestEvents  # noqa: E402
from jobboard.testing.conformance.examining import TestExamining, TestExaminingDamage  # noqa: E402
from jobboard.testing.conformance.failures import (  # noqa: E402
    TestLateRequests,
    TestLostReplies,
    TestPoison,
    TestUnreachable,
)
from jobboard.testing.conformance.holding import TestHolding  # noqa: E402
from jobboard.testing.conformance.idling import TestIdleScopes  # noqa: E402
from jobboard.testing.conformance.keys import TestApart, TestKeys  # noqa: E402
from jobboard.testing.conformance.late import TestLateOnTheWire  # noqa: E402
from jobboard.testing.conformance.leases import TestAttempts, TestKeptAndFixed, TestLapse, TestTokens  # noqa: E402
from jobboard.testing.conformance.life import TestIdentity, TestLife  # noqa: E402
from jobboard.testing.conformance.lifecycle import TestLifecycle  # noqa: E402
from jobboard.testing.conformance.limits import (  # noqa: E402
    TestConcurrencyLimits,
    TestLimitedLapses,
    TestLimitRaces,
    TestRateLimits,
    TestRatesBetweenRequests,
)
from jobboard.testing.conformance.looking import (  # noqa: E402
    TestCounting,
    TestGet,
    TestIterjobs,
    TestSiblings,
    TestTheServerIsAsked,
)
from jobboard.testing.conformance.model import TestModel  # noqa: E402
from jobboard.testing.conformance.ordering import TestOldPlace, TestOrder  # noqa: E402
from jobboard.testing.conformance.outcomes import TestKeeping, TestOutcomes, TestResults, keeper  # noqa: E402
from jobboard.testing.conformance.pausing import (  # noqa: E402
    TestPause,
    TestPauseBetweenRequests,
    TestPausedWaiters,
    TestPauseUnderWay,
)
from jobboard.testing.conformance.posting import TestDelays, TestPosting, TestPostingMany  # noqa: E402
from jobboard.testing.conformance.processes import TestFork, TestOtherProcesses, puppet  # noqa: E402
from jobboard.testing.conformance.races import TestRaces  # noqa: E402
from jobboard.testing.conformance.reposting import TestRepeatedPosts  # noqa: E402
from jobboard.testing.conformance.rules import (  # noqa: E402
    TestClocks,
    TestOldHandles,
    TestOldListings,
    TestRememberedClaims,
    TestRevival,
    TestWhatOthersHold,
    astray,
)
from jobboard.testing.conformance.scheduling import TestSchedules, TestSchedulesInTrouble  # noqa: E402
from jobboard.testing.conformance.setting import (  # noqa: E402
    TestLimitSetting,
    TestOneBoardOfSeveralThreads,
    TestRepeatedSettings,
)
from jobboard.testing.conformance.sizes import TestSizes  # noqa: E402
from jobboard.testing.conformance.slots import TestSlotsBetweenRequests, TestSlotWaiters  # noqa: E402
from jobboard.testing.conformance.support import board, other  # noqa: E402
from jobboard.testing.conformance.trash import (  # noqa: E402
    TestCancel,
    TestPurge,
    TestRelease,
    TestRestore,
    TestTrash,
)
from jobboard.testing.conformance.waiting import TestJobWait, TestWaiting, TestWakeUp  # noqa: E402
from jobboard.testing.conformance.windows import (  # noqa: E402
    TestReplacing,
    TestWindows,
    TestWindowsBetweenRequests,
)
from jobboard.testing.conformance.wire import wire  # noqa: E402
from jobboard.testing.conformance.working import TestBooks, TestWorking, TestWorkingFunctions  # noqa: E402

__all__ = [
    "TestApart",
    "TestArguments",
    "TestArriving",
    "TestAttempts",
    "TestBetweenLookAndCommit",
    "TestBooks",
    "TestCancel",
    "TestClaiming",
    "TestClocks",
    "TestConcurrencyLimits",
    "TestContention",
    "TestCounting",
    "TestDamagedGate",
    "TestDelays",
    "TestEntities",
    "TestErrors",
    "TestEvents",
    "TestExamining",
    "TestExaminingDamage",
    "TestFailures",
    "TestFork",
    "TestGet",
    "TestHandles",
    "TestHolding",
    "TestIdentity",
    "TestIdleScopes",
    "TestIterjobs",
    "TestJobWait",
    "TestKeeping",
    "TestKeptAndFixed",
    "TestKeys",
    "TestLapse",
    "TestLapseErrors",
    "TestLateOnTheWire",
    "TestLateRequests",
    "TestLife",
    "TestLifecycle",
    "TestLimitRaces",
    "TestLimitSetting",
    "TestLimitedLapses",
    "TestLostReplies",
    "TestManyAtOnce",
    "TestModel",
    "TestOldHandles",
    "TestOldListings",
    "TestOldPlace",
    "TestOneBoardOfSeveralThreads",
    "TestOrder",
    "TestOtherProcesses",
    "TestOthersAreAlwaysQuicker",
    "TestOutcomes",
    "TestParting",
    "TestPause",
    "TestPauseBetweenRequests",
    "TestPauseUnderWay",
    "TestPausedWaiters",
    "TestPoison",
    "TestPosting",
    "TestPostingMany",
    "TestPurge",
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
    "TestSizes",
    "TestSlotWaiters",
    "TestSlotsBetweenRequests",
    "TestTheServerIsAsked",
    "TestTokens",
    "TestTrash",
    "TestUnreachable",
    "TestWaiting",
    "TestWakeUp",
    "TestWhatOthersHold",
    "TestWindows",
    "TestWindowsBetweenRequests",
    "TestWorking",
    "TestWorkingFunctions",
    "astray",
    "board",
    "keeper",
    "other",
    "puppet",
    "wire",
]
