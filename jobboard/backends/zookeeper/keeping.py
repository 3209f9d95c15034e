"""Keeping claims while the session lives, and tidying up behind calls and claims that were given up."""

from __future__ import annotations

import contextlib
import functools
import logging
import random
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence

from jobboard import logs
from jobboard.backends.zookeeper.answers import HOUR, Slot
from jobboard.backends.zookeeper.records import Found, entity_of, stands, token_of
from jobboard.backends.zookeeper.store import Change, Stale, Store
from jobboard.backends.zookeeper.tries import Tries
from jobboard.backends.zookeeper.wire import Data, Refused, children, get
from jobboard.exceptions import ConnectionFailure, JobBoardError
from jobboard.job import boottime
from jobboard.primitives import Nonce, Renewed
from jobboard.states import CLAIMED, OK, TRASHED, State

LOG = logging.getLogger(__name__)

DAY = 24 * HOUR

PAUSE = HOUR // 6
"""How long nobody tidies up again after somebody has, in ms."""

AT_ONCE = 200


class Keeper:
    """:param name: the board's, for its thread."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name
        self._proof = boottime()
        self._forsaken: set[tuple[str, int]] = set()
        self._doubted: dict[tuple[str, int], Nonce] = {}
        self._errands: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def span(self) -> float:
        """For how long after a proof of life a kept claim stands for sure, in seconds."""
        return self._store.connection.session_timeout * 2 / 3

    @property
    def margin(self) -> int:
        return int(self.span * 1e6)

    def slot(self, nonce: Nonce) -> Slot:
        """The slot of a call, once it is known what became of the call before."""
        doubted = self._doubted.get((nonce.handle, nonce.slot))
        if doubted is not None and doubted.call < nonce.call:
            self._resolve(doubted)
        return self._store.answers.slot(nonce)

    # Claims that are kept

    def renew(self, handle: str, held: Sequence[tuple[str, int]]) -> Renewed:
        """Ask for these claims: an answer proves that the session lives, and what has lapsed is taken up again."""
        store = self._store
        start = boottime()
        # Not beyond the time at which they count as lost, so that this is told in time.
        patience = max(0.05, min(self.span / 2, self._proof + self.span - start))
        if not store.connection.alive:
            store.connection.revive()
            raise ConnectionFailure("there is no connection to ZooKeeper")
        claims = store.connection.read([get(store.paths.claim(uuid)) for uuid, _ in held], patience=patience)
        self._proof = start
        session = store.connection.session_id
        lost: list[tuple[str, int]] = []
        missing: list[tuple[str, int]] = []
        for (uuid, token), claim in zip(held, claims, strict=True):
            if claim is None:
                missing.append((uuid, token))
            elif (there := token_of(claim)) is not None and there != token:
                lost.append((uuid, token))
            elif there is None or claim.stat.ephemeralOwner != session:
                # An earlier session, which nothing keeps alive any more, has it until the server has noticed that; or
                # something else has written there, and the job itself tells.
                missing.append((uuid, token))
        if missing:
            for each, it in zip(missing, store.read([uuid for uuid, _ in missing]), strict=True):
                if not self.revived(it, each[1], handle):
                    lost.append(each)
        return Renewed(lost, self.margin)

    def revived(self, it: Found | State, token: int, handle: str) -> bool:
        """Whether a claim without its znode is not lost: not this handle's to keep, or taken up again."""
        tries = Tries("take a claim up again")
        while True:
            if isinstance(it, State) or it.trashed is not None or it.record.token != token:
                return False
            now = self._store.now()
            if stands(it, now).state == TRASHED:
                return False
            if it.record.state != CLAIMED or it.record.keeper != handle:
                return True
            if it.held is not None and it.held.owner == self._store.connection.session_id:
                return True
            try:
                self._store.commit([Change(it, it.record)])
                return True
            except Stale as stale:
                tries.again(stale.error)
                [it] = self._store.read([it.node.uuid])

    def extended(self, uuid: str, token: int) -> None:
        self._forsaken.discard((uuid, token))

    # Errands

    def forsake(self, uuid: str, token: int) -> None:
        """Its holder was told that this claim is lost: if the session has survived after all, nobody else would ever
        get the job."""
        self._forsaken.add((uuid, token))
        self._run(functools.partial(self._free, uuid, token))

    def _free(self, uuid: str, token: int) -> None:
        store = self._store
        tries = Tries(f"free job {uuid}")
        while (uuid, token) in self._forsaken:
            [it] = store.read([uuid])
            if isinstance(it, State) or it.held is None or it.held.token != token or it.record.token != token:
                break
            store.forget(uuid)
            ops = [
                store.ops.check(store.paths.job(it.node), it.version),
                store.ops.delete(store.paths.claim(uuid), it.held.version),
                store.scribe.ring(),
            ]
            try:
                store.connection.commit(ops)
                break
            except Refused as refusal:
                tries.again(refusal.error)
                store.mend()
        self._forsaken.discard((uuid, token))

    def doubt(self, nonce: Nonce) -> None:
        """Nobody waits for this call any longer, and it may have been carried out, or still be."""
        self._doubted[nonce.handle, nonce.slot] = nonce
        self._run(functools.partial(self._resolve, nonce))

    def _resolve(self, nonce: Nonce) -> None:
        store = self._store
        slot = Slot(f"{store.paths.answers}/{nonce.handle}.{nonce.slot}")
        tries = Tries("find out what became of a call")
        while self._doubted.get((nonce.handle, nonce.slot)) == nonce:
            store.answers.read(slot)
            if slot.call == nonce.call and isinstance(slot.answer, dict):
                for status, uuid, token in slot.answer["claims"]:
                    if status == OK:
                        told = logs.of_claim(uuid, token)
                        LOG.warning("job %s was claimed for nobody; it is given back", uuid, extra=told)
                        store.give_back(uuid, token)
            elif slot.call < nonce.call:
                # From now on it comes too late.
                try:
                    store.connection.commit([store.answers.op(slot, nonce, None)])
                except Refused as refusal:
                    tries.again(refusal.error)
                    continue
            self._doubted.pop((nonce.handle, nonce.slot), None)

    def clean(self) -> None:
        """Drop answers that nobody will ask for again, and marks of jobs that were purged long ago.

        Which of them are old only reading tells. So some are read, picked at random, and more while many are old: what
        that costs does not grow with how many there are, and at most a quarter is left over."""
        self._run(self._clean)

    def _clean(self) -> None:
        store = self._store
        now = store.now() // 1000
        for folder, age in ((store.paths.answers, HOUR), (store.paths.purged, DAY)):
            [it] = store.need([get(folder)])
            if it.stat.version and it.stat.mtime > now - PAUSE:
                continue
            with contextlib.suppress(Refused):
                store.connection.commit([store.ops.set(folder, b"", it.stat.version)])
                self._drop_old(folder, now - age)

    def _drop_old(self, folder: str, before: int) -> None:
        connection = self._store.connection
        names = self._store.need([children(folder)])[0]
        random.shuffle(names)
        for start in range(0, len(names), AT_ONCE):
            chunk = [f"{folder}/{name}" for name in names[start : start + AT_ONCE]]
            data = zip(chunk, connection.read([get(path) for path in chunk]), strict=True)
            old = [(path, each) for path, each in data if each is not None and each.stat.mtime < before]
            for path, each in old:
                with contextlib.suppress(Refused):
                    connection.commit([self._store.ops.delete(path, each.stat.version)])
            if len(old) < len(chunk) / 4:
                break

    def connected(self) -> None:
        """The connection has come back: what could not be done can be done now."""
        self._news.set()

    def _run(self, errand: Callable[[], None]) -> None:
        with self._lock:
            if self._closed:
                return
            self._errands.append(errand)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=f"{self._name}-errands", daemon=True)
                self._thread.start()
        self._news.set()

    def _work(self) -> None:
        while True:
            with self._lock:
                if self._closed or not self._errands:
                    self._thread = None
                    return
                errand = self._errands[0]
            self._news.clear()
            try:
                errand()
            except ConnectionFailure:
                self._news.wait(1)
                continue
            except JobBoardError as error:
                LOG.warning("could not tidy up: %s", error)
            with self._lock:
                self._errands.pop(0)

    def close(self) -> None:
        """Finish the errands for as far as there is a connection; leave nothing of this process's own."""
        with self._lock:
            thread = self._thread
            self._closed = True
        self._news.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(self._store.connection.patience)
        with contextlib.suppress(JobBoardError):
            for errand in self._errands:
                errand()
            if self._store.connection.alive:
                for path in self._store.answers.drop():
                    with contextlib.suppress(Refused):
                        self._store.connection.commit([self._store.ops.delete(path, -1)])


class Farewell:
    """Gives back what a closed board has left behind in a session that goes on, as it is the caller's: what calls
    that were under way have claimed, and what could not be given back while there was no connection.

    :param store: one of its own, on the same client, which carries requests out in the order in which they were sent.
    """

    def __init__(self, store: Store, handles: Collection[str], session: int | None) -> None:
        self._store = store
        self._handles = handles
        self._session = session

    def say(self, name: str) -> None:
        """Now, or from a thread of its own when there is a connection again."""
        try:
            self._store.connection.revive()
            if self._store.connection.alive:
                self._say()
                return
        except ConnectionFailure as error:
            LOG.warning("what was claimed is given back when ZooKeeper answers again: %s", error)
        threading.Thread(target=self._insist, name=f"{name}-farewell", daemon=True).start()

    def _insist(self) -> None:
        connection = self._store.connection
        while connection.session_id == self._session:
            try:
                self._say()
                break
            except ConnectionFailure:
                time.sleep(0.1)
        connection.close()

    def _say(self) -> None:
        store = self._store
        try:
            for uuid, claim in self._ours(store.paths.claims):
                token, handle = token_of(claim), claim.data.partition(b" ")[2].decode(errors="replace")
                if handle in self._handles and token is not None:
                    store.give_back(uuid, token)
            for name, entity in self._ours(store.paths.entities):
                with contextlib.suppress(Refused, ValueError):
                    if entity_of(entity.data)[0] in self._handles:
                        path = f"{store.paths.entities}/{name}"
                        store.connection.commit([store.ops.delete(path, entity.stat.version)])
        except ConnectionFailure:
            raise
        except JobBoardError as error:
            LOG.warning("could not give back what was claimed: %s", error)
        store.connection.close()

    def _ours(self, folder: str) -> Iterator[tuple[str, Data]]:
        """The session's znodes in a folder."""
        connection = self._store.connection
        names = self._store.need([children(folder)])[0]
        for start in range(0, len(names), 200):
            chunk = names[start : start + 200]
            data = connection.read([get(f"{folder}/{name}") for name in chunk])
            for name, each in zip(chunk, data, strict=True):
                if each is not None and each.stat.ephemeralOwner == self._session:
                    yield name, each
