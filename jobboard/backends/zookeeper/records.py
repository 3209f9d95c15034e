"""How a job is stored, and which operations turn one stored job into another.

The job's znode holds the whole record. Its path, which no other znode ever has, and its version guard every change. A
claim that is kept has an ephemeral znode beside it, made in one multi with the record; where it is gone, the claim has
lapsed. Whatever brings such a znode (back) writes the job's znode too, so that "it is gone" stands for as long as the
job's version does.
"""

from __future__ import annotations

from typing import NamedTuple

import msgpack

from jobboard import states
from jobboard.backends.zookeeper.paths import IN_TRASH, Node, Paths, Trashed, quoted, timed_of
from jobboard.backends.zookeeper.wire import EPHEMERAL, SEQUENCE, Data, Op, Ops
from jobboard.primitives import Draft
from jobboard.states import CLAIMED, LIVE, SCHEDULED, TRASHED, UNCLAIMED, Record, State

MILLISECOND = 1000


class Held(NamedTuple):
    """A claim's znode: whose session, which token, and how often it was written."""

    owner: int
    token: int
    version: int


class Found(NamedTuple):
    """A job as it was read: what is stored, not what it means by now."""

    node: Node
    trashed: Trashed | None
    record: Record
    version: int
    held: Held | None


def encode(record: Record, modified_on: int | None, created_on: int | None) -> bytes:
    """``modified_on`` and ``created_on`` None: when the server writes it."""
    fields = (
        *(record.key, record.state.value, record.attempts, record.max_attempts, record.token, record.who),
        *(record.keeper, record.lock_until, created_on, modified_on, record.error, record.posting),
    )
    return bytes(msgpack.packb(fields))


def decode(node: Node, data: Data) -> Record:
    key, state, attempts, limit, token, who, keeper, until, created, modified, error, posting = msgpack.unpackb(
        data.data
    )
    return Record(
        uuid=node.uuid,
        name=node.job,
        priority=node.rank,
        sequence=node.sequence,
        key=key,
        version=node.version,
        posting=posting,
        state=State(state),
        attempts=attempts,
        max_attempts=limit,
        token=token,
        who=who,
        keeper=keeper,
        lock_until=until,
        created_on=data.stat.ctime * MILLISECOND if created is None else created,
        modified_on=data.stat.mtime * MILLISECOND if modified is None else modified,
        error=error,
    )


def found(node: Node, trashed: Trashed | None, data: Data, claim: Data | None) -> Found:
    held = None
    if claim is not None:
        held = Held(claim.stat.ephemeralOwner, int(claim.data.split(b" ")[0]), claim.stat.version)
    return Found(node, trashed, decode(node, data), data.stat.version, held)


def as_it_stands(stored: Record, held: bool, now: int) -> Record:
    """The logical record: a kept claim without its znode has lapsed, which nothing has stamped."""
    if stored.state == CLAIMED and stored.keeper is not None and stored.lock_until is None:
        return stored if held else states.lapse(stored, now)
    return states.settle(stored, now)


def stands(it: Found, now: int) -> Record:
    return as_it_stands(it.record, it.held is not None, now)


class Written(NamedTuple):
    """What a change consists of, and at which of the operations the job's record is written (None: it is gone)."""

    ops: list[Op]
    at: int | None


class Scribe:
    """Makes the operations of one board."""

    def __init__(self, paths: Paths, ops: Ops) -> None:
        self.paths = paths
        self.ops = ops

    def post(self, draft: Draft, now: int) -> Written:
        """A new job; its place is where the server puts it."""
        record = draft.record(0, now)
        name = f"{draft.version}.{draft.uuid}.{quoted(draft.name)}."
        if record.state == TRASHED:
            when = record.modified_on
            place = f"{self.paths.trash}/{when:016d}.{draft.priority}.{name}{IN_TRASH}"
            return Written([self.ops.create(place, encode(record, when, record.created_on), SEQUENCE)], 0)
        place = f"{self.paths.jobs[draft.priority]}/{name}"
        ops = [self.ops.create(place, encode(record, None, record.created_on or None), SEQUENCE)]
        if (timed := timed_of(record)) is not None:
            ops.append(self.ops.create(self.paths.timed_entry(timed)))
        if draft.key is not None:
            ops.append(self.ops.create(self.paths.key(draft.key), draft.uuid.encode()))
        return Written(ops, 0)

    def made(self, draft: Draft, path: str, now: int, posted: int) -> tuple[Node, Record]:
        """What :meth:`post` has made: ``path`` and ``posted`` are the server's."""
        name = path.rpartition("/")[2]
        record = draft.record(0, now)
        if record.state == TRASHED:
            node = Trashed.parse(name).node
            return node, record._replace(sequence=node.sequence)
        node = Node.parse(name, draft.priority)
        created = record.created_on or posted
        return node, record._replace(sequence=node.sequence, created_on=created, modified_on=posted)

    def ring(self, version: int = -1) -> Op:
        """Wake who waits; refused if the bell's version is another."""
        return self.ops.set(self.paths.bell, b"", version)

    def change(self, it: Found, new: Record | None, session: int | None, purged: bool = False) -> Written:
        """From what was found to ``new`` (None: the job is gone); refused if anybody has changed it since."""
        was_live, live = it.trashed is None, new is not None and new.state in LIVE
        ops: list[Op] = []
        at: int | None = None
        old_path = self.paths.job(it.node) if it.trashed is None else self.paths.trashed(it.trashed)
        if new is not None and was_live == live:
            at = len(ops)
            # Written as it was, the time is kept; otherwise it is the server's own.
            modified = new.modified_on if new.modified_on == it.record.modified_on else None
            ops.append(self.ops.set(old_path, encode(new, modified, new.created_on), it.version))
        else:
            ops.append(self.ops.delete(old_path, it.version))
            if new is not None:
                at = len(ops)
                node = it.node.restored(new.token) if live else it.node
                place = self.paths.job(node) if live else self.paths.trashed(Trashed.of(node, new.modified_on))
                ops.append(self.ops.create(place, encode(new, None if live else new.modified_on, new.created_on)))
        ops += self._claim(it, new, session)
        before, after = (timed_of(it.record) if was_live else None), (timed_of(new) if live and new else None)
        if before != after:
            if before is not None:
                ops.append(self.ops.delete(self.paths.timed_entry(before), -1))
            if after is not None:
                ops.append(self.ops.create(self.paths.timed_entry(after)))
        if it.record.key is not None and was_live != live:
            path = self.paths.key(it.record.key)
            ops.append(self.ops.create(path, it.node.uuid.encode()) if live else self.ops.delete(path, -1))
        if purged:
            ops.append(self.ops.create(self.paths.purged + "/" + it.node.uuid))
        return Written(ops, at)

    def _claim(self, it: Found, new: Record | None, session: int | None) -> list[Op]:
        path = self.paths.claim(it.node.uuid)
        keeps = new is not None and new.state == CLAIMED and new.keeper is not None
        if not keeps:
            return [] if it.held is None else [self.ops.delete(path, it.held.version)]
        assert new is not None
        data = f"{new.token} {new.keeper}".encode()
        if it.held is None:
            return [self.ops.create(path, data, EPHEMERAL)]
        if it.held.owner == session:
            return [self.ops.set(path, data, it.held.version)]
        return [self.ops.delete(path, it.held.version), self.ops.create(path, data, EPHEMERAL)]


def rings(old: Record | None, new: Record | None) -> bool:
    """Whether a change is news to those who wait: a job that is free, or an instant at which one may become so."""
    if new is None or new.state == TRASHED:
        return False
    if new.state == UNCLAIMED:
        return True
    return new.lock_until is not None and (old is None or new.lock_until != old.lock_until or new.state == SCHEDULED)
