"""The conformance suite on three servers, by default what depends on their agreement."""

import os
import uuid
from typing import Any

import pytest

from jobboard.testing import conformance
from jobboard.testing.conformance import *  # noqa: F403 - this is how the suite is used
from tests.support.zookeeper_servers import ZooKeeperEnsemble

# It is started once: all that runs on it runs on one worker.
pytestmark = [pytest.mark.backends("zookeeper"), pytest.mark.xdist_group("ensemble")]

DEPENDENT = {"TestClaiming", "TestEvents", "TestIterjobs", "TestLife", "TestLostReplies", "TestWaiting"}

if not os.environ.get("JOBBOARD_TEST_FULL"):
    for name in set(conformance.__all__) - DEPENDENT:
        if name.startswith("Test"):
            del globals()[name]


@pytest.fixture
def board_conf(ensemble: ZooKeeperEnsemble) -> dict[str, Any]:
    return {"board": ensemble.uri, "namespace": f"test{uuid.uuid4().hex}"}
