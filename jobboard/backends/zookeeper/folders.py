"""A folder as it was listed last, and what the names in it tell."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

T = TypeVar("T")

LOG = logging.getLogger(__name__)

SMALL = 100
"""A list of up to so many names is read together with the stats."""


class Folder:
    """One folder's children, as they were shipped last. ``created`` and ``changed`` tell what its stat was then."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.names: set[str] = set()
        self.strays: set[str] = set()
        self.created = self.changed = -1
        self.shipped = 0.0
        self.spent = 0.0

    def parsed(self, parse: Callable[[str], T], names: Iterable[str], came: bool = True) -> list[T]:
        """What the names tell that came or went; those that tell nothing are set aside."""
        told = []
        for name in names:
            try:
                told.append(parse(name))
            except ValueError as error:
                if came:
                    LOG.warning("%s/%s is set aside: %s", self.path, name, error)
                (self.strays.add if came else self.strays.discard)(name)
        return told

    def interval(self) -> float:
        """How long not to ship it again, in seconds: by what that costs, within 20 to 100 ms."""
        return min(0.1, max(0.02, 4 * self.spent))


def created(stat: Any) -> int:
    """How many children were ever created; the stat counts those that went, too."""
    return int(stat.cversion + stat.numChildren) // 2
