"""What others do, told in the commits that do it, while somebody listens."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgpack

from jobboard import logs
from jobboard.backends.zookeeper.batch import created
from jobboard.backends.zookeeper.records import Head
from jobboard.backends.zookeeper.requests import create, delete, exists, get, put
from jobboard.exceptions import ConnectionFailure, JobBoardError
from jobboard.notifier import CONSUMED
from jobboard.states import COMPLETE, Record
from jobboard.threads import started

if TYPE_CHECKING:
    from jobboard.backends.zookeeper.store import ZooKeeperStore

LOG = logs.Log(__name__)

_KEPT = 1000
"""How many events stay for listeners that are slow."""

_AT_ONCE = 50

_CHECKED = 100
"""After how many events one who tells them makes sure that somebody still listens."""


class Events:
    """Every commit compares the version of ``listeners``, which rises when somebody begins to listen: nothing is missed
    from then on. The server numbers what is told, and listeners read one number after the other."""

    def __init__(self, store: ZooKeeperStore, heard: Callable[[str, Record], None]) -> None:
        self._store = store
        self._heard = heard
        self._listeners = -1
        self._told = 0
        self.version = -1
        self._thread: threading.Thread | None = None
        # The number of the next event.
        self._following: int | None = None
        self._news = threading.Event()
        self._over = False

    # Telling

    def listened(self) -> bool:
        """Whether somebody listens, as of ``version``."""
        if self.version < 0 or (self._listeners and self._told >= _CHECKED):
            self.refresh()
        self._told += 1
        return self._listeners > 0

    def refresh(self) -> None:
        store, path = self._store, self._store.paths.listeners
        [stat] = store.connection.read([exists(path)])
        if stat is None:
            store.mend()
            [stat] = store.connection.read([exists(path)])
        self._told = 0
        self.version, self._listeners = (-1, 0) if stat is None else (stat.version, stat.numChildren)

    # Hearing

    @property
    def listening(self) -> bool:
        return self._thread is not None

    def listen(self, at_once: bool = True) -> None:
        """Hear all that is done from when this returns; not ``at_once``, or while the server is away, from soon on."""
        if self._thread is not None:
            return
        self._over = False
        self._following = None
        if at_once:
            try:
                self._following = self._enter()
            except ConnectionFailure as error:
                LOG.warning("can't listen to other processes yet: %s", error)
        self._thread = started("jobboard-listener", self._listen)

    def _enter(self) -> int:
        """The number of the next event."""
        store, paths = self._store, self._store.paths
        mine = f"{paths.listeners}/{store.handle}"
        store.mend()
        [there] = store.connection.read([exists(mine)])
        ops = [create(mine, ephemeral=True), put(paths.listeners, b""), create(f"{paths.events}/e", sequence=True)]
        if there is not None:
            # Of the session before, or of this one.
            ops.insert(0, delete(mine))
        return int(store.connection.commit(ops)[-1][-10:]) + 1

    def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._over = True
        self._news.set()
        if thread is not threading.current_thread():
            thread.join(self._store.connection.patience)
        store, paths = self._store, self._store.paths
        with contextlib.suppress(JobBoardError):
            if store.connection.alive:
                # The last one wakes the watch that is left.
                store.connection.each([delete(f"{paths.listeners}/{store.handle}"), put(paths.listeners, b"")])
                store.connection.each([create(f"{paths.events}/e", sequence=True)])

    def wake(self) -> None:
        self._news.set()

    def _rung(self, event: Any) -> None:
        self._news.set()

    def _listen(self) -> None:
        session = self._store.connection.session_id
        while not self._over:
            self._news.clear()
            try:
                if self._following is None or self._store.connection.session_id != session:
                    session = self._store.connection.session_id
                    entered = self._enter()
                    self._following = entered if self._following is None else self._following
                self._hear()
            except ConnectionFailure:
                self._news.wait(0.1)
            except Exception:
                LOG.exception("could not hear what others do")
                self._news.wait(1)
            else:
                self._news.wait()

    def _hear(self) -> None:
        """Tell all that there is; the server wakes us for the next."""
        connection, paths = self._store.connection, self._store.paths
        while not self._over:
            first = self._following or 0
            folder, *found = connection.read(
                [exists(paths.events), *(get(self._path(number)) for number in range(first, first + _AT_ONCE))]
            )
            for number, each in enumerate(found, first):
                if each is None or self._over:
                    break
                self._tell(each[0])
                if number >= _KEPT:
                    connection.try_later([delete(self._path(number - _KEPT))])
                self._following = number + 1
            if self._following != first or self._over:
                continue
            count = 0 if folder is None else created(folder)
            if count != first:
                # They were dropped, or somebody has deleted them all.
                LOG.warning("events of others were missed: the next one is %d, and not %d", count, first)
                self._following = count if count > first else 0
                continue
            there, folder = connection.read([exists(self._path(first), self._rung), exists(paths.events, self._rung)])
            if there is None and folder is not None:
                return

    def _path(self, number: int) -> str:
        return f"{self._store.paths.events}/e{number:010d}"

    def _tell(self, data: bytes) -> None:
        if not data:
            return
        handle, told = msgpack.unpackb(data)
        if handle == self._store.handle:
            return
        for event, uuid, packed in told:
            head = Head.unpack(uuid, packed, 0)
            record = head.whole(head.content or msgpack.packb((b"", ())))
            self._heard(event, record._replace(state=COMPLETE) if event == CONSUMED else record)
