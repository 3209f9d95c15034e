"""One commit: what it changes, as one multi, and what its refusal tells."""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from jobboard.backends.zookeeper.batch import (
    Achieved,
    CommitOps,
    Step,
    Tail,
    created,
    guards_of,
    kept,
    rings,
    tag_of,
    told,
)
from jobboard.backends.zookeeper.paths import (
    FULL,
    TREES,
    UNKNOWN,
    entry_of,
    folder_number,
    folder_of,
    is_first,
    level_of,
    minute_of,
    prefix_of,
    sequence_of,
)
from jobboard.backends.zookeeper.records import INLINE, SideTag, Tag, pack, pack_content, pack_side
from jobboard.backends.zookeeper.requests import LIMIT, Op, Refused, check, create, delete, exists, get, put
from jobboard.engine import GATE, SCOPE, Change, Committed, Done, Mark, Side, Stale, Stored, reschedules
from jobboard.exceptions import ConnectionFailure
from jobboard.job import boottime
from jobboard.primitives import Draft
from jobboard.states import CLAIMED, TRASHED, UNCLAIMED, Record

if TYPE_CHECKING:
    from jobboard.backends.zookeeper.store import ZooKeeperStore

LOG = logging.getLogger(__name__)

TRIES = 20

_SHELF = 250
"""How many entries of one minute a handle puts on one shelf."""

_TAIL, _ALIVE, _LISTENERS, _SIDE, _GUARD = ":tail", ":alive", ":listeners", ":side", ":guard"
_FOLDER, _OTHER = ":folder", ":other"


class Writer:
    def __init__(self, store: ZooKeeperStore) -> None:
        self._store = store
        self._tails: dict[int, Tail] = {}
        self._seed = os.urandom(2).hex()[:3]
        self._shelves: Counter[str] = Counter()
        self._left: dict[str, str] = {}
        self._lock = threading.Lock()

    # Building

    def commit(self, changes: Sequence[Change], marks: Sequence[Mark], checks: Sequence[Side]) -> Committed:
        store = self._store
        now = store.earliest()
        steps = self._steps(changes, now)
        gone: set[str] = set()
        shelves: dict[str, str] = {}
        for _ in range(TRIES):
            try:
                batch, done = self._build(steps, marks, checks, now, gone, shelves)
                if batch.size > LIMIT:
                    steps = self._write_ahead(steps)
                    batch, done = self._build(steps, marks, checks, now, gone, shelves, ahead=True)
                start = boottime()
                results = store.connection.commit(batch.ops)
            except Refused as refusal:
                self._refused(refusal, batch, steps, gone)
            except ConnectionFailure:
                self._tails.clear()
                raise
            else:
                return done.committed(results, start)
        raise Stale

    def _steps(self, changes: Sequence[Change], now: int) -> list[Step]:
        posted: list[Record] = []
        steps: list[Step] = []
        for change in changes:
            before, after, _ = change
            if isinstance(after, Draft):
                record = after.record(0, now)
                content = pack_content(record)
                if len(content) > LIMIT:
                    raise ValueError(
                        f"details: {len(content)} bytes are more than a ZooKeeper request of 1 MB can hold"
                    )
                posted.append(record)
                steps.append(Step(record.uuid, change, record, (0, UNKNOWN), content, _mark(content)))
                continue
            assert before is not None
            tag = tag_of(before)
            same = after is None or (after.posting, after.errors) == (before.record.posting, before.record.errors)
            new = None if same or after is None else pack_content(after)
            body = tag.body if new is None else _mark(new)
            place = (tag.folder, tag.n)
            if after is not None and after.priority != before.record.priority:
                # Each priority has folders of its own, and numbers.
                place = self._reserve([after])[after.uuid]
                after = after._replace(sequence=sequence_of(after.priority, *place))
            steps.append(Step(before.record.uuid, change, after, place, new, body))
        if any(record.state != UNCLAIMED for record in posted):
            # All of them, or they would not be numbered in their order.
            places = self._reserve(posted)
            steps = [step._replace(place=places[step.uuid]) if step.uuid in places else step for step in steps]
        return steps

    def _reserve(self, records: Sequence[Record]) -> dict[str, tuple[int, int]]:
        """Places among the posts, for jobs that are not ready from the start."""
        gone: set[str] = set()
        for _ in range(TRIES):
            batch, numbers = CommitOps(), {}
            folders = self._folders(Counter(record.priority for record in records), batch, gone)
            for record in records:
                folder = folder_of(UNCLAIMED, record.priority, folders[record.priority])
                # The server's count is all that matters: nothing stays, whatever becomes of this process.
                op = create(self._at(f"{folder}/-."), ephemeral=True, sequence=True)
                numbers[record.uuid] = batch.add(op, _OTHER)
            try:
                results = self._store.connection.commit(batch.ops)
            except Refused as refusal:
                self._refused(refusal, batch, [], gone)
                continue
            places, over = {}, []
            for record in records:
                number, suffix = folders[record.priority], results[numbers[record.uuid]][-10:]
                self.counted(record.priority, number, int(suffix))
                over.append(delete(self._at(f"{folder_of(UNCLAIMED, record.priority, number)}/-.{suffix}")))
                places[record.uuid] = (number, int(suffix))
            self._store.connection.try_later(over)
            return places
        raise Stale

    def _folders(self, ranks: Counter[int], batch: CommitOps, gone: set[str]) -> dict[int, int]:
        """Where posts of these priorities go, as this commit compares it."""
        folders = {}
        for rank, count in ranks.items():
            tail = self._tails.get(rank) or self._read_tail(rank)
            path = self._at(f"tail/{rank:03d}")
            if tail.n and tail.n + count > FULL:
                batch.add(put(path, b"%d" % (tail.folder + 1), tail.version), _TAIL)
                folders[rank] = tail.folder + 1
                self._begin(rank, tail.folder + 1, batch, gone)
            else:
                batch.add(check(path, tail.version), _TAIL)
                folders[rank] = tail.folder
        return folders

    def _begin(self, rank: int, number: int, batch: CommitOps, gone: set[str]) -> None:
        """Make the folders that these jobs will go through, which cost a refused commit each otherwise."""
        for state in (UNCLAIMED, CLAIMED):
            folder = self._at(folder_of(state, rank, number))
            for path in [folder.rpartition("/")[0], folder] if is_first(number) else [folder]:
                if path not in gone:
                    batch.add(create(path), _FOLDER)

    def _read_tail(self, rank: int) -> Tail:
        connection, path = self._store.connection, self._at(f"tail/{rank:03d}")
        [found] = connection.read([get(path)])
        if found is None:
            connection.make([create(path, b"0")])
            [found] = connection.read([get(path)], fresh=self._store.paths.root)
        if found is None:
            self._store.mend([path])
            return self._read_tail(rank)
        folder = int(found[0] or b"0")
        [stat] = connection.read([exists(self._at(folder_of(UNCLAIMED, rank, folder)))])
        tail = self._tails[rank] = Tail(found[1].version, folder, 0 if stat is None else created(stat))
        return tail

    def counted(self, rank: int, folder: int, n: int) -> None:
        tail = self._tails.get(rank)
        if tail is not None and tail.folder == folder:
            self._tails[rank] = tail._replace(n=max(tail.n, n + 1))
        elif tail is not None and tail.folder == folder - 1:
            self._tails[rank] = Tail(tail.version + 1, folder, n + 1)

    def tail_folder(self, rank: int) -> int:
        """No earlier than what posts go to now."""
        return (self._tails.get(rank) or self._read_tail(rank)).folder

    def _at(self, relative: str) -> str:
        return self._store.paths.at(relative)

    def _build(
        self,
        steps: Sequence[Step],
        marks: Sequence[Mark],
        checks: Sequence[Side],
        now: int,
        gone: set[str],
        shelves: dict[str, str],
        ahead: bool = False,
    ) -> tuple[CommitOps, Achieved]:
        store, batch = self._store, CommitOps()
        done = Achieved(self, steps, shelves, now)
        ranks = [step.after.priority for step in steps if step.is_post and step.after is not None]
        done.folders = self._folders(Counter(ranks), batch, gone) if ranks else {}
        listened = store.events.listened()
        if steps:
            batch.add(check(store.paths.listeners, store.events.version), _LISTENERS)
        keeper = ""
        if any(kept(step.after) for step in steps):
            keeper = store.keeper()
            batch.add(check(f"{store.paths.alive}/{keeper}"), _ALIVE)
        for guard in guards_of(steps):
            batch.add(check(store.paths.bell, guard.bell), _GUARD)
            for other in guard.keepers:
                if other != keeper:
                    batch.add(check(f"{store.paths.alive}/{other}"), _GUARD)
        for step in steps:
            if step.is_post:
                self._post(step, batch, done, ahead)
            else:
                self._change(step, keeper, batch, done, gone, ahead)
        for side in checks:
            batch.about_side(side).add(check(store.paths.side(side.kind, side.key), _version(side)), _OTHER)
        for mark in marks:
            self._mark(mark, batch.about_side(mark.before), done, gone)
        self._ring(steps, marks, batch, done)
        if listened and (news := told(store.handle, steps)):
            batch.add(create(f"{store.paths.events}/e", news, sequence=True), _OTHER)
        return batch, done

    def _ring(self, steps: Sequence[Step], marks: Sequence[Mark], batch: CommitOps, done: Achieved) -> None:
        waking = {mark.before.kind for mark in marks if mark.wakes}
        if "gate" in waking or any(rings(step) for step in steps):
            done.bell = batch.add(put(self._store.paths.bell, b""), _OTHER)
        if waking - {"gate"}:  # nothing has come into any list
            batch.add(put(self._store.paths.slots, b""), _OTHER)
        if reschedules(steps, marks):
            batch.add(put(self._store.paths.schedules, b""), _OTHER)

    def _post(self, step: Step, batch: CommitOps, done: Achieved, ahead: bool) -> None:
        uuid, record, content, body = step.uuid, step.after, step.content, step.body
        assert record is not None
        assert content is not None
        path, folder = self._store.paths.job(uuid), done.folders[record.priority]
        tag = done.tags[uuid] = Tag(0, folder, UNKNOWN, "", "", body)
        batch.add(create(path, pack(record, tag, b"" if body else content)), uuid)
        place = self._at(f"{folder_of(UNCLAIMED, record.priority, folder)}/{prefix_of(record)}")
        done.posted[uuid] = batch.add(create(place, sequence=True), uuid)
        if body and not ahead:
            batch.add(create(f"{path}~{body}", content), uuid)

    def _change(self, step: Step, keeper: str, batch: CommitOps, done: Achieved, gone: set[str], ahead: bool) -> None:
        uuid, change, after, (folder, n), content, body = step
        before, path = change.before, self._store.paths.job(uuid)
        old = None if before is None else tag_of(before)
        tag = Tag(0, folder, n, "", "", body)
        if after is None:
            batch.add(delete(path, -1 if old is None else old.version), uuid)
        else:
            tag = self._record(step, after, tag, keeper, batch, done)
            if body and content is not None and not ahead:
                batch.add(create(f"{path}~{body}", content), uuid)
        had = [] if old is None else [self._at(each) for each in (old.entry, old.listed) if each]
        has = [self._at(each) for each in (tag.entry, tag.listed) if each]
        if old is not None and old.body and (after is None or old.body != body):
            had.append(f"{path}~{old.body}")
        for each in had:
            if each not in has and each not in gone:
                batch.add(delete(each), uuid)
                done.deleted.append(each)
        for each in has:
            if each not in had:
                batch.add(create(each), uuid)
        if old is not None and tag.entry and tag.entry == old.entry and has[0] not in gone:
            # The version may have been another life's, the entry not.
            batch.add(check(has[0]), uuid)
        done.tags[uuid] = tag

    def _record(self, step: Step, after: Record, tag: Tag, keeper: str, batch: CommitOps, done: Achieved) -> Tag:
        """What the job's own znode is to hold; where its entries lie then."""
        before, uuid, content = step.change.before, step.uuid, step.content
        old, path = None if before is None else tag_of(before), self._store.paths.job(step.uuid)
        listed = self._listed(after, tag, keeper, before, old, done.shelves)
        tag = tag._replace(entry=entry_of(after, tag.folder, tag.n), listed=listed)
        inline = b""
        if not tag.body:
            inline = content if content is not None else pack_content(before.record if before is not None else after)
        data = pack(after, tag, inline)
        if old is None:
            batch.add(create(path, data), uuid)
        else:
            done.written[uuid] = batch.add(put(path, data, old.version), uuid)
        return tag

    def _listed(
        self, after: Record, tag: Tag, keeper: str, before: Stored | None, old: Tag | None, shelves: dict[str, str]
    ) -> str:
        """Where the job is found by its end, its keeper, or its time in the trash."""
        if after.state == TRASHED:
            if old is not None and before is not None and before.record.state == TRASHED and old.listed:
                return old.listed
            sequence = sequence_of(after.priority, tag.folder, tag.n)
            shelf = self._shelf("trash", after.modified_on, shelves, after.uuid)
            return f"{shelf}/{after.modified_on:016d}.{sequence}.{after.uuid}"
        if after.lock_until is not None:
            if before is not None and old is not None and before.record.lock_until == after.lock_until:
                return old.listed
            return f"{self._shelf('timed', after.lock_until, shelves, after.uuid)}/{after.lock_until:016d}.{after.uuid}"
        return f"kept/{keeper}/{after.uuid}" if kept(after) else ""

    def _shelf(self, tree: str, at: int, chosen: dict[str, str], uuid: str) -> str:
        """Where an entry goes; the same again when the commit is tried again."""
        if uuid in chosen:
            return chosen[uuid]
        minute = minute_of(tree, at)
        with self._lock:
            count = self._shelves[minute]
            self._shelves[minute] += 1
            if len(self._shelves) > 1000:
                self._shelves = Counter({minute: count + 1})
                self._seed = os.urandom(2).hex()[:3]
        chosen[uuid] = f"{minute}/{self._seed}{count // _SHELF}"
        return chosen[uuid]

    def _mark(self, mark: Mark, batch: CommitOps, done: Achieved, gone: set[str]) -> None:
        (kind, key, _, _, tag), value = mark.before, mark.value
        path = self._store.paths.side(kind, key)
        until = mark.end(done.now)
        assert tag is None or isinstance(tag, SideTag)
        if kind == "gate":
            data = b"" if value is None else pack_side("", until, value)
            at = batch.add(put(path, data, _version(mark.before)), _OTHER)
            if value is not None:
                done.sides.append((Side(kind, key, value, until, SideTag(0, "")), at))
            return
        marked = kind != "answer"
        if tag is None or (marked and not tag.mark):
            # There is none, or one that can't be read.
            if value is not None:
                made = os.urandom(5).hex() if marked else ""
                data = pack_side(made, until, value)
                at = batch.add(create(path, data) if tag is None else put(path, data, tag.version), _SIDE)
                if marked:
                    batch.add(create(f"{path}/{made}"), _SIDE)
                if kind == "outcome" and until is not None:
                    self._lead_to(Done.of(mark.before._replace(value=value)), until, batch, done)
                side = Side(kind, key, value, until, SideTag(0, made))
                done.sides.append((side, None if tag is None else at))
            return
        # What lies under it tells that it has not been made anew since.
        below = f"{path}/{tag.mark}"
        if marked and below not in gone:
            batch.add(delete(below) if value is None else check(below), _SIDE)
        if value is None:
            batch.add(delete(path, tag.version), _SIDE)
        else:
            at = batch.add(put(path, pack_side(tag.mark, until, value), tag.version), _SIDE)
            done.sides.append((Side(kind, key, value, until, tag), at))

    def _lead_to(self, ended: Done | None, until: int, batch: CommitOps, done: Achieved) -> None:
        """What leads to an outcome by when the job ended, and by when it is to be dropped itself."""
        assert ended is not None
        uuid, leads = ended.record.uuid, ""
        for tree, at in (("done", ended.record.modified_on), ("over", until)):
            shelf = self._shelf(tree, at, done.shelves, f"{tree} {uuid}")
            path = f"{shelf}/{at:016d}.{ended.record.sequence}.{uuid}"
            # What is dropped by the one is found in the other, whose shelf nothing else tells.
            batch.add(create(self._at(path), leads.encode()), uuid)
            leads = path

    def _write_ahead(self, steps: Sequence[Step]) -> list[Step]:
        """Contents that don't fit into one request with the rest are written before it. Nobody finds them until the
        commit tells where they are."""
        small = sum(len(step.content or b"") for step in steps if not step.body) > LIMIT // 2
        steps = [
            step._replace(body=os.urandom(5).hex()) if small and step.content is not None and not step.body else step
            for step in steps
        ]
        batch = CommitOps()
        for step in steps:
            if step.content is None or not step.body:
                continue
            op = create(f"{self._store.paths.job(step.uuid)}~{step.body}", step.content)
            if batch.size + op.size > LIMIT:
                self._store.connection.commit(batch.ops)
                batch = CommitOps()
            batch.add(op, step.uuid)
        if batch.ops:
            self._store.connection.commit(batch.ops)
        return list(steps)

    # What the server has said

    def _refused(self, refusal: Refused, batch: CommitOps, steps: Sequence[Step], gone: set[str]) -> None:
        """Mend what can be mended, so that the commit is tried again.

        :raises Stale: somebody was quicker.
        """
        store, index, error = self._store, refusal.index, refusal.error
        op, about = batch.ops[index], batch.about[index]
        if about == _GUARD:
            store.view.doubt()
            raise Stale(sides=[GATE]) from refusal
        if about == _TAIL:
            self._tails.clear()
        elif about == _FOLDER and isinstance(error, NodeExistsError):
            gone.add(op.path)
        elif about == _ALIVE:
            store.forget_keeper()
        elif about == _LISTENERS and isinstance(error, BadVersionError):
            store.events.refresh()
        elif isinstance(error, NoNodeError) and (op.do == "create" or about in (_OTHER, _LISTENERS)):
            store.mend([each.path for each in batch.ops if each.do == "create"])
        elif isinstance(error, NoNodeError) and self._was_deleted(op, about, steps):
            LOG.warning("%s was deleted by something else; the job is changed without it", op.path)
            gone.add(op.path)
        elif about.startswith(":"):
            raise Stale(sides=batch.sides_from(index)) from refusal
        else:
            store.view.beaten()
            uuids = [about] if len(steps) == 1 else self._stale(steps) or [about]
            raise Stale(uuids, [side for side in batch.sides_from(index) if side[0] == SCOPE]) from refusal

    def _was_deleted(self, op: Op, about: str, steps: Sequence[Step]) -> bool:
        """Whether a znode is missing that belongs to a job, or a side record, that is as it was read."""
        if about == _SIDE:
            path, _, mark = op.path.rpartition("/")
            [found] = self._store.connection.read([get(path)], fresh=self._store.paths.root)
            return found is not None and mark in repr(found[0])
        [step] = [step for step in steps if step.uuid == about]
        if op.path == self._store.paths.job(about):
            return False
        return not self._stale([step])

    def _stale(self, steps: Sequence[Step]) -> list[str]:
        """Which of these jobs have changed."""
        before = [(step.uuid, tag_of(step.change.before)) for step in steps if step.change.before is not None]
        found = self._store.read([uuid for uuid, _ in before]).jobs
        return [uuid for (uuid, tag), stored in zip(before, found, strict=True) if stored is None or stored.tag != tag]

    def leave(self, deleted: Sequence[str]) -> None:
        """Remove the folders that this handle has taken something from, when it goes on to others; those that are not
        empty stay."""
        root = len(self._store.paths.root) + 1
        over: list[str] = []
        for path in deleted:
            folder = path[root:].rpartition("/")[0]
            tree, rank, *_ = folder.split("/")
            if tree not in (*TREES.values(), "timed", "trash"):
                continue
            # Those of another priority are gone back to soon.
            walk = f"{tree}/{rank}" if tree in TREES.values() else tree
            last = self._left.get(walk)
            if last is not None and last != folder:
                over.append(last)
            self._left[walk] = folder
        if over:
            self.remove(over)

    def remove(self, folders: Sequence[str]) -> None:
        """These folders and those that they lie in, as far as they are empty; but not where posts go to."""
        ops = []
        for folder in folders:
            tree, rank, *rest = folder.split("/")
            if tree == "ready":
                hi, lo = rest
                tail = self._tails.get(int(rank))
                number = folder_number(hi, lo)
                if tail is None or number >= tail.folder:
                    continue
                # Where no job was claimed, that of claims is still as it was made.
                ops += [delete(self._at(folder)), delete(self._at(folder_of(CLAIMED, int(rank), number)))]
                if int(hi) < level_of(tail.folder):
                    ops.append(delete(self._at(folder.rpartition("/")[0])))
                continue
            ops += [delete(self._at(folder)), delete(self._at(folder.rpartition("/")[0]))]
            ops.append(delete(self._at(f"{tree}/{rank}")))
        self._store.connection.try_later(ops)


def _version(side: Side) -> int:
    """Of a side record whose znode is always there; one that is missing is made anew."""
    return side.tag.version if isinstance(side.tag, SideTag) else 0


def _mark(content: bytes) -> str:
    return os.urandom(5).hex() if len(content) > INLINE else ""
