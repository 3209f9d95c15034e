"""The gate: one side record with the rules of all claims of a board, its pauses and limits.

A board without rules has no gate. The commit of a claim requires that the gate has not changed since the decision."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace

import msgpack

from jobboard.engine.store import GATE, NO_GATE, LimitScope, Side
from jobboard.exceptions import JobFailure
from jobboard.primitives import Finish, Limit, Paused
from jobboard.states import Record

MOST_PAUSED = 1000
"""The maximum number of paused names."""

MOST_LIMITS = 1000
"""The maximum number of limits. Each limit may have any number of groups."""

Grouped = Record | Finish
"""A job with its uuid, name and group."""


def damaged_gate(reason: object) -> JobFailure:
    return JobFailure(
        f"the pauses and limits of this board can't be read, and no job is claimed without them: the side record "
        f"{GATE[0]}/{GATE[1]} is damaged ({reason}), or of a newer version of this library. Upgrade this one, or "
        "delete the record in the store, and set pauses and limits again"
    )


def damaged_value(kind: str) -> bytes | None:
    """Return the value that a store gives for a side record that it can't decode: None, as for an absent record.

    A damaged gate has a value, so that no job is claimed past it."""
    return b"" if kind == GATE[0] else None


@dataclass(frozen=True)
class Rules:
    """The rules of one gate: pauses and limits. They never change, so that a thread decides by one gate throughout."""

    paused: Paused = field(default_factory=Paused)
    limits: tuple[Limit, ...] = ()
    gate: Side = field(default=NO_GATE, compare=False)

    @classmethod
    def of(cls, gate: Side) -> Rules:
        """Return the rules of a gate.

        :raises JobFailure: the gate is damaged.
        """
        if gate.value is None:
            return cls(gate=gate)
        try:
            everything, names, limits = msgpack.unpackb(gate.value, use_list=False)
            return cls(Paused(everything, names), tuple(Limit(*limit) for limit in limits), gate)
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise damaged_gate(error) from error

    def packed(self) -> bytes | None:
        """Return the value of the gate; None without rules."""
        if not (self.paused or self.limits):
            return None
        packed: bytes = msgpack.packb((self.paused.everything, self.paused.names, list(map(astuple, self.limits))))
        return packed

    # Pauses

    def pause(self, names: Sequence[str] | None) -> Rules:
        """Return the rules with these names paused, or everything.

        :raises JobFailure: too many names would be paused.
        """
        if names is None:
            return replace(self, paused=replace(self.paused, everything=True))
        paused = {*self.paused.names, *names}
        if len(paused) > MOST_PAUSED:
            raise JobFailure(
                f"{len(paused)} names would be paused, and {MOST_PAUSED} can be: pause() without names pauses all jobs"
            )
        return replace(self, paused=replace(self.paused, names=tuple(sorted(paused))))

    def resume(self, names: Sequence[str] | None) -> Rules:
        if names is None:
            return replace(self, paused=Paused())
        left = sorted({*self.paused.names} - {*names})
        return replace(self, paused=replace(self.paused, names=tuple(left)))

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
        return replace(self, limits=tuple(sorted([*others, limit], key=lambda each: (each.name, each.per))))

    def unlimit(self, name: str, per: str | None) -> Rules:
        left = (limit for limit in self.limits if limit.name != name or per not in (None, limit.per))
        return replace(self, limits=tuple(left))

    # Scopes of limits

    @functools.cached_property
    def _limits_by_name(self) -> Mapping[str, Sequence[Limit]]:
        found: dict[str, list[Limit]] = {}
        for limit in self.limits:
            found.setdefault(limit.name, []).append(limit)
        return found

    def bind(self, names: Sequence[str] | None) -> bool:
        """Return whether jobs of these names, or (None) of any name, may have scopes."""
        return bool(self.limits) if names is None else any(name in self._limits_by_name for name in names)

    def scopes(self, name: str, group: str | None) -> list[LimitScope]:
        """Return the scopes that a claim of a job of this name and group has to enter."""
        found = []
        for limit in self._limits_by_name.get(name, ()):
            if limit.per == "name":
                found.append(LimitScope(name, name, None, limit))
            elif group is not None:
                # A line feed separates them, as neither names nor groups have control characters.
                found.append(LimitScope(f"{name}\n{group}", name, group, limit))
        return found

    def slots_of(self, jobs: Iterable[Grouped]) -> dict[str, list[LimitScope]]:
        """Return the scopes in which claims of these jobs have slots, by the uuids of the jobs."""
        if not self.limits:
            return {}
        scoped = ((job.uuid, self.scopes(job.name, job.group)) for job in jobs)
        held = ((uuid, [scope for scope in scopes if scope.limit.concurrency]) for uuid, scopes in scoped)
        return {uuid: scopes for uuid, scopes in held if scopes}

    def claimable(
        self, names: Sequence[str] | None, full: Sequence[LimitScope] = ()
    ) -> tuple[Sequence[str] | None, Sequence[str], Sequence[LimitScope]] | None:
        """Return the jobs of these names that may be claimed, without those of full scopes, as arguments of a look:
        ``names``, ``without`` and ``full``. Return None if no job may be claimed."""
        closed = [scope.name for scope in full if scope.group is None]
        left = None if names is None else [name for name in names if name not in self.paused and name not in closed]
        without = () if names is not None else (*self.paused.names, *closed)
        if self.paused.everything or left == []:
            return None
        return left, without, [scope for scope in full if scope.group is not None]
