"""A mixin that makes the rows of any mapped class claimable."""

from __future__ import annotations

import datetime
from collections.abc import Awaitable, Iterable, Sequence
from functools import partial
from typing import Any, ClassVar, Self, cast, overload

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column
from sqlalchemy.orm.util import object_state

from jobboard import arguments, codec
from jobboard.exceptions import ClaimLost
from jobboard.orm import verbs
from jobboard.orm.acquiring import Batch, acquiring
from jobboard.orm.holding import Acquisition, Moment
from jobboard.orm.rows import Fenced, lost_error
from jobboard.orm.sessions import Async, Scope, Sync, run
from jobboard.orm.verbs import Reacquired
from jobboard.sql.expressions import Exact

Where = sa.SQLColumnExpression[bool] | Sequence[sa.SQLColumnExpression[bool]]
Order = sa.SQLColumnExpression[Any]


class Claimable(Fenced):
    """Mix it into a mapped class, and its rows can be acquired: each by one process at a time, for a limited time.

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

    **Sessions.** Each verb takes a ``Session``, an ``Engine``, or their async kin, and with these it is awaited. If the
    session is in a transaction the verb takes part in it: the caller commits, and errors of the database's are the
    caller's, too. Otherwise the verb has a short transaction of its own, at READ COMMITTED, which it commits and
    repeats on deadlocks. What is loaded stays loaded then, so that looking at a row begins no transaction.

    **The fence.** An object that was acquired remembers the token of that, see :attr:`acquisition`. When it is written
    or deleted through the ORM once another has acquired its row, or it was given back by name, ``ClaimLost`` is raised
    and nothing is written. Objects that were not acquired are written as ever.

    The times are the database's. ``acquired_until`` in the past means that anybody may acquire the row.
    """

    acquire_limit: ClassVar[int | None] = 100
    """How many rows to acquire at most, unless the call says otherwise. Set it on a class of yours, or on
    ``Claimable`` for all; None on a class: as on ``Claimable``, and there: 100."""

    acquire_timeout: ClassVar[float | None] = 600
    """For how many seconds, unless the call says otherwise. Set it on a class of yours, or on ``Claimable`` for all;
    None on a class: as on ``Claimable``, and there: 600."""

    # Without annotations, which a mapped dataclass takes from none but dataclasses.
    acquired_by = cast("Mapped[str | None]", mapped_column(Exact(255), nullable=True, default=None, index=True))
    acquired_at = cast("Mapped[datetime.datetime | None]", mapped_column(Moment, nullable=True, default=None))
    acquired_until = cast("Mapped[datetime.datetime | None]", mapped_column(Moment, nullable=True, default=None))
    acquired_token = cast("Mapped[int]", mapped_column(sa.BigInteger, nullable=False, default=0, server_default="0"))

    @property
    def acquisition(self) -> Acquisition | None:
        """What this object holds of its row: ``who``, ``token``, ``lost``, ``expires_in()``. None if it was not
        acquired, or was given back."""
        held: Acquisition | None = object_state(self).info.get(verbs.HELD)
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
        """Acquire the first rows that nobody has, or whose time is up.

        :param who: shown in ``acquired_by``. Workers that share a name also share what they give back by name.
        :param where: which rows; any condition on this class, or a list of them that must all be true; others' tables
            in ``exists()``. It is not asked again afterwards.
        :param order_by: which first; by the primary key unless given.
        :param limit: how many at most; :attr:`acquire_limit` unless given.
        :param timeout: for how many seconds; :attr:`acquire_timeout` unless given.
        :param acquired_at: an aware time to count from, instead of the database's.
        :returns: these rows and no others, in order; none where there is nothing.
        :raises ValueError: a condition on another table, an ``acquired_at`` that knows no time zone, a limit below 1, a
            timeout that is not positive, a ``who`` that is empty or too long.
        :raises TypeError: an argument of a wrong type; a class whose rows lie in several tables.
        """
        wish = cls._wish(who, where, order_by, limit, timeout, acquired_at)
        return run(session, cls, lambda session: verbs.acquire(session, cls, wish))

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
        """Acquire rows for a block, ``with`` or ``async with``; or for each call of the function that it decorates.

        They are renewed behind it, every third of the timeout, and given back at its end. What the session has not
        committed by then is committed along, or rolled back when the block raises. Each row tells in
        ``row.acquisition.lost`` whether it was lost meanwhile, the batch in ``batch.lost`` which ones. Writing to such
        a row raises ``ClaimLost``, and so does the end of the block.

        The session must not be in a transaction yet. Arguments are those of :meth:`acquire`.

        :raises ClaimLost: at the end of the block: some were lost; what became of the others stands.
        :raises ValueError, TypeError: as of :meth:`acquire`; at the begin of the block also where there is but one
            connection, as on an SQLite in memory, or ``with`` was written for ``async with``, or the other way round.
        :raises sqlalchemy.exc.InvalidRequestError: at the begin of the block: the session is in a transaction.
        """
        wish = cls._wish(who, where, order_by, limit, timeout, None)
        return Scope(session, lambda session: acquiring(session, cls, wish))

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
        """All rows that are acquired under a name, also those whose time is up and that nobody has taken since.

        :raises ValueError: a condition on another table.
        """
        conditions = cls._conditions(where)
        return run(session, cls, lambda session: verbs.acquired(session, cls, _name(who), conditions), reads=True)

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
        """Hold on to rows for another timeout, from now on.

        :param rows: which; without it all that are acquired under the name, and all that objects of the session were
            acquired under it.
        :returns: ``kept`` and ``lost``: rows that somebody else has, or that were given back, are lost.
        :raises JobFailure: one of the rows was acquired under another name.
        :raises TypeError: one of them is no object of this class.
        :raises ValueError: one of them has not been stored; a time or a timeout as :meth:`acquire` refuses it.
        """
        work = partial(
            verbs.reacquire,
            model=cls,
            who=_name(who),
            rows=cls._rows(rows),
            timeout=cls._timeout(timeout),
            instant=_instant("acquired_at", acquired_at),
        )
        return run(session, cls, work)

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
        """Give rows back: these, or all that are acquired under the name.

        :returns: how many; rows that were lost stay as they are.
        :raises JobFailure: one of the rows was acquired under another name.
        :raises TypeError: one of them is no object of this class.
        :raises ValueError: one of them has not been stored; a condition on another table.
        """
        chosen, conditions = cls._rows(rows), cls._conditions(where)
        work = partial(verbs.unacquire, model=cls, who=_name(who), rows=chosen, where=conditions)
        return run(session, cls, work)

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
        """Give back all rows whose time was up before now; acquire takes them anyway, this shows it in the table.

        :param now: an aware time, instead of the database's.
        :returns: how many.
        :raises ValueError: a condition on another table; a time that knows no time zone.
        """
        conditions, instant = cls._conditions(where), _instant("now", now)
        work = partial(verbs.unacquire_timed_out, model=cls, where=conditions, now=instant)
        return run(session, cls, work)

    @classmethod
    def _conditions(cls, where: Where | None) -> tuple[Any, ...]:
        if where is None:
            return ()
        conditions = tuple(where) if isinstance(where, (list, tuple)) else (where,)
        own = sa.inspect(cls).selectable
        for other in sa.select(sa.literal(1)).select_from(own).where(*conditions).get_final_froms():
            if other != own:
                # Each row would be combined with each of that table's.
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
    ) -> verbs.Wanted:
        order = tuple(order_by) if isinstance(order_by, (list, tuple)) else (order_by,)
        most = arguments.limit(_first(limit, cls.acquire_limit, Claimable.acquire_limit, 100))
        instant = _instant("acquired_at", acquired_at)
        return verbs.Wanted(_name(who), cls._conditions(where), order, most, cls._timeout(timeout), instant)

    @classmethod
    def _timeout(cls, timeout: float | None) -> int:
        seconds = _first(timeout, cls.acquire_timeout, Claimable.acquire_timeout, 600)
        micros = arguments.micros("timeout", seconds, positive=True)
        assert micros is not None
        return micros

    def _hold(self) -> dict[str, Any] | None:
        held = self.acquisition
        return None if held is None else verbs.held_by(self, held.who)

    def _lose(self) -> ClaimLost:
        assert self.acquisition is not None
        self.acquisition.taken_away()
        return lost_error([self])


def _first(*settings: Any) -> Any:
    """The first that says something."""
    return next(setting for setting in settings if setting is not None)


def _name(who: str) -> str:
    return codec.check_text("who", who)


def _instant(what: str, value: datetime.datetime | None) -> int | None:
    return None if value is None else arguments.aware(what, value)
