"""One board's jobs: finding them, changing them in one multi each, and repeating what somebody else came in between."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from kazoo.exceptions import NoAuthError, NodeExistsError, NoNodeError

from jobboard import states
from jobboard.backends.zookeeper.answers import Answers, Slot
from jobboard.backends.zookeeper.connection import Connection, translated
from jobboard.backends.zookeeper.hearing import GONE, MADE, Listener, Mark
from jobboard.backends.zookeeper.paths import Node, Paths, Trashed
from jobboard.backends.zookeeper.records import (
    MILLISECOND,
    Found,
    Held,
    Scribe,
    decode,
    found,
    rings,
    stands,
)
from jobboard.backends.zookeeper.tries import Tries
from jobboard.backends.zookeeper.watches import View
from jobboard.backends.zookeeper.wire import Data, Op, Ops, Refused, get
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.job import boottime
from jobboard.primitives import Nonce
from jobboard.states import CLAIMED, COMPLETE, TRASHED, Holder, Record, State, Verb

LOG = logging.getLogger(__name__)

READ_AT_ONCE = 200
"""How many jobs one request reads."""

PREFETCH = 100
PREFETCH_BYTES = 256 * 1024

CACHED = 1000
CACHED_BYTES = 4 * 1024 * 1024


class Change:
    """One job's change, on its way into a multi."""

    def __init__(self, it: Found, new: Record | None, purged: bool = False) -> None:
        self.it = it
        self.new = new
        self.purged = purged


class Store:
    def __init__(
        self, connection: Connection, paths: Paths, ops: Ops, wake: Callable[[], None], read_only: bool
    ) -> None:
        self.connection = connection
        self.paths = paths
        self.ops = ops
        self.scribe = Scribe(paths, ops)
        self.view = View(connection, paths, wake, self.need, self.mend)
        self.answers = Answers(connection, paths, ops, self.mend)
        self.read_only = read_only
        self.listener: Listener | None = None
        self._cache: dict[str, Found] = {}
        self._size = 1024.0

    def check_writable(self) -> None:
        if self.read_only:
            raise JobFailure("the board was opened for looking only (read_only)")

    # Time

    def now(self) -> int:
        """The server's time in µs."""
        at = boottime()
        if self.read_only:
            [clock] = self.need([get(self.paths.clock)])
            return int(clock.stat.mtime * MILLISECOND)
        try:
            [stat] = self.send([self.ops.set(self.paths.clock, b"", -1)], [], None)
        except Stale as stale:
            raise translated(stale.error) from stale
        now = int(stat.mtime * MILLISECOND)
        self.view.learn_time(now, at)
        return now

    # What belongs to every board

    def need(self, reads: Sequence[Any], sync: str | None = None) -> list[Any]:
        """Read znodes that every board has; what somebody has deleted of them is made anew."""
        found = self.connection.read(reads, sync=sync)
        if None in found:
            self.mend()
            found = self.connection.read(reads, sync=sync)
        if None in found:
            missing = ", ".join(str(op.path) for op, each in zip(reads, found, strict=True) if each is None)
            raise JobFailure(f"the board at {self.paths.root} is damaged: {missing} is missing")
        return found

    def mend(self) -> None:
        """Make anew what every board has, where it is missing.

        :raises JobFailure: the whole board is gone.
        """
        paths = self.paths.own()
        found = self.connection.read([get(path) for path in paths], sync=self.paths.root)
        if found[-1] is None:
            raise JobFailure(f"the board at {self.paths.root} was deleted; connect() after a close() creates it anew")
        missing = [path for path, each in zip(paths, found, strict=True) if each is None]
        if missing:
            self.check_writable()
            LOG.warning("what others have deleted of the board is made anew: %s", ", ".join(missing))
        for path in missing:
            try:
                self.connection.commit([self.ops.create(path)])
            except Refused as refusal:
                if not isinstance(refusal.error, NodeExistsError):
                    raise translated(refusal.error) from refusal

    # Reading

    def cached(self, uuid: str) -> Found | None:
        return self._cache.get(uuid)

    def forget(self, uuid: str) -> None:
        self._cache.pop(uuid, None)

    def remember(self, it: Found) -> None:
        if len(self._cache) >= max(2 * PREFETCH, min(CACHED, CACHED_BYTES / self._size)):
            # Most of it others have taken. What is not known is read again.
            self._cache.clear()
        self._cache[it.node.uuid] = it

    def read(self, uuids: Sequence[str]) -> list[Found | State]:
        """The jobs as they are now; COMPLETE or TRASHED (purged) for those that are not there."""
        answers: dict[str, Found | State] = {}
        known = [uuid for uuid in uuids if self.view.place(uuid) is not None]
        self._read_live(known, answers)
        missing = [uuid for uuid in uuids if uuid not in answers]
        for _ in range(3):
            if not missing:
                break
            self.view.look(sync=True, everything=True, trash=True)
            self._read_live([uuid for uuid in missing if self.view.place(uuid) is not None], answers)
            self._read_trashed([uuid for uuid in missing if uuid not in answers], answers)
            missing = [uuid for uuid in uuids if uuid not in answers]
        return [answers.get(uuid, COMPLETE) for uuid in uuids]

    def read_nodes(self, nodes: Sequence[Node], sync: bool = False) -> list[Found | None]:
        """These live jobs, each with its claim, as they are at one instant per request.

        :param sync: have the server catch up with the ensemble first.
        """
        result: list[Found | None] = []
        for start in range(0, len(nodes), READ_AT_ONCE):
            chunk = nodes[start : start + READ_AT_ONCE]
            reads = [get(path) for n in chunk for path in (self.paths.job(n), self.paths.claim(n.uuid))]
            data = self.connection.read(reads, sync=self.paths.root if sync else None)
            for node, job, claim in zip(chunk, data[::2], data[1::2], strict=True):
                result.append(None if job is None else found(node, None, job, claim))
        return result

    def _read_live(self, uuids: Sequence[str], answers: dict[str, Found | State]) -> None:
        nodes = [node for uuid in uuids if (node := self.view.place(uuid)) is not None]
        for node, it in zip(nodes, self.read_nodes(nodes, sync=True), strict=True):
            if it is None:
                self.view.changed(node, None)
            else:
                answers[node.uuid] = it

    def _read_trashed(self, uuids: Sequence[str], answers: dict[str, Found | State]) -> None:
        for start in range(0, len(uuids), READ_AT_ONCE):
            chunk = uuids[start : start + READ_AT_ONCE]
            places = [self.view.trashed_place(uuid) for uuid in chunk]
            # A uuid that nobody has made is perhaps no name of a znode.
            reads = [
                get(self.paths.trashed(place) if place else f"{self.paths.purged}/{uuid}")
                for uuid, place in zip(chunk, places, strict=True)
                if place or _plain(uuid)
            ]
            data = iter(self.connection.read(reads) if reads else [])
            for uuid, place in zip(chunk, places, strict=True):
                it = next(data) if place or _plain(uuid) else None
                if it is not None and place is not None:
                    answers[uuid] = found(place.node, place, it, None)
                elif it is not None:
                    answers[uuid] = TRASHED
                elif place is None:
                    answers[uuid] = COMPLETE

    def read_trash(self, places: Sequence[Trashed]) -> list[Record]:
        records = []
        for start in range(0, len(places), READ_AT_ONCE):
            chunk = places[start : start + READ_AT_ONCE]
            data = self.connection.read([get(self.paths.trashed(place)) for place in chunk])
            records += [
                decode(place.node, each, place) for place, each in zip(chunk, data, strict=True) if each is not None
            ]
        return records

    def fetch(self, wanted: Sequence[Node]) -> dict[str, Found]:
        """These jobs without their claims, most likely as they are now; and in passing those that come next."""
        cached = ((node, self._cache.get(node.uuid)) for node in wanted)
        got = {node.uuid: it for node, it in cached if it is not None and it.node == node}
        missing = [node for node in wanted if node.uuid not in got]
        if not missing:
            return got
        ahead = max(len(missing), min(PREFETCH, int(PREFETCH_BYTES / self._size)))
        more = [
            node
            for node in self.view.following(wanted[-1], ahead - len(missing) + 1)
            if node.uuid not in self._cache and node not in missing
        ]
        nodes = [*missing, *more]
        doubtful: list[Node] = []
        data: list[Data | None] = self.connection.read([get(self.paths.job(node)) for node in nodes])
        for node, each in zip(nodes, data, strict=True):
            if each is None:
                self.view.changed(node, None)
                continue
            self._size += (len(each.data) - self._size) / 16
            it = found(node, None, each, None)
            if it.record.state == CLAIMED and it.record.keeper is not None:
                # Whether that claim has lapsed is seen only together with its znode.
                doubtful += [node] if node in missing else []
                continue
            self.remember(it)
            if node in missing:
                got[node.uuid] = it
        for node, again in zip(doubtful, self.read_nodes(doubtful), strict=True):
            if again is not None:
                got[node.uuid] = again
        return got

    # Changing

    def commit(
        self,
        changes: Sequence[Change],
        slot: Slot | None = None,
        nonce: Nonce | None = None,
        answer: Any = None,
        bell: int | None = None,
    ) -> list[Found | None]:
        """Carry out all of these in one multi, together with the answer to the call that wants them.

        :param bell: the version that the bell must have.
        :raises Stale: one of them does not fit any longer; its index is the number of the changes for the bell.
        """
        self.check_writable()
        session = self.connection.session_id
        written = [self.scribe.change(each.it, each.new, session, each.purged) for each in changes]
        lengths = [len(each.ops) for each in written]
        ops: list[Op] = [op for each in written for op in each.ops]
        rung = None
        if any(rings(each.it.record, each.new) for each in changes):
            rung = len(ops)
            ops.append(self.scribe.ring(-1 if bell is None else bell))
            lengths.append(1)
        elif bell is not None:
            ops.append(self.ops.check(self.paths.bell, bell))
            lengths.append(1)
        if slot is not None and nonce is not None:
            ops.append(self.answers.op(slot, nonce, answer))
        with self.ours(map(_mark, changes)):
            results = self._send_whole(ops, lengths, slot, [spare for each in written for spare in each.spare])
        # The answer, or the job itself, tells the instant of all of it.
        if slot is not None and nonce is not None:
            self.answers.kept(slot, nonce, answer, results[-1])
            at = results[-1].mtime * MILLISECOND
        else:
            at = next((result.mtime for result in reversed(results) if hasattr(result, "mtime")), 0) * MILLISECOND
        after: list[Found | None] = []
        start = 0
        with self.view.lock:
            for change, each in zip(changes, written, strict=True):
                answered = None if each.at is None else results[start + each.at]
                version = None if answered is None else 0 if isinstance(answered, str) else answered.version
                after.append(self._after(change, version, at))
                start += len(each.ops)
            if rung is not None:
                self.view.rang(results[rung].version)
        return after

    @contextlib.contextmanager
    def ours(self, marks: Iterable[Mark]) -> Iterator[None]:
        """What is done within is not told as somebody else's doing."""
        listener = self.listener
        if listener is None:
            yield
            return
        marks = list(marks)
        listener.expect(marks)
        try:
            yield
        except Stale:
            listener.withdraw(marks)
            raise

    def _send_whole(self, ops: list[Op], lengths: Sequence[int], slot: Slot | None, spare: Sequence[Op]) -> list[Any]:
        """As :meth:`send`; where one of the ``spare`` deletions finds nothing, all the rest is carried out without it.

        They come after the job's own znode, whose version has told by then that nobody of ours has changed anything."""
        while True:
            try:
                return self.send(ops, lengths, slot)
            except Stale as stale:
                if not isinstance(stale.error, NoNodeError) or ops[stale.at] not in spare:
                    raise
                LOG.warning("a znode that goes with a job was deleted by something else: %r", ops[stale.at])
                ops[stale.at] = self.ops.check(self.paths.root, -1)

    def send(self, ops: Sequence[Op], lengths: Sequence[int], slot: Slot | None) -> list[Any]:
        """:param lengths: how many of the operations belong to each change."""
        mended = False
        while True:
            try:
                return self.connection.commit(ops)
            except Refused as refusal:
                if isinstance(refusal.error, NoAuthError):
                    raise translated(refusal.error) from refusal
                stale = _stale(refusal, lengths)
                if mended or stale.gone or not isinstance(refusal.error, NoNodeError):
                    raise stale from refusal
                self.mend()
                mended = True
            except ConnectionFailure:
                if slot is not None:
                    self.answers.unknown(slot)
                raise

    def _after(self, change: Change, version: int | None, at: int) -> Found | None:
        """What is stored since ``at``; ``version`` is that of the job's znode, None where it is gone."""
        it, new = change.it, change.new
        if new is None or version is None:
            self.forget(it.node.uuid)
            self.view.changed(it.node, None)
            return None
        if new.state == TRASHED:
            self.forget(it.node.uuid)
            self.view.changed(it.node, new)
            return Found(it.node, Trashed.of(it.node, new.modified_on), new, version, None)
        if it.trashed is not None or new.modified_on != it.record.modified_on:
            new = new._replace(modified_on=at)
        held = None
        if new.state == CLAIMED and new.keeper is not None:
            owner = self.connection.session_id or 0
            again = it.held is not None and it.held.owner == owner
            held = Held(owner, new.token, it.held.version + 1 if again and it.held is not None else 0)
        node = it.node if it.trashed is None else it.node.restored(new.token)
        after = Found(node, None, new, version, held)
        self.remember(after)
        if it.trashed is not None:
            self.view.posted(node, new)
        else:
            self.view.changed(node, new)
        return after

    def sweep(self, nodes: Sequence[Node]) -> list[Record]:
        """Move jobs whose last claim has lapsed to the trash; those that this call has moved."""
        if not nodes or self.read_only:
            return []
        now = self.now()
        moved = []
        for node, it in zip(nodes, self.read_nodes(nodes), strict=True):
            if it is None:
                self.view.changed(node, None)
                continue
            logical = stands(it, now)
            if logical.state != TRASHED:
                self.view.changed(node, it.record)
                continue
            try:
                self.commit([Change(it, logical)])
            except Stale:
                continue
            moved.append(logical)
        return moved

    def give_back(self, uuid: str, token: int) -> None:
        """A claim that nobody knows to be theirs: the job is free again, and that attempt does not count."""
        tries = Tries(f"give job {uuid} back")
        while True:
            [it] = self.read([uuid])
            if isinstance(it, State):
                return
            now = self.now()
            holder = Holder(it.record.who or "", token)
            status, record = states.finish(stands(it, now), holder, now, Verb.ABANDON, refund=True)
            if status != states.OK:
                return
            try:
                self.commit([Change(it, record)])
                return
            except Stale as stale:
                tries.again(stale.error)


class Stale(Exception):
    """Somebody was quicker: ``index`` is the change that does not fit, None if it is the answer; ``at``, which of all
    the operations. ``gone``: the job's znode is not there any more."""

    def __init__(self, index: int | None, error: Exception, at: int, gone: bool = False) -> None:
        super().__init__(index, error)
        self.index = index
        self.error = error
        self.at = at
        self.gone = gone


def _stale(refusal: Refused, lengths: Sequence[int]) -> Stale:
    reached = 0
    for number, length in enumerate(lengths):
        if refusal.index < reached + length:
            gone = refusal.index == reached and isinstance(refusal.error, NoNodeError)
            return Stale(number, refusal.error, refusal.index, gone)
        reached += length
    return Stale(None, refusal.error, refusal.index)


def _mark(change: Change) -> Mark:
    """How the job lies after it."""
    uuid = change.it.node.uuid
    if change.new is None:
        return uuid, GONE
    if change.new.state == TRASHED:
        return uuid, Trashed.of(change.it.node, change.new.modified_on).name
    return uuid, MADE if change.it.trashed is not None else (change.it.node.name, change.it.version + 1)


def _plain(uuid: str) -> bool:
    return len(uuid) == 36 and "/" not in uuid and uuid.isascii() and uuid.isprintable()
