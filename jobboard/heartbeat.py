"""Keeps things alive: one thread that calls a beat, and calls it sooner again after a failure."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from jobboard.exceptions import ConnectionFailure
from jobboard.retry import backoff

LOG = logging.getLogger(__name__)


def pause(failures: int, interval: float) -> float:
    """How long to wait for the next beat, after so many failures in a row."""
    return backoff(failures, 0.1, interval / 3) if failures else interval


class Heartbeat:
    """Calls ``beat()`` every ``interval`` seconds from a daemon thread, until :meth:`stop`.

    A beat that fails is repeated after a backoff that stays well below the interval, as a lease runs out meanwhile.
    """

    def __init__(self, name: str, beat: Callable[[], None], interval: float) -> None:
        self._beat = beat
        self._interval = interval
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
        failures = 0
        while True:
            self._news.wait(pause(failures, self._interval))
            self._news.clear()
            if self._stopped:
                return
            try:
                self._beat()
                failures = 0
            except ConnectionFailure as error:
                failures += 1
                LOG.warning("could not renew the claims, trying again: %s", error)
            except Exception:
                failures += 1
                LOG.exception("could not renew the claims, trying again")
