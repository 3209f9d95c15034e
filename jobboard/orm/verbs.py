"""The verbs of a claimable class, within one transaction of a session's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Mapper, Session
from sqlalchemy.orm.util import object_state

from jobboard.exceptions import JobFailure
from jobboard.job import boottime
from jobboard.orm.holding import Acquisition
from jobboard.orm.rows import (
    BATCH,
    Condition,
    Held,
    Key,
    change,
    key_of,
    keyed,
    lock,
    lock_held,
    named,
    table_of,
)
from jobboard.orm.undoing import on_rollback, reload_on_rollback, remember, show
from jobboard.sql.claims import PRIMARY, ClaimStatements, First, by_index
from jobboard.sql.dialects import database
from jobboard.sql.expressions import Exact, Now, chunks, param
from jobboard.sql.runners import CallersConnection, Row
from jobboard.states import moment

SECOND = 1_000_000
HELD = "jobboard.acquisition"
"""Where an object keeps its acquisition."""
_COLUMNS = ("acquired_by", "acquired_at", "acquired_until", "acquired_token")


class Wanted(NamedTuple):
    """What is to be acquired. Times are in µs."""

    who: str
    where: Sequence[Any]
    order_by: Sequence[Any]
    limit: int
    timeout: int
    instant: int | None


class Reacquired(NamedTuple):
    """What became of rows that were to be held on to."""

    kept: list[Any]
    lost: list[Any]


def mapper_of(model: type[Any]) -> Mapper[Any]:
    mapper: Mapper[Any] = sa.inspect(model)
    if mapper.persist_selectable is not table_of(mapper):
        raise TypeError(f"{model.__name__} is stored in several tables; acquire the class that it inherits from")
    return mapper


def connection_of(session: Session, mapper: Mapper[Any]) -> Connection:
    return session.connection({"mapper": mapper})


def now(session: Session) -> int:
    """The database's time, in µs."""
    return session.scalars(sa.select(Now())).one()


def acquire(session: Session, model: type[Any], wish: Wanted) -> list[Any]:
    mapper = mapper_of(model)
    connection = connection_of(session, mapper)
    asked = boottime()
    keys = len(mapper.primary_key)
    taken = {tuple(row[:keys]): row[keys:] for row in _RowTaker(session, mapper, wish).take()}
    objects = {}
    for some in chunks(list(taken), BATCH):
        found = sa.select(model).where(keyed(mapper, some)).execution_options(populate_existing=True)
        objects.update({key_of(row): row for row in session.scalars(found).unique()})
    # What the session adds to its selects may be true no longer, as another has changed a row before it was locked.
    release(connection, mapper, [key for key in taken if key not in objects])
    for key, row in objects.items():
        token, instant = taken[key]
        begun = instant if wish.instant is None else wish.instant
        deadline = asked + (begun + wish.timeout - instant) / SECOND
        # Rolled back, it stays with the object, which nobody may write to as if it had not been acquired.
        object_state(row).info[HELD] = acquisition = Acquisition(wish.who, token + 1, deadline)
        on_rollback(session, acquisition.taken_away)
    reload_on_rollback(session, list(objects.values()), *_COLUMNS)
    return [objects[key] for key in taken if key in objects]


class _RowTaker:
    def __init__(self, session: Session, mapper: Mapper[Any], wish: Wanted) -> None:
        connection = connection_of(session, mapper)
        self._session = session
        self._run = CallersConnection(connection)
        self._mapper = mapper
        self._wish = wish
        self._product = database(connection.dialect)
        self._key = mapper.primary_key
        self._token = mapper.columns["acquired_token"]
        until = mapper.columns["acquired_until"]
        self._free = sa.or_(until.is_(None), until <= Now())
        columns = (*self._key, self._token)
        identity: dict[int, Any] = dict(enumerate(columns))
        self._claim = ClaimStatements(self._product, table_of(mapper), self._values, identity, self._free)
        self._select = self._wished(columns).limit(param("limit", sa.Integer()))

    def take(self) -> Sequence[Row]:
        # The session may narrow its selects, as for rows that count as deleted, and only its own.
        narrowed = bool(self._session.dispatch.do_orm_execute)
        if narrowed or (self._product.skip_locked and not self._product.returning):
            return self._of_candidates()
        return self._first(self._select, self._wish.limit)

    def _of_candidates(self) -> list[Row]:
        # What it sorts, MySQL has locked; and nobody can say which index the caller's order would need. So the order is
        # found first without a lock, and no more is locked than is going to be taken.
        taken: list[Row] = []
        seen: list[Key] = []
        attributes = [self._mapper.get_property_by_column(column).class_attribute for column in self._key]
        while True:
            # Others are at the first ones, if these were not enough: so then it looks far ahead at once.
            select = self._wished(attributes).limit(10 * BATCH if seen else BATCH)
            if seen:
                select = select.where(sa.not_(keyed(self._mapper, seen)))
            candidates = [tuple(row) for row in self._session.execute(select)]
            if not candidates:
                return taken
            seen += candidates
            while candidates:
                missing = self._wish.limit - len(taken)
                size = min(missing, BATCH)
                some, candidates = candidates[:size], candidates[size:]
                chosen = by_index(self._select.where(keyed(self._mapper, some)), table_of(self._mapper), PRIMARY)
                taken += self._first(chosen, missing)
                if len(taken) == self._wish.limit:
                    return taken

    def _first(self, select: sa.Select[Any], limit: int) -> Sequence[Row]:
        params = {"p_limit": limit, "p_who": self._wish.who, "p_timeout": self._wish.timeout}
        return First(self._claim, select)(self._run, params)

    def _wished(self, columns: Iterable[Any]) -> sa.Select[Any]:
        conditions = [self._free, *self._wish.where]
        mapper = self._mapper
        if mapper.single:
            kinds = [each.polymorphic_identity for each in mapper.self_and_descendants]
            conditions.append(mapper.polymorphic_on.in_(kinds))  # type: ignore[union-attr]
        return sa.select(*columns).where(*conditions).order_by(*(self._wish.order_by or self._key))

    def _values(self, instant: sa.ColumnElement[int]) -> dict[Any, Any]:
        return {
            self._mapper.columns["acquired_by"]: param("who", Exact()),
            self._token: self._token + 1,
            **_lease(self._mapper, instant, self._wish.instant, param("timeout")),
        }


def _lease(mapper: Mapper[Any], now: Any, instant: int | None, timeout: Any) -> dict[Any, Any]:
    begun = now if instant is None else sa.literal(instant, sa.BigInteger())
    return {mapper.columns["acquired_at"]: begun, mapper.columns["acquired_until"]: begun + timeout}


def acquired(session: Session, model: type[Any], who: str, where: Sequence[Any]) -> list[Any]:
    select = sa.select(model).where(model.acquired_by == who, *where).order_by(*sa.inspect(model).primary_key)
    return list(session.scalars(select.execution_options(populate_existing=True)).unique())


def held_by(row: Any, who: str) -> dict[str, Any]:
    """What a row has as long as this object, or failing that, anybody of this name holds it."""
    acquisition: Acquisition | None = row.acquisition
    if acquisition is None:
        return {"acquired_by": who}
    if acquisition.who != who:
        name = named(type(row), key_of(row))
        raise JobFailure(f"{name} was acquired by {acquisition.who!r}, not by {who!r}: give the name that acquired it")
    return {"acquired_by": who, "acquired_token": acquisition.token}


def reacquire(
    session: Session, model: type[Any], who: str, rows: Sequence[Any] | None, timeout: int, instant: int | None
) -> Reacquired:
    if rows is None:
        stored = acquired(session, model, who, ())
        rows = list({key_of(row): row for row in (*stored, *_in_hand(session, model, who))}.values())
    mapper = mapper_of(model)
    held = {key_of(row): held_by(row, who) for row in rows}
    asked = boottime()
    locked = renew(connection_of(session, mapper), mapper, held, timeout, instant)
    for row in rows:
        if key_of(row) in locked:
            now = locked[key_of(row)]
            begun = now if instant is None else instant
            _extended(session, row, who, begun, timeout, asked + (begun + timeout - now) / SECOND)
        elif row.acquisition is not None:
            row.acquisition.taken_away()
    return Reacquired(
        [row for row in rows if key_of(row) in locked], [row for row in rows if key_of(row) not in locked]
    )


def renew(
    connection: Connection, mapper: Mapper[Any], held: Held, timeout: int, instant: int | None, *, skip: bool = False
) -> dict[Key, int]:
    """Extend what is still held; the time for each row of that."""
    locked = lock_held(connection, mapper, held, skip=skip)
    for some in chunks(list(locked), BATCH):
        lease = _lease(mapper, Now(), instant, timeout)
        connection.execute(change(mapper, some).values(lease))
    return locked


def unacquire(session: Session, model: type[Any], who: str, rows: Sequence[Any] | None, where: Sequence[Any]) -> int:
    mapper = mapper_of(model)
    connection = connection_of(session, mapper)
    if rows is None:
        mine = sa.and_(mapper.columns["acquired_by"] == who, *where)
        released = _release_all(connection, mapper, mine, skip=False)
        rows = _in_hand(session, model, who)
    else:
        held = {key_of(row): held_by(row, who) for row in rows}
        released = list(lock_held(connection, mapper, held, *where))
        release(connection, mapper, released)
    gone = set(released)
    forgotten = [row for row in rows if key_of(row) in gone]
    remember(session, forgotten, HELD, None)
    show(session, forgotten, {"acquired_by": None, "acquired_at": None, "acquired_until": None})
    for row in rows:
        if key_of(row) not in gone and row.acquisition is not None and not where:
            row.acquisition.taken_away()
    return len(released)


def unacquire_timed_out(session: Session, model: type[Any], where: Sequence[Any], now: int | None) -> int:
    mapper = mapper_of(model)
    until = mapper.columns["acquired_until"]
    late = until < (Now() if now is None else sa.literal(now, sa.BigInteger()))
    condition = sa.and_(mapper.columns["acquired_by"].is_not(None), late, *where)
    return len(_release_all(connection_of(session, mapper), mapper, condition, skip=True))


def _release_all(connection: Connection, mapper: Mapper[Any], condition: Condition, *, skip: bool) -> list[Key]:
    released: list[Key] = []
    found = connection.execute(sa.select(*mapper.primary_key).where(condition))
    for some in chunks([tuple(row) for row in found], BATCH):
        locked = lock(connection, mapper, sa.and_(keyed(mapper, some), condition), skip=skip)
        release(connection, mapper, locked)
        released += locked
    return released


def release(connection: Connection, mapper: Mapper[Any], keys: Sequence[Key]) -> None:
    nobody = dict.fromkeys(mapper.columns[f"acquired_{what}"] for what in ("by", "at", "until"))
    for some in chunks(keys, BATCH):
        connection.execute(change(mapper, some).values(nobody))


def _in_hand(session: Session, model: type[Any], who: str) -> list[Any]:
    """The session's own objects that hold rows under this name."""
    mine = (row for row in session.identity_map.values() if isinstance(row, model))
    return [row for row in mine if row.acquisition is not None and row.acquisition.who == who]


def _extended(session: Session, row: Any, who: str, begun: int, timeout: int, deadline: float) -> None:
    show(session, [row], {"acquired_at": moment(begun), "acquired_until": moment(begun + timeout)})
    if row.acquisition is None:
        remember(session, [row], HELD, Acquisition(who, row.acquired_token, deadline))
    else:
        on_rollback(session, row.acquisition.extended(deadline))
