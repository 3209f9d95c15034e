"""The conformance suite behind Sentinel and on a cluster: by default what depends on where the server is."""

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jobboard
from jobboard.testing import conformance
from jobboard.testing.conformance import *  # noqa: F403 - this is how the suite is used
from jobboard.testing.servers import RedisCluster, RedisSentinel

pytestmark = pytest.mark.backends("redis")

DEPENDENT = {"TestClaiming", "TestEvents", "TestLife", "TestLostReplies", "TestOtherProcesses", "TestWakeUp"}

if not os.environ.get("JOBBOARD_TEST_FULL"):
    for name in set(conformance.__all__) - DEPENDENT:
        if name.startswith("Test"):
            del globals()[name]


# Each is started once: all that runs on it runs on one worker.
@pytest.fixture(
    scope="module",
    params=[
        pytest.param(kind.kind, marks=pytest.mark.xdist_group(kind.kind)) for kind in (RedisSentinel, RedisCluster)
    ],
)
def topology(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """How to reach it."""
    if request.param == RedisCluster.kind:
        with RedisCluster() as cluster:
            yield {"board": cluster.uri, "cluster": True}
        return
    with RedisSentinel() as servers:
        (host, port), *others = servers.sentinels
        yield {"board": f"redis://{host}:{port}", "sentinel": servers.service, "sentinel_fallbacks": others}


@pytest.fixture
def board_conf(topology: dict[str, Any]) -> dict[str, Any]:
    return {**topology, "namespace": uuid.uuid4().hex}


@pytest.fixture
def make_board(board_conf: dict[str, Any]) -> Iterator[Callable[..., Any]]:
    with contextlib.ExitStack() as stack:

        def make(name: str = "board", **options: Any) -> Any:
            board = jobboard.fetch(name, {**board_conf, **options})
            stack.callback(board.close)
            board.connect()
            return board

        yield make
