"""The lease of this process, which keeps its claims."""

from __future__ import annotations

import contextlib
import json
import math
import threading

from jobboard.backends.etcd.keys import EtcdKeys
from jobboard.backends.etcd.link import Gateway
from jobboard.backends.etcd.requests import put
from jobboard.exceptions import JobBoardError
from jobboard.job import boottime


class LeaseKeeper:
    """A key under the lease, ``alive/<lease>``, goes with it; ``holder/<lease>`` stays, and tells that there may be
    claims to free: whoever finds none any more deletes it. The board's heartbeat renews the lease; who claims nothing,
    renews nothing."""

    def __init__(self, link: Gateway, keys: EtcdKeys, ttl: float) -> None:
        self._link = link
        self._keys = keys
        self.ttl = max(1, math.ceil(ttl))
        self._lock = threading.Lock()
        self._renewed = 0.0
        self.lease: str | None = None

    @property
    def margin(self) -> int:
        """For how long it stands for sure, in µs."""
        return int((self._renewed + self.ttl - boottime()) * 1e6)

    def hold(self) -> str:
        """The lease, with at least half of its time left."""
        with self._lock:
            if self.lease is not None and self.margin < self.ttl * 5e5:
                self._renew()
            if self.lease is None:
                lease = self.measure()
                marks = [put(self._keys.holders + lease), put(self._keys.alive + lease, lease=lease)]
                self._link.txn((), marks, changes=False)
                self.lease = lease
            return self.lease

    def renew(self) -> None:
        with self._lock:
            if self.lease is not None:
                self._renew()

    def forget(self, lease: str) -> None:
        """It is gone."""
        with self._lock:
            if self.lease == lease:
                self.lease = None

    def measure(self) -> str:
        """Another lease, and what the server makes of the time asked for. One that nobody uses ends by itself."""
        sent = boottime()
        granted = self._link.call("/v3/lease/grant", json.dumps({"TTL": self.ttl}))
        self.ttl, self._renewed = int(granted["TTL"]), sent
        return str(granted["ID"])

    def _renew(self) -> None:
        sent = boottime()
        answer = self._link.call("/v3/lease/keepalive", json.dumps({"ID": self.lease}))
        if int(answer.get("TTL", 0)) > 0:
            self._renewed = sent
        else:
            self.lease = None

    def end(self) -> None:
        """What it still keeps is left to others to free."""
        lease, self.lease = self.lease, None
        if lease is not None:
            with contextlib.suppress(JobBoardError):
                self._link.call("/v3/lease/revoke", json.dumps({"ID": lease}))
