"""What a board is told about all of its claims, in one side record: the gate. It is absent as long as there is nothing
to tell, and the commit of a claim compares that it is as it was when the claim was decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import msgpack

from jobboard.engine.store import Side
from jobboard.exceptions import JobFailure
from jobboard.primitives import Paused

GATE = ("gate", "rules")
"""Kind and key of that side record."""

MOST_PAUSED = 1000
"""How many names can be paused by themselves."""


class Rules(NamedTuple):
    """What the gate tells."""

    paused: Paused = Paused()

    @classmethod
    def of(cls, gate: Side) -> Rules:
        if gate.value is None:
            return _NONE
        everything, names = msgpack.unpackb(gate.value)
        return cls(Paused(everything, tuple(names)))

    def packed(self) -> bytes | None:
        """The value of the gate; None: it goes."""
        if self == _NONE:
            return None
        packed: bytes = msgpack.packb((self.paused.everything, self.paused.names))
        return packed

    def pause(self, names: Sequence[str] | None) -> Rules:
        """:raises JobFailure: these are too many."""
        if names is None:
            return Rules(replace(self.paused, everything=True))
        paused = {*self.paused.names, *names}
        if len(paused) > MOST_PAUSED:
            raise JobFailure(
                f"{len(paused)} names would be paused, and {MOST_PAUSED} can be: pause() without names pauses all jobs"
            )
        return Rules(replace(self.paused, names=tuple(sorted(paused))))

    def resume(self, names: Sequence[str] | None) -> Rules:
        if names is None:
            return Rules()
        left = sorted({*self.paused.names} - {*names})
        return Rules(replace(self.paused, names=tuple(left)))


_NONE = Rules()
