"""The contract of a driver: the operations that the store of a board needs of a key-value server.

A driver keeps two kinds of things for one board:

- **Records**: small values with versions, each at a path such as ``job/0c1f`` or ``side/key/mail 7``. A change of a
  record names the version that was read.
- **Indexes**: sorted sets of names, such as ``ready`` or ``timed``. A name has no value and no version.

A commit changes any number of records and names at once, or none of them. A *session* is the driver's proof that this
process is alive. A *bell* is a word that every driver of the board hears.

The paths and the names of indexes come from :mod:`jobboard.kv.layout`. They are ASCII without control characters. The
parts of a path, and names, hold no ``/``.

Servers and networks have *habits*. The store and the engine bear each of these, in any order and at any time:

- **A late commit.** A commit whose reply does not come may be done at once, seconds later, or never. A commit that is
  sent again is another commit.
- **A reading in parts.** The records and each index of a reading may show different instants, the later part none
  earlier than the part before. :attr:`Snapshot.now` may be the time of any of these instants, or a later one: a record
  may have changed between its reading and that time.
- **A member behind.** A reading that is not ``fresh`` may miss commits of other processes, and never one that this
  driver has shown or made.
- **A session that ends.** A session may end once its process has given no sign of life for ``claim_ttl``, never sooner.
  An ended session does not come back. Its name leaves :data:`ALIVE` at one instant, for all readers.
- **A late or lost bell.** A bell may be reported late, once for many rings, or as :data:`MISSED`.
- **A clock that is set.** The server's clock may step, forward or back. Where clients use their own clocks, they never
  use a time behind one that the server has shown them.
- **A closed driver.** ``close`` ends all answers: a request under way raises ConnectionFailure, though its commit may
  still be done. A driver may be opened again.

The simulator in ``tests/simulator`` has a driver with all of these.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

from jobboard.conf import Option
from jobboard.engine import Seat
from jobboard.primitives import Characteristics, CommitBound

Version = Any
"""The mark of one state of a record. No other state of that path ever has an equal one."""

ALIVE = "alive"
"""The index of the sessions that live. The driver itself adds and removes the names."""

JOBS, SCHEDULES = "jobs", "schedules"
"""The two bells: for workers that wait for jobs, and for the posters of due jobs."""

CONNECTED = "connected"
"""The word that ``heard`` of :meth:`Driver.open` gets when there is a connection again, perhaps in another session."""

MISSED = "missed"
"""The word that ``heard`` gets when a bell may have rung unheard, or a session may have ended."""


class Node(NamedTuple):
    """A record: its value and its version."""

    value: bytes
    version: Version


class Range(NamedTuple):
    """The first ``most`` names of an index behind ``after``, in the order of the names.

    ``after`` need not be a name: it may be the beginning of one, or ``100.0000000000000007/``, which sorts behind all
    names of that beginning.

    ``folder`` is an index. It may also be the folder of records, ``side/key`` for instance. The names are then the last
    parts of the records' paths, in an order that the driver chooses and keeps. There ``after`` is such a name, whose
    record may be gone."""

    folder: str
    most: int
    after: str = ""


class Snapshot(NamedTuple):
    """The answer to a reading: the records (None: there is none) and the names, each in the order asked for.

    ``now``: the server's time in µs since 1970, not ahead of it."""

    now: int
    nodes: list[Node | None]
    names: list[list[str]]


class Op(NamedTuple):
    """An operation of a commit.

    =========  ====================================================================  ======================
    do         what it does                                                          refused unless
    =========  ====================================================================  ======================
    create     make a record at ``path``                                             there is none
    put        change the record                                                     it has ``version``
    delete     remove the record                                                     it has ``version``
    check      nothing                                                               it has ``version``
    add        put a name into an index; ``path`` is ``index/name``                  \\-
    remove     take the name out of the index                                        \\-
    ring       ring the bell ``path``                                                \\-
    lives      nothing; ``path`` is a session                                        the session lives
    before     nothing; ``path`` is an instant in µs                                 it has not come
    =========  ====================================================================  ======================

    Adding a name that exists, or removing an absent one, is no reason for a refusal. A server that can't compare times
    is sent a commit with ``before`` only while the instant has not come by the latest time that its clock may show."""

    do: Literal["create", "put", "delete", "check", "add", "remove", "ring", "lives", "before"]
    path: str
    value: bytes = b""
    version: Version = None


class Numbers(NamedTuple):
    """Numbers for new jobs, from ``first`` on. The commit that uses the numbers has these ``ops``, too."""

    first: int
    ops: Sequence[Op]


class Refused(Exception):
    """The refusal of a commit: at least these paths were not as the operations require, and nothing was changed.

    :param paths: the paths of refused operations; empty if the driver does not know them.
    """

    def __init__(self, *paths: str) -> None:
        super().__init__(*paths)
        self.paths = frozenset(paths)


class Driver(abc.ABC):
    """A driver for one board.

    Every method may be called from several threads at once. Where the server cannot be reached, every method except
    ``close`` and ``forked`` raises :class:`~jobboard.exceptions.ConnectionFailure` within a few seconds. Its
    ``outcome`` is ``'unknown'`` if a commit may have happened or may still happen. Other refusals of the server raise
    :class:`~jobboard.exceptions.JobFailure` with a message for users. The constructor sends no request.
    """

    options: ClassVar[Mapping[str, Option]] = {}
    """The options of the backend, beside those that every board has."""

    uri_parts: ClassVar[Mapping[str, str]] = {}
    """The option that each part of a URI sets: user, password, host, port, path."""

    keeps: ClassVar[Literal["session", "process"]] = "session"
    """The keeper of a claim without an ``expiry``: a session with the server, or the process itself, so that the claim
    never lapses."""

    most_bytes: ClassVar[int | None] = None
    """The bytes of values that one commit may have, about; None: any number."""

    most_kept: ClassVar[int | None] = None
    """The bytes that the value of one record may have, about; None: any number."""

    commit_bound: CommitBound | None = None
    """The bytes of one commit that posts jobs, about; None: any number."""

    poll_cap: ClassVar[float] = 60.0
    """The seconds that a waiter sleeps at most without a look, while no bell rings."""

    margin: int | None = None
    """The µs for which a session surely outlives an answer of the server; None: as long as the process."""

    precision: int = 0
    """The µs by which the time in a snapshot may lag behind the server's clock."""

    def __init__(self, seat: Seat) -> None:  # noqa: B027 - not each of them has options to check
        """:raises ValueError, TypeError: the backend does not accept the options or the client."""

    @property
    def connected(self) -> bool:
        """True if there is a connection at this moment."""
        return True

    @abc.abstractmethod
    def open(self, create: bool, first: Sequence[Op], heard: Callable[[str], None]) -> Characteristics:
        """Connect. If the board has no records and ``create`` is true, create the board by committing ``first``.

        Many processes may do so at once: a refusal means that another was quicker.

        :param heard: receives :data:`CONNECTED` from now on, and the bells and :data:`MISSED` from :meth:`watch` on.
        """

    def hurry(self, seconds: float) -> None:  # noqa: B027 - requests of some drivers end in time anyway
        """Let no request take more than ``seconds`` from now on, as the board is about to be closed."""

    @abc.abstractmethod
    def close(self) -> None:
        """End the session, so that its claims become free, and the connections of this driver; never a client of the
        caller's."""

    @abc.abstractmethod
    def forked(self) -> None:
        """Drop every inherited connection and session *without closing it*, before anything else in a forked child.

        The parent still uses the socket. The next call opens a new connection. Take no lock."""

    @abc.abstractmethod
    def now(self, exact: bool = False) -> int:
        """Return the server's time in µs since 1970, or up to :attr:`precision` less, never more.

        :param exact: ask the server, so that the answer is later than all times that others have read before.
        """

    @abc.abstractmethod
    def read(self, paths: Sequence[str], ranges: Sequence[Range] = (), fresh: bool = True) -> Snapshot:
        """Read records and indexes, all at one instant or one after the other: the paths first, and each part not older
        than the part before.

        :param fresh: show all commits that were acknowledged to any process before this call. False: show at least the
            commits of this driver, and everything that this driver has shown before.
        """

    def count(self, folder: str) -> int | None:
        """Return the number of names in an index or a folder of records.

        None: the server can count them only at a cost that grows with them. The store then lists the names if it
        must."""
        return None

    @abc.abstractmethod
    def commit(self, ops: Sequence[Op]) -> dict[str, Version]:
        """Do all operations or none. No path occurs twice, apart from bells and the operations of :meth:`number`.

        :returns: the versions of the records that were created or put.
        :raises Refused: a record is not as an operation requires, or a session does not live.
        """

    @abc.abstractmethod
    def number(self, count: int, beaten: bool) -> Numbers:
        """Return numbers for ``count`` new jobs.

        The numbers are positive, below 10**16 and unique. They exceed all numbers that were committed, or drawn by a
        write, before this call. They may have gaps. The cheap way is a counter that the driver remembers: the ``ops``
        of the answer compare the counter and raise it.

        :param beaten: another process was quicker at the counter a moment ago. The driver then draws the numbers by a
            write of its own. That write compares nothing, and the answer needs no ``ops``.
        """

    @abc.abstractmethod
    def session(self) -> str:
        """Return the name of this process's session, without a ``.``. Begin a new session if the last one has ended.

        The name is in the index :data:`ALIVE` for as long as the process lives, and a few seconds more."""

    def beat(self) -> None:  # noqa: B027 - most clients prolong their sessions by themselves
        """Prolong the session."""

    @abc.abstractmethod
    def watch(self) -> None:
        """Report to ``heard`` from now on the name of each bell that rings, and :data:`MISSED` where a session ends.

        The store calls this any number of times, as a server's watch may fire only once. A bell that rings between two
        calls is reported by the second call at the latest."""

    def place(self, path: str) -> str:
        """Return the name of a record on the server, for an operator."""
        return f"the record {path}"

    def tidying(self) -> Iterator[None]:
        """Remove leftovers of the driver itself, such as empty folders, and yield after each short step."""
        return iter(())

    def boards(self, most: int) -> list[str]:
        """Return the names of boards on this server, this board's own first if the board is there."""
        return []
