"""TaskFlow's own tests of its conductors, from the released package, on ours: all of them, in each of its scenarios."""

from __future__ import annotations

from typing import Any
from unittest import mock

from taskflow.conductors import backends
from taskflow.jobs.backends import impl_zookeeper
from taskflow.persistence.backends import impl_memory
from taskflow.tests.unit import test_conductors

from tests.contrib.taskflow.boards import on_ours


class ManyConductorTest(test_conductors.ManyConductorTest):
    # pytest does not multiply a suite by its scenarios.
    scenarios = ()

    def make_components(self) -> Any:
        persistence = impl_memory.MemoryBackend()
        _, board = self.create_board(persistence)
        conductor = backends.fetch(self.kind, "testing", board, persistence=persistence, **self.conductor_kwargs)
        return test_conductors.ComponentBundle(board, persistence, conductor)


class NonBlockingExecutorTest(test_conductors.NonBlockingExecutorTest):
    def setUp(self) -> None:
        super().setUp()

        def make(*args: Any, persistence: Any) -> Any:
            return self.create_board(persistence)[1]

        # They name TaskFlow's class.
        patched = mock.patch.object(impl_zookeeper, "ZookeeperJobBoard", make)
        patched.start()
        self.addCleanup(patched.stop)


for scenario, attributes in test_conductors.ManyConductorTest.scenarios:
    suites = on_ours((ManyConductorTest,), {}, **attributes)
    globals().update({f"{name}_{scenario}": suite for name, suite in suites.items()})
globals().update(on_ours((NonBlockingExecutorTest,), {}))
# Without a backend they are no suites.
del ManyConductorTest, NonBlockingExecutorTest, suites
