"""SQLite's shortcuts. A transaction that writes is alone there, and most of what a statement costs is what Python adds:
so there are few of them, and they get their values as they are."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert

from jobboard.backends.sql.answers import Items, taken, whole
from jobboard.backends.sql.heads import FAR
from jobboard.backends.sql.looking import Glance, TakeRequest, lanes_of, names_there
from jobboard.backends.sql.outcomes import Leaves, leaving, left_by
from jobboard.backends.sql.rows import record_in
from jobboard.backends.sql.scopes import ENTRY, entries_of, exits
from jobboard.backends.sql.shortcuts import Ended, Scopes, Shortcuts, nothing_ready, of_one_token
from jobboard.backends.sql.sqlite.crowds import NOTHING, Crowd, Full
from jobboard.backends.sql.sqlite.heads import SQLiteHeads
from jobboard.backends.sql.statements import Statements, claimed_values, held, now
from jobboard.backends.sql.store import SQLStore
from jobboard.backends.sql.tables import MAX_ATTEMPTS, MAX_TOKEN, literal, place_of
from jobboard.engine import SCOPE, Limits
from jobboard.primitives import Draft, Finish, Nonce
from jobboard.sql.links import ConstraintViolated, Link
from jobboard.sql.prepared import Prepared, Row, param, text
from jobboard.states import CLAIMED, UNCLAIMED, Record, serving_order

# As they lie in the table.
_INSERTED = (
    *("uuid", "name", "priority", "id", "version", "posting", "state", "max_attempts", "lock_until", "created_on"),
    *("modified_on", "job_group", "board", "wake_at"),
)
TRIES = 16
"""How often a take under limits begins anew when it has met another full scope."""

_ZEROS = ("attempts", "token", "retries")


class SQLiteStatements:
    def __init__(self, statements: Statements) -> None:
        self._st = st = statements
        self._jobs = jobs = st.jobs
        c = jobs.c
        self.next = _next(jobs)
        self.insert, order = self._insertion()
        assert order == list(_INSERTED), order
        first = {False: st.in_order(sa.select(c.id).where(st.ready_condition()), None), True: st.of_name()}
        self.takes = {
            (named, swept): self._take(picked, swept) for named, picked in first.items() for swept in (False, True)
        }
        self.take_one = self._take(sa.select(c.id).where(st.ready_condition(), c.id == param("id")))
        self._besides: dict[tuple[bool, int], Prepared] = {}
        given = sa.func.json_each(text("uuids")).table_valued("value")
        self._these = c.uuid.in_(sa.select(given.c.value))
        self._held = sa.and_(c.token == param("token"), held(jobs))
        self.consume = Prepared(sa.delete(jobs).where(self._these, st.mine_too, self._held))
        self._leaves: dict[Leaves, Prepared] = {}
        self.entry, self.exit = _entry(st.tables.sides), _exit(st.tables.sides)

    def _insertion(self) -> tuple[str, list[str]]:
        """The text, and which value goes where."""
        zero = sa.literal(0, sa.Integer(), literal_execute=True)
        values = {**{name: param(name) for name in _INSERTED}, **dict.fromkeys(_ZEROS, zero)}
        text, order = Prepared(sa.insert(self._jobs).values(values)).compiled(
            self._st.product.dialect, {f"p_{name}": name for name in _INSERTED}
        )
        return text, order

    def _take(self, picked: sa.Select[Any], swept: bool = False) -> Prepared:
        st, c = self._st, self._jobs.c
        # What is damaged is no integer, or the last one that there is: NULL, which the column refuses.
        integers = [sa.func.typeof(column) == "integer" for column in (c.attempts, c.token)]
        sound = sa.and_(*integers, c.attempts < MAX_ATTEMPTS, c.token < MAX_TOKEN)
        values = {**claimed_values(self._jobs, now), "attempts": sa.case((sound, c.attempts + 1))}
        change = sa.update(self._jobs).where(c.id.in_(picked)).values(values)
        if not swept:
            # Nothing is taken while something overdue may belong before it.
            change = change.where(~sa.exists().where(st.mine, c.wake_at <= now))
        return Prepared(change.returning(*st.tables.record))

    def beside(self, named: bool, lanes: int) -> Prepared:
        """Take the first job in none of so many groups; or the one with which a walk ends, behind
        :data:`~jobboard.backends.sql.heads.FAR`."""
        if (named, lanes) not in self._besides:
            st, c = self._st, self._jobs.c
            ready = sa.select(c.id).where(st.mine, c.state == literal(UNCLAIMED))
            walk = ready.where(c.name == text("name"), st.halves[1]) if named else ready
            last = walk.order_by(c.priority, c.id).offset(_written(FAR)).limit(_written(1))
            wanted = sa.or_(sa.and_(*st.outside(lanes)), c.id == last.scalar_subquery())
            all_names = st.in_order(sa.select(c.id).where(st.ready_condition(), wanted), None)
            self._besides[named, lanes] = self._take(st.of_name(wanted) if named else all_names)
        return self._besides[named, lanes]

    def leave(self, leaves: Leaves) -> Prepared:
        """Before the jobs go."""
        statement = self._leaves.get(leaves)
        if statement is None:
            tables, c = self._st.tables, self._jobs.c
            if leaves == "alike":
                insert = leaving(tables, c, self._these, self._st.mine_too, self._held)
            else:
                act = sa.func.json_each(text("results")).table_valued("value", name="act").c.value
                # No condition for another index: each of the acts is to look up its job, and not each job its act.
                mine = sa.func.coalesce(c.board, sa.literal("")) == text("board")
                same = c.uuid == sa.func.json_extract(act, "$[0]")
                insert = leaving(tables, c, same, mine, self._held, result=sa.func.json_extract(act, "$[1]"))
            statement = self._leaves[leaves] = Prepared(insert)
        return statement


class SQLiteShortcuts(Shortcuts):
    def __init__(self, store: SQLStore) -> None:
        super().__init__(store)
        self._board = store.base["p_board"]
        self._sql = store.statements.part(SQLiteStatements)
        self._heads = store.statements.part(SQLiteHeads)
        self._crowd = Crowd(store.statements)

    def insert(self, drafts: Sequence[Draft], nonce: Nonce) -> list[Record]:
        def work(link: Link) -> list[Record]:
            link.begin()
            [(instant, place)] = link.rows(self._sql.next, {})
            # Nobody else is given a place meanwhile.
            records = [draft.record(id_, instant) for id_, draft in enumerate(drafts, place)]
            link.cursor.executemany(self._sql.insert, [self._row(record) for record in records])
            self._commit(link, nonce, [whole(len(drafts))])
            return records

        return self.store.links.run(work)

    def _row(self, record: Record) -> tuple[Any, ...]:
        uuid, name, priority, id_, _, version, posting, state, _, max_attempts, *_, group, _ = record
        _, _, _, until, created_on, modified_on, *_ = record[10:]
        row = (uuid, name, priority, id_, version, posting, state.value, max_attempts, until, created_on)
        return (*row, modified_on, group, self._board, until)

    def take(self, request: TakeRequest, nonce: Nonce) -> Glance | None:
        return self._taken(request, None, nonce) if request.direct else None

    def enter(self, request: TakeRequest, limits: Limits, nonce: Nonce) -> Glance | None:
        look = self._taken(request, limits, nonce) if request.direct else None
        return None if look is None or look.overdue else look

    def _taken(self, request: TakeRequest, limits: Limits | None, nonce: Nonce) -> Glance | None:
        """None: not all of these jobs have room for sure."""

        def work(link: Link) -> tuple[list[Record] | None, bool]:
            """What it took, and whether to try again."""
            link.begin()
            # Several may fill scopes together: of these it takes the first ones, or none.
            alone = limits is not None and request.limit == 1
            full = self._crowd.full(link, self.store.base, request.gate) if alone else NOTHING
            statement, params = self._picking(link, request, full)
            records = [record_in(row, CLAIMED) for row in link.rows(statement, params)] if statement else []
            far = bool(records) and (records[0].name, records[0].group) in full.lanes
            if records and not far and (limits is None or self._enter(link, limits, records)):
                records.sort(key=serving_order)
                self._commit(link, nonce, taken(records))
                return records, False
            link.rollback()
            if far:
                self._crowd.found_far(params.get("p_name"))
            elif records and limits is not None:
                far = alone and self._crowd.meet(limits.scopes(records[0]), request.gate)
            return (None if records or any(full) else []), far

        for _ in range(TRIES):
            records, again = self.store.links.run(work)
            if not again:
                break
        if records is None:
            return None
        return Glance(records, False, 0) if records else nothing_ready(self.store)

    def _picking(self, link: Link, request: TakeRequest, full: Full) -> tuple[Prepared | None, dict[str, Any]]:
        """The statement that takes the first jobs beside full scopes, and its parameters; None: there are none."""
        params = {**self.store.base, **request.lease, **request.params}
        name = params.get("p_name")
        if not any(full):
            return self._sql.takes[name is not None, request.swept], params
        if not (full.names or self._crowd.is_far(name)):
            lanes, given = lanes_of(full.lanes)
            return self._sql.beside(name is not None, lanes), {**params, **given}

        def reads(statement: Prepared, more: dict[str, Any]) -> list[Row]:
            return link.rows(statement, {**self.store.base, **more})

        names = names_there(self.statements, reads) if name is None else [name]
        left = [each for each in names if each not in full.names]
        heads = self._heads.first(1, left, full.lanes, {"p_readable": request.readable}, reads)
        return (self._sql.take_one, {**params, "p_id": heads[0][1]}) if heads else (None, params)

    def _enter(self, link: Link, limits: Limits, claims: Sequence[Record]) -> bool:
        """Write these claims into the lists of their scopes; False where one of them may be full, or can't be told."""
        entries = entries_of(limits, claims)
        if not entries:
            return entries is not None
        version = secrets.randbits(62)
        link.many(self._sql.entry, [{**self.store.base, **each, "p_version": version} for each in entries])
        return bool(link.cursor.rowcount == len(entries))

    def end(self, acts: Sequence[Finish], held: Scopes, gate: int, nonce: Nonce) -> Ended | None:
        left = left_by(acts)
        if left is None or not of_one_token(acts):
            return None
        uuids = json.dumps([act.uuid for act in acts])
        params = {**self.store.base, **left.params, "p_uuids": uuids, "p_token": acts[0].holder.token}
        if left.leaves == "own":
            params["p_results"] = json.dumps([[act.uuid, act.result] for act in acts], ensure_ascii=False)
        left_ones = [
            {**self.store.base, "p_place": place_of(scope.key), "p_part": part} for scope, part in exits(acts, held)
        ]

        def work(link: Link) -> Ended:
            link.begin()
            if left.leaves != "nothing":
                link.count(self._sql.leave(left.leaves), params)
            if link.count(self._sql.consume, params) < len(acts):
                raise ConstraintViolated("not all of these claims stand")
            if left_ones:
                link.many(self._sql.exit, left_ones)
            unlisted = held if left_ones and link.cursor.rowcount < len(left_ones) else ()
            self._commit(link, nonce, [whole(len(acts))])
            return Ended(unlisted, gate)

        return self.store.links.run(work)

    def _commit(self, link: Link, nonce: Nonce, items: Items) -> None:
        self.store.keep(link, nonce, items)
        link.commit()


def _written(limit: int) -> sa.BindParameter[int]:
    return sa.literal(limit, sa.Integer(), literal_execute=True)


def _next(jobs: sa.Table) -> Prepared:
    """The time, and the next place."""
    sequence = sa.table("sqlite_sequence", sa.column("name", sa.String), sa.column("seq", sa.BigInteger))
    last = sa.select(sequence.c.seq).where(sequence.c.name == jobs.name).scalar_subquery()
    return Prepared(sa.select(now, sa.func.coalesce(last, 0) + 1))


# Lists of scopes: a BLOB each, of which SQLite makes a text where it puts something together


def _entry(sides: sa.Table) -> Prepared:
    """Write claims into a list that has room for them for sure."""
    c = sides.c
    told: dict[str, sa.ColumnElement[Any]]
    told = {"board": text("board"), "kind": _scope, "place": text("place"), "key": text("key")}
    told |= {"value": sa.cast(text("part"), sa.LargeBinary()), "version": param("version")}
    # Inline, or it returns a key, and then no count.
    upsert = insert(sides).values(told).inline()
    listed = sa.cast(c.value.op("||")(upsert.excluded.value), sa.LargeBinary())
    room = sa.and_(_whole(sides), sa.func.length(c.value) <= param("room"))
    key = [c.board, c.kind, c.place]
    changed = {"value": listed, "version": upsert.excluded.version}
    return Prepared(upsert.on_conflict_do_update(index_elements=key, set_=changed, where=room))


def _exit(sides: sa.Table) -> Prepared:
    """Take a claim that has ended from a list."""
    c = sides.c
    left = sa.cast(sa.func.replace(c.value, text("part"), ""), sa.LargeBinary())
    mine = (c.board == text("board"), c.kind == _scope, c.place == text("place"), _whole(sides))
    return Prepared(sa.update(sides).where(*mine).values(value=left, version=c.version + 1))


_scope = sa.literal_column(f"'{SCOPE}'", sa.String)


def _whole(sides: sa.Table) -> sa.ColumnElement[bool]:
    """Whether the list has nothing but claims of that length."""
    return sa.func.length(sides.c.value) % sa.literal_column(str(ENTRY), sa.Integer) == sa.literal_column("0")
