"""Outcomes: what consumed jobs leave, each in a side record of its own, by the uuid of the job."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgpack

from jobboard.engine.store import Mark, Side
from jobboard.primitives import Finish
from jobboard.states import COMPLETE, Failure, Record

LOG = logging.getLogger(__name__)

KIND = "outcome"

_VALUES = tuple(field for field in Record._fields if field not in ("uuid", "posting"))
"""The fields of a record behind the uuid and the posting, in this order."""


class Done(NamedTuple):
    """One outcome.

    record: the job as it stood at its end: COMPLETE, ``modified_on`` that instant, ``who`` the consumer.
    begun: when the last claim began.
    until: when the outcome ends.
    result: encoded; None where no result was given.
    refused: why a handler's return value could not be stored.
    place: how the store knows the outcome, for the page behind it.
    """

    record: Record
    begun: int
    until: int
    result: bytes | str | None = None
    refused: str | None = None
    place: Any = None

    def packed(self) -> bytes:
        """Return the value of the side record, whose ``until`` is the end of the outcome."""
        record = self.record
        values = [getattr(record, field) for field in _VALUES]
        packed: bytes = msgpack.packb([record.uuid, record.posting, self.result, self.refused, self.begun, *values])
        return packed

    @classmethod
    def of(cls, side: Side) -> Done | None:
        """Return None where nothing is stored, or where it cannot be read."""
        if side.value is None:
            return None
        try:
            uuid, posting, result, refused, begun, *values = msgpack.unpackb(side.value)
            # What an older writer did not know has its default.
            known: dict[str, Any] = dict(zip(_VALUES, values, strict=False))
            known |= {"state": COMPLETE, "errors": tuple(Failure(*failure) for failure in known["errors"])}
            record = Record(uuid=uuid, posting=posting, **known)
            if not (uuid == side.key and type(begun) is type(record.modified_on) is int):
                raise ValueError("it does not fit together")
        except (ValueError, TypeError, LookupError, msgpack.UnpackException) as error:
            LOG.warning("the outcome of job %s can't be read: %s", side.key, error)
            return None
        return cls(record, begun, side.until or 0, result, refused, side)


def kept(act: Finish, claimed: Record, now: int, side: Side | None) -> Mark:
    """Return what stores the outcome of a job that stands as ``claimed`` and is consumed now.

    :param side: the outcome that is stored already; if that was not read, the commit compares that there is none."""
    record = claimed._replace(state=COMPLETE, keeper=None, lock_until=None, modified_on=now)
    result, refused = act.end.result or (None, None)
    done = Done(record, claimed.modified_on, 0, result, refused)
    assert act.keep is not None
    return Mark(side or Side(KIND, act.uuid, None, None, None), done.packed(), until=now + act.keep)


def outcomes_of(acts: Sequence[Finish]) -> list[tuple[str, str]]:
    """Return the places of the outcomes that these acts write."""
    return [(KIND, act.uuid) for act in acts if act.keep]
