"""How a job is stored, and which operations turn one stored job into another.

The job's znode holds the whole record. Its path, which no other znode ever has, and its version guard every change. A
claim that is kept has an ephemeral znode beside it, made in one multi with the record; where it is gone, the claim has
lapsed. Whatever brings such a znode (back) writes the job's znode too, so that "it is gone" stands for as long as the
job's version does.
"""

from __future__ import annotations

import json
import logging
from typing import Any, NamedTuple

import msgpack

from jobboard import states
from jobboard.backends.zookeeper.paths import IN_TRASH, Node, Paths, Trashed, quoted, timed_of
from jobboard.backends.zookeeper.wire import EPHEMERAL, LIMIT, SEQUENCE, Data, Op, Ops
from jobboard.primitives import Draft
from jobboard.states import CLAIMED, LIVE, SCHEDULED, TRASHED, UNCLAIMED, Record, State

LOG = logging.getLogger(__name__)

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
        *(record.keeper, record.lock_until, created_on, modified_on, record.error, record.posting, record.retries),
    )
    return bytes(msgpack.packb(fields))


def decode(node: Node, data: Data, trashed: Trashed | None = None) -> Record:
    """The record. One that can't be read is in the trash, whereto the claim that meets it moves what there is of it."""
    try:
        key, state, attempts, limit, token, who, keeper, until, created, modified, error, posting, retries = unpack(
            data.data
        )
    except ValueError as damage:
        LOG.warning("job %s is set aside: %s", node.uuid, damage)
        key, state, attempts, limit, token, who, keeper, until = None, TRASHED, 0, None, 0, None, None, None
        created, modified, error = None, trashed and trashed.when, str(damage)
        posting, retries = data.data[: LIMIT // 2], 0
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
        retries=retries,
    )


_TEXT, _NUMBER = (str, type(None)), (int, type(None))
_TYPES = (_TEXT, str, int, _NUMBER, int, _TEXT, _TEXT, _NUMBER, _NUMBER, _NUMBER, _TEXT, bytes, int)


def _is(field: Any, kind: Any) -> bool:
    return isinstance(field, kind)


def unpack(data: bytes) -> Any:
    """The fields of a record, as :func:`encode` has packed them.

    :raises ValueError: these are none.
    """
    try:
        fields = msgpack.unpackb(data)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise ValueError(f"its record can't be decoded: {error}") from error
    if not isinstance(fields, list) or len(fields) != len(_TYPES) or not all(map(_is, fields, _TYPES)):
        raise ValueError("its record can't be decoded: it is of another form")
    # A token must have room to rise.
    if any(isinstance(field, int) and not 0 <= field < 2**62 for field in fields):
        raise ValueError("its record can't be decoded: a number is out of range")
    state, who, keeper, until = fields[1], *fields[5:8]
    held = who is not None and (keeper is not None or until is not None)
    if state not in (*LIVE, TRASHED) or (state == CLAIMED and not held) or (state == SCHEDULED and until is None):
        raise ValueError(f"its record can't be decoded: it contradicts its state, {state!r}")
    return fields


def token_of(claim: Data) -> int | None:
    """The token in a claim's znode; None if something else has written there."""
    token = claim.data.partition(b" ")[0]
    return int(token) if token.isdigit() else None


def entity_of(data: bytes) -> tuple[str, str, str, str]:
    """Whose an entity is, its kind, its name and its metadata.

    :raises ValueError: this is none.
    """
    fields = json.loads(data)
    if not isinstance(fields, list) or len(fields) != 4 or not all(isinstance(field, str) for field in fields):
        raise ValueError("it is of another form")
    json.loads(fields[-1])
    return tuple(fields)


def found(node: Node, trashed: Trashed | None, data: Data, claim: Data | None) -> Found:
    held = None
    if claim is not None:
        token = token_of(claim)
        held = Held(claim.stat.ephemeralOwner, -1 if token is None else token, claim.stat.version)
    return Found(node, trashed, decode(node, data, trashed), data.stat.version, held)


def as_it_stands(stored: Record, held: bool, now: int) -> Record:
    """The logical record: a kept claim without its znode has lapsed, which nothing has stamped."""
    if stored.state == CLAIMED and stored.keeper is not None and stored.lock_until is None:
        return stored if held else states.lapse(stored, now)
    return states.settle(stored, now)


def stands(it: Found, now: int) -> Record:
    return as_it_stands(it.record, it.held is not None, now)


class Written(NamedTuple):
    """What a change consists of, at which of the operations the job's record is written (None: it is gone), and which
    deletions the rest may do without."""

    ops: list[Op]
    at: int | None
    spare: list[Op]


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
            return Written([self.ops.create(place, encode(record, when, record.created_on), SEQUENCE)], 0, [])
        place = f"{self.paths.jobs[draft.priority]}/{name}"
        ops = [self.ops.create(place, encode(record, None, record.created_on or None), SEQUENCE)]
        if (timed := timed_of(record)) is not None:
            ops.append(self.ops.create(self.paths.timed_entry(timed)))
        if draft.key is not None:
            ops.append(self.ops.create(self.paths.key(draft.key), draft.uuid.encode()))
        return Written(ops, 0, [])

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
        spare: list[Op] = []
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
                spare.append(self.ops.delete(self.paths.timed_entry(before), -1))
            if after is not None:
                ops.append(self.ops.create(self.paths.timed_entry(after)))
        if it.record.key is not None and was_live != live:
            path = self.paths.key(it.record.key)
            if live:
                ops.append(self.ops.create(path, it.node.uuid.encode()))
            else:
                spare.append(self.ops.delete(path, -1))
        if purged:
            ops.append(self.ops.create(self.paths.purged + "/" + it.node.uuid))
        return Written([*ops, *spare], at, spare)

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
