"""A server that connects first and forks afterwards, as gunicorn does with ``--preload``."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import jobboard
from jobboard.testing import eventually

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")

REQUESTS = 60


@contextlib.contextmanager
def gunicorn(conf: dict[str, Any], log: Path) -> Iterator[str]:
    """The address of a preloading server with two workers."""
    arguments = ("--preload", "--workers", "2", "--bind", "127.0.0.1:0", "--no-control-socket")
    command = [sys.executable, "-m", "gunicorn", *arguments, "tests.preloaded:application"]
    with log.open("w") as out:
        server = subprocess.Popen(
            command,
            env={**os.environ, "PRELOADED_CONF": json.dumps(conf)},
            cwd=Path(__file__).parents[1],
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        yield eventually(lambda: _address(server, log))
    finally:
        server.terminate()
        server.wait(30)


def _address(server: subprocess.Popen[bytes], log: Path) -> str | None:
    assert server.poll() is None, log.read_text()
    found = re.search(r"Listening at: (http://\S+)", log.read_text())
    return found.group(1) if found else None


def ask(address: str) -> dict[str, Any]:
    with urllib.request.urlopen(address, timeout=30) as reply:
        answer: dict[str, Any] = json.load(reply)
    return answer


def test_workers_forked_after_connect(
    make_board: Callable[..., jobboard.JobBoard], board_conf: dict[str, Any], tmp_path: Path
) -> None:
    board = make_board("preloaded", claim_ttl=1)
    kept = board.post("kept")
    numbers = range(REQUESTS)
    board.post_many({"name": "small", "details": {"number": number}} for number in numbers)
    log = tmp_path / "gunicorn.log"
    with gunicorn({**board_conf, "claim_ttl": 1}, log) as address, ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda _: ask(f"{address}/small"), numbers))
        assert sorted(each["number"] for each in done) == list(numbers), log.read_text()
        # Which worker gets a request is the kernel's choice: both have to have had some.
        workers = {each["pid"] for each in done}

        def both_have_worked() -> bool:
            board.post_many([{"name": "small", "details": {"number": -1}}] * 8)
            workers.update(each["pid"] for each in pool.map(ask, [f"{address}/small"] * 8))
            return len(workers) == 2

        eventually(both_have_worked)
        # What the parent has claimed is the parent's: no child can end it, and its heartbeat goes on.
        for _ in range(4):
            assert ask(f"{address}/steal") == {"outcome": "refused", "lost": True}
        token = board.get(kept.uuid)._record.token
        first = board.get(kept.uuid)._record.lock_until
        eventually(lambda: board.get(kept.uuid)._record.lock_until != first)
        assert board.find_owner(kept) == "preloader"
        assert board.get(kept.uuid)._record.token == token
    assert "Traceback" not in log.read_text()
    # Nobody gave the claim back, and with its process gone nobody keeps it either.
    eventually(lambda: board.find_owner(kept) is None, 10)
