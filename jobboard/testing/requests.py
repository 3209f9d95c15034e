"""Hooks at the requests of a board's store, which force an interleaving or a failure.

    with requests(board).before("commit", other.wake):
        board.post("resize")

An engine reaches its server through the methods of :class:`~jobboard.engine.Store` alone, so a hook there is reached
under any engine. A request is a method of the store, or one of the kinds below: one effect, by whatever method.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Self

from jobboard.board import JobBoard
from jobboard.states import CLAIMED, Record, lapse


class RequestKind(NamedTuple):
    """Requests with one effect.

    methods: of the store. fits: return whether a call of a method, by its name and its first argument, has the effect.
    """

    methods: tuple[str, ...]
    fits: Callable[[str, Any], bool] = lambda method, first: True


def _posts(method: str, first: Any) -> bool:
    return method == "post" or any(before is None for before, _, _ in first)


def ends_claim(change: Any) -> bool:
    """Return whether a change of a commit ends a claim. A lapse that the commit writes down ended before."""
    before, after, _ = change
    if before is None or before.record.state != CLAIMED:
        return False
    if not isinstance(after, Record):
        return True
    has_lapsed = bool(after.errors) and after == lapse(before.record, after.errors[-1].on)
    return after.state != CLAIMED and not has_lapsed


def _ends(method: str, first: Any) -> bool:
    return method == "consume" or any(map(ends_claim, first))


POSTS = RequestKind(("post", "commit"), _posts)
"""The requests that store new jobs."""

TAKES = RequestKind(("take", "take_limited", "look"))
"""The requests that look for jobs to claim."""

ENDS = RequestKind(("consume", "commit"), _ends)
"""The requests that end claims."""

POSTER_LOOKS = RequestKind(("sides",), lambda method, first: bool(first == "schedule"))
"""The requests that list schedules, as a poster of due jobs does."""

JOB_READS = RequestKind(("read",), lambda method, first: bool(first))
"""The requests that read jobs by their uuids."""

WRITES = RequestKind(("commit", "post", "take", "take_limited", "claim", "consume"))
"""The requests by which calls act."""

READS = RequestKind(("now", "read", "look", "page", "sides", "counts", "hold", "grab", "occupied"))
"""The requests by which calls read."""

Request = str | RequestKind


class Hook:
    """A hook at requests of one store: installed when it is made, and removed by :meth:`remove` or a ``with``."""

    def __init__(self, store: Any, request: Request, by: Callable[..., Any]) -> None:
        self._by = by
        self._is_removed = False
        kind = RequestKind((request,)) if isinstance(request, str) else request
        for method in kind.methods:
            store.__dict__[method] = self._hooked(method, getattr(store, method), kind)

    def _hooked(self, method: str, original: Callable[..., Any], kind: RequestKind) -> Callable[..., Any]:
        def call(*args: Any, **extra: Any) -> Any:
            if self._is_removed or not kind.fits(method, args[0] if args else None):
                return original(*args, **extra)
            return self._by(functools.partial(original, **extra), *args)

        return call

    def remove(self) -> None:
        """Let the requests pass from now on."""
        self._is_removed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.remove()


class RequestHooks:
    """The requests of a connected board's store, or of one of its parts.

    A board that connects again has a new store, without hooks. Hooks of one request nest: the newest is called first.
    """

    def __init__(self, store: Any) -> None:
        self._store = store

    def around(self, request: Request, by: Callable[..., Any]) -> Hook:
        """Call ``by(original, *args)`` in place of a request. ``original`` already has the named arguments."""
        return Hook(self._store, request, by)

    def before(self, request: Request, act: Callable[[], object]) -> Hook:
        """Call ``act`` before each such request. An error of ``act`` is the request's, which is then not sent."""

        def by(original: Callable[..., Any], *args: Any) -> Any:
            act()
            return original(*args)

        return self.around(request, by)

    def after(self, request: Request, act: Callable[[], object]) -> Hook:
        """Call ``act`` after each such request that was answered. An error of ``act`` takes the place of the answer."""

        def by(original: Callable[..., Any], *args: Any) -> Any:
            answer = original(*args)
            act()
            return answer

        return self.around(request, by)


def requests(board: JobBoard) -> RequestHooks:
    """Return the requests of a connected board."""
    return RequestHooks(board.engine.store)
