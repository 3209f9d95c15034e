"""What a board shows of its rows, as they stand at the database's time. Nothing here writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from jobboard.backends.sql.rows import record_of
from jobboard.backends.sql.statements import Statements, claimable, logical_state, not_exhausted, now
from jobboard.backends.sql.tables import RECORD, has_partial_indexes, literal
from jobboard.primitives import Seen
from jobboard.sql.prepared import Prepared, Row, elements, param
from jobboard.states import CLAIMED, COMPLETE, LIVE, SCHEDULED, TRASHED, UNCLAIMED, Record, State, settle

if TYPE_CHECKING:
    from jobboard.backends.sql.store import SQLStore


class Reader:
    def __init__(self, store: SQLStore) -> None:
        self._store = store
        self._st: Statements = store.statements
        self._jobs = jobs = self._st.jobs
        self._mine = self._st.mine
        self._dialect = self._st.product.dialect
        self._record = (*self._st.tables.record, now)
        c = jobs.c
        self._live = sa.or_(*(c.state == literal(state) for state in (UNCLAIMED, SCHEDULED, CLAIMED)))
        # Each is built when it is first asked for: that takes as long as some requests.
        self._built: dict[tuple[object, ...], Prepared] = {}

    def _statement(self, build: Callable[..., Prepared], *key: Any) -> Prepared:
        statement = self._built.get((build.__name__, *key))
        if statement is None:
            statement = self._built[build.__name__, *key] = build(*key)
        return statement

    def read(self, uuids: Sequence[str]) -> list[Seen]:
        if not uuids:
            return []
        found: dict[str, Any] = {}
        for start in range(0, len(uuids), 500):
            rows = self._store.query(self._st.by_uuid, p_uuids=uuids[start : start + 500])
            found.update((row[0], row) for row in rows)
        return [seen(found.get(uuid)) for uuid in uuids]

    def page(
        self, after: Record | None, limit: int, names: Sequence[str] | None, states: frozenset[State]
    ) -> list[Row]:
        statement = self._statement(self._page_statement, after is None, names is None, states)
        params: dict[str, Any] = {"p_limit": limit}
        if after is not None:
            params |= {"p_priority": after.priority, "p_id": after.sequence}
        if names is not None:
            params["p_names"] = names
        return self._store.query(statement, **params)

    def _page_statement(self, first: bool, unnamed: bool, states: frozenset[State]) -> Prepared:
        c = self._jobs.c
        conditions = [self._mine, self._live]
        if not unnamed:
            conditions.append(c.name.in_(elements("names", sa.String())))
        # By the stored state, which the planner knows how to reckon with: what time has made of a job since may differ,
        # and such a job is answered with its own state.
        if states < LIVE:
            stored = [c.state == literal(state) for state in sorted(states)]
            conditions.append(sa.or_(sa.false(), *stored, *([claimable(self._jobs)] if UNCLAIMED in states else [])))
        # Not partial, this one has those of each state together.
        sorted_apart = len(states) == 1 and UNCLAIMED not in states and not has_partial_indexes(self._dialect)
        index = "ready" if sorted_apart else "serving"
        lists = () if unnamed else ("p_names",)
        select = sa.select(*self._record).where(*conditions)
        if first:
            return Prepared(self._st.in_order(select, index), *lists)
        # One walk for the rest of this priority and one for those after it: told of both at once, SQLite and PostgreSQL
        # walk to their place from the beginning of the index.
        rest = (c.priority == param("priority"), c.id > param("id"))
        parts = [self._st.in_order(select.where(*place), index) for place in (rest, (c.priority > param("priority"),))]
        both = sa.union_all(*(sa.select(part.subquery()) for part in parts)).subquery()
        ordered = sa.select(both).order_by(both.c.priority, both.c.id)
        return Prepared(ordered.limit(param("limit", sa.Integer())), *lists)

    def trash_page(self, after: Record | None, limit: int) -> list[Record]:
        params: dict[str, Any] = {"p_limit": limit}
        if after is not None:
            params |= {"p_when": after.modified_on, "p_id": after.sequence}
        rows = self._store.query(self._statement(self._trash_statement, after is None), **params)
        # By the instant that sorts them, the next page finds its place: also where a row tells of another.
        return [
            settle(record, row[RECORD])._replace(modified_on=row[RECORD + 1])
            for row in rows
            if (record := record_of(row)) is not None
        ]

    def _trash_statement(self, first: bool) -> Prepared:
        c = self._jobs.c
        trashed = sa.select(*self._record, c.gone_on.label("trashed_on")).where(
            self._mine, c.state == literal(TRASHED), c.gone_on > 0
        )
        lapsed = sa.select(*self._record, c.lock_until.label("trashed_on")).where(
            *(self._mine, c.wake_at <= now, c.state == literal(CLAIMED), c.lock_until <= now),
            sa.not_(not_exhausted(self._jobs)),
        )
        parts = []
        behind: tuple[sa.ColumnElement[bool], ...] = ()
        for part, instant in ((trashed, c.gone_on), (lapsed, c.lock_until)):
            if not first:
                earlier = sa.and_(instant == param("when"), c.id < param("id"))
                behind = (instant <= param("when"), sa.or_(instant < param("when"), earlier))
            limited = part.where(*behind).order_by(instant.desc(), c.id.desc()).limit(param("limit", sa.Integer()))
            parts.append(sa.select(limited.subquery()))
        both = sa.union_all(*parts).subquery()
        # The record's columns and the time; then the instant, by which alone they are sorted.
        return Prepared(
            sa.select(both).order_by(both.c.trashed_on.desc(), both.c.id.desc()).limit(param("limit", sa.Integer()))
        )

    def tally(self) -> dict[State, int]:
        counts: dict[str, int] = {}
        for state, logical, number in self._store.query(self._statement(self._tally_statement)):
            if logical:
                counts[state] = counts.get(state, 0) - number
            counts[logical or state] = counts.get(logical or state, 0) + number
        return {state: counts[state] for state in State if counts.get(state)}

    def _tally_statement(self) -> Prepared:
        c, state, count = self._jobs.c, logical_state(self._jobs), sa.func.count()
        # Each by an index that has all that it asks for.
        ready = sa.select(literal(UNCLAIMED), literal(""), count).where(self._mine, c.state == literal(UNCLAIMED))
        waits = (self._mine, c.wake_at.is_not(None), c.state != literal(UNCLAIMED))
        others = sa.select(c.state, literal(""), count).where(*waits).group_by(c.state)
        trashed = sa.select(literal(TRASHED), literal(""), count).where(self._mine, c.gone_on > 0)
        # Corrected by the few that are overdue, found by the index that has them.
        overdue = (
            sa.select(c.state, state, count)
            .where(self._mine, c.wake_at <= now, c.lock_until <= now)
            .group_by(c.state, state)
        )
        return Prepared(sa.union_all(ready, others, trashed, overdue))

    def boards(self, most: int) -> list[str]:
        found: list[str] = [name for (name,) in self._store.query(self._st.there, p_limit=1)]
        after = ""
        while len(found) < most and (rows := self._store.query(self._st.next_board, p_after=after)):
            after = rows[0][0]
            if after not in found:
                found.append(after)
        return found

    def peek(
        self, names: Sequence[str] | None, without: Sequence[str], readable: int, gate: int
    ) -> tuple[bool, int | None, int]:
        """Whether anything of these names can be claimed, or of all but those in ``without``; µs to the next event; and
        the version of the gate. Where that is another, nothing was looked for."""
        params: dict[str, Any] = {"p_readable": readable, "p_gate": gate}
        if names is not None:
            params["p_names"] = names
        elif without:
            # No job has an empty name.
            params |= {"p_names": self._store.names_but(without) or [""], "p_without": without}
        statement = self._statement(
            self._peek_statement, *(each for each in ("p_names", "p_without") if each in params)
        )
        [(there, instant, event, seen)] = self._store.query(statement, **params)
        return bool(there), None if event is None else event - instant, seen

    def _peek_statement(self, *lists: str) -> Prepared:
        c = self._jobs.c
        wanted = [c.name.in_(elements("names", sa.String()))] if lists else []
        others = [c.name.not_in(elements("without", sa.String()))] if "p_without" in lists else wanted
        if lists:
            ready = sa.or_(*(self._st.any_of(self._st.ready_condition(), half, *wanted) for half in self._st.halves))
        else:
            ready = self._st.any_of(self._st.ready_condition(), index="ready")
        due = sa.exists().where(
            *(self._mine, c.wake_at <= now, c.version <= param("readable"), claimable(self._jobs)),
            *(self._st.gate() == param("gate"), *others),
        )
        event = self._st.first_event(c.wake_at > now).scalar_subquery()
        return Prepared(sa.select(sa.or_(ready, due), now, event, self._st.gate()), *lists)


def seen(row: Row | None) -> Seen:
    """What a row of a record and the time shows."""
    if row is None:
        return Seen(COMPLETE, None, None)
    record = record_of(row)
    if record is None:
        return Seen(TRASHED, None, None)
    return Seen.at(row[RECORD], record)
