"""What a consumed job leaves: a side record of kind ``outcome``, by its uuid, that no walk over the jobs ever meets."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import msgpack

from jobboard.engine.calls import Committer, EnginePart
from jobboard.engine.store import Mark, Side, Stale
from jobboard.primitives import Finish
from jobboard.states import COMPLETE, Failure, Record

LOG = logging.getLogger(__name__)

KIND = "outcome"

_VALUES = tuple(field for field in Record._fields if field not in ("uuid", "posting"))
"""The fields of a record that lie behind the others, in this order. finish.lua of Redis writes them as well."""


class Done(NamedTuple):
    """One outcome. ``record``: the job as it stood at its end, COMPLETE, ``modified_on`` that instant, ``who`` the one
    who consumed it. ``begun``: when its last claim began; ``until``: when the outcome ends. ``result``: encoded, None
    where none was given; ``refused``: why what a handler has returned could not be stored. ``place``: what the store
    knows it by, for the page behind it."""

    record: Record
    begun: int
    until: int
    result: bytes | str | None = None
    refused: str | None = None
    place: Any = None

    def packed(self) -> bytes:
        """As it is stored; until when it counts is the side record's affair."""
        record = self.record
        values = [getattr(record, field) for field in _VALUES]
        packed: bytes = msgpack.packb([record.uuid, record.posting, self.result, self.refused, self.begun, *values])
        return packed

    @classmethod
    def of(cls, side: Side) -> Done | None:
        """None where nothing is stored, or what is can't be read."""
        if side.value is None:
            return None
        try:
            uuid, posting, result, refused, begun, *values = msgpack.unpackb(side.value)
            # Redis has false where Python has None; and what an older writer did not know has its default.
            fields = zip(_VALUES, values, strict=False)
            known: dict[str, Any] = {field: None if value is False else value for field, value in fields}
            known |= {"state": COMPLETE, "keeper": None, "lock_until": None}
            known["errors"] = tuple(Failure(on, who or None, *more) for on, who, *more in known["errors"])
            record = Record(uuid=uuid, posting=posting, **known)
            if not (uuid == side.key and type(begun) is type(record.modified_on) is int):
                raise ValueError("it does not fit together")
        except (ValueError, TypeError, LookupError, msgpack.UnpackException) as error:
            LOG.warning("the outcome of job %s can't be read: %s", side.key, error)
            return None
        return cls(record, begun, side.until or 0, result or None, refused or None, side)


def kept(act: Finish, claimed: Record, now: int, side: Side | None) -> Mark:
    """The outcome of a job that is consumed as it stands, ``claimed``.

    :param side: what is stored of it already; where that was not read, the commit compares that nothing is."""
    record = claimed._replace(state=COMPLETE, keeper=None, lock_until=None, modified_on=now)
    done = Done(record, claimed.modified_on, 0, act.result, act.refused)
    return Mark(side or Side(KIND, act.uuid, None, None, None), done.packed(), act.keep)


def asked(acts: Sequence[Finish]) -> list[tuple[str, str]]:
    """The side records of the outcomes that these acts write."""
    return [(KIND, act.uuid) for act in acts if act.keep]


class DoneEngine(EnginePart):
    """What :class:`~jobboard.engine.StoreEngine` has of an engine's primitives for outcomes."""

    most_kept: ClassVar[int | None]

    def outcomes(self, uuids: Sequence[str]) -> list[Done | None]:
        found = self._call(None).store.read([], [(KIND, uuid) for uuid in uuids])
        return [Done.of(side) if side.stands(found.now) else None for side in found.sides]

    def done_page(self, after: Done | None, limit: int) -> list[Done]:
        store = self._call(None).store
        page: list[Done] = []
        behind: Side | None = None if after is None else after.place
        while len(page) < limit:
            found = store.newest(KIND, behind, limit)
            page += [done for side in found.sides if side.stands(found.now) and (done := Done.of(side)) is not None]
            if len(found.sides) < limit:
                break
            behind = found.sides[-1]
        return page[:limit]

    def keep(self, dones: Sequence[Done]) -> int:
        most = max(map(len, (done.packed() for done in dones)), default=0)
        if self.most_kept is not None and most > self.most_kept:
            raise ValueError(f"the outcome takes {most} bytes, and {self.most_kept} fit here")
        there = self.outcomes([done.record.uuid for done in dones])
        return _keep(self._call(None), [done for done, known in zip(dones, there, strict=True) if known is None])


def _keep(committer: Committer, dones: Sequence[Done]) -> int:
    marks = [Mark(Side(KIND, done.record.uuid, None, None, None), done.packed(), until=done.until) for done in dones]
    try:
        committer.commit([], marks)
    except Stale:
        # Another is quicker with some of them, or they are left of what has ended.
        return 0 if len(dones) == 1 else sum(_keep(committer, [done]) for done in dones)
    return len(marks)
