"""Whole mutations as one statement, for databases where a statement can pick, change, answer and return.

That is one round trip, and a transaction that lasts no longer than the server needs. Each also keeps its answer, by an
upsert that makes the statement fail when the slot's stored call is not an earlier one.
"""

from __future__ import annotations

from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, insert

from jobboard.backends.sql.answers import ALL, JOINT
from jobboard.backends.sql.statements import Statements, claimable, held, restamped
from jobboard.backends.sql.tables import literal
from jobboard.sql.claims import among, locking
from jobboard.sql.expressions import Now
from jobboard.sql.prepared import Prepared, param, text
from jobboard.states import SCHEDULED, UNCLAIMED

_DRAFT: dict[str, Any] = {
    "uuid": sa.String(),
    "name": sa.String(),
    "priority": sa.SmallInteger(),
    "version": sa.Integer(),
    "posting": sa.Text(),
    "max_attempts": sa.Integer(),
    "job_group": sa.String(),
    "due": sa.BigInteger(),
    "delay": sa.BigInteger(),
}

now = Now()


class Single:
    def __init__(self, statements: Statements) -> None:
        self.tables = tables = statements.tables
        self.jobs = jobs = tables.jobs
        self._statements = statements
        self._mine = jobs.c.board == text("board")
        self._takes: dict[tuple[str, int], Prepared] = {}
        self.claim = self._claim()
        self.consume = self._consume()
        self.insert = self._insert()

    def take(self, kind: Literal["any", "named", "ids"], limit: int) -> Prepared:
        """Take the first ``limit`` of all jobs, of those with ``p_name``, or of those in ``p_ids``."""
        statement = self._takes.get((kind, limit))
        if statement is None:
            conditions = {
                "any": (),
                "named": (self.jobs.c.name == text("name"),),
                "ids": (self._chosen(),),
            }
            statement = self._takes[kind, limit] = self._take(limit, *conditions[kind])
        return statement

    def take_where(self, limit: int, condition: sa.ColumnElement[bool]) -> Prepared:
        """As ``ids``, of those that still meet a condition."""
        return self._take(limit, self._chosen(), condition)

    def _chosen(self) -> sa.ColumnElement[bool]:
        return self.jobs.c.id == sa.any_(param("ids", ARRAY(sa.BigInteger)))

    def _take(self, limit: int, *conditions: sa.ColumnElement[bool]) -> Prepared:
        c = self.jobs.c
        # Nothing is taken while something overdue may belong before it, unless a sweep has just been.
        overdue = sa.exists().where(self._mine, c.wake_at <= now)
        picked = (
            sa.select(c.id)
            .where(self._statements.ready_condition(), *conditions)
            .where(sa.or_(param("swept", sa.Boolean()), ~overdue))
            .order_by(c.priority, c.id)
            # Written out: of a limit that it does not know, the planner expects the worst, and plans anew each time.
            .limit(sa.literal(limit, sa.Integer(), literal_execute=True))
        )
        taken = self._claimed(among(self.jobs, locking(picked, self._statements.product)))
        event = sa.select(self._statements.first_event().scalar_subquery().label("event")).cte("event")
        # What is ready, yet can't be taken, is being claimed by another: its lease is an event that can't be seen yet.
        ready = self._statements.any_ready(*conditions)
        busy = sa.case((taken.c.uuid.is_(None), ready), else_=sa.false())
        return Prepared(
            sa.select(*taken.c, now, event.c.event, busy)
            .select_from(event.outerjoin(taken, sa.true()))
            .add_cte(self._answer(taken, self._taken_together(taken)))
        )

    @staticmethod
    def _taken_together(taken: sa.CTE) -> sa.ColumnElement[str]:
        ids = sa.func.string_agg(sa.cast(taken.c.id, sa.Text), JOINT) + " " + sa.cast(taken.c.token, sa.Text)
        parts = sa.select(ids.label("part")).group_by(taken.c.token).subquery("parts")
        return sa.select(sa.func.string_agg(parts.c.part, ",")).scalar_subquery()

    def _claimed(self, condition: sa.ColumnElement[bool]) -> sa.CTE:
        # One reading for all rows: a batch then shares its token, and is finished by one comparison.
        instant = sa.select(sa.cast(sa.extract("epoch", sa.func.clock_timestamp()) * 1000000, sa.BigInteger))
        values = self._statements.claim.values(instant.scalar_subquery())
        return sa.update(self.jobs).where(condition).values(values).returning(*self.tables.record).cte("taken")

    def _claim(self) -> Prepared:
        c = self.jobs.c
        taken = self._claimed(sa.and_(c.uuid == text("uuid"), self._statements.mine_too, claimable(self.jobs)))
        return Prepared(sa.select(taken).add_cte(self._answer(taken, _each(taken))))

    def _consume(self) -> Prepared:
        c = self.jobs.c
        # Texts: to write out an array costs the driver more than to split it does the server.
        uuids = sa.func.string_to_array(text("uuids"), ",")
        tokens = sa.cast(sa.func.string_to_array(text("tokens"), ","), ARRAY(sa.BigInteger))
        acts = (
            sa.func.unnest(uuids, tokens)
            .table_valued(sa.column("uuid", sa.String), sa.column("token", sa.BigInteger), name="act")
            .render_derived()
        )
        # Looked up one by one: a plan made while the table was small and joined as a whole would be kept as it grows.
        found = (
            sa.select(c.id, c.token, held(self.jobs).label("held"))
            .where(c.uuid == acts.c.uuid, self._statements.mine_too)
            .limit(sa.literal(1, sa.Integer(), literal_execute=True))
            .with_for_update()
            .lateral("found")
        )
        wanted = sa.select(found.c.id).select_from(acts.join(found, sa.true()))
        taken = (
            sa.delete(self.jobs)
            .where(among(self.jobs, wanted.where(found.c.token == acts.c.token, found.c.held)))
            .returning(c.uuid, c.token)
            .cte("taken")
        )
        # All or nothing: NULL, which the column refuses.
        whole = sa.func.count() == sa.func.cardinality(uuids)
        done = sa.case((whole, f"{ALL} " + sa.cast(sa.func.count(), sa.Text)))
        return Prepared(sa.select(sa.func.count()).select_from(taken).add_cte(self._answer(taken, done)))

    def _insert(self) -> Prepared:
        clock = sa.select(now.label("now")).cte("clock")
        values = (
            sa.func.unnest(*(param(name, ARRAY(type_)) for name, type_ in _DRAFT.items()))
            .table_valued(
                *(sa.column(name, type_) for name, type_ in _DRAFT.items()), with_ordinality="place", name="draft"
            )
            .render_derived()
        )
        wanted = sa.func.coalesce(values.c.due, clock.c.now + values.c.delay)
        due = sa.case((wanted > clock.c.now, wanted))
        columns: dict[str, Any] = {name: values.c[name] for name in list(_DRAFT)[:7]}
        columns |= {
            "state": sa.case((due.is_(None), literal(UNCLAIMED)), else_=literal(SCHEDULED)),
            "attempts": sa.literal(0),
            "retries": sa.literal(0),
            "token": sa.literal(0),
            "lock_until": due,
            "wake_at": due,
            "created_on": clock.c.now,
            "modified_on": clock.c.now,
            "board": text("board"),
        }
        rows = sa.select(*columns.values()).select_from(values.join(clock, sa.true())).order_by(values.c.place)
        c = self.jobs.c
        taken = (
            sa.insert(self.jobs)
            .from_select(list(columns), rows)
            .returning(c.uuid, c.id.label("token"), c.created_on)
            .cte("taken")
        )
        notify = sa.select(sa.func.pg_notify(text("channel"), text("board"))).where(param("notify", sa.Boolean()))
        told = sa.cast(notify.scalar_subquery(), sa.String)
        answer = self._answer(taken, _each(taken))
        return Prepared(sa.select(taken.c.uuid, taken.c.token, taken.c.created_on, told).add_cte(answer))

    def _answer(self, taken: sa.CTE, done: sa.ColumnElement[str]) -> sa.CTE:
        """Keep what was done; nothing if nothing was done."""
        t = self.tables.answers
        source = sa.select(text("handle"), param("slot", sa.Integer()), param("call"), done, now)
        upsert = insert(t).from_select(
            ["handle", "slot", "call", "answer", "stamp"],
            source.select_from(taken).having(sa.func.count() > 0),
        )
        # NULL, which the column refuses: a call that is not later than the stored one must not have happened.
        call = sa.case((t.c.call < upsert.excluded.call, upsert.excluded.call))
        return upsert.on_conflict_do_update(
            index_elements=[t.c.handle, t.c.slot],
            set_={"call": call, "answer": upsert.excluded.answer, "stamp": restamped(t)},
        ).cte("answer")


def _each(taken: sa.CTE) -> sa.ColumnElement[str]:
    return sa.func.string_agg(taken.c.uuid + " " + sa.cast(taken.c.token, sa.Text), ",")
