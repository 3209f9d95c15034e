"""Where everything lies under a board's root, and what the names of znodes say.

::

    layout                               the layout, and the oldest one whose readers understand it
    bell                                 written with whatever may have become claimable, or ends by itself; watched
    slots                                written when what a limit counts has room again; watched where there are some
    clock                                written to learn the server's time
    gate                                 the side record of that kind, empty where there is none: an absence can't be
                                         compared in a multi
    jobs/<bucket>/<uuid>                 a job's record; its version rises with every change
    jobs/<bucket>/<uuid>~<mark>          its posting and error, where these are long: written once, and never changed
    tail/<rank>                          the folder that posts of this priority go to
    ready/<rank>/<hi>/<lo>/<entry>       an unclaimed job, in the order of posts within its priority
    busy/<rank>/<hi>/<lo>/<entry>        a claimed job, under the name that it had when it was ready
    later/<rank>/<hi>/<lo>/<entry>       a scheduled one
    timed/<day>/<minute>/<shelf>/<time>.<uuid>      when a lease ends, or a job is due
    trash/<day>/<minute>/<shelf>/<time>.<place>.<uuid>     a trashed job
    done/<day>/<minute>/<shelf>/<time>.<place>.<uuid>      a consumed job whose outcome is kept, by its end
    over/<day>/<minute>/<shelf>/<time>.<place>.<uuid>      the same, by the end of its outcome
    alive/<keeper>                       ephemeral: one session of one handle
    kept/<keeper>/<uuid>                 a claim that lives as long as that session
    sides/<kind>/<bucket>/<key>          a side record; under it lies <mark>, which is another each time it is made,
                                         but under no answer: that is made again an hour after its last call at the
                                         earliest, when nothing that its session has sent can still arrive
    listeners/<handle>                   ephemeral: who wants to hear of what others do
    events/e<n>                          what was done while somebody listened

An entry is called ``<version>.<uuid>.<name>.<n>``, or ``<version>.<uuid>.<name>.<group>.<n>`` where the job has a
group; the server numbers the posts of one folder. Folder and n are the job's place, which it keeps until it leaves the
board, and its sequence. A folder takes some 500 posts; then whoever posts next advances the tail and makes the folders
of that number. Every post compares the tail's version, so that no folder is ever begun twice. No list is longer than
about a thousand names, and no work needs a list that grows with the board. Empty folders are removed.

A job that is not ready from the start has its number reserved in its folder first, by an entry called ``-.<n>``.
"""

from __future__ import annotations

import functools
import re
from typing import Any, NamedTuple
from urllib.parse import unquote
from zlib import crc32

from jobboard.engine import LISTED
from jobboard.states import CLAIMED, SCHEDULED, UNCLAIMED, Record, State

FULL = 500
"""How many posts one folder takes, unless many come at once."""

_WIDTH = 512
"""How many folders lie in one of the level above."""

TREES: dict[State, str] = {UNCLAIMED: "ready", CLAIMED: "busy", SCHEDULED: "later"}

MINUTE = 60_000_000
_MINUTES = 24 * 60

UNKNOWN = -1
"""The n of a job that is as it was posted: only the name of its entry tells it."""

# What ZooKeeper refuses in a path, what separates here, and what is beyond the plane that it counts in.
_ESCAPED = re.compile("[%./\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]")
_ENTRY = re.compile(r"([0-9]+)\.([^.]{36})\.([^.]*)(?:\.([^.]*))?\.([0-9]{10})")
_TIMED = re.compile(r"([0-9]{16,})\.([^.]{36})")
_TRASHED = re.compile(r"([0-9]{16,})\.([0-9]+)\.([^.]{36})")


def quoted(text: str) -> str:
    """As a part of a znode's name."""
    return _ESCAPED.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), text)


def plain(uuid: str) -> bool:
    """Whether a job can be called that."""
    return len(uuid) == 36 and uuid.isascii() and not _ESCAPED.search(uuid) and "~" not in uuid


class Entry(NamedTuple):
    """A live job, as the name of its entry tells of it. Sorts in the order of posts within a folder."""

    n: int
    uuid: str
    version: int
    job: str
    name: str
    group: str | None = None

    @classmethod
    def parse(cls, name: str) -> Entry:
        """:raises ValueError: no job is called that."""
        version, uuid, job, group, n = _parts(_ENTRY, name)
        return cls(int(n), uuid, int(version), _plain(job), name, None if group is None else _plain(group))


def _plain(part: str) -> str:
    return unquote(part) if "%" in part else part


def timed_entry(name: str) -> tuple[int, str]:
    """:raises ValueError: nothing that is timed is called that."""
    until, uuid = _parts(_TIMED, name)
    return int(until), uuid


def trashed_entry(name: str) -> tuple[int, int, str]:
    """When a job was trashed, its sequence and its uuid.

    :raises ValueError: no trashed job is called that."""
    when, sequence, uuid = _parts(_TRASHED, name)
    return int(when), int(sequence), uuid


def _parts(form: re.Pattern[str], name: str) -> tuple[str | Any, ...]:
    found = form.fullmatch(name)
    if found is None:
        raise ValueError("nothing of a board's has such a name")
    return found.groups()


def sequence_of(rank: int, folder: int, n: int) -> int:
    """Rises within a priority, and no two jobs of a board share it."""
    return folder << 32 | max(n, 0) << 8 | rank


def place_of(sequence: int) -> tuple[int, int]:
    """Folder and n."""
    return sequence >> 32, (sequence & 0xFFFFFFFF) >> 8


@functools.lru_cache(maxsize=1024)
def folder_of(state: State, rank: int, folder: int) -> str:
    return f"{TREES[state]}/{rank:03d}/{folder // _WIDTH:07d}/{folder % _WIDTH:03d}"


def level_of(folder: int) -> int:
    """The folder of the level above."""
    return folder // _WIDTH


def is_first(folder: int) -> bool:
    """Whether the folder of the level above begins with it."""
    return folder % _WIDTH == 0


def folder_number(hi: str, lo: str) -> int:
    """:raises ValueError: no folder is called that."""
    return int(hi) * _WIDTH + int(lo)


def entry_of(record: Record, folder: int, n: int) -> str:
    """Where a live job's entry lies; "" of a trashed one."""
    if record.state not in TREES:
        return ""
    return f"{folder_of(record.state, record.priority, folder)}/{prefix_of(record)}{n:010d}"


def prefix_of(record: Record) -> str:
    group = "" if record.group is None else f"{quoted(record.group)}."
    return f"{record.version}.{record.uuid}.{quoted(record.name)}.{group}"


def minute_of(tree: str, at: int) -> str:
    """The folder of an instant."""
    day, minute = divmod(at // MINUTE, _MINUTES)
    return f"{tree}/{day:06d}/{minute:04d}"


class Paths:
    """The absolute paths of one board."""

    def __init__(self, chroot: str, namespace: str, board: str) -> None:
        self.folder = f"{chroot}/{namespace}"
        self.root = f"{self.folder}/{quoted(board)}"
        self.layout, self.bell, self.clock, self.alive, self.kept, self.listeners, self.events, self.sides = (
            f"{self.root}/{name}"
            for name in ("layout", "bell", "clock", "alive", "kept", "listeners", "events", "sides")
        )
        self.gate = f"{self.root}/gate"
        self.slots = f"{self.root}/slots"
        self.schedules = f"{self.sides}/schedule"

    def parents(self) -> list[str]:
        """What a board lies in."""
        parts = self.folder.split("/")
        return ["/".join(parts[:number]) for number in range(2, len(parts) + 1)]

    def fixed(self) -> list[str]:
        """What every board has, beside its layout; parents first."""
        trees = ("jobs", "tail", "ready", "busy", "later", "timed", "trash", "done", "over")
        others = [f"{self.root}/{name}" for name in trees]
        return [
            *(self.root, self.bell, self.slots, self.clock, self.gate, self.alive, self.kept),
            *(self.listeners, self.events, self.sides),
            *others,
            *(f"{self.root}/jobs/{bucket:02x}" for bucket in range(256)),
        ]

    def at(self, relative: str) -> str:
        return f"{self.root}/{relative}"

    def job(self, uuid: str) -> str:
        return f"{self.root}/jobs/{crc32(uuid.encode()) & 0xFF:02x}/{uuid}"

    def side(self, kind: str, key: str) -> str:
        if kind == "gate":
            return self.gate
        if kind in LISTED:
            return f"{self.sides}/{kind}/{quoted(key)}"
        return f"{self.sides}/{kind}/{crc32(key.encode()) & 0xFF:02x}/{quoted(key)}"
