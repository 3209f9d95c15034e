"""Ends of commands and Python blocks that would run for ever: the conditions of ``.. stop:``."""

from __future__ import annotations

import contextlib
import gc
import itertools
import re
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jobboard

LOOK = 0.05
"""Seconds between two looks."""

PATIENCE = 2.0
"""Seconds after which a board without any job since the beginning is idle."""

Boards = Callable[[], list[Any]]


class Ending:
    """Calls ``end`` once a condition holds, unless its context is left before.

    :param condition: ``idle``, ``empty``, seconds, or a text in quotes that is printed.
    :param output: the file of all that is printed.
    :param boards: gives the boards to look at, none while they can't be found.
    """

    def __init__(self, condition: str, output: Path, boards: Boards, end: Callable[[], object]) -> None:
        self._condition, self._output, self._boards, self._end = condition, output, boards, end
        self._began = time.monotonic()
        self._has_been_busy = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="ending", daemon=True)

    def __enter__(self) -> Ending:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(LOOK):
            # A board without its tables yet, or a process that has just ended.
            with contextlib.suppress(jobboard.JobBoardError, OSError):
                if self._holds():
                    self._end()
                    return

    def _holds(self) -> bool:
        passed = time.monotonic() - self._began
        if self._condition.startswith('"'):
            return self._condition.strip('"') in self._output.read_text(errors="replace")
        if self._condition not in ("idle", "empty"):
            return passed > float(self._condition)
        boards = self._boards()
        stats = [board.stats() for board in boards]
        if self._condition == "empty":
            left = sum(each.on_board for each in stats)
        else:
            left = sum(each.unclaimed + each.claimed for each in stats)
        self._has_been_busy = self._has_been_busy or left > 0
        return bool(boards) and left == 0 and (self._has_been_busy or passed > PATIENCE)


def boards_here() -> list[Any]:
    """Return the connected boards of this process."""
    return [each for each in gc.get_objects() if isinstance(each, jobboard.JobBoard) and each.connected]


class BoardsOfProcesses:
    """The boards of other processes: by their options, their environment, or else by the first call in the page."""

    CALL = re.compile(r"""\b(?:fetch|backend)\(\s*["']([\w-]+)["'],\s*["'](\w+:/[^"']*)["']""")

    def __init__(self, text: str) -> None:
        self._called = self.CALL.findall(text)[:1]
        self._open: dict[tuple[str, str], Any] = {}

    def __call__(self, pids: Iterable[int]) -> list[Any]:
        for pid in pids:
            if found := [*self._named(pid), *self._called][:1]:
                return [self._opened(*found[0])]
        return []

    @staticmethod
    def _named(pid: int) -> list[tuple[str, str]]:
        process = Path(f"/proc/{pid}")
        words = process.joinpath("cmdline").read_text().split("\0")
        options = dict(itertools.pairwise(words))
        environment = dict(word.split("=", 1) for word in process.joinpath("environ").read_text().split("\0") if word)
        uri = options.get("--board") or environment.get("JOBBOARD_URL")
        name = options.get("--name") or environment.get("JOBBOARD_NAME") or "jobboard"
        return [(name, uri)] if uri else []

    def _opened(self, name: str, uri: str) -> Any:
        if (name, uri) not in self._open:
            board = jobboard.fetch(name, {"board": uri, "auto_setup": False})
            board.connect()
            self._open[name, uri] = board
        return self._open[name, uri]

    def close(self) -> None:
        for board in self._open.values():
            board.close()
