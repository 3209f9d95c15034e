"""What can be claimed: lists of small folders, kept for as long as the bell tells that nothing has come into them.

The bell's version rises with whatever becomes claimable or is to end by itself, in the commit that does it. While it
stands, what was listed can only have become less; each job's own record then tells whether it is still there. So a look
that follows another one reads the bell and the first jobs' records, in one go. Where these have been read ahead, and
nothing came in the last time, there is no look: the claim compares the bell itself.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from jobboard.backends.zookeeper.batch import tag_of
from jobboard.backends.zookeeper.lists import Lists, Names, Unknown
from jobboard.backends.zookeeper.paths import UNKNOWN, Entry, folder_number, timed_entry
from jobboard.backends.zookeeper.records import Guard, Guarded, Head
from jobboard.backends.zookeeper.requests import children, create, delete, exists, get, put
from jobboard.engine import GATE, Look, Side, Stored
from jobboard.states import TRASHED, UNCLAIMED

if TYPE_CHECKING:
    from jobboard.backends.zookeeper.store import ZooKeeperStore

LOG = logging.getLogger(__name__)

_OVERDUE = 100

_MANY = 100_000

_AHEAD = 32
"""How many records are read ahead of those that are asked for, or as many again where these are more."""

_HEADS = 1000
"""How many records are remembered."""

_MINUTES = 30
"""How many minutes with nothing in them are passed over in one look for the next end."""

_SHELVES = 20

_KEEPERS = 16
"""How many keepers a claim that nobody has looked for compares at most."""


_CROWDED = 10
"""How many looks follow before a job is claimed again that nobody has looked for, where others were quicker."""


class View:
    """What one process knows of a board. ``_lock`` is held throughout a look."""

    def __init__(self, store: ZooKeeperStore) -> None:
        self._store = store
        self._lock = threading.RLock()
        self._lists = Lists(store)
        self._heads: dict[str, Head] = {}
        # Those of them that this look has read; what was read before is for claims that compare it.
        self._read: set[str] = set()
        self._bell = self._alive = -1
        self._next: int | None = None
        self._aside: set[str] = set()
        # Whether the server tells of the bell and of keepers, and whether of slots, too.
        self._armed = self._slots_armed = False
        self._slots = -1
        # What stood when a thread first looked since it slept last.
        self._seen = threading.local()
        self._gate = Side(*GATE, None, None, None)
        self._keepers: tuple[str, ...] = ()
        # How many looks must find nothing new before jobs are claimed again that nobody has looked for.
        self._doubts = 1

    # Looking

    def known(self, limit: int, names: Names, readable: int) -> Look | None:
        """The first jobs as far as is known, which must still be so when they are claimed: no job has become free since
        (the bell), none has lapsed with its keeper, or by the time."""
        with self._lock:
            clock = self._store.clock
            now = clock.earliest()
            if self._doubts or not clock.known or len(self._keepers) > _KEEPERS:
                return None
            if self._next is not None and self._next <= now + clock.unknown:
                return None
            guard = Guard(self._bell, self._keepers)
            ready = []
            for entry, folder in itertools.islice(self._guess(names, readable), limit):
                head = self._heads.get(entry.uuid)
                if head is None or head.is_damaged or head.tag.body or not _is_at(head, entry, folder):
                    return None
                stored = self._store.assembled(head, {})
                if stored is None or stored.record.state != UNCLAIMED:
                    return None
                ready.append(Stored(stored.record, Guarded(tag_of(stored), guard)))
            if len(ready) < limit:
                return None
            self._note()
            return Look(now, ready, [], None if self._next is None else self._next - now, self._gate)

    def doubt(self, looks: int = 1) -> None:
        """What is known was not so any more."""
        self._doubts = max(looks, self._doubts)

    def look(self, limit: int, names: Names, readable: int) -> Look:
        with self._lock:
            while True:
                look = self._look(limit, names, readable)
                self._note()
                if look.ready or look.overdue or self._is_armed:
                    return look
                # Nobody sleeps before the server has been told to wake them, nor looks back to before that.
                bell, alive = self._bell, self._alive
                self._arm()
                if (bell, alive) == (self._bell, self._alive):
                    return look

    def _look(self, limit: int, names: Names, readable: int) -> Look:
        store, paths = self._store, self._store.paths
        self._read.clear()
        if len(self._heads) > _HEADS:
            # Not later: what this look has read and does not find counts as gone.
            self._heads.clear()
        wanted = list(itertools.islice(self._guess(names, readable), limit + self._more(limit)))
        unread = [entry for entry, _ in wanted]
        heads = [get(paths.job(entry.uuid)) for entry in unread]
        # The first look of all asks for what it will need in one go.
        ahead = [] if self._bell >= 0 else [children(paths.at(name)) for name in ("kept", "alive", "timed", "ready")]
        # What tells of slots is of use only where there are limits.
        ruled = [] if self._gate.value is None else [exists(paths.slots)]
        asked = [exists(paths.bell), exists(paths.alive), get(paths.gate), *ruled, *ahead, *heads]
        bell, alive, gate, *data = store.connection.read(asked, fresh=paths.root)
        self._slots, data = _version(data[0]) if ruled else -1, data[len(ruled) :]
        self._lists.ahead = dict(zip(("kept", "alive", "timed", "ready"), data[: len(ahead)], strict=False))
        data = data[len(ahead) :]
        if bell is None or alive is None:
            store.mend()
            return self._look(limit, names, readable)
        self._learn(unread, data)
        self._gate = store.gate(gate)
        overdue: list[Stored] = []
        now = store.judged([])
        quiet = (bell.version, alive.cversion) == (self._bell, self._alive)
        # Their lists are still as they were, and so older than what was read of the jobs.
        sure = set(wanted) if bell.version == self._bell else set()
        self._doubts = max(0, self._doubts - 1) if quiet else max(1, self._doubts)
        if bell.version != self._bell:
            self._lists.refresh()
        if bell.version != self._bell or (self._next is not None and self._next <= now):
            now, overdue = self._overdue()
            self._bell = bell.version
        if alive.cversion != self._alive:
            dead = self._dead(_OVERDUE)
            # Whoever settles them looks again.
            self._alive = -1 if dead else alive.cversion
            overdue += dead
        ready = self._ready(limit, names, readable, overdue, sure)
        event = None if self._next is None else max(0, self._next - now)
        return Look(now, ready, overdue, event, self._gate)

    def _ready(
        self, limit: int, names: Names, readable: int, overdue: list[Stored], sure: set[tuple[Entry, str]]
    ) -> list[Stored]:
        """:param sure: entries whose jobs were read behind the lists that show them."""
        store = self._store
        ready: list[Stored] = []
        walk = self._walk(names, readable)
        gone = 0
        while len(ready) < limit and (chunk := list(itertools.islice(walk, limit - len(ready)))):
            # What was read before the list that shows the entry may be of where the job was then.
            unread = [
                (entry, folder)
                for entry, folder in chunk
                if (entry, folder) not in sure
                and (entry.uuid not in self._read or not _fits(self._heads.get(entry.uuid), entry, folder))
            ]
            if unread:
                # Where some have gone there may be many that have.
                ahead = max(self._more(limit), min(4 * gone, _AHEAD))
                more = itertools.islice(self._guess(names, readable, chunk[-1]), ahead)
                unread += [place for place in more if place[0].uuid not in self._read]
                entries = [entry for entry, _ in unread]
                self._learn(entries, store.connection.read([get(store.paths.job(entry.uuid)) for entry in entries]))
                sure |= set(unread)
            found: list[tuple[Entry, str, Head]] = []
            # Of a job that has moved, the entry of before may stand here beside the one of now.
            heads = {entry.uuid: self._heads.get(entry.uuid) for entry, _ in chunk}
            for entry, folder in chunk:
                head = heads[entry.uuid]
                if head is None or not _fits(head, entry, folder):
                    # The record stays known: another entry may show where the job is now.
                    self._lists.drop(folder, entry)
                    gone += 1
                    if head is not None and head.tag.keeper not in (None, *self._keepers):
                        # It has come since this look began, and could go again before it counts as known.
                        self.doubt()
                else:
                    found.append((entry, folder, head))
            for (entry, folder, head), stored in zip(found, store.whole([head for *_, head in found]), strict=True):
                if stored is None:
                    continue
                if head.is_damaged or stored.record.state == TRASHED:
                    overdue.append(_set_aside(stored, entry, folder))
                elif stored.record.state == UNCLAIMED:
                    ready.append(stored)
        return ready

    def _more(self, limit: int) -> int:
        """How many records to read ahead: of use where the next ones are claimed without a look."""
        return 0 if self._doubts > 1 else max(_AHEAD, limit)

    def _learn(self, entries: Sequence[Entry], data: Sequence[Any]) -> None:
        for entry, each in zip(entries, data, strict=True):
            self._read.add(entry.uuid)
            head = self._store.head(entry.uuid, each)
            if head is None:
                self._heads.pop(entry.uuid, None)
                continue
            if head.tag.n == UNKNOWN:
                head = head._replace(tag=head.tag._replace(n=entry.n))
            self._heads[entry.uuid] = head

    def _guess(
        self, names: Names, readable: int, after: tuple[Entry, str] | None = None
    ) -> Iterator[tuple[Entry, str]]:
        """As :meth:`_walk`, up to where something would have to be read."""
        with contextlib.suppress(Unknown):
            yield from self._walk(names, readable, True, after)

    def _walk(
        self,
        names: Names,
        readable: int,
        known: bool = False,
        after: tuple[Entry, str] | None = None,
    ) -> Iterator[tuple[Entry, str]]:
        """Entries in the order in which they are served, with their folders.

        :param known: read nothing.
        :raises Unknown: something would have to be read.
        """
        lists = self._lists
        for rank in lists.names("ready", known):
            for hi in lists.names(f"ready/{rank}", known):
                for lo in lists.names(f"ready/{rank}/{hi}", known):
                    folder = f"ready/{rank}/{hi}/{lo}"
                    if (after is not None and folder < after[1]) or lists.passed_by(folder, names):
                        continue
                    if not lists.names(folder, known) and not known:
                        self._empty(rank, hi, lo)
                    for entry in lists.of(folder, names):
                        if entry.version <= readable and (after is None or folder > after[1] or entry > after[0]):
                            yield entry, folder

    def _drop(self, folder: str, entry: Entry) -> None:
        self._heads.pop(entry.uuid, None)
        self._lists.drop(folder, entry)

    def _empty(self, rank: str, hi: str, lo: str) -> None:
        """A folder in which nothing lies any more, if nothing will: the next look passes it by."""
        if folder_number(hi, lo) < self._store.tail_folder(int(rank)):
            self._lists.forget(f"ready/{rank}/{hi}")
            self._store.remove([f"ready/{rank}/{hi}/{lo}"])

    def beaten(self) -> None:
        """Somebody else is at these jobs, too, and what was read ahead is hardly true any more."""
        with self._lock:
            self._heads.clear()
            self.doubt(_CROWDED)

    def changed(self, made: Sequence[str], deleted: Sequence[str], ends: Sequence[int], bell: int | None) -> None:
        """This process has changed something itself, and knows what the bell means."""
        root = len(self._store.paths.root) + 1
        with self._lock:
            for path in deleted:
                if path.startswith("ready/", root):
                    folder, _, name = path[root:].rpartition("/")
                    self._drop(folder, Entry.parse(name)) if not name.startswith("-.") else None
            if bell is None:
                return
            if bell != self._bell + 1:
                return
            self._bell = bell
            if ends:
                self._next = min([*ends, *([] if self._next is None else [self._next])])
            folders = set()
            for path in made:
                folder, _, name = path[root:].rpartition("/")
                if self._heads or self._lists.knows(folder):
                    entry = Entry.parse(name)
                    self._heads.pop(entry.uuid, None)
                    self._lists.add(folder, entry)
                folders.add(folder)
            for folder in folders:
                above, _, number = folder.rpartition("/")
                while above:
                    self._lists.add(above, number)
                    above, _, number = above.rpartition("/")

    # What ends by itself

    def _overdue(self, most: int = _OVERDUE) -> tuple[int, list[Stored]]:
        """What has ended, by the server's own time, and when the next one will."""
        store = self._store
        first, now = None, 0
        ended: list[tuple[int, str]] = []
        for until, uuid in self._ends():
            if not now:
                now = store.judged([])
                now = store.now() if until <= now + store.clock.unknown else now
            if until > now:
                first = until
                break
            ended.append((until, uuid))
            if len(ended) >= most:
                first = until
                break
        overdue = []
        now = now or store.judged([])
        found = store.read([uuid for _, uuid in ended]).jobs if ended else []
        for (until, uuid), stored in zip(ended, found, strict=True):
            if stored is not None and stored.record.lock_until == until:
                overdue.append(stored)
            else:
                self._aside.add(f"{until}.{uuid}")
        self._next = first if not overdue else now
        return now, overdue

    def _ends(self) -> Iterator[tuple[int, str]]:
        """When leases end and jobs are due; the first ones, of the first minutes."""
        store, over = self._store, []
        read, at = store.connection.read, store.paths.at
        minutes = 0
        listed = self._lists.listing("timed")
        for day in sorted(listed[0]) if listed is not None else ():
            [found] = read([children(at(f"timed/{day}"))])
            for minute in sorted(found[0]) if found is not None else ():
                folder = f"timed/{day}/{minute}"
                [shelves] = read([children(at(folder))])
                names = [] if shelves is None else shelves[0]
                past = day.isdigit() and minute.isdigit() and store.past(int(day), int(minute))
                for start in range(0, len(names), _SHELVES):
                    some = names[start : start + _SHELVES]
                    lists = read([children(at(f"{folder}/{name}")) for name in some])
                    ends = []
                    for name, each in zip(some, lists, strict=True):
                        if each is not None and not each[0] and past:
                            over.append(f"{folder}/{name}")
                        for entry in each[0] if each is not None else ():
                            try:
                                if entry.lstrip("0") not in self._aside:
                                    ends.append(timed_entry(entry))
                            except ValueError as error:
                                LOG.warning("%s/%s/%s is set aside: %s", folder, name, entry, error)
                                self._aside.add(entry.lstrip("0"))
                    store.remove(over)
                    over = []
                    yield from sorted(ends)
                minutes += 1
                if minutes > _MINUTES:
                    return

    def _dead(self, most: int) -> list[Stored]:
        """Claims whose keepers are gone."""
        store = self._store
        kept, alive = self._lists.listing("kept"), self._lists.listing("alive")
        if kept is None or alive is None:
            store.mend()
            return []
        # One that has come since is not among them yet: a keeper is made with its folder.
        dead = sorted(set(kept[0]) - set(alive[0]))
        self._keepers = tuple(alive[0])
        overdue: list[Stored] = []
        for keeper in dead:
            [listed] = store.connection.read([children(f"{store.paths.kept}/{keeper}")])
            names = [name for name in (listed[0] if listed else ()) if f"{keeper}/{name}" not in self._aside]
            if listed is not None and not listed[0] and not store.read_only:
                store.connection.try_later([delete(f"{store.paths.kept}/{keeper}")])
            jobs = store.read(names[: max(0, most - len(overdue))]).jobs
            for name, stored in zip(names, jobs, strict=False):
                if stored is not None and not stored.alive and stored.tag.listed == f"kept/{keeper}/{name}":  # type: ignore[attr-defined]
                    overdue.append(stored)
                else:
                    self._aside.add(f"{keeper}/{name}")
        return overdue

    def ended(self) -> tuple[int, list[Stored]]:
        """What has ended by itself, and nobody has written that down."""
        with self._lock:
            kept, self._lists.ahead = self._next, {}
            now, overdue = self._overdue(_MANY)
            overdue += self._dead(_MANY)
            self._next = kept
            return now, overdue

    # Waking up

    @property
    def _is_armed(self) -> bool:
        return self._armed and (self._slots_armed or self._gate.value is None)

    @property
    def _news(self) -> tuple[int, int, int]:
        """Is another once something has come that wakes those who sleep."""
        return self._bell, self._alive, self._slots

    def _note(self) -> None:
        """What this thread finds now may all be full."""
        if self._gate.value is not None and getattr(self._seen, "news", None) is None:
            self._seen.news = self._news

    def awaits(self) -> bool:
        """Before this thread sleeps: whether it will be woken by whatever comes after its first look. Where that has
        found nothing, it is so already."""
        with self._lock:
            seen = getattr(self._seen, "news", None)
            self._seen.news = None
            if seen is not None and not self._is_armed:
                self._arm()
            return seen is None or bool(seen == self._news)

    def _arm(self) -> None:
        store, paths = self._store, self._store.paths
        ruled = self._gate.value is not None
        self._armed, self._slots_armed = True, ruled
        wanted = [exists(paths.slots, self._rung)] if ruled else []
        try:
            bell, alive, *slots = store.connection.read(
                [exists(paths.bell, self._rung), children(paths.alive, self._rung), *wanted]
            )
        except BaseException:
            self._armed = False
            raise
        if bell is not None and alive is not None:
            told = (bell.version, alive[1].cversion, _version(slots[0]) if ruled else self._slots)
            if told != self._news:
                self._bell = -1

    def _rung(self, event: Any) -> None:
        self._armed = False
        self._store.news()

    def disarm(self) -> None:
        """Leave no watch in a client of the caller's: each ends when it is heard."""
        store = self._store
        if self._armed and store.connection.shared:
            name = f"{store.paths.alive}/{store.handle}"
            slots = [put(store.paths.slots, b"")] if self._slots_armed else []
            store.connection.each([put(store.paths.bell, b""), *slots, create(name), delete(name)])


def _version(stat: Any) -> int:
    return -1 if stat is None else int(stat.version)


def _fits(head: Head | None, entry: Entry, folder: str) -> bool:
    return head is not None and (head.is_damaged or _is_at(head, entry, folder))


def _is_at(head: Head, entry: Entry, folder: str) -> bool:
    """Whether this is the record that the entry belongs to, and not that of another life of the job."""
    *_, rank, hi, lo = folder.split("/")
    return (head.record.priority, head.tag.folder, head.tag.n) == (int(rank), folder_number(hi, lo), entry.n) and (
        head.record.state == UNCLAIMED
    )


def _set_aside(stored: Stored, entry: Entry, folder: str) -> Stored:
    """A job that can't be read, as the entry tells of it: whoever settles it moves it to the trash."""
    rank = int(folder.split("/")[1])
    record = stored.record._replace(name=entry.job, priority=rank, version=entry.version)
    return stored._replace(record=record, tag=stored.tag._replace(entry=f"{folder}/{entry.name}"))  # type: ignore[attr-defined]
