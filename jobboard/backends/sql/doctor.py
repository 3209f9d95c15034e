"""What is odd in the tables of a board, and how its database is set up: for ``board.examine()``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from jobboard.backends.sql.oddities import odd_rows
from jobboard.backends.sql.statements import HOUR
from jobboard.backends.sql.tables import literal
from jobboard.exceptions import JobFailure
from jobboard.primitives import Oddity
from jobboard.sql.prepared import Prepared, param
from jobboard.states import TRASHED, UNCLAIMED

if TYPE_CHECKING:
    from jobboard.backends.sql.store import SQLStore

PINNED = 60.0
"""For how many seconds a transaction may be open before it is told of."""

_PAGE = 500
_ROW = "the claim that meets it may move it to the trash; else put the row right, or delete it, by hand"

_SETTINGS: dict[str, list[tuple[str, str, tuple[str, ...]]]] = {
    "postgresql": [
        ("fsync", "current_setting('fsync')", ("on",)),
        (
            "synchronous_commit",
            "current_setting('synchronous_commit')",
            ("on", "local", "remote_write", "remote_apply"),
        ),
    ],
    "mysql": [("innodb_flush_log_at_trx_commit", "@@innodb_flush_log_at_trx_commit", ("1",))],
    "sqlite": [],
}
_SETTINGS["mariadb"] = _SETTINGS["mysql"]
"""Of each database what may lose what it has acknowledged: its name, how to ask for it, and what does not."""


def examine(store: SQLStore) -> Iterator[Oddity]:
    yield from pins(store)
    yield from (Oddity(place, reason, _ROW) for place, reason in odd_rows(store))
    yield from _rows(store)
    yield from _answers(store)
    yield from _outcomes(store)


def weak_settings(store: SQLStore, synchronous: str) -> Iterator[str]:
    """Yield the settings by which a crash of the server's machine may lose what was acknowledged: one request, and none
    to SQLite.

    :param synchronous: the board's own option.
    """
    dialect = store.product.dialect.name
    if dialect == "sqlite" and synchronous != "full":
        yield "the option synchronous is normal, leave it out"
    settings = _SETTINGS.get(dialect, [])
    if not settings:
        return
    asked = (sa.literal_column(expression, sa.String()) for _, expression, _ in settings)
    [values] = store.query(Prepared(sa.select(*asked)))
    for (name, _, safe), value in zip(settings, values, strict=True):
        if str(value) not in safe:
            yield f"{name} is {value}, set it to {safe[0]}"


def pins(store: SQLStore, since: float = PINNED) -> Iterator[Oddity]:
    """The transactions that have been open for longer than ``since`` seconds, as far as the board's user may see them.
    What was done since one began can't be cleared away, and whoever looks for a job walks past it."""
    look = _PINS.get(store.statements.product.dialect.name)
    if look is None:
        return
    try:
        rows = [row for select in look() for row in store.query(Prepared(select))]
    except JobFailure:
        # MariaDB and MySQL show these only to users with the privilege PROCESS.
        return
    for what, who, state, age, end in rows:
        if age is not None and age >= since:
            told = f" ({state})" if state else ""
            reason = f"its transaction has been open for {int(age)} s{told}: what was done since can't be cleared away"
            yield Oddity(f"{what} of {who}" if who else str(what), reason, f"have it end, or end it: {end}")


def _postgresql_pins() -> Iterator[sa.Select[Any]]:
    def text(expression: sa.ColumnElement[Any]) -> sa.ColumnElement[str]:
        return sa.cast(expression, sa.Text)

    def age(since: sa.ColumnElement[Any]) -> sa.ColumnElement[float]:
        return sa.cast(sa.extract("epoch", sa.func.clock_timestamp() - since), sa.Float)

    names = ("pid", "usename", "application_name", "state", "xact_start", "backend_xmin", "backend_xid")
    c = sa.table("pg_stat_activity", *map(sa.column, names), schema="pg_catalog").c
    application = sa.case((c.application_name != "", " in " + c.application_name), else_="")
    yield sa.select(
        *("session " + text(c.pid), c.usename + application, c.state, age(c.xact_start)),
        "SELECT pg_terminate_backend(" + text(c.pid) + ")",
    ).where(sa.or_(c.backend_xmin.is_not(None), c.backend_xid.is_not(None)), c.pid != sa.func.pg_backend_pid())
    p = sa.table("pg_prepared_xacts", *map(sa.column, ("gid", "owner", "prepared")), schema="pg_catalog").c
    yield sa.select(
        *("prepared transaction " + p.gid, p.owner, sa.literal("prepared"), age(p.prepared)),
        "COMMIT PREPARED or ROLLBACK PREPARED '" + p.gid + "'",
    )


def _mysql_pins() -> Iterator[sa.Select[Any]]:
    of_innodb = ("trx_mysql_thread_id", "trx_started")
    open_ones = sa.table("innodb_trx", *map(sa.column, of_innodb), schema="information_schema")
    t = open_ones.c
    names = ("id", "user", "host", "command")
    of = sa.table("processlist", *map(sa.column, names), schema="information_schema")
    p = of.c
    age = sa.func.timestampdiff(sa.literal_column("SECOND"), t.trx_started, sa.func.now())
    number = sa.cast(t.trx_mysql_thread_id, sa.String(20))
    yield sa.select(
        *(sa.func.concat("session ", number), sa.func.concat(p.user, "@", p.host), p.command, age),
        sa.func.concat("KILL ", number),
    ).select_from(sa.join(open_ones, of, p.id == t.trx_mysql_thread_id))


_PINS = {"postgresql": _postgresql_pins, "mysql": _mysql_pins, "mariadb": _mysql_pins}


def _rows(store: SQLStore) -> Iterator[Oddity]:
    st = store.statements
    c = st.jobs.c
    leased = sa.and_(c.state == literal(UNCLAIMED), sa.or_(c.lock_until.is_not(None), c.wake_at.is_not(None)))
    kept = sa.and_(c.state == literal(TRASHED), c.live_key.is_not(None))
    reason = sa.case(
        (leased, sa.literal("nobody has claimed it, and it has a lease", sa.String())),
        else_=sa.literal("it is in the trash, and holds its key: no other job can be posted with that", sa.String()),
    )
    page = Prepared(
        sa.select(c.id, c.uuid, reason)
        .where(st.mine, c.id > param("id"), sa.or_(leased, kept))
        .order_by(c.id)
        .limit(sa.literal(_PAGE, sa.Integer(), literal_execute=True))
    )
    last = -(2**63)
    while rows := store.query(page, p_id=last):
        for number, uuid, what in rows:
            advice = (
                "'jobboard cancel' puts it into the trash, and 'jobboard trash restore' back"
                if "lease" in what
                else ("'jobboard trash purge' frees it")
            )
            yield Oddity(f"table {st.jobs.name}, id {number}, job {uuid}", what, advice)
        last = rows[-1][0]


def _answers(store: SQLStore) -> Iterator[Oddity]:
    st = store.statements
    answers = st.tables.answers
    [(count,)] = store.query(
        Prepared(sa.select(sa.func.count()).select_from(answers).where(answers.c.stamp < st.instant - 2 * HOUR))
    )
    if count:
        advice = "boards drop these when they connect: see whether their user may delete from it"
        yield Oddity(f"table {answers.name}", f"{count} answers are older than an hour", advice)


def _outcomes(store: SQLStore) -> Iterator[Oddity]:
    st = store.statements
    outcomes = st.tables.outcomes
    [(count,)] = store.query(
        Prepared(sa.select(sa.func.count()).select_from(outcomes).where(outcomes.c.until < st.instant - HOUR))
    )
    if count:
        advice = "boards drop these every ten minutes: see whether one is open, and whether its user may delete from it"
        yield Oddity(f"table {outcomes.name}", f"{count} outcomes have ended more than an hour ago", advice)
