"""The whole suite once more, on three servers; it takes the time that it takes, so it runs where it was asked for."""

import os
import uuid
from typing import Any

import pytest

from jobboard.testing import conformance
from jobboard.testing.conformance import *  # noqa: F403 - this is how the suite is used
from jobboard.testing.zookeeper_servers import ZooKeeperEnsemble

pytestmark = pytest.mark.backends("zookeeper")

if not os.environ.get("JOBBOARD_TEST_FULL"):
    for name in conformance.__all__:
        if name.startswith("Test"):
            del globals()[name]


@pytest.fixture
def board_conf(ensemble: ZooKeeperEnsemble) -> dict[str, Any]:
    return {"board": ensemble.uri, "namespace": f"test{uuid.uuid4().hex}"}
