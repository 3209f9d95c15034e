"""What an engine has yet to do on its server when there is a connection again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from jobboard.exceptions import ConnectionFailure, JobBoardError

LOG = logging.getLogger(__name__)

_EVERY = 1.0
"""After how many seconds an errand is tried again that has met no connection."""


class Errands:
    """Run one after the other on a thread of their own, which ends when there are none. Each is repeated until there is
    a connection; one that is refused is given up."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, errand: Callable[[], None]) -> None:
        with self._lock:
            if self._closed:
                return
            self._waiting.append(errand)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="jobboard-errands", daemon=True)
                self._thread.start()

    def soon(self) -> None:
        """There is a connection again."""
        self._news.set()

    def close(self, patience: float) -> None:
        """End the thread, and try what is left once."""
        with self._lock:
            self._closed, thread = True, self._thread
        self._news.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(patience)
            if thread.is_alive():
                return
        while self._waiting and self._run(self._waiting[0]):
            self._waiting.pop(0)

    def _work(self) -> None:
        while True:
            with self._lock:
                if self._closed or not self._waiting:
                    self._thread = None
                    return
                errand = self._waiting[0]
            self._news.clear()
            if self._run(errand):
                with self._lock:
                    self._waiting.remove(errand)
            else:
                self._news.wait(_EVERY)

    def _run(self, errand: Callable[[], None]) -> bool:
        try:
            errand()
        except ConnectionFailure:
            return False
        except JobBoardError as error:
            LOG.warning("could not tidy up: %s", error)
        return True
