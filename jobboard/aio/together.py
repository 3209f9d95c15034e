"""What many coroutines ask for at once, asked by one request."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from typing import Generic, TypeVar

from jobboard.aio.threads import Threads
from jobboard.base import BATCH

T = TypeVar("T")

_Asker = tuple[T, "asyncio.Future[None]"]


class Together(Generic[T]):
    """One request at a time for each event loop: who comes while one is under way is answered by the next.

    :param ask: on one of the threads: finds out what is to be known of up to a hundred things.
    """

    def __init__(self, threads: Threads, ask: Callable[[list[T]], object]) -> None:
        self._threads = threads
        self._ask = ask
        # Of each loop in which there is somebody, and with whoever asks for them.
        self._askers: dict[asyncio.AbstractEventLoop, tuple[list[_Asker[T]], asyncio.Task[None]]] = {}

    async def __call__(self, thing: T) -> None:
        """Returns when it has been asked for, by a request that began after this."""
        loop = asyncio.get_running_loop()
        asker = thing, loop.create_future()
        if loop in self._askers:
            self._askers[loop][0].append(asker)
        else:
            askers = [asker]
            # It begins behind those that are to run at this moment, and so asks for all of them.
            self._askers[loop] = askers, loop.create_task(self._serve(loop, askers))
        await asker[1]

    async def _serve(self, loop: asyncio.AbstractEventLoop, askers: list[_Asker[T]]) -> None:
        served: list[_Asker[T]] = []
        try:
            while askers:
                served, askers[:BATCH] = askers[:BATCH], []
                await self._answer([(thing, told) for thing, told in served if not told.done()])
        finally:
            del self._askers[loop]
            # Whoever ends the loop has cancelled this, and them.
            for _, told in (*served, *askers):
                told.cancel()

    async def _answer(self, askers: list[_Asker[T]]) -> None:
        error: Exception | None = None
        try:
            if askers:
                await self._threads.call(self._ask, [thing for thing, _ in askers])
        except Exception as its:  # noqa: BLE001 - it is theirs who ask
            error = its
        for _, told in askers:
            if told.done():
                continue
            if error is None:
                told.set_result(None)
            else:
                told.set_exception(own_copy(error))


def own_copy(error: BaseException) -> BaseException:
    """For one of several who are told of it: each adds to it what is its own, a traceback for instance. One that can't
    be copied, having a constructor of its own, they share."""
    try:
        own = copy.copy(error)
    except Exception:  # noqa: BLE001 - the constructor is called with what it does not take
        return error
    own.__cause__ = error
    return own
