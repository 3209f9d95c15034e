"""StatusTracker: a mixin whose rows are jobs with a status: pending, in progress, failed, succeeded or ignored."""

from __future__ import annotations

import datetime
import enum
import logging
import sys
import traceback
from collections.abc import Awaitable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Self, TypeVar, overload

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.orm import Mapped, Mapper, Session, mapped_column

from jobboard import arguments, codec, runtime
from jobboard.exceptions import ClaimLost, NotFound
from jobboard.orm.errors import (
    JobAlreadySucceededError,
    JobIgnoredError,
    JobIsNotReadyToStartError,
    JobLockedError,
    JobLostError,
    JobNotFoundError,
)
from jobboard.orm.rows import Fenced, key_names, name_of, own_key_of, table_of
from jobboard.orm.sessions import (
    Async,
    Scope,
    Sync,
    commit_with,
    remember,
    repeat_if_interrupted,
    roll_back,
    run,
    show,
    transact,
)
from jobboard.sql.expressions import UtcNow
from jobboard.sql.lease import Condition, Key, RowLease, has_keys

LOG = logging.getLogger(__name__)

EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 - columns of these types hold UTC without saying so

_LOCK = "jobboard.lock"
"""The key of an object's own lock in its ``info``."""

_Time = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")

PROTECTED = frozenset({"id", "status", "create_at", "update_at", "lock", "lock_at", "retry"})
"""The columns that only the tracker writes."""


@dataclass
class Updates:
    """Values to write to a job's row: when the job succeeds, or at once by :meth:`StatusTracker.update`."""

    values: dict[str, Any] = field(default_factory=dict)
    model: type[StatusTracker] | None = field(default=None, repr=False)
    """The class of the job, if it is known before the values are written."""

    def set(self, key: str, value: Any) -> None:
        """Set the value of a column.

        :raises KeyError: there is no such column, or it belongs to the tracker or to the primary key.
        """
        if key in PROTECTED:
            raise KeyError(f"{key!r} is written by the tracker alone: updates are for the other columns")
        if self.model is not None:
            self.model._column(key)
        self.values[key] = value


Status = int | enum.Enum

J = TypeVar("J", bound="StatusTracker")


class StatusTracker(Fenced):
    """A mixin for a mapped class, whose rows are jobs that one process at a time works on.

    ::

        class Job(StatusTracker, Base):
            __tablename__ = "jobs"

        with Job.start(engine, "job-1", pending_status=10, in_progress_status=20, failed_status=30,
                       succeeded_status=40, ignored_status=50, expire=900, max_retry=3) as (job, updates):
            updates.set("data", {"result": work(job.data)})

    The mixin brings the columns ``id status create_at update_at lock lock_at retry data errors``. A class with another
    primary key says ``id = None``. An argument ``id`` is then the value of that key, or for several columns a tuple or
    a dict, as for ``Session.get``. Statuses are integers, or members of an Enum of integers. If the class has a
    ``status`` column of its own, of type ``sqlalchemy.Enum``, they are members of any Enum.

    Verbs take sessions and engines as those of :class:`~jobboard.orm.Claimable`. Times are the database's, in UTC.
    """

    id: Mapped[str] = mapped_column(sa.String(255), primary_key=True)
    status: Mapped[Any] = mapped_column(sa.Integer)
    create_at: Mapped[datetime.datetime] = mapped_column(_Time, default=UtcNow())
    update_at: Mapped[datetime.datetime] = mapped_column(_Time, default=UtcNow())
    lock: Mapped[str | None] = mapped_column(sa.String(32), default=None)
    lock_at: Mapped[datetime.datetime] = mapped_column(_Time, default=EPOCH)
    retry: Mapped[int] = mapped_column(sa.Integer, default=0)
    data: Mapped[Any] = mapped_column(sa.JSON, nullable=True)
    errors: Mapped[Any] = mapped_column(sa.JSON, nullable=True)

    @classmethod
    def create(cls, id: Any, status: Status, data: Any = None, **kwargs: Any) -> Self:  # noqa: A002
        """Return a new job that is not stored yet: add it to a session.

        :param kwargs: values of the class's own columns.
        :raises ValueError: the id does not have the values of the whole key.
        """
        values = {"status": cls._plain_status(status), "lock_at": EPOCH, "retry": 0, "data": data, "errors": {}}
        return cls(**cls._key(id), **values, **kwargs)

    # fmt: off
    @overload
    @classmethod
    def create_and_save(cls, engine_or_session: Sync, id: Any, status: Status, data: Any = ...,
                        **kwargs: Any) -> Self: ...
    @overload
    @classmethod
    def create_and_save(cls, engine_or_session: Async, id: Any, status: Status, data: Any = ...,
                        **kwargs: Any) -> Awaitable[Self]: ...
    # fmt: on
    @classmethod
    def create_and_save(
        cls,
        engine_or_session: Sync | Async,
        id: Any,  # noqa: A002
        status: Status,
        data: Any = None,
        **kwargs: Any,
    ) -> Self | Awaitable[Self]:
        """Store a new job, and return it.

        :raises sqlalchemy.exc.IntegrityError: a job of that id exists.
        :raises ValueError: as :meth:`create`.
        """
        job = cls.create(id, status, data, **kwargs)
        return run(engine_or_session, cls, job._save)

    def _save(self, session: Session) -> Self:
        session.add(self)
        session.flush()
        session.refresh(self)
        return self

    def is_locked(self, expire: float) -> bool:
        """Return whether this object shows a lock that is younger than ``expire`` seconds.

        This goes by the loaded values and by this machine's clock. :meth:`start` and :meth:`lock_it` go by the stored
        values and by the database's clock.
        """
        return self._is_locked(_seconds(expire), runtime.utc_now().replace(tzinfo=None))

    def _is_locked(self, expire: float, now: datetime.datetime) -> bool:
        return self.lock is not None and (now - self.lock_at).total_seconds() < expire

    # fmt: off
    @overload
    def lock_it(self, engine_or_session: Sync, in_progress_status: Status, debug: bool = ..., *,
                expire: float | None = ...) -> tuple[str, datetime.datetime]: ...
    @overload
    def lock_it(self, engine_or_session: Async, in_progress_status: Status, debug: bool = ..., *,
                expire: float | None = ...) -> Awaitable[tuple[str, datetime.datetime]]: ...
    # fmt: on
    def lock_it(
        self,
        engine_or_session: Sync | Async,
        in_progress_status: Status,
        debug: bool = False,
        *,
        expire: float | None = None,
    ) -> tuple[str, datetime.datetime] | Awaitable[tuple[str, datetime.datetime]]:
        """Lock the job and set its status, whatever its status was.

        :param expire: the seconds after which another's lock is taken over; None: never.
        :returns: the lock and its time. From now on this object writes to its row only while it has that lock.
        :raises JobLockedError: another has locked the job.
        :raises JobNotFoundError: the job is not stored.
        """
        seconds = None if expire is None else _seconds(expire)

        def locked(session: Session) -> tuple[str, datetime.datetime]:
            stored, now = self._load(session, self._key_in(session))
            if stored.lock is not None and (seconds is None or stored._is_locked(seconds, now)):
                raise _locked_error(self)
            return self._lock(session, stored, now, {"status": self._plain_status(in_progress_status)})

        _log(debug, "locking %s", name_of(type(self), own_key_of(self)))
        return run(engine_or_session, type(self), locked)

    # fmt: off
    @overload
    def update(self, engine_or_session: Sync, updates: Updates) -> None: ...
    @overload
    def update(self, engine_or_session: Async, updates: Updates) -> Awaitable[None]: ...
    # fmt: on
    def update(self, engine_or_session: Sync | Async, updates: Updates) -> Awaitable[None] | None:
        """Write columns of the row.

        :raises TypeError: ``updates`` is no :class:`Updates`.
        :raises KeyError: there is no such column, or it can't be written.
        :raises JobLostError: this object had locked the job, and another has the lock by now.
        :raises JobNotFoundError: the job is gone.
        """
        if not isinstance(updates, Updates):
            raise TypeError(f"updates must be Updates, not {type(updates).__name__}: write Updates({{'data': …}})")
        if not isinstance(updates.values, Mapping):
            raise TypeError(f"Updates.values must be a mapping, not {type(updates.values).__name__}")
        return run(engine_or_session, type(self), lambda session: self._write(session, updates.values))

    @classmethod
    def start(
        cls,
        engine: Sync | Async,
        id: Any,  # noqa: A002
        pending_status: Status,
        in_progress_status: Status,
        failed_status: Status,
        succeeded_status: Status,
        ignored_status: Status,
        expire: float,
        max_retry: int,
        more_pending_status: Status | Sequence[Status] | None = None,
        traceback_stack_limit: int | None = 10,
        skip_error: bool = False,
        debug: bool = False,
    ) -> Scope[tuple[Self, Updates]]:
        """Work on a job for the length of a block, ``with`` or ``async with``: ``as (job, updates)``.

        A job may start if nobody has locked it and its status is pending, failed or one of ``more_pending_status``. It
        may also start if it is in progress and its lock has expired, which counts as a failure. At the end of the
        block:

        - without an error, ``updates`` are written, the status is succeeded and ``retry`` is 0;
        - with an error, ``errors`` shows the error and its traceback, of each the last 16 KiB. ``retry`` rises by one,
          and the status is failed, or ignored once ``retry`` is ``max_retry``. Open changes are rolled back;
        - with KeyboardInterrupt and the like, also if a task is cancelled, the job is given back as it was.

        The block may write or delete objects of the job's session, the job included. These changes are committed
        together with the success.

        :param engine: an engine, or a session that is not in a transaction.
        :param more_pending_status: further statuses to start from, also succeeded or ignored, to run a job once more.
        :param expire: the seconds after which another may take the job over. The earlier worker can't finish it then.
        :param max_retry: the number of failures in a row after which the job is ignored.
        :param traceback_stack_limit: the number of stored entries of the traceback; None: all of them.
        :param skip_error: store an error of the block, and do not raise it.
        :param debug: log at INFO instead of DEBUG; to stderr if logging is not set up.
        :raises JobNotFoundError: the job does not exist.
        :raises JobLockedError: another works on the job.
        :raises JobAlreadySucceededError, JobIgnoredError, JobIsNotReadyToStartError: the job's status.
        :raises JobLostError: at the end: the lock expired and another took the job. Nothing was written.
        :raises ValueError: the id does not have the values of the whole key.
        :raises TypeError: an argument has a wrong type.
        :raises sqlalchemy.exc.InvalidRequestError: the session is in a transaction.
        """
        more: Any = () if more_pending_status is None else more_pending_status
        more = more if isinstance(more, (list, tuple, set, frozenset)) else (more,)
        limit = traceback_stack_limit
        if limit is not None:
            arguments.integer("traceback_stack_limit", limit)
        run = partial(
            _TrackedRun,
            model=cls,
            key=tuple(cls._key(id).values()),
            in_progress=cls._plain_status(in_progress_status),
            failed=cls._plain_status(failed_status),
            succeeded=cls._plain_status(succeeded_status),
            ignored=cls._plain_status(ignored_status),
            ready=[cls._plain_status(status) for status in (pending_status, failed_status, *more)],
            expire=_seconds(expire),
            max_retry=arguments.integer("max_retry", max_retry),
            traceback_limit=limit,
            skip_error=skip_error,
            debug=debug,
        )
        return Scope(engine, lambda session, _: run(session).block())

    # fmt: off
    @overload
    @classmethod
    def query_by_status(cls, engine_or_session: Sync, status: Status, limit: int | None = ...,
                        older_task_first: bool = ...) -> list[Self]: ...
    @overload
    @classmethod
    def query_by_status(cls, engine_or_session: Async, status: Status, limit: int | None = ...,
                        older_task_first: bool = ...) -> Awaitable[list[Self]]: ...
    # fmt: on
    @classmethod
    def query_by_status(
        cls, engine_or_session: Sync | Async, status: Status, limit: int | None = 10, older_task_first: bool = True
    ) -> list[Self] | Awaitable[list[Self]]:
        """Return the first jobs of a status.

        :param limit: the most jobs; None: all.
        :param older_task_first: order the jobs by their last update.
        """
        most = arguments.limit(limit) if limit else limit
        select = sa.select(cls).where(cls.status == cls._plain_status(status)).limit(most)
        if older_task_first:
            select = select.order_by(cls.update_at, *sa.inspect(cls).primary_key)
        return run(engine_or_session, cls, lambda session: list(session.scalars(select).unique()), reads=True)

    # Keys, columns and statuses

    @classmethod
    def _column(cls, name: str) -> sa.ColumnElement[Any]:
        """Return a column that may be written.

        :raises KeyError: there is no such column, or it can't be written.
        """
        mapper = sa.inspect(cls)
        if name not in mapper.columns:
            raise KeyError(f"{cls.__name__} has no column {name!r}, but {', '.join(mapper.columns.keys())}")
        column: sa.ColumnElement[Any] = mapper.columns[name]
        if column in mapper.primary_key or column is mapper.version_id_col:
            raise KeyError(f"{name!r} tells the row or its versions apart, and can't be updated: write another column")
        return column

    @classmethod
    def _plain_status(cls, status: Any) -> Any:
        """Return a status as its column has it."""
        if isinstance(status, enum.Enum) and not isinstance(sa.inspect(cls).columns["status"].type, sa.Enum):
            return status.value
        return status

    @classmethod
    def _key(cls, id: Any) -> dict[str, Any]:  # noqa: A002
        """Return the key's attributes and their values, in the key's order."""
        names = key_names(sa.inspect(cls))
        if isinstance(id, Mapping):
            values = [id[name] for name in names if name in id]
        else:
            values = list(id) if len(names) > 1 and isinstance(id, (tuple, list)) else [id]
        if len(values) != len(names):
            raise ValueError(f"id={id!r}: the key of {cls.__name__} is {', '.join(names)}; give the value of each")
        return dict(zip(names, values, strict=True))

    def _key_in(self, session: Session) -> Key:
        """Return the key of the stored job, which the session stores first if it was added to the session."""
        if self in session.new:
            session.flush()
        return own_key_of(self)

    # The lock

    @staticmethod
    def _lease(mapper: Mapper[Any]) -> RowLease:
        return RowLease(table_of(mapper), mapper.primary_key, who=mapper.columns["lock"])

    def _hold(self) -> tuple[str, int | None] | None:
        lock = sa.inspect(self).info.get(_LOCK)
        return None if lock is None else (lock, None)

    def _lose(self) -> JobLostError:
        error = JobLostError(
            f"{name_of(type(self), own_key_of(self))}: its lock expired and another took it, or it was deleted; "
            "nothing was written, and a longer expire leaves more time"
        )
        error.job = self
        return error

    @classmethod
    def _load(cls, session: Session, key: Key) -> tuple[Self, datetime.datetime]:
        """Return the job as it is stored, and the time.

        :raises JobNotFoundError: the job does not exist.
        """
        select = sa.select(cls, UtcNow()).where(has_keys(sa.inspect(cls).primary_key, [key]))
        row = session.execute(select.execution_options(populate_existing=True)).unique().one_or_none()
        if row is None:
            raise JobNotFoundError(f"there is no {name_of(cls, key)}")
        return row[0], row[1]

    def _lock(
        self, session: Session, seen: Self, now: datetime.datetime, values: dict[str, Any]
    ) -> tuple[str, datetime.datetime]:
        """Lock the job, unless it has changed since it was seen: another may even have begun and finished it."""
        columns = sa.inspect(type(self)).columns
        same = (columns[name].is_not_distinct_from(getattr(seen, name)) for name in ("lock", "status", "retry"))
        lock = runtime.uuid4().hex
        values = {**values, "lock": lock, "lock_at": now}
        if not self._change(session, values, *same):
            raise _locked_error(self)
        remember(session, [self], _LOCK, lock)
        show(session, [self], values)
        return lock, now

    def _finish(self, session: Session, values: dict[str, Any]) -> None:
        """Write values and give the lock back, unless the holder has deleted the job."""
        if sa.inspect(self).was_deleted:
            return
        now = session.scalar(sa.select(UtcNow()))
        self._write(session, {**values, "update_at": now, "lock": None})
        remember(session, [self], _LOCK, None)

    def _write(self, session: Session, values: Mapping[str, Any]) -> None:
        """Write values, if this object still has its lock."""
        lease, key, hold = self._lease(sa.inspect(type(self))), self._key_in(session), self._hold()
        own = has_keys(lease.key, [key]) if hold is None else sa.and_(has_keys(lease.key, [key]), lease.who == hold[0])
        # The lock comes first, as some connections count only the rows that an update changes.
        if not lease.lock(session.connection({"mapper": sa.inspect(type(self))}), own):
            if hold is not None:
                raise self._lose()
            raise JobNotFoundError(f"{name_of(type(self), key)} is gone")
        self._change(session, values)
        show(session, [self], values)

    def _change(self, session: Session, values: Mapping[str, Any], *conditions: Condition) -> int:
        """Write values to the row, and return how many rows met the conditions.

        The user's own columns with ``onupdate`` move together with other columns of the user's alone.
        """
        mapper = sa.inspect(type(self))
        columns = {self._column(name): value for name, value in values.items()}
        alone = PROTECTED.issuperset(values.keys() - {"errors"})
        connection, key = session.connection({"mapper": mapper}), self._key_in(session)
        return self._lease(mapper).write(connection, [key], columns, *conditions, alone=alone)


@dataclass
class _TrackedRun(Generic[J]):
    """One run of a job within a block. Statuses are as their column has them."""

    session: Session
    model: type[J]
    key: Key
    in_progress: Any
    failed: Any
    succeeded: Any
    ignored: Any
    ready: Sequence[Any]
    expire: float
    max_retry: int
    traceback_limit: int | None
    skip_error: bool
    debug: bool

    job: J | None = None
    """The locked job; None while nothing is locked."""

    def block(self) -> Generator[tuple[J, Updates]]:
        """Run the block of :meth:`StatusTracker.start`, for a :class:`~jobboard.orm.sessions.Scope`."""
        updates, is_started, is_worked = Updates(model=self.model), False, False
        try:
            ignored = transact(self.session, self.model, self._start)
            if self.job is None:
                assert ignored is not None
                raise ignored
            is_started = True
            _log(self.debug, "%s started", self._name)
            yield self.job, updates
            is_worked = True
            self._end({**updates.values, "status": self.succeeded, "retry": 0})
        except BaseException as error:
            if self.job is not None:
                values = {"status": self._before}
                if isinstance(error, Exception):
                    trace = traceback.format_exc(limit=self.traceback_limit)
                    values = self._failure(self._retry, _repr_of(error), trace)
                repeat_if_interrupted(partial(self._fall_back, values, is_started))
                if self.skip_error and isinstance(error, Exception) and not is_worked:
                    return
            raise

    @property
    def _name(self) -> str:
        return name_of(self.model, self.key)

    def _failure(self, retry: int, error: str, trace: str) -> dict[str, Any]:
        """Return the values to write after one more failure."""
        status = self.ignored if retry + 1 >= self.max_retry else self.failed
        errors = {"error": codec.clip_error(error), "traceback": codec.clip_error(trace)}
        return {"status": status, "retry": retry + 1, "errors": errors}

    def _start(self, session: Session) -> JobIgnoredError | None:
        """Lock the job, or return the error of a job that is ignored from now on."""
        self.job = None
        job, now = self.model._load(session, self.key)
        values: dict[str, Any] = {"status": self.in_progress}
        before = self.model._plain_status(job.status)
        if job._is_locked(self.expire, now):
            raise _locked_error(job)
        if job.lock is not None and before == self.in_progress:
            before = self.failed
            failure = self._failure(job.retry, f"the lock of {job.lock_at} expired", "")
            if failure["status"] == self.ignored:
                job._lock(session, job, now, {**failure, "update_at": now})
                job._finish(session, {})
                times = failure["retry"]
                return JobIgnoredError(f"{self._name} has failed {times} times, the last time as its lock expired")
            values = {**failure, **values}
        elif before not in self.ready:
            raise self._not_ready(before, job.retry)
        self._before = before
        self._lock, _ = job._lock(session, job, now, values)
        # Before the commit: an interrupt may come as soon as the job is locked.
        self._retry, self.job = job.retry, job
        return None

    def _not_ready(self, status: Any, retry: int) -> JobIsNotReadyToStartError:
        way = f"; more_pending_status={status!r} lets it start"
        if status == self.succeeded:
            return JobAlreadySucceededError(f"{self._name} has succeeded already{way}")
        if status == self.ignored:
            return JobIgnoredError(f"{self._name} has failed {retry} times and is ignored{way}")
        return JobIsNotReadyToStartError(f"{self._name} has status {status!r}, and may start from {self.ready}{way}")

    def _fall_back(self, values: dict[str, Any], is_started: bool) -> None:
        roll_back(self.session)
        # A commit that was interrupted may have been made all the same.
        sa.inspect(self.job).info[_LOCK] = self._lock
        try:
            # Load the attributes that the rollback has expired, for users who look at the job afterwards.
            transact(self.session, self.model, lambda session: self.model._load(session, self.key))
            self._end(values)
        except (ClaimLost, NotFound) as error:
            if is_started:
                LOG.warning("%s has failed, but was lost before: %s", self._name, error)
        except sa.exc.SQLAlchemyError:
            LOG.exception("%s has failed, and stays locked until its lock expires", self._name)

    def _end(self, values: dict[str, Any]) -> None:
        assert self.job is not None
        job = self.job
        commit_with(self.session, self.model, lambda session: job._finish(session, values))
        _log(self.debug, "%s ended with status %r", self._name, values["status"])


def _repr_of(error: Exception) -> str:
    try:
        return repr(error)
    except Exception:  # noqa: BLE001 - an error of the user's class must not keep the job locked
        return object.__repr__(error)


def _locked_error(job: StatusTracker) -> JobLockedError:
    name = name_of(type(job), own_key_of(job))
    error = JobLockedError(
        f"{name} is locked by another worker: try again once that worker has ended, or its lock has expired"
    )
    error.job = job
    return error


def _log(debug: bool, message: str, *args: object) -> None:
    """Log at INFO for ``debug``, else at DEBUG. Without any logging set up, print what ``debug`` asks for to stderr."""
    LOG.log(logging.INFO if debug else logging.DEBUG, message, *args)
    if debug and not LOG.hasHandlers():
        sys.stderr.write(f"{message % args}\n")


def _seconds(expire: float | None) -> float:
    if expire is None:
        raise TypeError("expire must be a number of seconds, not None")
    return arguments.seconds("expire", expire) or 0.0
