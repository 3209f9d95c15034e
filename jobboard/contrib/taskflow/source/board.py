"""The origin of a move that empties one of TaskFlow's boards.

A posting of TaskFlow's never changes, and has no tokens: an earlier holder may come back at any time. So all versions
of a job are one. A job leaves if nobody has claimed it at that moment: one atomic step puts a mark in its place. Marks
and signs are *notes*, kept beside the postings.
"""

from __future__ import annotations

import bisect
import contextlib
import datetime
import importlib
import itertools
import json
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from jobboard import codec
from jobboard import conf as configuration
from jobboard.contrib.taskflow.encoding import encode_details
from jobboard.contrib.taskflow.source.store import Leaving, OriginStore, StoredPosting
from jobboard.exceptions import ConnectionFailure, JobFailure, MissingDriver, NotFound
from jobboard.moving.origin import UNREADABLE
from jobboard.primitives import RANKS, BoardStats, Draft, Finish, Posted, Seen
from jobboard.priorities import JobPriority, rank_of
from jobboard.retry import retrying
from jobboard.states import CLAIMED, COMPLETE, OK, TRASHED, UNCLAIMED, Failure, Record, State, Status, Verb, instant

_STORES = {"redis": "redis:RedisSource", "zookeeper": "zookeeper:ZooKeeperSource", "etcd": "etcd:EtcdSource"}
_TOKEN = 1

T = TypeVar("T")


class _Whereabouts(NamedTuple):
    place: str
    name: str


def fetch_source(uri: str) -> TaskFlowOrigin:
    """Return TaskFlow's board at ``uri``, as ``taskflow+redis://host/0?namespace=octavia``; not connected yet.

    :raises NotFound: TaskFlow has no such board.
    :raises ValueError: an option is unknown or does not fit.
    :raises MissingDriver: TaskFlow, or the driver of its board, is not installed.
    """
    kind = configuration.target(uri).driver
    if kind not in _STORES:
        raise NotFound(f"TaskFlow has no board {kind!r}: it is one of taskflow+{', taskflow+'.join(_STORES)}")
    module, _, name = _STORES[kind].partition(":")
    try:
        store: type[OriginStore] = getattr(importlib.import_module(f"{__package__}.{module}"), name)
    except ModuleNotFoundError as error:
        message = f"TaskFlow's {kind} board needs {error.name}: pip install '.[taskflow]' in a clone of jobboard"
        raise MissingDriver(message, error) from error
    retry_for = configuration.COMMON["retry_for"]
    settings = configuration.parse(uri, {**store.options, "retry_for": retry_for}, store.parts)
    shown = configuration.redacted(uri, settings, store.parts).replace("taskflow", f"taskflow+{kind}", 1)
    return TaskFlowOrigin(store(settings), shown, settings["retry_for"])


class TaskFlowOrigin:
    """An :class:`~jobboard.moving.origin.Origin` on a board of TaskFlow's, and its own
    :class:`~jobboard.moving.origin.OriginEngine`."""

    wire: codec.Wire = "msgpack"

    def __init__(self, store: OriginStore, shown: str, retry_for: float) -> None:
        self._store = store
        self._retry_for = retry_for
        self.location = shown
        self._live: list[Seen] | None = None
        self._places: dict[str, _Whereabouts] = {}
        self._buried: dict[str, tuple[str, Record]] = {}
        self._trash: list[Record] = []

    def __repr__(self) -> str:
        return f"<TaskFlow's board {self.name!r} at {self.location}>"

    def __str__(self) -> str:
        return f"TaskFlow's board {self.name!r} at {self.location}"

    @property
    def name(self) -> str:
        return self._store.name

    @property
    def engine(self) -> TaskFlowOrigin:
        return self

    def connect(self) -> None:
        """
        :raises JobFailure: nothing has ever been posted there: its name was mistyped.
        """
        self._call(self._store.open, max(1.0, self._retry_for))
        if not self._call(self._store.exists):
            self.close()
            raise JobFailure(f"nothing is there of {self}")

    def close(self) -> None:
        self._store.close()

    def stats(self) -> BoardStats:
        live = self._listed()
        self._load_trash()
        claimed = sum(seen.state == CLAIMED for seen in live)
        return BoardStats(len(live) - claimed, 0, claimed, len(self._buried))

    # As OriginEngine has them.

    def now(self) -> int:
        return time.time_ns() // 1000

    def page(
        self,
        after: Record | None,
        limit: int,
        names: Sequence[str] | None = None,
        states: frozenset[State] | None = None,
        fresh: bool = False,
    ) -> list[Seen]:
        if fresh:
            self._live = None
        live = self._listed()
        begin = 0 if after is None else bisect.bisect_right(live, _place_in_order(after), key=_order_of)
        wanted = (seen for seen in itertools.islice(live, begin, None) if states is None or seen.state in states)
        return list(itertools.islice(wanted, limit))

    def trash_page(self, after: Record | None, limit: int) -> list[Record]:
        if after is None:
            self._load_trash()
            notes = [_of_note(uuid, note) for uuid, note in self._call(self._store.notes).items()]
            found = [record for record in notes if record is not None] + [record for _, record in self._buried.values()]
            self._trash = sorted(found, key=_latest_first)
        begin = 0 if after is None else bisect.bisect_right(self._trash, _latest_first(after), key=_latest_first)
        return self._trash[begin : begin + limit]

    def insert(self, drafts: Sequence[Draft]) -> list[Posted]:
        """Write signs, the only jobs that a move posts here."""
        for draft in drafts:
            assert draft.arrival is not None
            [failure] = draft.arrival.errors
            self._call(self._store.write_note, draft.uuid, _note(draft.name, draft.arrival.who, failure))
        return [Posted(OK, draft.uuid, None) for draft in drafts]

    def read(self, uuids: Sequence[str]) -> list[Seen]:
        notes = self._call(self._store.notes, uuids)
        others = [uuid for uuid in uuids if uuid not in notes]
        live: dict[str, Seen] = {}
        if others:
            if not all(uuid in self._places or uuid in self._buried for uuid in others):
                self._load()
                self._load_trash()
            places = [self._places[uuid].place for uuid in others if uuid in self._places]
            live = {seen.record.uuid: seen for seen in self._seen(self._call(self._store.jobs, places)) if seen.record}
            # Once more, after the jobs: a job that has gone meanwhile has left its note.
            notes |= self._call(self._store.notes, others)
        return [self._state_of(uuid, notes.get(uuid), live.get(uuid)) for uuid in uuids]

    def _state_of(self, uuid: str, note: bytes | None, job: Seen | None) -> Seen:
        if note is not None:
            return Seen(TRASHED, _of_note(uuid, note), None)
        if job is not None:
            return job
        if uuid in self._buried:
            return Seen(TRASHED, self._buried[uuid][1], None)
        return Seen(COMPLETE, None, None)

    def finish(self, acts: Sequence[Finish]) -> list[Status]:
        statuses = dict.fromkeys((act.uuid for act in acts), OK)
        leaving = [self._leaving(act) for act in acts if act.end.verb == Verb.CANCEL]
        if leaving:
            done = self._call(self._store.depart, leaving)
            statuses.update(zip((each.uuid for each in leaving), done, strict=True))
        purged = [act for act in acts if act.end.verb == Verb.PURGE]
        trash = [act.uuid for act in purged if act.uuid in self._buried]
        if trash:
            done = self._call(self._store.remove_trash, [self._buried[uuid][0] for uuid in trash])
            statuses.update(zip(trash, done, strict=True))
        marks = [act.uuid for act in purged if act.uuid not in self._buried and not act.holder.who]
        if marks:
            self._call(self._store.remove_notes, marks)
        for act in purged:
            if act.holder.who and act.uuid not in self._buried:
                # The note of a run is never removed: jobs that it has left at the target may come to light later.
                self._call(self._store.write_note, act.uuid, b"{}")
        return [statuses[act.uuid] for act in acts]

    def _leaving(self, act: Finish) -> Leaving:
        place, name = self._places[act.uuid]
        return Leaving(place, act.uuid, _note(name, "", Failure(self.now(), None, 0, act.end.error or "")))

    # Reading

    def _listed(self) -> list[Seen]:
        return self._load() if self._live is None else self._live

    def _load(self) -> list[Seen]:
        kept = self._call(self._store.jobs)
        live = self._seen(kept)
        for each, seen in zip(kept, live, strict=True):
            assert seen.record is not None
            self._places[seen.record.uuid] = _Whereabouts(each.place, seen.record.name)
        live.sort(key=_order_of)
        self._live = live
        return live

    def _load_trash(self) -> None:
        self._buried = {}
        for kept in self._call(self._store.trash):
            record = self._record(kept)
            gone = record.created_on if kept.since is None else kept.since
            record = record._replace(state=TRASHED, modified_on=max(gone, record.created_on))
            self._buried[record.uuid] = (kept.place, record)

    def _seen(self, kept: Sequence[StoredPosting]) -> list[Seen]:
        return [Seen(record.state, record, None) for record in map(self._record, kept)]

    def _record(self, kept: StoredPosting) -> Record:
        # No token is None: an earlier holder may come back.
        state, who = (UNCLAIMED, "") if kept.owner is None else (CLAIMED, kept.owner)
        claim = (state, 0, None, _TOKEN, who, None, None)
        try:
            posted = _posted(self._store.decode(kept), kept, self.wire)
        # A fault of one posting does not keep the others from being moved.
        except Exception as error:  # noqa: BLE001
            why = f"{type(error).__name__}: {error}"
            name = f"(posting at {codec.clip_error(kept.place)})"
            return Record(kept.place, name, RANKS[-1] + 1, 0, None, UNREADABLE, why, *claim, 0, 0)
        ident, name, rank, sequence, posting, created = posted
        return Record(ident, name, rank, sequence, None, codec.VERSION, posting, *claim, created, created)

    def _call(self, call: Callable[..., T], *args: Any) -> T:
        """Call the store, and again while the server can't be reached."""

        def try_once() -> T:
            with self._store.translated():
                return call(*args)

        def worth_it(error: BaseException) -> bool:
            return isinstance(error, ConnectionFailure) and not error.refused

        return retrying(worth_it, self._retry_for)(try_once)


def _posted(data: dict[str, Any], kept: StoredPosting, wire: codec.Wire) -> tuple[str, str, int, int, bytes | str, int]:
    """Return the uuid, name, rank, sequence, posting and time of a stored posting.

    :raises Exception: TaskFlow stores no such posting, or no board takes it.
    """
    ident = data["uuid"]
    if str(uuid.UUID(ident)) != ident:
        raise ValueError(f"its uuid is {ident!r:.100}")
    name = codec.check_text("its name", data["name"])
    rank = rank_of(JobPriority.convert(str(data.get("priority") or "NORMAL")))
    details = codec.check_details(encode_details(data.get("details")), sys.maxsize)
    book = data.get("book") or None
    if book is not None:
        book = {part: codec.check_text(f"its book's {part}", book[part]) for part in ("name", "uuid")}
    created = _instant_of(data.get("created_on"), kept.since)
    return ident, name, rank, int(data["sequence"]), codec.encode(codec.Content(details, book), wire), created


def _instant_of(created: datetime.datetime | str | None, since: int | None) -> int:
    """Return a time of TaskFlow's, which has no zone and is in UTC, in µs."""
    if isinstance(created, str):
        created = datetime.datetime.fromisoformat(created)
    if created is None:
        return since or 0
    return instant(created if created.tzinfo else created.replace(tzinfo=datetime.UTC))


def _note(name: str, who: str, failure: Failure) -> bytes:
    return json.dumps({"name": name, "who": who, "on": failure.on, "error": failure.text}).encode()


def _of_note(uuid: str, note: bytes) -> Record | None:
    """Return a sign or a mark as a record of a board's trash; None for the note of a run that has ended."""
    told: dict[str, Any] = {}
    with contextlib.suppress(ValueError):
        told = json.loads(note)
    if not told:
        return None
    errors = (Failure(told["on"], None, 0, told["error"]),)
    claim = (TRASHED, 0, None, _TOKEN, told["who"], None, None)
    return Record(uuid, told["name"], 0, 0, None, codec.VERSION, b"", *claim, told["on"], told["on"], errors)


def _place_in_order(record: Record) -> tuple[int, int, str]:
    return record.priority, record.sequence, record.uuid


def _order_of(seen: Seen) -> tuple[int, int, str]:
    assert seen.record is not None
    return _place_in_order(seen.record)


def _latest_first(record: Record) -> tuple[int, int, str]:
    return -record.modified_on, -record.sequence, record.uuid
