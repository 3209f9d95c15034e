"""What a board is told about all of its claims, in one side record: the gate. It is absent as long as there is nothing
to tell, and the commit of a claim compares that it is as it was when the claim was decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, replace
from typing import NamedTuple

import msgpack

from jobboard.engine.store import Side
from jobboard.exceptions import JobFailure
from jobboard.primitives import Limit, Paused

GATE = ("gate", "rules")
"""Kind and key of that side record."""

MOST_PAUSED = 1000
"""How many names can be paused by themselves."""

MOST_LIMITS = 1000
"""How many limits can be set; each may have any number of groups."""


def damaged_gate(reason: object) -> JobFailure:
    return JobFailure(
        f"what is paused and limited on this board can't be read, and without it nothing is claimed: the side record "
        f"{GATE[0]}/{GATE[1]} is damaged ({reason}). Delete it in the store, and set these anew"
    )


def damaged_value(kind: str) -> bytes | None:
    """What a store answers as the value of a side record that it can't take apart: as if there were none. But there is
    a gate, past which nothing is claimed."""
    return b"" if kind == GATE[0] else None


class SetLimit(NamedTuple):
    """A limit, and since which setting of it each claim that begins has entered its scopes."""

    limit: Limit
    setting: str

    @property
    def place(self) -> tuple[str, str]:
        return self.limit.name, self.limit.per


class Rules(NamedTuple):
    """What the gate tells."""

    paused: Paused = Paused()
    limits: tuple[SetLimit, ...] = ()

    @classmethod
    def of(cls, gate: Side) -> Rules:
        """:raises JobFailure: the gate is damaged."""
        if gate.value is None:
            return _NONE
        try:
            everything, names, limits = msgpack.unpackb(gate.value, use_list=False)
            return cls(Paused(everything, names), tuple(SetLimit(Limit(*limit), setting) for limit, setting in limits))
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise damaged_gate(error) from error

    def packed(self) -> bytes | None:
        """The value of the gate; None: it goes."""
        if self == _NONE:
            return None
        limits = [(astuple(limit), setting) for limit, setting in self.limits]
        packed: bytes = msgpack.packb((self.paused.everything, self.paused.names, limits))
        return packed

    # Pauses

    def pause(self, names: Sequence[str] | None) -> Rules:
        """:raises JobFailure: these are too many."""
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

    def found(self, name: str, per: str) -> SetLimit | None:
        return next((bound for bound in self.limits if bound.place == (name, per)), None)

    def of_scope(self, key: str) -> Limit | None:
        """What bounds the claims in the scope of this key."""
        name, grouped, _ = key.partition("\n")
        bound = self.found(name, "group" if grouped else "name")
        return None if bound is None else bound.limit

    def limit(self, limit: Limit, setting: str) -> Rules:
        """Set a limit. It binds at once where the claims that stand are counted already, or need not be. Where another
        counts them still, it goes on from that one's setting, and binds as soon as either has counted.

        :raises JobFailure: there are too many."""
        there = self.found(limit.name, limit.per)
        others = [bound for bound in self.limits if bound is not there]
        if len(others) >= MOST_LIMITS:
            raise JobFailure(f"there are {MOST_LIMITS} limits, which is the most; per='group' is one for all groups")
        counted = limit.concurrency is None
        if not counted and there is not None and there.limit.concurrency is not None:
            counted, setting = there.limit.binding, there.setting
        made = [*others, SetLimit(replace(limit, binding=counted), setting)]
        return self._replace(limits=tuple(sorted(made, key=lambda bound: bound.place)))

    def counted(self, setting: str) -> Rules:
        """The claims that stood at this setting are counted: the limit that goes on from it binds."""
        return self._replace(
            limits=tuple(
                SetLimit(replace(limit, binding=True), each) if each == setting else SetLimit(limit, each)
                for limit, each in self.limits
            )
        )

    def unlimit(self, name: str, per: str | None) -> Rules:
        left = (bound for bound in self.limits if bound.limit.name != name or per not in (None, bound.limit.per))
        return self._replace(limits=tuple(left))


_NONE = Rules()
