"""Blocking calls, made by coroutines on a bounded number of threads."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, ParamSpec, TypeVar

from jobboard import logs
from jobboard.threads import started

LOG = logs.Log(__name__)

P = ParamSpec("P")
T = TypeVar("T")

IDLE = 30.0
"""After so many seconds without a call a thread ends."""


class Threads:
    """At most ``count`` threads, started as they are needed. Each call runs in a copy of its caller's context.

    They are daemons, other than those of :mod:`concurrent.futures`: one that sleeps for somebody who waits must not
    keep a process from ending whose loop has ended without a word.
    """

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._count = count
        self._news = threading.Condition()
        self._calls: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._threads = self._idle = 0
        self._closed = False

    def begin(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """
        :raises RuntimeError: there is no thread, and none can be started; the call is not made.
        """
        future: Future[T] = Future()
        call = functools.partial(contextvars.copy_context().run, functools.partial(function, *args, **kwargs))
        with self._news:
            self._closed = False
            if len(self._calls) < self._idle:
                self._news.notify()
            elif self._threads < self._count:
                self._start_one()
            self._calls.append((future, call))
        return future

    def _start_one(self) -> None:
        try:
            started(self._name, self._serve)
        except RuntimeError as error:
            if not self._threads:
                raise
            LOG.warning("%s goes on with %d threads: %s", self._name, self._threads, error)
        else:
            self._threads += 1

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Cancelled, a call that has not begun is not made; the end of one that has is not waited for."""
        return await asyncio.wrap_future(self.begin(function, *args, **kwargs))

    def close(self) -> None:
        """Let the threads end, each after its call. A later call starts others."""
        with self._news:
            self._closed = True
            self._news.notify_all()

    def _serve(self) -> None:
        while (taken := self._take()) is not None:
            future, call = taken
            if future.set_running_or_notify_cancel():
                try:
                    result = call()
                except BaseException as error:  # noqa: BLE001 - it is the caller's
                    future.set_exception(awaitable(error))
                else:
                    future.set_result(result)
                    del result
            # What is waited for next must not keep alive what was done last.
            del taken, future, call

    def _take(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        with self._news:
            while not self._calls:
                self._idle += 1
                told = not self._closed and self._news.wait(IDLE)
                self._idle -= 1
                if not told and not self._calls:
                    self._threads -= 1
                    return None
            return self._calls.popleft()


def awaitable(error: BaseException) -> BaseException:
    """What who awaits a future can be told in place of ``error``. A StopIteration would end the coroutine as if it had
    returned, and so no future takes it."""
    if not isinstance(error, StopIteration):
        return error
    told = RuntimeError("the call raised StopIteration")
    told.__cause__ = error
    return told


async def outlast(begun: Future[T] | asyncio.Future[T], cancelled: Callable[[], object] = lambda: None) -> T:
    """Wait for the end of a call, however often this task is cancelled meanwhile. That goes no further: it is for who
    goes on for the sake of others, or knows of a cancellation already.

    :param cancelled: what to do each time, to have the call end soon.
    """
    waited = asyncio.wrap_future(begun)
    while not waited.done():
        try:
            await asyncio.wait([waited])
        except asyncio.CancelledError:
            cancelled()
    return waited.result()


async def see_through(begun: Future[T], cancelled: Callable[[], object] = lambda: None) -> T:
    """The same for everybody else: if this task was cancelled meanwhile, that goes on then, in place of what the call
    has answered or raised."""
    interrupted = False

    def interrupt() -> None:
        nonlocal interrupted
        interrupted = True
        cancelled()

    try:
        return await outlast(begun, interrupt)
    except Exception as error:
        if interrupted:
            LOG.warning("whoever is cancelled is not told that it has failed: %s: %s", type(error).__name__, error)
        raise
    finally:
        if interrupted:
            raise asyncio.CancelledError
