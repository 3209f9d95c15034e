"""PostgreSQL's shortcuts: whole mutations as one statement, which picks, changes, answers and returns.

That is one round trip, and a transaction that lasts no longer than the server needs. Each keeps its answer in its slot,
and does nothing where the slot's stored call is not an earlier one: a first try that comes after its own repetition
changes nothing. A post asks for that before it writes. What takes jobs away knows only afterwards what to answer, and
fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from jobboard.backends.sql.answers import ALL, slot_of, text_of, whole
from jobboard.backends.sql.looking import Candidates, Glance, TakeRequest, soon
from jobboard.backends.sql.outcomes import Leaves, leaving, left_by
from jobboard.backends.sql.postgresql.behind import RETURNED, SPARE
from jobboard.backends.sql.postgresql.entering import Entering
from jobboard.backends.sql.postgresql.limited import LimitedTakes
from jobboard.backends.sql.postgresql.lookout import AHEAD, Lookout
from jobboard.backends.sql.postgresql.parts import ZERO, Parts, pair
from jobboard.backends.sql.rows import record_in
from jobboard.backends.sql.scopes import exits_of
from jobboard.backends.sql.shortcuts import OWN, Ended, Scopes, Shortcuts, alike, of_one_token
from jobboard.backends.sql.statements import Statements, held, now
from jobboard.backends.sql.store import SQLStore
from jobboard.backends.sql.tables import RECORD, literal
from jobboard.engine import Limits
from jobboard.primitives import Draft, Finish, Nonce
from jobboard.sql.claims import among
from jobboard.sql.links import ConstraintViolated
from jobboard.sql.prepared import Prepared, Row, param, text
from jobboard.states import CLAIMED, SCHEDULED, UNCLAIMED, Record, serving_order

_SEPARATOR = "\x1e"
"""Between the values of many drafts: no name has a control character, and JSON writes them in another way. A driver
takes many times as long to write out an array as to join a text, and the server is as quick to split one."""
_NULL = "\x1f"

_DRAFT: dict[str, Any] = {
    "uuid": sa.Text(),
    "name": sa.Text(),
    "priority": sa.SmallInteger(),
    "version": sa.Integer(),
    "posting": sa.Text(),
    "max_attempts": sa.Integer(),
    "job_group": sa.Text(),
    "due": sa.BigInteger(),
    "delay": sa.BigInteger(),
}
_FIELDS = {name: name for name in _DRAFT if name not in ("due", "delay")} | {"job_group": "group"}
"""The columns that are stored as they are, and the fields of a draft that they hold."""

_ALONE = sa.literal_column(f"'{ALL} 1'", sa.String)
_ONE = sa.literal(1, sa.Integer(), literal_execute=True)
_COMMA = sa.literal_column("','", sa.String)
# Texts: to write out an array costs the driver more than to split it does the server.
_UUIDS: sa.ColumnElement[Any] = sa.func.string_to_array(text("uuids"), _COMMA)

How = Literal["alone", "together", "several"]
"""Which claims one call ends: one; several of one token, as one take makes them; several, each with its own."""


class PostgreSQLShortcuts(Shortcuts):
    def __init__(self, store: SQLStore) -> None:
        super().__init__(store)
        self._sql = store.statements.part(Single, bool(store.call["p_notify"]))
        self._candidates = store.statements.part(Candidates)
        self._lookout = Lookout(store)
        self._limited = LimitedTakes(store, self._take)

    def _run(self, statement: Prepared, nonce: Nonce, params: dict[str, Any]) -> list[Row]:
        return self.store.single(statement, {**self.store.base, **slot_of(nonce), **params})

    def insert(self, drafts: Sequence[Draft], nonce: Nonce) -> list[Record]:
        statement, params = self._sql.insert(drafts)
        rows = self._run(statement, nonce, {**self.store.call, **params})
        if not rows:
            raise ConstraintViolated("this call was answered before, or overtaken")
        return [draft.record(*row[:2]) for draft, row in zip(drafts, rows, strict=True)]

    def claim(self, uuid: str, lease: dict[str, Any], nonce: Nonce) -> Record | None:
        rows = self._run(self._sql.claim, nonce, {**lease, "p_uuid": uuid})
        return record_in(rows[0], CLAIMED) if rows else None

    def take(self, request: TakeRequest, nonce: Nonce) -> Glance:
        if request.direct:
            return self._behind(request, nonce) or self._first(request, nonce)
        if request.where is None:
            statement = self._sql.take("ids", request.limit)
        else:
            statement = self._sql.take_where(request.limit, request.where)
        busy = False
        for ids in self._candidates.lists(request.with_spare, lambda each, params: self.store.query(each, **params)):
            look = self._take(statement, request, nonce, p_ids=ids)
            if look.records or (look.overdue and not request.swept):
                return look
            if ids:
                busy = True
        return look._replace(event=soon(look.event)) if busy else look

    def _first(self, request: TakeRequest, nonce: Nonce) -> Glance:
        look = self._take(self._sql.take("any" if request.names is None else "named", request.limit), request, nonce)
        self._lookout.queues.taken(request, len(look.records))
        return look

    def _behind(self, request: TakeRequest, nonce: Nonce) -> Glance | None:
        """Behind floors; None: there are none, or it can't tell the first."""
        floors = self._lookout.floors(request)
        if floors is None:
            return None
        behind, where = self._lookout.behind(request), floors.params()
        look = self._take(behind.take(request.limit), request, nonce, **where)
        if look.hitch and not (look.overdue and not request.swept):
            found = self.store.query(behind.candidates(request.limit), **request.params, **where)
            if found and found[0][1] >= RETURNED:
                return None
            if found:
                ids = [id_ for id_, _ in found]
                look = self._take(behind.take_ids(request.limit), request, nonce, **where, p_ids=ids)
            if not (look.records or look.overdue):
                # Others are at all of these; behind as many as it looks at there may be more.
                return None if len(found) >= request.limit + SPARE else look._replace(event=soon(look.event))
        floors.met(look.records)
        return look if look.records or look.event is not None else look._replace(event=AHEAD)

    def enter(self, request: TakeRequest, limits: Limits, nonce: Nonce) -> Glance | None:
        return self._limited(request, limits, nonce)

    def _take(self, statement: Prepared, request: TakeRequest, nonce: Nonce, **more: Any) -> Glance:
        params = {**request.lease, **request.params, **more, "p_swept": request.swept}
        rows = self._run(statement, nonce, params)
        now, event, busy, gate, *hitch = rows[0][RECORD:]
        left = None if event is None else event - now
        if rows[0][0] is None:
            overdue = left is not None and left <= 0
            soonest = soon(left) if busy else left
            return Glance([], overdue, soonest, gate=gate, since=event or 0, hitch=hitch[0] if hitch else None)
        records = [record_in(row, CLAIMED) for row in rows]
        if len(records) > 1:
            records.sort(key=serving_order)
        return Glance(records, False, left)

    def end(self, acts: Sequence[Finish], held: Scopes, gate: int, nonce: Nonce) -> Ended | None:
        left = left_by(acts)
        if left is None:
            return None
        exits, params = exits_of(acts, held) if held else (0, {})
        together = left.leaves != "own" and of_one_token(acts)
        how: How = "alone" if len(acts) == 1 else "together" if together else "several"
        statement = self._sql.end(how, left.leaves, "p_exits" in params if exits else None)
        params = {**left.params, **self.store.call, **params} if exits else left.params
        if how == "alone":
            params = {**params, "p_uuid": acts[0].uuid}
        else:
            params = {**params, "p_uuids": ",".join([act.uuid for act in acts])}
        if how == "several":
            params["p_tokens"] = ",".join([str(act.holder.token) for act in acts])
        else:
            params["p_token"] = acts[0].holder.token
        if left.leaves == "own":
            params["p_results"] = _joined([act.result for act in acts], sa.Text())
        rows = self._run(statement, nonce, params)
        done, seen, *exited = rows[0] if rows else (0, 0)
        if done < len(acts):
            raise ConstraintViolated("not all of these claims stand")
        # What could not be told of all is looked at once more.
        return Ended(() if not exits or exited[0] == exits else held, seen)


class Single(Parts):
    """The statements.

    :param calls: whether a post wakes those who wait.
    """

    def __init__(self, statements: Statements, calls: bool) -> None:
        super().__init__(statements)
        self._calls = calls
        self._takes: dict[tuple[str, int], Prepared] = {}
        self._entering = statements.part(Entering)
        self.claim = self._claim()
        self._ends: dict[tuple[How, Leaves, bool | None], Prepared] = {}
        self._insert_one = self._inserting(())
        self._insert_alike = self._inserting(OWN)
        self._insert_many = self._inserting(tuple(_DRAFT))

    # Posting

    def insert(self, drafts: Sequence[Draft]) -> tuple[Prepared, dict[str, Any]]:
        """What posts these, and its parameters. It answers the place and the time of each, in their order; nothing at
        all if the slot's call is not an earlier one."""
        params: dict[str, Any] = {"p_done": text_of([whole(len(drafts))])}
        listed: Sequence[str] = tuple(_DRAFT)
        statement = self._insert_many
        if alike(drafts):
            listed, statement = ((), self._insert_one) if len(drafts) == 1 else (OWN, self._insert_alike)
            draft = drafts[0]._asdict()
            params |= {f"p_{name}": draft[field] for name, field in _FIELDS.items()}
        columns = dict(zip(Draft._fields, zip(*drafts, strict=True), strict=True)) if listed else {}
        return statement, params | {
            f"p_{name}": _joined(columns[_FIELDS.get(name, name)], _DRAFT[name]) for name in listed
        }

    def _inserting(self, listed: Sequence[str]) -> Prepared:
        """:param listed: what each draft has of its own; nothing: there is one. Without due times all are ready."""
        answer = self.answer_first()
        c = self.jobs.c
        drafts = _drafts(listed) if listed else None
        values: dict[str, Any] = {name: param(name, _DRAFT[name]) for name in _FIELDS}
        due: Any = None
        state: Any = literal(UNCLAIMED)
        source: Any = answer
        if drafts is not None:
            values |= {name: drafts.c[name] for name in _FIELDS if name in listed}
            source = drafts.join(answer, sa.true())
        if drafts is not None and "due" in listed:
            wanted = sa.func.coalesce(drafts.c.due, answer.c.now + drafts.c.delay)
            due = sa.case((wanted > answer.c.now, wanted))
            state = sa.case((due.is_(None), literal(UNCLAIMED)), else_=literal(SCHEDULED))
        values |= {
            "board": text("board"),
            "state": state,
            **dict.fromkeys(("attempts", "retries", "token"), ZERO),
            **dict.fromkeys(("created_on", "modified_on"), answer.c.now),
            **({} if due is None else {"lock_until": due, "wake_at": due}),
        }
        rows = sa.select(*values.values()).select_from(source)
        if drafts is not None:
            rows = rows.order_by(drafts.c.place)
        inserted = sa.insert(self.jobs).from_select(list(values), rows)
        call = sa.func.pg_notify(text("channel"), text("board"))
        if drafts is None:
            return Prepared(
                inserted.returning(c.id, c.created_on, *([sa.cast(call, sa.String)] if self._calls else []))
            )
        taken = inserted.returning(c.id, c.created_on).cte(self.named("taken"))
        told = [sa.cast(sa.select(call).scalar_subquery(), sa.String)] if self._calls else []
        return Prepared(sa.select(taken.c.id, taken.c.created_on, *told).order_by(taken.c.id))

    # Claiming

    def take(self, kind: str, limit: int) -> Prepared:
        """Take the first ``limit`` of jobs of this kind."""
        statement = self._takes.get((kind, limit))
        if statement is None:
            statement = self._takes[kind, limit] = self._take(limit, *self.of_kind(kind))
        return statement

    def take_where(self, limit: int, condition: sa.ColumnElement[bool]) -> Prepared:
        """As ``ids``, of those that still meet a condition."""
        return self._take(limit, *self.of_kind("ids"), condition)

    def _take(self, limit: int, *conditions: sa.ColumnElement[bool]) -> Prepared:
        return self.taking(limit, self._statements.first_event(), *self.ready(*conditions))

    def _claim(self) -> Prepared:
        c = self.jobs.c
        # Where there are rules, it goes the general way.
        unruled = self._statements.gate() == ZERO
        # A lapse is for the engine to write down.
        due = sa.and_(c.state == literal(SCHEDULED), c.lock_until <= now)
        ready = sa.or_(c.state == literal(UNCLAIMED), due)
        mine = (c.uuid == text("uuid"), self._statements.mine_too, ready, unruled)
        taken = self.claimed(sa.and_(*mine))
        return Prepared(sa.select(taken).add_cte(self.answer(taken, pair(taken.c.uuid, taken))))

    # Ending claims

    def end(self, how: How, leaves: Leaves, exits: bool | None = None) -> Prepared:
        """What consumes one job, or several. It answers how many were, and the version of the gate.

        :param exits: their claims leave scopes, several of them or one. It also answers how many were left.
        """
        statement = self._ends.get((how, leaves, exits))
        if statement is None:
            build = {"alone": self._consume, "together": self._consume_together, "several": self._consume_many}[how]
            statement = self._ends[how, leaves, exits] = Prepared(build(leaves, exits))
        return statement

    def _exiting(self, taken: sa.CTE, exits: bool | None) -> tuple[sa.FromClause, list[sa.ColumnElement[Any]]]:
        """What the end of a statement reads, and what it tells of the scopes that were left."""
        if exits is None:
            return taken, []
        source, left, full = self._entering.left(taken, exits)
        call = sa.case((full, sa.cast(sa.func.pg_notify(text("channel"), text("board")), sa.String)))
        return source, [left, call] if self._calls else [left]

    def _leaving(self, taken: sa.CTE, leaves: Leaves) -> list[sa.CTE]:
        if leaves == "nothing":
            return []
        result = taken.c.result if leaves == "own" else None
        return [leaving(self.tables, taken.c, result=result).cte(self.named("left"))]

    def _consume(self, leaves: Leaves, exits: bool | None) -> sa.Select[Any]:
        c = self.jobs.c
        found = sa.and_(c.uuid == text("uuid"), self._statements.mine_too)
        taken = (
            sa.delete(self.jobs)
            .where(found, c.token == param("token"), held(self.jobs))
            .returning(*(c.id,) if leaves == "nothing" else c)
            .cte(self.named("taken"))
        )
        answer = self.answer(taken, sa.select(_ALONE).select_from(taken))
        source, told = self._exiting(taken, exits)
        return (
            sa.select(_ONE, self._statements.gate(), *told)
            .select_from(source)
            .add_cte(answer, *self._leaving(taken, leaves))
        )

    def _consume_together(self, leaves: Leaves, exits: bool | None) -> sa.Select[Any]:
        c = self.jobs.c
        mine = (c.uuid == sa.any_(_UUIDS), self._statements.mine_too, c.token == param("token"), held(self.jobs))
        taken = sa.delete(self.jobs).where(*mine).returning(*(c.id,) if leaves == "nothing" else c)
        return self._ended(taken.cte(self.named("taken")), leaves, exits)

    def _consume_many(self, leaves: Leaves, exits: bool | None) -> sa.Select[Any]:
        """Of several claims, each with its token, or its result."""
        c = self.jobs.c
        tokens = sa.cast(sa.func.string_to_array(text("tokens"), _COMMA), ARRAY(sa.BigInteger))
        lists: dict[sa.ColumnClause[Any], Any] = {
            sa.column("uuid", sa.String): _UUIDS,
            sa.column("token", sa.BigInteger): tokens,
        }
        if leaves == "own":
            lists[sa.column("result", sa.String)] = _list("results", sa.Text())
        acts = sa.func.unnest(*lists.values()).table_valued(*lists, name="act").render_derived()
        # Looked up one by one: a plan made while the table was small and joined as a whole would be kept as it grows.
        found = (
            sa.select(c.id, c.token, held(self.jobs).label("held"))
            .where(c.uuid == acts.c.uuid, self._statements.mine_too)
            .limit(_ONE)
            .with_for_update()
            .lateral("found")
        )
        wanted = sa.select(found.c.id).select_from(acts.join(found, sa.true()))
        wanted = wanted.where(found.c.token == acts.c.token, found.c.held)
        ended = sa.delete(self.jobs)
        if leaves == "own":
            each = wanted.add_columns(acts.c.result).cte(self.named("wanted"))
            taken = ended.where(c.id == each.c.id).returning(*c, each.c.result).cte(self.named("taken"))
        else:
            returned = (c.uuid, c.token) if leaves == "nothing" else c
            taken = ended.where(among(self.jobs, wanted)).returning(*returned).cte(self.named("taken"))
        return self._ended(taken, leaves, exits)

    def _ended(self, taken: sa.CTE, leaves: Leaves, exits: bool | None) -> sa.Select[Any]:
        # All or nothing: NULL, which the column refuses.
        whole = sa.func.count() == sa.func.cardinality(_UUIDS)
        done = sa.case((whole, sa.literal_column(f"'{ALL} '", sa.String) + sa.cast(sa.func.count(), sa.Text)))
        answer = self.answer(taken, sa.select(done).select_from(taken).having(sa.func.count() > ZERO))
        source, told = self._exiting(taken, exits)
        told = [sa.func.count(), self._statements.gate(), *told]
        return sa.select(*told).select_from(source).add_cte(answer, *self._leaving(taken, leaves))


def _joined(values: Sequence[Any], type_: Any) -> str:
    if isinstance(type_, sa.Integer) or None in values:
        values = [_NULL if value is None else str(value) for value in values]
    return _SEPARATOR.join(values)


def _list(name: str, type_: Any) -> sa.ColumnElement[Any]:
    """A parameter that :func:`_joined` has made, as an array."""
    separator, null = (sa.literal_column(f"chr({ord(each)})", sa.String) for each in (_SEPARATOR, _NULL))
    return sa.cast(sa.func.string_to_array(text(name), separator, null), ARRAY(type_))


def _drafts(listed: Sequence[str]) -> sa.TableValuedAlias:
    columns = (_list(name, _DRAFT[name]) for name in listed)
    types = (sa.column(name, _DRAFT[name]) for name in listed)
    return sa.func.unnest(*columns).table_valued(*types, with_ordinality="place", name="draft").render_derived()
