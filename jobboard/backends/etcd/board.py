"""The engine of a board on etcd: what a user can tell it, over the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from jobboard import conf as configuration
from jobboard.backends.etcd.looking import NEAR
from jobboard.backends.etcd.options import OPTIONS, URI_PARTS, check
from jobboard.backends.etcd.store import EtcdStore
from jobboard.backends.etcd.writing import AROUND, LARGEST
from jobboard.engine import Seat, StoreEngine
from jobboard.job import boottime
from jobboard.primitives import Renewed

_TICK = 0.02
"""How long those who wait sleep at least between two looks, in seconds, while others go on posting."""


class EtcdEngine(StoreEngine[EtcdStore]):
    """A board in the keys of an etcd cluster, from version 3.4 on.

    ``client`` is refused: the board makes its own connections.

    ``claim_ttl`` is the time of the lease to ask for, in whole seconds; ``characteristics.claim_ttl`` what the server
    has made of it.
    """

    options: ClassVar[Mapping[str, configuration.Option]] = OPTIONS
    uri_parts: ClassVar[Mapping[str, str]] = URI_PARTS

    poll_cap = NEAR
    most_kept = LARGEST - AROUND

    def __init__(self, seat: Seat) -> None:
        super().__init__(seat)
        check(self._conf)
        if seat.client is not None:
            raise TypeError("client: an etcd board makes its own connections; give it hosts, user and password instead")
        self._woken = 0.0

    def _make_store(self) -> EtcdStore:
        return EtcdStore(self._name, self._conf, self._creates, self.news, self.reconnected, self.rescheduled)

    def setup(self) -> None:
        """Create the board. What ``jobboard setup`` does: any number of times, in any number of processes at once."""
        self._make_store().setup()

    def reconnected(self) -> None:
        if self._opened is not None:
            super().reconnected()

    def renew(self, handle: str, held: Sequence[tuple[str, int]], ttl: int) -> Renewed:
        store = self._live
        store.keeper.renew()
        steady = store.steady(held)
        rest = [claim for claim in held if claim not in steady]
        return super().renew(handle, rest, ttl) if rest else Renewed([], store.margin)

    def wait(self, mark: object, names: Sequence[str] | None, limit: float) -> None:
        self._live.watch.begin()
        life = self.life
        if life is None or not life.nap(limit):
            return
        # The first to wake after some quiet looks at once.
        pause = self._woken + _TICK - boottime()
        if pause > 0:
            life.pause(min(pause, limit))
        self._woken = boottime()
