"""The driver of ZooKeeper: records and names are znodes, a commit is a multi, a session is an ephemeral znode.

:mod:`~jobboard.backends.zookeeper.folders` has their places. Beside them a board has::

    bell/<bell>         written to ring
    clock               written to learn the server's time
    next/<base>         a counter: the sum of base and version is the last number that was given
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple
from urllib.parse import unquote

from kazoo.exceptions import NoAuthError, NodeExistsError, NoNodeError
from kazoo.protocol.states import KazooState, ZnodeStat

from jobboard import conf as configuration
from jobboard import forks, retry, runtime
from jobboard.backends.zookeeper.clock import ClockBounds
from jobboard.backends.zookeeper.connection import Connection, translated
from jobboard.backends.zookeeper.folders import INDEXES, FolderWalk, growing, is_place, levels_of, path_of
from jobboard.backends.zookeeper.multi import COUNTERS, Multi, node_of
from jobboard.backends.zookeeper.options import OPTIONS, PATIENCE, check_client, make_client
from jobboard.backends.zookeeper.options import check as check_options
from jobboard.backends.zookeeper.requests import LIMIT, MultiRefused, create, delete, put, size_of
from jobboard.engine import Seat
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.kv import layout
from jobboard.kv.driver import (
    ALIVE,
    CONNECTED,
    JOBS,
    MISSED,
    SCHEDULES,
    Driver,
    Numbers,
    Op,
    Range,
    Refused,
    Snapshot,
    Version,
)
from jobboard.kv.options import uri_parts
from jobboard.kv.store import KVStore
from jobboard.primitives import Characteristics, CommitBound

_TRIES = 30

_FIXED = (ALIVE, "bell", f"bell/{JOBS}", f"bell/{SCHEDULES}", "clock", "next")
"""The znodes that every board has, beside its records and indexes. connect() creates them."""

# Characters that ZooKeeper refuses in a path, separators of this driver, and characters beyond the basic plane.
_ESCAPED = re.compile("[%./\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]")

_EMPTY = 1.0
"""The seconds after which a reading removes an empty folder. The end of a queue is empty again and again."""

_AT_ONCE = 200
"""The folders that one step of a tidying looks at."""

_COUNTER_FROM = 4
"""The size of a batch from which a new counter behind its numbers takes fewer operations than a write for each."""


class _JobCounter(NamedTuple):
    base: int
    version: int

    @property
    def path(self) -> str:
        return f"{COUNTERS}{self.base}"

    @property
    def last(self) -> int:
        """The last number that was given."""
        return self.base + self.version


class ZooKeeperDriver(Driver):
    """A board in the znodes of a ZooKeeper ensemble.

    ``client`` is a KazooClient of the caller's. The board connects as that client does, with a session of its own, and
    leaves the client alone. ``claim_ttl`` is the session timeout to ask for, ``characteristics.claim_ttl`` the timeout
    that the server grants.
    """

    options: ClassVar[Mapping[str, configuration.Option]] = OPTIONS
    uri_parts: ClassVar[Mapping[str, str]] = uri_parts("chroot")
    most_bytes = 500_000
    most_kept = 850_000
    poll_cap = 3600.0

    renewed_at = 2**30
    """The version at which a counter is replaced. Versions end at 2**31."""

    def __init__(self, seat: Seat) -> None:
        conf = seat.conf
        check_options(conf)
        if seat.client is not None:
            check_client(seat.client, conf)
        self._name, self._read_only = seat.name, conf["read_only"]
        self._folder = f"{conf['chroot'] if seat.client is None else seat.client.chroot}/{conf['namespace']}"
        self._root = f"{self._folder}/{_quoted(seat.name)}"
        # A new job has four znodes, and the ends of claims in its commit take the rest of a packet.
        self.commit_bound = CommitBound(LIMIT * 17 // 20, 650 + 4 * len(self._root))
        home = os.getpid()

        def make() -> Any:
            if seat.client is not None:
                forks.check_home(home)
            return make_client(conf, seat.client)

        timeout = conf["timeout"] or max(conf["retry_for"], PATIENCE)
        self._connect = functools.partial(Connection, make, timeout, self._changed)
        self._heard: Callable[[str], None] = lambda word: None
        self.connection = self._connect()
        self._reset()

    def _reset(self) -> None:
        self.clock = ClockBounds()
        self._known: set[str] = set()
        self._empty: dict[str, float] = {}
        self._paths: dict[str, list[str]] = {}
        self._counter: _JobCounter | None = None
        self._naming = runtime.Lock()
        self._session: tuple[str, int | None] | None = None
        self._watching = False
        self.armed: set[str] = set()
        self._stood: dict[str, int] = {}
        self._exists = False

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}"

    # Life

    def open(self, create: bool, first: Sequence[Op], heard: Callable[[str], None]) -> Characteristics:
        self._heard = heard
        self.connection = self._connect()
        self._reset()

        def prepare() -> bool:
            missing = self._missing()
            if create and missing:
                self._make(first)
                missing = self._missing()
            self._exists = layout.LAYOUT not in missing
            return self.connection.is_single()

        try:
            alone = self.connection.set_up(prepare)
        except BaseException:
            self.connection.close()
            raise
        return Characteristics(
            durable=True,
            survives_failover=not alone,
            exact_order=True,
            blocking_wait=True,
            remote_events=True,
            transactional=False,
            claim_ttl=self.connection.session_timeout,
            notes="kept claims live as long as the session, whose timeout the server bounds",
        )

    def _missing(self) -> list[str]:
        """Return the absent ones of the paths that every board has. A deleted board has no layout."""
        paths = [layout.LAYOUT, *_FIXED]
        found, _ = self.connection.read([self._at(path) for path in paths], fresh="/")
        return [path for path, each in zip(paths, found, strict=True) if each is None]

    def _make(self, first: Sequence[Op]) -> None:
        parts = self._folder.split("/")
        parents = ["/".join(parts[:number]) for number in range(2, len(parts) + 1)]
        paths = [*parents, self._root, *map(self._at, _FIXED)]
        denied = None
        for path, made in zip(paths, self.connection.each([create(path) for path in paths]), strict=True):
            if isinstance(made, NoAuthError) and path in parents:
                # An account without the right to write above the chroot may have it below.
                denied = translated(made, path)
            elif isinstance(made, NoNodeError):
                raise denied or translated(made, path)
            elif isinstance(made, Exception) and not isinstance(made, NodeExistsError):
                raise translated(made, path)
        # Other processes may create the board, too.
        with contextlib.suppress(Refused):
            self.commit([*first, Op("create", "next/0")])

    def _incomplete(self) -> JobFailure:
        """Return the failure of a call that needs a znode that is absent, though every board has it."""
        missing = self._missing()
        if layout.LAYOUT in missing or not missing:
            return JobFailure(f"the board at {self._root} was deleted; connect() again makes a new one")
        return JobFailure(f"the board at {self._root} has lost {', '.join(missing)}; connect() again makes them")

    def close(self) -> None:
        self.connection.close()

    def forked(self) -> None:
        self.connection.leak()
        self._reset()

    def _changed(self, state: str) -> None:
        """Note that the connection was made, interrupted or lost. kazoo calls this on a thread of its own."""
        if state == KazooState.CONNECTED:
            self.armed.clear()
            self._stood.clear()
            self._heard(CONNECTED)
        if self._watching:
            self._heard(MISSED)

    @property
    def connected(self) -> bool:
        return self.connection.alive

    def hurry(self, seconds: float) -> None:
        self.connection.most_patience = min(self.connection.patience, seconds)

    @property
    def margin(self) -> int:  # type: ignore[override]
        return int(self.connection.session_timeout * 1e6 * 2 / 3)

    # Time

    @property
    def precision(self) -> int:  # type: ignore[override]
        return self.clock.unknown

    def now(self, exact: bool = False) -> int:
        """Return the time. Ask the server only if no answer has told the time lately; the answer to a change does."""
        if self.clock.known and not exact:
            return self.clock.earliest()
        path = self._at("clock")
        if self._read_only:
            [[found], _] = self.connection.read([path])
            return 0 if found is None else found[1].mtime * 1000
        start = runtime.boottime()
        try:
            [stat] = self.connection.commit([put(path, b"")])
        except MultiRefused:
            if not self._exists:
                return 0
            raise self._incomplete() from None
        self.clock.learn(stat.mtime, start, runtime.boottime(), asked=True)
        return self.clock.earliest()

    # Reading

    def read(self, paths: Sequence[str], ranges: Sequence[Range] = (), fresh: bool = True) -> Snapshot:
        now = self.now()
        walks: list[tuple[Range, FolderWalk]] = []
        listed: dict[str, list[str]] = {}
        used: list[str] = []

        def names(folders: Sequence[str]) -> list[list[str]]:
            missing = [folder for folder in folders if folder not in listed]
            if missing:
                listed.update(self._list(missing))
            used.extend(folders)
            return [listed[folder] for folder in folders]

        guessed: dict[str, None] = {}
        for each in ranges:
            walks.append((each, FolderWalk(each.folder, each.after, now, names)))
            guessed.update(dict.fromkeys([each.folder] if each.after else self._paths.get(each.folder, [each.folder])))
            guessed.update(dict.fromkeys(walks[-1][1].lowest))
        (root, *records), lists = self.connection.read(
            [self._root, *(self._at(path_of(path)) for path in paths)],
            [self._at(folder) for folder in guessed],
            fresh=self._root if fresh else None,
        )
        if root is None and self._exists:
            raise self._incomplete()
        listed.update(self._noted(guessed, lists))
        found = []
        for each, walk in walks:
            used.clear()
            found.append(list(itertools.islice(walk.names(), each.most)))
            if not each.after:
                self._paths[each.folder] = used[:100]
        return Snapshot(self.now(), [node_of(each) for each in records], found)

    def listings(self, folders: Sequence[str]) -> list[list[str]]:
        return list(self._list(folders).values())

    def _list(self, folders: Sequence[str]) -> dict[str, list[str]]:
        return self._noted(folders, self.connection.read([], [self._at(folder) for folder in folders])[1])

    def _noted(
        self, folders: Sequence[str] | Mapping[str, None], lists: Sequence[list[str] | None]
    ) -> dict[str, list[str]]:
        """Return these listings. Remove folders that stay empty, without waiting for that."""
        now, gone = runtime.monotonic(), []
        for folder, names in zip(folders, lists, strict=True):
            if names or names is None or is_place(folder):
                self._empty.pop(folder, None)
            elif now - self._empty.setdefault(folder, now) > _EMPTY:
                gone.append(folder)
        self._prune(gone)
        return {folder: names or [] for folder, names in zip(folders, lists, strict=True)}

    def _prune(self, folders: Sequence[str]) -> None:
        if folders and not self._read_only:
            self._known.difference_update(map(self._at, folders))
            for folder in folders:
                self._empty.pop(folder, None)
            self.connection.delete_later([self._at(folder) for folder in folders])

    def count(self, place: str) -> int | None:
        # The server counts the names of a folder. Outcomes may have as many folders as there are outcomes.
        if place == layout.DONE:
            return None
        self.connection.read([], fresh=self._root)
        total = 0
        walk = FolderWalk(place, "", 0, self.listings)
        for some in growing(walk.folders()):
            stats, _ = self.connection.read([self._at(folder) for folder in some])
            total += sum(each[1].numChildren for each in stats if each is not None)
        return total

    def place(self, path: str) -> str:
        return self._at(path_of(path))

    # Writing

    def commit(self, ops: Sequence[Op]) -> dict[str, Version]:
        self.now()
        ends = [op.path for op in ops if op.do == "before"]
        multi = Multi(
            [op for op in ops if op.do != "before"], self.connection, self._root, self._known, self._incomplete
        )
        try:
            results = self._sent(multi, ends)
        except Refused as refused:
            if any(path.startswith(COUNTERS) for path in refused.paths):
                self._counter = None
            if self._session is not None and self._session[0] in refused.paths:
                self._session = None
            raise
        except ConnectionFailure:
            self._counter = None
            raise
        versions, counters = multi.done(results)
        for path, version in counters.items():
            self._counter = _JobCounter(int(path.removeprefix(COUNTERS)), version)
        return dict(versions)

    def _sent(self, multi: Multi, ends: Sequence[str]) -> list[Any]:
        for number in range(_TRIES):
            ops = multi.build()
            size = sum(map(size_of, ops))
            if size > LIMIT:
                way_out = "post fewer jobs at once, or smaller details"
                raise ValueError(f"a request of {size} bytes: ZooKeeper takes 1 MB; {way_out}")
            if late := [end for end in ends if self.clock.latest() >= int(end)]:
                raise Refused(*late)
            start = runtime.boottime()
            try:
                results = self.connection.commit(ops)
            except MultiRefused as refusal:
                multi.refused(refusal)
                runtime.sleep(retry.backoff(number - 2, 0.001, 0.05) if number > 2 else 0)
                continue
            mtime = next((result.mtime for result in results if isinstance(result, ZnodeStat)), None)
            if mtime is not None:
                self.clock.learn(mtime, start, runtime.boottime())
            return results
        raise ConnectionFailure(f"given up after {_TRIES} tries: each time another process had changed the same znodes")

    def number(self, count: int, beaten: bool) -> Numbers:
        if beaten:
            return Numbers(self._draw(count).last - count + 1, ())
        counter = self._counter = self._counter or self._find_counter()
        if count < _COUNTER_FROM and counter.version + count < self.renewed_at:
            ops = [Op("put", counter.path, b"", counter.version + number) for number in range(count)]
        else:
            following = _JobCounter(counter.last + count, 0)
            ops = [Op("delete", counter.path, version=counter.version), Op("create", following.path)]
        return Numbers(counter.last + 1, ops)

    def _draw(self, count: int) -> _JobCounter:
        """Raise the counter by ``count``, whatever its version, and return the raised counter."""
        for number in range(_TRIES):
            counter = self._counter or self._find_counter()
            try:
                results = self.connection.commit([put(self._at(counter.path), b"")] * count)
            except MultiRefused:
                # The counter was replaced.
                self._counter = None
                runtime.sleep(retry.backoff(number - 2, 0.001, 0.05) if number > 2 else 0)
                continue
            counter = counter._replace(version=results[-1].version)
            if counter.version >= self.renewed_at:
                following = create(self._at(_JobCounter(counter.last, 0).path))
                with contextlib.suppress(MultiRefused):
                    self.connection.commit([delete(self._at(counter.path), counter.version), following])
            self._counter = counter
            return counter
        raise ConnectionFailure(f"no number was drawn in {_TRIES} tries")

    def _find_counter(self) -> _JobCounter:
        path = self._at("next")
        for _ in range(_TRIES):
            [[folder], [bases]] = self.connection.read([path], [path], fresh=self._root)
            if folder is None or bases is None:
                raise self._incomplete()
            if numbers := [int(base) for base in bases if base.isdecimal()]:
                base = max(numbers)
                [[found], _] = self.connection.read([f"{path}/{base}"])
                if found is not None:
                    return _JobCounter(base, found[1].version)
            else:
                # The counter was deleted by hand. The time in µs is above all numbers that were ever given.
                with contextlib.suppress(MultiRefused):
                    self.connection.commit([put(path, b"", folder[1].version), create(f"{path}/{self.now()}")])
        raise ConnectionFailure(f"the counter in {path} was replaced in each of {_TRIES} tries to read it")

    # Sessions and bells

    def session(self) -> str:
        with self._naming:
            current = self.connection.session_id
            if self._session is None or current not in (None, self._session[1]):
                name = runtime.urandom(8).hex()
                op = create(self._at(f"{ALIVE}/{name}"), ephemeral=True)
                try:
                    self.connection.commit([op])
                except MultiRefused:
                    raise self._incomplete() from None
                self._session = name, self.connection.session_id
            return self._session[0]

    def watch(self) -> None:
        self._watching = True
        wanted = [word for word in (JOBS, SCHEDULES, ALIVE) if word not in self.armed]
        if not wanted:
            return
        self.armed.update(wanted)
        try:
            stats = self.connection.send([functools.partial(self._arm, word) for word in wanted])
        except ConnectionFailure:
            # Waiters hear of the next connection.
            self.armed.difference_update(wanted)
            if self.connection.alive:
                self._heard(MISSED)
            return
        for word, found in zip(wanted, stats, strict=True):
            if found is None or isinstance(found, Exception):
                self.armed.discard(word)
                raise self._incomplete()
            stood, stands = self._stood.get(word), found[1].cversion if word == ALIVE else found.version
            self._stood[word] = stands
            if stood is None:
                self._heard(MISSED)
            elif stood != stands:
                self._tell(word)

    def _arm(self, word: str, client: Any) -> Any:
        rung = functools.partial(self._rung, word)
        if word == ALIVE:
            return client.get_children_async(self._at(ALIVE), rung, include_data=True)
        return client.exists_async(self._at(f"bell/{word}"), rung)

    def _rung(self, word: str, event: Any) -> None:
        self.armed.discard(word)
        if self._watching:
            self._tell(word)

    def _tell(self, word: str) -> None:
        self._heard(MISSED if word == ALIVE else word)

    # Upkeep

    def tidying(self) -> Iterator[None]:
        """Remove empty folders: some at each step, and the folders above them at a later step."""
        _, [kinds] = self.connection.read([], [self._at("side")])
        places = [*INDEXES, "job", *(f"side/{kind}" for kind in kinds or ())]
        # Folders with the number of levels of folders below them. A look at the levels above is a new one.
        left = [(place, levels_of(place)) for place in places]
        while left:
            some, left = left[-_AT_ONCE:], left[:-_AT_ONCE]
            above = [folder for folder, levels in some if levels]
            stats, lists = self.connection.read(
                [self._at(folder) for folder, _ in some], [self._at(folder) for folder in above]
            )
            names = dict(zip(above, lists, strict=True))
            gone = []
            for (folder, levels), found in zip(some, stats, strict=True):
                if found is not None and found[1].numChildren == 0 and not is_place(folder):
                    gone.append(folder)
                left += [(f"{folder}/{name}", levels - 1) for name in names.get(folder) or ()]
            self._prune(gone)
            parents = dict.fromkeys(folder.rpartition("/")[0] for folder in gone)
            left = [*((parent, 0) for parent in parents), *left]
            yield

    def boards(self, most: int) -> list[str]:
        """Return the names beside this board that have a layout. Other znodes may belong to other programs."""
        mine = self._root.rpartition("/")[2]
        try:
            _, [names] = self.connection.read([], [self._folder])
            likely = sorted(names or (), key=lambda name: (name != mine, name))[:most]
            layouts, _ = self.connection.read([f"{self._folder}/{name}/{layout.LAYOUT}" for name in likely])
        except ConnectionFailure:
            raise
        except JobFailure:
            return []  # an account without the right to list them
        return [unquote(name) for name, found in zip(likely, layouts, strict=True) if found is not None]


class ZooKeeperStore(KVStore):
    """A board on ZooKeeper."""

    driver = ZooKeeperDriver


def _quoted(text: str) -> str:
    """Quote a text for a path."""
    return _ESCAPED.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), text)
