"""TaskLoop: recurring work over ids that the user already has; and its verbs as doloop's functions."""

from __future__ import annotations

import functools
import inspect
import math
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeAlias, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from jobboard import codec
from jobboard.conf import shortened
from jobboard.exceptions import ClaimLost, JobFailure
from jobboard.sql.binds import Bind
from jobboard.sql.dialects import Database
from jobboard.sql.runners import Runner
from jobboard.taskloop import tables
from jobboard.taskloop.statements import LoopStatements

P = ParamSpec("P")
T = TypeVar("T")
Bound: TypeAlias = Engine | Connection | Callable[[], Connection]
Ids = Any
"""One id, or an iterable of ids. A str and bytes are single ids."""

ONE_HOUR = 60 * 60
ONE_DAY = 24 * ONE_HOUR
ONE_WEEK = 7 * ONE_DAY
_FAR = 2**62
"""The most seconds of a time. No database could store the end of a longer one."""

_known: weakref.WeakKeyDictionary[Engine, dict[str, LoopStatements]] = weakref.WeakKeyDictionary()
"""The statements of each table that was used, by engine and name."""


class Held(list[Any]):
    """The ids that ``get(who=…)`` has locked, with the proof of their holder.

    An id that is removed from the list stays locked, and is in no later call.

    ``who``: the holder. ``tokens``: the fencing token of each id, which rises with every ``get(who=…)`` of the id. Pass
    it to storage of your own, which then refuses workers that were overtaken.
    """

    def __init__(self, who: str, tokens: Mapping[Any, int]) -> None:
        super().__init__(tokens)
        self.who = who
        self.tokens = tokens

    def only(self, id_or_ids: Ids) -> Held:
        """Return some of these ids, held as before.

        :raises KeyError: an id is not among them.
        """
        return Held(self.who, {id_: self.tokens[id_] for id_ in _unique_ids(id_or_ids)})


class IdsLost(ClaimLost):
    """The locks of some ids had lapsed and gone to others, or were taken away: the ids in ``ids``. The call has worked
    for the other ids."""

    def __init__(self, message: str, ids: Sequence[Any]) -> None:
        super().__init__(message)
        self.ids = list(ids)


class TaskLoop:
    """Recurring work over ids: each is handed out again once its last update is long enough ago.

    ::

        loop = TaskLoop(engine, "foo_loop")
        loop.add(ids)
        for id_ in (ids := loop.get(100)):
            ...
        loop.did(ids)

    Verbs, arguments and results are those of doloop 1.0. Many workers may ``get`` at once. Every verb takes one id or
    several. With ``test=True`` a verb returns the same and writes nothing. Times are seconds, on the database's clock.

    :param bind: an SQLAlchemy Engine, which gives a connection for each verb; or a Connection; or a callable that gives
        a Connection for each verb. A verb takes part in a transaction that is open on the connection, and happens when
        you commit. Otherwise a verb is a transaction of its own.
    :param table: the table's name, see :meth:`create`. A table that doloop has created works, too.
    :raises TypeError: the table is not a string, or the bind is none of these.
    :raises ValueError: the table has no name. The engine is on SQLite's memory, which has only one connection, its pool
        gives one connection to all (StaticPool, SingletonThreadPool, AssertionPool), or it has a
        ``schema_translate_map``.

    Every verb raises :class:`~jobboard.exceptions.ConnectionFailure` if the database can't be reached, and
    :class:`~jobboard.exceptions.JobFailure` if the database refuses: there is no such table, or no such type of id.
    """

    def __init__(self, bind: Bound, table: str) -> None:
        self._table = tables.check_name(table)
        self._bind = Bind(bind, f"the task loop {table!r}", "TaskLoop.create()")

    def __repr__(self) -> str:
        return f"<TaskLoop {self._table!r}>"

    def __enter__(self) -> TaskLoop:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def table(self) -> str:
        """The table's name."""
        return self._table

    def close(self) -> None:
        """Stop using the engine. A connection that was given stays open."""
        self._bind.close()

    def create(self, id_type: str = tables.DEFAULT_ID_TYPE, engine: str = tables.DEFAULT_STORAGE_ENGINE) -> None:
        """Create the table, with times of 64 bits.

        :param id_type: the type of the ids, as the database spells it, such as ``VARCHAR(64)``.
        :param engine: the storage engine on MySQL and MariaDB, which must have transactions.
        :raises JobFailure: the table exists; or, on MySQL, a transaction of yours is open, which ``CREATE TABLE`` would
            commit.
        :raises ValueError: the storage engine has no transactions.
        """

        def work(run: Runner, product: Database) -> None:
            connection = run.connection
            if product.commits_at_create and run.joined:
                raise JobFailure(
                    f"a transaction is open on the connection, and to create {self._table!r} would commit it: end it "
                    "first, or create the table on an engine"
                )
            for statement in tables.to_create(self._table, id_type, engine, connection.dialect.name):
                connection.execute(statement)

        self._bind.write(work)

    def sql_for_create(
        self,
        id_type: str = tables.DEFAULT_ID_TYPE,
        engine: str = tables.DEFAULT_STORAGE_ENGINE,
        *,
        dialect: str = "mysql",
    ) -> str:
        """See :func:`jobboard.taskloop.sql_for_create`."""
        return tables.sql_for_create(self._table, id_type, engine, dialect=dialect)

    # Adding and removing ids

    def add(self, id_or_ids: Ids, updated: bool = False, test: bool = False) -> int:
        """Add ids to the loop, and return the number of new ids.

        :param updated: whether the ids have been updated just now.
        """
        ids = _unique_ids(id_or_ids)
        return self._write(lambda sql, run: sql.add(run, ids, bool(updated)), keep=not test) if ids else 0

    def remove(self, id_or_ids: Ids, updated: bool = False, test: bool = False) -> int:
        """Remove ids from the loop, and return the number of ids that were in the loop.

        :param updated: has no effect, as in doloop.
        """
        ids = _unique_ids(id_or_ids)
        return self._write(lambda sql, run: sql.count(run, sql.remove, ids), keep=not test) if ids else 0

    # Getting and updating ids

    def get(
        self,
        limit: int,
        lock_for: float = ONE_HOUR,
        min_loop_time: float = ONE_HOUR,
        test: bool = False,
        *,
        who: str | None = None,
    ) -> list[Any]:
        """Lock the ids whose turn it is, and return them in order.

        First come ids whose lock has lapsed or that were bumped, the earliest ``lock_until`` first; then ids that were
        never updated; then the ids with the earliest update. Of equally old ids the lowest comes first. Ids that
        another worker is just taking are passed over.

        :param limit: the most ids; 0 returns ``[]``.
        :param lock_for: the seconds for which no other worker gets the ids: a generous bound of the work. Fractions are
            rounded up. The table's clock has whole seconds, as doloop's, so that a lock ends up to a second early: ask
            for one second more than the work may take.
        :param min_loop_time: leave out unlocked ids that were updated less than so many seconds ago.
        :param who: the worker's name. The result is then a :class:`Held`, which ``strict=True`` and :meth:`extend`
            take.
        :raises TypeError: a time is not a number, the limit is not an int, or ``who`` is not a str.
        :raises ValueError: the limit is negative, ``lock_for`` is not positive, or a time is beyond 2**62 seconds,
            which no database can store. ``who`` is empty, longer than 255 characters, or holds control characters.
        :raises JobFailure: ``who`` on a table without the columns for it, as doloop's. The message tells what to add.
        """
        lock_for = checked_positive("lock_for", lock_for)
        min_loop_time = checked_seconds("min_loop_time", min_loop_time)
        if not isinstance(limit, int):
            raise TypeError(f"limit must be an integer, not {limit!r}")
        if not 0 <= limit <= sys.maxsize:
            raise ValueError(f"limit={shortened(limit)}: must be from 0 to {sys.maxsize}")
        if who is not None:
            codec.check_text("who", who)
        taken: dict[Any, int] = {}
        if limit:
            taken = self._write(
                lambda sql, run: sql.take(run, limit, lock_for, min_loop_time, who),
                keep=not test,
                fenced=who is not None,
            )
        return list(taken) if who is None else Held(who, taken)

    def did(self, id_or_ids: Ids, auto_add: bool = True, test: bool = False, *, strict: bool = False) -> int:
        """Mark ids as updated now and unlock them, and return their number.

        :param auto_add: add ids that are missing.
        :param strict: only ids that the holder still has, or had until the lock lapsed and nobody took them since.
            ``id_or_ids`` is then the result of ``get(who=…)``, or a part of it by :meth:`Held.only`. Nothing is added.
        :raises IdsLost: with ``strict``: some ids have gone to others.
        :raises TypeError: with ``strict``: the ids are no result of ``get(who=…)``.
        :raises KeyError: with ``strict``: an id was added to the result.
        """
        if strict:
            return self._change_held(id_or_ids, lambda sql: (sql.did_held, sql.standing), keep=not test)
        return self._change(id_or_ids, lambda sql: sql.did, auto_add, test)

    def unlock(self, id_or_ids: Ids, auto_add: bool = True, test: bool = False, *, strict: bool = False) -> int:
        """Unlock ids without marking them as updated, and return their number. See :meth:`did` for the arguments."""
        if strict:
            return self._change_held(id_or_ids, lambda sql: (sql.unlock_held, sql.standing), keep=not test)
        return self._change(id_or_ids, lambda sql: sql.unlock, auto_add, test)

    def extend(self, held: Held, lock_for: float = ONE_HOUR) -> int:
        """Let locks last for ``lock_for`` seconds from now on, as in :meth:`get`, and return their number.

        An id that was bumped meanwhile has lost its lock, even before another worker takes it.

        :raises IdsLost: the locks of some ids had ended.
        :raises TypeError: the ids are no result of ``get(who=…)``, or ``lock_for`` is not a number.
        :raises KeyError: an id was added to the result.
        :raises ValueError: ``lock_for`` is not positive, or beyond 2**62 seconds.
        """
        lock_for = checked_positive("lock_for", lock_for)
        return self._change_held(held, lambda sql: (sql.extend_held, sql.locked), lock_for=lock_for)

    # Prioritization

    def bump(self, id_or_ids: Ids, lock_for: float = 0, auto_add: bool = True, test: bool = False) -> int:
        """Let ids come before ids that were never locked, and return the number of bumped ids.

        A bump only lowers ``lock_until``, so that repeated bumps keep no id locked.

        :param lock_for: the seconds until the ids' turn. A negative number stands for an earlier bump.
        :param auto_add: add ids that are missing.
        :raises TypeError: ``lock_for`` is not a number.
        :raises ValueError: ``lock_for`` is beyond 2**62 seconds.
        """
        lock_for = checked_seconds("lock_for", lock_for)
        return self._change(id_or_ids, lambda sql: sql.bump, auto_add, test, lock_for=lock_for)

    # Auditing

    def check(self, id_or_ids: Ids) -> dict[Any, tuple[int | None, int | None]]:
        """Return ``(since_updated, locked_for)`` in seconds for each id of the loop; None if it never was."""
        ids = _unique_ids(id_or_ids)
        rows = self._read(lambda sql, run: sql.rows(run, sql.check, ids)) if ids else []
        return {row[0]: (_int(row[1]), _int(row[2])) for row in rows}

    def stats(self) -> dict[str, Any]:
        """Return figures of the loop as a whole, from the ends of an index and its locked and bumped ids.

        - ``locked``, ``bumped``: the numbers of ids whose ``lock_until`` is in the future, and not in the future
        - ``min_id``, ``max_id``: None if there are no ids
        - ``min_lock_time``, ``max_lock_time``: the seconds for which ids are still locked, as floats
        - ``min_bump_time``, ``max_bump_time``: the seconds since the turn of bumped ids
        - ``min_update_time``, ``max_update_time``: the seconds since the last and the first update
        """
        [row] = self._read(lambda sql, run: run.rows(sql.stats, {}))
        now, min_id, max_id, first_free, last_free, *groups = row
        locked, lock_first, lock_last, bumped, bump_first, bump_last, first_taken, last_taken = groups
        oldest = min(filter(None, (first_free, first_taken)), default=None)
        newest = max(filter(None, (last_free, last_taken)), default=None)
        return {
            "locked": int(locked),
            "bumped": int(bumped),
            "min_id": min_id,
            "max_id": max_id,
            "min_lock_time": _between(now, lock_first),
            "max_lock_time": _between(now, lock_last),
            "min_bump_time": _between(bump_last, now),
            "max_bump_time": _between(bump_first, now),
            "min_update_time": _between(newest, now),
            "max_update_time": _between(oldest, now),
        }

    # Statements

    def _sql(self, run: Runner, product: Database, fenced: bool = False) -> LoopStatements:
        of_engine = _known.setdefault(run.connection.engine, {})
        sql = of_engine.get(self._table)
        # The columns may have been added since.
        if sql is None or (fenced and not sql.fenced):
            sql = of_engine[self._table] = LoopStatements(product, self._table, run.connection)
        if fenced and not sql.fenced:
            raise tables.unfenced_error(self._table)
        return sql

    def _write(self, work: Callable[[LoopStatements, Runner], T], *, keep: bool, fenced: bool = False) -> T:
        table = sa.table(self._table)
        return self._bind.write(lambda run, product: work(self._sql(run, product, fenced), run), table, keep=keep)

    def _read(self, work: Callable[[LoopStatements, Runner], T]) -> T:
        return self._bind.read(lambda run, product: work(self._sql(run, product), run))

    def _change(
        self, id_or_ids: Ids, which: Callable[[LoopStatements], sa.Executable], add: bool, test: bool, **params: Any
    ) -> int:
        ids = _unique_ids(id_or_ids)
        if not ids:
            return 0
        return self._write(lambda sql, run: sql.change(run, which(sql), ids, add, **params), keep=not test)

    def _change_held(
        self,
        held: Ids,
        which: Callable[[LoopStatements], tuple[sa.Executable, sa.Executable]],
        keep: bool = True,
        **params: Any,
    ) -> int:
        """Change held ids.

        :param which: returns the change, and the select of the ids that the change has met.
        :raises IdsLost: the change has not met all ids.
        """
        if not isinstance(held, Held):
            raise TypeError(
                f"strict=True and extend() need the result of get(who=…), with its tokens, not a {type(held).__name__}"
            )
        # Users may change the list meanwhile.
        held = held.only(held)
        by_token: dict[int, list[Any]] = {}
        for id_, token in held.tokens.items():
            by_token.setdefault(token, []).append(id_)

        def work(sql: LoopStatements, run: Runner) -> list[Any]:
            change, standing = which(sql)
            lost: list[Any] = []
            for token, ids in by_token.items():
                if sql.count(run, change, ids, token=token, **params) < len(ids):
                    # The changed ids stay locked until this transaction ends.
                    there = {row[0] for row in sql.rows(run, standing, ids, token=token)}
                    lost += [id_ for id_ in ids if id_ not in there]
            return lost

        if lost := self._write(work, keep=keep, fenced=True):
            _raise_lost(held, lost)
        return len(held.tokens)


def _raise_lost(held: Held, lost: Sequence[Any]) -> NoReturn:
    shown = ", ".join(repr(id_) for id_ in lost[:10]) + (", …" if len(lost) > 10 else "")
    raise IdsLost(
        f"{len(lost)} of {len(held.tokens)} ids are no longer {held.who}'s: {shown}; their locks had lapsed or were "
        "taken away, and a longer lock_for leaves more time",
        lost,
    )


def _unique_ids(id_or_ids: Ids) -> list[Any]:
    """Return each id once."""
    if isinstance(id_or_ids, (str, bytes)) or not isinstance(id_or_ids, Iterable):
        return [id_or_ids]
    return list(dict.fromkeys(id_or_ids))


def checked_seconds(name: str, value: Any) -> int:
    """Return a time in whole seconds, rounded up, as the table has them. No fraction becomes no lock at all.

    :raises TypeError: the time is not a number.
    :raises ValueError: the time is NaN, or beyond 2**62 seconds.
    """
    if not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number, not {value!r}")
    if not abs(value) <= _FAR:
        raise ValueError(f"{name} must be within 2**62 seconds, not {shortened(value)}")
    return math.ceil(value)


def checked_positive(name: str, value: Any) -> int:
    """Return a positive time in whole seconds, as :func:`checked_seconds` does."""
    seconds = checked_seconds(name, value)
    if value <= 0:
        raise ValueError(f"{name} must be positive, not {shortened(value)}")
    return seconds


def _int(value: Any) -> int | None:
    return None if value is None else int(value)


def _between(start: int | None, end: int | None) -> float:
    return 0.0 if start is None or end is None else float(end - start)


# doloop's functions: the methods of TaskLoop, on a table named in the call. ``dbconn`` and ``table`` are the arguments
# of a TaskLoop. A Connection suits best, as with an Engine each call opens one.


def _function(method: Callable[Concatenate[TaskLoop, P], T]) -> Callable[Concatenate[Bound, str, P], T]:
    """Return the function for a method of a task loop."""

    @functools.wraps(method)
    def function(dbconn: Bound, table: str, *args: P.args, **kwargs: P.kwargs) -> T:
        with TaskLoop(dbconn, table) as loop:
            return method(loop, *args, **kwargs)

    own = (
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=kind)
        for name, kind in (("dbconn", "Bound"), ("table", "str"))
    )
    signature = inspect.signature(method)
    _, *others = signature.parameters.values()
    vars(function)["__signature__"] = signature.replace(parameters=[*own, *others])
    return cast("Callable[Concatenate[Bound, str, P], T]", function)


create = _function(TaskLoop.create)
add = _function(TaskLoop.add)
get = _function(TaskLoop.get)
did = _function(TaskLoop.did)
unlock = _function(TaskLoop.unlock)
bump = _function(TaskLoop.bump)
check = _function(TaskLoop.check)
stats = _function(TaskLoop.stats)


def remove(dbconn: Bound, table: str, id_or_ids: Ids, test: bool = False) -> int:
    """Remove ids from the loop, and return the number of ids that were in the loop.

    As in doloop, the function has no ``updated``: only :meth:`TaskLoop.remove <jobboard.taskloop.TaskLoop.remove>` has.
    """
    with TaskLoop(dbconn, table) as loop:
        return loop.remove(id_or_ids, test=test)
