"""Answers: what the latest call of each slot did, stored in the same commit, for the repetition of the call.

A handle numbers its slots, and each slot numbers its calls: see :class:`~jobboard.primitives.Nonce`. A slot makes one
call at a time. A call stores its answer only where the slot holds an older call's. So a first try that arrives late is
refused once its repetition has stored an answer.
"""

from __future__ import annotations

from typing import NamedTuple

import msgpack

from jobboard.engine.store import Side
from jobboard.primitives import Nonce
from jobboard.states import Status

HOUR = 3600 * 1_000_000

KEPT = HOUR
"""For how many µs an answer is kept."""


class Deed(NamedTuple):
    """The outcome of a call for one job. token: of a claim; 0 for every other deed."""

    status: Status
    uuid: str
    token: int = 0


class Answer(NamedTuple):
    """The number of a call, the try that was answered, and what the call did: the value of the slot's side record."""

    call: int
    attempt: int
    done: tuple[Deed, ...]

    def packed(self) -> bytes:
        """Return the value of the side record: msgpack of [call, attempt, [[status, uuid, token], ...]]."""
        packed: bytes = msgpack.packb((self.call, self.attempt, self.done))
        return packed

    @classmethod
    def of(cls, side: Side) -> Answer | None:
        """Return the answer that a slot holds; None if it holds none."""
        if side.value is None:
            return None
        call, attempt, done = msgpack.unpackb(side.value)
        return cls(call, attempt, tuple(Deed(Status(status), uuid, token) for status, uuid, token in done))


def slot_of(nonce: Nonce) -> tuple[str, str]:
    """Return the kind and the key of the slot's side record."""
    return "answer", f"{nonce.handle}:{nonce.slot}"
