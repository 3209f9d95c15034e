"""What a board on Redis has stored: one script for each of a store's methods."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgpack
from oslo_utils import uuidutils
from redis import exceptions as errors

from jobboard.backends.redis import checks, doctor
from jobboard.backends.redis.bells import Bells, ChannelListener, events_listener
from jobboard.backends.redis.keys import keys_of, name_of, search_of
from jobboard.backends.redis.links import RedisLinks
from jobboard.backends.redis.records import letters, packed, packed_act, packed_draft, place, record_of, stored_of
from jobboard.backends.redis.scripts import Script, command
from jobboard.engine import (
    GATE,
    LISTED,
    PAGED,
    Change,
    Committed,
    Found,
    Lane,
    Look,
    Mark,
    Seat,
    Side,
    Stale,
    Store,
    Stored,
    damaged_gate,
    damaged_value,
    turns,
)
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.primitives import MENTIONED, Characteristics, Draft, Finish, Nonce, Oddity, mentioned
from jobboard.states import CLAIMED, SCHEDULED, TRASHED, UNCLAIMED, Holder, Record, State, Verb, settle

LOG = logging.getLogger(__name__)

LAYOUT = 3
"""The layout of the containers that this code writes and reads."""

WALK = 2000
"""How many jobs a page looks at at most, to find those that it is asked for: a few ms of the server's time."""

SCANS, SCANNED = 200, 1000
"""How often, and through how many keys each time, the server is searched for other boards."""

_LISTED = LISTED | PAGED


class RedisStore(Store):
    """The containers of one board.

    creates: whether :meth:`open` does. heard: is told (whose doing, event, record) while :meth:`listen` is on.
    rescheduled: is told when a schedule has changed, from :meth:`hear_schedules` on.
    """

    keeps = "lease"
    examines = frozenset({"entity", "scope", "key"})

    def __init__(
        self,
        seat: Seat,
        creates: bool,
        heard: Callable[[str, str, Record], None],
        rescheduled: Callable[[], None],
    ) -> None:
        self._name, self._conf, self._client, self._shown = seat.name, seat.conf, seat.client, seat.shown
        self._creates = creates
        self._heard = heard
        self._rescheduled = rescheduled
        # Who commits, so that a board does not hear of its own doings as another's.
        self.handle: Callable[[], str] = str
        self.keys = keys_of(seat.conf["namespace"], seat.name)
        self.gate_place = (
            f'{self.keys.of("sides").decode("utf-8", "backslashreplace")}, field "{GATE[0]}\\x00{GATE[1]}"'
        )
        self._replicas = seat.conf["min_replicas"]
        # Sent behind each script whose writes are relied on: the server answers it once so many replicas have these.
        wait = command(b"WAIT", b"%d" % self._replicas, b"%d" % int(seat.conf["socket_timeout"] * 500))
        self._wait = (wait,) if self._replicas else ()
        self._scripts: dict[str, Script] = {}
        self._listener: ChannelListener | None = None
        self._schedule_listener: ChannelListener | None = None
        self._listening_lock = threading.Lock()

    # Life

    def open(self) -> Characteristics:
        self.links = self._links()
        try:
            self._prepare()
        except BaseException:
            self.links.close()
            raise
        self.bells = self._new_bells()
        return self._promises()

    def _links(self) -> RedisLinks:
        return RedisLinks(self._conf, self.keys.tag, self._client)

    def _prepare(self) -> None:
        try:
            self.links.ready()
            self.server = checks.look_at(self.links, self._conf["allow_eviction"])
        except errors.ResponseError as error:
            raise self._refused(error) from error
        stored = self.run("setup", self._creates, LAYOUT, LAYOUT)
        if not stored:
            others = mentioned(self.boards(MENTIONED))
            raise JobFailure(
                f"there is no board {self._name!r} at {self._shown}{others}; create it with 'jobboard setup'"
            )
        layout, min_reader = stored
        if min_reader > LAYOUT:
            raise JobFailure(
                f"the board {self._name!r} has layout {layout}, which takes a newer version of this library; upgrade it"
            )
        if layout < LAYOUT:
            raise JobFailure(
                f"the board {self._name!r} has layout {layout}, which only an older version of this library reads: "
                "move its jobs to another board with that one ('jobboard move'), or remove its keys"
            )

    def _promises(self) -> Characteristics:
        server, waits_for = self.server, self._replicas
        self.has_replicas = server.replicas > 0
        return Characteristics(
            durable=server.durable,
            survives_failover=0 < server.replicas <= waits_for,
            exact_order=True,
            blocking_wait=True,
            remote_events=True,
            transactional=False,
            claim_ttl=self._conf["claim_ttl"],
            notes=f"{server.notes}; "
            + (
                f"each call waits for {waits_for} of {server.replicas} replicas"
                if waits_for
                else "a failover may lose what was acknowledged last"
            ),
        )

    def close(self) -> None:
        self.listen(False)
        with self._listening_lock:
            if self._schedule_listener is not None:
                self._schedule_listener.stop()
        self.bells.close()
        self.links.close()

    def forked(self) -> None:
        # What is inherited is let go of, not closed: the parent talks through the same sockets.
        own = self._client is None
        self.links = self._links() if own else self.links.abroad()
        self.bells = self._new_bells()
        self._listening_lock = threading.Lock()
        listened, self._listener = self._listener is not None, None
        # Whoever posts what is due there asks for it anew.
        self._schedule_listener = None
        if listened and own:
            self._listener = self._new_listener()
            self._listener.start(at_once=False)

    def _new_bells(self) -> Bells:
        return Bells(self.links, self.keys, self.server.flags, self.run, self._stands, self._give_back)

    def _stands(self, record: Record) -> bool:
        """Whether a claim that another's call has made stands, for which nobody has waited until replicas have it."""
        return not self._wait or bool(self.run("secure", record.uuid, record.token))

    def _give_back(self, record: Record) -> None:
        """End a claim that a waiter was given and nobody here will use; that attempt does not count."""
        act = Finish(record.uuid, Holder(record.who or "", record.token), Verb.ABANDON, refund=True)
        self.change("finish", Nonce(uuidutils.generate_uuid(dashed=False), 1, 1), [packed_act(act)])

    # Calls

    def run(self, name: str, *args: Any) -> Any:
        """Run a script; what it answers."""
        return self._run(name, args)

    def change(self, name: str, nonce: Nonce | None, *args: Any, postings: Sequence[bytes] = ()) -> Any:
        """Run a script that does nothing when it is repeated with the same nonce."""
        assert nonce is not None  # there are no transactions of a caller's to take part in
        signed = (f"{nonce.handle}:{nonce.slot}", nonce.call, nonce.attempt, *args)
        return self._run(name, signed, postings)

    def _run(self, name: str, args: Sequence[Any], postings: Sequence[bytes] = ()) -> Any:
        script = self._scripts.get(name)
        if script is None:
            script = self._scripts[name] = Script(name, self.keys, self.server.flags)
        more = self._wait if script.is_relied_on else ()
        try:
            try:
                reply = self.links.call(script.request(args, postings), *more)
            except errors.NoScriptError:
                # The server has been restarted, another one has taken its place, or somebody has flushed its scripts.
                # What is loaded now could be gone again when it is called.
                reply = self.links.call(script.request(args, postings, whole=True), *more)
        except errors.ResponseError as error:
            raise self._refused(error) from error
        if more:
            reply, copies = reply
            if copies < self._replicas:
                raise ConnectionFailure(
                    f"{copies} of the {self._replicas} replicas that min_replicas asks for have it so far",
                    outcome="unknown",
                )
        try:
            return msgpack.unpackb(reply, raw=True)
        except msgpack.ExtraData as met:
            self._tell_of_damage(msgpack.unpackb(met.extra, raw=True))
            return met.unpacked

    def _tell_of_damage(self, notes: Sequence[Any]) -> None:
        """What a script has met that is damaged: the log is the only place that keeps what was there."""
        for container, entry, reason, blob, written in notes:
            LOG.warning(
                "board %r has a damaged entry in %s, %r, which was %s: %s%s",
                self._name,
                container.decode(),
                entry.decode("utf-8", "backslashreplace"),
                "set aside" if written else "passed over; 'jobboard doctor' says what to do",
                reason.decode("utf-8", "backslashreplace"),
                f"; it holds {blob!r}" if blob else "",
            )

    def _refused(self, error: errors.ResponseError) -> JobFailure:
        text = str(error)
        if "LATE" in text:
            return JobFailure("this call comes after a later one: its caller has long gone on", error)
        if "RULES" in text:
            return damaged_gate("no script can read it")
        if isinstance(error, errors.OutOfMemoryError) or "OOM" in text:
            return JobFailure(
                "the server's memory is full: nothing was stored. Jobs can still be claimed and consumed there, "
                "which makes room",
                error,
            )
        if isinstance(error, errors.NoPermissionError) or "The user executing the script" in text:
            prefix = self.keys.tag.partition(b":{")[0].decode("utf-8", "backslashreplace")
            return JobFailure(
                f"the server's user may not do this: {text}. A board needs ~{prefix}:* &{prefix}:* +@read +@write "
                f"+@scripting +@pubsub +@connection +time{' +cluster|slots' if self._conf['cluster'] else ''}"
                f"{' +wait' if self._replicas else ''}, and should have +info",
                error,
            )
        if self._conf["sentinel"] and "SENTINEL" in text.upper():
            return JobFailure(f"the host is no sentinel, but a server itself: leave out sentinel= ({text})", error)
        return JobFailure(f"the server has refused it: {text}", error)

    # Looking

    def now(self) -> int:
        try:
            seconds, micros = self.links.call(command(b"TIME"))
        except errors.ResponseError as error:
            raise self._refused(error) from error
        return int(seconds) * 1_000_000 + int(micros)

    def read(self, uuids: Sequence[str], sides: Sequence[tuple[str, str]] = ()) -> Found:
        now, jobs, found = self.run("read", uuids, ["\0".join(side) for side in sides])
        return Found(
            now,
            [stored_of(*job) if job else None for job in jobs],
            [_side(*side, *(stored or ())) for side, stored in zip(sides, found, strict=True)],
        )

    def listed(self, kind: str) -> Found:
        now, found = self.run("listed", kind)
        return Found(now, [], [_side(kind, key.decode("utf-8", "replace"), *stored) for key, *stored in found])

    def newest(self, kind: str, after: Side | None, limit: int) -> Found:
        now, found = self.run("newest", kind, None if after is None else after.tag, limit)
        return Found(now, [], [_side(kind, key.decode("utf-8", "replace"), *stored) for key, *stored in found])

    def walk(self, kind: str, place: Any) -> tuple[Found, Any]:
        """Of keys: tidy.lua drops scopes."""
        now, found, *further = self.run("remembered", *(place or (0, 0)), WALK)
        sides = [_side("key", key.decode("utf-8", "replace"), *stored) for key, *stored in found]
        return Found(now, [], sides), further[0] if further else None

    def look(
        self,
        limit: int,
        names: Sequence[str] | None,
        readable: int,
        without: Sequence[str] = (),
        full: Sequence[Lane] = (),
    ) -> Look:
        now, ready, overdue, event, gate = self.run("look", limit, names, readable, without, full)
        first, ended = ([stored_of(*job) for job in some] for some in (ready, overdue))
        return Look(now, first, ended, event or None, _side(*GATE, *(gate or ())))

    def page(
        self, after: Record | None, limit: int, names: Sequence[str] | None, states: frozenset[State]
    ) -> tuple[int, list[Stored]]:
        behind = None if after is None else place(after)
        now, found = self.run("page", behind, limit, WALK, names, letters(states))
        return now, [stored_of(*job) for job in found]

    def trash_page(self, after: Record | None, limit: int) -> list[Record]:
        behind = (None, None) if after is None else (after.modified_on, after.sequence)
        now, found = self.run("trash_page", *behind, limit)
        return [settle(record_of(*job), now) for job in found]

    def counts(self) -> dict[State, int]:
        return dict(zip((UNCLAIMED, SCHEDULED, CLAIMED, TRASHED), self.run("counts"), strict=True))

    def boards(self, most: int) -> list[str]:
        """The boards of this namespace; this one, which the search might not come to, is asked for by itself."""
        there: list[str] = []
        found: set[str] = set()
        words = (b"MATCH", search_of(self._conf["namespace"]), b"COUNT", b"%d" % SCANNED)
        cursor = b"0"
        # An account that may not search sees none.
        with contextlib.suppress(errors.ResponseError):
            there += [self._name] if self.links.call(command(b"EXISTS", self.keys.tag)) else []
            for _ in range(SCANS):
                cursor, keys = self.links.call(command(b"SCAN", cursor, *words))
                found.update(map(name_of, keys))
                if cursor == b"0" or len(found) > most:
                    break
        return [*there, *sorted(found - {self._name})][:most]

    def examine(self) -> Iterator[Oddity]:
        return doctor.examine(self.run, self.keys, self.server, self._conf["allow_eviction"])

    # Writing

    def commit(self, changes: Sequence[Change], marks: Sequence[Mark] = (), checks: Sequence[Side] = ()) -> Committed:
        postings: list[bytes] = []
        steps = []
        for before, after, event in changes:
            step: list[Any] = [None, None, None, event]
            if before is not None:
                step[:2] = before.record.uuid, before.tag
            if isinstance(after, Draft):
                assert isinstance(after.posting, bytes)
                postings.append(after.posting)
                step[:3] = after.uuid, None, packed_draft(after)
            elif after is not None:
                step[2] = packed(after)
                if before is not None and after.posting != before.record.posting:
                    assert isinstance(after.posting, bytes)
                    postings.append(after.posting)
                    step.append(True)
            steps.append(step)
        sides = [
            ("\0".join(side[:2]), side.tag, value, ttl, side.kind in _LISTED, until, wakes)
            for side, value, ttl, until, wakes in marks
        ]
        relied = [("\0".join(side[:2]), side.tag) for side in checks]
        stale, done, jobs, versions = self._run("commit", (self.handle(), steps, sides, relied), postings)
        if not done:
            raise Stale([uuid.decode() for uuid in stale])
        written = [mark.before for mark in marks if mark.value is not None]
        return Committed(
            [stored_of(*job) for job in jobs],
            [_side(side.kind, side.key, *version) for side, version in zip(written, versions, strict=True)],
        )

    def secure(self) -> None:
        if self._wait:
            self.run("secure")

    def tidy(self, seconds: float) -> bool:
        return all(self.run("tidy") for _ in turns(seconds))

    # Events

    def listen(self, on: bool) -> None:
        with self._listening_lock:
            listener, self._listener = self._listener, None
            if listener is not None:
                listener.stop()
            if on:
                listener = self._new_listener()
                listener.start()
                self._listener = listener

    def outcome_count(self) -> int:
        try:
            count = self.links.call(command(b"ZLEXCOUNT", self.keys.of("listed"), b"[outcome\0", b"(outcome\1"))
        except errors.ResponseError as error:
            raise self._refused(error) from error
        return int(count)

    def hear_schedules(self) -> bool:
        with self._listening_lock:
            if self._schedule_listener is None:
                channel, told = self.keys.of("meta") + b":schedules", self._rescheduled
                listener = ChannelListener(self.links, channel, self.server.flags, lambda _: told(), told)
                listener.start()
                self._schedule_listener = listener
            return self._schedule_listener.hears

    def _new_listener(self) -> ChannelListener:
        return events_listener(self.links, self.keys, self.server.flags, self._heard)


def _side(kind: str, key: str, until: Any = None, value: Any = None, tag: object = None) -> Side:
    """As a script answers it, where Lua's false stands for None. A tag without a value: it is damaged."""
    if value is False:
        value = damaged_value(kind)
    return Side(kind, key, value, until or None, tag)
