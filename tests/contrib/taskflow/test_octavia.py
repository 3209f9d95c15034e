"""The ways of OpenStack's Octavia with a board, which is TaskFlow's main user: as its controller's code has them."""

from __future__ import annotations

import contextlib
import functools
import threading
from pathlib import Path
from typing import Any

import pytest
from taskflow.conductors.backends import impl_blocking
from taskflow.jobs import backends
from taskflow.listeners import base

from jobboard.testing import eventually
from tests.contrib.taskflow import flow
from tests.contrib.taskflow.boards import close_client, make_client

pytestmark = pytest.mark.backends("sqlite", "redis", "zookeeper")

EXPIRY = 30.0
"""Its ``jobboard_expiration_time``, which a busy machine does not outlast."""

LONGER = 2 * EXPIRY
"""What the thread extends claims to, so that it can be told from what the listener does."""


class ExtendExpiryListener(base.Listener):
    def __init__(self, engine: Any, job: Any) -> None:
        super().__init__(engine)
        self.job = job
        self.answers: list[bool] = []

    def _task_receiver(self, state: str, details: dict[str, Any]) -> None:
        self.answers.append(self.job.extend_expiry(EXPIRY))

    _flow_receiver = _retry_receiver = _task_receiver


class ExtendingConductor(impl_blocking.BlockingConductor):
    """Extends the claim of a job whenever its engine tells something."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.listeners: list[ExtendExpiryListener] = []

    def _listeners_from_job(self, job: Any, engine: Any) -> list[Any]:
        self.listeners.append(ExtendExpiryListener(engine, job))
        return [*super()._listeners_from_job(job, engine), self.listeners[-1]]


class KeepAlive(threading.Thread):
    """Scans all the jobs through a board of its own, and extends those of one conductor."""

    def __init__(self, make_board: Any, owner: str) -> None:
        super().__init__()
        self._make_board = make_board
        self._owner = owner
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(0.2):
            with self._make_board() as board:
                for job in board.iterjobs():
                    if board.find_owner(job) == self._owner and job.expires_in() <= EXPIRY:
                        job.extend_expiry(LONGER)

    def end(self) -> None:
        self._ended.set()
        self.join(30)
        assert not self.is_alive()


def test_claims_that_expire_are_kept_alive_from_a_thread(theirs_conf: dict[str, Any], tmp_path: Path) -> None:
    """Two conductors and the thread share one client; only one of the conductors ever gets the job."""
    client = make_client(theirs_conf["url"])
    with contextlib.ExitStack() as stack:
        stack.callback(close_client, client)
        persistence = stack.enter_context(flow.logbooks(f"sqlite:///{tmp_path}/logbooks.db"))
        make_board = functools.partial(backends.backend, "octavia", theirs_conf, client=client, persistence=persistence)
        conductors: list[ExtendingConductor] = []
        for name in ("one", "two"):
            board = stack.enter_context(make_board())
            board.claim = functools.partial(board.claim, expiry=EXPIRY)
            conductor = ExtendingConductor(name, board, persistence=persistence, wait_timeout=0.1)
            conductors.append(conductor)
            thread = threading.Thread(target=conductor.run)
            thread.start()
            stack.callback(thread.join, 30)
            stack.callback(conductor.stop)
            keep_alive = KeepAlive(make_board, name)
            keep_alive.start()
            stack.callback(keep_alive.end)
        job = flow.post(board, persistence, tmp_path)
        steps = tmp_path / "steps"
        eventually(lambda: steps.exists() and "resize" in steps.read_text())
        owner = board.find_owner(job)
        # The step goes on and tells nothing, so that the thread alone extends the claim.
        eventually(lambda: job.expires_in() > EXPIRY)
        assert board.find_owner(job) == owner
        (tmp_path / "go").touch()
        eventually(lambda: job.state == "COMPLETE")
    [listener] = [each for conductor in conductors for each in conductor.listeners]
    assert set(listener.answers) == {True}
    assert [line.split()[0] for line in steps.read_text().splitlines()] == list(flow.STEPS)
