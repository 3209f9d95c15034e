"""Undo steps of a session: changes to objects that a rollback takes back, and that SQLAlchemy does not know of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session, SessionTransaction
from sqlalchemy.orm.attributes import set_committed_value
from sqlalchemy.orm.util import object_state

_UNDO = "jobboard.undo"
"""The key of a session's undo steps in its ``info``."""


def on_rollback(session: Session, undo: Callable[[], object]) -> None:
    """Call ``undo`` if the session's transaction or savepoint is rolled back. The last step is undone first."""
    within = session.get_nested_transaction() or session.get_transaction()
    session.info.setdefault(_UNDO, []).append((within, undo))


def remember(session: Session, rows: Sequence[Any], key: str, value: object) -> None:
    """Keep a value with objects, where no expiry removes it. A rollback restores the earlier value."""
    infos = [object_state(row).info for row in rows]
    on_rollback(session, partial(_restore, key, [(info, info.get(key)) for info in infos]))
    for info in infos:
        info[key] = value


def _restore(key: str, before: Iterable[tuple[dict[str, Any], object]]) -> None:
    for info, value in before:
        info[key] = value


def show(session: Session, rows: Sequence[Any], values: Mapping[str, Any]) -> None:
    """Set attributes of objects to the values that were written to their rows without the session."""
    for row in rows:
        for name, value in values.items():
            set_committed_value(row, name, value)
    reload_on_rollback(session, rows, *values)


def reload_on_rollback(session: Session, rows: Sequence[Any], *names: str) -> None:
    """Load attributes again after a rollback, also one to a savepoint. A session would expire only its own writes."""
    on_rollback(session, partial(_expire, session, rows, names))


def _expire(session: Session, rows: Iterable[Any], names: tuple[str, ...]) -> None:
    for row in rows:
        state = object_state(row)
        if state.session is session and state.persistent:
            session.expire(row, names)


@sa.event.listens_for(Session, "after_commit")
def _committed(session: Session) -> None:
    if not session.in_nested_transaction():
        session.info.pop(_UNDO, None)


@sa.event.listens_for(Session, "after_soft_rollback")
def _rolled_back(session: Session, ended: SessionTransaction) -> None:
    steps = session.info.get(_UNDO, [])
    while steps and _is_part(steps[-1][0], ended):
        _, undo = steps.pop()
        undo()


@sa.event.listens_for(Session, "after_transaction_end")
def _closed(session: Session, ended: SessionTransaction) -> None:
    # No other event tells of a transaction that is closed without a commit.
    if ended.parent is None:
        _rolled_back(session, ended)


def _is_part(within: SessionTransaction | None, whole: SessionTransaction) -> bool:
    """Return whether a transaction is ``whole``, or a savepoint within ``whole``."""
    while within is not None and within is not whole:
        within = within.parent
    return within is not None
