"""Where everything lies under a board's root, and what the names of znodes say.

::

    <root>/layout                                   the layout, and the oldest one whose readers understand it
    <root>/bell                                     written whenever something may have become claimable
    <root>/clock                                    written to learn the server's time
    <root>/jobs                                     written with each job that arrives from another board
    <root>/jobs/<rank>/<version>.<uuid>.<name>.<n>  a job; n is the server's count of posts of that priority. One that
                                                    was restored has its token of then behind it: no path is made twice
    <root>/claims/<uuid>                            ephemeral: the claim of a job that somebody keeps
    <root>/timed/<until>.<kind>.<uuid>              a lease or a due time, or the mark of a last attempt
    <root>/trash/<when>.<rank>.<job>                a trashed job
    <root>/keys/<key>                               the uuid of the live job that has the key
    <root>/purged/<uuid>                            for a day
    <root>/answers/<handle>.<slot>                  what the latest call of that slot did
    <root>/entities/<kind>.<name>                   ephemeral
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote

from jobboard.states import CLAIMED, Record

RANKS = range(5)

# What ZooKeeper refuses in a path, what separates here, and what is beyond the plane that it counts in.
_ESCAPED = re.compile("[%./\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]")

_JOB = re.compile(r"([0-9]+)\.([^.]{36})\.([^.]*)\.(-?[0-9]+)(\.[0-9]+)?")
_TIMED = re.compile(r"([0-9]{16,})\.([csxk])\.([^.]{36})")
_TRASHED = re.compile(r"([0-9]{16,})\.([0-4])\.(.+)", re.DOTALL)

LEASE, DUE, LAST_LEASE, LAST_KEPT = "c", "s", "x", "k"
"""The kinds of timed entries: a lease; a due time; a lease, or a kept claim, with which the attempts are used up."""


IN_TRASH = "-1"
"""Before the number of a job that has arrived in the trash, which is the trash's own count: no other job has such a
place, and restored it comes before those that were posted here."""
_ARRIVED = int(IN_TRASH + 10 * "0")


def quoted(text: str) -> str:
    """As a part of a znode's name."""
    return _ESCAPED.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), text)


class Node(NamedTuple):
    """A job's znode, as its name tells of it. Sorts in the order of posts, within one priority."""

    number: int
    name: str
    rank: int
    uuid: str
    job: str
    version: int

    @property
    def sequence(self) -> int:
        """Rises within each priority, and no two jobs of a board share it."""
        return self.number * len(RANKS) + self.rank

    def restored(self, token: int) -> Node:
        """The job's place after it has come back from the trash. A znode that is made counts its versions from 0 again,
        so that what is remembered of one that was there before must not fit it."""
        return self._replace(name=".".join([*self.name.split(".")[:4], str(token)]))

    @classmethod
    def parse(cls, name: str, rank: int) -> Node:
        """:raises ValueError: no job is called that."""
        version, uuid, job, digits, _ = _parts(_JOB, name)
        number = int(digits)
        if number < 0:
            # The later one has arrived, the lower its number would be.
            number = 2 * _ARRIVED - number
        return cls(number, name, rank, uuid, unquote(job) if "%" in job else job, int(version))


class Timed(NamedTuple):
    """An instant at which something becomes of a job by itself; ``until`` 0 goes with :data:`LAST_KEPT`."""

    until: int
    kind: str
    uuid: str

    @property
    def name(self) -> str:
        return f"{self.until:016d}.{self.kind}.{self.uuid}"

    @classmethod
    def parse(cls, name: str) -> Timed:
        """:raises ValueError: no such entry is called that."""
        until, kind, uuid = _parts(_TIMED, name)
        return cls(int(until), kind, uuid)


def _parts(form: re.Pattern[str], name: str) -> tuple[str, ...]:
    found = form.fullmatch(name)
    if found is None:
        raise ValueError("nothing here has such a name")
    return found.groups()


def timed_of(record: Record) -> Timed | None:
    """The entry that belongs to a live record."""
    if record.lock_until is not None:
        claimed = record.state == CLAIMED
        kind = (LAST_LEASE if record.exhausted else LEASE) if claimed else DUE
        return Timed(record.lock_until, kind, record.uuid)
    if record.state == CLAIMED and record.exhausted:
        return Timed(0, LAST_KEPT, record.uuid)
    return None


class Trashed(NamedTuple):
    """A trashed job's znode, as its name tells of it."""

    when: int
    node: Node
    name: str

    @classmethod
    def parse(cls, name: str) -> Trashed:
        """:raises ValueError: no trashed job is called that."""
        when, rank, rest = _parts(_TRASHED, name)
        return cls(int(when), Node.parse(rest, int(rank)), name)

    @classmethod
    def of(cls, node: Node, when: int) -> Trashed:
        return cls(when, node, f"{when:016d}.{node.rank}.{node.name}")


class Paths:
    """The absolute paths of one board; ``chroot`` is the client's own, which kazoo puts before nothing that we send."""

    def __init__(self, chroot: str, namespace: str, board: str) -> None:
        self.chroot = chroot
        self.folder = f"{chroot}/{namespace}"
        self.parents = ["/".join(namespace.split("/")[:n]) for n in range(1, namespace.count("/") + 2)]
        self.root = f"{self.folder}/{quoted(board)}"
        self.layout = self.root + "/layout"
        self.bell = self.root + "/bell"
        self.clock = self.root + "/clock"
        self.claims = self.root + "/claims"
        self.timed = self.root + "/timed"
        self.trash = self.root + "/trash"
        self.keys = self.root + "/keys"
        self.purged = self.root + "/purged"
        self.answers = self.root + "/answers"
        self.entities = self.root + "/entities"
        self.arrivals = self.root + "/jobs"
        self.jobs = [f"{self.root}/jobs/{rank}" for rank in RANKS]

    def everything(self) -> list[str]:
        """What a board consists of, and what it lies in; parents first, the layout last."""
        return [*(f"{self.chroot}/{parent}" for parent in self.parents), *self.own()]

    def own(self) -> list[str]:
        folders = [self.claims, self.timed, self.trash, self.keys, self.purged, self.answers, self.entities]
        return [self.root, self.bell, self.clock, self.arrivals, *self.jobs, *folders, self.layout]

    def job(self, node: Node) -> str:
        return f"{self.jobs[node.rank]}/{node.name}"

    def claim(self, uuid: str) -> str:
        return f"{self.claims}/{uuid}"

    def key(self, key: str) -> str:
        return f"{self.keys}/{quoted(key)}"

    def timed_entry(self, timed: Timed) -> str:
        return f"{self.timed}/{timed.name}"

    def trashed(self, trashed: Trashed) -> str:
        return f"{self.trash}/{trashed.name}"
