"""Django models whose rows are acquired: :class:`jobboard.orm.Claimable` for them.

What is decided is decided there: a twin of the model, mapped to the same table, does it on Django's own connection,
within Django's transaction.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import sqlalchemy as sa
from django.conf import settings
from django.db import connections, models, router, transaction
from django.db.models.query import ModelIterable
from sqlalchemy.orm import Session, mapped_column, registry

from jobboard import arguments, orm
from jobboard.contrib.django import joining
from jobboard.contrib.django.fields import MomentField, NameField, TokenField
from jobboard.exceptions import ClaimLost, JobFailure
from jobboard.job import boottime
from jobboard.orm import Reacquired, verbs
from jobboard.orm.holding import Acquisition
from jobboard.orm.rows import BATCH, lock_held
from jobboard.orm.undoing import hand_over, on_rollback
from jobboard.states import moment


class _Key(sa.types.UserDefinedType[Any]):
    """A primary key as Django has it, in SQLAlchemy's statements."""

    cache_ok = True

    def __init__(self, field: Any, alias: str) -> None:
        self.field = field
        self.alias = alias

    def bind_processor(self, dialect: Any) -> Any:
        return lambda value: self.field.get_db_prep_value(value, connections[self.alias])

    def result_processor(self, dialect: Any, coltype: object) -> Any:
        return self.field.to_python


@functools.cache
def _twin_of(model: Any, alias: str) -> Any:
    """:raises TypeError: its primary key is several columns, or lies in another table than the claims."""
    key = model._meta.pk
    if not key.column or key.model is not model._meta.get_field("acquired_token").model:
        raise TypeError(
            f"{model.__name__} needs a primary key that is one column, in the table that has acquired_token: acquire "
            "rows of a child model as those of its parent"
        )
    kind = sa.BigInteger() if isinstance(key, models.IntegerField | models.AutoField) else _Key(key, alias)
    columns = {"__tablename__": model._meta.db_table, "key": mapped_column(key.column, kind, primary_key=True)}
    # In a registry of its own: the model's twin in another database has a table of the same name.
    return registry().mapped(type(model.__name__, (orm.Claimable,), columns))


# One thread at a time makes a twin.
_mapping = threading.Lock()


class _Work(NamedTuple):
    """A session on Django's connection, in its transaction."""

    session: Session
    twin: Any
    alias: str

    @property
    def mapper(self) -> Any:
        return verbs.mapper_of(self.twin)

    @property
    def connection(self) -> Any:
        return self.session.connection()


class _Undo:
    """What to call, in order, if Django's transaction, or the savepoint that it is in, is rolled back.

    Of a rollback Django tells nobody. It drops what it was to call after the commit, on every way; and a list lets go
    of its last one first, which is the order to undo in. It drops that as well where it has committed, and something
    that it calls before raises: but by then it is back in autocommit mode, and while it rolls back it is not yet.
    """

    def __init__(self, alias: str, steps: list[Callable[[], object]]) -> None:
        self._connection = connections[alias]
        self._steps = steps
        if steps:
            transaction.on_commit(self._committed, using=alias)

    def _committed(self) -> None:
        self._steps = []

    def __del__(self) -> None:
        if not self._connection.autocommit:
            for undo in self._steps:
                undo()


def _alias_of(model: Any, using: str | None, rows: Iterable[Any]) -> str:
    """The database to work in."""
    aliases = {using} if using else set()
    # In another one a row with the same key and token is somebody else's.
    aliases |= {router.db_for_write(model, instance=row) for row in rows}
    if len(aliases) > 1:
        names = " and in ".join(map(repr, sorted(aliases)))
        raise ValueError(f"rows are to be found in {names}: give those of one database, which using= need not name")
    return aliases.pop() if aliases else router.db_for_write(model)


@contextlib.contextmanager
def _working(model: Any, using: str | None, rows: Iterable[Any] = ()) -> Iterator[_Work]:
    """:raises ValueError: the rows are of several databases, or not of that one."""
    alias = _alias_of(model, using, rows)
    with _mapping:
        twin = _twin_of(model, alias)
    with transaction.atomic(using=alias):
        django = connections[alias]
        if django.vendor == "sqlite":
            # A transaction that reads first and writes later fails at once when another has written in between.
            model._base_manager.using(alias).extra(where=["1 = 0"]).update(acquired_token=0)
        with joining._engine(alias).connect() as connection, Session(connection, expire_on_commit=False) as session:
            session.begin()
            yield _Work(session, twin, alias)
            # Django will tell what becomes of it: here the session is closed without a commit.
            _Undo(alias, hand_over(session))


def _first(given: Any, own: Any, setting: str) -> Any:
    """The argument, else what the class says, else the project's setting; None where none of them says anything."""
    said = own if given is None else given
    return getattr(settings, setting, None) if said is None else said


class ClaimableModel(models.Model):
    """Derive a model from it, and its rows can be acquired: each by one process at a time, for a limited time.

    ::

        class Picture(ClaimableModel):
            done = models.BooleanField(default=False)

        for picture in Picture.acquire("me", queryset=Picture.objects.filter(done=False), limit=10):
            resize(picture)
            picture.done = True
            picture.save()
        Picture.unacquire("me")

    Every verb takes part in the transaction that Django is in, and has one of its own where it is in none. Errors of
    the database's are Django's. The times are the database's.

    **The fence.** An object that was acquired remembers the token of that, see :attr:`acquisition`. To ``save()`` or
    ``delete()`` it once another has acquired its row, or it was given back by name, raises ``ClaimLost``, and nothing
    is written. Others are written as ever, an object that was itself given back among them. No ``save()`` touches the
    columns of this class: a new row is nobody's, be it a copy of one that is held.
    """

    acquire_limit: ClassVar[int | None] = None
    """The most rows that a call without ``limit`` acquires. None: the setting ``SCALABLE_ACQUIRE_LIMIT``, 100 by
    default."""

    acquire_timeout: ClassVar[float | None] = None
    """The seconds after which acquired rows are free again. None: the setting ``SCALABLE_ACQUIRE_TIMEOUT``, 600 by
    default."""

    acquired_by = NameField(max_length=255, null=True, default=None, editable=False, db_index=True)
    acquired_at = MomentField(null=True, default=None, editable=False)
    acquired_until = MomentField(null=True, default=None, editable=False)
    acquired_token = TokenField(default=0, db_default=0, editable=False)

    class Meta:
        abstract = True

    _hold: tuple[Any, Acquisition | None] = None, None
    """The key of the row that was acquired, and what is held of it."""

    @property
    def acquisition(self) -> Acquisition | None:
        """What this object holds of its row: ``who``, ``token``, ``lost``, ``expires_in()``. None if it was not
        acquired, or was given back; or has been given another key, and so is a copy."""
        key, acquisition = self._hold
        return acquisition if key == self.pk else None

    @classmethod
    def acquire(
        cls,
        acquired_by: str,
        queryset: models.QuerySet[Self] | None = None,
        acquired_at: datetime.datetime | None = None,
        limit: int | None = None,
        *,
        timeout: float | None = None,
        using: str | None = None,
    ) -> list[Self]:
        """Acquire the first rows that nobody has, or whose time is up.

        :param acquired_by: the worker's name. Workers that share a name also share what they give back by name.
        :param queryset: which rows, and in which order; all of them by their key unless given.
        :param acquired_at: an aware time to count from, instead of the database's.
        :param limit: how many at most; :attr:`acquire_limit` unless given.
        :param timeout: for how many seconds; :attr:`acquire_timeout` unless given.
        :param using: the alias of a database; that of the query set, or the router's, unless given.
        :returns: these rows and no others, in order; none where there is nothing.
        :raises ValueError, TypeError: as of :meth:`jobboard.orm.Claimable.acquire`; a query set of another model, or
            one that gives no objects, as of ``values()``.
        """
        queryset = cls._default_manager.order_by("pk") if queryset is None else cls._own(queryset)
        limit = _first(limit, cls.acquire_limit, "SCALABLE_ACQUIRE_LIMIT")
        timeout = _first(timeout, cls.acquire_timeout, "SCALABLE_ACQUIRE_TIMEOUT")
        taken: list[Self] = []
        seen: list[Any] = []
        with _working(cls, using or queryset._db) as work:
            wish = work.twin._wish(acquired_by, None, (), limit, timeout, acquired_at)
            now = moment(verbs.now(work.session))
            free = models.Q(acquired_until=None) | models.Q(acquired_until__lte=now)
            queryset = queryset.using(work.alias)
            while len(taken) < wish.limit:
                # Others are at the first ones, if these were not enough: so then it looks far ahead at once.
                candidates = queryset.filter(free).exclude(pk__in=seen).values_list("pk", flat=True)
                # A row comes once for each that it is joined with.
                some = list(dict.fromkeys(candidates[: 10 * BATCH if seen else BATCH]))
                if not some:
                    break
                seen += some
                size = min(wish.limit - len(taken), BATCH)
                for few in (some[start : start + size] for start in range(0, len(some), size)):
                    taken += cls._acquire(work, wish._replace(limit=wish.limit - len(taken)), few, queryset)
                    if len(taken) == wish.limit:
                        break
        return taken

    @classmethod
    def _acquire(
        cls, work: _Work, wish: verbs.Wanted, keys: Sequence[Any], queryset: models.QuerySet[Self]
    ) -> list[Self]:
        rows = verbs.acquire(work.session, work.twin, wish._replace(where=(work.twin.key.in_(keys),)))
        held = {row.key: row for row in rows}
        found = {each.pk: each for each in queryset.filter(pk__in=list(held))}
        # Before it was locked, another may have made of a row what the query set does not ask for.
        if changed := [row for key, row in held.items() if key not in found]:
            work.twin.unacquire(work.session, wish.who, changed)
        for key, each in found.items():
            # Undoing what the session did takes away this very one.
            each._hold = key, held[key].acquisition
        return [found[key] for key in keys if key in found]

    @classmethod
    def acquired(cls, acquired_by: str, queryset: models.QuerySet[Self] | None = None) -> models.QuerySet[Self]:
        """All rows that are acquired under a name, also those whose time is up and that nobody has taken since.

        :param queryset: only rows of this one.
        :raises TypeError: a query set of another model, or one that gives no objects.
        """
        rows = cls._default_manager.all() if queryset is None else cls._own(queryset)
        return rows.filter(acquired_by=acquired_by)

    @classmethod
    def reacquire(
        cls,
        acquired_by: str,
        queryset: models.QuerySet[Self] | Iterable[Self] | None = None,
        acquired_at: datetime.datetime | None = None,
        *,
        timeout: float | None = None,
        using: str | None = None,
    ) -> Reacquired:
        """Hold on to rows for another timeout, from now on.

        :param queryset: a query set, of which the rows that are acquired under the name are meant; or objects of rows,
            all of one database. Without it all that are acquired under the name.
        :param acquired_at: an aware time to count from, instead of the database's.
        :param timeout: for how many seconds; :attr:`acquire_timeout` unless given.
        :param using: the alias of that database; that of the rows, or the router's, unless given.
        :returns: ``kept`` and ``lost``: rows that somebody else has, or that were given back, are lost.
        :raises JobFailure: one of the rows was acquired under another name.
        :raises TypeError: one of them is no object of this model; a query set as :meth:`acquire` refuses it.
        :raises ValueError: the rows are of several databases, or not of that one; ``acquired_at`` knows no time zone.
        """
        instant = None if acquired_at is None else arguments.aware("acquired_at", acquired_at)
        using, chosen = cls._chosen(queryset, using)
        with _working(cls, using, chosen if isinstance(chosen, list) else ()) as work:
            micros = work.twin._timeout(_first(timeout, cls.acquire_timeout, "SCALABLE_ACQUIRE_TIMEOUT"))
            held = cls._held(acquired_by, cls._rows(acquired_by, chosen, work.alias))
            asked = boottime()
            renewed = verbs.renew(
                work.connection, work.mapper, {key: hold for key, (_, hold) in held.items()}, micros, instant
            )
            kept: list[Self] = []
            lost: list[Self] = []
            for key, (row, _) in held.items():
                if key in renewed:
                    begun = renewed[key] if instant is None else instant
                    deadline = asked + (begun + micros - renewed[key]) / verbs.SECOND
                    if row.acquisition is None:
                        row._remember(work, Acquisition(acquired_by, row.acquired_token, deadline))
                    else:
                        on_rollback(work.session, row.acquisition.extended(deadline))
                    kept.append(row)
                else:
                    row._lose()
                    lost.append(row)
        return Reacquired(kept, lost)

    @classmethod
    def unacquire(
        cls,
        acquired_by: str,
        queryset: models.QuerySet[Self] | Iterable[Self] | None = None,
        *,
        using: str | None = None,
    ) -> int:
        """Give rows back: these, or all that are acquired under the name.

        :param queryset: as of :meth:`reacquire`.
        :param using: as of :meth:`reacquire`.
        :returns: how many; rows that were lost stay as they are.
        :raises JobFailure: one of the rows was acquired under another name.
        :raises TypeError: one of them is no object of this model; a query set as :meth:`acquire` refuses it.
        :raises ValueError: the rows are of several databases, or not of that one.
        """
        using, chosen = cls._chosen(queryset, using)
        with _working(cls, using, chosen if isinstance(chosen, list) else ()) as work:
            if chosen is None:
                count: int = work.twin.unacquire(work.session, acquired_by)
                return count
            held = cls._held(acquired_by, cls._rows(acquired_by, chosen, work.alias))
            released = lock_held(work.connection, work.mapper, {key: hold for key, (_, hold) in held.items()})
            verbs.release(work.connection, work.mapper, list(released))
            for key, (row, _) in held.items():
                if key in released:
                    row._remember(work, None)
                else:
                    row._lose()
        return len(released)

    @classmethod
    def unacquire_timed_out(
        cls,
        queryset: models.QuerySet[Self] | None = None,
        now: datetime.datetime | None = None,
        *,
        using: str | None = None,
    ) -> int:
        """Give back all rows whose time was up before now; acquire takes them anyway, this shows it in the table.

        :param queryset: only rows of this one.
        :param now: an aware time, instead of the database's.
        :param using: the alias of a database; that of the query set, or the router's, unless given.
        :returns: how many.
        :raises TypeError: a query set as :meth:`acquire` refuses it.
        :raises ValueError: a time that knows no time zone.
        """
        using, chosen = cls._chosen(queryset, using)
        with _working(cls, using) as work:
            if chosen is None:
                count: int = work.twin.unacquire_timed_out(work.session, now=now)
                return count
            acquired = cls._own(queryset).using(work.alias).exclude(acquired_by=None)
            keys = list(acquired.values_list("pk", flat=True).distinct())
            return sum(
                work.twin.unacquire_timed_out(work.session, where=work.twin.key.in_(some), now=now)
                for some in (keys[start : start + BATCH] for start in range(0, len(keys), BATCH))
            )

    @classmethod
    def _own(cls, queryset: Any) -> models.QuerySet[Self]:
        """:raises TypeError: a query set of another model, or one that gives no objects."""
        if not isinstance(queryset, models.QuerySet):
            raise TypeError(f"queryset={queryset!r}: must be a query set of {cls.__name__}")
        if queryset.model is not cls:
            raise TypeError(f"queryset is one of {queryset.model.__name__}, not of {cls.__name__}")
        if not issubclass(queryset._iterable_class, ModelIterable):
            raise TypeError("queryset gives no objects, which are what is acquired: leave out values() and the like")
        return queryset

    @classmethod
    def _chosen(cls, queryset: Any, using: str | None) -> tuple[str | None, Any]:
        """The database that was named, and the query set or the list of objects."""
        if isinstance(queryset, models.QuerySet):
            return using or cls._own(queryset)._db, queryset
        return using, None if queryset is None else list(queryset)

    @classmethod
    def _rows(cls, acquired_by: str, chosen: Any, alias: str) -> Iterable[Self]:
        if isinstance(chosen, list):
            return chosen
        return cls.acquired(acquired_by, chosen).using(alias)

    def save(self, *args: Any, **kwargs: Any) -> None:
        """:raises ClaimLost: it was acquired, and is so no more; nothing is written."""
        with self._fenced(kwargs.get("using")):
            super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> Any:
        """:raises ClaimLost: it was acquired, and is so no more; nothing is deleted."""
        with self._fenced(kwargs.get("using")):
            return super().delete(*args, **kwargs)

    @contextlib.contextmanager
    def _fenced(self, using: str | None) -> Iterator[None]:
        held = self.acquisition
        if held is None:
            yield
            return
        with _working(type(self), using, () if using else [self]) as work:
            [(key, (_, hold))] = type(self)._held(held.who, [self]).items()
            if not lock_held(work.connection, work.mapper, {key: hold}):
                self._lose()
                what = f"{type(self).__name__} {self.pk!r}"
                raise ClaimLost(f"{what}: another has it, or it was given back; a longer timeout leaves more time")
            yield

    def _remember(self, work: _Work, acquisition: Acquisition | None) -> None:
        on_rollback(work.session, functools.partial(setattr, self, "_hold", self._hold))
        self._hold = self.pk, acquisition

    def _lose(self) -> None:
        if self.acquisition is not None:
            self.acquisition.taken_away()

    @classmethod
    def _held(cls, who: str, rows: Iterable[Self]) -> dict[tuple[Any], tuple[Self, dict[str, Any]]]:
        """The rows by their keys, each with what it has in the table as long as it is held."""
        held = {}
        for row in rows:
            if not isinstance(row, cls._meta.concrete_model):
                raise TypeError(f"rows must be objects of {cls.__name__}, not of {type(row).__name__}")
            if (its := row.acquisition) is not None and its.who != who:
                raise JobFailure(f"{cls.__name__} {row.pk!r} was acquired by {its.who!r}, not by {who!r}")
            token = {} if its is None else {"acquired_token": its.token}
            held[(row.pk,)] = row, {"acquired_by": who, **token}
        return held
