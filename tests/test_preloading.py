"""A server that connects first and forks afterwards, as gunicorn does with ``--preload``."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import jobboard
from jobboard.testing import eventually
from tests.support.programs import gunicorn

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")

ROOT = Path(__file__).parents[1]
REQUESTS = 60


def ask(address: str) -> dict[str, Any]:
    with urllib.request.urlopen(address, timeout=30) as reply:
        answer: dict[str, Any] = json.load(reply)
    return answer


@pytest.mark.rule("A gunicorn that preloads a connected board forks workers with connections of their own.")
def test_workers_forked_after_connect(
    make_board: Callable[..., jobboard.JobBoard], board_conf: dict[str, Any], tmp_path: Path
) -> None:
    board = make_board("preloaded")
    kept = board.post("kept")
    numbers = range(REQUESTS)
    board.post_many({"name": "small", "details": {"number": number}} for number in numbers)
    log = tmp_path / "gunicorn.log"
    env = {"PRELOADED_CONF": json.dumps({**board_conf, "claim_ttl": 3})}
    served = gunicorn("tests.support.preloaded:application", ROOT, log, "--preload", "--workers", "2", **env)
    with served as address, ThreadPoolExecutor(8) as pool:
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
        token = board.get(kept.uuid).record.token
        first = board.get(kept.uuid).record.lock_until
        eventually(lambda: board.get(kept.uuid).record.lock_until != first)
        assert board.find_owner(kept) == "preloader"
        assert board.get(kept.uuid).record.token == token
    assert "Traceback" not in log.read_text()
    # Nobody gave the claim back, and with its process gone nobody keeps it either.
    eventually(lambda: board.find_owner(kept) is None)
