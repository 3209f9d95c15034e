"""What is taken back with a transaction of a session's, in objects that no rollback of SQLAlchemy's knows of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session, SessionTransaction
from sqlalchemy.orm.attributes import set_committed_value
from sqlalchemy.orm.util import object_state

_UNDO = "jobboard.undo"
"""Where a session keeps what to do if its transaction is rolled back."""


def on_rollback(session: Session, undo: Callable[[], object]) -> None:
    """Call this if the transaction or the savepoint that the session is in is rolled back, what came last first."""
    within = session.get_nested_transaction() or session.get_transaction()
    session.info.setdefault(_UNDO, []).append((within, undo))


def remember(session: Session, rows: Sequence[Any], key: str, value: object) -> None:
    """Keep this with objects, where no expiry empties it; once rolled back, what was there before."""
    infos = [object_state(row).info for row in rows]
    on_rollback(session, partial(_put_back, key, [(info, info.get(key)) for info in infos]))
    for info in infos:
        info[key] = value


def _put_back(key: str, before: Iterable[tuple[dict[str, Any], object]]) -> None:
    for info, value in before:
        info[key] = value


def show(session: Session, rows: Sequence[Any], values: Mapping[str, Any]) -> None:
    """Have objects show what was written to their rows, which the session has had no part in."""
    for row in rows:
        for name, value in values.items():
            set_committed_value(row, name, value)
    reload_on_rollback(session, rows, *values)


def reload_on_rollback(session: Session, rows: Sequence[Any], *names: str) -> None:
    """After a rollback to a savepoint, too, ask for what the rows have. Of that the session expires only what itself
    has written."""
    on_rollback(session, partial(_expire, session, rows, names))


def _expire(session: Session, rows: Iterable[Any], names: tuple[str, ...]) -> None:
    for row in rows:
        state = object_state(row)
        if state.session is session and state.persistent:
            session.expire(row, names)


def hand_over(session: Session) -> list[Callable[[], object]]:
    """Leave it to somebody else, who is told how the transaction ends: what to call if it is rolled back, in order."""
    return [undo for _, undo in reversed(session.info.pop(_UNDO, ()))]


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
    # Of one that is closed without a commit nothing else tells.
    if ended.parent is None:
        _rolled_back(session, ended)


def _is_part(within: SessionTransaction | None, whole: SessionTransaction) -> bool:
    """Whether a savepoint's transaction is the whole one, or was begun within it."""
    while within is not None and within is not whole:
        within = within.parent
    return within is not None
