"""A notifier whose callbacks may be coroutine functions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jobboard.notifier import Callback, Notifier, is_coroutine

GetLoop = Callable[[], asyncio.AbstractEventLoop]


class _OnLoop:
    """Calls a coroutine function from another thread and waits for its end, so that callbacks follow each other, and
    an error is logged where all are. Equal to any other of the same function."""

    def __init__(self, callback: Callback, loop: GetLoop) -> None:
        self._callback = callback
        self._loop = loop

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        exit_ = asyncio.run_coroutine_threadsafe(self._call(*args, **kwargs), self._loop()).result()
        if exit_ is not None:
            raise exit_

    async def _call(self, *args: Any, **kwargs: Any) -> SystemExit | None:
        try:
            await self._callback(*args, **kwargs)
        except SystemExit as exit_:
            # It would end the loop; on the other thread it is an error like any.
            return exit_
        return None

    def __eq__(self, other: object) -> bool:
        return self._callback == (other._callback if isinstance(other, _OnLoop) else other)

    def __hash__(self) -> int:
        return hash(self._callback)


class AsyncNotifier:
    """A board's or a conductor's :class:`~jobboard.notifier.Notifier`, which takes coroutine functions, too: these run
    on ``loop()``, or (None) on the loop that this was made in, or else that they were registered in. Plain functions
    are called on the notifier's thread.

    Where a board hears what others do (``remote_events``), the first ``register`` and the last ``deregister`` have the
    server told, and wait for its answer: ``await board.call(board.notifier.register, event, callback)`` leaves that to
    a thread.
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
        """As :meth:`Notifier.register <jobboard.notifier.Notifier.register>`."""
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
    """What a notifier's thread can call."""
    if not is_coroutine(callback):
        return callback
    return _OnLoop(callback, loop or _this_loop())


def _this_loop() -> GetLoop:
    """:raises RuntimeError: there is none."""
    loop = asyncio.get_running_loop()
    return lambda: loop
