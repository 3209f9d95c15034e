"""What PostgreSQL's statements are made of: CTEs that look, claim and keep the answer, to be put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, Insert, insert

from jobboard.backends.sql.answers import JOINT
from jobboard.backends.sql.statements import Statements, restamped
from jobboard.sql.claims import among, locking
from jobboard.sql.expressions import Now
from jobboard.sql.prepared import Prepared, param, text

now = Now()
_EPOCH = sa.literal_column("'epoch'", sa.String)
_MICROS = sa.literal_column("1000000", sa.Integer)
# Read once the transaction has its id; see floors.
INSTANT = sa.case(
    (
        sa.func.txid_current().is_not(None),
        sa.cast(sa.func.date_part(_EPOCH, sa.func.clock_timestamp()) * _MICROS, sa.BigInteger),
    )
)
ZERO = sa.literal_column("0", sa.Integer)


class Parts:
    def __init__(self, statements: Statements) -> None:
        self.tables = statements.tables
        self.jobs = statements.jobs
        self._statements = statements

    def named(self, name: str) -> str:
        """A CTE's name, which hides no table of the board's."""
        return f"{name}_{self.tables.prefix}"

    # Claiming

    def of_kind(self, kind: str) -> Sequence[sa.ColumnElement[bool]]:
        """Of "any" ready jobs, of those with ``p_name`` ("named"), or of those in ``p_ids`` ("ids")."""
        c, readable = self.jobs.c, self._statements.readable(kind == "ids")
        chosen = c.id == sa.any_(param("ids", ARRAY(sa.BigInteger)))
        wanted = {"any": (), "named": (c.name == text("name"),), "ids": (chosen,)}[kind]
        return (readable, *wanted)

    def ready(self, *conditions: sa.ColumnElement[bool]) -> tuple[sa.Select[Any], sa.ColumnElement[bool]]:
        """The jobs in serving order, locked; whether there are any, locked or not. The gate is not compared."""
        c, st = self.jobs.c, self._statements
        jobs = sa.select(c.id).where(*conditions).order_by(c.priority, c.id)
        return locking(jobs, st.product), st.any_of(*conditions)

    def taking(
        self,
        limit: int,
        first_event: sa.Select[Any],
        ready: sa.Select[Any],
        there: sa.ColumnElement[bool],
        *more: sa.ColumnElement[Any],
    ) -> Prepared:
        """:param more: what stands at the end of each row."""
        seen = sa.select(first_event.scalar_subquery().label("event"), self._statements.gate().label("gate"))
        seen_first = seen.cte(self.named("seen"))
        event, gate = seen_first.c.event, seen_first.c.gate
        chosen = gate == param("gate")
        # Nothing is taken while something overdue may belong before it, unless a sweep has just been.
        timely = sa.or_(param("swept", sa.Boolean()), (event <= now).is_not(sa.true()))
        picked = (
            ready.where(sa.select(sa.and_(chosen, timely)).scalar_subquery())
            # Written out: of a limit that it does not know, the planner expects the worst, and plans anew each time.
            .limit(sa.literal(limit, sa.Integer(), literal_execute=True))
        )
        taken = self.claimed(among(self.jobs, picked))
        # What is ready, yet can't be taken, is being claimed by another: its lease is an event that can't be seen yet.
        busy = sa.case((sa.and_(taken.c.uuid.is_(None), chosen), there), else_=sa.false())
        return Prepared(
            sa.select(*taken.c, now, event, busy, gate, *more)
            .select_from(seen_first.outerjoin(taken, sa.true()))
            .add_cte(self.answer(taken, self.taken_one(taken) if limit == 1 else self.taken_together(taken)))
        )

    @staticmethod
    def taken_one(taken: sa.CTE) -> sa.Select[Any]:
        return pair(taken.c.id, taken)

    @staticmethod
    def taken_together(taken: sa.CTE) -> sa.Select[Any]:
        joint, comma, space = (sa.literal_column(f"'{each}'", sa.String) for each in (JOINT, ",", " "))
        ids = sa.func.string_agg(sa.cast(taken.c.id, sa.Text), joint) + space + sa.cast(taken.c.token, sa.Text)
        parts = sa.select(ids.label("part")).group_by(taken.c.token).subquery("parts")
        return sa.select(sa.func.string_agg(parts.c.part, comma)).having(sa.func.count() > ZERO)

    def clock(self) -> sa.CTE:
        # One reading for all rows: a batch then shares its token, and is finished by one comparison.
        return sa.select(INSTANT.label("now")).cte(self.named("clock")).prefix_with("MATERIALIZED")

    def claimed(self, condition: sa.ColumnElement[bool], clock: sa.CTE | None = None) -> sa.CTE:
        clock = self.clock() if clock is None else clock
        values = self._statements.claim.values(clock.c.now)
        return (
            sa.update(self.jobs).where(condition).values(values).returning(*self.tables.record).cte(self.named("taken"))
        )

    # Answers

    def answer(self, taken: sa.CTE, done: sa.Select[Any]) -> sa.CTE:
        """Keep what was done; nothing if nothing was done.

        :param done: one row, or none.
        """
        upsert = self._kept(done)
        # NULL, which the column refuses: a call that is not later than the stored one must not have happened.
        call = sa.case((self.tables.answers.c.call < upsert.excluded.call, upsert.excluded.call))
        return self._replacing(upsert, call).cte(self.named("answer"))

    def answer_first(self) -> sa.CTE:
        """Keep that all is done; a row with the time, which must be there before anything is done."""
        upsert = self._kept(sa.select(text("done")))
        earlier = self.tables.answers.c.call < upsert.excluded.call
        return (
            self._replacing(upsert, upsert.excluded.call, earlier)
            .returning(INSTANT.label("now"))
            .cte(self.named("answer"))
        )

    def _kept(self, done: sa.Select[Any]) -> Insert:
        names = ("handle", "slot", "call", "answer", "stamp")
        values = (text("handle"), param("slot", sa.Integer()), param("call"), *done.selected_columns, now)
        return insert(self.tables.answers).from_select(names, done.with_only_columns(*values))

    def _replacing(self, upsert: Insert, call: Any, condition: Any = None) -> Insert:
        t = self.tables.answers
        values = {"call": call, "answer": upsert.excluded.answer, "stamp": restamped(t)}
        return upsert.on_conflict_do_update(index_elements=[t.c.handle, t.c.slot], set_=values, where=condition)


def pair(number: sa.ColumnElement[Any], taken: sa.CTE) -> sa.Select[Any]:
    """What a claim of one job answers."""
    space = sa.literal_column("' '", sa.String)
    return sa.select(sa.cast(number, sa.Text) + space + sa.cast(taken.c.token, sa.Text)).select_from(taken)
