"""Notifiers: events of a board or a conductor, and their listeners.

Callbacks run one after the other on a single thread of their own, so that a slow or broken listener can't hold up
or break a claim. Where nobody listens, an event costs a dictionary look-up.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jobboard import logs, runtime
from jobboard.forks import ForkGuard
from jobboard.threads import started

LOG = logs.Log(__name__)

# Events. TRASHED and CLAIMED are also states: see jobboard.states.

POSTED = "POSTED"
CLAIMED = "CLAIMED"
ABANDONED = "ABANDONED"
EXTENDED = "EXTENDED"
CONSUMED = "CONSUMED"
TRASHED = "TRASHED"
RELEASED = "RELEASED"
REMOVAL = "REMOVAL"
LOST = "LOST"
ANY = "*"

REMOTE = frozenset({POSTED, CLAIMED, ABANDONED, EXTENDED, CONSUMED, TRASHED, RELEASED, REMOVAL})
"""The events that other processes may hear of. Only the holder of a claim hears of its loss."""

EVENTS = REMOTE | {LOST}

DELIVERY = 5.0

Callback = Callable[..., Any]

_telling: contextvars.ContextVar[Notifier | None] = contextvars.ContextVar("telling", default=None)
"""The notifier whose callback runs in this context."""


class _Registration(NamedTuple):
    callback: Callback
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    accepts: Callable[[dict[str, Any]], bool] | None


class Notifier:
    """Calls ``callback(event, details, *args, **kwargs)`` for each event that it was registered for.

    ``on_listening`` is told when the first listener comes and when the last one goes. ``details`` is a dict with the
    ``job`` that the event is about. :data:`REMOVAL` comes beside CONSUMED and TRASHED: the job has left the board.
    """

    ANY = ANY

    def __init__(
        self,
        name: str = "jobboard",
        on_listening: Callable[[bool], None] = lambda on: None,
        events: frozenset[str] = EVENTS,
    ) -> None:
        self._name = name
        self._on_listening = on_listening
        self._events = events
        self._listeners: dict[str, list[_Registration]] = {}
        self._after_fork()

    def _after_fork(self) -> None:
        """Begin again in a forked child, which has neither the thread nor a lock in a known state. Keep listeners."""
        self._lock = runtime.Lock()
        self._queue: runtime.SimpleQueue[tuple[str, dict[str, Any]] | None] = runtime.SimpleQueue()
        self._thread: runtime.Thread | None = None

    def register(
        self,
        event: str,
        callback: Callback,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        details_filter: Callable[[dict[str, Any]], bool] | None = None,
    ) -> None:
        """Call ``callback`` on every ``event`` (:data:`ANY` for all), if ``details_filter(details)`` is true.

        :raises ValueError: no such event, or this callback is registered for it already.
        :raises TypeError: it can't be called, or is a coroutine function, which nobody would await.
        """
        if event != ANY and event not in self._events:
            raise ValueError(f"there is no event {event!r}; events are {', '.join(sorted(self._events))} and '*'")
        check_callback("a callback", callback)
        with self._lock:
            if self.is_registered(event, callback):
                raise ValueError(f"this callback is registered for {event} already")
            listeners = self._listeners.get(event, [])
            listener = _Registration(callback, tuple(args or ()), dict(kwargs or {}), details_filter)
            first = not self._listeners
            self._listeners[event] = [*listeners, listener]
        if first:
            self._on_listening(True)

    def deregister(self, event: str, callback: Callback) -> bool:
        """Stop calling ``callback`` on ``event``. Return whether it was registered."""
        with self._lock:
            before = self._listeners.get(event, [])
            after = [listener for listener in before if listener.callback != callback]
            if after:
                self._listeners[event] = after
            else:
                self._listeners.pop(event, None)
            last = bool(before) and not self._listeners
        if last:
            self._on_listening(False)
        return len(after) < len(before)

    def is_registered(self, event: str, callback: Callback) -> bool:
        return any(listener.callback == callback for listener in self._listeners.get(event, ()))

    def reset(self) -> None:
        """Forget every listener."""
        with self._lock:
            self._listeners.clear()
        self._on_listening(False)

    @property
    def listened_to(self) -> bool:
        return bool(self._listeners)

    def notify(self, event: str, details: dict[str, Any]) -> None:
        """Tell the listeners, soon and on another thread."""
        if not self._listeners or not (event in self._listeners or ANY in self._listeners):
            return
        with self._lock:
            if self._thread is None:
                try:
                    self._thread = started(f"{self._name}-notifier", self._run)
                except RuntimeError as error:
                    # The act has happened. Its caller must not fail for a thread that does not start.
                    LOG.error("nobody is told of %s: %s", event, error)
                    return
            self._queue.put((event, details))

    def close(self, seconds: float | None = None) -> None:
        """Deliver queued events, for at most 5 seconds or as given, then end the thread. A later event starts one."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is not None:
                self._queue.put(None)
        # A callback that closes its board is not waited for, on any thread.
        if thread is not None and _telling.get() is not self:
            thread.join(DELIVERY if seconds is None else min(seconds, DELIVERY))

    def _run(self) -> None:
        _telling.set(self)
        while (item := self._queue.get()) is not None:
            event, details = item
            for listener in [*self._listeners.get(event, ()), *self._listeners.get(ANY, ())]:
                try:
                    with ForkGuard():
                        if listener.accepts is None or listener.accepts(details):
                            listener.callback(event, details, *listener.args, **listener.kwargs)
                except BaseException:
                    # SystemExit, too, would end this thread, and with it all that others are told.
                    job = details.get("job")
                    LOG.exception("a listener of %s failed", event, extra=None if job is None else logs.fields(job))


def check_callback(what: str, callback: Any) -> None:
    """
    :raises TypeError: to call it is not to do its work.
    """
    if not callable(callback):
        raise TypeError(f"{what} must be callable, not {type(callback).__name__}")
    if is_coroutine(callback):
        raise TypeError(f"{what} must be a plain function: coroutine functions are for jobboard.aio")


def is_coroutine(function: Any) -> bool:
    """Return whether the answer of a call is to be awaited; also of an instance whose ``__call__`` is a coroutine
    function."""
    while isinstance(function, functools.partial):
        function = function.func
    called = type(function).__call__ if callable(function) else None
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)
