"""One multi that is being made: its steps, its operations, and what they will have done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgpack

from jobboard.backends.zookeeper.paths import UNKNOWN, folder_of, sequence_of
from jobboard.backends.zookeeper.records import Guard, Guarded, SideTag, Tag, pack, pack_content
from jobboard.backends.zookeeper.requests import LIMIT, Op
from jobboard.engine import Change, Committed, Side, Stored
from jobboard.job import boottime
from jobboard.primitives import Draft
from jobboard.states import CLAIMED, TRASHED, UNCLAIMED, Record

if TYPE_CHECKING:
    from jobboard.backends.zookeeper.writing import Writer


class Tail(NamedTuple):
    """Where posts of a priority go: the folder, the version of the znode that says so, and how many it has taken."""

    version: int
    folder: int
    n: int


class Step(NamedTuple):
    """One job's change. ``content`` None: posting and errors stay where they are; ``body``: the mark of the znode that
    they get."""

    uuid: str
    change: Change
    after: Record | None
    place: tuple[int, int]
    content: bytes | None
    body: str

    @property
    def is_post(self) -> bool:
        """Whether the server numbers it."""
        return self.change.before is None and self.place[1] == UNKNOWN


class CommitOps:
    """The operations of one multi; ``about`` tells for each what its refusal means: the job's uuid, or a word."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.about: list[str] = []
        self.size = 0
        self._sides: list[tuple[int, tuple[str, str]]] = []

    def add(self, op: Op, about: str) -> int:
        self.size += op.size
        self.ops.append(op)
        self.about.append(about)
        return len(self.ops) - 1

    def about_side(self, side: Side) -> CommitOps:
        """What is added from here on is about this side record."""
        self._sides.append((len(self.ops), (side.kind, side.key)))
        return self

    def sides_from(self, index: int) -> list[tuple[str, str]]:
        """Kinds and keys of the side records of which nothing is known once this operation was refused: those compared
        before it are as they were read."""
        before = sum(start <= index for start, _ in self._sides)
        return [side for _, side in self._sides[max(0, before - 1) :]]


class Achieved:
    """What a multi will have done, if it is carried out."""

    def __init__(self, writer: Writer, steps: Sequence[Step], shelves: dict[str, str], now: int) -> None:
        self._writer = writer
        self._store = writer._store
        self._steps = steps
        self.now = now
        self.shelves = shelves
        self.folders: dict[int, int] = {}
        self.tags: dict[str, Tag] = {}
        self.written: dict[str, int] = {}
        self.posted: dict[str, int] = {}
        self.deleted: list[str] = []
        self.sides: list[tuple[Side, int | None]] = []
        self.bell: int | None = None

    def committed(self, results: Sequence[Any], start: float) -> Committed:
        store, end = self._store, boottime()
        # All that a multi writes, it writes at one instant.
        times = (result.mtime for result in results if hasattr(result, "mtime"))
        if (mtime := next(times, None)) is not None:
            store.clock.told(mtime, start, end)
        jobs = [self._stored(step, results) for step in self._steps if step.after is not None]
        sides = [
            side if at is None else side._replace(tag=SideTag(results[at].version, side.tag.mark))  # type: ignore[attr-defined]
            for side, at in self.sides
        ]
        made = [store.paths.at(tag.entry) for tag in self.tags.values() if tag.entry.startswith("ready/")]
        rung = None if self.bell is None else int(results[self.bell].version)
        ends = [step.after.lock_until for step in self._steps if step.after is not None]
        store.view.changed(made, self.deleted, [end for end in ends if end is not None], rung)
        self._writer.leave(self.deleted)
        return Committed(jobs, sides)

    def _stored(self, step: Step, results: Sequence[Any]) -> Stored:
        tag, record, uuid = self.tags[step.uuid], step.after, step.uuid
        assert record is not None
        if uuid in self.posted:
            path = results[self.posted[uuid]]
            n = int(path[-10:])
            self._writer.counted(record.priority, tag.folder, n)
            # kazoo answers the path with a chroot of its own.
            entry = f"{folder_of(UNCLAIMED, record.priority, tag.folder)}/{path.rpartition('/')[2]}"
            tag = self.tags[uuid] = Tag(0, tag.folder, n, entry, "", tag.body)
        if isinstance(step.change.after, Draft):
            record = record._replace(sequence=sequence_of(record.priority, tag.folder, tag.n))
            self._store.remember_number(uuid, tag.n)
        if uuid in self.written:
            tag = tag._replace(version=results[self.written[uuid]].version)
        return Stored(record, tag)


def created(stat: Any) -> int:
    """How many children were ever created; the stat counts those that went, too."""
    return int(stat.cversion + stat.numChildren) // 2


def tag_of(stored: Stored) -> Tag:
    tag = stored.tag.tag if isinstance(stored.tag, Guarded) else stored.tag
    assert isinstance(tag, Tag)
    return tag


def guards_of(steps: Sequence[Step]) -> set[Guard]:
    """What a claim of jobs compares that nobody has looked for."""
    tags = (step.change.before.tag for step in steps if step.change.before is not None)
    return {tag.guard for tag in tags if isinstance(tag, Guarded)}


def kept(record: Record | None) -> bool:
    return record is not None and record.state == CLAIMED and record.lock_until is None


def rings(step: Step) -> bool:
    """Whether it is news to those who wait: a job that is free, or an instant at which one may become so."""
    after, before = step.after, step.change.before
    if after is None or after.state == TRASHED:
        return False
    if after.state == UNCLAIMED:
        return True
    return after.lock_until is not None and (before is None or before.record.lock_until != after.lock_until)


def told(handle: str, steps: Sequence[Step]) -> bytes:
    """What others hear of it. Of a job that leaves, as it was; a long content is left out where all are too long."""
    told = []
    room = LIMIT // 3
    for step in steps:
        event, before, record = step.change.event, step.change.before, step.after
        if event is None:
            continue
        if record is None and before is not None:
            record = before.record
        assert record is not None
        place = Tag(0, *step.place, "", "", "")
        content = pack_content(record)
        room -= len(content)
        told.append((event, step.uuid, pack(record, place._replace(n=max(place.n, 0)), content if room > 0 else b"")))
    return bytes(msgpack.packb((handle, told))) if told else b""
