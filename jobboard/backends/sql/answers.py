"""What a call did, as it is kept for the call's repetition: a short text, which one statement can build on the server.

It is a list of items with a comma between, each of a uuid, a number and, unless it went well, a status.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from jobboard.engine import Answer, Deed
from jobboard.primitives import Nonce
from jobboard.states import OK, Record, Status

TRY = "try"
"""In place of a uuid: which try of the call it was that answered, if not the first."""

ALL = "*"
"""In place of a uuid: all of the call went well, so many acts or posts. What is short is written within its page."""

JOINT = "+"
"""Between the ids of the rows that a take gave the same token, which stand in place of a uuid."""


class Item(NamedTuple):
    """One item: ``number`` is a token, a job's place, or how many."""

    uuid: str
    number: int
    status: str = ""


Items = Sequence[Item]

DONE: Items = [Item("", 0)]
"""Something was done, and no repetition will ask for it."""


def whole(count: int) -> Item:
    """All of a call that posts or ends so many jobs went well."""
    return Item(ALL, count)


def taken(records: Sequence[Record]) -> Items:
    """These were claimed."""
    together: dict[int, list[str]] = {}
    for record in records:
        together.setdefault(record.token, []).append(str(record.sequence))
    return [Item(JOINT.join(ids), token) for token, ids in together.items()]


def text_of(items: Items) -> str:
    return ",".join([f"{uuid} {number} {status}" if status else f"{uuid} {number}" for uuid, number, status in items])


def items_in(text: str) -> list[Item]:
    fields = (item.split(" ") for item in text.split(",")) if text else ()
    return [Item(uuid, int(number), *status) for uuid, number, *status in fields]


def items_of(deeds: Sequence[Deed], attempt: int) -> list[Item]:
    items = [Item(uuid, token, "" if status == OK else status.value) for status, uuid, token in deeds]
    return items if attempt == 1 else [*items, Item(TRY, attempt)]


def answer_in(items: Items, call: int) -> Answer:
    attempt = 1
    done: list[Deed] = []
    for uuid, number, status in items:
        if uuid == TRY:
            attempt = number
        elif uuid == ALL:
            done += [Deed(OK, "")] * number
        else:
            done.append(Deed(Status(status) if status else OK, uuid, number))
    return Answer(call, attempt, tuple(done))


def slot_of(nonce: Nonce) -> dict[str, Any]:
    """A call's slot and number, as parameters."""
    return {"p_handle": nonce.handle, "p_slot": nonce.slot, "p_call": nonce.call}


def answered(nonce: Nonce, items: Items) -> dict[str, Any]:
    """What a call keeps, as parameters."""
    return {**slot_of(nonce), "p_answer": text_of(items)}
