"""Heartbeats: a daemon thread that calls ``beat`` at an interval, and sooner after a failure."""

from __future__ import annotations

from collections.abc import Callable

from jobboard import logs, runtime
from jobboard.exceptions import JobBoardError
from jobboard.retry import backoff

LOG = logs.Log(__name__)


class Heartbeat:
    """A daemon thread that calls ``beat()`` every ``interval`` seconds, until :meth:`stop`.

    The interval goes from the begin of one beat to that of the next: a lease counts from before its renewal is sent. A
    failed beat is repeated after a backoff well below the interval, as a lease runs out meanwhile.
    """

    def __init__(self, name: str, beat: Callable[[], None], interval: float) -> None:
        self._beat = beat
        self._interval = interval
        self._has_started = self._stopped = False
        self._news = runtime.Event()
        self._thread = runtime.Thread(target=self._run, name=f"{name}-heartbeat", daemon=True)

    def start(self) -> None:
        """Start the thread, unless it has been started. Raise RuntimeError if the system starts no more threads."""
        if not self._has_started:
            self._thread.start()
            self._has_started = True

    def hasten(self) -> None:
        """Beat now, as a connection has come back, say, while a lease runs out."""
        self._news.set()

    def stop(self, patience: float | None = None) -> None:
        """Return once no beat runs, or after ``patience`` seconds: a beat may hang where nothing can end it."""
        self._stopped = True
        self._news.set()
        if self._thread.is_alive() and self._thread is not runtime.current_thread():
            self._thread.join(patience)

    def _run(self) -> None:
        failures, begun = 0, runtime.boottime()
        while True:
            left = begun + self._interval - runtime.boottime()
            self._news.wait(backoff(failures, 0.1, self._interval / 3) if failures else left)
            self._news.clear()
            if self._stopped:
                return
            failures, begun = failures + 1, runtime.boottime()
            try:
                self._beat()
                failures = 0
            except JobBoardError as error:
                LOG.warning("could not renew the claims, trying again: %s", error)
            except Exception:
                LOG.exception("could not renew the claims, trying again")
