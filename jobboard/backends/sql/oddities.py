"""Rows that no board can have written: what a claim sets aside as it meets it, and what else is odd."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

import sqlalchemy as sa

from jobboard.backends.sql.answers import DONE, Items
from jobboard.backends.sql.rows import record_of
from jobboard.backends.sql.statements import SWEEP, Statements
from jobboard.backends.sql.tables import MAX_ATTEMPTS, MAX_TOKEN, PURGED, RECORD, STORED, literal
from jobboard.backends.sql.writing import set_aside
from jobboard.primitives import RANKS
from jobboard.sql.claims import locking
from jobboard.sql.prepared import Prepared, Runner, param
from jobboard.states import CLAIMED, SCHEDULED, TRASHED, UNCLAIMED, Record

if TYPE_CHECKING:
    from jobboard.backends.sql.store import SQLStore

LOG = logging.getLogger(__name__)

_PAGE = 500

Sign = tuple[sa.ColumnElement[bool], str]


def _unclaimable(st: Statements) -> list[Sign]:
    """Of which the database refuses the claim, and with it that of all the others of the same request."""
    c = st.jobs.c
    found: list[Sign] = []
    if st.product.dialect.name == "sqlite":
        # Which takes anything into any column.
        found = [(sa.func.typeof(c[name]) != "integer", f"its {name} is no integer") for name in ("token", "attempts")]
    return [
        *found,
        (c.token >= MAX_TOKEN, "its token is the last one that there is"),
        (c.attempts >= MAX_ATTEMPTS, "its attempts are the most that can be counted"),
    ]


def _odd(st: Statements) -> list[Sign]:
    c = st.jobs.c
    ranked = c.priority.between(RANKS[0], RANKS[-1])
    shown = sa.and_(c.gone_on.is_not(None), c.gone_on > 0)
    live = c.state.in_([literal(state) for state in (UNCLAIMED, SCHEDULED, CLAIMED)])
    return [
        *_unclaimable(st),
        (sa.not_(ranked), "its priority is none: the claim that meets it sends it to the trash"),
        (c.state.not_in([literal(state) for state in (*STORED, PURGED)]), "its state is none: nobody sees the job"),
        (sa.and_(c.state == literal(CLAIMED), c.lock_until.is_(None)), "it is claimed, and the claim has no end"),
        (sa.and_(c.state == literal(SCHEDULED), c.lock_until.is_(None)), "it is scheduled, and for no time"),
        (sa.and_(live, c.lock_until.is_not(None), c.wake_at.is_(None)), "nobody looks at it when its time has come"),
        (sa.and_(live, c.key.is_not(None), c.live_key.is_(None)), "its key is not held: another job may have it"),
        (sa.and_(c.state == literal(TRASHED), sa.not_(shown)), "it is in the trash, and nobody finds it there"),
        (
            sa.and_(c.state == literal(TRASHED), shown, c.gone_on != c.modified_on),
            "it is in the trash, and was changed at another time than it went there",
        ),
        (sa.and_(live, shown), "it is counted as in the trash, and is not there"),
        (sa.and_(c.errors.is_not(None), c.errors.not_like("[{%}]")), "its errors are no list of failures"),
        (c.job_group == "", "its group is an empty text, which no post can give it"),
    ]


def _reason(signs: list[Sign]) -> sa.ColumnElement[str]:
    return sa.case(*((condition, sa.literal(reason, sa.String())) for condition, reason in signs))


class Aside:
    """Puts into the trash what can't be claimed."""

    def __init__(self, statements: Statements) -> None:
        self._st = st = statements
        c = st.jobs.c
        signs = _unclaimable(st)
        select = sa.select(*st.tables.record, st.instant, _reason(signs)).where(
            st.mine, c.state == literal(UNCLAIMED), sa.or_(*(condition for condition, _ in signs))
        )
        self._pick = Prepared(locking(select.limit(sa.literal(SWEEP, sa.Integer(), literal_execute=True)), st.product))

    def __call__(self, run: Runner, board: str) -> tuple[list[Record], Items]:
        trashed = []
        for row in run.rows(self._pick, {"p_board": board}):
            record = record_of(row)
            assert record is not None
            error = f"the row is damaged: {row[RECORD + 1]}"
            trashed.append(set_aside(run, self._st, record, row[RECORD], error))
            LOG.warning("job %s goes to the trash: %s", record.uuid, error)
        return trashed, DONE if trashed else []


def odd_rows(store: SQLStore) -> Iterator[tuple[str, str]]:
    """Of this board's jobs those that no board can have written: where each is, and what is odd about it. Reads the
    whole table, in pages."""
    st = store.statements
    c = st.jobs.c
    signs = _odd(st)
    odd = sa.or_(*(condition for condition, _ in signs))
    page = Prepared(
        sa.select(c.id, c.uuid, _reason(signs))
        .where(st.mine, c.id > param("id"), odd)
        .order_by(c.id)
        .limit(sa.literal(_PAGE, sa.Integer(), literal_execute=True))
    )
    last = -(2**63)
    while rows := store.query(page, p_id=last):
        for number, uuid, reason in rows:
            yield f"table {st.jobs.name}, id {number}, job {uuid}", reason
        last = rows[-1][0]
