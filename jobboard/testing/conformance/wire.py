"""The way between a board and its server, for tests that stop a request on it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import pytest

import jobboard
from jobboard.board import JobBoard
from jobboard.testing.conformance.support import LIMIT, Background
from jobboard.testing.faults import FaultyProxy

BLOCKED = 0.2
"""Seconds after which what others do is taken to wait for a lock that the stopped call holds."""

QUIET = 600
"""The ``claim_ttl`` of boards behind the proxy, in seconds: no ping and no heartbeat counts as a request of a call."""


class Far:
    """A board behind the proxy. All that it does runs on one thread, whose connection is open."""

    def __init__(self, board: JobBoard, proxy: FaultyProxy) -> None:
        self.board = board
        self.proxy = proxy
        self._thread = ThreadPoolExecutor(1)

    def begin(self, call: Callable[..., Any], *args: Any) -> Future[Any]:
        """Call it there; ``result(LIMIT)`` of the answer is what came of it."""
        return self._thread.submit(call, *args)

    def __call__(self, call: Callable[..., Any], *args: Any) -> Any:
        return self.begin(call, *args).result(LIMIT)

    def end(self) -> None:
        self._thread.shutdown()


class Wire:
    """Makes boards whose requests can be stopped on their way; false where there is no such way."""

    def __init__(self, board: JobBoard, conf: dict[str, Any], proxy: FaultyProxy | None) -> None:
        self._name = board.name
        self._conf = conf
        self._proxy = proxy
        self._locks = board.characteristics.transactional
        self._stack = contextlib.ExitStack()
        self._first: Far | None = None
        if proxy is not None:
            counter = proxy.counter()
            self._first = self._make()
            counter.count = 0
            self._first(self._first.board.stats)
            if not counter.count:
                # What stands in the configuration only tells where the server is.
                self._proxy = None

    def __bool__(self) -> bool:
        return self._proxy is not None

    def far(self, **options: Any) -> Far:
        """Another handle on the test's board, through the proxy; the same one again where there are no options."""
        assert self._proxy is not None, "there is no way between this board and its server"
        assert self._first is not None
        return self._make(**options) if options else self._first

    def _make(self, **options: Any) -> Far:
        assert self._proxy is not None
        uri = self._proxy.uri_for(self._conf["board"])
        board = jobboard.fetch(self._name, {**self._conf, "claim_ttl": QUIET, "board": uri, **options})
        self._stack.callback(board.close)
        board.connect()
        far = Far(board, self._proxy)
        self._stack.callback(far.end)
        return far

    def patience(self, nth: int) -> float:
        """Return the seconds to wait for others while the ``nth`` request of a call is stopped. From its second one on,
        the call may hold locks where there are transactions."""
        return BLOCKED if self._locks and nth > 1 else LIMIT

    def meanwhile(self, nth: int, act: Callable[[], object]) -> Background:
        """Do it while the ``nth`` request of a call is stopped, or begin to, where it waits for that call."""
        began = Background(act)
        began.join(self.patience(nth))
        return began

    def end(self) -> None:
        self._stack.close()


def _address(conf: dict[str, Any]) -> tuple[str, int] | None:
    """Return the address of the board's first server; None where it has no connection."""
    where = urlsplit(conf["board"]).netloc.rpartition("@")[2].partition(",")[0]
    host, _, port = where.rpartition(":")
    return (host, int(port)) if host else None


@pytest.fixture
def wire(board: JobBoard, board_conf: dict[str, Any]) -> Iterator[Wire]:
    address = _address(board_conf)
    with contextlib.nullcontext() if address is None else FaultyProxy(*address) as proxy:
        wire = Wire(board, board_conf, proxy)
        yield wire
        wire.end()
