"""A flow that outlives the process which runs it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobboard.testing import eventually
from tests.contrib.taskflow import flow

pytestmark = pytest.mark.backends("sqlite", "redis", "zookeeper")

LIMIT = 60


@contextlib.contextmanager
def conductor(conf: dict[str, Any], uri: str, name: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, flow.__file__, json.dumps(conf), uri, name])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_another_conductor_goes_on_where_a_killed_one_was(
    make_theirs: Any, theirs_conf: dict[str, Any], tmp_path: Path
) -> None:
    def steps() -> list[tuple[str, int]]:
        file = tmp_path / "steps"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(name, int(pid)) for name, pid in map(str.split, lines)]

    # A lease that no busy machine outlasts: here nobody but the killed one may lose a claim.
    conf = {**theirs_conf, "claim_ttl": 5}
    uri = f"sqlite:///{tmp_path}/logbooks.db"
    with flow.logbooks(uri) as persistence, conductor(conf, uri, "one") as one, conductor(conf, uri, "two") as two:
        board = make_theirs(persistence=persistence)
        job = flow.post(board, persistence, tmp_path)
        eventually(lambda: len(steps()) == 2, LIMIT)
        [(_, first), (_, again)] = steps()
        assert first == again
        killed, left = (one, two) if first == one.pid else (two, one)
        os.kill(killed.pid, signal.SIGKILL)
        assert killed.wait() == -signal.SIGKILL
        (tmp_path / "go").touch()
        eventually(lambda: job.state == "COMPLETE", LIMIT)
        # What was done is in the logbook, and not done again.
        assert steps() == [("fetch", first), ("resize", first), ("resize", left.pid), ("store", left.pid)]
        assert left.poll() is None
        with contextlib.closing(persistence.get_connection()) as connection:
            [detail] = connection.get_logbook(job.book_uuid)
        assert detail.state == "SUCCESS"
    assert board.job_count == 0
