"""What calls were answered: one znode for each slot of a handle, written in the same multi as what the call did."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import msgpack
from kazoo.exceptions import NodeExistsError, NoNodeError

from jobboard.backends.zookeeper.connection import Connection
from jobboard.backends.zookeeper.paths import Paths
from jobboard.backends.zookeeper.wire import Op, Ops, Refused, get
from jobboard.exceptions import JobFailure
from jobboard.primitives import Nonce

HOUR = 3_600_000


class Slot:
    """One slot as it stood last: how often its znode was written, and the latest call with its answer."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.version = -1
        self.call = 0
        self.answer: Any = None

    @property
    def known(self) -> bool:
        return self.version >= 0


class Answers:
    def __init__(self, connection: Connection, paths: Paths, ops: Ops, mend: Callable[[], None]) -> None:
        self._connection = connection
        self._mend = mend
        self._paths = paths
        self._ops = ops
        self._slots: dict[tuple[str, int], Slot] = {}
        self._lock = threading.Lock()

    def slot(self, nonce: Nonce) -> Slot:
        """The slot of a call. If its ``call`` is the nonce's, the call was carried out and ``answer`` is its answer.

        :raises JobFailure: a later call has been made meanwhile.
        """
        with self._lock:
            key = (nonce.handle, nonce.slot)
            slot = self._slots.setdefault(key, Slot(f"{self._paths.answers}/{nonce.handle}.{nonce.slot}"))
        if not slot.known or nonce.attempt > 1 or slot.call >= nonce.call:
            self.read(slot)
        if slot.call > nonce.call:
            raise JobFailure("this call comes after a later one of its slot; its caller has long gone on")
        return slot

    def read(self, slot: Slot) -> None:
        [found] = self._connection.read([get(slot.path)])
        if found is None:
            self._create(slot.path)
            [found] = self._connection.read([get(slot.path)], sync=self._paths.root)
        slot.version = found.stat.version
        slot.call, slot.answer = msgpack.unpackb(found.data) if found.data else (0, None)

    def _create(self, path: str) -> None:
        for again in (False, True):
            try:
                self._connection.commit([self._ops.create(path)])
            except Refused as refusal:
                if isinstance(refusal.error, NoNodeError) and not again:
                    self._mend()
                    continue
                if not isinstance(refusal.error, NodeExistsError):
                    raise JobFailure(f"can't store answers: {refusal.error!r}", refusal.error) from refusal
            return

    def op(self, slot: Slot, nonce: Nonce, answer: Any) -> Op:
        """Keeps the answer; refused if the slot was written since it was read, by a try that was late, say."""
        return self._ops.set(slot.path, msgpack.packb((nonce.call, answer)), slot.version)

    @staticmethod
    def kept(slot: Slot, nonce: Nonce, answer: Any, stat: Any) -> None:
        slot.version, slot.call, slot.answer = stat.version, nonce.call, answer

    @staticmethod
    def unknown(slot: Slot) -> None:
        """Nobody knows whether the last write has arrived: it has to be read again."""
        slot.version = -1

    def handles(self) -> set[str]:
        """Whose calls these were."""
        with self._lock:
            return {handle for handle, _ in self._slots}

    def drop(self) -> list[str]:
        """The znodes of all slots of this process's, which nobody will ask for again."""
        with self._lock:
            slots, self._slots = self._slots, {}
        return [slot.path for slot in slots.values()]
