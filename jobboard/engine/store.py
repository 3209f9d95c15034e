"""What a store keeps for the engine: records with tags, which it compares and sets.

A store decides nothing about a job. It answers with what is stored and with the server's time of the same request, and
it commits what the engine has decided, all or nothing, if nobody was quicker. Times are microseconds, as in
:mod:`jobboard.states`.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import NamedTuple

from jobboard.primitives import Characteristics, Draft
from jobboard.states import Record, State, Status


class Stored(NamedTuple):
    """A record as it is stored. ``tag`` tells this version of the job from every other that it ever had, also across
    the trash, a purge and a new arrival; only the store knows what it is."""

    record: Record
    tag: object


class Found(NamedTuple):
    """The answer to a read; for a job that is not stored COMPLETE, or TRASHED if it was purged within a day."""

    now: int
    jobs: list[Stored | State]


class Look(NamedTuple):
    """What can be claimed, in serving order, and what must be settled first: at most 100 whose lease or delay has
    ended. ``next_event``: µs until the next such end, None if none is known."""

    now: int
    ready: list[Stored]
    overdue: list[Stored]
    next_event: int | None


class Change(NamedTuple):
    """One job's step: from what was read (None: it is new) to what is to be stored (None: nothing is left). A draft
    gets its sequence, and its time, where it is stored."""

    before: Stored | None
    after: Draft | Record | None
    purged: bool = False


class Answer(NamedTuple):
    """What a call did, and which try of it, to be read when it is repeated: for each job the status, the uuid, and a
    claim's token."""

    call: int
    attempt: int
    done: tuple[tuple[Status, str, int], ...]


class Slot(NamedTuple):
    """Where a handle's call keeps its answer, with that of the slot's latest call. ``tag`` as in :class:`Stored`."""

    handle: str
    number: int
    answer: Answer | None
    tag: object


class Stale(Exception):
    """Nothing was committed: a job, a key or the slot is not as it was read."""


class Store(abc.ABC):
    """What a backend implements under :class:`~jobboard.engine.StoreEngine`. Any method may be called from several
    threads at once, and raises ConnectionFailure where the server can't be reached."""

    @abc.abstractmethod
    def open(self) -> Characteristics:
        """Connect, and create what is missing unless ``auto_setup`` forbids it."""

    @abc.abstractmethod
    def close(self) -> None: ...

    @abc.abstractmethod
    def forked(self) -> None:
        """In a forked child: let go of inherited connections without closing them. Take no lock."""

    @abc.abstractmethod
    def now(self) -> int: ...

    @abc.abstractmethod
    def read(self, uuids: Sequence[str]) -> Found: ...

    @abc.abstractmethod
    def keyed(self, keys: Sequence[str]) -> dict[str, str]:
        """Key -> uuid of the job that holds it, live as far as the store knows."""

    @abc.abstractmethod
    def look(self, limit: int, names: Sequence[str] | None, readable: int) -> Look:
        """The first ``limit`` jobs that are stored as UNCLAIMED, by (priority, sequence)."""

    @abc.abstractmethod
    def page(
        self, after: Record | None, limit: int, names: Sequence[str] | None, states: frozenset[State]
    ) -> tuple[int, list[Record]]:
        """The next jobs that stand in one of ``states`` now, by (priority, sequence), and the time."""

    @abc.abstractmethod
    def trash_page(self, after: Record | None, limit: int) -> list[Record]:
        """The next jobs that are trashed by now, by (modified_on, sequence) downwards, as they stand."""

    @abc.abstractmethod
    def counts(self) -> dict[State, int]:
        """How many jobs stand in each state now."""

    def boards(self, most: int) -> list[str]:
        """See :meth:`Engine.boards <jobboard.engine.Engine.boards>`."""
        return []

    @abc.abstractmethod
    def slot(self, handle: str, number: int) -> Slot: ...

    @abc.abstractmethod
    def commit(self, changes: Sequence[Change], slot: Slot | None = None, answer: Answer | None = None) -> list[Stored]:
        """Store every change, and the answer, if all jobs and the slot are as they were read, and every key that a job
        comes to hold is free or given up by another of these changes. What is stored now of those that stay.

        :raises Stale: something is not; nothing was stored.
        """

    def tidy(self) -> None:  # noqa: B027 - what drops by itself what nobody needs has nothing to do
        """See :meth:`Engine.tidy <jobboard.engine.Engine.tidy>`."""

    @abc.abstractmethod
    def enlist(self, handle: str, kind: str, name: str, metadata: str, ttl: int) -> None: ...

    @abc.abstractmethod
    def delist(self, handle: str) -> None: ...

    @abc.abstractmethod
    def roster(self) -> list[tuple[str, str, str]]: ...
