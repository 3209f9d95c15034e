"""Priorities of users, and their ranks in records."""

from __future__ import annotations

import enum
from typing import Any, TypeVar

from jobboard.conf import shortened
from jobboard.primitives import RANKS

T = TypeVar("T")


class JobPriority(int, enum.Enum):
    """Names for some priorities. All are integers from -100 to 100, a higher one is served first; within one priority
    the oldest post comes first.

    A member is its integer, shown as its name.
    """

    VERY_HIGH = 100
    HIGH = 50
    NORMAL = 0
    LOW = -50
    VERY_LOW = -100

    @classmethod
    def convert(cls, value: int | str | bytes) -> int:
        """Return a priority from its integer, or from its name in any case: a member, if one has that integer.

        :raises TypeError: neither an int (a bool is none) nor a name.
        :raises ValueError: there is no such priority.
        """
        if isinstance(value, cls):
            return value
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        kind: type[Exception] = ValueError
        if isinstance(value, str):
            if value.upper() in cls.__members__:
                return cls[value.upper()]
        elif isinstance(value, int) and not isinstance(value, bool):
            if rank_of(value) in RANKS:
                return _NAMED.get(value, value)
        else:
            kind = TypeError
        names = ", ".join(cls.__members__)
        raise kind(
            f"{shortened(value)} is not a priority: give an integer from -100 to 100, or one of the names {names}"
        )

    @classmethod
    def reorder(cls, *values: tuple[int | str, T]) -> Any:
        """Return the values of (priority, value) pairs, highest priority first, otherwise as they came.

        As in TaskFlow a single pair answers its value, several a tuple.

        :raises ValueError: no pair, or a priority that is none.
        """
        if not values:
            raise ValueError("at least one (priority, value) pair is needed")
        pairs = [(rank_of(cls.convert(priority)), value) for priority, value in values]
        if len(pairs) == 1:
            return pairs[0][1]
        return tuple(value for _, value in sorted(pairs, key=lambda pair: pair[0]))

    @classmethod
    def _missing_(cls, value: object) -> JobPriority | None:
        return cls.__members__.get(value) if isinstance(value, str) else None

    def __str__(self) -> str:
        return self.name


_NAMED: dict[int, JobPriority] = {int(priority): priority for priority in JobPriority}
_HIGHEST = int(JobPriority.VERY_HIGH)


def rank_of(priority: int) -> int:
    """Return the rank of a priority, or the priority of a rank."""
    return _HIGHEST - priority
