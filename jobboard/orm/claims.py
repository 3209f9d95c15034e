"""The verbs of a claimable class, within a transaction of a session, and the acquisitions of its objects."""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Dialect, Engine
from sqlalchemy.orm import Mapper, Session
from sqlalchemy.orm.util import object_state
from sqlalchemy.util import await_only

from jobboard import runtime
from jobboard.arguments import aware
from jobboard.exceptions import JobFailure
from jobboard.heartbeat import Heartbeat
from jobboard.orm.rows import key_of, lost_error, name_of, table_of
from jobboard.orm.sessions import (
    commit_with,
    on_rollback,
    reload_on_rollback,
    remember,
    repeat_if_interrupted,
    roll_back,
    run,
    show,
    transact,
)
from jobboard.sql.clients import gives_one
from jobboard.sql.expressions import chunks
from jobboard.sql.lease import LOCKED_AT_ONCE, Held, Key, RowLease, Term, first_of, has_keys
from jobboard.states import moment
from jobboard.units import SECOND

LOG = logging.getLogger(__name__)

M = TypeVar("M")

HELD = "jobboard.acquisition"
"""The key of an object's acquisition in its ``info``."""


class Moment(sa.TypeDecorator[datetime.datetime]):
    """An aware time, stored as microseconds since 1970 in UTC."""

    impl = sa.BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime.datetime | None, dialect: Dialect) -> int | None:
        return None if value is None else aware("time", value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime.datetime | None:
        return None if value is None else moment(value)


class Acquisition:
    """The lease that an acquired object holds on its row."""

    def __init__(self, who: str, token: int, deadline: float) -> None:
        self.who = who
        self.token = token
        """The fencing token, which rises with each acquisition of the row. Pass it to storage of your own, which then
        refuses workers that were overtaken."""
        self._deadline = deadline
        self._lost = False

    def __repr__(self) -> str:
        return f"<Acquisition by {self.who!r}, token {self.token}{', lost' if self.lost else ''}>"

    def extend(self, deadline: float) -> Callable[[], None]:
        """Extend the lease until ``deadline``, and return a function that undoes the extension."""
        before = self._deadline, self._lost
        self._deadline, self._lost = deadline, False

        def undo() -> None:
            self._deadline, self._lost = before

        return undo

    def lose(self) -> None:
        """Mark the lease as lost, as another may have the row."""
        self._lost = True

    def expires_in(self) -> float:
        """Return the seconds until others may take the row, on this machine's clock, from before the request."""
        return self._deadline - runtime.boottime()

    @property
    def lost(self) -> bool:
        """True once the row is lost, as far as is known without a request."""
        return self._lost or self.expires_in() <= 0


class Wanted(NamedTuple):
    """The rows to acquire, and the term of their lease."""

    term: Term
    where: Sequence[Any]
    order_by: Sequence[Any]
    limit: int


class Reacquired(NamedTuple):
    """The kept rows, and the rows that were lost before."""

    kept: list[Any]
    lost: list[Any]


def lease_of(mapper: Mapper[Any]) -> RowLease:
    """Return the lease of a claimable class."""
    by, at, until, token = (mapper.columns[f"acquired_{what}"] for what in ("by", "at", "until", "token"))
    return RowLease(table_of(mapper), mapper.primary_key, who=by, token=token, since=at, until=until)


def hold_of(row: Any, who: str) -> tuple[str, int | None]:
    """Return the name and the token by which an object holds its row; the name alone if it has acquired nothing.

    :raises JobFailure: the row was acquired under another name.
    """
    acquisition: Acquisition | None = row.acquisition
    if acquisition is None:
        return who, None
    if acquisition.who != who:
        name = name_of(type(row), key_of(row))
        raise JobFailure(f"{name} was acquired by {acquisition.who!r}, not by {who!r}: give the name that acquired it")
    return who, acquisition.token


def held_rows(rows: Iterable[Any], who: str | None = None) -> list[Any]:
    """Return the rows that are held, under a name if one is given, and were not deleted."""
    held = ((row, row.acquisition) for row in list(rows) if not object_state(row).was_deleted)
    return [row for row, its in held if its is not None and who in (None, its.who)]


def load_acquired(session: Session, model: type[Any], who: str, where: Sequence[Any]) -> list[Any]:
    """Return all rows that are acquired under a name."""
    select = sa.select(model).where(model.acquired_by == who, *where).order_by(*sa.inspect(model).primary_key)
    return list(session.scalars(select.execution_options(populate_existing=True)).unique())


class RowClaims:
    """The leases on the rows of a class, in the transaction that a session is in.

    :raises TypeError: the class is stored in several tables.
    """

    def __init__(self, session: Session, model: type[Any]) -> None:
        self._mapper: Mapper[Any] = sa.inspect(model)
        if self._mapper.persist_selectable is not table_of(self._mapper):
            raise TypeError(f"{model.__name__} is stored in several tables; acquire the class that it inherits from")
        self._session = session
        self._model = model
        self._lease = lease_of(self._mapper)
        self._connection = session.connection({"mapper": self._mapper})

    # Acquiring

    def acquire(self, wish: Wanted) -> list[Any]:
        """Acquire the first free rows, and return them in order."""
        asked = runtime.boottime()
        taken = self._take(wish)
        objects = {}
        for some in chunks(list(taken), LOCKED_AT_ONCE):
            found = sa.select(self._model).where(has_keys(self._lease.key, some))
            rows = self._session.scalars(found.execution_options(populate_existing=True))
            objects.update({key_of(row): row for row in rows.unique()})
        # Another may have changed a row before it was locked, so that the session's own selects leave it out.
        self._lease.end(self._connection, [key for key in taken if key not in objects])
        for key, row in objects.items():
            token, now = taken[key]
            object_state(row).info[HELD] = acquisition = Acquisition(
                wish.term.who, token, wish.term.deadline(asked, now)
            )
            # After a rollback the lost acquisition stays with the object, so that no flush writes the object.
            on_rollback(self._session, acquisition.lose)
        reload_on_rollback(self._session, list(objects.values()), *(f"acquired_{what}" for what in _SHOWN))
        return [objects[key] for key in taken if key in objects]

    def _take(self, wish: Wanted) -> dict[Key, tuple[int, int]]:
        # The order is found first, without a lock, and by the session, which may narrow its selects, for instance to
        # hide deleted rows. A locking select would keep MySQL waiting for all rows that it sorts.
        lease = self._lease
        select = self._select_wanted(wish, (*lease.key, lease.token))
        attributes = [self._mapper.get_property_by_column(column).class_attribute for column in lease.key]

        def look(limit: int, seen: list[Key]) -> list[Key]:
            unseen = [sa.not_(has_keys(lease.key, seen))] if seen else []
            found = self._session.execute(self._select_wanted(wish, attributes).where(*unseen).limit(limit))
            return [tuple(row) for row in found]

        def take(keys: Sequence[Key], limit: int) -> list[Any]:
            return list(lease.take_named(self._connection, keys, select, limit, wish.term).items())

        return dict(first_of(look, take, wish.limit))

    def _select_wanted(self, wish: Wanted, columns: Iterable[Any]) -> sa.Select[Any]:
        conditions = [self._lease.free, *wish.where]
        mapper = self._mapper
        if mapper.single:
            kinds = [each.polymorphic_identity for each in mapper.self_and_descendants]
            conditions.append(mapper.polymorphic_on.in_(kinds))  # type: ignore[union-attr]
        return sa.select(*columns).where(*conditions).order_by(*(wish.order_by or self._lease.key))

    # Extending

    def reacquire(self, rows: Sequence[Any] | None, term: Term) -> Reacquired:
        """Extend the leases of rows, or of all rows of the name."""
        if rows is None:
            both = (*load_acquired(self._session, self._model, term.who, ()), *self._in_hand(term.who))
            rows = list({key_of(row): row for row in both}.values())
        held = {key_of(row): hold_of(row, term.who) for row in rows}
        asked = runtime.boottime()
        extended = self._lease.extend(self._connection, held, term)
        result = Reacquired([], [])
        for row in rows:
            now = extended.get(key_of(row))
            if now is not None:
                self._show_extended(row, term, term.begin_at(now), term.deadline(asked, now))
            elif row.acquisition is not None:
                row.acquisition.lose()
            (result.lost if now is None else result.kept).append(row)
        return result

    def _show_extended(self, row: Any, term: Term, begun: int, deadline: float) -> None:
        show(self._session, [row], {"acquired_at": moment(begun), "acquired_until": moment(begun + term.timeout)})
        if row.acquisition is None:
            remember(self._session, [row], HELD, Acquisition(term.who, row.acquired_token, deadline))
        else:
            on_rollback(self._session, row.acquisition.extend(deadline))

    def renew(self, batch: Iterable[Any], term: Term) -> None:
        """Extend the leases of a block's rows, beside the thread that works on the rows."""
        rows = {key_of(row): row for row in held_rows(batch, term.who)}
        held: Held = {key: hold_of(row, term.who) for key, row in rows.items()}
        asked = runtime.boottime()
        # A row that this process is writing is locked, so that nobody else can take it meanwhile.
        renewed = self._lease.extend(self._connection, held, term, skip=True)
        standing = self._lease.seen_held(self._connection, {k: v for k, v in held.items() if k not in renewed})
        for key, row in rows.items():
            acquisition = row.acquisition
            if acquisition is None:
                continue
            if key in renewed:
                on_rollback(self._session, acquisition.extend(term.deadline(asked, renewed[key])))
            elif key not in standing and not object_state(row).was_deleted:
                acquisition.lose()

    # Giving back

    def unacquire(self, who: str, rows: Sequence[Any] | None, where: Sequence[Any]) -> int:
        """Give rows back, or all rows of the name, and return their number."""
        if rows is None:
            ended = self._lease.end_all(self._connection, sa.and_(self._lease.who == who, *where), skip=False)
            rows = self._in_hand(who)
        else:
            held = {key_of(row): hold_of(row, who) for row in rows}
            ended = list(self._lease.lock_held(self._connection, held, *where))
            self._lease.end(self._connection, ended)
        gone = set(ended)
        given_back = [row for row in rows if key_of(row) in gone]
        remember(self._session, given_back, HELD, None)
        show(self._session, given_back, {f"acquired_{what}": None for what in _SHOWN if what != "token"})
        for row in rows:
            if key_of(row) not in gone and row.acquisition is not None and not where:
                row.acquisition.lose()
        return len(ended)

    def unacquire_timed_out(self, where: Sequence[Any], now: int | None) -> int:
        """Give back the rows whose time is up, and return their number."""
        return len(self._lease.end_all(self._connection, self._lease.lapsed(now, where), skip=True))

    def _in_hand(self, who: str) -> list[Any]:
        """Return the session's own objects that hold rows under a name."""
        return held_rows((row for row in self._session.identity_map.values() if isinstance(row, self._model)), who)


_SHOWN = ("by", "at", "until", "token")


# Blocks: acquired rows, renewed in the background


class Batch(list[M], Generic[M]):
    """The rows that a block has acquired, and their session."""

    def __init__(self, rows: list[M], session: Any) -> None:
        super().__init__(rows)
        self.session = session
        """The Session, or AsyncSession. The end of the block commits its open changes."""

    @property
    def lost(self) -> list[M]:
        """The rows that others may have by now. Stop work on these rows; a write to one raises ClaimLost."""
        return [row for row in held_rows(self) if row.acquisition is not None and row.acquisition.lost]


def acquiring(session: Session, users: Any, model: type[M], wish: Wanted) -> Generator[Batch[M]]:
    """Run the block of :meth:`Claimable.acquiring`, for a :class:`~jobboard.orm.sessions.Scope`.

    :param users: the session that the user passed: the AsyncSession of an async block.
    :raises ClaimLost: some rows were lost; the others were given back.
    :raises ValueError: the engine has only one connection.
    """
    engine = _engine(session, model)
    batch = Batch[M]([], users)
    who, interval = wish.term.who, wish.term.timeout / SECOND / 3
    heartbeat, stop = _heartbeat(
        engine, model, lambda session: RowClaims(session, model).renew(batch, wish.term), interval
    )

    def acquire(session: Session) -> None:
        # Before the commit: an interrupt may come as soon as the rows are held.
        batch[:] = RowClaims(session, model).acquire(wish)

    def unacquire(session: Session) -> None:
        RowClaims(session, model).unacquire(who, held_rows(batch, who), ())

    def give_back() -> None:
        roll_back(session)
        try:
            if batch:
                transact(session, model, unacquire)
        except sa.exc.SQLAlchemyError:
            LOG.exception("could not give rows back; others may acquire the rows once their leases have lapsed")

    try:
        transact(session, model, acquire)
        if batch:
            heartbeat.start()
        yield batch
        commit_with(session, model, unacquire)
    except BaseException:
        repeat_if_interrupted(give_back)
        raise
    finally:
        stop()
    if batch.lost:
        raise lost_error(batch.lost)


def _engine(session: Session, model: type[Any]) -> Engine:
    bind = session.get_bind(model)
    if isinstance(bind, Connection) or gives_one(bind):
        given = "one Connection" if isinstance(bind, Connection) else f"an engine with a {type(bind.pool).__name__}"
        raise ValueError(
            f"acquiring() renews {model.__name__} on a second connection, which {given} does not give: pass an engine "
            "that can (of SQLite: on a file), or a session on one; or call acquire() and reacquire()"
        )
    return bind


def _heartbeat(
    engine: Engine, model: type[Any], renew: Callable[[Session], None], interval: float
) -> tuple[Heartbeat, Callable[[], object]]:
    """Return a heartbeat that renews on another connection, and the function that stops it."""
    if not engine.dialect.is_async:
        heartbeat = Heartbeat(model.__name__, partial(run, engine, model, renew), interval)
        return heartbeat, heartbeat.stop
    from sqlalchemy.ext.asyncio import AsyncEngine

    loop = asyncio.get_running_loop()

    async def beat() -> None:
        await run(AsyncEngine(engine), model, renew)

    # The thread of the heartbeat waits for the loop, so that the loop must not wait for the thread.
    heartbeat = Heartbeat(model.__name__, lambda: asyncio.run_coroutine_threadsafe(beat(), loop).result(), interval)
    return heartbeat, lambda: await_only(asyncio.to_thread(heartbeat.stop))
