"""Sessions, engines and their async kin, and who owns the transaction.

A session that is in a transaction is taken as it is: what a verb does is part of that transaction, it is the caller's
to commit, and nothing is repeated. A session that is in none, or an engine, gets a short transaction of the verb's own,
which is committed before the verb returns and repeated while it loses against others.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, overload

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.orm import Session, scoped_session
from sqlalchemy.util import await_only

from jobboard.orm.rows import table_of
from jobboard.sql.binds import PATIENCE
from jobboard.sql.connections import repeated
from jobboard.sql.dialects import Trouble, database
from jobboard.sql.transactions import Transaction, begin_writing

if TYPE_CHECKING:
    # Importing it takes greenlet, which who is not async need not have.
    from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_scoped_session

T = TypeVar("T")

Sync = Session | scoped_session[Any] | Engine
"""What a verb works on."""

Async: TypeAlias = "AsyncSession | async_scoped_session[Any] | AsyncEngine"
"""What a verb works on when it is awaited."""

Model = type[Any]


@overload
def run(target: Sync, model: Model, work: Callable[[Session], T], *, reads: bool = ...) -> T: ...
@overload
def run(target: Async, model: Model, work: Callable[[Session], T], *, reads: bool = ...) -> Awaitable[T]: ...
def run(target: Sync | Async, model: Model, work: Callable[[Session], T], *, reads: bool = False) -> T | Awaitable[T]:
    """Do ``work`` within the transaction of a session, or in one of its own.

    :param model: tells a session with several databases which one it is about.
    :param reads: it only reads.
    """
    session, ours = opened(target)
    if not isinstance(session, Session):
        return _run_async(session, ours, model, work, reads)
    with _closing(session, ours):
        return transact(session, model, work, reads=reads)


async def _run_async(session: AsyncSession, ours: bool, model: Model, work: Callable[[Session], T], reads: bool) -> T:
    def both(sync: Session) -> T:
        with _closing(sync, ours):
            return transact(sync, model, work, reads=reads)

    return await session.run_sync(both)


@contextlib.contextmanager
def _closing(session: Session, ours: bool) -> Iterator[None]:
    try:
        yield
    finally:
        if ours:
            session.close()


def opened(target: Sync | Async) -> tuple[Session | AsyncSession, bool]:
    """The session, and whether it is ours to close."""
    if isinstance(target, scoped_session):
        return target(), False
    if isinstance(target, Session):
        return target, False
    if isinstance(target, Engine):
        return Session(target, expire_on_commit=False), True
    return _opened_async(target)


def _opened_async(target: Async) -> tuple[AsyncSession, bool]:
    from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_scoped_session

    if isinstance(target, async_scoped_session):
        return target(), False
    if isinstance(target, AsyncSession):
        return target, False
    if isinstance(target, AsyncEngine):
        return AsyncSession(target, expire_on_commit=False), True
    raise TypeError(f"a Session or an Engine of SQLAlchemy's is needed, or an async one, not {type(target).__name__}")


def users_own(session: Session, engine: Engine) -> Session | AsyncSession:
    """What the user calls the session by."""
    if not engine.dialect.is_async:
        return session
    from sqlalchemy.ext.asyncio import async_session

    return async_session(session) or session


def transact(session: Session, model: Model, work: Callable[[Session], T], *, reads: bool = False) -> T:
    """Do ``work`` in the transaction that the session is in, or in one of its own."""
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
        # Whose own transaction may be around this one: nothing of it can be set, and no more be repeated.
        return committed(session, within)
    product = database(bind.dialect)
    # Under a stricter one databases refuse claims that collide, and MySQL locks the gaps between rows, too.
    options = {} if product.exclusive else {"isolation_level": "READ COMMITTED"}

    def once() -> T:
        return committed(session, lambda: within(**options))

    def contended(error: BaseException) -> bool:
        return isinstance(error, sa.exc.DBAPIError) and product.trouble(error, None) is Trouble.CONTENDED

    sleep = _sleep_async if bind.dialect.is_async else time.sleep
    return repeated(contended, PATIENCE, sleep)(once)


def _sleep_async(seconds: float) -> None:
    await_only(asyncio.sleep(seconds))


def committed(session: Session, work: Callable[[], T]) -> T:
    """Do ``work`` and commit it, or roll back. What was loaded stays loaded: looking at a row after this begins no
    other transaction."""
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


def insist(give_back: Callable[[], object]) -> None:
    """Call ``give_back``, and a second time if an interrupt ends the first call: nobody else would do it."""
    try:
        give_back()
    except Exception:
        raise
    except BaseException:
        give_back()
        raise


def commit_with(session: Session, model: Model, work: Callable[[Session], T]) -> T:
    """Do ``work`` and commit it, along with what the session has open."""
    transaction = Transaction(session, "this", mapper=model)
    if not transaction.theirs:
        return transact(session, model, work)

    def flushed() -> T:
        session.flush()
        begin_writing(transaction.connection(), table_of(sa.inspect(model)))
        return work(session)

    return committed(session, flushed)


class Scope(Generic[T]):
    """A block in which something is held: ``with`` a session or an engine, ``async with`` an async one.

    It is also a decorator: each call of the function enters anew, and gets what is held as its first argument. The
    session must not be in a transaction; those that the block leaves open are committed at its end, or rolled back when
    it raises.

    It is entered by one at a time: ``RuntimeError`` tells whoever enters it before it has ended.
    """

    def __init__(self, target: Sync | Async, block: Callable[[Session], Generator[T]]) -> None:
        self._target = target
        self._make = block
        self._entered = threading.Lock()

    def _begun(self, session: Session, ours: bool) -> T:
        stack = contextlib.ExitStack()
        try:
            stack.push(_closing(session, ours)).__enter__()
            if not self._entered.acquire(blocking=False):
                raise RuntimeError("this block has begun already, and holds what is its own: make another one like it")
            stack.callback(self._entered.release)
            if session.in_transaction():
                raise sa.exc.InvalidRequestError(
                    "the session is in a transaction: commit it first, so that others can see what is held; or pass "
                    "the engine"
                )
            self._stack = stack
            # The stack knows the block before the block begins: an interrupt may come as soon as something is held.
            # And the block is closed where an interrupt has come just before its end.
            block = self._make(session)
            stack.callback(block.close)
            return stack.push(contextlib.contextmanager(lambda: block)()).__enter__()
        except BaseException:
            stack.__exit__(*sys.exc_info())
            raise

    def __enter__(self) -> T:
        session, ours = opened(self._target)
        if not isinstance(session, Session):
            raise TypeError(f"write `async with`, as {type(self._target).__name__} is async")
        return self._begun(session, ours)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._ended(kind, error, trace)

    def _ended(self, *error: Any) -> bool | None:
        try:
            return self._stack.__exit__(*error)
        finally:
            self._stack.close()

    async def __aenter__(self) -> T:
        session, ours = opened(self._target)
        if isinstance(session, Session):
            raise TypeError(f"write `with`, as {type(self._target).__name__} is not async")
        begun = await session.run_sync(self._begun, ours)
        self._async = session
        return begun

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._async.run_sync(lambda _: self._ended(kind, error, trace))

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
