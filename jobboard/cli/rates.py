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
    """Turns counters into rates, from what they were before."""

    def __init__(self) -> None:
        self._before: deque[tuple[float, Counter[str]]] = deque()

    def take(self, now: float, counters: Counter[str]) -> dict[str, Rate]:
        """The rates, where enough is known for them.

        :param now: in seconds, later each time.
        """
        self._before.append((now, counters))
        while len(self._before) > 2 and self._before[1][0] <= now - WINDOWS[-1]:
            self._before.popleft()
        if now - self._before[0][0] < SHORTEST:
            return {}
        short, long = (self._since(now - window) for window in WINDOWS)
        return {
            name: Rate(*((counters[name] - old[name]) / (now - at) for at, old in (short, long))) for name in counters
        }

    def _since(self, limit: float) -> tuple[float, Counter[str]]:
        """The oldest of the window, and never the newest."""
        inside = (each for each in self._before if each[0] >= limit)
        first = next(inside)
        return first if first is not self._before[-1] else self._before[-2]


class _Conductor:
    def __init__(self) -> None:
        self.seconds = -1.0
        self.history = Rates()
        self.rates: dict[str, Rate] = {}


class Conductors:
    """What the conductors of a board get done, by what each of them tells with its heartbeats.

    They count by a clock of their own: how old what they tell is does not matter.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], _Conductor] = {}

    def hear(self, entities: Iterable[Entity]) -> None:
        """Take in all who are there now."""
        known: dict[tuple[Any, ...], _Conductor] = {}
        for entity in entities:
            told = entity.metadata
            if entity.kind != "conductor" or not _is_told(told):
                continue
            key = _key(entity)
            conductor = known[key] = self._known.get(key) or _Conductor()
            if told["seconds"] > conductor.seconds:
                conductor.seconds = told["seconds"]
                counters = Counter({name: told[count] for count, name in TOLD.items()})
                conductor.rates = conductor.history.take(conductor.seconds, counters)
        self._known = known

    def rates_of(self, entity: Entity) -> dict[str, Rate]:
        """What one gets done; nothing where that is not known (yet)."""
        conductor = self._known.get(_key(entity))
        return {} if conductor is None else conductor.rates

    @property
    def rates(self) -> dict[str, Rate]:
        """What they get done together, those of whom that is known."""
        known = [conductor.rates for conductor in self._known.values() if conductor.rates]
        return {
            name: Rate(sum(rates[name].short for rates in known), sum(rates[name].long for rates in known))
            for name in (TOLD.values() if known else ())
        }


def _key(entity: Entity) -> tuple[Any, ...]:
    """One that was started anew counts from 0."""
    told = entity.metadata
    return entity.kind, entity.name, *(str(told.get(field)) for field in ("host", "pid", "started"))


def _is_told(told: dict[str, Any]) -> bool:
    return all(isinstance(told.get(field), int | float) for field in ("seconds", *TOLD))
