"""Posting and claiming."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence

from kazoo.exceptions import NodeExistsError, NoNodeError

from jobboard import states
from jobboard.backends.zookeeper.answers import Slot
from jobboard.backends.zookeeper.hearing import MADE
from jobboard.backends.zookeeper.keeping import Keeper
from jobboard.backends.zookeeper.paths import Node
from jobboard.backends.zookeeper.records import MILLISECOND, Found, stands
from jobboard.backends.zookeeper.store import Change, Stale, Store
from jobboard.backends.zookeeper.tries import Tries
from jobboard.backends.zookeeper.wire import LIMIT, Data, Multi, Op, Refused, get
from jobboard.exceptions import JobFailure
from jobboard.primitives import Claimed, Draft, Nonce, Taken
from jobboard.states import CLAIMED, OK, TRASHED, Record, State, Status

LOG = logging.getLogger(__name__)


class Taker:
    def __init__(self, store: Store, keeper: Keeper) -> None:
        self._store = store
        self._keeper = keeper

    # Posting

    def insert(self, drafts: Sequence[Draft], nonce: Nonce) -> list[tuple[bool, Record | None]]:
        store = self._store
        store.check_writable()
        slot = self._keeper.slot(nonce)
        known: dict[str, Record | None] = {}
        before, holders = self._done_before(drafts, slot, nonce)
        now = store.now() if any(draft[-3:] != (None, None, None) for draft in drafts) else 0
        open_ = [index for index in range(len(drafts)) if index not in before and index not in holders]
        arriving = {drafts[index].uuid: index for index in open_ if drafts[index].arrival is not None}
        holders |= _held_within(drafts, open_)
        tries = Tries("post")
        while True:
            guards = self._arrive(arriving, holders, known) if arriving else []
            fresh = [index for index in open_ if index not in holders]
            try:
                made = self._post([drafts[index] for index in fresh], now, slot, nonce, holders, guards)
            except Stale as stale:
                # Of a batch, each may be refused as often.
                tries.again(stale.error, stale.index and drafts[fresh[stale.index - 1]].uuid)
                if isinstance(stale.error, NoNodeError):
                    store.mend()
                    continue
                if stale.index == 0:
                    # Others have arrived meanwhile.
                    continue
                if stale.index is None:
                    store.answers.read(slot)
                    if slot.call >= nonce.call:
                        return self.insert(drafts, nonce)
                    continue
                index = fresh[stale.index - 1]
                holder = self._holder_of(drafts[index].key, stale.error)
                if holder is not None:
                    # The same key within this batch stands for that holder, too.
                    mine = drafts[index].uuid
                    holders.update({n: holder.uuid for n, uuid in holders.items() if uuid == mine})
                    holders[index] = holder.uuid
                    # As it is now: it had the key during this call, and may go before this call ends.
                    known[holder.uuid] = holder
                continue
            known |= {record.uuid: record for record in made}
            uuids = [holders.get(index, draft.uuid) for index, draft in enumerate(drafts)]
            others = [uuid for uuid in dict.fromkeys(uuids) if uuid not in known]
            for uuid, it in zip(others, store.read(others), strict=True):
                known[uuid] = None if isinstance(it, State) else stands(it, store.now())
            return [(index not in holders, known[uuid]) for index, uuid in enumerate(uuids)]

    def _done_before(self, drafts: Sequence[Draft], slot: Slot, nonce: Nonce) -> tuple[set[int], dict[int, str]]:
        """Which drafts an earlier try of this call has stored, and which others' jobs keep out: not those that do not
        have their keys any longer."""
        if slot.call != nonce.call:
            return set(), {}
        tried, answered = slot.answer
        holders: dict[int, str] = dict(answered)
        before = set(range(len(drafts))) - holders.keys()
        mine = {drafts[index].uuid for index in before}
        others = [uuid for index, uuid in holders.items() if uuid not in mine and uuid != drafts[index].uuid]
        if nonce.attempt <= tried or not others:
            return before, holders
        now = self._store.now()
        gone = {
            uuid
            for uuid, it in zip(others, self._store.read(others), strict=True)
            if isinstance(it, State) or stands(it, now).state == TRASHED
        }
        return before, {index: uuid for index, uuid in holders.items() if uuid not in gone}

    def _arrive(self, arriving: dict[str, int], holders: dict[int, str], known: dict[str, Record | None]) -> list[Op]:
        """Take those that have arrived before as the holders of their own places. What is answered keeps others from
        bringing the same jobs until these are written, and forgets that any were purged."""
        store = self._store
        [jobs] = store.need([get(store.paths.arrivals)], sync=store.paths.root)
        guards = [store.ops.set(store.paths.arrivals, b"", jobs.stat.version)]
        for (uuid, index), it in zip(arriving.items(), store.read(list(arriving)), strict=True):
            if holders.get(index) == uuid:
                del holders[index]
            if not isinstance(it, State):
                holders[index] = uuid
                known[uuid] = stands(it, store.now())
            elif it == TRASHED:
                guards.append(store.ops.delete(f"{store.paths.purged}/{uuid}", -1))
        return guards

    def _post(
        self,
        drafts: Sequence[Draft],
        now: int,
        slot: Slot,
        nonce: Nonce,
        holders: dict[int, str],
        guards: Sequence[Op],
    ) -> list[Record]:
        store = self._store
        if not drafts and nonce.attempt == 1:
            return []
        written = [store.scribe.post(draft, now) for draft in drafts]
        ops: list[Op] = [*guards, *(op for each in written for op in each.ops)]
        answer = [nonce.attempt, list(holders.items())]
        ops += [store.scribe.ring(), store.answers.op(slot, nonce, answer)]
        if sum(map(_size, drafts)) > LIMIT // 2 and Multi(ops).size > LIMIT:
            raise ValueError(
                f"{'the posting' if len(drafts) == 1 else 'this batch'} takes {Multi(ops).size:,} bytes, and ZooKeeper "
                f"1 MB at most in a request ({LIMIT:,} with what a claim adds): keep large details elsewhere, and post "
                "a reference to them"
            )
        with store.ours((draft.uuid, MADE) for draft in drafts):
            results = store.send(ops, [len(guards), *(len(each.ops) for each in written)], slot)
        store.answers.kept(slot, nonce, answer, results[-1])
        posted = results[-1].mtime * MILLISECOND
        records = []
        start = len(guards)
        with store.view.lock:
            for draft, each in zip(drafts, written, strict=True):
                node, record = store.scribe.made(draft, results[start], now, posted)
                if record.state != TRASHED:
                    store.view.posted(node, record)
                records.append(record)
                start += len(each.ops)
            store.view.rang(results[-2].version)
        return records

    def _holder_of(self, key: str | None, error: Exception) -> Record | None:
        """The live job that has the key; None if nobody has it any more."""
        store = self._store
        if key is None or not isinstance(error, NodeExistsError):
            raise JobFailure(f"ZooKeeper has refused the posting: {type(error).__name__}", error)
        [data] = store.connection.read([get(store.paths.key(key))], sync=store.paths.root)
        if data is None:
            return None
        [it] = store.read([data.data.decode(errors="replace")])
        if isinstance(it, State) or it.trashed is not None:
            self._free_key(key, data)
            return None
        record = stands(it, store.now())
        if record.state == TRASHED:
            store.sweep([it.node])
            return None
        return record

    def _free_key(self, key: str, seen: Data) -> None:
        """Its holder is gone. Both go at once, so that a key which stays was left over by something else."""
        store = self._store
        [again] = store.connection.read([get(store.paths.key(key))])
        if again is not None and again.stat.czxid == seen.stat.czxid:
            LOG.warning("key %r belonged to a job that is not on the board; it is given free", key)
            with contextlib.suppress(Refused):
                store.connection.commit([store.ops.delete(store.paths.key(key), again.stat.version)])

    # Claiming

    def claim(self, uuid: str, who: str, expiry: int | None, nonce: Nonce) -> Claimed:
        store = self._store
        store.check_writable()
        tries = Tries(f"claim job {uuid}")
        while True:
            slot = self._keeper.slot(nonce)
            if slot.call == nonce.call:
                status, token = slot.answer["claims"][0][::2] if slot.answer else (Status.LOST, 0)
                if status != OK:
                    return Claimed(Status(status), None, None)
                again, margin = self._still([(uuid, token)], expiry, nonce.handle)
                return Claimed(OK, again[0], margin) if again else Claimed(Status.LOST, None, None)
            it = self._read_for_claim(uuid)
            now = store.now() if expiry is not None or (it is not None and it.record.lock_until is not None) else 0
            found = None if it is None else stands(it, now or store.now() if it.record.exhausted else now)
            lease = (nonce.handle, None) if expiry is None else (None, now + expiry)
            status, record = states.claim(found, now, who, *lease)
            changes = [Change(it, record)] if status == OK and it is not None else []
            token = record.token if status == OK and record is not None else 0
            if not changes and nonce.attempt == 1:
                return Claimed(status, None, None)
            try:
                after = store.commit(changes, slot, nonce, {"claims": [[status.value, uuid, token]]})
            except Stale as stale:
                tries.again(stale.error)
                store.forget(uuid)
                if stale.index is None:
                    store.answers.unknown(slot)
                continue
            if not changes or after[0] is None:
                return Claimed(status, None, None)
            return Claimed(OK, after[0].record, self._keeper.margin if expiry is None else expiry)

    def _read_for_claim(self, uuid: str) -> Found | None:
        [it] = self._store.read([uuid])
        return None if isinstance(it, State) else it

    def _still(
        self, claims: Sequence[tuple[str, int]], expiry: int | None, handle: str
    ) -> tuple[list[Record], int | None]:
        """Those of these claims that still stand, and for how long."""
        store = self._store
        found = store.read([uuid for uuid, _ in claims])
        now = store.now() if any(not isinstance(it, State) and it.record.lock_until is not None for it in found) else 0
        records = []
        for (_, token), it in zip(claims, found, strict=True):
            if isinstance(it, State):
                continue
            record = stands(it, now)
            if record.state == CLAIMED and record.token == token:
                if it.held is None or it.held.owner == store.connection.session_id:
                    store.remember(it)
                elif not self._keeper.revived(it, token, handle):
                    # It was an earlier session's, which nothing keeps alive.
                    continue
                records.append(record)
        left = [record.lock_until - now for record in records if record.lock_until is not None]
        return records, min(left) if left else self._keeper.margin

    def take(
        self, who: str, limit: int, expiry: int | None, names: Sequence[str] | None, readable: int, nonce: Nonce
    ) -> Taken:
        store, view = self._store, self._store.view
        store.check_writable()
        wanted = None if names is None else frozenset(names)
        trashed: list[Record] = []
        synced = rung = False
        tries = Tries("claim a job")
        view.freshen()
        self.settle_times()
        while True:
            slot = self._keeper.slot(nonce)
            if slot.call == nonce.call:
                claims = [(uuid, token) for _, uuid, token in (slot.answer or {"claims": []})["claims"]]
                records, margin = self._still(claims, expiry, nonce.handle)
                return Taken(records, margin, trashed, view.next_event(), None, replayed=True)
            if exhausted := view.exhausted():
                trashed += store.sweep(exhausted[:100])
            # Rung again, that was during this call: what came before it is known by now.
            bell = None if rung else view.bell
            chosen = view.candidates(limit, wanted, readable)
            if chosen:
                taken = self._try(chosen, who, expiry, slot, nonce, bell, tries)
                if isinstance(taken, Taken):
                    taken.trashed.extend(trashed)
                    return taken
                rung = rung or taken
                view.freshen()
                self.settle_times()
            elif not synced:
                synced = True
                view.listen()
                view.look(sync=True, everything=True)
                self.settle_times(sure=True)
            else:
                if nonce.attempt > 1:
                    try:
                        store.commit([], slot, nonce, None)
                    except Stale as stale:
                        tries.again(stale.error)
                        store.answers.unknown(slot)
                        continue
                return Taken([], None, trashed, view.next_event(), None)

    def settle_times(self, sure: bool = False) -> None:
        """Bring back what is overdue."""
        view = self._store.view
        if view.may_be_overdue() or (sure and view.has_times()):
            view.settle(self._store.now())

    def _try(
        self,
        chosen: Sequence[Node],
        who: str,
        expiry: int | None,
        slot: Slot,
        nonce: Nonce,
        bell: int | None,
        tries: Tries,
    ) -> Taken | bool:
        """Claim these in one request. Otherwise somebody was quicker with one of them, or (True) what was known of the
        order is not true any longer.

        :param bell: the version of the bell with which they were chosen; None if it does not matter.
        """
        store, view = self._store, self._store.view
        found = store.fetch(chosen)
        timed = expiry is not None or any(it.record.lock_until is not None for it in found.values())
        now = store.now() if timed else 0
        lease = (nonce.handle, None) if expiry is None else (None, now + expiry)
        changes: list[Change] = []
        size = 0
        for node in chosen:
            it = found.get(node.uuid)
            if it is None:
                continue
            logical = stands(it, now)
            status, record = states.claim(logical, now, who, *lease)
            if status != OK or record is None:
                store.forget(node.uuid)
                view.set_aside(node, damaged=logical.state == TRASHED)
                continue
            size += len(record.posting) + len(record.error or "") + 4 * len(who) + 2 * len(node.name) + 500
            if changes and size > LIMIT:
                break
            changes.append(Change(it, record))
        if not changes:
            return False
        claims = [[OK.value, change.it.node.uuid, change.new.token] for change in changes if change.new is not None]
        try:
            after = store.commit(changes, slot, nonce, {"claims": claims}, bell)
        except Stale as stale:
            if stale.index == len(changes):
                view.doubt()
                return True
            if stale.index is None:
                # Others can only be quicker for as long as there are jobs; this might go on for ever.
                tries.again(stale.error)
            self._overtaken(stale, changes, slot)
            return False
        view.won_race()
        margin = self._keeper.margin if expiry is None else expiry
        records = [it.record for it in after if it is not None]
        return Taken(records, margin, [], view.next_event(), None, replayed=len(records) < len(chosen))

    def _overtaken(self, stale: Stale, changes: Sequence[Change], slot: Slot) -> None:
        store, view = self._store, self._store.view
        if stale.index is None:
            store.answers.unknown(slot)
            return
        view.lost_race()
        if len(changes) == 1:
            node = changes[0].it.node
            store.forget(node.uuid)
            if stale.gone:
                view.changed(node, None)
            else:
                view.set_aside(node)
            return
        nodes = [change.it.node for change in changes]
        for node, it in zip(nodes, store.read_nodes(nodes), strict=True):
            store.forget(node.uuid)
            if it is None:
                view.changed(node, None)
            elif it.held is not None or it.record.lock_until is not None:
                view.set_aside(node)
            else:
                store.remember(it)


def _held_within(drafts: Sequence[Draft], open_: Sequence[int]) -> dict[int, str]:
    """Those of these drafts whose key an earlier one of them has, with that one's uuid."""
    first: dict[str, str] = {}
    holders: dict[int, str] = {}
    for index in open_:
        draft = drafts[index]
        trashed = draft.arrival is not None and draft.arrival.trashed_on is not None
        if draft.key is not None and not trashed and first.setdefault(draft.key, draft.uuid) != draft.uuid:
            holders[index] = first[draft.key]
    return holders


def _size(draft: Draft) -> int:
    """About how many bytes a request to post it has."""
    error = draft.arrival and draft.arrival.error
    return len(draft.posting) + 4 * len(error or "") + 1000
