"""The ZooKeeper board."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import unquote

from kazoo import exceptions as kazoo
from kazoo.protocol.states import KazooState

from jobboard import conf as configuration
from jobboard.backends.zookeeper import checks
from jobboard.backends.zookeeper.connection import Connection, translated
from jobboard.backends.zookeeper.finishing import Finisher
from jobboard.backends.zookeeper.hearing import Listener
from jobboard.backends.zookeeper.keeping import Farewell, Keeper
from jobboard.backends.zookeeper.looking import Reader
from jobboard.backends.zookeeper.options import OPTIONS, URI_PARTS, check, check_client, make_client
from jobboard.backends.zookeeper.paths import Paths, quoted
from jobboard.backends.zookeeper.records import entity_of
from jobboard.backends.zookeeper.store import Store
from jobboard.backends.zookeeper.taking import Taker
from jobboard.backends.zookeeper.tries import Tries
from jobboard.backends.zookeeper.wire import EPHEMERAL, Ops, Refused, children, get
from jobboard.engine import Engine, Seat
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.job import boottime
from jobboard.primitives import (
    MENTIONED,
    Characteristics,
    Claimed,
    Draft,
    Finish,
    Nonce,
    Oddity,
    Peeked,
    Renewed,
    Seen,
    Taken,
    mentioned,
)
from jobboard.states import Holder, Record, State, Status, Verb

LOG = logging.getLogger(__name__)

LAYOUT = 1
_LAYOUT = f"{LAYOUT} {LAYOUT}".encode()

_TICK = 0.02
"""How long those who wait sleep at least between two looks, in seconds, while the bell does not stop ringing."""


class ZooKeeperEngine(Engine):
    """A board in the znodes of a ZooKeeper ensemble.

    ``client``: a KazooClient of the caller's, started by them, which the board uses and never stops.

    ``claim_ttl`` is the session timeout to ask for; ``characteristics.claim_ttl`` what the server has made of it.
    """

    options: ClassVar[Mapping[str, configuration.Option]] = OPTIONS
    uri_parts: ClassVar[Mapping[str, str]] = URI_PARTS

    hears_all = False
    poll_cap = 3600.0

    def __init__(self, seat: Seat) -> None:
        super().__init__(seat)
        check(self._conf)
        if seat.client is not None:
            check_client(seat.client, self._conf, configuration.COMMON["claim_ttl"].default)
        self._home = os.getpid()
        self._opened: Store | None = None
        self._ears = threading.Lock()
        self._woken = 0.0

    @property
    def connected(self) -> bool:
        """Whether the board is open and has a connection at this moment. It comes back by itself."""
        opened = self._opened
        return opened is not None and opened.connection.alive

    @property
    def requests(self) -> int | None:
        return self._store.connection.sent

    # Life

    def setup(self) -> None:
        """Create the znodes. What ``jobboard setup`` does: any number of times, in any number of processes at once."""
        store = self._make_store()
        store.check_writable()
        try:
            self._prepare(store, create=True)
        finally:
            store.connection.close()

    def open(self) -> None:
        store = self._make_store()
        try:
            self._prepare(store, create=self._conf["auto_setup"] and not self._conf["read_only"])
            alone = store.connection.alone()
        except BaseException:
            store.connection.close()
            raise
        self._begin(store)
        self.characteristics = Characteristics(
            durable=True,
            survives_failover=not alone,
            exact_order=True,
            blocking_wait=True,
            remote_events=True,
            transactional=False,
            claim_ttl=store.connection.session_timeout,
            notes="kept claims live as long as the session, whose timeout the server bounds; "
            "under contention jobs are picked from among the first ones",
        )

    def tidy(self) -> None:
        if not self._conf["read_only"]:
            self._keeper.clean()

    def _begin(self, store: Store) -> None:
        self._opened = store
        self._keeper = Keeper(store, self._name)
        self._taker = Taker(store, self._keeper)
        self._finisher = Finisher(store, self._keeper)
        self._reader = Reader(store)

    def _make_store(self) -> Store:
        conf = self._conf
        connection = Connection(lambda: make_client(conf), self._client, conf["timeout"], self._changed, self._home)
        chroot = conf["chroot"] if self._client is None else self._client.chroot
        acl = conf["default_acl"] if self._client is None else conf["default_acl"] or self._client.default_acl
        paths = Paths(chroot, conf["namespace"], self._name)
        return Store(connection, paths, Ops(acl), self._wake_up, conf["read_only"])

    def _prepare(self, store: Store, create: bool) -> None:
        paths, connection = store.paths, store.connection
        [layout] = connection.read([get(paths.layout)])
        if layout is None and not create:
            others = mentioned(self._boards_in(store, MENTIONED))
            raise JobFailure(f"there is no board {self._name!r} at {paths.root}{others}; `jobboard setup` creates it")
        if layout is None:
            client = connection.open()
            if paths.chroot:
                self._create_chroot(store, paths.chroot)
            for path in paths.everything():
                data = _LAYOUT if path == paths.layout else b""
                try:
                    client.retry(connection.commit, [store.ops.create(path, data)])
                except Refused as refusal:
                    if not isinstance(refusal.error, kazoo.NodeExistsError):
                        raise translated(refusal.error) from refusal
            [layout] = connection.read([get(paths.layout)])
        try:
            reader = int(layout.data.split()[1])
        except (ValueError, IndexError) as error:
            raise JobFailure(
                f"{paths.layout} holds {layout.data!r}: write {_LAYOUT!r} there if it is a board", error
            ) from error
        if reader > LAYOUT:
            raise JobFailure(f"the board at {paths.root} has a layout of a newer version of this library; upgrade")

    @staticmethod
    def _create_chroot(store: Store, chroot: str) -> None:
        parts = chroot.split("/")
        for number in range(2, len(parts) + 1):
            try:
                store.connection.commit([store.ops.create("/".join(parts[:number]))])
            except Refused as refusal:
                # Who may not write above the chroot may well do so below it.
                if not isinstance(refusal.error, (kazoo.NodeExistsError, kazoo.NoAuthError)):
                    raise translated(refusal.error) from refusal

    def shut(self) -> None:
        store, self._opened = self._opened, None
        if store is not None:
            store.connection.hurry()
            if store.listener is not None:
                store.listener.stop()
            handles, session = store.answers.handles(), store.connection.session_id
            self._keeper.close()
            store.connection.close()
            if self._client is not None and store.connection.troubled and handles:
                fresh = self._make_store()
                fresh.connection.session_timeout = store.connection.session_timeout
                Farewell(fresh, handles, session).say(self._name)

    def forked(self) -> None:
        opened = self._opened
        if opened is not None:
            opened.connection.leak()
            self._ears = threading.Lock()
            fresh = self._make_store()
            fresh.connection.session_timeout = self._conf["claim_ttl"]
            self._begin(fresh)
            if opened.listener is not None:
                fresh.listener = Listener(fresh, self._overheard)
                fresh.listener.start(at_once=False)

    @property
    def _store(self) -> Store:
        opened = self._opened
        if opened is None:
            raise ConnectionFailure(f"{self!r} is closed")
        return opened

    def _changed(self, state: str) -> None:
        """The connection was made, interrupted or lost; told on kazoo's thread."""
        opened, session = self._opened, self.life
        if opened is None:
            return
        opened.view.deaf()
        if opened.listener is not None:
            opened.listener.deaf()
        if state == KazooState.CONNECTED:
            self._keeper.connected()
            if session is not None:
                session.beat_soon()

    def _wake_up(self) -> None:
        session = self.life
        if session is not None:
            session.wake()

    def listen(self, on: bool) -> None:
        opened = self._opened
        if opened is None:
            return
        with self._ears:
            listener, opened.listener = opened.listener, None
            if listener is not None:
                listener.stop()
            if on:
                opened.listener = Listener(opened, self._overheard)
                opened.listener.start()

    def _overheard(self, event: str, record: Record) -> None:
        if self.life is not None:
            self._heard(event, record)

    # Jobs

    def insert(self, drafts: Sequence[Draft], nonce: Nonce | None, **extra: Any) -> list[tuple[bool, Record | None]]:
        assert nonce is not None
        return self._taking().insert(drafts, nonce)

    def _taking(self) -> Taker:
        _ = self._store
        return self._taker

    def _finishing(self) -> Finisher:
        _ = self._store
        return self._finisher

    def _reading(self) -> Reader:
        _ = self._store
        return self._reader

    def claim(self, uuid: str, who: str, expiry: int | None, nonce: Nonce) -> Claimed:
        return self._taking().claim(uuid, who, expiry, nonce)

    def take(
        self,
        who: str,
        limit: int,
        expiry: int | None,
        names: Sequence[str] | None,
        readable: int,
        nonce: Nonce,
        **extra: Any,
    ) -> Taken:
        return self._taking().take(who, limit, expiry, names, readable, nonce)

    def renew(self, handle: str, held: Sequence[tuple[str, int]], ttl: int) -> Renewed:
        _ = self._store
        return self._keeper.renew(handle, held)

    def forsake(self, uuid: str, token: int) -> None:
        if self._opened is not None:
            self._keeper.forsake(uuid, token)

    def doubt(self, nonce: Nonce) -> None:
        if self._opened is not None:
            self._keeper.doubt(nonce)

    def extend(self, uuid: str, holder: Holder, expiry: int | None, nonce: Nonce) -> tuple[Status, int | None]:
        return self._finishing().extend(uuid, holder, expiry, nonce)

    def finish(self, acts: Sequence[Finish], nonce: Nonce | None, **extra: Any) -> list[Status]:
        assert nonce is not None
        return self._finishing().finish(acts, nonce)

    def operate(self, verb: Verb, uuid: str, error: str | None, nonce: Nonce, token: int | None = None) -> Status:
        return self._finishing().operate(verb, uuid, error, nonce, token)

    # Looking

    def read(self, uuids: Sequence[str]) -> list[Seen]:
        return self._reading().read(uuids)

    def page(
        self, after: Record | None, limit: int, names: Sequence[str] | None, states: frozenset[State] | None
    ) -> list[Seen]:
        return self._reading().page(after, limit, names)

    def trash_page(self, after: Record | None, limit: int) -> list[Record]:
        return self._reading().trash_page(after, limit)

    def sync(self) -> None:
        self._store.view.look(sync=True, everything=True)

    def now(self) -> int:
        return self._store.now()

    def tally(self) -> dict[State, int]:
        return self._reading().tally()

    def peek(self, names: Sequence[str] | None, readable: int) -> Peeked:
        taker, view = self._taking(), self._store.view
        wanted = None if names is None else frozenset(names)
        view.listen()
        view.look(sync=True, everything=True)
        taker.settle_times(sure=True)
        return Peeked(view.any(wanted, readable), view.next_event(), None)

    def examine(self) -> Iterator[Oddity]:
        for place, what in checks.oddities(self._store):
            yield Oddity(place, what)

    def wait(self, mark: object, names: Sequence[str] | None, limit: float) -> None:
        session = self.life
        if session is None or not session.nap(limit):
            return
        # The first to wake after some quiet looks at once.
        pause = self._woken + _TICK - boottime()
        if pause > 0:
            session.pause(min(pause, limit))
        self._woken = boottime()

    # Entities

    def enlist(self, handle: str, kind: str, name: str, metadata: str, ttl: int) -> None:
        store = self._store
        store.check_writable()
        path = f"{store.paths.entities}/{quoted(kind)}.{quoted(name)}"
        data = json.dumps([handle, kind, name, metadata]).encode()
        tries = Tries(f"show the {kind} {name!r}")
        while True:
            [there] = store.connection.read([get(path)])
            ops = [store.ops.create(path, data, EPHEMERAL)]
            if there is not None and there.stat.ephemeralOwner == store.connection.session_id:
                ops = [store.ops.set(path, data, there.stat.version)]
            elif there is not None:
                ops.insert(0, store.ops.delete(path, there.stat.version))
            try:
                store.connection.commit(ops)
                return
            except Refused as refusal:
                if isinstance(refusal.error, kazoo.NoAuthError):
                    raise translated(refusal.error) from refusal
                tries.again(refusal.error)
                store.mend()

    def delist(self, handle: str) -> None:
        store = self._store
        for path, version, owner, *_ in self._entities():
            if owner == handle:
                # Refused, it has become another handle's.
                with contextlib.suppress(Refused):
                    store.connection.commit([store.ops.delete(path, version)])

    def boards(self, most: int) -> list[str]:
        return self._boards_in(self._store, most)

    def _boards_in(self, store: Store, most: int) -> list[str]:
        """What lies beside this board may belong to something else: a board has a layout."""
        folder, connection = store.paths.folder, store.connection
        mine = quoted(self._name)
        try:
            [names] = connection.read([children(folder)])
            likely = sorted(names or (), key=lambda name: (name != mine, name))[:most]
            layouts = connection.read([get(f"{folder}/{name}/layout") for name in likely]) if likely else []
        except ConnectionFailure:
            raise
        except JobFailure:
            return []  # an account that may not list them
        return [unquote(name) for name, layout in zip(likely, layouts, strict=True) if layout is not None]

    def roster(self) -> list[tuple[str, str, str]]:
        return [(kind, name, metadata) for _, _, _, kind, name, metadata in self._entities()]

    def _entities(self) -> list[tuple[str, int, str, str, str, str]]:
        store = self._store
        [names] = store.need([children(store.paths.entities)])
        paths = [f"{store.paths.entities}/{name}" for name in names]
        data = store.connection.read([get(path) for path in paths]) if paths else []
        found = []
        for path, each in zip(paths, data, strict=True):
            try:
                if each is not None:
                    found.append((path, each.stat.version, *entity_of(each.data)))
            except ValueError as error:
                LOG.warning("%s is set aside: it can't be decoded: %s", path, error)
        return found
