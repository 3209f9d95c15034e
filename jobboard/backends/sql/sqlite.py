"""SQLite's shortcuts. A transaction that writes is alone there, and most of what a statement costs is what Python adds:
so there are few of them, and they get their values as they are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from jobboard.backends.sql.answers import Items, taken, whole
from jobboard.backends.sql.looking import Glance, TakeRequest
from jobboard.backends.sql.outcomes import Leaves, leaving, left_by
from jobboard.backends.sql.rows import record_in
from jobboard.backends.sql.shortcuts import Shortcuts, nothing_ready, of_one_token
from jobboard.backends.sql.statements import claimed_values, held, now
from jobboard.backends.sql.store import SQLStore
from jobboard.backends.sql.tables import MAX_ATTEMPTS, MAX_TOKEN
from jobboard.primitives import Draft, Finish, Nonce
from jobboard.sql.links import ConstraintViolated, Link
from jobboard.sql.prepared import Prepared, param, text
from jobboard.states import CLAIMED, Record, serving_order

# As they lie in the table.
_INSERTED = (
    *("uuid", "name", "priority", "id", "version", "posting", "state", "max_attempts", "lock_until", "created_on"),
    *("modified_on", "job_group", "board", "wake_at"),
)
_ZEROS = ("attempts", "token", "retries")


class SQLiteShortcuts(Shortcuts):
    def __init__(self, store: SQLStore) -> None:
        super().__init__(store)
        st, c = self.statements, self.jobs.c
        self._board = store.base["p_board"]
        self._next = _next(self.jobs)
        self._insert, order = self._insertion()
        assert order == list(_INSERTED), order
        self._takes = {
            (named, swept): self._take(swept, *([c.name == text("name")] if named else []))
            for named in (False, True)
            for swept in (False, True)
        }
        given = sa.func.json_each(text("uuids")).table_valued("value")
        self._these = c.uuid.in_(sa.select(given.c.value))
        self._held = sa.and_(c.token == param("token"), held(self.jobs))
        self._consume = Prepared(sa.delete(self.jobs).where(self._these, st.mine_too, self._held))
        self._leaves: dict[Leaves, Prepared] = {}

    def _insertion(self) -> tuple[str, list[str]]:
        """The text, and which value goes where."""
        zero = sa.literal(0, sa.Integer(), literal_execute=True)
        values = {**{name: param(name) for name in _INSERTED}, **dict.fromkeys(_ZEROS, zero)}
        text, order = Prepared(sa.insert(self.jobs).values(values)).compiled(
            self.store.product.dialect, {f"p_{name}": name for name in _INSERTED}
        )
        return text, order

    def _take(self, swept: bool, *conditions: sa.ColumnElement[bool]) -> Prepared:
        st, c = self.statements, self.jobs.c
        picked = sa.select(c.id).where(st.ready_condition(), *conditions)
        if not swept:
            # Nothing is taken while something overdue may belong before it.
            picked = picked.where(~sa.exists().where(st.mine, c.wake_at <= now))
        # What is damaged is no integer, or the last one that there is: NULL, which the column refuses.
        integers = [sa.func.typeof(column) == "integer" for column in (c.attempts, c.token)]
        sound = sa.and_(*integers, c.attempts < MAX_ATTEMPTS, c.token < MAX_TOKEN)
        values = {**claimed_values(self.jobs, now), "attempts": sa.case((sound, c.attempts + 1))}
        change = sa.update(self.jobs).where(c.id.in_(st.in_order(picked, None))).values(values)
        return Prepared(change.returning(*st.tables.record))

    def insert(self, drafts: Sequence[Draft], nonce: Nonce) -> list[Record]:
        def work(link: Link) -> list[Record]:
            link.begin()
            [(instant, place)] = link.rows(self._next, {})
            # Nobody else is given a place meanwhile.
            records = [draft.record(id_, instant) for id_, draft in enumerate(drafts, place)]
            link.cursor.executemany(self._insert, [self._row(record) for record in records])
            self._commit(link, nonce, [whole(len(drafts))])
            return records

        return self.store.links.run(work)

    def _row(self, record: Record) -> tuple[Any, ...]:
        uuid, name, priority, id_, _, version, posting, state, _, max_attempts, *_, group, _ = record
        _, _, _, until, created_on, modified_on, *_ = record[10:]
        row = (uuid, name, priority, id_, version, posting, state.value, max_attempts, until, created_on)
        return (*row, modified_on, group, self._board, until)

    def take(self, request: TakeRequest, nonce: Nonce) -> Glance | None:
        if not request.direct:
            return None
        statement = self._takes[request.names is not None, request.swept]
        params = {**self.store.base, **request.lease, **request.params}

        def work(link: Link) -> list[Record]:
            link.begin()
            records = [record_in(row, CLAIMED) for row in link.rows(statement, params)]
            if not records:
                link.rollback()
                return []
            records.sort(key=serving_order)
            self._commit(link, nonce, taken(records))
            return records

        records = self.store.links.run(work)
        return Glance(records, False, 0) if records else nothing_ready(self.store)

    def consume(self, acts: Sequence[Finish], nonce: Nonce) -> bool:
        left = left_by(acts)
        if left is None or not of_one_token(acts):
            return False
        uuids = json.dumps([act.uuid for act in acts])
        params = {**self.store.base, **left.params, "p_uuids": uuids, "p_token": acts[0].holder.token}
        if left.leaves == "own":
            params["p_results"] = json.dumps([[act.uuid, act.result] for act in acts], ensure_ascii=False)

        def work(link: Link) -> None:
            link.begin()
            if left.leaves != "nothing":
                link.count(self._leave(left.leaves), params)
            if link.count(self._consume, params) < len(acts):
                raise ConstraintViolated("not all of these claims stand")
            self._commit(link, nonce, [whole(len(acts))])

        self.store.links.run(work)
        return True

    def _leave(self, leaves: Leaves) -> Prepared:
        """Before the jobs go."""
        statement = self._leaves.get(leaves)
        if statement is None:
            tables, c = self.statements.tables, self.jobs.c
            if leaves == "alike":
                insert = leaving(tables, c, self._these, self.statements.mine_too, self._held)
            else:
                act = sa.func.json_each(text("results")).table_valued("value", name="act").c.value
                # No condition for another index: each of the acts is to look up its job, and not each job its act.
                mine = sa.func.coalesce(c.board, sa.literal("")) == text("board")
                same = c.uuid == sa.func.json_extract(act, "$[0]")
                insert = leaving(tables, c, same, mine, self._held, result=sa.func.json_extract(act, "$[1]"))
            statement = self._leaves[leaves] = Prepared(insert)
        return statement

    def _commit(self, link: Link, nonce: Nonce, items: Items) -> None:
        self.store.keep(link, nonce, items)
        link.commit()


def _next(jobs: sa.Table) -> Prepared:
    """The time, and the next place."""
    sequence = sa.table("sqlite_sequence", sa.column("name", sa.String), sa.column("seq", sa.BigInteger))
    last = sa.select(sequence.c.seq).where(sequence.c.name == jobs.name).scalar_subquery()
    return Prepared(sa.select(now, sa.func.coalesce(last, 0) + 1))
