"""Waiting for a socket, and for how long."""

from __future__ import annotations

import logging
import math
import select
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

LOG = logging.getLogger(__name__)


_PATIENCE = 5.0
"""For how many seconds a server may be silent in the middle of a message, or while a connection is made."""


class Impatient:
    """Before one of kazoo's handlers: a server that says nothing is given up within seconds.

    kazoo waits for the answer to a new connection as long as a session lasts. But a server that is starting swallows
    what comes too early (3.8 does so in a few tenths of a second, and closes nothing); and one that is frozen accepts
    connections, too. The session would be over before another server, or the same one, is tried."""

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        kwargs["timeout"] = min(_PATIENCE, kwargs.get("timeout") or _PATIENCE)
        return super().create_connection(*args, **kwargs)  # type: ignore[misc]

    def select(
        self, rlist: Sequence[Any], wlist: Sequence[Any], xlist: Sequence[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        # An idle connection waits for two: for the server, and for something to send.
        if len(rlist) + len(wlist) == 1:
            timeout = min(_PATIENCE, timeout or _PATIENCE)
        return self._select(rlist, wlist, xlist, timeout)

    def _select(
        self, rlist: Sequence[Any], wlist: Sequence[Any], xlist: Sequence[Any], timeout: float | None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        found: tuple[list[Any], list[Any], list[Any]] = super().select(rlist, wlist, xlist, timeout)  # type: ignore[misc]
        return found


def impatient(kind: type) -> Any:
    """One of kazoo's handlers, such that it is."""
    return type(kind.__name__, (Impatient, kind), {"__module__": kind.__module__})()


class PollingHandler(Impatient, SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's handler for threads, but for how its threads end, and how it waits: for one request it does so five
    times, and each time kazoo's own makes a selector and throws it away, which costs more than all the rest."""

    def spawn(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        def run() -> None:
            try:
                func(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - its callers are told by what they wait for
                LOG.warning("kazoo has given up a connection to ZooKeeper: %s", error)

        return super().spawn(run)

    def _select(
        self, rlist: Sequence[Any], wlist: Sequence[Any], xlist: Sequence[Any], timeout: float | None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        # Windows has none.
        if not hasattr(select, "poll"):
            return super()._select(rlist, wlist, xlist, timeout)
        readers = {each.fileno(): each for each in rlist}
        writers = {each.fileno(): each for each in wlist}
        poll = select.poll()
        for number in readers.keys() | writers.keys():
            poll.register(
                number, (select.POLLIN if number in readers else 0) | (select.POLLOUT if number in writers else 0)
            )
        events = poll.poll(None if timeout is None else math.ceil(timeout * 1000))
        # A broken connection is readable and writable: whoever tries is told how it broke.
        return (
            [readers[number] for number, event in events if number in readers and event != select.POLLOUT],
            [writers[number] for number, event in events if number in writers and event != select.POLLIN],
            [],
        )
