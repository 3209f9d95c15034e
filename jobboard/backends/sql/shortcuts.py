"""What a first try asks of its database before it goes the general way: whole mutations in very few requests.

A shortcut is done as a whole and keeps its answer, or nothing is done. There are three outcomes:

- It returns what it did.
- None: this database has no shortcut for it. The call goes the general way.
- :class:`~jobboard.sql.links.ConstraintViolated`: something is in the way, or the call's own repetition has overtaken
  it. The call goes the general way as its own repetition, which looks under a lock for what was done.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from jobboard.backends.sql.answers import Items, whole
from jobboard.backends.sql.looking import Glance, TakeRequest
from jobboard.backends.sql.outcomes import NOTHING, left_by
from jobboard.backends.sql.store import SQLStore
from jobboard.engine import Limits, LimitScope
from jobboard.primitives import Draft, Finish, Nonce
from jobboard.sql.links import ConstraintViolated
from jobboard.sql.prepared import Runner
from jobboard.states import Record

T = TypeVar("T")

Scopes = Mapping[str, Sequence[LimitScope]]
"""The scopes in which claims have slots, by the uuids of their jobs."""


class Ended(NamedTuple):
    """``unlisted``: the jobs whose scopes are yet to be looked at; ``gate``: its version, where a waiter has to be told
    of a slot that comes free, else the one by which the scopes were told."""

    unlisted: Collection[str]
    gate: int


class Shortcuts:
    """Those of any database: claims of one token end by one statement within a transaction, and that is all."""

    def __init__(self, store: SQLStore) -> None:
        self.store = store
        self.statements = store.statements
        self.jobs = store.statements.jobs

    def insert(self, drafts: Sequence[Draft], nonce: Nonce) -> list[Record] | None:
        """Store drafts that nothing can be in the way of."""
        return None

    def claim(self, uuid: str, lease: dict[str, Any], nonce: Nonce) -> Record | None:
        """Claim this job; None, too, if it can't be claimed."""
        return None

    def take(self, request: TakeRequest, nonce: Nonce) -> Glance | None:
        """Claim the first ready jobs; none while something is overdue, unless a sweep has just been."""
        return None

    def overdue(self, request: TakeRequest, since: int) -> list[int] | None:
        """The ids of all rows that are overdue, the first at ``since``; None: a sweep has to look for itself."""
        return None

    def enter(self, request: TakeRequest, limits: Limits, nonce: Nonce) -> Glance | None:
        """Claim the first ready jobs by these limits; None, too, where it can't tell what these allow."""
        return None

    def end(self, acts: Sequence[Finish], held: Scopes, gate: int, nonce: Nonce) -> Ended | None:
        """End these claims, all of them, and leave their outcomes.

        :param gate: the version of the gate by which they ``held`` slots."""
        if not of_one_token(acts) or left_by(acts) is not NOTHING:
            return None
        params = {**self.store.base, "p_uuids": [act.uuid for act in acts], "p_token": acts[0].holder.token}

        def work(run: Runner, _: Items | None) -> tuple[bool, Items]:
            done = run.count(self.statements.consume, params)
            # Without an answer the transaction is taken back.
            return (True, [whole(len(acts))]) if done == len(acts) else (False, [])

        return Ended(held, gate) if self.store.transact(nonce, work) else None


def shortcuts_for(store: SQLStore) -> Shortcuts:
    # Each is loaded where it is used.
    product = store.product
    if product.returning:
        from jobboard.backends.sql.postgresql.shortcuts import PostgreSQLShortcuts

        return PostgreSQLShortcuts(store)
    if product.compound:
        from jobboard.backends.sql.mariadb.shortcuts import MariaDBShortcuts

        return MariaDBShortcuts(store)
    if product.dialect.driver == "pysqlite" and product.dialect.update_returning:
        from jobboard.backends.sql.sqlite.shortcuts import SQLiteShortcuts

        return SQLiteShortcuts(store)
    return Shortcuts(store)


def tried(nonce: Nonce, shortcut: Callable[..., T], *args: Any) -> tuple[T | None, Nonce]:
    """What a first try did by a shortcut; and the nonce with which the general way does what was not done."""
    if nonce.attempt > 1:
        return None, nonce
    try:
        return shortcut(*args, nonce), nonce
    except ConstraintViolated:
        return None, nonce._replace(attempt=2)


OWN = ("uuid", "posting")
"""What each draft has of its own."""


def alike(drafts: Sequence[Draft]) -> bool:
    """Whether these are ready at once, and have all but :data:`OWN` in common: then that goes to the server once."""
    if drafts[0].due is not None or drafts[0].delay is not None:
        return False
    columns = () if len(drafts) == 1 else zip(Draft._fields, zip(*drafts, strict=True), strict=True)
    return all(values.count(values[0]) == len(values) for name, values in columns if name not in OWN)


def of_one_token(acts: Sequence[Finish]) -> bool:
    """Whether these end claims that one take has made, so that one comparison fences them all."""
    return len({act.holder.token for act in acts}) == 1


def nothing_ready(store: SQLStore) -> Glance:
    """What a look found that found no job: when to look again."""
    [(now, event, gate)] = store.query(store.statements.event)
    left = None if event is None else event - now
    return Glance([], left is not None and left <= 0, left, gate=gate, since=event or 0)
