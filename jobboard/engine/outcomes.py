"""Stored outcomes of consumed jobs, each in a side record under the uuid of the job."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgpack

from jobboard.engine.store import Bookmark, Mark, Side, Store, Stored, Walked
from jobboard.primitives import PAGE, Finish
from jobboard.states import COMPLETE, Record, stored_failure

LOG = logging.getLogger(__name__)

KIND = "outcome"

_VALUES = tuple(field for field in Record._fields if field not in ("uuid", "posting", "note"))
"""The fields of a record behind the uuid and the posting, in this order. A note ends with its job."""


class StoredOutcome(NamedTuple):
    """The outcome of a consumed job.

    record: the job at its end: COMPLETE, with ``who`` the consumer, and ``modified_on`` the end. begun: the begin of
    the last claim. until: the end of the outcome. result: encoded; None without a result. refused: the reason why a
    handler's return value could not be stored. position: the store's position of the outcome, for the page behind it.
    """

    record: Record
    begun: int
    until: int
    result: bytes | str | None = None
    refused: str | None = None
    position: Any = None

    def packed(self) -> bytes:
        """Return the value of the side record, whose ``until`` is the end of the outcome."""
        record = self.record
        values = [getattr(record, field) for field in _VALUES]
        packed: bytes = msgpack.packb([record.uuid, record.posting, self.result, self.refused, self.begun, *values])
        return packed

    @classmethod
    def of(cls, side: Side) -> StoredOutcome | None:
        """Return the outcome of a side record; None for an absent or damaged record."""
        if side.value is None:
            return None
        try:
            uuid, posting, result, refused, begun, *values = msgpack.unpackb(side.value)
            # Fields that an older writer did not know get their defaults.
            known: dict[str, Any] = dict(zip(_VALUES, values, strict=False))
            known |= {"state": COMPLETE, "errors": tuple(itertools.starmap(stored_failure, known["errors"]))}
            record = Record(uuid=uuid, posting=posting, **known)
            if not (uuid == side.key and type(begun) is type(record.modified_on) is int):
                raise ValueError("it does not fit together")
        except (ValueError, TypeError, LookupError, msgpack.UnpackException) as error:
            LOG.warning("the outcome of job %s can't be read: %s", side.key, error)
            return None
        return cls(record, begun, side.until or 0, result, refused, side)


def outcome_mark(act: Finish, claimed: Record, now: int, side: Side | None) -> Mark:
    """Return the mark that stores the outcome of a job consumed now.

    :param claimed: the record of the job before its end.
    :param side: the side record of the outcome as read; None: the commit requires that there is none."""
    record = claimed._replace(state=COMPLETE, keeper=None, lock_until=None, modified_on=now, expires=None)
    result, refused = act.end.result or (None, None)
    done = StoredOutcome(record, claimed.modified_on, 0, result, refused)
    assert act.keep is not None
    return Mark(side or Side(KIND, act.uuid, None, None, None), done.packed(), until=now + act.keep)


def outcomes_of(acts: Sequence[Finish]) -> list[tuple[str, str]]:
    """Return the kinds and keys of the outcomes that these acts write."""
    return [(KIND, act.uuid) for act in acts if act.keep]


def walk_outcomes(store: Store, position: Any, most: int, place_of: Callable[[Side], Bookmark]) -> Walked:
    """Return a walk along the outcomes, by the sides of a store.

    :param position: of the store's, None at the beginning.
    :param place_of: returns the place of an outcome.
    """
    found, further = store.sides(KIND, position, min(most, PAGE))
    kept = [(side, StoredOutcome.of(side)) for side in found.sides if side.is_valid(found.now)]
    jobs = [(place_of(side), Stored(done.record, side.tag)) for side, done in kept if done is not None]
    last = place_of(found.sides[-1]) if further is not None and found.sides else None
    return Walked(found.now, jobs, len(found.sides), last)
