"""What can be claimed where limits are set: the engine then decides about each job in a transaction, and this shows it
the first ones that may be had. They are locked in that transaction, so that no other looks at the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from jobboard.backends.sql.looking import SOON, Candidates, TakeRequest
from jobboard.backends.sql.rows import record_of
from jobboard.backends.sql.statements import Statements
from jobboard.backends.sql.writing import set_aside_stateless
from jobboard.engine import GATE, Lane, Look, Side, Stored
from jobboard.sql.prepared import Row

if TYPE_CHECKING:
    from jobboard.backends.sql.store import SQLStore


class Ahead:
    """:param writes: whether what is overdue can be written down."""

    def __init__(self, store: SQLStore, writes: bool) -> None:
        self._store = store
        self._st: Statements = store.statements
        self._candidates = store.statements.part(Candidates)
        self._writes = writes

    def look(
        self,
        limit: int,
        names: Sequence[str] | None,
        readable: int,
        without: Sequence[str],
        full: Sequence[Lane],
        where: sa.ColumnElement[bool] | None,
    ) -> Look:
        """See :meth:`Store.look <jobboard.engine.Store.look>`.

        :param where: what else is true of these jobs.
        """
        now, event, value, version = self._gate()
        gate = Side(*GATE, None if value is None else bytes(value), None, version)
        overdue: list[Stored] = []
        if self._writes and event is not None and event <= now:
            overdue = self._overdue()
        left = None if event is None else event - now
        if not overdue and left is not None and left <= 0:
            left = SOON
        ready: list[Stored] = []
        if limit:
            if names is None and without:
                names = self._store.names_but(without)
            request = TakeRequest({}, limit, readable, names, where, gate=version or 0, full=full)
            rows, busy = self._ready(request)
            ready = [Stored(record, None) for row in rows if (record := record_of(row)) is not None]
            if busy:
                left = SOON if left is None else min(left, SOON)
        return Look(now, ready, overdue, left, gate)

    def _gate(self) -> Row:
        """The time, the first event and the gate, which stays as it is until this transaction ends, if it is there."""
        st, product = self._st, self._store.product
        if self._store.running is None:
            return self._store.rows(st.glance)[0]
        if product.returning:
            self._store.rows(st.gate_shared)
        shared = product.skip_locked and not product.returning
        [row] = self._store.rows(st.glance_shared if shared else st.glance)
        # What is absent nobody can lock in a row of its own.
        if product.returning or (shared and row[3] is not None):
            self._store.gate_shared()
        return row

    def _overdue(self) -> list[Stored]:
        """Those that no other holds."""
        run = self._store.running
        rows = self._store.rows(self._st.overdue, p_since=0)
        found = []
        for row in rows:
            record = record_of(row)
            if record is not None:
                found.append(Stored(record, None))
            elif run is not None:
                set_aside_stateless(run, self._st, row)
                self._store.swept.add(row[0])
        return found

    def _ready(self, request: TakeRequest) -> tuple[list[Row], bool]:
        """The first ones, and whether others hold some."""
        st, locks = self._st, self._store.running is not None
        if request.names is not None and not request.names:
            return [], False
        if locks and request.direct:
            statement = st.ready if request.names is None else st.ready_named
            if rows := self._store.rows(statement, **request.params):
                return rows, False
        if request.where is not None:
            pick = st.pick_ids(request.where, locked=locks)
        else:
            pick = st.ready_ids if locks else st.ready_ids_shown
        found: list[Row] = []
        busy = False
        for ids in self._candidates.lists(request, self._rows):
            if ids:
                found += (rows := self._store.rows(pick, **request.params, p_ids=ids))
                if len(found) >= request.limit:
                    return found[: request.limit], False
                busy = busy or len(rows) < len(ids)
        return found, busy

    def _rows(self, statement: Any, params: dict[str, Any]) -> list[Row]:
        return self._store.rows(statement, **params)
