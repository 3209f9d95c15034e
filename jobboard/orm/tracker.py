"""A mixin that tracks where each row of a mapped class stands: pending, in progress, failed, succeeded, ignored."""

from __future__ import annotations

import datetime
import enum
import logging
import traceback
import uuid
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Self, TypeVar, overload

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.orm import Mapped, Session, mapped_column

from jobboard import arguments, codec
from jobboard.exceptions import ClaimLost, NotFound
from jobboard.orm.errors import (
    JobAlreadySucceededError,
    JobIgnoredError,
    JobIsNotReadyToStartError,
    JobLockedError,
    JobLostError,
    JobNotFoundError,
)
from jobboard.orm.rows import Condition, Fenced, Key, change, key_names, keyed, lock, named, own_key_of
from jobboard.orm.sessions import Async, Scope, Sync, commit_with, insist, roll_back, run, transact
from jobboard.orm.undoing import remember, show
from jobboard.sql.dialects import database
from jobboard.sql.expressions import UtcNow

LOG = logging.getLogger(__name__)

EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 - columns of these types hold UTC without saying so

_LOCK = "jobboard.lock"

_Time = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")

PROTECTED = frozenset({"id", "status", "create_at", "update_at", "lock", "lock_at", "retry"})
"""Columns that are written by the tracker alone."""


@dataclass
class Updates:
    """What to write to the row when the job succeeds, or at once, with :meth:`StatusTracker.update`."""

    values: dict[str, Any] = field(default_factory=dict)
    model: type[StatusTracker] | None = field(default=None, repr=False)
    """Whose columns they are, where that is known before they are written."""

    def set(self, key: str, value: Any) -> None:
        """:raises KeyError: the column is the tracker's own, or of the primary key, or there is none of this name."""
        if key in PROTECTED:
            raise KeyError(f"{key!r} is written by the tracker alone: updates are for the other columns")
        if self.model is not None:
            self.model._column(key)
        self.values[key] = value


Status = int | enum.Enum

J = TypeVar("J", bound="StatusTracker")


class _HowToRun(NamedTuple):
    """How a job is to be run; statuses as their column has them."""

    key: Key
    pending: Any
    in_progress: Any
    failed: Any
    succeeded: Any
    ignored: Any
    ready: Sequence[Any]
    expire: float
    max_retry: int
    traceback_limit: int | None
    skip_error: bool
    level: int

    def failure(self, retry: int, error: str, trace: str) -> dict[str, Any]:
        """What to write after one more failure."""
        status = self.ignored if retry + 1 >= self.max_retry else self.failed
        errors = {"error": codec.clip_error(error), "traceback": codec.clip_error(trace)}
        return {"status": status, "retry": retry + 1, "errors": errors}


class StatusTracker(Fenced):
    """Mix it into a mapped class, and each row is a job that one process at a time works on.

    ::

        class Job(StatusTracker, Base):
            __tablename__ = "jobs"

        with Job.start(engine, "job-1", pending_status=10, in_progress_status=20, failed_status=30,
                       succeeded_status=40, ignored_status=50, expire=900, max_retry=3) as (job, updates):
            updates.set("data", {"result": work(job.data)})

    It brings the columns ``id status create_at update_at lock lock_at retry data errors``. A class with another primary
    key, or one of several columns, says ``id = None``; where a job's ``id`` is asked for, it then gives a tuple of the
    key's values or a dict, as ``Session.get`` takes them. Statuses are integers, or members of an Enum of integers; of
    any Enum where the class has a ``status`` column of its own, of type ``sqlalchemy.Enum``.

    Sessions and engines are taken as :class:`~jobboard.orm.Claimable` takes them. The times are the database's, in UTC.
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
        """A new job, not stored yet: add it to a session. ``kwargs`` are columns of the class's own.

        :raises ValueError: the id does not have the values of the whole key.
        """
        values = {"status": cls._plain(status), "lock_at": EPOCH, "retry": 0, "data": data, "errors": {}}
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
        """A new job, stored.

        :raises sqlalchemy.exc.IntegrityError: there is one of that id.
        :raises ValueError: as of :meth:`create`.
        """

        job = cls.create(id, status, data, **kwargs)
        return run(engine_or_session, cls, job._save)

    def _save(self, session: Session) -> Self:
        session.add(self)
        session.flush()
        session.refresh(self)
        return self

    def is_locked(self, expire: float) -> bool:
        """Whether this object shows a lock that is younger than ``expire`` seconds.

        It asks nobody: it goes by what was loaded, and by this machine's clock. :meth:`start` and :meth:`lock_it` go by
        what is stored, and by the database's.
        """
        return self._is_locked(_seconds(expire), datetime.datetime.now(datetime.UTC).replace(tzinfo=None))

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
        """Lock the job and set its status, whatever that was.

        :param expire: how many seconds old another's lock must be to be taken over; without it none is.
        :returns: the lock and its time. From now on this object writes to its row only as long as it has that lock.
        :raises JobLockedError: somebody has it.
        :raises JobNotFoundError: it is not stored.
        """
        seconds = None if expire is None else _seconds(expire)

        def locked(session: Session) -> tuple[str, datetime.datetime]:
            stored, now = self._stored(session, self._key_in(session))
            if stored.lock is not None and (seconds is None or stored._is_locked(seconds, now)):
                raise _locked(self)
            return self._lock(session, stored, now, {"status": self._plain(in_progress_status)})

        LOG.log(_level(debug), "locking %s", named(type(self), own_key_of(self)))
        return run(engine_or_session, type(self), locked)

    # fmt: off
    @overload
    def update(self, engine_or_session: Sync, updates: Updates) -> None: ...
    @overload
    def update(self, engine_or_session: Async, updates: Updates) -> Awaitable[None]: ...
    # fmt: on
    def update(self, engine_or_session: Sync | Async, updates: Updates) -> Awaitable[None] | None:
        """Write columns of the row.

        :raises TypeError: ``updates`` are no :class:`Updates`.
        :raises KeyError: there is no such column, or it can't be written.
        :raises JobLostError: this object had locked the job, and somebody else has it by now.
        :raises JobNotFoundError: it is gone.
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

        It may start when its status is pending, failed or one of ``more_pending_status``, and nobody has locked it; or
        when somebody was working on it and their lock has expired, which counts as a failure. When the block ends,

        - without an error, ``updates`` are written, the status is succeeded and ``retry`` is 0;
        - with an error, ``errors`` shows it and its traceback, of each the last 16 KiB; ``retry`` goes up by one, and
          the status is failed, or ignored when that makes it ``max_retry``; what the block has not committed is rolled
          back;
        - with KeyboardInterrupt or the like, also when a task is cancelled, the job is given back as it was.

        In the block, objects of the job's session can be written as well, and be deleted, the job itself, too: that is
        committed along with the success.

        :param engine: or a session, which must not be in a transaction.
        :param more_pending_status: the succeeded and the ignored status, too, for a job that shall run once more.
        :param expire: after how many seconds another may take the job over; whoever had it can't finish it any more.
        :param max_retry: after how many failures in a row the job is ignored.
        :param traceback_stack_limit: how many entries of the traceback are stored; None: all of them.
        :param skip_error: an error of the block is stored, but not raised.
        :param debug: log at INFO what otherwise is logged at DEBUG.
        :raises JobNotFoundError: there is no such job.
        :raises JobLockedError: somebody is working on it.
        :raises JobAlreadySucceededError, JobIgnoredError, JobIsNotReadyToStartError: its status.
        :raises JobLostError: at the end; the lock expired and another has taken the job. Nothing was written.
        :raises ValueError: the id does not have the values of the whole key.
        :raises TypeError: an argument of a wrong type.
        :raises sqlalchemy.exc.InvalidRequestError: the session is in a transaction.
        """
        more: Any = () if more_pending_status is None else more_pending_status
        more = more if isinstance(more, (list, tuple, set, frozenset)) else (more,)
        plan = _HowToRun(
            key=tuple(cls._key(id).values()),
            pending=cls._plain(pending_status),
            in_progress=cls._plain(in_progress_status),
            failed=cls._plain(failed_status),
            succeeded=cls._plain(succeeded_status),
            ignored=cls._plain(ignored_status),
            ready=[cls._plain(status) for status in (pending_status, failed_status, *more)],
            expire=_seconds(expire),
            max_retry=arguments.integer("max_retry", max_retry),
            traceback_limit=_entries(traceback_stack_limit),
            skip_error=skip_error,
            level=_level(debug),
        )
        return Scope(engine, lambda session: _started(session, cls, plan))

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
        """The first jobs of a status.

        :param limit: how many at most; None: all.
        :param older_task_first: those that were not updated for longest come first.
        """
        most = arguments.limit(limit) if limit else limit
        select = sa.select(cls).where(cls.status == cls._plain(status)).limit(most)
        if older_task_first:
            select = select.order_by(cls.update_at, *sa.inspect(cls).primary_key)
        return run(engine_or_session, cls, lambda session: list(session.scalars(select).unique()), reads=True)

    @classmethod
    def _column(cls, name: str) -> sa.ColumnElement[Any]:
        """A column that may be written."""
        mapper = sa.inspect(cls)
        if name not in mapper.columns:
            raise KeyError(f"{cls.__name__} has no column {name!r}, but {', '.join(mapper.columns.keys())}")
        column: sa.ColumnElement[Any] = mapper.columns[name]
        if column in mapper.primary_key or column is mapper.version_id_col:
            raise KeyError(f"{name!r} tells the row or its versions apart, and can't be updated: write another column")
        return column

    @classmethod
    def _plain(cls, status: Any) -> Any:
        """A status as its column has it."""
        if isinstance(status, enum.Enum) and not isinstance(sa.inspect(cls).columns["status"].type, sa.Enum):
            return status.value
        return status

    @classmethod
    def _key(cls, id: Any) -> dict[str, Any]:  # noqa: A002
        """The key's attributes and their values, in the key's order."""
        names = key_names(sa.inspect(cls))
        if isinstance(id, Mapping):
            values = [id[name] for name in names if name in id]
        else:
            values = list(id) if len(names) > 1 and isinstance(id, (tuple, list)) else [id]
        if len(values) != len(names):
            raise ValueError(f"id={id!r}: the key of {cls.__name__} is {', '.join(names)}; give the value of each")
        return dict(zip(names, values, strict=True))

    @classmethod
    def _stored(cls, session: Session, key: Key) -> tuple[Self, datetime.datetime]:
        """The job as it is now, and the time."""
        mapper = sa.inspect(cls)
        select = sa.select(cls, UtcNow()).where(keyed(mapper, [key])).execution_options(populate_existing=True)
        row = session.execute(select).unique().one_or_none()
        if row is None:
            raise JobNotFoundError(f"there is no {named(cls, key)}")
        return row[0], row[1]

    @classmethod
    def _start(cls, session: Session, plan: _HowToRun) -> tuple[Self, Any] | JobIgnoredError:
        """The locked job, and the status to go back to; or the error that it leads to."""
        job, now = cls._stored(session, plan.key)
        name, status = named(cls, plan.key), cls._plain(job.status)
        if job._is_locked(plan.expire, now):
            raise _locked(job)
        if job.lock is not None and status == plan.in_progress:
            failure = plan.failure(job.retry, f"the lock of {job.lock_at} expired", "")
            if failure["status"] == plan.ignored:
                job._lock(session, job, now, {**failure, "update_at": now})
                job._finish(session, {})
                return JobIgnoredError(f"{name} has failed {failure['retry']} times, the last time as its lock expired")
            job._lock(session, job, now, {**failure, "status": plan.in_progress})
            return job, plan.failed
        if status not in plan.ready:
            way = f"; more_pending_status={status!r} lets it start"
            if status == plan.succeeded:
                raise JobAlreadySucceededError(f"{name} has succeeded already{way}")
            if status == plan.ignored:
                raise JobIgnoredError(f"{name} has failed {job.retry} times and is ignored{way}")
            raise JobIsNotReadyToStartError(f"{name} has status {status!r}, and may start from {plan.ready}{way}")
        job._lock(session, job, now, {"status": plan.in_progress})
        return job, status

    def _lock(
        self, session: Session, seen: Self, now: datetime.datetime, values: dict[str, Any]
    ) -> tuple[str, datetime.datetime]:
        """Lock the job, unless it is another than was seen: somebody may even have had it and finished it since."""
        columns = sa.inspect(type(self)).columns
        same = (columns[name].is_not_distinct_from(getattr(seen, name)) for name in ("lock", "status", "retry"))
        lock = uuid.uuid4().hex
        if not self._changed(session, sa.and_(*same), {**values, "lock": lock, "lock_at": now}):
            raise _locked(self)
        remember(session, [self], _LOCK, lock)
        return lock, now

    def _finish(self, session: Session, values: dict[str, Any]) -> None:
        """Write the values and give the lock back, unless the job has been deleted by its holder."""
        if sa.inspect(self).was_deleted:
            return
        now = session.scalar(sa.select(UtcNow()))
        self._write(session, {**values, "update_at": now, "lock": None})
        remember(session, [self], _LOCK, None)

    def _write(self, session: Session, values: Mapping[str, Any]) -> None:
        """Write the values, if this object still has the lock that it had taken."""
        held = StatusTracker._hold(self)
        same = (sa.inspect(type(self)).columns[name] == value for name, value in (held or {}).items())
        if not self._changed(session, sa.and_(sa.true(), *same), values):
            raise (
                JobNotFoundError(f"{named(type(self), own_key_of(self))} is gone")
                if held is None
                else StatusTracker._lose(self)
            )

    def _changed(self, session: Session, condition: Condition, values: Mapping[str, Any]) -> bool:
        mapper = sa.inspect(type(self))
        columns = {self._column(name): value for name, value in values.items()}
        key, connection = self._key_in(session), session.connection({"mapper": mapper})
        if not connection.execute(change(mapper, [key], condition).values(columns)).rowcount:
            # A caller's connection may count the rows that it changes, and of those that it meets not all are changed.
            if not database(connection.dialect).counts_changes:
                return False
            if not lock(connection, mapper, sa.and_(keyed(mapper, [key]), condition), skip=False):
                return False
        show(session, [self], values)
        return True

    def _key_in(self, session: Session) -> Key:
        """The key of what is stored now, if the session was to store it."""
        if self in session.new:
            session.flush()
        return own_key_of(self)

    def _hold(self) -> dict[str, Any] | None:
        lock = sa.inspect(self).info.get(_LOCK)
        return None if lock is None else {"lock": lock}

    def _lose(self) -> JobLostError:
        error = JobLostError(
            f"{named(type(self), own_key_of(self))}: its lock expired and another took it, or it was deleted; "
            "nothing was written, and a longer expire leaves more time"
        )
        error.job = self
        return error


class _TrackedRun(Generic[J]):
    """A job that is worked on for the length of a block."""

    def __init__(self, session: Session, model: type[J], plan: _HowToRun) -> None:
        self._session = session
        self._model = model
        self._plan = plan
        self._name = named(model, plan.key)
        self._lock: str | None = None
        self._started = False
        self.job: J | None = None
        self.updates = Updates(model=model)

    def start(self) -> J:
        """Lock the job.

        :raises JobIgnoredError: it has failed too often, by the expiry of its last lock.
        """
        if (ignored := transact(self._session, self._model, self._start)) is not None:
            raise ignored
        assert self.job is not None
        self._started = True
        LOG.log(self._plan.level, "%s started", self._name)
        return self.job

    def _start(self, session: Session) -> JobIgnoredError | None:
        self.job = None
        started = self._model._start(session, self._plan)
        if isinstance(started, JobIgnoredError):
            return started
        # Before the commit: an interrupt may come as soon as the job is locked.
        job, self._before = started
        self._retry, self._lock = job.retry, sa.inspect(job).info[_LOCK]
        self.job = job
        return None

    def succeed(self) -> None:
        self._end({**self.updates.values, "status": self._plan.succeeded, "retry": 0})

    def fail(self, error: Exception) -> None:
        trace = traceback.format_exc(limit=self._plan.traceback_limit)
        self._give_up(lambda: self._plan.failure(self._retry, _shown(error), trace))

    def leave(self) -> None:
        self._give_up(lambda: {"status": self._before})

    def _give_up(self, values: Callable[[], dict[str, Any]]) -> None:
        if self.job is not None:
            written = values()
            insist(lambda: self._fall_back(written))

    def _fall_back(self, values: dict[str, Any]) -> None:
        roll_back(self._session)
        # A commit that was interrupted may have been made all the same.
        sa.inspect(self.job).info[_LOCK] = self._lock
        try:
            # What was rolled back has to be loaded again, for whoever looks at the job afterwards.
            transact(self._session, self._model, lambda session: self._model._stored(session, self._plan.key))
            self._end(values)
        except (ClaimLost, NotFound) as error:
            if self._started:
                LOG.warning("%s has failed, but was lost before: %s", self._name, error)
        except sa.exc.SQLAlchemyError:
            LOG.exception("%s has failed, and stays locked until that expires", self._name)

    def _end(self, values: dict[str, Any]) -> None:
        assert self.job is not None
        job = self.job
        commit_with(self._session, self._model, lambda session: job._finish(session, values))
        LOG.log(self._plan.level, "%s ended with status %r", self._name, values["status"])


def _started(session: Session, model: type[J], plan: _HowToRun) -> Generator[tuple[J, Updates]]:
    """The block of :meth:`StatusTracker.start`, for a :class:`~jobboard.orm.sessions.Scope`."""
    run, worked = _TrackedRun(session, model, plan), False
    try:
        yield run.start(), run.updates
        worked = True
        run.succeed()
    except Exception as error:
        run.fail(error)
        if worked or run.job is None or not plan.skip_error:
            raise
    except BaseException:
        run.leave()
        raise


def _shown(error: Exception) -> str:
    try:
        return repr(error)
    except Exception:  # noqa: BLE001 - it is the user's, and must not keep the job locked
        return object.__repr__(error)


def _locked(job: StatusTracker) -> JobLockedError:
    name = named(type(job), own_key_of(job))
    error = JobLockedError(f"{name} is locked by another: try again once that has ended, or its lock has expired")
    error.job = job
    return error


def _level(debug: bool) -> int:
    return logging.INFO if debug else logging.DEBUG


def _entries(traceback_stack_limit: int | None) -> int | None:
    """Return the number of a traceback's entries to store; None for all."""
    return None if traceback_stack_limit is None else arguments.integer("traceback_stack_limit", traceback_stack_limit)


def _seconds(expire: float | None) -> float:
    if expire is None:
        raise TypeError("expire must be a number of seconds, not None")
    return arguments.seconds("expire", expire) or 0.0
