"""Statements that look behind the floors of a connection; see :mod:`~jobboard.backends.sql.postgresql.floors`."""

from __future__ import annotations

import functools
import json
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, REGCLASS

from jobboard.backends.sql.postgresql.parts import Parts
from jobboard.backends.sql.scopes import NEWLINE, group_key
from jobboard.backends.sql.statements import Statements
from jobboard.backends.sql.tables import literal
from jobboard.sql.expressions import XACT, Now, Place
from jobboard.sql.prepared import Prepared, param, text
from jobboard.states import UNCLAIMED

RETURNED = 1000
"""How many that came back one look reads. If there may be more, it can't tell the first."""
CROWD = 1000
"""Of how many ready jobs it is looked at which groups they are in."""
SPARE = 8
"""How many more than wanted it reads, as others may be at the first ones."""
NEAR = 50
"""And beside lanes, as the first ones may also be in full scopes."""

now = Now()


class Behind:
    """What looks at all jobs, or at those with ``p_name``.

    :param named: at those with ``p_name``.
    :param beside: at those in none of the groups in ``p_lanes``, each as ``name\\ngroup``; see
        :mod:`~jobboard.backends.sql.postgresql.lanes`.
    """

    def __init__(self, statements: Statements, named: bool, beside: bool = False) -> None:
        self._st = statements
        self._parts = statements.part(Parts)
        self._as = self._parts.named
        self._jobs = statements.jobs
        name = (self._jobs.c.name == text("name"),) if named else ()
        self._beside = beside
        wanted = (*name, self._outside()) if beside else name
        self._unclaimed = sa.and_(self._st.mine, self._jobs.c.state == literal(UNCLAIMED), *wanted)
        self._ready = sa.and_(self._st.readable(), *wanted)
        self._takes: dict[int, Prepared] = {}
        self._of_ids: dict[int, Prepared] = {}
        self._candidates: dict[int, Prepared] = {}
        self.survey = self._survey()
        self.probe = self._probe()

    def take(self, limit: int) -> Prepared:
        """Take the first ones; none where jobs have come back, and tell so at the end of each row."""
        statement = self._takes.get(limit)
        if statement is None:
            c, since = self._jobs.c, self._since()
            returned = self._returned(since, self._ready).limit(_written(1)).with_only_columns(c.id).scalar_subquery()
            ready = self._walk(since, self._ready, limit, locked=True).where(returned.is_(None))
            there = self._walk(since, self._ready, 1, locked=False).limit(_written(1)).with_only_columns(1)
            statement = self._takes[limit] = self._parts.taking(
                limit, self._overdue(since), ready, there.scalar_subquery().is_not(None), returned.is_not(None)
            )
        return statement

    def take_ids(self, limit: int) -> Prepared:
        """The same of ``p_ids``, also where jobs have come back."""
        statement = self._of_ids.get(limit)
        if statement is None:
            ready, busy = self._parts.ready(*self._parts.of_kind("ids"))
            statement = self._of_ids[limit] = self._parts.taking(limit, self._overdue(self._since()), ready, busy)
        return statement

    def candidates(self, limit: int) -> Prepared:
        """The ids of the first ready jobs, those that came back among them; and how many that are, beside each. Then
        also those of the first ones in each lane, up to where others are known."""
        statement = self._candidates.get(limit)
        if statement is None:
            since, count = self._since(), limit + (NEAR if self._beside else SPARE)
            returned = self._returned(since, self._ready).limit(_written(RETURNED)).cte(self._as("returned"))
            others = self._walk(since, self._ready, count, locked=False).limit(_written(count)).cte(self._as("others"))
            columns = ((each.c.id, each.c.priority) for each in (returned, others))
            both = sa.union(*(sa.select(*each) for each in columns)).subquery("both")
            many = sa.select(sa.func.count()).select_from(returned).scalar_subquery()
            found: Any = sa.select(both.c.id, many.label("many"))
            found = found.order_by(both.c.priority, both.c.id).limit(_written(count))
            if self._beside:
                found = self._with_heads(found.add_columns(both.c.priority), limit, count)
            statement = self._candidates[limit] = Prepared(found)
        return statement

    # Lanes

    @functools.cached_property
    def crowding(self) -> Prepared:
        """The groups that have many of the first ready jobs."""
        c = self._jobs.c
        first = sa.select(group_key(c).label("lane")).where(self._ready).order_by(c.priority, c.id)
        near = first.limit(_written(CROWD)).subquery("near")
        many = sa.func.count() >= _written(CROWD // 10)
        lanes = sa.select(near.c.lane).where(near.c.lane.is_not(None)).group_by(near.c.lane).having(many)
        return Prepared(lanes.order_by(sa.func.count().desc(), near.c.lane))

    def _lanes(self) -> sa.Select[Any]:
        lanes = sa.func.unnest(sa.func.string_to_array(text("lanes"), sa.literal_column("chr(30)")))
        return sa.select(lanes.column_valued("lane"))

    def _outside(self) -> sa.ColumnElement[bool]:
        # As a select of its own: it is read once, and not for each row.
        lanes = sa.func.array(self._lanes().scalar_subquery())
        return sa.or_(self._jobs.c.job_group.is_(None), group_key(self._jobs.c) != sa.all_(lanes))

    def _with_heads(self, outside: sa.Select[Any], limit: int, count: int) -> Any:
        """What is in no lane, of which it is at most so many, and the first jobs of each lane. Where it is as many,
        there may be more behind its last one, in front of what a lane has there."""
        known, heads = outside.cte(self._as("outside")).prefix_with("MATERIALIZED"), self._heads(limit + SPARE)
        in_order = sa.select(known.c.priority, known.c.id).order_by(known.c.priority, known.c.id)
        last = in_order.offset(_written(count - 1)).limit(_written(1)).subquery("last")
        behind = sa.tuple_(last.c.priority, last.c.id) < sa.tuple_(heads.c.priority, heads.c.id)
        near = sa.select(heads.c.id, _written(0)).where(~sa.select(last.c.id).where(behind).exists())
        return sa.union_all(sa.select(known.c.id, known.c.many), near)

    def _heads(self, limit: int) -> Any:
        """The first ready jobs of each lane."""
        c, lanes = self._jobs.c, self._lanes().subquery("lanes")
        name, group = (sa.func.split_part(lanes.c.lane, NEWLINE, _written(each)) for each in (1, 2))
        # A partial index must be shown its condition.
        mine = (self._st.readable(), c.name == name, c.job_group == group, c.job_group.is_not(None))
        first = (
            sa.select(c.id, c.priority).where(*mine).order_by(c.priority, c.id).limit(_written(limit)).lateral("first")
        )
        return sa.select(first).select_from(lanes.join(first, sa.true())).subquery("heads")

    # Looking around

    def _probe(self) -> Prepared:
        """What tells how many pages a look without floors reads."""
        c = self._jobs.c
        first = sa.select(c.id).where(self._ready).order_by(c.priority, c.id).limit(_written(1)).scalar_subquery()
        return _Explained(sa.select(self._st.first_event().scalar_subquery(), first))

    def _survey(self) -> Prepared:
        since = self._since()
        quoted = self._st.product.dialect.identifier_preparer.format_table(self._jobs)
        sequence = sa.func.pg_get_serial_sequence(quoted, "id")
        # Who may not use it must do with what it has seen itself.
        last = sa.case(
            (sa.func.has_sequence_privilege(sequence, "USAGE"), sa.func.pg_sequence_last_value(_regclass(sequence)))
        )
        # Materialized, each from the one before: it is read before this transaction gets its id.
        drawn = sa.select(last.label("number")).cte(self._as("drawn")).prefix_with("MATERIALIZED")
        own = sa.select(drawn.c.number, sa.literal_column(XACT, sa.BigInteger).label("xid"))
        own_xact = own.cte(self._as("own")).prefix_with("MATERIALIZED")
        firsts = self._walk(since, self._unclaimed, 1, locked=False).subquery("firsts")
        pair = sa.cast(firsts.c.priority, sa.Text) + ":" + sa.cast(firsts.c.id, sa.Text)
        returned = self._returned(since, self._unclaimed).limit(_written(1)).with_only_columns(self._jobs.c.returned)
        return Prepared(
            sa.select(
                sa.cast(sa.func.txid_current_snapshot(), sa.Text),
                own_xact.c.xid,
                own_xact.c.number,
                now,
                self._place(),
                returned.scalar_subquery(),
                self._overdue(since).scalar_subquery(),
                sa.select(sa.func.string_agg(pair, ",")).scalar_subquery(),
            )
        )

    # Parts

    def _since(self) -> sa.CTE:
        """Where to begin at the latest, as of the doubts some have ended."""
        doubts = (
            sa.func.unnest(_array("xids"), _array("numbers"), _array("wakes"))
            .table_valued(*(sa.column(name, sa.BigInteger) for name in ("xid", "number", "wake")), name="doubt")
            .render_derived()
        )
        # The first one is none: it is as if it had ended where another server answers.
        ended = sa.func.txid_visible_in_snapshot(doubts.c.xid, sa.func.txid_current_snapshot())
        return (
            sa.select(
                sa.func.min(doubts.c.number).label("number"),
                sa.func.min(doubts.c.wake).label("wake"),
                (sa.func.min(doubts.c.xid) - 1).label("returned"),
            )
            .where(sa.case((doubts.c.xid == 0, self._place() != text("place")), else_=ended))
            .cte(self._as("since"))
            .prefix_with("MATERIALIZED")
        )

    def _place(self) -> sa.ColumnElement[str]:
        """Another one after another server has come to answer, or the table was emptied."""
        quoted = self._st.product.dialect.identifier_preparer.format_table(self._jobs)
        return sa.func.concat(Place(self._jobs), "/", sa.func.pg_relation_filenode(_regclass(quoted)))

    def _walk(self, since: sa.CTE, condition: sa.ColumnElement[bool], limit: int, locked: bool) -> sa.Select[Any]:
        """In serving order the first of each priority behind its floor, ``limit`` at most of each."""
        c = self._jobs.c
        lanes = (
            sa.func.unnest(_array("starts"), _array("stops"), _array("floors"))
            .table_valued(*(sa.column(name, sa.BigInteger) for name in ("start", "stop", "floor")), name="lane")
            .render_derived()
        )
        reached = sa.func.least(lanes.c.floor, since.c.number)
        first = (
            sa.select(c.id, c.priority)
            .where(condition, sa.tuple_(c.priority, c.id) > sa.tuple_(lanes.c.start, reached))
            .where(c.priority < lanes.c.stop)
            .order_by(c.priority, c.id)
            .limit(_written(limit))
        )
        if locked:
            first = first.with_for_update(skip_locked=True)
        ready = first.lateral("ready")
        columns = [ready.c.id] if locked else [ready.c.id, ready.c.priority]
        return sa.select(*columns).select_from(lanes.join(since, sa.true()).join(ready, sa.true()))

    def _returned(self, since: sa.CTE, condition: sa.ColumnElement[bool]) -> sa.Select[Any]:
        """What came back behind the floor of that."""
        c = self._jobs.c
        floor = sa.func.least(param("returned"), sa.select(since.c.returned).scalar_subquery())
        # A partial index must be shown its condition.
        behind = sa.and_(c.returned.is_not(None), c.returned > floor)
        return sa.select(c.id, c.priority, c.returned).where(condition, behind).order_by(c.board, c.returned)

    def _overdue(self, since: sa.CTE) -> sa.Select[Any]:
        """The first instant that has passed. What is to come lies behind the entries of all that was claimed lately."""
        wake_at = self._jobs.c.wake_at
        floor = sa.func.least(param("wake"), sa.select(since.c.wake).scalar_subquery())
        return self._st.first_event(wake_at > floor, wake_at <= now)


class _Explained(Prepared):
    """Has a select run, and told how."""

    def _compile(self, dialect: sa.Dialect, size: int) -> Any:
        text = super()._compile(dialect, size)
        options = "ANALYZE, BUFFERS, TIMING off, COSTS off, SUMMARY off, FORMAT json"
        text = self._texts[size] = text._replace(text=f"EXPLAIN ({options}) {text.text}")
        return text


def pages(told: Any) -> int:
    """How many pages the statement of an :class:`_Explained` has read."""
    plan = (json.loads(told) if isinstance(told, str) else told)[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def _regclass(name: Any) -> sa.ColumnElement[Any]:
    return sa.cast(name, REGCLASS)


def _array(name: str) -> sa.ColumnElement[Any]:
    # A text: to write out an array costs the driver more than to read one does the server.
    return sa.cast(text(name), ARRAY(sa.BigInteger))


def _written(limit: int) -> sa.BindParameter[int]:
    return sa.literal(limit, sa.Integer(), literal_execute=True)
