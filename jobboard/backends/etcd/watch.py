"""What wakes those who wait: a watch that etcd answers by itself, so that they send nothing."""

from __future__ import annotations

import json
import logging
import threading
from http.client import HTTPException
from typing import TYPE_CHECKING

from jobboard.backends.etcd.keys import end_of
from jobboard.backends.etcd.requests import watch
from jobboard.exceptions import JobBoardError

if TYPE_CHECKING:
    from jobboard.backends.etcd.store import EtcdStore

LOG = logging.getLogger(__name__)


class WakeWatch:
    """Begins with the first who waits, from the revision of the look that has found nothing; ends with the board."""

    def __init__(self, store: EtcdStore) -> None:
        self._store = store
        self._revision = 0
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._over = threading.Event()

    def looked(self, revision: int) -> None:
        """What was done until this revision has been seen."""
        self._revision = max(self._revision, revision)

    def begin(self) -> None:
        with self._lock:
            if self._thread is None and not self._over.is_set():
                self._thread = threading.Thread(target=self._run, name="jobboard-watch", daemon=True)
                self._thread.start()

    def end(self) -> None:
        self._over.set()

    def _run(self) -> None:
        failures = 0
        while not self._over.is_set():
            try:
                self._listen()
                failures = 0
            except (JobBoardError, OSError, HTTPException, ValueError) as error:
                failures += 1
                if not self._over.is_set():
                    LOG.info("the watch has ended, and begins anew: %s", error)
            # What came while nobody listened is found by a look.
            self._store.news()
            self._over.wait(min(2.0, 0.05 * 2**failures) if failures else 0)

    def _listen(self) -> None:
        """Until it breaks, or what it began with has been compacted."""
        keys, behind = self._store.keys, self._revision + 1
        body = watch(keys.wake, end_of(keys.wake), behind, "NODELETE")
        body += watch(keys.alive, end_of(keys.alive), behind, "NOPUT")
        for line in self._store.link.stream("/v3/watch", body):
            told = json.loads(line)
            result = told.get("result", {})
            if "error" in told or result.get("canceled"):
                self.looked(int(result.get("compact_revision", 0)))
                raise OSError(str(told.get("error") or result.get("cancel_reason") or "compacted"))
            self.looked(int(result["header"]["revision"]))
            if result.get("events"):
                self._store.news()
        raise OSError("the connection has ended")
