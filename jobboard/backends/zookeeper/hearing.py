"""What other processes do, for the listeners of this one.

While somebody listens, the lists of jobs, claims and times are watched. When one has changed it is read again, and so
is each job that came into it or went from it: what has become of that one since is told. What shows in no list, or has
come and gone by the time that a list is read, is not heard.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import NoNodeError

from jobboard.backends.zookeeper.paths import Node, Timed
from jobboard.backends.zookeeper.records import Found
from jobboard.exceptions import JobFailure
from jobboard.job import boottime
from jobboard.notifier import ABANDONED, CLAIMED, CONSUMED, EXTENDED, POSTED, RELEASED, TRASHED
from jobboard.retry import backoff
from jobboard.states import COMPLETE, UNCLAIMED, Record, State

if TYPE_CHECKING:
    from jobboard.backends.zookeeper.store import Store

LOG = logging.getLogger(__name__)

Mark = tuple[str, object]
"""A job's uuid and how it lies after a change of this handle's own: where, with which version, or one of these."""

MADE, GONE = "made", "gone"

MARKED = 10_000
"""Of how many jobs one's own changes are kept in mind, until they show."""


class Listener:
    """Hears on a thread of its own what other handles of the board do.

    :param heard: told each event, with the record of its job.
    """

    def __init__(self, store: Store, heard: Callable[[str, Record], None]) -> None:
        self._store = store
        self._heard = heard
        paths = store.paths
        folders = [*paths.jobs, paths.claims, paths.timed]
        self._calls = {folder: functools.partial(self._changed, folder) for folder in folders}
        self._lists: dict[str, set[str]] = {}
        self._watched: set[str] = set()
        self._places: dict[str, Node] = {}
        # Those that were claimed at first, and all that anything has become of since.
        self._records: dict[str, Record] = {}
        self._touched: dict[str, Node | None] = {}
        self._mine: dict[str, set[object]] = {}
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="jobboard-listener", daemon=True)

    def start(self, at_once: bool = True) -> None:
        """:param at_once: what happens from the return of this call on is heard, if the server can be reached."""
        if at_once:
            try:
                self._look()
            except JobFailure as error:
                LOG.warning("can't listen to other processes yet: %s", error)
        self._news.set()
        self._thread.start()

    def stop(self) -> None:
        """It tells nothing any more, and ends soon. Each list that is watched may send one notice yet."""
        self._stopped.set()
        self._news.set()

    def deaf(self) -> None:
        """The connection broke, and the watches with it."""
        self._watched.clear()
        self._news.set()

    def expect(self, marks: Iterable[Mark]) -> None:
        """This handle is about to do that, and tells it itself."""
        with self._lock:
            for uuid, how in marks:
                self._mine.setdefault(uuid, set()).add(how)
            while len(self._mine) > MARKED:
                del self._mine[next(iter(self._mine))]

    def withdraw(self, marks: Iterable[Mark]) -> None:
        """It was refused."""
        for uuid, how in marks:
            self._own(uuid, how)

    def _own(self, uuid: str, how: object) -> bool:
        with self._lock:
            mine = self._mine.get(uuid, set())
            own = how in mine
            mine.discard(how)
            if not mine:
                self._mine.pop(uuid, None)
            return own

    def _listen(self) -> None:
        failures = 0
        while not self._stopped.is_set():
            self._news.wait()
            self._news.clear()
            start = boottime()
            try:
                self._look()
                failures = 0
            except Exception as error:
                failures += 1
                self._news.set()
                if not isinstance(error, JobFailure):
                    LOG.exception("can't tell what other processes have done")
                elif not self._stopped.is_set():
                    level = logging.DEBUG if failures > 1 else logging.WARNING
                    LOG.log(level, "can't listen to other processes, trying again: %s", error)
            # Long lists are not shipped all the time.
            self._stopped.wait(backoff(failures, 0.05, 1.0) if failures else min(0.1, 2 * (boottime() - start)))

    def _changed(self, folder: str, event: Any) -> None:
        self._watched.discard(folder)
        self._news.set()

    # Looking

    def _look(self) -> None:
        if self._stopped.is_set():
            return
        first = not self._lists
        folders = [folder for folder in self._calls if folder not in self._watched]
        for folder, names in zip(folders, self._watch(folders), strict=True):
            before = self._lists.get(folder, set())
            self._lists[folder] = set(names)
            for uuid, _ in self._jobs_in(folder, before - self._lists[folder]):
                self._touched.setdefault(uuid, None)
            for uuid, node in self._jobs_in(folder, self._lists[folder] - before):
                if first and node is not None:
                    self._places[uuid] = node
                else:
                    self._touched[uuid] = node or self._touched.get(uuid)
        touched = list(self._touched.items())
        found = self._store.read([uuid for uuid, _ in touched]) if touched else []
        self._touched.clear()
        for (uuid, node), it in zip(touched, found, strict=True):
            if not first:
                self._became(uuid, node, it)
            elif isinstance(it, Found):
                self._records[uuid] = it.record

    def _watch(self, folders: list[str]) -> list[list[str]]:
        self._watched.update(folders)
        connection = self._store.connection
        watches = {folder: self._calls[folder] for folder in folders}
        try:
            return connection.watch_lists(watches)
        except JobFailure as error:
            self._watched.difference_update(folders)
            if isinstance(error.cause, NoNodeError):
                self._store.mend()
            raise

    def _jobs_in(self, folder: str, names: Iterable[str]) -> Iterator[tuple[str, Node | None]]:
        paths = self._store.paths
        for name in names:
            try:
                if folder == paths.claims:
                    yield name, None
                elif folder == paths.timed:
                    yield Timed.parse(name).uuid, None
                else:
                    node = Node.parse(name, paths.jobs.index(folder))
                    yield node.uuid, node
            except ValueError:
                LOG.debug("%r is not the name of a job's znode", name)

    # Telling

    def _became(self, uuid: str, came: Node | None, it: Found | State) -> None:
        """:param came: where it was made since the last look."""
        place = came or self._places.get(uuid)
        if place is None:
            return
        new = self._places.get(uuid) != place
        before = None if new else self._records.get(uuid)
        record = it.record if isinstance(it, Found) else before or _shell(place)
        if new and not self._own(uuid, MADE):
            self._tell(POSTED, record if record.state != State.TRASHED else record._replace(state=UNCLAIMED))
        if isinstance(it, Found) and it.trashed is None:
            self._places[uuid], self._records[uuid] = it.node, record
            if not self._own(uuid, (it.node.name, it.version)):
                for event in _changes(before, record):
                    self._tell(event, record)
            return
        self._places.pop(uuid, None)
        self._records.pop(uuid, None)
        if isinstance(it, Found):
            if it.trashed is None or not self._own(uuid, it.trashed.name):
                self._tell(TRASHED, record)
            return
        if not self._own(uuid, GONE):
            event = CONSUMED if it == COMPLETE else TRASHED
            self._tell(event, record._replace(state=it))
        with self._lock:
            self._mine.pop(uuid, None)

    def _tell(self, event: str, record: Record) -> None:
        if not self._stopped.is_set():
            self._heard(event, record)


def _changes(before: Record | None, now: Record) -> list[str]:
    """What has become of a job on the board; of one that nobody had claimed, where nothing is known of before."""
    held = State.CLAIMED
    if before is None:
        return [CLAIMED] if now.state == held else []
    again = now.token != before.token
    if now.state == held:
        if again:
            return [CLAIMED]
        lease = (before.state, before.keeper, before.lock_until)
        return [EXTENDED] if lease != (now.state, now.keeper, now.lock_until) else []
    if before.state == held and again and now.attempts == before.attempts:
        return [RELEASED]
    # Who has lost a claim by a lapse still stands in the record.
    return [ABANDONED] if now.who is None and (before.state == held or again) else []


def _shell(node: Node) -> Record:
    """Of a job that was gone before it was read."""
    return Record(
        uuid=node.uuid,
        name=node.job,
        priority=node.rank,
        sequence=node.sequence,
        key=None,
        version=node.version,
        posting=b"",
        state=UNCLAIMED,
        attempts=0,
        max_attempts=None,
        token=0,
        who=None,
        keeper=None,
        lock_until=None,
        created_on=0,
        modified_on=0,
        error=None,
    )
