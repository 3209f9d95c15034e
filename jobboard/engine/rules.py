"""The gate: one side record with the rules of all claims of a board, its pauses and limits.

A board without rules has no gate. The commit of a claim requires that the gate has not changed since the decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, replace
from typing import NamedTuple

import msgpack

from jobboard.engine.store import GATE, Side
from jobboard.exceptions import JobFailure
from jobboard.primitives import Limit, Paused

MOST_PAUSED = 1000
"""The number of names that can be paused at a time."""

MOST_LIMITS = 1000
"""The number of limits of a board. Each limit may have any number of groups."""


def damaged_gate(reason: object) -> JobFailure:
    return JobFailure(
        f"the pauses and limits of this board can't be read, and no job is claimed without them: the side record "
        f"{GATE[0]}/{GATE[1]} is damaged ({reason}). Delete the record in the store, and set pauses and limits again"
    )


def damaged_value(kind: str) -> bytes | None:
    """Return the value that a store gives for a side record that it can't decode: None, as for an absent record.

    A damaged gate has a value, so that no job is claimed past it."""
    return b"" if kind == GATE[0] else None


class Rules(NamedTuple):
    """The value of the gate."""

    paused: Paused = Paused()
    limits: tuple[Limit, ...] = ()

    @classmethod
    def of(cls, gate: Side) -> Rules:
        """Return the rules of a gate.

        :raises JobFailure: the gate is damaged.
        """
        if gate.value is None:
            return _NONE
        try:
            everything, names, limits = msgpack.unpackb(gate.value, use_list=False)
            return cls(Paused(everything, names), tuple(Limit(*limit) for limit in limits))
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise damaged_gate(error) from error

    def packed(self) -> bytes | None:
        """Return the value of the gate; None without rules."""
        if self == _NONE:
            return None
        packed: bytes = msgpack.packb((self.paused.everything, self.paused.names, list(map(astuple, self.limits))))
        return packed

    # Pauses

    def pause(self, names: Sequence[str] | None) -> Rules:
        """Return the rules with these names paused, or everything.

        :raises JobFailure: too many names would be paused.
        """
        if names is None:
            return self._replace(paused=replace(self.paused, everything=True))
        paused = {*self.paused.names, *names}
        if len(paused) > MOST_PAUSED:
            raise JobFailure(
                f"{len(paused)} names would be paused, and {MOST_PAUSED} can be: pause() without names pauses all jobs"
            )
        return self._replace(paused=replace(self.paused, names=tuple(sorted(paused))))

    def resume(self, names: Sequence[str] | None) -> Rules:
        if names is None:
            return self._replace(paused=Paused())
        left = sorted({*self.paused.names} - {*names})
        return self._replace(paused=replace(self.paused, names=tuple(left)))

    # Limits

    def found(self, name: str, per: str) -> Limit | None:
        return next((limit for limit in self.limits if (limit.name, limit.per) == (name, per)), None)

    def of_scope(self, key: str) -> Limit | None:
        """Return the limit on the claims in the scope of this key."""
        name, grouped, _ = key.partition("\n")
        return self.found(name, "group" if grouped else "name")

    def limit(self, limit: Limit) -> Rules:
        """Return the rules with a limit, in place of the limit of its name and ``per``.

        :raises JobFailure: there are too many limits.
        """
        there = self.found(limit.name, limit.per)
        others = [each for each in self.limits if each is not there]
        if len(others) >= MOST_LIMITS:
            raise JobFailure(
                f"the board has {MOST_LIMITS} limits already; a limit per='group' covers all groups of a name"
            )
        return self._replace(limits=tuple(sorted([*others, limit], key=lambda each: (each.name, each.per))))

    def unlimit(self, name: str, per: str | None) -> Rules:
        left = (limit for limit in self.limits if limit.name != name or per not in (None, limit.per))
        return self._replace(limits=tuple(left))


_NONE = Rules()
