"""What an engine has yet to do on its server, as soon as that can be done."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from jobboard import logs, retry
from jobboard.exceptions import ConnectionFailure, JobBoardError
from jobboard.threads import started

LOG = logs.Log(__name__)


class Errands:
    """Run one after the other on a thread of their own, which ends when there are none. Each is repeated until it
    succeeds, whatever has kept it from that: what a server refuses now, it may do once somebody has changed a right or
    a setting, and nobody else sees to it."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._told: set[str] = set()

    def add(self, errand: Callable[[], None]) -> None:
        with self._lock:
            if self._closed:
                return
            self._waiting.append(errand)
            if self._thread is None:
                self._told.clear()
                try:
                    self._thread = started("jobboard-errands", self._work)
                except RuntimeError as error:
                    # Whoever adds it has another failure to tell of; it is for the next thread, or for the end.
                    LOG.warning("what is to be tidied up has to wait: %s", error)

    def soon(self) -> None:
        """There is a connection again."""
        self._news.set()

    def close(self, patience: float) -> None:
        """End the thread, and try what is left once, unless there is no connection."""
        with self._lock:
            self._closed, thread = True, self._thread
        self._news.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(patience)
            if thread.is_alive():
                return
        for errand in self._waiting:
            if isinstance(self._run(errand), ConnectionFailure):
                break

    def _work(self) -> None:
        failures = 0
        while True:
            with self._lock:
                if self._closed or not self._waiting:
                    self._thread = None
                    return
            self._news.clear()
            failed = self._run(self._waiting[0])
            with self._lock:
                errand = self._waiting.popleft()
                if failed:
                    # What is refused for its own sake does not keep the others back.
                    self._waiting.append(errand)
            failures = failures + 1 if failed else 0
            if failures and not self._closed:
                self._news.wait(retry.outage_pause(failures))

    def _run(self, errand: Callable[[], None]) -> Exception | None:
        """What has kept it from being done, which is told once."""
        try:
            errand()
        except ConnectionFailure as error:
            return error
        except Exception as error:
            if str(error) not in self._told:
                self._told.add(str(error))
                foreseen = isinstance(error, JobBoardError)
                LOG.warning("could not tidy up yet: %s", error, exc_info=not foreseen)
            return error
        return None
