"""Waiting for claims that were decided by the rules of before, where a database lets them be stored after these have
changed: a statement, or a transaction, that met no gate could lock none."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from jobboard.exceptions import JobFailure

if TYPE_CHECKING:
    from jobboard.backends.sql.store import SQLStore

PAGE = 500


def settle(store: SQLStore, seconds: float) -> None:
    """Return when these are stored, or never will be.

    :raises JobFailure: others have not ended their transactions in this time.
    """
    if store.product.exclusive:
        return
    turns = _turns(seconds)
    if store.product.returning:
        _transactions(store, turns)
    else:
        _jobs(store, turns)


def _transactions(store: SQLStore, turns: Iterator[None]) -> None:
    """PostgreSQL locks tables before a statement sees any row: an answer is kept by each claim, and side records are
    locked by each that reads the gate for itself. Nobody needs a right to see such locks."""
    left: set[str] | None = None
    while left is None or left:
        if left is not None:
            next(turns)
        found = {row[0] for row in store.query(store.statements.under_way)}
        left = found if left is None else left & found


def _jobs(store: SQLStore, turns: Iterator[None]) -> None:
    """Elsewhere a claim has locked its job before it looks at the gate for the last time."""
    st, after = store.statements, 0
    while True:
        ids = [row[0] for row in store.query(st.takeable, p_after=after, p_limit=PAGE)]
        if not ids:
            return
        after = ids[-1]
        if not store.product.skip_locked:
            store.query(st.lock_ids, p_ids=ids)
            continue
        while left := _held(store, ids):
            next(turns)
            ids = [row[0] for row in store.query(st.takeable_still, p_ids=left)]
            if not ids:
                break


def _held(store: SQLStore, ids: list[int]) -> list[int]:
    """Those that another's transaction holds."""
    free = {row[0] for row in store.query(store.statements.lock_ids_free, p_ids=ids)}
    return [each for each in ids if each not in free]


def _turns(seconds: float) -> Iterator[None]:
    until, pause = time.monotonic() + seconds, 0.001
    while time.monotonic() < until:
        yield
        time.sleep(pause)
        pause = min(2 * pause, 0.1)
    raise JobFailure(
        f"transactions that had begun before this limit have not ended within {seconds:g} s, so it may not count "
        "their claims: set it again when they have"
    )
