"""How fast counters rise: those of the board, and those that its conductors tell of themselves."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from jobboard.job import Entity

WINDOWS = (10.0, 60.0)
"""Over how many seconds a rate is taken."""

SHORTEST = 0.5
"""Over less than this, a rate is not worth showing."""

TOLD = {"dispatched": "started", "consumed": "consumed", "abandoned": "abandoned", "trashed": "trashed"}
"""What conductors count, and what that is called here."""


@dataclass(frozen=True)
class Rate:
    """So many a second, over each of :data:`WINDOWS`."""

    short: float
    long: float


class Rates:
    """Turns counters into rates, from what they were before. ``rates`` is empty until enough is known for them."""

    def __init__(self) -> None:
        self._before: deque[tuple[float, Counter[str]]] = deque()
        self.rates: dict[str, Rate] = {}

    def take(self, now: float, counters: Counter[str]) -> None:
        """:param now: in seconds; what is not later than what was taken last tells nothing new."""
        if self._before and now <= self._before[-1][0]:
            return
        self._before.append((now, counters))
        while len(self._before) > 2 and self._before[1][0] <= now - WINDOWS[-1]:
            self._before.popleft()
        if now - self._before[0][0] < SHORTEST:
            return
        short, long = (self._since(now - window) for window in WINDOWS)
        self.rates = {
            name: Rate(*((counters[name] - old[name]) / (now - at) for at, old in (short, long))) for name in counters
        }

    def _since(self, limit: float) -> tuple[float, Counter[str]]:
        """The oldest of the window, and never the newest."""
        inside = (each for each in self._before if each[0] >= limit)
        first = next(inside)
        return first if first is not self._before[-1] else self._before[-2]


class Conductors:
    """What the conductors of a board get done, by what each of them tells with its heartbeats.

    They count by a clock of their own: how old what they tell is does not matter. ``rates`` is what they get done
    together, those of whom that is known.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], Rates] = {}
        self.rates: dict[str, Rate] = {}

    def hear(self, entities: Iterable[Entity]) -> None:
        """Take in all who are there now."""
        known: dict[tuple[Any, ...], Rates] = {}
        for entity in entities:
            told = entity.metadata
            if entity.kind == "conductor" and _is_told(told):
                key = _key(entity)
                known[key] = self._known.get(key) or Rates()
                known[key].take(told["seconds"], Counter({name: told[count] for count, name in TOLD.items()}))
        self._known = known
        each = [conductor.rates for conductor in known.values() if conductor.rates]
        self.rates = {
            name: Rate(sum(rates[name].short for rates in each), sum(rates[name].long for rates in each))
            for name in (TOLD.values() if each else ())
        }

    def rates_of(self, entity: Entity) -> dict[str, Rate]:
        """What one gets done; nothing where that is not known (yet)."""
        conductor = self._known.get(_key(entity))
        return {} if conductor is None else conductor.rates


def _key(entity: Entity) -> tuple[Any, ...]:
    """One that was started anew counts from 0."""
    told = entity.metadata
    return entity.kind, entity.name, *(str(told.get(field)) for field in ("host", "pid", "started"))


def _is_told(told: dict[str, Any]) -> bool:
    return all(isinstance(told.get(field), int | float) for field in ("seconds", *TOLD))
