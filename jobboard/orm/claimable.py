"""Claimable: a mixin whose rows are acquired by one process at a time, for a limited time."""

from __future__ import annotations

import datetime
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, ClassVar, Self, cast, overload

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, Mapper, mapped_column
from sqlalchemy.orm.util import object_state

from jobboard import arguments, codec
from jobboard.exceptions import ClaimLost
from jobboard.orm.claims import (
    HELD,
    Acquisition,
    Batch,
    Moment,
    Reacquired,
    RowClaims,
    Wanted,
    acquiring,
    hold_of,
    lease_of,
    load_acquired,
)
from jobboard.orm.rows import Fenced, lost_error
from jobboard.orm.sessions import Async, Scope, Sync, run
from jobboard.sql.expressions import Exact
from jobboard.sql.lease import RowLease, Term

Where = sa.SQLColumnExpression[bool] | Sequence[sa.SQLColumnExpression[bool]]
Order = sa.SQLColumnExpression[Any]


class Claimable(Fenced):
    """A mixin for a mapped class, whose rows can be acquired: each by one process at a time, for a limited time.

    ::

        class Picture(Claimable, Base):
            __tablename__ = "pictures"
            id: Mapped[int] = mapped_column(primary_key=True)
            done: Mapped[bool] = mapped_column(default=False)

        with Picture.acquiring(engine, "me", where=~Picture.done, limit=10) as pictures:
            for picture in pictures:
                resize(picture)
                picture.done = True
                pictures.session.commit()

    **Sessions.** Each verb takes a ``Session``, an ``Engine``, or an async one, with which the verb is awaited. If the
    session is in a transaction, the verb takes part in it: the caller commits, and handles errors of the database.
    Otherwise the verb has a short transaction of its own, at READ COMMITTED, which it commits and repeats on deadlocks.
    Objects stay loaded then, so that looking at a row begins no transaction.

    **The fence.** An acquired object remembers its fencing token, see :attr:`acquisition`. Once another has acquired
    its row, or it was given back by name, a flush that would write or delete the object raises ``ClaimLost`` and writes
    nothing. Objects that were not acquired are written as usual.

    Times are the database's. Anybody may acquire a row whose ``acquired_until`` is in the past.
    """

    acquire_limit: ClassVar[int] = 100
    """The most rows that a call without ``limit`` acquires. Set it on a class of yours, or on ``Claimable`` for all
    classes."""

    acquire_timeout: ClassVar[float] = 600
    """The seconds for which a call without ``timeout`` acquires rows. Set it on a class of yours, or on ``Claimable``
    for all classes."""

    # A mapped dataclass takes annotated columns only from dataclasses.
    acquired_by = cast("Mapped[str | None]", mapped_column(Exact(255), nullable=True, default=None, index=True))
    acquired_at = cast("Mapped[datetime.datetime | None]", mapped_column(Moment, nullable=True, default=None))
    acquired_until = cast("Mapped[datetime.datetime | None]", mapped_column(Moment, nullable=True, default=None))
    acquired_token = cast("Mapped[int]", mapped_column(sa.BigInteger, nullable=False, default=0, server_default="0"))

    @property
    def acquisition(self) -> Acquisition | None:
        """The lease that this object holds on its row: ``who``, ``token``, ``lost``, ``expires_in()``. None if the
        object was not acquired, or was given back."""
        held: Acquisition | None = object_state(self).info.get(HELD)
        return held

    # fmt: off
    @overload
    @classmethod
    def acquire(cls, session: Sync, who: str, *, where: Where | None = ..., order_by: Order | Sequence[Order] = ...,
                limit: int | None = ..., timeout: float | None = ...,
                acquired_at: datetime.datetime | None = ...) -> list[Self]: ...
    @overload
    @classmethod
    def acquire(cls, session: Async, who: str, *, where: Where | None = ..., order_by: Order | Sequence[Order] = ...,
                limit: int | None = ..., timeout: float | None = ...,
                acquired_at: datetime.datetime | None = ...) -> Awaitable[list[Self]]: ...
    # fmt: on
    @classmethod
    def acquire(
        cls,
        session: Sync | Async,
        who: str,
        *,
        where: Where | None = None,
        order_by: Order | Sequence[Order] = (),
        limit: int | None = None,
        timeout: float | None = None,
        acquired_at: datetime.datetime | None = None,
    ) -> list[Self] | Awaitable[list[Self]]:
        """Acquire the first rows that nobody holds, or whose time is up.

        :param who: the worker's name, for ``acquired_by``. Workers that share a name also give back each other's rows
            by that name.
        :param where: a condition on this class, or a list of conditions that must all be true. A condition on another
            table goes into ``exists()``. No condition is checked again later.
        :param order_by: the order of the rows; by the primary key unless given.
        :param limit: the most rows; :attr:`acquire_limit` unless given.
        :param timeout: the seconds; :attr:`acquire_timeout` unless given.
        :param acquired_at: the begin, an aware time; the database's time unless given.
        :returns: the rows that this call acquired, in order; an empty list if there are none.
        :raises ValueError: a condition is on another table, ``acquired_at`` has no time zone, the limit is below 1, the
            timeout is not positive, or ``who`` is empty or too long.
        :raises TypeError: an argument has a wrong type, or the rows of the class lie in several tables.
        """
        wish = cls._wish(who, where, order_by, limit, timeout, acquired_at)
        return run(session, cls, lambda session: RowClaims(session, cls).acquire(wish))

    @classmethod
    def acquiring(
        cls,
        session: Sync | Async,
        who: str,
        *,
        where: Where | None = None,
        order_by: Order | Sequence[Order] = (),
        limit: int | None = None,
        timeout: float | None = None,
    ) -> Scope[Batch[Self]]:
        """Acquire rows for a block, ``with`` or ``async with``, or for each call of a function that this decorates.

        The rows are renewed in the background, every third of the timeout, and given back at the end of the block. The
        end commits the open changes of the session, or rolls them back if the block raises. ``row.acquisition.lost``
        tells whether a row was lost meanwhile, and ``batch.lost`` lists the lost rows. A write to a lost row raises
        ``ClaimLost``, and so does the end of the block.

        The session must not be in a transaction yet. The arguments are those of :meth:`acquire`.

        :raises ClaimLost: at the end of the block: some rows were lost; the others were given back.
        :raises ValueError, TypeError: as :meth:`acquire`; at the begin of the block also if there is only one
            connection, as on an SQLite in memory, or ``with`` stands for ``async with``, or the other way round.
        :raises sqlalchemy.exc.InvalidRequestError: at the begin of the block: the session is in a transaction.
        """
        wish = cls._wish(who, where, order_by, limit, timeout, None)
        return Scope(session, lambda session, users: acquiring(session, users, cls, wish))

    # fmt: off
    @overload
    @classmethod
    def acquired(cls, session: Sync, who: str, *, where: Where | None = ...) -> list[Self]: ...
    @overload
    @classmethod
    def acquired(cls, session: Async, who: str, *, where: Where | None = ...) -> Awaitable[list[Self]]: ...
    # fmt: on
    @classmethod
    def acquired(
        cls, session: Sync | Async, who: str, *, where: Where | None = None
    ) -> list[Self] | Awaitable[list[Self]]:
        """Return all rows that are acquired under a name, also rows whose time is up and that nobody has taken since.

        :raises ValueError: a condition is on another table.
        """
        name, conditions = codec.check_text("who", who), cls._conditions(where)
        return run(session, cls, lambda session: load_acquired(session, cls, name, conditions), reads=True)

    # fmt: off
    @overload
    @classmethod
    def reacquire(cls, session: Sync, who: str, rows: Iterable[Self] | None = ..., *, timeout: float | None = ...,
                  acquired_at: datetime.datetime | None = ...) -> Reacquired: ...
    @overload
    @classmethod
    def reacquire(cls, session: Async, who: str, rows: Iterable[Self] | None = ..., *, timeout: float | None = ...,
                  acquired_at: datetime.datetime | None = ...) -> Awaitable[Reacquired]: ...
    # fmt: on
    @classmethod
    def reacquire(
        cls,
        session: Sync | Async,
        who: str,
        rows: Iterable[Self] | None = None,
        *,
        timeout: float | None = None,
        acquired_at: datetime.datetime | None = None,
    ) -> Reacquired | Awaitable[Reacquired]:
        """Hold rows for another timeout, from now on.

        :param rows: the rows; all rows that are acquired under the name, in the table and by objects of the session,
            unless given.
        :returns: the rows that were ``kept``, and the rows that were ``lost``: others have them, or they were given
            back.
        :raises JobFailure: a row was acquired under another name.
        :raises TypeError: a row is no object of this class.
        :raises ValueError: a row has not been stored; a time or a timeout that :meth:`acquire` refuses.
        """
        chosen, term = cls._rows(rows), cls._term(who, timeout, acquired_at)
        return run(session, cls, lambda session: RowClaims(session, cls).reacquire(chosen, term))

    # fmt: off
    @overload
    @classmethod
    def unacquire(cls, session: Sync, who: str, rows: Iterable[Self] | None = ..., *,
                  where: Where | None = ...) -> int: ...
    @overload
    @classmethod
    def unacquire(cls, session: Async, who: str, rows: Iterable[Self] | None = ..., *,
                  where: Where | None = ...) -> Awaitable[int]: ...
    # fmt: on
    @classmethod
    def unacquire(
        cls, session: Sync | Async, who: str, rows: Iterable[Self] | None = None, *, where: Where | None = None
    ) -> int | Awaitable[int]:
        """Give rows back, or all rows that are acquired under the name.

        :returns: the number of rows. Lost rows stay as they are.
        :raises JobFailure: a row was acquired under another name.
        :raises TypeError: a row is no object of this class.
        :raises ValueError: a row has not been stored, or a condition is on another table.
        """
        name, chosen, conditions = codec.check_text("who", who), cls._rows(rows), cls._conditions(where)
        return run(session, cls, lambda session: RowClaims(session, cls).unacquire(name, chosen, conditions))

    # fmt: off
    @overload
    @classmethod
    def unacquire_timed_out(cls, session: Sync, *, where: Where | None = ...,
                            now: datetime.datetime | None = ...) -> int: ...
    @overload
    @classmethod
    def unacquire_timed_out(cls, session: Async, *, where: Where | None = ...,
                            now: datetime.datetime | None = ...) -> Awaitable[int]: ...
    # fmt: on
    @classmethod
    def unacquire_timed_out(
        cls, session: Sync | Async, *, where: Where | None = None, now: datetime.datetime | None = None
    ) -> int | Awaitable[int]:
        """Give back all rows whose time is up. :meth:`acquire` takes such rows anyway; this shows it in the table.

        :param now: an aware time; the database's time unless given.
        :returns: the number of rows.
        :raises ValueError: a condition is on another table, or ``now`` has no time zone.
        """
        conditions, instant = cls._conditions(where), _instant("now", now)
        return run(session, cls, lambda session: RowClaims(session, cls).unacquire_timed_out(conditions, instant))

    @classmethod
    def _conditions(cls, where: Where | None) -> tuple[Any, ...]:
        if where is None:
            return ()
        conditions = tuple(where) if isinstance(where, (list, tuple)) else (where,)
        own = sa.inspect(cls).selectable
        for other in sa.select(sa.literal(1)).select_from(own).where(*conditions).get_final_froms():
            if other != own:
                # Otherwise each row would be combined with each row of that table.
                name = getattr(other, "element", other)
                raise ValueError(f"where is on {name}, and not only on {cls.__name__}: put that part into exists()")
        return conditions

    @classmethod
    def _rows(cls, rows: Iterable[Self] | None) -> list[Self] | None:
        if rows is None:
            return None
        if not isinstance(rows, Iterable):
            raise TypeError(f"rows must be a list of {cls.__name__} objects, not {type(rows).__name__}")
        chosen = list(rows)
        for row in chosen:
            if not isinstance(row, sa.inspect(cls).base_mapper.class_):
                raise TypeError(f"rows must be objects of {cls.__name__}, not of {type(row).__name__}")
        return chosen

    @classmethod
    def _wish(
        cls,
        who: str,
        where: Where | None,
        order_by: Order | Sequence[Order],
        limit: int | None,
        timeout: float | None,
        acquired_at: datetime.datetime | None,
    ) -> Wanted:
        order = tuple(order_by) if isinstance(order_by, (list, tuple)) else (order_by,)
        most = arguments.limit(cls.acquire_limit if limit is None else limit)
        return Wanted(cls._term(who, timeout, acquired_at), cls._conditions(where), order, most)

    @classmethod
    def _term(cls, who: str, timeout: float | None, acquired_at: datetime.datetime | None) -> Term:
        return term_of(who, cls.acquire_timeout if timeout is None else timeout, acquired_at)

    @staticmethod
    def _lease(mapper: Mapper[Any]) -> RowLease:
        return lease_of(mapper)

    def _hold(self) -> tuple[str, int | None] | None:
        held = self.acquisition
        return None if held is None else hold_of(self, held.who)

    def _lose(self) -> ClaimLost:
        assert self.acquisition is not None
        self.acquisition.lose()
        return lost_error([self])


def term_of(who: str, seconds: float, acquired_at: datetime.datetime | None) -> Term:
    """Return the checked term of a lease.

    :raises ValueError: the name is empty or too long, the seconds are not positive, or the time has no time zone.
    :raises TypeError: an argument has a wrong type.
    """
    micros = arguments.micros("timeout", seconds, positive=True)
    assert micros is not None
    return Term(codec.check_text("who", who), micros, _instant("acquired_at", acquired_at))


def _instant(what: str, value: datetime.datetime | None) -> int | None:
    return None if value is None else arguments.aware(what, value)
