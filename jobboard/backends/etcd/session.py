"""The session of a process: a lease of etcd, and the key that ends with the lease."""

from __future__ import annotations

import contextlib
import json
import math

from jobboard import runtime
from jobboard.backends.etcd.link import Gateway
from jobboard.backends.etcd.requests import put
from jobboard.exceptions import JobBoardError


class SessionLease:
    """The lease that a process holds from its first claim on.

    :param folder: where the keys of living sessions lie.
    :param ttl: the seconds to ask for; ``ttl`` becomes the seconds that the server grants.
    """

    def __init__(self, link: Gateway, folder: str, ttl: float) -> None:
        self._link = link
        self._folder = folder
        self.ttl = max(1, math.ceil(ttl))
        self._lock = runtime.Lock()
        self._renewed = 0.0
        self._name: str | None = None

    @property
    def margin(self) -> int:
        """The µs for which the lease surely lives on."""
        return int((self._renewed + self.ttl - runtime.boottime()) * 1e6)

    def hold(self) -> str:
        """Return the name of a lease with at least half of its time left."""
        with self._lock:
            if self._name is not None and self.margin < self.ttl * 5e5:
                self._renew()
            if self._name is None:
                lease = self.grant()
                self._link.txn((), [put(self._folder + lease, lease=lease)], changes=False)
                self._name = lease
            return self._name

    def renew(self) -> None:
        with self._lock:
            if self._name is not None:
                self._renew()

    def forget(self, lease: str) -> None:
        """Forget this lease, which has ended."""
        with self._lock:
            if self._name == lease:
                self._name = None

    def grant(self) -> str:
        """Return the name of a new lease, and note its duration. A lease that nobody renews ends by itself."""
        sent = runtime.boottime()
        granted = self._link.call("/v3/lease/grant", json.dumps({"TTL": self.ttl}))
        self.ttl, self._renewed = int(granted["TTL"]), sent
        return str(granted["ID"])

    def _renew(self) -> None:
        sent = runtime.boottime()
        answer = self._link.call("/v3/lease/keepalive", json.dumps({"ID": self._name}))
        if int(answer.get("TTL", 0)) > 0:
            self._renewed = sent
        else:
            self._name = None

    def end(self) -> None:
        """Give the lease back. Its key goes with it, at once."""
        lease, self._name = self._name, None
        if lease is not None:
            with contextlib.suppress(JobBoardError):
                self._link.call("/v3/lease/revoke", json.dumps({"ID": lease}))
