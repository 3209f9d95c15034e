"""What consumed jobs have left, in rows of their own: people query them, and they are found by when they ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import sqlalchemy as sa

from jobboard.backends.sql.statements import Statements
from jobboard.backends.sql.tables import OUTCOME, Tables
from jobboard.codec import failures_as_json, failures_from_json
from jobboard.engine import Done, Mark, turns
from jobboard.primitives import Finish
from jobboard.sql.dialects import insert_new
from jobboard.sql.expressions import Now, Veiled
from jobboard.sql.hints import by_index
from jobboard.sql.prepared import LONGEST, Prepared, Row, Runner, chunks, elements, param, text
from jobboard.states import COMPLETE, Record

DROPPED = 500
"""How many rows one statement drops at most, so that it is soon done; half as many where one who writes is alone."""

now = Now()

_CHECKPOINT = Prepared(sa.text("PRAGMA wal_checkpoint(PASSIVE)"))
"""SQLite's, which waits for nobody and stops nobody."""

Rows = Callable[..., list[Row]]


_COPIED = (
    *("uuid", "board", "name", "priority", "id", "key", "version", "posting", "attempts", "max_attempts", "token"),
    *("who", "created_on", "errors", "retries", "job_group"),
)
"""The columns that are as they were in the job's row."""

Leaves = Literal["nothing", "alike", "own"]
"""What the jobs of one call leave: nothing, outcomes with the same result, or each with a result of its own."""


class KeepTerms(NamedTuple):
    """:param params: ``p_keep`` and, if ``alike``, ``p_result`` and ``p_refused``."""

    leaves: Leaves
    params: dict[str, Any]


NOTHING = KeepTerms("nothing", {})


def left_by(acts: Sequence[Finish]) -> KeepTerms | None:
    """What these acts leave; None where that is too mixed for one statement."""
    [keep, *others] = {act.keep for act in acts}
    if others:
        return None
    if not keep:
        return NOTHING
    first = acts[0].result, acts[0].refused
    if all((act.result, act.refused) == first for act in acts):
        return KeepTerms("alike", {"p_keep": keep, "p_result": first[0], "p_refused": first[1]})
    return None if any(act.refused is not None for act in acts) else KeepTerms("own", {"p_keep": keep})


def leaving(
    tables: Tables,
    jobs: Any,
    *conditions: sa.ColumnElement[bool],
    result: sa.ColumnElement[Any] | None = None,
    source: Any = None,
) -> sa.Insert:
    """Insert the outcomes of these rows of the jobs' table.

    :param jobs: its columns, by name.
    :param result: each row's own, of ``source``; None: ``p_result`` and ``p_refused`` are those of all.
    """
    told = {"result": text("result"), "refused": text("refused")} if result is None else {"result": result}
    values = {
        **{name: jobs[name] for name in _COPIED},
        "begun": jobs["modified_on"],
        "modified_on": now,
        "until": now + param("keep"),
        **told,
    }
    rows = by_index(sa.select(*values.values()).where(*conditions), tables.jobs, f"{tables.prefix}_uuid")
    return sa.insert(tables.outcomes).from_select(list(values), rows if source is None else rows.select_from(source))


class OutcomeStatements:
    def __init__(self, statements: Statements) -> None:
        t = statements.tables.outcomes
        prefix = statements.tables.prefix
        mine = t.c.board == text("board")
        of = sa.and_(t.c.uuid.in_(elements("uuids", sa.String())), Veiled(t.c.board) == text("board"))
        # For rows that another index finds: by the one on this column PostgreSQL might walk past all that have ended.
        until = t.c.until + sa.literal_column("0", sa.Integer)
        found = sa.select(*(t.c[name] for name in OUTCOME)).where(until > now)
        columns = (column for column in t.c)
        values = {c.name: param(c.name, sa.String() if isinstance(c.type, sa.String) else c.type) for c in columns}
        self.insert = Prepared(insert_new(t, statements.product.dialect).values(values))
        self.of = Prepared(found.where(of), "p_uuids")
        in_order = found.where(mine).order_by(t.c.modified_on.desc(), t.c.id.desc()).limit(param("limit"))
        behind = sa.or_(
            t.c.modified_on < param("when"), sa.and_(t.c.modified_on == param("when"), t.c.id < param("id"))
        )
        pages = (in_order, in_order.where(t.c.modified_on <= param("when"), behind))
        self.first, self.next = (Prepared(by_index(page, t, f"{prefix}_outcomes_newest")) for page in pages)
        self.most = DROPPED // 2 if statements.product.exclusive else DROPPED
        most = sa.literal(self.most, sa.Integer(), literal_execute=True)
        old = sa.select(t.c.uuid).where(mine, t.c.until <= now).order_by(t.c.until).limit(most)
        self.old = Prepared(by_index(old, t, f"{prefix}_outcomes_until"))
        self.gone = Prepared(sa.delete(t).where(of, until <= now), "p_uuids")


class OutcomeRows:
    """:param query: runs a statement that reads, by itself."""

    def __init__(self, statements: Statements, base: dict[str, Any], query: Rows) -> None:
        self._base = base
        self._query = query
        self._st = statements.part(OutcomeStatements)
        self._alone = statements.product.exclusive

    def write(self, run: Runner, mark: Mark) -> None:
        """Nothing is read for it: no job is consumed twice, and what arrived with it from another board stays."""
        done = Done.of(mark.before._replace(value=mark.value))
        assert done is not None
        record = done.record
        row = {
            **{name: getattr(record, name) for name in _AS_IT_IS},
            "id": record.sequence,
            "errors": failures_as_json(record.errors),
            "job_group": record.group,
            "begun": done.begun,
            "until": mark.end(record.modified_on),
            "result": done.result,
            "refused": done.refused,
        }
        run.count(self._st.insert, {**self._base, **{f"p_{name}": value for name, value in row.items()}})

    def of(self, uuids: Sequence[str]) -> list[Done | None]:
        found: dict[str, Done] = {}
        for some in chunks(uuids, LONGEST):
            found.update((row[0], _done(row)) for row in self._query(self._st.of, p_uuids=some))
        return [found.get(uuid) for uuid in uuids]

    def page(self, after: Done | None, limit: int) -> list[Done]:
        if after is None:
            rows = self._query(self._st.first, p_limit=limit)
        else:
            place = {"p_when": after.record.modified_on, "p_id": after.record.sequence}
            rows = self._query(self._st.next, p_limit=limit, **place)
        return [_done(row) for row in rows]

    def tidy(self, clean: Callable[..., float], seconds: float) -> bool:
        """Drop what has ended, some at a time; whether there may be more.

        :param clean: runs a statement that deletes, and tells for how many seconds its transaction stood."""
        for _ in turns(seconds):
            old = [row[0] for row in self._query(self._st.old)]
            held = clean(self._st.gone, p_uuids=old) if old else 0.0
            if len(old) < self._st.most:
                return False
            if self._alone:
                # What this has written would else be copied into the file by the commit of the next one.
                self._query(_CHECKPOINT)
                # Who waits asks ever less often there: let it meet with a rest more often than with a step. The wait
                # for its own turn stops nobody.
                time.sleep(2 * held)
        return True


_AS_IT_IS = (
    *("uuid", "name", "priority", "key", "version", "posting", "attempts", "max_attempts", "token", "who"),
    *("created_on", "modified_on", "retries"),
)


def _done(row: Row) -> Done:
    values = dict(zip(OUTCOME, row, strict=True))
    begun, until, result, refused = (values.pop(name) for name in ("begun", "until", "result", "refused"))
    values |= {"sequence": values.pop("id"), "group": values.pop("job_group")}
    values["errors"] = failures_from_json(values["errors"])
    return Done(Record(**values, state=COMPLETE, keeper=None, lock_until=None), begun, until, result, refused)
