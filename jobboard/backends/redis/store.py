"""The store of a board on Redis from 6.2 or on Valkey: alone, behind Sentinel, or as a cluster.

Each request is a call of one script, see ``lua/``. ``commit`` stores changes of the engine. ``take``, ``consume``,
``renew`` and ``post`` are fast paths for the plain case.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, cast

import msgpack
from redis import exceptions as errors

from jobboard import conf, logs, notifier, retry, runtime
from jobboard.backends.redis.clients import check_client
from jobboard.backends.redis.connections import Connections
from jobboard.backends.redis.keys import CONTAINERS, keys_of, name_of, search_of
from jobboard.backends.redis.options import OPTIONS, SOCKET_OPTIONS, SOCKET_PARTS, URI_PARTS, check_options
from jobboard.backends.redis.pubsub import ChannelListener
from jobboard.backends.redis.records import (
    LAST,
    Damaged,
    Entry,
    body_of,
    entries_of,
    newest,
    pack,
    packed_draft,
    ready_entries,
    side_of,
    stored_of,
    text_of,
)
from jobboard.backends.redis.scripts import CAP, POST, Script, command
from jobboard.backends.redis.server import server_of
from jobboard.backends.redis.waiters import RedisWaiters, Wish
from jobboard.engine import (
    ANY_TERMS,
    GATE,
    OVERDUE,
    Answer,
    BoardMissing,
    Bookmark,
    Change,
    ClaimTerms,
    Committed,
    CommitTerms,
    Deed,
    Found,
    Hears,
    LimitScope,
    Look,
    Mark,
    Order,
    Seat,
    Side,
    Sieve,
    Stale,
    Store,
    Stored,
    StoredLayout,
    Traits,
    Walked,
    library_version,
    reschedules,
    slot_of,
    tries,
    turns,
    walk_outcomes,
    walk_trash,
)
from jobboard.engine.records import odd_job
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.primitives import MENTIONED, PAGE, Characteristics, Draft, Finish, Nonce, Oddity, mentioned
from jobboard.states import CLAIMED, COMPLETE, CONSUME, LIVE, OK, SCHEDULED, TRASHED, UNCLAIMED, Record, State, settle
from jobboard.units import SECOND

LOG = logs.Log(__name__)

LAYOUT = 1
"""The layout of the containers that this code writes and reads."""

MIN_READER = 1
"""The oldest layout whose readers understand a board that this code has set up."""

SCANS, SCANNED = 200, 1000
"""The most requests of a search for other boards, and the keys that each request passes over."""

_NUMBERS = {container: number for number, container in enumerate(CONTAINERS, 1)}

_WALKED = {"serving": "live", "due": "due", "claims": "leases"}
"""The container of each order. Claims go on in ``final``."""


class RedisStore(Store):
    """A board in a Redis or Valkey database.

    ``client``: a ``redis.Redis`` or ``RedisCluster`` of the caller's. The board makes connections like those of the
        client's pool, and closes neither the client nor the pool.
    """

    options: ClassVar[Mapping[str, conf.Option]] = OPTIONS
    uri_parts: ClassVar[Mapping[str, str]] = URI_PARTS
    traits = Traits(keeps="lease", reported_events=notifier.REMOTE)

    def __init__(self, seat: Seat) -> None:
        super().__init__(seat)
        check_options(seat.conf)
        if seat.client is not None:
            check_client(seat.client, seat.conf)
        self.keys = keys_of(seat.conf["namespace"], seat.name)
        gate_place = f'{text_of(self.keys.of("sides"))}, field "{GATE[0]}\\x00{GATE[1]}"'
        poll_cap = min(CAP, seat.conf["claim_ttl"])
        self.traits = dataclasses.replace(self.traits, poll_cap=poll_cap, gate_place=gate_place)
        self._replicas = seat.conf["min_replicas"]
        # Sent behind each script that changes jobs: the server replies once so many replicas have the changes.
        wait = command(b"WAIT", b"%d" % self._replicas, b"%d" % int(seat.conf["socket_timeout"] * 500))
        self._wait = (wait,) if self._replicas else ()
        self._is_open = False
        self._scripts: dict[str, Script] = {}
        self._listeners: dict[str, ChannelListener] = {}
        self._listening = runtime.Lock()

    # Life

    def open(self, hears: Hears, create: bool) -> Characteristics:
        self.hears = hears
        self.connections = self._new_connections()
        try:
            self._prepare(create)
        except BaseException:
            self.connections.close()
            raise
        self.waiters = self._new_waiters()
        self._is_open = True
        return self._promises()

    def _new_connections(self) -> Connections:
        return Connections(self.seat.conf, self.keys.tag, self.seat.client)

    def _new_waiters(self) -> RedisWaiters:
        return RedisWaiters(self.connections, self.keys, self.server.since_7, self.run)

    def _prepare(self, create: bool) -> None:
        name = self.seat.name
        try:
            self.connections.prepare()
            if self._wait:
                # A user without the right to this command gets the error before anything is stored.
                self._command(b"WAIT", b"0", b"1")
            self.server = server_of(self.connections, self.seat.conf["allow_eviction"])
        except errors.ResponseError as error:
            raise self._refusal_error(error) from error
        # A server that refuses writes for now refuses the script. It can still show that the board exists.
        own = StoredLayout(LAYOUT, MIN_READER, library_version())
        *stored, library = self._command(b"HMGET", self.keys.of("meta"), b"layout", b"min_reader", b"library")
        if not all(each and each.isdigit() for each in stored):
            stored = self.run("setup", create, *own, False)
        if not stored:
            others = mentioned(self.boards(MENTIONED))
            raise BoardMissing(
                f"there is no board {name!r} at {self.seat.shown}{others}; create it with 'jobboard setup'"
            )
        wrote = None if library is None else library.decode(errors="replace")
        layout, min_reader = map(int, stored)
        if self.check_layout(f"the board {name!r}", StoredLayout(layout, min_reader, wrote), own):
            self.run("setup", create, *own, True)

    def _promises(self) -> Characteristics:
        server, waits_for = self.server, self._replicas
        self.traits = dataclasses.replace(self.traits, has_replicas=server.replicas > 0)
        return Characteristics(
            durable=server.durable,
            survives_failover=0 < server.replicas <= waits_for,
            exact_order=True,
            blocking_wait=True,
            remote_events=True,
            transactional=False,
            claim_ttl=self.seat.conf["claim_ttl"],
            notes=f"{server.notes}; "
            + (
                f"each call waits for {waits_for} of {server.replicas} replicas"
                if waits_for
                else "a failover may lose what was acknowledged last"
            ),
        )

    def close(self) -> None:
        with self._listening:
            for listener in self._listeners.values():
                listener.stop()
            self._listeners.clear()
        self.waiters.close()
        self.connections.close()

    def forked(self) -> None:
        # The child does not close inherited connections: the parent uses the same sockets.
        own = self.seat.client is None
        self.connections = self._new_connections() if own else self.connections.refused_in_child()
        self.waiters = self._new_waiters()
        self._listening = runtime.Lock()
        # A poster of due jobs in the child watches the schedules again.
        listened, self._listeners = "events" in self._listeners, {}
        if listened and own:
            self._listen("events", subscribe=False)

    # Requests

    def run(self, name: str, *args: Any) -> Any:
        """Run a script, and return its result."""
        script = self._scripts.get(name)
        if script is None:
            script = self._scripts[name] = Script(name, self.keys, self.server.since_7)
        more = self._wait if script.is_relied_on else ()
        try:
            try:
                reply = self.connections.call(script.request(args), *more)
            except errors.NoScriptError:
                # The server was restarted or replaced, or its scripts were flushed. A script that was loaded by itself
                # could be gone again before its call.
                reply = self.connections.call(script.request(args, whole=True), *more)
        except errors.ResponseError as error:
            raise self._refusal_error(error) from error
        if more:
            reply, copies = reply
            if copies < self._replicas:
                raise ConnectionFailure(
                    f"{copies} of the {self._replicas} replicas that min_replicas asks for have it so far",
                    outcome="unknown",
                )
        return msgpack.unpackb(reply, raw=True)

    def _command(self, *words: bytes) -> Any:
        try:
            return self.connections.call(command(*words))
        except errors.ResponseError as error:
            raise self._refusal_error(error) from error

    def _refusal_error(self, error: errors.ResponseError) -> JobFailure:
        text, settings = str(error), self.seat.conf
        if isinstance(error, errors.OutOfMemoryError) or "OOM" in text:
            return JobFailure(
                "the server's memory is full: nothing was stored. Jobs can still be claimed and consumed there, "
                "which makes room",
                error,
            )
        # Since Redis 7.2 a script reports this in the second form.
        in_script = "The user executing the script" in text or "ACL failure in script" in text
        if isinstance(error, errors.NoPermissionError) or in_script:
            prefix = text_of(self.keys.tag.partition(b":{")[0])
            return JobFailure(
                f"the server's user may not do this: {text}. A board needs ~{prefix}:* &{prefix}:* +@read +@write "
                f"+@scripting +@pubsub +@connection +time +info{' +cluster|slots' if settings['cluster'] else ''}"
                f"{' +wait' if self._replicas else ''}",
                error,
            )
        if settings["sentinel"] and "SENTINEL" in text.upper():
            return JobFailure(f"the host is no sentinel, but a server itself: leave out sentinel= ({text})", error)
        return JobFailure(f"the server has refused the request: {text}", error)

    # Reading

    def now(self) -> int:
        seconds, micros = self._command(b"TIME")
        return int(seconds) * SECOND + int(micros)

    def read(self, uuids: Sequence[str], sides: Sequence[tuple[str, str]] = ()) -> Found:
        now, blobs, postings, found = self.run("read", uuids, ["\0".join(side) for side in sides])
        return Found(
            now,
            [
                stored_of(uuid.encode(), blob, posting, now) if blob is not False else None
                for uuid, blob, posting in zip(uuids, blobs, postings, strict=True)
            ],
            [side_of(*side, blob) for side, blob in zip(sides, found, strict=True)],
        )

    def look(
        self,
        limit: int,
        names: Sequence[str] | None,
        readable: int,
        without: Sequence[str] = (),
        full: Sequence[LimitScope] = (),
        where: Any = None,
    ) -> Look:
        groups = [(scope.name, scope.group) for scope in full]
        for number in range(1, tries.STORE + 1):
            # One member without its job may be followed by many.
            look, strays = self._look(limit if number == 1 else max(limit, 500), names, readable, without, groups)
            if not strays or self.seat.conf["read_only"]:
                return look._replace(ready=look.ready[:limit])
            for stray in strays:
                self._drop(stray)
            self.hears.sleep_unless_closed(retry.backoff(number, 0.001, 0.05))
        raise ConnectionFailure(f"gave up after {tries.STORE} looks that each met entries without their jobs")

    def _look(self, limit: int, *wanted: Any) -> tuple[Look, list[_Stray]]:
        ready: list[Stored] = []
        oddities = _Oddities()
        after: Any = ""
        while True:
            # One damaged record may be followed by many.
            most = 100 if oddities.damaged else limit - len(ready)
            now, news, event, gate, some, ended, horizon = self.run("look", most, *wanted, after)
            for uuid, blob, posting, tail in _rows(some, 4):
                ready += oddities.sound(uuid, blob, posting, now, ready_entries(text_of(tail)))
            if not after:
                self.waiters.note_look(news)
                overdue: list[Stored] = []
                for uuid, blob, posting, container, member in _rows(ended, 5):
                    entry = (list(CONTAINERS)[container - 1], text_of(member))
                    overdue += oddities.sound(uuid, blob, posting, now, {entry})
                first = now, event or None, side_of(*GATE, gate)
            after = horizon or (oddities.damaged and len(some) == 4 * most and some[-1])
            if len(ready) >= limit or oddities.strays or not after:
                now, event, side = first
                return Look(now, ready[:limit], [*overdue, *oddities.damaged][:OVERDUE], event, side), oddities.strays

    def _drop(self, stray: _Stray) -> None:
        """Remove members that contradict their job, unless the job has changed meanwhile."""
        uuid, tag, entries = stray
        LOG.warning("board %r removes entries that contradict job %s: %s", self.seat.name, uuid, [*entries])
        self.run("commit", *CommitArguments(jobs=[uuid, tag], leaves=_by_container(entries)))

    def page(
        self,
        after: Record | None,
        limit: int,
        names: Sequence[str] | None,
        states: frozenset[State],
        fresh: bool = False,
    ) -> tuple[int, list[Stored]]:
        found: list[Stored] = []
        position: Any = None if after is None else f"{after.priority:03d}{after.sequence:018d}\x7f"
        letters = None if states >= LIVE else list(states)
        while True:
            low = "-" if position is None else b"(" + (position if isinstance(position, bytes) else position.encode())
            now, rows, position, _ = self.run(
                "scan", _NUMBERS["live"], low, "+", limit - len(found), False, names, letters
            )
            for member, blob, posting in _rows(rows, 3):
                uuid = member[21:].partition(b"\0")[0]
                stored = stored_of(uuid, blob, posting, now) if blob is not False else None
                if stored is None or ("live", text_of(member)) not in entries_of(stored.record):
                    LOG.warning(
                        "board %r leaves out job %r: its record is missing or damaged", self.seat.name, uuid.decode()
                    )
                else:
                    found.append(stored)
            if len(found) >= limit or not position:
                return now, found

    def walk(self, order: Order, after: Bookmark | None, most: int, sieve: Sieve, fitting: int | None = None) -> Walked:
        most = min(most, PAGE)
        if order == "outcomes":
            return walk_outcomes(self, after and after.encode(), most, _outcome_place)
        if order == "trash":
            return walk_trash(self, after, most)
        container, _, last = (after or f"{_WALKED[order]}/").partition("/")
        low = f"({last}" if last else "-"
        limits = (most, False, None, None, sieve.texts())
        now, rows, further, looked = self.run("scan", _NUMBERS[container], low, "+", *limits)
        found: list[tuple[Bookmark, Stored]] = []
        for member, blob, posting in _rows(rows, 3):
            uuid = member[21:].partition(b"\0")[0] if order == "serving" else member[36:]
            stored = stored_of(uuid, blob, posting, now) if blob is not False else None
            if stored is not None and (container, text_of(member)) in entries_of(stored.record):
                place = text_of(member) if order != "serving" else f"{text_of(member[:21])}\x7f"
                found.append((f"{container}/{place}", stored))
        following = "final/" if container == "leases" else None
        return Walked(now, found, looked, f"{container}/{text_of(further)}" if further else following)

    def trash_page(self, after: Record | None, limit: int) -> list[Record]:
        low, high = "-", ""
        if after is not None:
            low = f"({newest(after.modified_on, after.sequence)}\x7f"
            high = f"({after.modified_on:018d}{after.sequence:018d}"
        # Jobs that have expired or whose last claim has lapsed, and whose record does not say so yet. One that is swept
        # meanwhile is in the trash after that.
        high = min(high or "(~", f"({self.now() + 1:018d}")
        ended = [self.run("scan", _NUMBERS[clock], high, "-", limit, True)[1] for clock in ("final", "expiries")]
        now, rows, *_ = self.run("scan", _NUMBERS["trash"], low, "+", limit, False)
        stored = [
            stored_of(member[36:], blob, posting, now)
            for some in (*ended, rows)
            for member, blob, posting in _rows(some, 3)
            if blob is not False
        ]
        settled = [settle(job.record, now) for job in stored if not isinstance(job.tag, Damaged)]
        found = {record.uuid: record for record in settled if record.state == TRASHED}
        return sorted(found.values(), key=lambda record: (-record.modified_on, -record.sequence))[:limit]

    def sides(self, kind: str, position: Any, limit: int) -> tuple[Found, Any]:
        low = f"[{kind}\0".encode()
        if isinstance(position, Side):
            low = f"({kind}\0{LAST - int(cast(bytes, position.tag)):018d}{position.key}".encode()
        elif position is not None:
            low = b"(" + position
        now, rows, last, _ = self.run("scan", _NUMBERS["listed"], low, f"({kind}\1", limit, False)
        skipped = len(kind.encode()) + 1 + (18 if kind == "outcome" else 0)
        sides = [
            side_of(kind, member[skipped:].decode("utf-8", "replace"), blob)
            for member, blob, _ in _rows(rows, 3)
            if blob is not False
        ]
        return Found(now, [], sides), last or None

    def counts(self, states: Collection[State], cap: int | None = None) -> dict[State, int]:
        found = zip((UNCLAIMED, SCHEDULED, CLAIMED, TRASHED, COMPLETE), self.run("counts"), strict=True)
        return {state: count for state, count in found if state in states}

    def boards(self, most: int) -> list[str]:
        """Return boards of this namespace. A request of its own finds this board, which the search may miss.

        Boards on an unreachable node of a cluster are missing."""
        there: list[str] = []
        found: set[str] = set()
        words = (b"MATCH", search_of(self.seat.conf["namespace"]), b"COUNT", b"%d" % SCANNED)
        # A user without the right to search sees no boards.
        with contextlib.suppress(errors.ResponseError), contextlib.ExitStack() as stack:
            there += [self.seat.name] if self.connections.call(command(b"EXISTS", self.keys.tag)) else []
            nodes = [stack.enter_context(contextlib.closing(node)) for node in self.connections.to_each_node()]
            for node in nodes or [self.connections]:
                cursor = b"0"
                with contextlib.suppress(*[ConnectionFailure] if nodes else []):
                    for _ in range(SCANS):
                        cursor, keys = node.call(command(b"SCAN", cursor, *words))
                        found.update(map(name_of, keys))
                        if cursor == b"0" or len(found) > most:
                            break
        return [*there, *sorted(found - {self.seat.name})][:most]

    # Writing

    def commit(
        self,
        changes: Sequence[Change],
        marks: Sequence[Mark] = (),
        checks: Sequence[Side] = (),
        terms: CommitTerms = ANY_TERMS,
    ) -> Committed:
        committed = self._commit(changes, marks, checks, before=terms.before)
        claimed = {before.record.name for before, _, event in changes if before and event == notifier.CLAIMED}
        if claimed:
            self.waiters.note_claims(claimed)
        return committed

    def sync(self) -> None:
        if self._wait:
            # A commit without changes writes its number, so that WAIT covers all earlier changes.
            self._commit([])

    def _commit(
        self,
        changes: Sequence[Change],
        marks: Sequence[Mark] = (),
        checks: Sequence[Side] = (),
        answer: Any = None,
        before: int | None = None,
    ) -> Committed:
        jobs: list[Any] = []
        drafts: list[Any] = []
        blobs: list[Any] = []
        postings: list[Any] = []
        gone: list[str] = []
        events: list[tuple[str, str]] = []
        ready: list[tuple[str, int]] = []
        soon: list[tuple[int, str]] = []
        leaves: set[Entry] = set()
        enters: set[Entry] = set()
        for was, after, event in changes:
            if isinstance(after, Draft):
                jobs += after.uuid, False
                drafts.append(packed_draft(after, event))
                continue
            assert was is not None
            uuid, old = was.record.uuid, _entries(was)
            new = set() if after is None else entries_of(after)
            jobs += uuid, _tag(was)
            leaves |= old - new
            enters |= new - old
            if event is not None:
                events.append((event, uuid))
            if after is None:
                gone.append(uuid)
                continue
            blobs += uuid, pack(after, was.unknown)
            old_body = was.record.posting, was.record.note
            if (after.posting, after.note) != old_body or isinstance(was.tag, Damaged):
                postings += uuid, body_of(after)
            if new != old and after.state == UNCLAIMED:
                ready.append((after.name, after.version))
            elif new != old and after.lock_until is not None:
                soon.append((after.lock_until, after.name))
        sides = [
            part
            for side in (*(mark.before for mark in marks), *checks)
            for part in (_field(side), False if side.tag is None else side.tag)
        ]
        ends = [(_field(mark.before), mark.value, mark.until, mark.ttl) for mark in marks]
        arguments = CommitArguments(
            handle=self.hears.handle,
            jobs=jobs,
            sides=sides,
            answer=answer,
            drafts=drafts,
            blobs=blobs,
            postings=postings,
            gone=gone,
            leaves=_by_container(leaves),
            enters=_by_container(enters),
            marks=ends,
            events=events,
            ready=ready,
            soon=soon,
            wakes=any(mark.wakes for mark in marks),
            reschedules=reschedules(changes, marks),
            before=before,
        )
        fine, *answer_parts = self.run(POST if drafts else "commit", *arguments)
        if not fine:
            uuids, fields = answer_parts
            raise Stale([uuid.decode() for uuid in uuids], [tuple(field.decode().split("\0", 1)) for field in fields])
        now, number, sequence = answer_parts
        tag = b"%018d" % number
        stored = []
        for was, after, _ in changes:
            if isinstance(after, Draft):
                stored.append(Stored(after.record(sequence, now), tag))
                sequence += 1
            elif was is not None and after is not None:
                stored.append(Stored(after, tag, unknown=was.unknown))
        return Committed(
            stored,
            [
                Side(mark.before.kind, mark.before.key, mark.value, mark.end(now), b"%018d" % own)
                for own, mark in enumerate(marks, number + len(drafts) + 1)
                if mark.value is not None
            ],
        )

    def tidy(self, seconds: float) -> bool:
        return all(self.run("tidy") for _ in turns(seconds))

    def place(self, uuid: str) -> str:
        return f'{text_of(self.keys.of("jobs"))}, field "{uuid}"'

    def oddities(self) -> Iterator[Oddity]:
        for container in ("live", "trash"):
            low: Any = "-"
            while low:
                now, rows, last, _ = self.run("scan", _NUMBERS[container], low, "+", PAGE, False)
                for member, blob, posting in _rows(rows, 3):
                    uuid = member[21:].partition(b"\0")[0] if container == "live" else member[36:]
                    if blob is not False and isinstance((job := stored_of(uuid, blob, posting, now)).tag, Damaged):
                        [failure] = job.record.errors
                        yield odd_job(job.record.uuid, self.place(job.record.uuid), failure.text)
                low = last and b"(" + last

    # Fast paths

    def post(self, drafts: Sequence[Draft], nonce: Nonce) -> list[Stored] | None:
        # The answer of a post needs no uuids: the caller has chosen them.
        answer = Answer(nonce.call, nonce.attempt, (Deed(OK, ""),) * len(drafts)).packed()
        changes = [Change(None, draft, notifier.POSTED) for draft in drafts]
        try:
            return self._commit(changes, answer=("\0".join(slot_of(nonce)), nonce.call, answer)).jobs
        except Stale:
            return None

    def take(
        self, lease: ClaimTerms, limit: int, names: Sequence[str] | None, readable: int, nonce: Nonce
    ) -> tuple[list[Stored], int | None] | None:
        slot = ("\0".join(slot_of(nonce)), nonce.call)
        found = self.run("take", *slot, self.hears.handle, *lease, limit, names, readable)
        if not found:
            return None
        news, event, now, rows = found
        # The claim of a damaged record that the script took for a sound one lapses. Then the job goes to the trash.
        taken = [stored_of(uuid, blob, posting, now) for uuid, blob, posting in _rows(rows, 3)]
        jobs = [stored for stored in taken if not isinstance(stored.tag, Damaged)]
        if rows:
            self.waiters.note_claims({stored.record.name for stored in jobs})
        else:
            self.waiters.note_look(news)
        return jobs, event or None

    def consume(self, acts: Sequence[Finish], nonce: Nonce, gate: Side) -> bool:
        claims = {act.uuid: act.holder.token for act in acts if act.end.verb == CONSUME}
        # The engine does all other ends, ends under rules or with an outcome, and jobs that are named twice.
        if gate.value is not None or len(claims) < len(acts) or any(act.keep for act in acts):
            return False
        answer = Answer(nonce.call, nonce.attempt, tuple(Deed(OK, act.uuid) for act in acts)).packed()
        slot = ("\0".join(slot_of(nonce)), nonce.call)
        return bool(
            self.run("finish", *slot, answer, self.hears.handle, [part for each in claims.items() for part in each])
        )

    def renew(self, handle: str, held: Sequence[tuple[str, int]], ttl: int) -> Sequence[tuple[str, int]]:
        others = self.run("renew", handle, ttl, [part for claim in held for part in claim])
        return [(uuid.decode(), token) for uuid, token in _rows(others, 2)]

    # Waiting and listening

    def wait(self, names: Sequence[str] | None, readable: int, limit: float, takes: bool) -> None:
        self.waiters.wait(Wish(names, readable, takes), limit, self.hears.nap)

    def rouse(self) -> None:
        if self._is_open:
            self.waiters.rouse()

    def forgo(self) -> None:
        if self._is_open:
            self.waiters.forgo()

    def watch(self, topic: Literal["jobs", "schedules", "events"]) -> bool:
        if topic == "jobs":
            return True
        with self._listening:
            if topic not in self._listeners:
                self._listen(topic)
            return self._listeners[topic].hears

    def unwatch(self) -> None:
        with self._listening:
            if (listener := self._listeners.pop("events", None)) is not None:
                listener.stop()

    def _listen(self, topic: str, subscribe: bool = True) -> None:
        channel = self.keys.of("meta") + b":" + topic.encode()
        rescheduled = self.hears.rescheduled
        callbacks = (self._heard, self._missed) if topic == "events" else (lambda _: rescheduled(), rescheduled)
        listener = ChannelListener(self.connections, channel, self.server.since_7, *callbacks)
        listener.start(subscribe)
        self._listeners[topic] = listener

    def _heard(self, payload: bytes) -> None:
        try:
            handle, event, uuid, blob, posting = msgpack.unpackb(payload, raw=True)
            if handle.decode() == self.hears.handle:
                return
            stored = stored_of(uuid, blob, posting, 0)
            if isinstance(stored.tag, Damaged):
                raise ValueError(stored.record.error)
            record = stored.record
            self.hears.happened(event.decode(), record._replace(state=COMPLETE) if event == b"CONSUMED" else record)
        except Exception:
            # A newer version of the library may send other messages. The next message is heard all the same.
            LOG.exception("can't read an event of another process")

    def _missed(self) -> None:
        LOG.warning("listening to other processes again; their events meanwhile were missed")


class CommitArguments(NamedTuple):
    """The arguments of ``commit.lua``, in the order of that script, which describes them."""

    handle: str = ""
    jobs: Sequence[Any] = ()
    sides: Sequence[Any] = ()
    answer: Any = None
    drafts: Sequence[Any] = ()
    blobs: Sequence[Any] = ()
    postings: Sequence[Any] = ()
    gone: Sequence[str] = ()
    leaves: Sequence[Any] = ()
    enters: Sequence[Any] = ()
    marks: Sequence[Any] = ()
    events: Sequence[tuple[str, str]] = ()
    ready: Sequence[tuple[str, int]] = ()
    soon: Sequence[tuple[int, str]] = ()
    wakes: bool = False
    reschedules: bool = False
    before: int | None = None


class _Stray(NamedTuple):
    """Members that contradict their job, which has this tag, or is not stored: false."""

    uuid: str
    tag: Any
    entries: Collection[Entry]


class _Oddities:
    """The damaged jobs and the stray members that one look has met."""

    def __init__(self) -> None:
        self.damaged: list[Stored] = []
        self.strays: list[_Stray] = []

    def sound(self, uuid: bytes, blob: Any, posting: Any, now: int, found: set[Entry]) -> list[Stored]:
        """Return the job if it is sound and has the entries by which it was found. Else note it."""
        entries = found | {("live", member[1:]) for name, member in found if name == "ready" and member[0] == "\0"}
        if blob is False:
            self.strays.append(_Stray(text_of(uuid), False, entries))
            return []
        stored = stored_of(uuid, blob, posting, now, frozenset(entries))
        if isinstance(stored.tag, Damaged):
            self.damaged.append(stored)
        elif found <= entries_of(stored.record):
            return [stored]
        else:
            self.strays.append(_Stray(stored.record.uuid, stored.tag, found))
        return []


class RedisSocketStore(RedisStore):
    """A board that connects to a socket on this host, ``unix:///run/redis.sock?db=0``."""

    options: ClassVar[Mapping[str, conf.Option]] = SOCKET_OPTIONS
    uri_parts: ClassVar[Mapping[str, str]] = SOCKET_PARTS


def _rows(flat: Sequence[Any], width: int) -> list[Any]:
    return list(zip(*[iter(flat)] * width, strict=True))


def _field(side: Side) -> str:
    return f"{side.kind}\0{side.key}"


def _tag(stored: Stored) -> Any:
    return stored.tag.tag if isinstance(stored.tag, Damaged) else stored.tag


def _entries(stored: Stored) -> set[Entry]:
    return set(stored.tag.entries) if isinstance(stored.tag, Damaged) else entries_of(stored.record)


def _by_container(entries: Collection[Entry]) -> list[tuple[int, list[str]]]:
    found = defaultdict(list)
    for container, member in entries:
        found[_NUMBERS[container]].append(member)
    return list(found.items())


def _outcome_place(side: Side) -> str:
    """Return the member of an outcome in ``listed``."""
    return f"outcome\0{LAST - int(cast(bytes, side.tag)):018d}{side.key}"
