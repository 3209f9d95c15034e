"""What follows when a transaction of the caller's has ended, in which verbs took part."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable

import sqlalchemy as sa
from sqlalchemy.engine import Connection

LOG = logging.getLogger(__name__)


class _Pending:
    """What waits for the end of one connection's transaction."""

    def __init__(self, connection: Connection) -> None:
        self._calls: list[tuple[int, Callable[[], None], Callable[[], None]]] = []
        # They stay for the connection's life: a listener can't be removed while it is called.
        sa.event.listen(connection, "commit", self._commit)
        sa.event.listen(connection, "rollback", self._rollback)
        sa.event.listen(connection, "rollback_savepoint", self._rollback_savepoint)
        # SQLAlchemy tells of it before, too. What is prepared is decided by then; a claim that ends by what is not, and
        # then fails, comes back when its lease has lapsed.
        sa.event.listen(connection, "commit_twophase", lambda connection, xid, is_prepared: self._committed())
        sa.event.listen(connection, "rollback_twophase", lambda connection, xid, is_prepared: self._undo(0))

    def add(self, connection: Connection, done: Callable[[], None], undone: Callable[[], None]) -> None:
        nested = connection.get_nested_transaction()
        depth = _number(getattr(nested, "_savepoint", "")) if nested is not None else 0
        self._calls.append((depth, done, undone))

    def _commit(self, connection: Connection) -> None:
        if not self._calls:
            return
        # SQLAlchemy tells of a commit before it commits. Nothing may be announced that could still fail, so it is done
        # here; what SQLAlchemy then commits is empty.
        dialect = connection.dialect
        try:
            dialect.do_commit(connection.connection)
        except dialect.loaded_dbapi.Error as error:
            # Where it stands committed all the same, the heartbeat finds that out. No rollback is told of after this.
            self._undo(0)
            of_driver = dialect.loaded_dbapi.Error
            raise sa.exc.DBAPIError.instance("COMMIT", None, error, of_driver, dialect=dialect) from error
        self._committed()

    def _committed(self) -> None:
        calls, self._calls = self._calls, []
        for _, done, _ in calls:
            try:
                done()
            except Exception:
                # What is committed stays committed, and the caller's commit has not failed.
                LOG.exception("after the commit of a caller's transaction")

    def _rollback(self, connection: Connection) -> None:
        self._undo(0)

    def _rollback_savepoint(self, connection: Connection, name: str, context: None) -> None:
        # Savepoints are numbered as they begin: those that began before the verb take it along, later ones don't.
        self._undo(_number(name))

    def _undo(self, number: int) -> None:
        undone = [call for call in self._calls if call[0] >= number]
        self._calls = [call for call in self._calls if call[0] < number]
        for _, _, call in undone:
            call()


def _number(savepoint: str) -> int:
    digits = savepoint.rpartition("_")[2]
    return int(digits) if digits.isdigit() else 0


_pending: weakref.WeakKeyDictionary[Connection, _Pending] = weakref.WeakKeyDictionary()


def after_commit(connection: Connection, done: Callable[[], None], undone: Callable[[], None]) -> None:
    """Call ``done`` after the connection's transaction was committed, ``undone`` after it was rolled back."""
    pending = _pending.get(connection)
    if pending is None:
        pending = _pending[connection] = _Pending(connection)
    pending.add(connection, done, undone)
