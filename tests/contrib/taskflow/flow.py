"""A flow of several tasks, and a conductor's process that runs it: ``python flow.py <conf> <logbooks> <name>``."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from taskflow import engines, task
from taskflow.conductors import backends as conductors
from taskflow.jobs import backends as boards
from taskflow.patterns import linear_flow
from taskflow.persistence import backends as persistences
from taskflow.persistence import models

STEPS = ("fetch", "resize", "store")
GATE = "resize"
"""This step goes on only when the file ``go`` is there."""


class Step(task.Task):
    def execute(self, folder: str) -> int:
        with Path(folder, "steps").open("a") as steps:
            steps.write(f"{self.name} {os.getpid()}\n")
        limit = time.monotonic() + 60
        while self.name == GATE and not Path(folder, "go").exists() and time.monotonic() < limit:
            time.sleep(0.01)
        return os.getpid()


def make_flow() -> Any:
    return linear_flow.Flow("pictures").add(*(Step(name, provides=f"{name}_by") for name in STEPS))


@contextlib.contextmanager
def logbooks(uri: str) -> Iterator[Any]:
    """Where the logbooks are, with all that they need there."""
    with contextlib.closing(persistences.fetch({"connection": uri})) as persistence:
        with contextlib.closing(persistence.get_connection()) as connection:
            connection.upgrade()
        yield persistence


def post(board: Any, persistence: Any, folder: Path) -> Any:
    """Post a job that says by its logbook what to run, as Octavia does."""
    book, detail = models.LogBook("pictures"), models.FlowDetail("pictures", "f1")
    book.add(detail)
    with contextlib.closing(persistence.get_connection()) as connection:
        connection.save_logbook(book)
    engines.save_factory_details(detail, make_flow, (), {}, backend=persistence)
    return board.post("pictures", book, {"store": {"folder": str(folder)}})


def main(conf: str, uri: str, name: str) -> None:
    persistence = persistences.fetch({"connection": uri})
    with boards.backend(name, json.loads(conf), persistence=persistence) as board:
        conductors.fetch("blocking", name, board, persistence=persistence, wait_timeout=0.1).run()


if __name__ == "__main__":
    # As the logbook names what to run.
    sys.path.insert(0, str(Path(__file__).parents[3]))
    from tests.contrib.taskflow import flow

    flow.main(*sys.argv[1:])
