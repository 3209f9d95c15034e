"""Ending claims, prolonging them, and what an operator does."""

from __future__ import annotations

from collections.abc import Sequence

from kazoo.exceptions import NodeExistsError

from jobboard import states
from jobboard.backends.zookeeper.answers import Slot
from jobboard.backends.zookeeper.keeping import Keeper
from jobboard.backends.zookeeper.paths import Node
from jobboard.backends.zookeeper.records import Found, stands
from jobboard.backends.zookeeper.store import Change, Stale, Store
from jobboard.backends.zookeeper.tries import Tries
from jobboard.backends.zookeeper.wire import LIMIT, get
from jobboard.primitives import Finish, Nonce
from jobboard.states import CLAIMED, OK, TRASHED, Holder, Record, State, Status, Verb


class Finisher:
    def __init__(self, store: Store, keeper: Keeper) -> None:
        self._store = store
        self._keeper = keeper

    def finish(self, acts: Sequence[Finish], nonce: Nonce) -> list[Status]:
        """As many acts at once as one request holds; the answer says how far it has come."""
        store = self._store
        store.check_writable()
        slot = self._keeper.slot(nonce)
        done = self._done(slot, nonce)
        tries = Tries("finish jobs")
        while True:
            rest = acts[len(done) :]
            if not rest and (done or nonce.attempt == 1):
                return done
            found = self._find(rest)
            statuses, changes = self._evaluate(rest, found)
            if not changes and nonce.attempt == 1:
                done += statuses
                continue
            try:
                store.commit(changes, slot, nonce, [status.value for status in [*done, *statuses]])
            except Stale as stale:
                # The bell comes behind the changes.
                uuid = None if stale.index in (None, len(changes)) else changes[stale.index].it.node.uuid
                tries.again(stale.error, uuid)
                if stale.index is None:
                    store.answers.unknown(slot)
                elif uuid is not None:
                    store.forget(uuid)
                slot = self._keeper.slot(nonce)
                done = self._done(slot, nonce) or done
                continue
            done += statuses
            if len(done) == len(acts):
                return done

    @staticmethod
    def _done(slot: Slot, nonce: Nonce) -> list[Status]:
        return [Status(status) for status in slot.answer or []] if slot.call == nonce.call else []

    def _find(self, acts: Sequence[Finish]) -> dict[str, Found | State]:
        store = self._store
        found: dict[str, Found | State] = {}
        for act in acts:
            it = store.cached(act.uuid)
            if it is not None and it.record.state == CLAIMED and it.record.token == act.holder.token:
                found[act.uuid] = it
        if len(found) < len(acts):
            unknown = list(dict.fromkeys(act.uuid for act in acts if act.uuid not in found))
            found.update(zip(unknown, store.read(unknown), strict=True))
        return found

    def _evaluate(self, acts: Sequence[Finish], found: dict[str, Found | State]) -> tuple[list[Status], list[Change]]:
        """What becomes of the first of these acts: of each job one, and no more than a request holds."""
        now = self._now(acts, found)
        statuses: list[Status] = []
        changes: list[Change] = []
        touched: set[str] = set()
        size = 0
        for act in acts:
            if act.uuid in touched:
                break
            touched.add(act.uuid)
            it = found[act.uuid]
            if isinstance(it, State):
                statuses.append(states.finish(None, act.holder, now, act.verb)[0])
                continue
            status, record = states.finish(stands(it, now), act.holder, now, *act[2:])
            if status == OK:
                if record is not None:
                    size += len(record.posting) + 4 * len(record.error or "") + 2 * len(it.node.name)
                size += 500
                if changes and size > LIMIT:
                    break
                changes.append(Change(it, record, purged=act.verb == Verb.PURGE))
            statuses.append(status)
        return statuses, changes

    def _now(self, acts: Sequence[Finish], found: dict[str, Found | State]) -> int:
        """The server's time, where it matters."""
        for act in acts:
            it = found[act.uuid]
            if isinstance(it, State):
                continue
            ends = act.verb in (Verb.TRASH, Verb.CANCEL) or (act.verb == Verb.ABANDON and it.record.exhausted)
            lapsed = it.record.exhausted and it.held is None
            if act.delay or act.due or ends or lapsed or it.record.lock_until is not None:
                return self._store.now()
        return 0

    def extend(self, uuid: str, holder: Holder, expiry: int | None, nonce: Nonce) -> tuple[Status, int | None]:
        store = self._store
        store.check_writable()
        tries = Tries(f"extend the claim of job {uuid}")
        while True:
            slot = self._keeper.slot(nonce)
            [it] = store.read([uuid])
            now = store.now()
            record = None if isinstance(it, State) else stands(it, now)
            lease = (nonce.handle, None) if expiry is None else (None, now + expiry)
            status, new = states.extend(record, holder, now, *lease)
            changes = [Change(it, new)] if status == OK and not isinstance(it, State) else []
            if not changes and nonce.attempt == 1:
                return status, None
            try:
                store.commit(changes, slot, nonce, [status.value])
            except Stale as stale:
                tries.again(stale.error)
                if stale.index is None:
                    store.answers.unknown(slot)
                continue
            if status == OK and new is not None:
                self._keeper.extended(uuid, new.token)
            return status, self._keeper.margin if expiry is None else expiry

    def operate(self, verb: Verb, uuid: str, error: str | None, nonce: Nonce, token: int | None = None) -> Status:
        store = self._store
        store.check_writable()
        tries = Tries(f"{verb} job {uuid}")
        while True:
            slot = self._keeper.slot(nonce)
            if slot.call == nonce.call and slot.answer:
                return Status(slot.answer[0])
            [it] = store.read([uuid])
            status, new, now = self._operated(verb, it, error, token)
            changes = []
            if status == OK and not isinstance(it, State):
                changes = [Change(it, new, purged=verb == Verb.PURGE)]
            if not changes and nonce.attempt == 1:
                return status
            try:
                store.commit(changes, slot, nonce, [status.value])
            except Stale as stale:
                tries.again(stale.error)
                if stale.index is None:
                    store.answers.unknown(slot)
                elif verb == Verb.RESTORE and isinstance(stale.error, NodeExistsError) and self._key_taken(it, now):
                    return Status.KEY
                continue
            return status

    def _operated(
        self, verb: Verb, it: Found | State, error: str | None, token: int | None
    ) -> tuple[Status, Record | None, int]:
        now = self._store.now()
        record = None if isinstance(it, State) else stands(it, now)
        if verb == Verb.RELEASE:
            return *states.release(record, now, error, token), now
        if verb == Verb.CANCEL:
            return *states.cancel(record, now, error), now
        if verb == Verb.RESTORE:
            return *states.restore(record, now), now
        return *states.purge(record, now), now

    def _key_taken(self, it: Found | State, now: int) -> bool:
        """Whether a live job has the key of this one; one whose attempts are used up is moved out of the way."""
        store = self._store
        if isinstance(it, State) or it.record.key is None:
            return False
        [data] = store.connection.read([get(store.paths.key(it.record.key))])
        if data is None:
            return False
        [holder] = store.read([data.data.decode(errors="replace")])
        if isinstance(holder, State) or holder.node.uuid == it.node.uuid:
            return False
        if stands(holder, now).state == TRASHED:
            nodes: list[Node] = [holder.node]
            store.sweep(nodes)
            return False
        return True
