"""The task loop itself."""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

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

T = TypeVar("T")
Ids = Any
"""One id, or several: a list, a set, a tuple or what else can be iterated. A str and bytes are single ids."""

ONE_HOUR = 60 * 60
ONE_DAY = 24 * ONE_HOUR
ONE_WEEK = 7 * ONE_DAY
_FAR = 2**62
"""Beyond so many seconds no database could store the end of it."""

known: weakref.WeakKeyDictionary[Engine, dict[str, LoopStatements]] = weakref.WeakKeyDictionary()
"""The statements for each table that was used."""


class Held(list[Any]):
    """The ids that ``get(who=…)`` has locked, as a list, with what proves whose they are. What is removed from the list
    stays locked, and is no more told about.

    ``who``: who holds them. ``tokens``: for each id an integer that rises with every ``get`` of it; pass it on to
    storage of your own to keep out whoever was overtaken.
    """

    def __init__(self, who: str, tokens: Mapping[Any, int]) -> None:
        super().__init__(tokens)
        self.who = who
        self.tokens = tokens

    def only(self, id_or_ids: Ids) -> Held:
        """Some of these, held as before.

        :raises KeyError: an id that is not among them.
        """
        return Held(self.who, {id_: self.tokens[id_] for id_ in _list(id_or_ids)})


class IdsLost(ClaimLost):
    """The locks of some ids had lapsed and gone to others, or were taken away; ``ids`` says which. What was asked has
    been done for the others."""

    def __init__(self, message: str, ids: Sequence[Any]) -> None:
        super().__init__(message)
        self.ids = list(ids)


class TaskLoop:
    """Recurring work over ids that you have already: each is handed out again once its last update is long enough ago.

    ::

        loop = TaskLoop(engine, "foo_loop")
        loop.add(ids)
        for id_ in (ids := loop.get(100)):
            ...
        loop.did(ids)

    Verbs, arguments and results are those of doloop 1.0. Many workers may ``get`` at once. Wherever ids are taken, that
    is one id or several; what reads ``test=True`` does the same, answers the same, and writes nothing. Times are
    seconds, on the database's clock.

    :param bind: an SQLAlchemy Engine, of which every thread then keeps one connection until :meth:`close`; or a
        Connection; or a callable that gives a Connection, and is called for each verb. On a connection with a
        transaction open, a verb is part of that, and happens when you commit; else it is a transaction of its own.
    :param table: the table's name, see :meth:`create`. One that doloop has created will do.
    :raises TypeError: the table is not a string, or the first argument none of these.
    :raises ValueError: the table has no name; or the engine is on SQLite's memory, where there is one connection only,
        or has a pool that gives one connection to all (StaticPool, SingletonThreadPool, AssertionPool), or a
        ``schema_translate_map``.

    Every verb raises :class:`~jobboard.exceptions.ConnectionFailure` where the database can't be reached, and
    :class:`~jobboard.exceptions.JobFailure` where it refuses: there is no such table, or no such type of id.
    """

    def __init__(self, bind: Engine | Connection | Callable[[], Connection], table: str) -> None:
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
        """Give the connections of an engine back to it. A connection that was given stays open."""
        self._bind.close()

    def create(self, id_type: str = tables.DEFAULT_ID_TYPE, engine: str = tables.DEFAULT_STORAGE_ENGINE) -> None:
        """Create the table, with times of 64 bits.

        :param id_type: the type of the ids, as the database spells it, ``VARCHAR(64)`` for instance.
        :param engine: the storage engine, on MySQL and MariaDB; it must have transactions.
        :raises JobFailure: there is such a table already; or, on MySQL, a transaction of yours is open, which creating
            a table would commit.
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
        """Add ids to the loop; how many of them are new.

        :param updated: they have been updated just now.
        """
        ids = _list(id_or_ids)
        return self._write(lambda sql, run: sql.add(run, ids, bool(updated)), keep=not test) if ids else 0

    def remove(self, id_or_ids: Ids, updated: bool = False, test: bool = False) -> int:
        """Remove ids from the loop; how many there were.

        :param updated: changes nothing, and is here because doloop's object takes it, to no effect either.
        """
        ids = _list(id_or_ids)
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
        """Lock the ids whose turn it is, and answer them in this order: those whose lock has lapsed or that were
        bumped, the earliest ``lock_until`` first; those that were never updated; those that have gone the longest
        without an update; of equally old ones the lowest id first. What another is just taking is passed over.

        :param limit: how many at most; 0 answers ``[]``.
        :param lock_for: for how long no one else shall get them: a generous bound of how long the work takes. Fractions
            are rounded up to whole seconds. The table's clock has whole seconds, as doloop's: a lock ends up to a
            second before that, so ask for one more than the work may take.
        :param min_loop_time: leave out what is not locked and was updated less than so many seconds ago.
        :param who: who takes them. The answer is then a :class:`Held`, which ``strict=True`` and :meth:`extend` take.
        :raises TypeError: a time that is not a number; a limit that is not an int; a ``who`` that is not a str.
        :raises ValueError: a negative limit; a ``lock_for`` that is not positive; a time beyond 2**62 seconds, which no
            database can store; a ``who`` that is empty, longer than 255 characters, or holds control characters.
        :raises JobFailure: ``who`` on a table without the columns for it, as doloop's are; the message tells what to
            add.
        """
        lock_for = positive("lock_for", lock_for)
        min_loop_time = number("min_loop_time", min_loop_time)
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
        """Mark ids as updated now, and unlock them; how many there are.

        :param auto_add: add those that are missing.
        :param strict: only what is still its holder's, or was and has gone to nobody since. ``id_or_ids`` is then what
            ``get(who=…)`` has answered, or :meth:`Held.only` some of it, and nothing is added.
        :raises IdsLost: some were not; with ``strict`` only.
        :raises TypeError: with ``strict`` only: they are not what ``get(who=…)`` has answered.
        :raises KeyError: with ``strict`` only: an id was added to that.
        """
        if strict:
            return self._held(id_or_ids, lambda sql: (sql.did_held, sql.standing), keep=not test)
        return self._change(id_or_ids, lambda sql: sql.did, auto_add, test)

    def unlock(self, id_or_ids: Ids, auto_add: bool = True, test: bool = False, *, strict: bool = False) -> int:
        """Unlock ids without marking them as updated; how many there are. Arguments and errors as of :meth:`did`."""
        if strict:
            return self._held(id_or_ids, lambda sql: (sql.unlock_held, sql.standing), keep=not test)
        return self._change(id_or_ids, lambda sql: sql.unlock, auto_add, test)

    def extend(self, held: Held, lock_for: float = ONE_HOUR) -> int:
        """Have the locks last for ``lock_for`` seconds from now on, as :meth:`get` counts them; how many do.

        An id that was bumped meanwhile has lost its lock, and counts as lost even before another takes it.

        :raises IdsLost: the locks of some had ended.
        :raises TypeError: they are not what ``get(who=…)`` has answered; ``lock_for`` is not a number.
        :raises KeyError: an id was added to that.
        :raises ValueError: ``lock_for`` is not positive, or beyond 2**62 seconds.
        """
        lock_for = positive("lock_for", lock_for)
        return self._held(held, lambda sql: (sql.extend_held, sql.locked), lock_for=lock_for)

    # Prioritization

    def bump(self, id_or_ids: Ids, lock_for: float = 0, auto_add: bool = True, test: bool = False) -> int:
        """Have ids served before what was never locked; how many were bumped. Only ever lowers ``lock_until``, so that
        nothing stays locked by being bumped again and again.

        :param lock_for: in how many seconds; less than 0 is as if it had been bumped so long ago.
        :param auto_add: add those that are missing.
        :raises TypeError: ``lock_for`` is not a number.
        :raises ValueError: it is beyond 2**62 seconds.
        """
        lock_for = number("lock_for", lock_for)
        return self._change(id_or_ids, lambda sql: sql.bump, auto_add, test, lock_for=lock_for)

    # Auditing

    def check(self, id_or_ids: Ids) -> dict[Any, tuple[int | None, int | None]]:
        """For each id that is in the loop ``(since_updated, locked_for)``, in seconds, None where it never was."""
        ids = _list(id_or_ids)
        if not ids:
            return {}
        rows = self._bind.read(lambda run, product: self._rows(run, product, ids))
        return {row[0]: (_int(row[1]), _int(row[2])) for row in rows}

    def _rows(self, run: Runner, product: Database, ids: Sequence[Any]) -> list[Any]:
        sql = self._sql(run, product)
        return sql.rows(run, sql.check, ids)

    def stats(self) -> dict[str, Any]:
        """How the loop does as a whole. Reads the locked and bumped rows from an index, and nothing else of the table.

        - ``locked``, ``bumped``: how many ids have their ``lock_until`` in the future, and how many now or in the past
        - ``min_id``, ``max_id``: None where there are no ids
        - ``min_lock_time``, ``max_lock_time``: for how many more seconds ids are locked, as floats
        - ``min_bump_time``, ``max_bump_time``: for how many seconds ids have been bumped
        - ``min_update_time``, ``max_update_time``: how many seconds ago ids were updated
        """
        [row] = self._bind.read(lambda run, product: run.rows(self._sql(run, product).stats, {}))
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

    # Inside

    def _sql(self, run: Runner, product: Database, fenced: bool = False) -> LoopStatements:
        of_engine = known.setdefault(run.connection.engine, {})
        sql = of_engine.get(self._table)
        # Perhaps somebody has added the columns since.
        if sql is None or (fenced and not sql.fenced):
            sql = of_engine[self._table] = LoopStatements(
                product, self._table, tables.is_fenced(run.connection, self._table)
            )
        if fenced and not sql.fenced:
            raise tables.unfenced(self._table)
        return sql

    def _write(self, work: Callable[[LoopStatements, Runner], T], *, keep: bool, fenced: bool = False) -> T:
        table = sa.table(self._table)
        return self._bind.write(lambda run, product: work(self._sql(run, product, fenced), run), table, keep=keep)

    def _change(
        self, id_or_ids: Ids, which: Callable[[LoopStatements], sa.Executable], add: bool, test: bool, **params: Any
    ) -> int:
        ids = _list(id_or_ids)
        if not ids:
            return 0
        return self._write(lambda sql, run: sql.change(run, which(sql), ids, add, **params), keep=not test)

    def _held(
        self,
        held: Ids,
        which: Callable[[LoopStatements], tuple[sa.Executable, sa.Executable]],
        keep: bool = True,
        **params: Any,
    ) -> int:
        """:param which: the change, and what shows which ids it has met."""
        if not isinstance(held, Held):
            raise TypeError(
                "strict=True and extend() need what get(who=…) has answered, with its tokens, not a "
                f"{type(held).__name__}"
            )
        # The list is the user's to change.
        held = held.only(held)
        by_token: dict[int, list[Any]] = {}
        for id_, token in held.tokens.items():
            by_token.setdefault(token, []).append(id_)

        def work(sql: LoopStatements, run: Runner) -> list[Any]:
            change, standing = which(sql)
            lost: list[Any] = []
            for token, ids in by_token.items():
                if sql.count(run, change, ids, token=token, **params) < len(ids):
                    # Those that were changed stay as they are until this transaction ends.
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


def _list(id_or_ids: Ids) -> list[Any]:
    """Each id once."""
    if isinstance(id_or_ids, (str, bytes)) or not isinstance(id_or_ids, Iterable):
        return [id_or_ids]
    return list(dict.fromkeys(id_or_ids))


def number(name: str, value: Any) -> int:
    """In whole seconds, rounded up, as the table has them: no fraction becomes no lock at all. The second in which a
    lock begins counts as a whole one, so that it ends up to a second early."""
    if not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number, not {value!r}")
    # Nor is it NaN.
    if not abs(value) <= _FAR:
        raise ValueError(f"{name} must be within 2**62 seconds, not {shortened(value)}")
    return math.ceil(value)


def positive(name: str, value: Any) -> int:
    seconds = number(name, value)
    if value <= 0:
        raise ValueError(f"{name} must be positive, not {shortened(value)}")
    return seconds


def _int(value: Any) -> int | None:
    return None if value is None else int(value)


def _between(start: int | None, end: int | None) -> float:
    return 0.0 if start is None or end is None else float(end - start)
