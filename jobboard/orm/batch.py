"""Batches: acquired rows for the length of a block, renewed in the background."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Generic, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.orm import Session
from sqlalchemy.util import await_only

from jobboard.heartbeat import Heartbeat
from jobboard.orm.claims import RowClaims, Wanted, held_rows
from jobboard.orm.rows import lost_error
from jobboard.orm.sessions import commit_with, repeat_if_interrupted, roll_back, run, transact
from jobboard.sql.clients import gives_one
from jobboard.sql.lease import SECOND

LOG = logging.getLogger(__name__)

M = TypeVar("M")


class Batch(list[M], Generic[M]):
    """The rows that a block has acquired, and their session."""

    def __init__(self, rows: list[M], session: Any) -> None:
        super().__init__(rows)
        self.session = session
        """The Session, or AsyncSession. The end of the block commits its open changes."""

    @property
    def lost(self) -> list[M]:
        """The rows that others may have by now. Stop work on these rows; a write to one raises ClaimLost."""
        return [row for row in held_rows(self) if row.acquisition is not None and row.acquisition.lost]


def acquiring(session: Session, users: Any, model: type[M], wish: Wanted) -> Generator[Batch[M]]:
    """Run the block of :meth:`Claimable.acquiring`, for a :class:`~jobboard.orm.sessions.Scope`.

    :param users: the session that the user passed: the AsyncSession of an async block.
    :raises ClaimLost: some rows were lost; the others were given back.
    :raises ValueError: the engine has only one connection.
    """
    engine = _engine(session, model)
    batch = Batch[M]([], users)
    who, interval = wish.term.who, wish.term.timeout / SECOND / 3
    heartbeat, stop = _heartbeat(
        engine, model, lambda session: RowClaims(session, model).renew(batch, wish.term), interval
    )

    def acquire(session: Session) -> None:
        # Before the commit: an interrupt may come as soon as the rows are held.
        batch[:] = RowClaims(session, model).acquire(wish)

    def unacquire(session: Session) -> None:
        RowClaims(session, model).unacquire(who, held_rows(batch, who), ())

    def give_back() -> None:
        roll_back(session)
        try:
            if batch:
                transact(session, model, unacquire)
        except sa.exc.SQLAlchemyError:
            LOG.exception("could not give rows back; others may acquire the rows once their leases have lapsed")

    try:
        transact(session, model, acquire)
        if batch:
            heartbeat.start()
        yield batch
        commit_with(session, model, unacquire)
    except BaseException:
        repeat_if_interrupted(give_back)
        raise
    finally:
        stop()
    if batch.lost:
        raise lost_error(batch.lost)


def _engine(session: Session, model: type[Any]) -> Engine:
    bind = session.get_bind(model)
    if isinstance(bind, Connection) or gives_one(bind):
        given = "one Connection" if isinstance(bind, Connection) else f"an engine with a {type(bind.pool).__name__}"
        raise ValueError(
            f"acquiring() renews {model.__name__} on a second connection, which {given} does not give: pass an engine "
            "that can (of SQLite: on a file), or a session on one; or call acquire() and reacquire()"
        )
    return bind


def _heartbeat(
    engine: Engine, model: type[Any], renew: Callable[[Session], None], interval: float
) -> tuple[Heartbeat, Callable[[], object]]:
    """Return a heartbeat that renews on another connection, and the function that stops it."""
    if not engine.dialect.is_async:
        heartbeat = Heartbeat(model.__name__, partial(run, engine, model, renew), interval)
        return heartbeat, heartbeat.stop
    from sqlalchemy.ext.asyncio import AsyncEngine

    loop = asyncio.get_running_loop()

    async def beat() -> None:
        await run(AsyncEngine(engine), model, renew)

    # The thread of the heartbeat waits for the loop, so that the loop must not wait for the thread.
    heartbeat = Heartbeat(model.__name__, lambda: asyncio.run_coroutine_threadsafe(beat(), loop).result(), interval)
    return heartbeat, lambda: await_only(asyncio.to_thread(heartbeat.stop))
