"""What wakes those who wait: a watch that etcd answers by itself, so that they send nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from http.client import HTTPException
from typing import TYPE_CHECKING, Any

from jobboard import logs, retry
from jobboard.backends.etcd.keys import end_of
from jobboard.backends.etcd.requests import watch
from jobboard.exceptions import JobBoardError
from jobboard.threads import started

if TYPE_CHECKING:
    from jobboard.backends.etcd.store import EtcdStore

LOG = logs.Log(__name__)


class WakeWatch:
    """Begins with the first who waits, from the revision of the look that has found nothing; ends with the board.

    :param watched: what keys begin with, and which of their events are of no account.
    :param news: told when there was another.
    """

    def __init__(self, store: EtcdStore, watched: Sequence[tuple[str, str]], news: Callable[[], None]) -> None:
        self._store = store
        self._watched = watched
        self._news = news
        self._revision = 0
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._over = threading.Event()

    def looked(self, revision: int) -> None:
        """What was done until this revision has been seen."""
        self._revision = max(self._revision, revision)

    @property
    def begun(self) -> bool:
        return self._thread is not None

    def begin(self) -> None:
        with self._lock:
            if self._thread is None and not self._over.is_set():
                self._thread = started("jobboard-watch", self._run)

    def end(self) -> None:
        self._over.set()

    def _run(self) -> None:
        failures = 0
        while not self._over.is_set():
            why: object = "the connection has ended"
            wanted = "".join(watch(key, end_of(key), self._revision + 1, without) for key, without in self._watched)
            try:
                for line in self._store.link.stream("/v3/watch", wanted):
                    self._hear(json.loads(line))
                    failures = 0
            except (JobBoardError, OSError, HTTPException, ValueError) as error:
                why = error
            if not self._over.is_set():
                LOG.info("the watch has ended, and begins anew: %s", why)
            # What came while nobody listened is found by a look.
            self._news()
            failures += 1
            self._over.wait(retry.backoff(failures, 0.05, 2.0))

    def _hear(self, told: Any) -> None:
        result = told.get("result", {})
        if "error" in told or result.get("canceled"):
            # What it was to begin with may have been compacted.
            self.looked(int(result.get("compact_revision", 0)))
            raise OSError(str(told.get("error") or result.get("cancel_reason") or "compacted"))
        revision = int(result["header"]["revision"])
        if result.get("created") and revision < self._revision:
            # The server would say nothing until its revision has come that far again.
            self._revision = revision
            raise OSError("another server answers, or one with older data")
        self.looked(revision)
        if result.get("events"):
            self._news()
