"""The conformance suite on three members, by default what depends on their agreement."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from jobboard.testing import conformance
from jobboard.testing.conformance import *  # noqa: F403 - this is how the suite is used
from tests.full import FULL
from tests.support.etcd_servers import EtcdCluster

# It is started once: all that runs on it runs on one worker.
pytestmark = [pytest.mark.backends("etcd"), pytest.mark.xdist_group("etcd-cluster")]

DEPENDENT = {"TestClaiming", "TestLostReplies", "TestWaiting"}

if not FULL:
    for name in set(conformance.__all__) - DEPENDENT:
        if name.startswith("Test"):
            del globals()[name]


@pytest.fixture(scope="module")
def members() -> Iterator[EtcdCluster]:
    with EtcdCluster() as cluster:
        yield cluster


@pytest.fixture
def board_conf(members: EtcdCluster) -> dict[str, Any]:
    return {"board": members.uri, "namespace": f"test{uuid.uuid4().hex}"}
