"""Keeps things alive: one thread that calls a beat, and calls it sooner again after a failure."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from jobboard import logs
from jobboard.exceptions import JobBoardError
from jobboard.retry import backoff

LOG = logs.Log(__name__)


class Beats:
    """The beats of one heart: whether they fail, and when the next is due."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._failures = 0

    @property
    def pause(self) -> float:
        """How long to wait for the next one, in seconds."""
        return backoff(self._failures, 0.1, self._interval / 3) if self._failures else self._interval

    @contextlib.contextmanager
    def next(self) -> Iterator[None]:
        """Around a beat. What it raises is logged, with a traceback only if nobody has foreseen it."""
        self._failures += 1
        try:
            yield
            self._failures = 0
        except JobBoardError as error:
            LOG.warning("could not renew the claims, trying again: %s", error)
        except Exception:
            LOG.exception("could not renew the claims, trying again")


class Heartbeat:
    """Calls ``beat()`` every ``interval`` seconds from a daemon thread, until :meth:`stop`.

    A beat that fails is repeated after a backoff that stays well below the interval, as a lease runs out meanwhile.
    """

    def __init__(self, name: str, beat: Callable[[], None], interval: float) -> None:
        self._beat = beat
        self._beats = Beats(interval)
        self._stopped = False
        self._news = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{name}-heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def soon(self) -> None:
        """Beat now: a connection has come back, say, and a lease is running out."""
        self._news.set()

    def stop(self, patience: float | None = None) -> None:
        """Return once no beat runs any more, or after ``patience`` seconds: one may hang where nothing can end it."""
        self._stopped = True
        self._news.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(patience)

    def _run(self) -> None:
        while True:
            self._news.wait(self._beats.pause)
            self._news.clear()
            if self._stopped:
                return
            with self._beats.next():
                self._beat()
