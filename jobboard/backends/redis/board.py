"""The Redis board: Redis from 6.2 and Valkey; standalone, behind Sentinel, or a cluster."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgpack
from oslo_utils import uuidutils
from redis import exceptions as errors

from jobboard import codec
from jobboard import conf as configuration
from jobboard.backends.redis import checks, clients, doctor
from jobboard.backends.redis.bells import Bells, Listener, Wish
from jobboard.backends.redis.keys import keys_of, name_of, search_of
from jobboard.backends.redis.links import Links
from jobboard.backends.redis.records import letters, packed_act, packed_draft, place, record_of
from jobboard.backends.redis.scripts import Script, command
from jobboard.engine import Engine, Seat
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.primitives import (
    MENTIONED,
    Characteristics,
    Claimed,
    Draft,
    Finish,
    Nonce,
    Oddity,
    Peeked,
    Renewed,
    Seen,
    Taken,
    mentioned,
)
from jobboard.states import (
    CLAIMED,
    COMPLETE,
    LIVE,
    OK,
    SCHEDULED,
    TRASHED,
    UNCLAIMED,
    Holder,
    Record,
    State,
    Status,
    Verb,
    settle,
)

LOG = logging.getLogger(__name__)

LAYOUT = 1
"""The layout of the containers that this code writes, and the oldest that can read it."""

WALK = 2000
"""How many jobs a page looks at at most, to find those that it is asked for: a few ms of the server's time."""


SCANS, SCANNED = 200, 1000
"""How often, and through how many keys each time, the server is searched for other boards."""


class RedisEngine(Engine):
    """A board in a Redis or Valkey database.

    ``client``: a ``redis.Redis`` or ``RedisCluster`` of the caller's. The board makes connections like those of its
        pool, and closes neither the client nor the pool.
    """

    options: ClassVar[Mapping[str, configuration.Option]] = clients.OPTIONS
    uri_parts: ClassVar[Mapping[str, str]] = clients.URI_PARTS

    poll_cap = 10.0

    def __init__(self, seat: Seat) -> None:
        super().__init__(seat)
        clients.check(self._conf)
        if seat.client is not None:
            clients.check_client(seat.client, self._conf)
        self._keys = keys_of(self._conf["namespace"], seat.name)
        self._opened: Links | None = None
        self._listener: Listener | None = None
        self._listening_lock = threading.Lock()

    def setup(self) -> None:
        """Create what the board needs on the server. What ``jobboard setup`` does."""
        links = self._links()
        try:
            self._prepare(links, create=True)
        finally:
            links.close()

    # Life

    def open(self) -> None:
        links = self._links()
        try:
            server = self._prepare(links, self._creates)
        except BaseException:
            links.close()
            raise
        self._opened = links
        self._bells = self._new_bells(links)
        self.characteristics = self._promises(server)

    def _prepare(self, links: Links, create: bool) -> checks.Server:
        try:
            links.ready()
            server = checks.look_at(links, self._conf["allow_eviction"])
        except errors.ResponseError as error:
            raise self._refused(error) from error
        self._server = server
        self._scripts: dict[str, Script] = {}
        stored = self._run_on(links, "setup", (create, LAYOUT, LAYOUT))
        if not stored:
            others = mentioned(self._boards_on(links, MENTIONED))
            raise JobFailure(
                f"there is no board {self._name!r} at {self._shown}{others}; create it with 'jobboard setup'"
            )
        layout, min_reader = stored
        if min_reader > LAYOUT:
            raise JobFailure(
                f"the board {self._name!r} has layout {layout}, which takes a newer version of this library; upgrade it"
            )
        return server

    def _promises(self, server: checks.Server) -> Characteristics:
        waits_for = self._conf["min_replicas"]
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

    def shut(self) -> None:
        links = self._opened
        self.listen(False)
        if links is not None:
            self._bells.close()
            self._opened = None
            links.close()

    def forked(self) -> None:
        # What is inherited is let go of, not closed: the parent talks through the same sockets.
        if self._opened is None:
            return
        own = self._client is None
        self._opened = self._links() if own else self._opened.abroad()
        self._bells = self._new_bells(self._opened)
        self._listening_lock = threading.Lock()
        listened, self._listener = self._listener is not None, None
        if listened and own:
            self._listener = self._new_listener(self._opened)
            self._listener.start(at_once=False)

    def _links(self) -> Links:
        return Links(clients.Clients(self._conf, self._keys.tag, self._client))

    def _live_links(self) -> Links:
        links = self._opened
        if links is None:
            raise ConnectionFailure(f"{self!r} is closed")
        return links

    # Calls

    def _run(self, name: str, args: Sequence[Any]) -> Any:
        """Run a script; what it answers."""
        return self._run_on(self._live_links(), name, args)

    def _run_on(
        self, links: Links, name: str, args: Sequence[Any], postings: Sequence[bytes] = (), *more: bytes
    ) -> Any:
        script = self._scripts.get(name)
        if script is None:
            script = self._scripts[name] = Script(name, self._keys, self._server.flags)
        try:
            reply = self._sent(links, script, args, postings, *more)
        except errors.ResponseError as error:
            raise self._refused(error) from error
        if more:
            reply, copies = reply
            if copies < self._conf["min_replicas"]:
                raise ConnectionFailure(
                    f"{copies} of the {self._conf['min_replicas']} replicas that min_replicas asks for have it so far",
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

    def _sent(self, links: Links, script: Script, args: Sequence[Any], postings: Sequence[bytes], *more: bytes) -> Any:
        try:
            return links.call(script.request(args, postings), *more)
        except errors.NoScriptError:
            # The server has been restarted, another one has taken its place, or somebody has flushed its scripts. What
            # is loaded now could be gone again when it is called.
            return links.call(script.request(args, postings, whole=True), *more)

    def _change(self, name: str, nonce: Nonce | None, args: Sequence[Any], postings: Sequence[bytes] = ()) -> Any:
        """Run a script that does nothing when it is repeated with the same nonce."""
        assert nonce is not None  # there are no transactions of a caller's to take part in
        signed = (f"{nonce.handle}:{nonce.slot}", nonce.call, nonce.attempt, *args)
        more: tuple[bytes, ...] = ()
        if self._conf["min_replicas"]:
            patience = int(self._conf["socket_timeout"] * 500)
            more = (command(b"WAIT", b"%d" % self._conf["min_replicas"], b"%d" % patience),)
        return self._run_on(self._live_links(), name, signed, postings, *more)

    def _refused(self, error: errors.ResponseError) -> JobFailure:
        text = str(error)
        if "LATE" in text:
            return JobFailure("this call comes after a later one: its caller has long gone on", error)
        if isinstance(error, errors.OutOfMemoryError) or "OOM" in text:
            return JobFailure(
                "the server's memory is full: nothing was stored. Jobs can still be claimed and consumed there, "
                "which makes room",
                error,
            )
        if isinstance(error, errors.NoPermissionError) or "The user executing the script" in text:
            prefix = self._keys.tag.partition(b":{")[0].decode("utf-8", "backslashreplace")
            return JobFailure(
                f"the server's user may not do this: {text}. A board needs ~{prefix}:* &{prefix}:* +@read +@write "
                f"+@scripting +@pubsub +@connection +time{' +cluster|slots' if self._conf['cluster'] else ''}"
                f"{' +wait' if self._conf['min_replicas'] else ''}, and should have +info",
                error,
            )
        if self._conf["sentinel"] and "SENTINEL" in text.upper():
            return JobFailure(f"the host is no sentinel, but a server itself: leave out sentinel= ({text})", error)
        return JobFailure(f"the server has refused it: {text}", error)

    def tidy(self) -> None:
        self._run("clean", ())

    # Posting

    def insert(self, drafts: Sequence[Draft], nonce: Nonce | None, **extra: Any) -> list[tuple[bool, Record | None]]:
        postings = [draft.posting for draft in drafts if isinstance(draft.posting, bytes)]
        now, answers = self._change("insert", nonce, ([packed_draft(draft) for draft in drafts],), postings)
        results: list[tuple[bool, Record | None]] = []
        for draft, answer in zip(drafts, answers, strict=True):
            if isinstance(answer, int):
                results.append((True, draft.record(answer, now)))
            else:
                created, *job = answer
                results.append((created, settle(record_of(*job), now) if job else None))
        return results

    # Claiming

    def claim(self, uuid: str, who: str, expiry: int | None, nonce: Nonce) -> Claimed:
        status, *answer = self._change("claim", nonce, (uuid, who, *self._lease(expiry, nonce)))
        if not answer:
            return Claimed(Status(status.decode()), None, None)
        margin, *job = answer
        return Claimed(OK, record_of(*job), margin)

    def _lease(self, expiry: int | None, nonce: Nonce) -> tuple[int, str | None]:
        """How long a claim lasts, and who keeps it."""
        return (self._ttl, nonce.handle) if expiry is None else (expiry, None)

    def take(
        self,
        who: str,
        limit: int,
        expiry: int | None,
        names: Sequence[str] | None,
        readable: int,
        nonce: Nonce,
        **extra: Any,
    ) -> Taken:
        wish = Wish(who, *self._lease(expiry, nonce))
        given = self._bells.taken(wish, names)
        if given is not None:
            record, margin = given
            return Taken([record], margin, [], None, wish, replayed=True)
        args = (who, limit, wish.lease, wish.keeper, readable, names)
        buried: list[Record] = []
        while True:
            again, replayed, margin, event, trashed, taken = self._change("take", nonce, args)
            buried += [record_of(*job) for job in trashed]
            if not again:
                return Taken([record_of(*job) for job in taken], margin, buried, event or None, wish, replayed)

    def renew(self, handle: str, held: Sequence[tuple[str, int]], ttl: int) -> Renewed:
        lost = self._run("renew", (handle, ttl, [part for claim in held for part in claim]))
        return Renewed([(uuid.decode(), token) for uuid, token in zip(lost[::2], lost[1::2], strict=True)], ttl)

    def extend(self, uuid: str, holder: Holder, expiry: int | None, nonce: Nonce) -> tuple[Status, int | None]:
        lease, keeper = self._lease(expiry, nonce)
        answer = self._change("extend", nonce, (uuid, holder.who, holder.token, lease, keeper))
        status = Status(answer.decode())
        return status, lease if status == OK else None

    # Ending claims

    def finish(self, acts: Sequence[Finish], nonce: Nonce | None, **extra: Any) -> list[Status]:
        statuses = self._change("finish", nonce, ([packed_act(act) for act in acts],))
        return [Status(status.decode()) for status in statuses]

    def operate(self, verb: Verb, uuid: str, error: str | None, nonce: Nonce, token: int | None = None) -> Status:
        return Status(self._change("operate", nonce, (verb, uuid, error, token)).decode())

    # Looking

    def read(self, uuids: Sequence[str]) -> list[Seen]:
        now, found = self._run("read", list(uuids))
        return [
            Seen.at(now, record_of(*job)) if isinstance(job, list) else Seen(TRASHED if job else COMPLETE, None, None)
            for job in found
        ]

    def page(
        self, after: Record | None, limit: int, names: Sequence[str] | None, states: frozenset[State] | None
    ) -> list[Seen]:
        behind = None if after is None else place(after)
        now, found = self._run("page", (behind, limit, WALK, names, letters(LIVE if states is None else states)))
        return [Seen.at(now, record_of(*job)) for job in found]

    def trash_page(self, after: Record | None, limit: int) -> list[Record]:
        behind = (None, None) if after is None else (after.modified_on, after.sequence)
        return [record_of(*job) for job in self._run("trash_page", (*behind, limit))]

    def examine(self) -> Iterator[Oddity]:
        return doctor.examine(self._run, self._keys, self._server, self._conf["allow_eviction"])

    def now(self) -> int:
        try:
            seconds, micros = self._live_links().call(command(b"TIME"))
        except errors.ResponseError as error:
            raise self._refused(error) from error
        return int(seconds) * 1_000_000 + int(micros)

    def tally(self) -> dict[State, int]:
        counts = self._run("tally", ())
        return dict(zip((UNCLAIMED, SCHEDULED, CLAIMED, TRASHED), counts, strict=True))

    def peek(self, names: Sequence[str] | None, readable: int) -> Peeked:
        anything, event = self._run("peek", (readable, names))
        return Peeked(anything, event or None, None)

    # Waiting and listening

    def wait(self, mark: object, names: Sequence[str] | None, limit: float) -> None:
        """``mark``: the wish of who takes. What came in between is seen by the script that queues it up."""
        session = self.life
        if session is not None:
            wish = mark if isinstance(mark, Wish) else None
            self._bells.wait(wish, session.handle, names, codec.VERSION, limit, session.nap)

    def rouse(self) -> None:
        self._bells.rouse()

    def forgo(self) -> None:
        self._bells.forgo()

    def _new_bells(self, links: Links) -> Bells:
        return Bells(links, self._keys, self._server.flags, self._run, self._give_back)

    def _give_back(self, record: Record) -> None:
        """End a claim that a waiter was given and nobody here will use; that attempt does not count."""
        act = Finish(record.uuid, Holder(record.who or "", record.token), Verb.ABANDON, refund=True)
        self.finish([act], Nonce(uuidutils.generate_uuid(dashed=False), 1, 1))

    def listen(self, on: bool) -> None:
        with self._listening_lock:
            listener, self._listener = self._listener, None
            if listener is not None:
                listener.stop()
            if on and self._opened is not None:
                self._listener = self._new_listener(self._opened)
                self._listener.start()

    def _new_listener(self, links: Links) -> Listener:
        return Listener(links, self._keys, self._server.flags, self._overheard)

    def _overheard(self, who: bytes, event: str, uuid: bytes, blob: bytes, posting: bytes) -> None:
        session = self.life
        if session is None or who.startswith(session.handle.encode()):
            return
        record = record_of(uuid, blob, posting)
        self._heard(event, record._replace(state=COMPLETE) if event == "CONSUMED" else record)

    # Entities

    def enlist(self, handle: str, kind: str, name: str, metadata: str, ttl: int) -> None:
        self._run("enlist", (handle, kind, name, metadata, ttl))

    def delist(self, handle: str) -> None:
        self._run("delist", (handle,))

    def boards(self, most: int) -> list[str]:
        return self._boards_on(self._live_links(), most)

    def _boards_on(self, links: Links, most: int) -> list[str]:
        """The boards of this namespace; this one, which the search might not come to, is asked for by itself."""
        there: list[str] = []
        found: set[str] = set()
        words = (b"MATCH", search_of(self._conf["namespace"]), b"COUNT", b"%d" % SCANNED)
        cursor = b"0"
        # An account that may not search sees none.
        with contextlib.suppress(errors.ResponseError):
            there += [self._name] if links.call(command(b"EXISTS", self._keys.tag)) else []
            for _ in range(SCANS):
                cursor, keys = links.call(command(b"SCAN", cursor, *words))
                found.update(map(name_of, keys))
                if cursor == b"0" or len(found) > most:
                    break
        return [*there, *sorted(found - {self._name})][:most]

    def roster(self) -> list[tuple[str, str, str]]:
        entries = ([part.decode("utf-8", "backslashreplace") for part in entry] for entry in self._run("roster", ()))
        return [(*entity.partition("\0")[::2], metadata) for entity, metadata in entries]
