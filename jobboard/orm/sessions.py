"""Sessions and engines, sync and async, the owner of their transaction, and undo steps of a rollback.

A verb takes part in the transaction of a session: the caller commits, and nothing is repeated. A session without a
transaction, or an engine, gets a short transaction of the verb's own, which is committed before the verb returns, and
repeated while it loses against other transactions.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import sys
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, overload

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.orm import Session, SessionTransaction, scoped_session
from sqlalchemy.orm.attributes import set_committed_value
from sqlalchemy.orm.util import object_state
from sqlalchemy.util import await_only

from jobboard import runtime
from jobboard.orm.rows import table_of
from jobboard.sql.binds import PATIENCE
from jobboard.sql.connections import retrying_contended
from jobboard.sql.dialects import Trouble, database
from jobboard.sql.inherited import follow
from jobboard.sql.transactions import Transaction, begin_writing

if TYPE_CHECKING:
    # The import needs greenlet, which only users of async drivers have.
    from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_scoped_session

T = TypeVar("T")

Sync = Session | scoped_session[Any] | Engine
"""The first argument of a verb."""

Async: TypeAlias = "AsyncSession | async_scoped_session[Any] | AsyncEngine"
"""The first argument of a verb that is awaited."""

Model = type[Any]

_UNDO = "jobboard.undo"
"""The key of a session's undo steps in its ``info``."""


@overload
def run(target: Sync, model: Model, work: Callable[[Session], T], *, reads: bool = ...) -> T: ...
@overload
def run(target: Async, model: Model, work: Callable[[Session], T], *, reads: bool = ...) -> Awaitable[T]: ...
def run(target: Sync | Async, model: Model, work: Callable[[Session], T], *, reads: bool = False) -> T | Awaitable[T]:
    """Do work within the transaction of a session, or in one of its own.

    :param model: the class whose database a session with several databases uses.
    :param reads: whether the work only reads.
    """
    session, ours = session_of(target)

    def within(session: Session) -> T:
        with _closing(session, ours):
            return transact(session, model, work, reads=reads)

    return within(session) if isinstance(session, Session) else session.run_sync(within)


@contextlib.contextmanager
def _closing(session: Session, ours: bool) -> Iterator[None]:
    try:
        yield
    finally:
        if ours:
            session.close()


def session_of(target: Sync | Async) -> tuple[Session | AsyncSession, bool]:
    """Return the session, and whether it was opened here.

    :raises TypeError: the target is no session and no engine.
    """
    if isinstance(target, scoped_session):
        return target(), False
    if isinstance(target, Session):
        return target, False
    if isinstance(target, Engine):
        return Session(target, expire_on_commit=False), True
    from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_scoped_session

    if isinstance(target, async_scoped_session):
        return target(), False
    if isinstance(target, AsyncSession):
        return target, False
    if isinstance(target, AsyncEngine):
        return AsyncSession(target, expire_on_commit=False), True
    raise TypeError(f"a Session or an Engine of SQLAlchemy's is needed, or an async one, not {type(target).__name__}")


def transact(session: Session, model: Model, work: Callable[[Session], T], *, reads: bool = False) -> T:
    """Do work in the transaction of the session, or in one of its own."""
    transaction = Transaction(session, "this", mapper=model)

    def within(**options: Any) -> T:
        connection = transaction.connection(**options)
        if transaction.theirs and session.autoflush:
            session.flush()
        if not reads:
            begin_writing(connection, table_of(sa.inspect(model)))
        return work(session)

    if transaction.theirs:
        return within()
    bind = session.get_bind(model)
    if isinstance(bind, Connection):
        # Its own transaction may enclose this one, so that this one can't be configured or repeated.
        return do_and_commit(session, within)
    follow(bind)
    product = database(bind.dialect)
    # At stricter levels databases refuse claims that collide, and MySQL also locks the gaps between rows.
    options = {} if product.exclusive else {"isolation_level": "READ COMMITTED"}

    def contended(error: BaseException) -> bool:
        return isinstance(error, sa.exc.DBAPIError) and product.trouble(error, None) is Trouble.CONTENDED

    def pause(seconds: float) -> None:
        if bind.dialect.is_async:
            await_only(asyncio.sleep(seconds))
        else:
            runtime.sleep(seconds)

    return retrying_contended(contended, PATIENCE, pause)(lambda: do_and_commit(session, lambda: within(**options)))


def do_and_commit(session: Session, work: Callable[[], T]) -> T:
    """Do work and commit it, or roll back. Objects stay loaded, so that looking at a row begins no transaction."""
    expire = session.expire_on_commit
    try:
        if not session.in_transaction():
            session.begin()
        session.expire_on_commit = False
        result = work()
        session.commit()
    except BaseException:
        roll_back(session)
        raise
    finally:
        session.expire_on_commit = expire
    return result


def roll_back(session: Session) -> None:
    """Roll the session back. A session that was interrupted during its commit refuses that, and is closed instead."""
    try:
        session.rollback()
    except sa.exc.InvalidRequestError:
        session.close()


def repeat_if_interrupted(give_back: Callable[[], object]) -> None:
    """Call ``give_back``, and call ``give_back`` again if an interrupt ends the first call."""
    try:
        give_back()
    except Exception:
        raise
    except BaseException:
        give_back()
        raise


def commit_with(session: Session, model: Model, work: Callable[[Session], T]) -> T:
    """Do work and commit it together with the open changes of the session."""
    transaction = Transaction(session, "this", mapper=model)
    if not transaction.theirs:
        return transact(session, model, work)

    def flushed() -> T:
        session.flush()
        begin_writing(transaction.connection(), table_of(sa.inspect(model)))
        return work(session)

    return do_and_commit(session, flushed)


class Scope(Generic[T]):
    """A block that holds rows: ``with`` a session or an engine, ``async with`` an async one.

    It is also a decorator: each call of the function enters the block, and gets the held rows as its first argument.
    The session must not be in a transaction. The end of the block commits the transaction that the block leaves open,
    or rolls it back if the block raises.

    :param block: the block, called with the session, and with the session that the user passed.
    :raises RuntimeError: on entry: the block has begun and has not ended.
    :raises TypeError: on entry: the block is async and ``with`` was used, or the other way round.
    :raises sqlalchemy.exc.InvalidRequestError: on entry: the session is in a transaction.
    """

    def __init__(self, target: Sync | Async, block: Callable[[Session, Any], Generator[T]]) -> None:
        self._target = target
        self._make = block
        self._entered = runtime.Lock()

    def _begun(self, session: Session, users: Session | AsyncSession, ours: bool) -> T:
        stack = contextlib.ExitStack()
        try:
            stack.push(_closing(session, ours)).__enter__()
            if not self._entered.acquire(blocking=False):
                raise RuntimeError("this block has begun already and holds its rows: make another block")
            stack.callback(self._entered.release)
            if session.in_transaction():
                raise sa.exc.InvalidRequestError(
                    "the session is in a transaction: commit it first, so that others can see the held rows; or pass "
                    "the engine"
                )
            self._stack = stack
            # The stack knows the block before the block begins, as an interrupt may come as soon as a row is held. It
            # also closes the block if an interrupt comes just before its end.
            block = self._make(session, users)
            stack.callback(block.close)
            return stack.push(contextlib.contextmanager(lambda: block)()).__enter__()
        except BaseException:
            stack.__exit__(*sys.exc_info())
            raise

    def __enter__(self) -> T:
        session, ours = session_of(self._target)
        if not isinstance(session, Session):
            raise TypeError(f"write `async with`, as {type(self._target).__name__} is async")
        return self._begun(session, session, ours)

    def __exit__(self, *error: Any) -> bool | None:
        try:
            return self._stack.__exit__(*error)
        finally:
            self._stack.close()

    async def __aenter__(self) -> T:
        session, ours = session_of(self._target)
        if isinstance(session, Session):
            raise TypeError(f"write `with`, as {type(self._target).__name__} is not async")
        begun = await session.run_sync(self._begun, session, ours)
        self._async = session
        return begun

    async def __aexit__(self, *error: Any) -> bool | None:
        return await self._async.run_sync(lambda _: self.__exit__(*error))

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*args: Any, **kwargs: Any) -> Any:
                async with Scope(self._target, self._make) as held:
                    return await function(held, *args, **kwargs)

            return awaited

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            with Scope(self._target, self._make) as held:
                return function(held, *args, **kwargs)

        return called


# Undo steps of a session: changes to objects that a rollback takes back, and that SQLAlchemy does not know of.


def on_rollback(session: Session, undo: Callable[[], object]) -> None:
    """Call ``undo`` if the session's transaction or savepoint is rolled back. The last step is undone first."""
    within = session.get_nested_transaction() or session.get_transaction()
    session.info.setdefault(_UNDO, []).append((within, undo))


def remember(session: Session, rows: Sequence[Any], key: str, value: object) -> None:
    """Keep a value with objects, where no expiry removes it. A rollback restores the earlier value."""
    infos = [object_state(row).info for row in rows]
    on_rollback(session, partial(_restore, key, [(info, info.get(key)) for info in infos]))
    for info in infos:
        info[key] = value


def _restore(key: str, before: Iterable[tuple[dict[str, Any], object]]) -> None:
    for info, value in before:
        info[key] = value


def show(session: Session, rows: Sequence[Any], values: Mapping[str, Any]) -> None:
    """Set attributes of objects to the values that were written to their rows without the session."""
    for row in rows:
        for name, value in values.items():
            set_committed_value(row, name, value)
    reload_on_rollback(session, rows, *values)


def reload_on_rollback(session: Session, rows: Sequence[Any], *names: str) -> None:
    """Load attributes again after a rollback, also one to a savepoint. A session would expire only its own writes."""
    on_rollback(session, partial(_expire, session, rows, names))


def _expire(session: Session, rows: Iterable[Any], names: tuple[str, ...]) -> None:
    for row in rows:
        state = object_state(row)
        if state.session is session and state.persistent:
            session.expire(row, names)


@sa.event.listens_for(Session, "after_commit")
def _committed(session: Session) -> None:
    if not session.in_nested_transaction():
        session.info.pop(_UNDO, None)


@sa.event.listens_for(Session, "after_soft_rollback")
def _rolled_back(session: Session, ended: SessionTransaction) -> None:
    steps = session.info.get(_UNDO, [])
    while steps and _is_part(steps[-1][0], ended):
        _, undo = steps.pop()
        undo()


@sa.event.listens_for(Session, "after_transaction_end")
def _closed(session: Session, ended: SessionTransaction) -> None:
    # No other event tells of a transaction that is closed without a commit.
    if ended.parent is None:
        _rolled_back(session, ended)


def _is_part(within: SessionTransaction | None, whole: SessionTransaction) -> bool:
    """Return whether a transaction is ``whole``, or a savepoint within ``whole``."""
    while within is not None and within is not whole:
        within = within.parent
    return within is not None
