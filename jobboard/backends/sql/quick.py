"""Shortcuts of first tries: whole mutations in as few requests as a database allows, where one statement can't do it.

Each keeps its answer, and is done as a whole or not at all. What it can't do, and a call that its own repetition has
overtaken, is refused by :class:`~jobboard.sql.links.ConstraintViolated`, and nothing has been done: the call then goes
the general way, as its own repetition.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

from jobboard.backends.sql.answers import ALL, JOINT
from jobboard.backends.sql.store import SQLStore
from jobboard.primitives import Draft, Finish, Nonce
from jobboard.states import Record


class Quick(abc.ABC):
    """What one database does best."""

    def __init__(self, store: SQLStore) -> None:
        self.store = store
        self.statements = store.statements
        self.jobs = store.statements.jobs

    @abc.abstractmethod
    def insert(self, drafts: Sequence[Draft], nonce: Nonce) -> list[Record]:
        """Store drafts that nothing can be in the way of."""

    @abc.abstractmethod
    def take(
        self, claim: dict[str, Any], params: dict[str, Any], named: bool, swept: bool, nonce: Nonce
    ) -> list[Record]:
        """Claim the first ready jobs; none, too, while something is overdue, unless a sweep has just been.

        :param claim: who, keeper and ttl, as parameters.
        :param params: limit, readable and, if ``named``, the name.
        """

    @abc.abstractmethod
    def consume(self, acts: Sequence[Finish], nonce: Nonce) -> None:
        """End claims of one token: all of them."""


def quick_for(store: SQLStore) -> Quick | None:
    """The shortcuts of a database; None: it has none, or :class:`~.single.Single` has them."""
    # Each is loaded where it is used.
    product = store.product
    if product.compound:
        from jobboard.backends.sql.mariadb import QuickMariaDB

        return QuickMariaDB(store)
    if product.dialect.driver == "pysqlite" and product.dialect.update_returning:
        from jobboard.backends.sql.sqlite import QuickSQLite

        return QuickSQLite(store)
    return None


def answered(nonce: Nonce, answer: str) -> dict[str, Any]:
    """The parameters of the statement that moves a slot on."""
    return {"p_handle": nonce.handle, "p_slot": nonce.slot, "p_call": nonce.call, "p_answer": answer}


def inserted(drafts: Sequence[Draft]) -> str:
    # A place would have to be known before it is given, and no repetition asks for it.
    return ",".join([f"{draft.uuid} 0" for draft in drafts])


def taken(records: Sequence[Record]) -> str:
    together: dict[int, list[str]] = {}
    for record in records:
        together.setdefault(record.token, []).append(str(record.sequence))
    return ",".join([f"{JOINT.join(ids)} {token}" for token, ids in together.items()])


def consumed(acts: Sequence[Finish]) -> str:
    return f"{ALL} {len(acts)}"
