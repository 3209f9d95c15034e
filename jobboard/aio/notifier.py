"""The notifier for asyncio, which takes coroutine functions, too."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from typing import Any

from jobboard.notifier import Callback, Notifier, is_coroutine

GetLoop = Callable[[], asyncio.AbstractEventLoop]

CHECK = 0.5
"""Seconds between two checks by the notifier's thread that the loop of a callback is open."""


class _OnLoop:
    """A coroutine function as a plain one, for the notifier's thread, which waits for its end.

    Two of the same function are equal, and equal to it, so that ``deregister`` finds the callback.
    """

    def __init__(self, callback: Callback, loop: GetLoop) -> None:
        self._callback = callback
        self._loop = loop

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        loop, call = self._loop(), self._callback(*args, **kwargs)
        if not loop.is_closed():
            begun = asyncio.run_coroutine_threadsafe(call, loop)
            while not futures.wait([begun], CHECK).done and not loop.is_closed():
                pass
            if begun.done():
                begun.result()
                return
        # A closed loop runs nothing that was scheduled before, and other listeners are not to wait for it.
        call.close()
        raise RuntimeError("the event loop of this listener is closed")

    def __eq__(self, other: object) -> bool:
        return self._callback == (other._callback if isinstance(other, _OnLoop) else other)

    def __hash__(self) -> int:
        return hash(self._callback)


class AsyncNotifier:
    """The :class:`~jobboard.notifier.Notifier` of a board or a conductor.

    Coroutine functions run on ``loop()``: by default the loop in which this object was made, or else the loop in which
    they are registered. Plain functions run on the notifier's thread.

    Where a board reports the acts of other processes (``remote_events``), the first ``register`` and the last
    ``deregister`` send a request: ``await board.call(board.notifier.register, event, callback)`` does so on a thread.
    """

    ANY = Notifier.ANY

    def __init__(self, notifier: Notifier, loop: GetLoop | None = None) -> None:
        self._notifier = notifier
        if loop is None:
            with contextlib.suppress(RuntimeError):
                loop = _this_loop()
        self._loop = loop

    def register(
        self,
        event: str,
        callback: Callback,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        details_filter: Callable[[dict[str, Any]], bool] | None = None,
    ) -> None:
        """See :meth:`Notifier.register <jobboard.notifier.Notifier.register>`."""
        self._notifier.register(event, callback_of(callback, self._loop), args, kwargs, details_filter)

    def deregister(self, event: str, callback: Callback) -> bool:
        return self._notifier.deregister(event, callback)

    def is_registered(self, event: str, callback: Callback) -> bool:
        return self._notifier.is_registered(event, callback)

    def reset(self) -> None:
        self._notifier.reset()

    @property
    def listened_to(self) -> bool:
        return self._notifier.listened_to


def callback_of(callback: Callback, loop: GetLoop | None) -> Callback:
    """Return a callback that a notifier's thread can call."""
    if not is_coroutine(callback):
        return callback
    return _OnLoop(callback, loop or _this_loop())


def _this_loop() -> GetLoop:
    """
    :raises RuntimeError: no loop is running.
    """
    loop = asyncio.get_running_loop()
    return lambda: loop
