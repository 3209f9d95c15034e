"""Waiters on ZooKeeper and etcd that send nothing while they sleep."""

from typing import Any

import pytest

from jobboard.board import JobBoard
from jobboard.job import Posting
from jobboard.testing import eventually
from jobboard.testing.conformance.support import Waiter
from jobboard.testing.conformance.wire import Wire, wire

__all__ = ["wire"]

pytestmark = [pytest.mark.backends("zookeeper", "etcd"), pytest.mark.timeout(120)]


@pytest.mark.parametrize("limited", [False, True])
def test_acts_that_free_nothing_wake_no_waiter(board: JobBoard, wire: Wire, limited: bool) -> None:
    """Where the board is empty, and where a limit leaves no room."""
    held = None
    if limited:
        board.set_limit("mail", concurrency=1)
        held, *_ = board.post_many([Posting("mail")] * 40)
        board.claim(held, "bert")
    far = wire.far()
    counter = far.proxy.counter()

    def requests(**options: Any) -> int:
        counter.count = 0
        assert far(lambda: far.board.claim_next("anna", **options)) is None
        return counter.count

    # The first wait begins to watch the board, and looks again. Later ones look before and after their sleep.
    eventually(lambda: requests(timeout=0.2) <= 2 * requests())
    waiter = Waiter(far.board, lambda: far.board.claim_next("anna", timeout=60))
    counter.count = 0
    for _ in range(20):
        assert board.claim_next("bert") is None
        assert board.stats().claimed == (1 if limited else 0)
    assert counter.count == 0
    if held is not None:
        board.consume(held, "bert")
    else:
        board.post("mail")
    assert waiter.wait().name == "mail"
