"""ClaimableModel: Django models whose rows are acquired, as those of :class:`jobboard.orm.Claimable`.

The leases are those of :mod:`jobboard.sql.lease`, on Django's own connection and within Django's transaction.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import sqlalchemy as sa
from django.conf import settings
from django.db import connections, models, router, transaction
from django.db.models.manager import BaseManager
from django.db.models.query import ModelIterable

from jobboard import arguments, codec, runtime
from jobboard.contrib.django import databases
from jobboard.contrib.django.fields import MomentField, NameField, TokenField
from jobboard.exceptions import ClaimLost, JobFailure
from jobboard.orm import Acquisition, Reacquired
from jobboard.orm.claimable import term_of
from jobboard.sql.expressions import Exact, Now, chunks
from jobboard.sql.lease import LOCKED_AT_ONCE, Held, Key, RowLease, Term, first_of, has_keys
from jobboard.states import moment


class _Key(sa.types.UserDefinedType[Any]):
    """A primary key of Django's in statements of SQLAlchemy."""

    cache_ok = True

    def __init__(self, field: Any, alias: str) -> None:
        self.field = field
        self.alias = alias

    def bind_processor(self, dialect: Any) -> Any:
        return lambda value: self.field.get_db_prep_value(value, connections[self.alias])

    def result_processor(self, dialect: Any, coltype: object) -> Any:
        return self.field.to_python


@functools.cache
def _lease_of(model: Any, alias: str) -> RowLease:
    """Return the lease of a model in a database, whose primary key is one column of the table."""
    key = model._meta.pk
    if not key.column or key.model is not model._meta.get_field("acquired_token").model:
        raise TypeError(
            f"{model.__name__} needs a primary key that is one column, in the table that has acquired_token: acquire "
            "rows of a child model as those of its parent"
        )
    columns = (
        sa.Column(key.column, _Key(key, alias), primary_key=True),
        sa.Column("acquired_by", Exact(255)),
        *(sa.Column(f"acquired_{what}", sa.BigInteger) for what in ("at", "until", "token")),
    )
    table = sa.Table(model._meta.db_table, sa.MetaData(), *columns)
    at, until, token = (table.c[f"acquired_{what}"] for what in ("at", "until", "token"))
    return RowLease(table, list(table.primary_key), who=table.c.acquired_by, token=token, since=at, until=until)


class _Work(NamedTuple):
    """The connection and the lease of a verb in Django's transaction."""

    connection: sa.Connection
    lease: RowLease
    alias: str


@contextlib.contextmanager
def _working(model: Any, using: str | None, rows: Iterable[Any] = ()) -> Iterator[_Work]:
    """Work in Django's transaction, or in one of the verb's own, in the one database that has all rows."""
    aliases = {using} if using else set()
    # In another database another worker may hold a row with the same key and token.
    aliases |= {router.db_for_write(model, instance=row) for row in rows}
    if len(aliases) > 1:
        names = " and in ".join(map(repr, sorted(aliases)))
        raise ValueError(f"rows lie in {names}: pass rows of one database; using= may be left out")
    alias = aliases.pop() if aliases else router.db_for_write(model)
    lease = _lease_of(model, alias)
    with transaction.atomic(using=alias), databases.engine_of(alias).connect() as joined:
        if connections[alias].vendor == "sqlite":
            # A transaction that reads first and writes later fails at once when another has written in between.
            model._base_manager.using(alias).extra(where=["1 = 0"]).update(acquired_token=0)
        yield _Work(joined, lease, alias)


def _chosen(given: Any, own: Any, setting: str, default: Any) -> Any:
    """Return the argument of a call, or the model's value, or the project's setting, or a default."""
    return next(each for each in (given, own, getattr(settings, setting, None), default) if each is not None)


class ClaimableModel(models.Model):
    """An abstract model, whose rows can be acquired: each by one process at a time, for a limited time.

    ::

        class Picture(ClaimableModel):
            done = models.BooleanField(default=False)

        for picture in Picture.acquire("me", queryset=Picture.objects.filter(done=False), limit=10):
            resize(picture)
            picture.done = True
            picture.save()
        Picture.unacquire("me")

    Every verb takes part in Django's transaction, or has one of its own if Django is in none. A rollback restores rows,
    but no objects, as always in Django: acquire the rows again. Errors of the database are Django's. Times are the
    database's.

    **The fence.** An acquired object remembers its fencing token, see :attr:`acquisition`. Once another has acquired
    its row, or it was given back by name, ``save()`` and ``delete()`` raise ``ClaimLost`` and write nothing. An object
    that was itself given back is written until another has acquired its row. Other objects are written as usual. No
    ``save()`` writes the columns of this class: a new row is nobody's, also a copy of a held row.
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
    """The key of the acquired row, and the hold of the object on the row."""

    _left: tuple[Any, Acquisition | None] = None, None
    """The same of a row that was given back, which a rollback may have undone."""

    @property
    def acquisition(self) -> Acquisition | None:
        """The lease that this object holds on its row: ``who``, ``token``, ``lost``, ``expires_in()``. None if it was
        not acquired, was given back, or has got another key and so is a copy."""
        key, acquisition = self._hold
        return acquisition if key == self.pk else None

    @classmethod
    def acquire(
        cls,
        acquired_by: str,
        queryset: models.QuerySet[Self] | models.Manager[Self] | None = None,
        acquired_at: datetime.datetime | None = None,
        limit: int | None = None,
        *,
        timeout: float | None = None,
        using: str | None = None,
    ) -> list[Self]:
        """Acquire the first rows that nobody holds, as :meth:`jobboard.orm.Claimable.acquire` does.

        :param acquired_by: the worker's name.
        :param queryset: a query set or a manager: the rows and their order. All rows of ``Model.objects`` by their key
            unless given.
        :param acquired_at: the begin, an aware time; the database's time unless given.
        :param limit: the most rows; :attr:`acquire_limit` unless given.
        :param timeout: the seconds; :attr:`acquire_timeout` unless given.
        :param using: the alias of a database; that of the query set, or the router's, unless given.
        :raises TypeError: the query set is of another model, or gives no objects, as after ``values()``.
        """
        chosen = cls._own(queryset)
        chosen = chosen.order_by("pk") if queryset is None else chosen
        most = arguments.limit(_chosen(limit, cls.acquire_limit, "SCALABLE_ACQUIRE_LIMIT", 100))
        term = cls._term(acquired_by, timeout, acquired_at)
        with _working(cls, using or chosen._db) as work:
            now = moment(work.connection.scalar(sa.select(Now())) or 0)
            is_free = models.Q(acquired_by=None) | models.Q(acquired_until=None) | models.Q(acquired_until__lte=now)
            free = chosen.using(work.alias).filter(is_free)

            def look(limit: int, seen: list[Key]) -> list[Key]:
                keys = free.exclude(pk__in=[key for (key,) in seen]).values_list("pk", flat=True)
                # A row comes once for each row that it is joined with.
                return [(key,) for key in dict.fromkeys(keys[:limit])]

            def take(keys: Sequence[Key], limit: int) -> list[Self]:
                return cls._acquire(work, term, keys, limit, chosen.using(work.alias))

            return first_of(look, take, most)

    @classmethod
    def _acquire(
        cls, work: _Work, term: Term, keys: Sequence[Key], limit: int, queryset: models.QuerySet[Self]
    ) -> list[Self]:
        lease = work.lease
        asked = runtime.boottime()
        select = sa.select(*lease.key, lease.token).where(lease.free)
        taken = lease.take_named(work.connection, keys, select, limit, term)
        found = {(row.pk,): row for row in queryset.filter(pk__in=[key for (key,) in taken])}
        # Before a row was locked, another may have changed it so that the query set leaves it out.
        lease.end(work.connection, [key for key in taken if key not in found])
        for key, row in found.items():
            token, now = taken[key]
            row._hold = row.pk, Acquisition(term.who, token, term.deadline(asked, now))
        return [found[key] for key in keys if key in found]

    @classmethod
    def acquired(
        cls, acquired_by: str, queryset: models.QuerySet[Self] | models.Manager[Self] | None = None
    ) -> models.QuerySet[Self]:
        """Return all rows that are acquired under a name, also rows whose time is up and that nobody has taken since.

        :param queryset: only rows of this query set or manager; of ``Model.objects`` unless given.
        :raises TypeError: the query set is of another model, or gives no objects.
        """
        return cls._own(queryset).filter(acquired_by=acquired_by)

    @classmethod
    def reacquire(
        cls,
        acquired_by: str,
        queryset: models.QuerySet[Self] | models.Manager[Self] | Iterable[Self] | None = None,
        acquired_at: datetime.datetime | None = None,
        *,
        timeout: float | None = None,
        using: str | None = None,
    ) -> Reacquired:
        """Hold rows for another timeout, as :meth:`jobboard.orm.Claimable.reacquire` does.

        :param queryset: a query set or a manager, for its rows that are acquired under the name; or objects, all of one
            database. All rows that are acquired under the name unless given.
        :param using: the alias of the database; that of the rows, or the router's, unless given.
        :raises TypeError: an object is of another model; a query set that :meth:`acquire` refuses.
        :raises ValueError: the rows are in several databases, or not in that one.
        """
        term = cls._term(acquired_by, timeout, acquired_at)
        with cls._holding(acquired_by, queryset, using) as (work, rows, held):
            asked = runtime.boottime()
            extended = work.lease.extend(work.connection, held, term)
            for key, now in extended.items():
                row, deadline = rows[key], term.deadline(asked, now)
                if row.acquisition is None:
                    row._hold = row.pk, Acquisition(acquired_by, row.acquired_token, deadline)
                else:
                    row.acquisition.extend(deadline)
            lost = [row for key, row in rows.items() if key not in extended]
            for row in lost:
                row._lose()
        return Reacquired([row for key, row in rows.items() if key in extended], lost)

    @classmethod
    def unacquire(
        cls,
        acquired_by: str,
        queryset: models.QuerySet[Self] | models.Manager[Self] | Iterable[Self] | None = None,
        *,
        using: str | None = None,
    ) -> int:
        """Give rows back, or all rows that are acquired under the name, and return their number.

        Arguments and errors are those of :meth:`reacquire`. Lost rows stay as they are.
        """
        codec.check_text("who", acquired_by)
        if queryset is None:
            with _working(cls, using) as work:
                return len(work.lease.end_all(work.connection, work.lease.who == acquired_by, skip=False))
        with cls._holding(acquired_by, queryset, using) as (work, rows, held):
            ended = work.lease.lock_held(work.connection, held)
            work.lease.end(work.connection, list(ended))
            for key, row in rows.items():
                if key in ended:
                    row._hold, row._left = (row.pk, None), row._hold
                else:
                    row._lose()
        return len(ended)

    @classmethod
    def unacquire_timed_out(
        cls,
        queryset: models.QuerySet[Self] | models.Manager[Self] | None = None,
        now: datetime.datetime | None = None,
        *,
        using: str | None = None,
    ) -> int:
        """Give back all rows whose time is up, as :meth:`jobboard.orm.Claimable.unacquire_timed_out` does.

        :param queryset: only rows of this query set or manager.
        :param now: an aware time; the database's time unless given.
        :param using: as for :meth:`acquire`.
        """
        instant = None if now is None else arguments.aware("now", now)
        chosen = None if queryset is None else cls._own(queryset)
        with _working(cls, using or getattr(chosen, "_db", None)) as work:
            lease = work.lease
            if chosen is None:
                return len(lease.end_all(work.connection, lease.lapsed(instant), skip=True))
            acquired = chosen.using(work.alias).exclude(acquired_by=None)
            keys = [(key,) for key in acquired.values_list("pk", flat=True).distinct()]
            lapsed = (lease.lapsed(instant, [has_keys(lease.key, some)]) for some in chunks(keys, LOCKED_AT_ONCE))
            return sum(len(lease.end_all(work.connection, each, skip=True)) for each in lapsed)

    @classmethod
    def _term(cls, acquired_by: str, timeout: float | None, acquired_at: datetime.datetime | None) -> Term:
        seconds = _chosen(timeout, cls.acquire_timeout, "SCALABLE_ACQUIRE_TIMEOUT", 600)
        return term_of(acquired_by, seconds, acquired_at)

    @classmethod
    def _own(cls, queryset: Any) -> models.QuerySet[Self]:
        """Return a checked query set: that of ``Model.objects``, as in django-scalable, for None."""
        if queryset is None:
            # A model may call its managers by other names.
            objects = getattr(cls, "objects", None)
            queryset = objects if isinstance(objects, BaseManager) else cls._default_manager
        if isinstance(queryset, BaseManager):
            queryset = queryset.all()
        if not isinstance(queryset, models.QuerySet):
            raise TypeError(f"queryset={queryset!r}: must be a query set or a manager of {cls.__name__}")
        if queryset.model is not cls:
            raise TypeError(f"queryset is one of {queryset.model.__name__}, not of {cls.__name__}")
        if not issubclass(queryset._iterable_class, ModelIterable):
            raise TypeError("queryset gives no objects that could be acquired: leave out values() and the like")
        return queryset

    @classmethod
    @contextlib.contextmanager
    def _holding(
        cls, who: str, queryset: models.QuerySet[Self] | models.Manager[Self] | Iterable[Self] | None, using: str | None
    ) -> Iterator[tuple[_Work, dict[Key, Self], Held]]:
        """Work on rows by their keys, with the name and the token by which each is held. None: all of the name."""
        given = None
        if queryset is None or isinstance(queryset, models.QuerySet | BaseManager):
            acquired = cls.acquired(who, queryset)
            using = using or acquired._db
        else:
            given = list(queryset)
        with _working(cls, using, given or ()) as work:
            rows: dict[Key, Self] = {}
            held: dict[Key, tuple[str, int | None]] = {}
            for row in acquired.using(work.alias) if given is None else given:
                if not isinstance(row, cls._meta.concrete_model):
                    raise TypeError(f"rows must be objects of {cls.__name__}, not of {type(row).__name__}")
                its = row.acquisition
                if its is not None and its.who != who:
                    raise JobFailure(f"{cls.__name__} {row.pk!r} was acquired by {its.who!r}, not by {who!r}")
                rows[(row.pk,)] = row
                held[(row.pk,)] = who, None if its is None else its.token
            yield work, rows, held

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save the object.

        :raises ClaimLost: the object was acquired, and another has its row by now. Nothing is written.
        """
        with self._fenced(kwargs.get("using")):
            super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> Any:
        """Delete the object.

        :raises ClaimLost: the object was acquired, and another has its row by now. Nothing is deleted.
        """
        with self._fenced(kwargs.get("using")):
            return super().delete(*args, **kwargs)

    @contextlib.contextmanager
    def _fenced(self, using: str | None) -> Iterator[None]:
        held, (key, left) = self.acquisition, self._left
        if held is None and (left is None or key != self.pk):
            yield
            return
        # Where ``using`` is given, the object may be written to another database than its own.
        with _working(type(self), using, () if using else [self]) as work:
            row, lease = (self.pk,), work.lease
            if held is not None:
                is_ours = bool(lease.lock_held(work.connection, {row: (held.who, held.token)}))
            else:
                assert left is not None
                same = sa.and_(has_keys(lease.key, [row]), lease.token == left.token)
                is_ours = bool(lease.lock(work.connection, same))
            if not is_ours:
                self._lose()
                what = f"{type(self).__name__} {self.pk!r}"
                raise ClaimLost(f"{what}: another has it, or it was given back; a longer timeout leaves more time")
            yield

    def _lose(self) -> None:
        if self.acquisition is not None:
            self.acquisition.lose()
