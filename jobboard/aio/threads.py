"""Blocking calls of coroutines, on a bounded number of threads.

:class:`concurrent.futures.ThreadPoolExecutor` does not fit. Its threads hold up the end of a process whose loop has
ended while one of them sleeps for a waiter. If no thread can be started, it raises although the call is queued and
another thread may make it: a claim that nobody knows of.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, ParamSpec, TypeVar

from jobboard import logs, runtime
from jobboard.threads import started

LOG = logs.Log(__name__)

P = ParamSpec("P")
T = TypeVar("T")

IDLE = 30.0
"""Seconds without a call after which a thread ends."""


class Threads:
    """A pool of at most ``count`` daemon threads, started as needed. A call has a copy of its caller's context."""

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._count = count
        self._news = runtime.Condition()
        self._calls: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._threads = self._idle = 0
        self._closed = False

    def begin(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue a call.

        :raises RuntimeError: it needs another thread, and the system starts no more; the call is not made.
        """
        future: Future[T] = Future()
        call = functools.partial(contextvars.copy_context().run, functools.partial(function, *args, **kwargs))
        with self._news:
            self._closed = False
            if len(self._calls) >= self._idle and self._threads < self._count:
                started(self._name, self._serve)
                self._threads += 1
            self._calls.append((future, call))
            self._news.notify()
        return future

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make a call. A cancelled one is not made if it has not begun; otherwise it goes on, and is not waited for."""
        return await asyncio.wrap_future(self.begin(function, *args, **kwargs))

    def close(self) -> None:
        """Let each thread end after the calls that are queued. A later call starts another one."""
        with self._news:
            self._closed = True
            self._news.notify_all()

    def _serve(self) -> None:
        while True:
            with self._news:
                self._idle += 1
                self._news.wait_for(lambda: self._calls or self._closed, IDLE)
                self._idle -= 1
                if not self._calls:
                    self._threads -= 1
                    return
                future, call = self._calls.popleft()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except StopIteration as error:
                    # No future takes it, as it would end the coroutine as if that had returned.
                    told = RuntimeError("the call raised StopIteration")
                    told.__cause__ = error
                    future.set_exception(told)
                except BaseException as error:  # noqa: BLE001 - raised by the coroutine that awaits the call
                    future.set_exception(error)
            # The wait for the next call must not keep these alive.
            del future, call


async def outlast(begun: Future[T] | asyncio.Future[T], cancelled: Callable[[], object] = lambda: None) -> T:
    """Wait for the end of a call, and swallow every cancellation of this task meanwhile.

    For tasks that serve others, and for tasks that know already that they are cancelled.

    :param cancelled: called each time, to make the call end soon.
    """
    waited = asyncio.wrap_future(begun)
    while not waited.done():
        try:
            await asyncio.wait([waited])
        except asyncio.CancelledError:
            cancelled()
    return waited.result()


async def see_through(begun: Future[T], cancelled: Callable[[], object] = lambda: None) -> T:
    """Wait for the end of a call. A cancellation of this task meanwhile is raised then, in place of the outcome."""
    interrupted = False

    def interrupt() -> None:
        nonlocal interrupted
        interrupted = True
        cancelled()

    try:
        return await outlast(begun, interrupt)
    except GeneratorExit:
        # The loop was closed, and a coroutine that is destroyed raises nothing else.
        interrupted = False
        raise
    except Exception as error:
        if interrupted:
            LOG.warning("a cancelled task does not get this error: %s: %s", type(error).__name__, error)
        raise
    finally:
        if interrupted:
            raise asyncio.CancelledError
