"""A process of its own that holds a board and does as it is told: commands and answers are lines of JSON.

Run as ``python -m jobboard.testing.puppet NAME CONF SKEW``; ends when its standard input does, without
closing the board, as nothing of the library runs at exit.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import jobboard
from jobboard import runtime
from jobboard.board import JobBoard
from jobboard.exceptions import JobBoardError
from jobboard.job import Entity, Job, Posting


class Puppet:
    """The strings: ``puppet('claim_next', 'anna')`` calls that method over there and gives its answer."""

    def __init__(self, name: str, conf: dict[str, Any], skew: float = 0) -> None:
        """:param skew: by how many seconds the clock of that process goes ahead."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, name, json.dumps(conf), str(skew)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, verb: str, *arguments: Any, **named: Any) -> None:
        """Give a command without waiting for its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([verb, arguments, named]) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process has ended"
        return json.loads(line)

    def __call__(self, verb: str, *arguments: Any, **named: Any) -> Any:
        self.tell(verb, *arguments, **named)
        return self.answer()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)
        if number == signal.SIGSTOP:
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


class _Doer:
    """The acts of a puppet."""

    def __init__(self, board: JobBoard) -> None:
        self.board = board
        self.job: Job | None = None

    def post(self, name: str, delay: float | None = None) -> str:
        return self.board.post(name, delay=delay).uuid

    def claim_next(self, who: str, expiry: float | None = None, timeout: float = 0) -> list[Any] | None:
        self.job = self.board.claim_next(who, expiry=expiry, timeout=timeout)
        if self.job is None or self.job.claim is None:
            return None
        return [self.job.uuid, self.job.claim.token]

    def register(self, name: str) -> str:
        self.board.register_entity(Entity("puppet", name, {}))
        return "ok"

    def lost(self) -> bool:
        return self.job is not None and self.job.claim is not None and self.job.claim.lost

    def consume(self, who: str, then: Sequence[dict[str, Any]] = ()) -> str:
        assert self.job is not None
        self.board.consume(self.job, who, then=then)
        return "ok"

    def chain(self, who: str) -> str:
        """Work on links for ever: each has the next one as its follow-up."""
        while True:
            for job in self.board.claim_many(who, 4, names=["link"], timeout=None):
                self.board.consume(job, who, then=[Posting("link", details={**job.details, "n": job.details["n"] + 1})])

    def extend(self, who: str) -> str:
        assert self.job is not None
        self.board.extend(self.job, who)
        return "ok"

    def state(self, uuid: str) -> str:
        return self.board.get(uuid).seen_state

    def schedule(self, schedule: str, name: str, every: float) -> str:
        return self.board.schedule(schedule, name=name, every=every).next_due.isoformat()

    def post_due(self) -> float | None:
        return self.board.post_due()

    def close(self) -> None:
        self.board.close()


def set_clock(ahead: float) -> None:
    """Set a wrong time of day in this process. Intervals stay as they are."""
    right, right_ns = time.time, time.time_ns
    time.time = lambda: right() + ahead
    time.time_ns = lambda: right_ns() + int(ahead * 1e9)
    runtime.wall_time = time.time  # type: ignore[assignment]


def main() -> None:
    name, conf, skew = sys.argv[1:]
    set_clock(float(skew))
    board = jobboard.fetch(name, json.loads(conf))
    board.connect()
    doer = _Doer(board)
    for line in sys.stdin:
        verb, arguments, named = json.loads(line)
        try:
            answer = getattr(doer, verb)(*arguments, **named)
        except JobBoardError as error:
            answer = type(error).__name__
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
