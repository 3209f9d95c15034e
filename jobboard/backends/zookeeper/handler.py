"""Waiting for a socket."""

from __future__ import annotations

import logging
import math
import select
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

LOG = logging.getLogger(__name__)


class PollingHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's handler for threads, but for how its threads end, and how it waits: for one request it does so five
    times, and each time kazoo's own makes a selector and throws it away, which costs more than all the rest."""

    def spawn(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        def run() -> None:
            try:
                func(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - its callers are told by what they wait for
                LOG.warning("kazoo has given up a connection to ZooKeeper: %s", error)

        return super().spawn(run)

    def select(
        self, rlist: Sequence[Any], wlist: Sequence[Any], xlist: Sequence[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        # Windows has none.
        if not hasattr(select, "poll"):
            found: tuple[list[Any], list[Any], list[Any]] = super().select(rlist, wlist, xlist, timeout)
            return found
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
