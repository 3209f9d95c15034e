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
from typing import Any, TypeVar

from jobboard import codec
from jobboard import conf as configuration
from jobboard.contrib.taskflow.encoding import encode_details
from jobboard.contrib.taskflow.source.store import Folder, Leaving, OriginStore, StoredPosting
from jobboard.exceptions import ConnectionFailure, JobFailure, MissingDriver, NotFound
from jobboard.moving.origin import UNREADABLE
from jobboard.primitives import RANKS, BoardStats, Draft, Finish, Posted, Seen
from jobboard.priorities import JobPriority, rank_of
from jobboard.retry import retrying
from jobboard.states import (
    CLAIMED,
    COMPLETE,
    OK,
    TRASHED,
    UNCLAIMED,
    Failure,
    FailureKind,
    Record,
    State,
    Status,
    Verb,
    instant,
)

_STORES = {"redis": "redis:RedisSource", "zookeeper": "zookeeper:ZooKeeperSource", "etcd": "etcd:EtcdSource"}
_TOKEN = 1

T = TypeVar("T")


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
    shown = settings.location.replace("taskflow", f"taskflow+{kind}", 1)
    return TaskFlowOrigin(store(settings), shown, settings["retry_for"])


class TaskFlowOrigin:
    """An :class:`~jobboard.moving.origin.Origin` on a board of TaskFlow's, and its own
    :class:`~jobboard.moving.origin.OriginEngine`."""

    wire: codec.Wire = "msgpack"

    def __init__(self, store: OriginStore, shown: str, retry_for: float) -> None:
        self._store = store
        self._retry_for = retry_for
        self.location = shown
        self._found: dict[Folder, dict[str, tuple[str, Record]]] = {Folder.JOBS: {}, Folder.TRASH: {}}
        """The place of each job that was read, and the job, by its uuid."""
        self._live: list[Record] = []
        self._trash: list[Record] = []

    def __repr__(self) -> str:
        return f"<{self}>"

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
        live, trashed = self._load(Folder.JOBS), self._load(Folder.TRASH)
        claimed = sum(job.state == CLAIMED for job in live)
        return BoardStats(len(live) - claimed, 0, claimed, len(trashed))

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
        if after is None:
            self._live = sorted(self._load(Folder.JOBS), key=_place_in_order)
        begin = 0 if after is None else bisect.bisect_right(self._live, _place_in_order(after), key=_place_in_order)
        wanted = (job for job in itertools.islice(self._live, begin, None) if states is None or job.state in states)
        return [Seen(job.state, job, None) for job in itertools.islice(wanted, limit)]

    def trash_page(self, after: Record | None, limit: int) -> list[Record]:
        if after is None:
            signs = [record for record in self._notes().values() if record is not None]
            self._trash = sorted(self._load(Folder.TRASH) + signs, key=_latest_first)
        begin = 0 if after is None else bisect.bisect_right(self._trash, _latest_first(after), key=_latest_first)
        return self._trash[begin : begin + limit]

    def insert(self, drafts: Sequence[Draft]) -> list[Posted]:
        """Write signs, the only jobs that a move posts here."""
        for draft in drafts:
            assert draft.arrival is not None
            [failure] = draft.arrival.errors
            self._call(self._store.write_note, draft.uuid, _note(draft.name, draft.arrival.who, failure))
        return [Posted(OK, draft.uuid, None, UNCLAIMED) for draft in drafts]

    def read(self, uuids: Sequence[str]) -> list[Seen]:
        notes, jobs, trash = self._notes(uuids), self._found[Folder.JOBS], self._found[Folder.TRASH]
        live: dict[str, Record] = {}
        others = [uuid for uuid in uuids if uuid not in notes]
        if others:
            if not all(uuid in jobs or uuid in trash for uuid in others):
                self._load(Folder.JOBS)
                self._load(Folder.TRASH)
            places = [jobs[uuid][0] for uuid in others if uuid in jobs]
            kept = self._call(self._store.read, Folder.JOBS, places)
            live = {record.uuid: record for record in map(self._record, kept)}
            # Once more, after the jobs: a job that has gone meanwhile has left its note.
            notes |= self._notes(others)

        def seen(uuid: str) -> Seen:
            if uuid in notes:
                return Seen(TRASHED, notes[uuid], None)
            if uuid in live:
                return Seen(live[uuid].state, live[uuid], None)
            return Seen(TRASHED, trash[uuid][1], None) if uuid in trash else Seen(COMPLETE, None, None)

        return [seen(uuid) for uuid in uuids]

    def finish(self, acts: Sequence[Finish]) -> list[Status]:
        statuses = dict.fromkeys((act.uuid for act in acts), OK)
        leaving = [self._leaving(act) for act in acts if act.end.verb == Verb.CANCEL]
        if leaving:
            done = self._call(self._store.depart, leaving)
            statuses.update(zip((each.uuid for each in leaving), done, strict=True))
        trash = self._found[Folder.TRASH]
        purged = [act for act in acts if act.end.verb == Verb.PURGE]
        trashed = [act.uuid for act in purged if act.uuid in trash]
        if trashed:
            done = self._call(self._store.remove, Folder.TRASH, [trash[uuid][0] for uuid in trashed])
            statuses.update(zip(trashed, done, strict=True))
        marks = [act.uuid for act in purged if act.uuid not in trash and not act.holder.who]
        if marks:
            self._call(self._store.remove, Folder.NOTES, marks)
        for act in purged:
            if act.holder.who and act.uuid not in trash:
                # The note of a run is never removed: jobs that it has left at the target may come to light later.
                self._call(self._store.write_note, act.uuid, b"{}")
        return [statuses[act.uuid] for act in acts]

    def _leaving(self, act: Finish) -> Leaving:
        place, job = self._found[Folder.JOBS][act.uuid]
        return Leaving(
            place,
            act.uuid,
            _note(job.name, "", Failure(self.now(), None, 0, act.end.error or "", FailureKind.CANCELLED)),
        )

    # Reading

    def _notes(self, uuids: Sequence[str] | None = None) -> dict[str, Record | None]:
        return {kept.place: _of_note(kept) for kept in self._call(self._store.read, Folder.NOTES, uuids)}

    def _load(self, folder: Folder) -> list[Record]:
        """Return the jobs on the board, or in its trash, and remember their places."""
        found = [(kept, self._record(kept)) for kept in self._call(self._store.read, folder)]
        if folder is Folder.TRASH:
            found = [
                (kept, job._replace(state=TRASHED, modified_on=max(kept.since or 0, job.created_on)))
                for kept, job in found
            ]
        self._found[folder].update((job.uuid, (kept.place, job)) for kept, job in found)
        return [job for _, job in found]

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
        store = self._store

        def try_once() -> T:
            try:
                return call(*args)
            except store.denied as error:
                why = f"TaskFlow's {store.server} refuses this user: {error}"
                raise ConnectionFailure(why, error, refused=True) from error
            except store.unreachable as error:
                why = f"TaskFlow's {store.server} can't be reached: {error or type(error).__name__}"
                raise ConnectionFailure(why, error, outcome="unknown") from error
            except store.failures as error:
                why = f"TaskFlow's {store.server} refused: {type(error).__name__}: {error}"
                raise JobFailure(why, error) from error

        def worth_it(error: BaseException) -> bool:
            return isinstance(error, ConnectionFailure) and not error.refused

        return retrying(worth_it, self._retry_for)(try_once)


def _posted(data: dict[str, Any], kept: StoredPosting, wire: codec.Wire) -> tuple[str, str, int, int, bytes | str, int]:
    """Return the uuid, name, rank, sequence, posting and time of a stored posting, or raise any error."""
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


def _of_note(kept: StoredPosting) -> Record | None:
    """Return a sign or a mark as a record of a board's trash; None for the note of a run that has ended."""
    told: dict[str, Any] = {}
    with contextlib.suppress(ValueError):
        told = json.loads(kept.raw)
    if not told:
        return None
    errors = (Failure(told["on"], None, 0, told["error"], FailureKind.CANCELLED),)
    claim = (TRASHED, 0, None, _TOKEN, told["who"], None, None)
    return Record(kept.place, told["name"], 0, 0, None, codec.VERSION, b"", *claim, told["on"], told["on"], errors)


def _place_in_order(record: Record) -> tuple[int, int, str]:
    return record.priority, record.sequence, record.uuid


def _latest_first(record: Record) -> tuple[int, int, str]:
    return -record.modified_on, -record.sequence, record.uuid
