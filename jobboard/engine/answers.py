"""Answers: the outcome of the latest call of each slot, stored by the commit of the call for its repetitions.

A handle numbers its slots, and each slot numbers its calls: see :class:`~jobboard.primitives.Nonce`. A slot makes one
call at a time. A call stores its answer only in place of an earlier call's answer. A first try that arrives late is
therefore refused once its repetition has stored an answer.
"""

from __future__ import annotations

from typing import NamedTuple

import msgpack

from jobboard.engine.store import Side
from jobboard.primitives import Nonce
from jobboard.states import Status
from jobboard.units import HOUR

KEPT = HOUR
"""The µs for which an answer is kept."""


class Deed(NamedTuple):
    """The outcome of a call for one job, as the stored answer of the call lists it.

    token: the token of a claim; 0 otherwise."""

    status: Status
    uuid: str
    token: int = 0


class Answer(NamedTuple):
    """The value of a slot's side record: the number of a call, its answered try, and its outcomes."""

    call: int
    attempt: int
    deeds: tuple[Deed, ...]

    def packed(self) -> bytes:
        """Return the value of the side record: msgpack of [call, attempt, [[status, uuid, token], ...]]."""
        packed: bytes = msgpack.packb((self.call, self.attempt, self.deeds))
        return packed

    @classmethod
    def of(cls, side: Side) -> Answer | None:
        """Return the answer that a slot holds, or None."""
        if side.value is None:
            return None
        call, attempt, deeds = msgpack.unpackb(side.value)
        return cls(call, attempt, tuple(Deed(Status(status), uuid, token) for status, uuid, token in deeds))


def slot_of(nonce: Nonce) -> tuple[str, str]:
    """Return the kind and the key of the slot's side record."""
    return "answer", f"{nonce.handle}:{nonce.slot}"
