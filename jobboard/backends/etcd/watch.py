"""The watch of a board on etcd: a thread that hears each bell, and the end of each session."""

from __future__ import annotations

import json
from binascii import a2b_base64
from collections.abc import Callable
from http.client import HTTPException
from typing import Any

from jobboard import logs, retry, runtime
from jobboard.backends.etcd.link import Gateway
from jobboard.backends.etcd.requests import watch
from jobboard.exceptions import JobBoardError
from jobboard.kv.driver import MISSED
from jobboard.threads import started

LOG = logs.Log(__name__)


class BellWatch:
    """The watch of one board, from :meth:`begin` until :meth:`end`.

    :param bells: the folder of the keys of bells. A key is put when its bell rings.
    :param alive: the folder of the keys of sessions. A key is deleted when its session ends.
    :param heard: gets the name of a bell, or MISSED.
    """

    def __init__(self, link: Gateway, bells: str, alive: str, heard: Callable[[str], None]) -> None:
        self._link = link
        self._bells = bells
        self._alive = alive
        self._heard = heard
        self._lock = runtime.Lock()
        self._thread: runtime.Thread | None = None
        self._over = runtime.Event()

    def begin(self) -> None:
        """Begin to hear events. MISSED stands for all events since the caller's last look."""
        with self._lock:
            if self._thread is not None or self._over.is_set():
                return
            self._thread = started("jobboard-watch", self._run, self._link.read([]).revision)
        self._heard(MISSED)

    def end(self) -> None:
        self._over.set()

    def _run(self, revision: int) -> None:
        failures = 0
        while not self._over.is_set():
            why: object = "the connection has ended"
            try:
                if failures:
                    # The revision where the watch has ended may be compacted. This request also replaces a void token,
                    # which the watch itself cannot.
                    revision = self._link.read([]).revision
                    self._heard(MISSED)
                wanted = watch(self._bells, revision + 1, "NODELETE") + watch(self._alive, revision + 1, "NOPUT")
                for line in self._link.stream("/v3/watch", wanted):
                    self._hear(json.loads(line))
                    failures = 0
            except (JobBoardError, OSError, HTTPException, ValueError) as error:
                why = error
            failures += 1
            if not self._over.wait(retry.backoff(failures, 0.05, 2.0)):
                # A watch that ends is common. A watch that fails to begin leaves waiters to a look every two seconds.
                report = LOG.warning if failures == 2 else LOG.info
                report("the watch has ended, and begins again: %s", why)

    def _hear(self, told: Any) -> None:
        result = told.get("result", {})
        if "error" in told or result.get("canceled"):
            raise OSError(str(told.get("error") or result.get("cancel_reason") or "its revision was compacted"))
        for event in result.get("events", ()):
            key = a2b_base64(event["kv"]["key"]).decode()
            self._heard(key[len(self._bells) :] if key.startswith(self._bells) else MISSED)
