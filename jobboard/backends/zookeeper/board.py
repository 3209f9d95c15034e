"""The engine of a board on ZooKeeper: what a user can tell it, over the store."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Mapping, Sequence
from typing import ClassVar

from jobboard import conf as configuration
from jobboard.backends.zookeeper.connection import Connection
from jobboard.backends.zookeeper.options import OPTIONS, URI_PARTS, check, check_client, make_client
from jobboard.backends.zookeeper.paths import Paths
from jobboard.backends.zookeeper.requests import AROUND, LIMIT
from jobboard.backends.zookeeper.store import ZooKeeperStore
from jobboard.engine import Seat, StoreEngine
from jobboard.exceptions import JobBoardError
from jobboard.job import boottime
from jobboard.states import Record

_TICK = 0.02
"""How long those who wait sleep at least between two looks, in seconds, while the bell does not stop ringing."""


class ZooKeeperEngine(StoreEngine[ZooKeeperStore]):
    """A board in the znodes of a ZooKeeper ensemble.

    ``client``: a KazooClient of the caller's, started by them, which the board uses and never stops.

    ``claim_ttl`` is the session timeout to ask for; ``characteristics.claim_ttl`` what the server has made of it.
    """

    options: ClassVar[Mapping[str, configuration.Option]] = OPTIONS
    uri_parts: ClassVar[Mapping[str, str]] = URI_PARTS

    poll_cap = 3600.0
    most_kept = LIMIT - AROUND

    def __init__(self, seat: Seat) -> None:
        super().__init__(seat)
        check(self._conf)
        if seat.client is not None:
            check_client(seat.client, self._conf, configuration.COMMON["claim_ttl"].default)
        self._home = os.getpid()
        self._woken = 0.0

    def _make_store(self) -> ZooKeeperStore:
        conf = self._conf
        acl, chroot = conf["default_acl"], conf["chroot"]
        connection = functools.partial(
            Connection, functools.partial(make_client, conf), self._client, acl, conf["timeout"], self._home
        )
        return ZooKeeperStore(
            connection,
            Paths("" if self._client is not None else chroot, conf["namespace"], self._name),
            self._name,
            conf["read_only"],
            self._creates,
            self.news,
            self.reconnected,
            self.rescheduled,
            self._overheard,
        )

    def setup(self) -> None:
        """Create the znodes. What ``jobboard setup`` does: any number of times, in any number of processes at once."""
        self._make_store().setup()

    def reconnected(self) -> None:
        if self._opened is not None:
            super().reconnected()

    def _overheard(self, event: str, record: Record) -> None:
        if self.life is not None:
            self._heard(event, record)

    def wait(self, mark: object, names: Sequence[str] | None, limit: float) -> None:
        life = self.life
        if life is None or (self._awaits() and not life.nap(limit)):
            return
        # The first to wake after some quiet looks at once.
        pause = self._woken + _TICK - boottime()
        if pause > 0:
            life.pause(min(pause, limit))
        self._woken = boottime()

    def _awaits(self) -> bool:
        with contextlib.suppress(JobBoardError):
            return self._opened is None or self._opened.view.awaits()
        # Who waits is woken when there is a connection again.
        return True
