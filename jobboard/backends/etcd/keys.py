"""Where everything lies in etcd, and how a job and a side record are written there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import quote

import msgpack

from jobboard.engine import GATE, Side, Stored, damaged_value
from jobboard.states import CLAIMED, SCHEDULED, TRASHED, UNCLAIMED, Failure, Record, State

TREES = {UNCLAIMED: "ready", SCHEDULED: "later", CLAIMED: "busy", TRASHED: "trash"}
"""In which folder the record of a job lies."""

LIVE_TREES = ("ready", "later", "busy")


def trees_of(states: frozenset[State]) -> list[str]:
    """In which of them a live job can lie that stands in one of these states. What has lapsed or come due lies where it
    was, and is unclaimed."""
    return [tree for state, tree in TREES.items() if tree in LIVE_TREES and {state, UNCLAIMED} & states]


FENCE = 256
"""The place of each so many-th job is a fence. See :class:`~jobboard.backends.etcd.looking.Fences`."""

LAST = 2**56 - 1


quoted = functools.lru_cache(4096)(functools.partial(quote, safe=":"))


class EtcdTag(NamedTuple):
    """Where a job's record lies and since which revision of the store: no two versions have both alike. ``lease``: what
    keeps the claim. ``guard``: nothing may have come in before this job since it was seen to be the next one."""

    key: str
    revision: int
    lease: str | None = None
    guard: Callable[[str], list[str]] | None = None


def tag_of(stored: Stored) -> EtcdTag:
    assert isinstance(stored.tag, EtcdTag)
    return stored.tag


def place_of(job: Record) -> str:
    """Sorts as jobs are served."""
    return f"{job.priority:02x}{job.sequence:014x}"


def end_of(prefix: str) -> str:
    """The first key behind all that begin like this."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


class EtcdKeys:
    """The keys of one board. Names are quoted, so that no ``/`` is in them."""

    def __init__(self, namespace: str, name: str) -> None:
        self.layouts = f"{namespace}/layout/"
        self.layout = self.layouts + quoted(name)
        self.root = root = f"{namespace}/board/{quoted(name)}/"
        self.tail = root + "tail"
        self.never = root + "never/"
        self.fences = root + "fence/"
        self.wake = root + "wake/"
        self.times = self.wake + "time/"
        self.again = self.wake + "again"
        self.lanes = root + "lane/"
        self.holders = root + "holder/"
        self.alive = root + "alive/"
        self.schedules = root + "schedules"
        self.gate = self.side(*GATE)
        self.done = root + "done/"
        self.dropped = root + "dropped/"
        self.kept_since = root + "kept"

    def job(self, uuid: str) -> str:
        return f"{self.root}job/{quoted(uuid)}"

    def side(self, kind: str, key: str) -> str:
        return f"{self.root}side/{kind}/{quoted(key)}"

    def named(self, name: str) -> str:
        return f"{self.wake}name/{quoted(name)}/"

    def lane(self, name: str, group: str) -> str:
        return f"{self.lanes}{quoted(name)}/{quoted(group)}/"

    def record(self, record: Record) -> str:
        """Of what is in the trash, the newest comes first."""
        place = place_of(record)
        if record.state == TRASHED:
            place = f"{LAST - record.modified_on:014x}{LAST - record.sequence:014x}"
        return f"{self.root}{TREES[record.state]}/{place}"

    def ended(self, ended: Record) -> str:
        """What leads to an outcome, the newest first."""
        return f"{self.done}{LAST - ended.modified_on:014x}{LAST - ended.sequence:014x}/{quoted(ended.uuid)}"

    def drop(self, until: int, uuid: str) -> str:
        """What leads to an outcome when it is to be dropped."""
        return f"{self.dropped}{until:014x}/{quoted(uuid)}"

    def marks(self, record: Record) -> dict[str, bytes]:
        """What else is kept of a job, beside its record: by name and by group where it can be claimed, by time where it
        ends by itself; and how its uuid leads to it."""
        place, record_key = place_of(record), self.record(record)
        pointer = record_key[len(self.root) :] if record.state == TRASHED else place
        marks = {self.job(record.uuid): pointer.encode()}
        if record.state == UNCLAIMED:
            marks[self.named(record.name) + place] = b""
            if record.group is not None:
                marks[self.lane(record.name, record.group) + place] = b""
        if record.lock_until is not None:
            marks[f"{self.times}{record.lock_until:014x}{place}"] = record_key[len(self.root) :].encode()
        return marks


def pack(record: Record, lease: str | None) -> bytes:
    return bytes(msgpack.packb((lease, *record)))


def unpack(value: bytes) -> tuple[Record, str | None]:
    """:raises ValueError: it is no record."""
    try:
        lease, *fields = msgpack.unpackb(value)
        record = Record(*fields)
        errors = tuple(Failure(*failure) for failure in record.errors)
        numbers = (record.priority, record.sequence, record.token, record.attempts, record.modified_on)
        if not all(type(number) is int for number in numbers):
            raise ValueError(f"its numbers are {numbers!r}")
        return record._replace(state=State(record.state), errors=errors), lease
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise ValueError(f"what is stored of a job can't be read: {error}") from None


def pack_side(value: bytes, until: int | None) -> bytes:
    return bytes(msgpack.packb((value, until)))


def unpack_side(kind: str, key: str, stored: bytes, revision: int) -> Side:
    """One that is damaged counts for nothing, unless it is the gate; its tag lets it be replaced."""
    try:
        value, until = msgpack.unpackb(stored)
    except (ValueError, TypeError, msgpack.UnpackException):
        value, until = damaged_value(kind), None
    return Side(kind, key, value, until, revision)
