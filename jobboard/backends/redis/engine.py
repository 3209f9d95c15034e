"""The Redis board: Redis from 6.2 and Valkey; standalone, behind Sentinel, or a cluster.

Each primitive that changes a job is one script here, in place of the engine's read and commit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from jobboard import codec
from jobboard import conf as configuration
from jobboard.backends.redis import clients
from jobboard.backends.redis.bells import Wish
from jobboard.backends.redis.records import packed_act, packed_draft, record_of
from jobboard.backends.redis.store import RedisStore
from jobboard.engine import Seat, Side, StoreEngine
from jobboard.logs import tell_of_lapse
from jobboard.primitives import Claimed, Draft, Finish, Nonce, Peeked, Posted, Renewed, Seen, Taken
from jobboard.states import COMPLETE, OK, TRASHED, Holder, Record, State, Status, Verb, settle


class RedisEngine(StoreEngine[RedisStore]):
    """A board in a Redis or Valkey database.

    ``client``: a ``redis.Redis`` or ``RedisCluster`` of the caller's. The board makes connections like those of its
        pool, and closes neither the client nor the pool.
    """

    options: ClassVar[Mapping[str, configuration.Option]] = clients.OPTIONS
    uri_parts: ClassVar[Mapping[str, str]] = clients.URI_PARTS

    poll_cap = 10.0

    def __init__(self, seat: Seat) -> None:
        super().__init__(seat)
        self._seat = seat
        clients.check(self._conf)
        if seat.client is not None:
            clients.check_client(seat.client, self._conf)

    def _begin(self, store: RedisStore) -> None:
        super()._begin(store)
        store.handle = lambda: "" if self.life is None else self.life.handle

    def _make_store(self) -> RedisStore:
        return RedisStore(self._seat, self._creates, self._overheard, self.rescheduled)

    def setup(self) -> None:
        store = RedisStore(self._seat, True, self._overheard, self.rescheduled)
        store.open()
        try:
            store.secure()
        finally:
            store.close()

    def _overheard(self, who: str, event: str, record: Record) -> None:
        if self.life is not None and not who.startswith(self.life.handle):
            self._heard(event, record._replace(state=COMPLETE) if event == "CONSUMED" else record)

    # Posting

    def tidy(self, seconds: float = 1.0) -> bool:
        return self._live.tidy(seconds)

    def insert(self, drafts: Sequence[Draft], nonce: Nonce | None, **extra: Any) -> list[Posted]:
        postings = [draft.posting for draft in drafts if isinstance(draft.posting, bytes)]
        packed = [packed_draft(draft) for draft in drafts]
        now, answers, lapsed = self._live.change("insert", nonce, packed, postings=postings)
        _tell_of(lapsed)
        results: list[Posted] = []
        for draft, answer in zip(drafts, answers, strict=True):
            if isinstance(answer, int):
                results.append(Posted(OK, draft.uuid, draft.record(answer, now)))
            else:
                status, uuid, *job = answer
                record = settle(record_of(uuid, *job), now) if job else None
                results.append(Posted(Status(status.decode()), uuid.decode("utf-8", "backslashreplace"), record))
        return results

    # Claiming

    def claim(self, uuid: str, who: str, expiry: int | None, nonce: Nonce) -> Claimed:
        lease, keeper = self._terms(expiry, nonce)
        status, _, margin, _, _, taken, lapsed = self._live.change("take", nonce, who, 1, lease, keeper, 0, None, uuid)
        if status != b"ok":
            return Claimed(Status(status.decode()), None, None)
        _tell_of(lapsed)
        return Claimed(OK, record_of(*taken[0]), margin)

    def _terms(self, expiry: int | None, nonce: Nonce) -> tuple[int, str | None]:
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
        store = self._live
        wish = Wish(who, *self._terms(expiry, nonce))
        given = store.bells.taken(wish, names)
        if given is not None:
            record, margin = given
            return Taken([record], margin, [], None, wish, replayed=True)
        buried: list[Record] = []
        while True:
            answer = store.change("take", nonce, who, limit, wish.lease, wish.keeper, readable, names)
            status, replayed, margin, event, trashed, taken, lapsed = answer
            _tell_of(lapsed)
            buried += [record_of(*job) for job in trashed]
            if status != b"again":
                return Taken([record_of(*job) for job in taken], margin, buried, event or None, wish, replayed)

    def renew(self, handle: str, held: Sequence[tuple[str, int]], ttl: int) -> Renewed:
        lost, unkept = self._live.run("renew", handle, ttl, [part for claim in held for part in claim])
        return Renewed(
            [(uuid.decode(), token) for uuid, token in lost],
            ttl,
            unkept=[(uuid.decode(), token, None if left is False else left) for uuid, token, left in unkept],
        )

    # Ending claims, and what operators do

    def finish(self, acts: Sequence[Finish], nonce: Nonce | None, **extra: Any) -> list[Status]:
        return self._done(nonce, [packed_act(act) for act in acts])

    def operate(self, verb: Verb, uuid: str, error: str | None, nonce: Nonce, token: int | None = None) -> Status:
        return self._done(nonce, [(uuid, verb, True, None, token, error)])[0]

    def extend(self, uuid: str, holder: Holder, expiry: int | None, nonce: Nonce) -> tuple[Status, int | None]:
        lease, keeper = self._terms(expiry, nonce)
        act = (uuid, Verb.EXTEND, False, *holder, None, None, None, None, None, lease, keeper)
        [status] = self._done(nonce, [act])
        return status, lease if status == OK else None

    def _done(self, nonce: Nonce | None, acts: Sequence[Sequence[Any]]) -> list[Status]:
        return [Status(status.decode()) for status in self._live.change("finish", nonce, acts)]

    # Looking

    def read(self, uuids: Sequence[str]) -> list[Seen]:
        """Jobs and the marks of those that were purged by one request."""
        now, jobs, marks = self._live.read(uuids, [("purged", uuid) for uuid in uuids])
        return [
            Seen.at(now, stored.record) if stored is not None else Seen(_gone(mark, now), None, None)
            for stored, mark in zip(jobs, marks, strict=True)
        ]

    def peek(self, names: Sequence[str] | None, readable: int) -> Peeked:
        """Exactly what puts a waiter to sleep, so that none is woken for nothing: a look ends at 100 overdue jobs."""
        anything, event = self._live.run("peek", readable, names)
        return Peeked(anything, event or None, None)

    # Waiting

    def wait(self, mark: object, names: Sequence[str] | None, limit: float) -> None:
        """``mark``: the wish of who takes. What came in between is seen by the script that queues it up."""
        life = self.life
        if life is not None:
            wish = mark if isinstance(mark, Wish) else None
            self._live.bells.wait(wish, life.handle, names, codec.VERSION, limit, life.nap)

    def rouse(self) -> None:
        if self._opened is not None:
            self._opened.bells.rouse()

    def forgo(self) -> None:
        if self._opened is not None:
            self._opened.bells.forgo()

    # Entities

    def enlist(self, handle: str, kind: str, name: str, metadata: str, ttl: int) -> None:
        value = json.dumps([handle, kind, name, metadata])
        self._live.run("enlist", "entity\0" + json.dumps([kind, name]), value, ttl)

    def delist(self, handle: str) -> None:
        self._live.run("enlist", "entity", None, None, handle)
        # A repetition may have found nothing, and written nothing.
        self._live.secure()


def _tell_of(lapsed: Sequence[Any]) -> None:
    for job in lapsed:
        tell_of_lapse(record_of(*job))


def _gone(mark: Side, now: int) -> State:
    """What a job that is not stored has become."""
    return TRASHED if mark.until is not None and mark.until > now else COMPLETE


class RedisSocketEngine(RedisEngine):
    """The same by a socket on this host, ``unix:///run/redis.sock?db=0``, as redis-py has it."""

    options: ClassVar[Mapping[str, configuration.Option]] = clients.SOCKET_OPTIONS
    uri_parts: ClassVar[Mapping[str, str]] = clients.SOCKET_PARTS
