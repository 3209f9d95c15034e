"""Acquired rows for the length of a block, renewed behind it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.orm import Session
from sqlalchemy.orm.util import object_state
from sqlalchemy.util import await_only

from jobboard.heartbeat import Beats, Heartbeat
from jobboard.job import boottime
from jobboard.orm import verbs
from jobboard.orm.rows import Held, Key, key_of, lost_error, seen_held
from jobboard.orm.sessions import commit_with, insist, roll_back, run, transact, users_own
from jobboard.orm.undoing import on_rollback
from jobboard.sql.clients import gives_one

LOG = logging.getLogger(__name__)

M = TypeVar("M")


class Batch(list[M], Generic[M]):
    """The rows that a block has acquired, with the session that they belong to."""

    def __init__(self, rows: list[M], session: Any) -> None:
        super().__init__(rows)
        self.session = session
        """The Session, or AsyncSession. What it has not committed is committed at the end of the block."""

    @property
    def lost(self) -> list[M]:
        """Those that somebody else may have by now. Stop working on them; writing to them raises ClaimLost."""
        return [row for row in self if _is_held(row) and row.acquisition.lost]  # type: ignore[attr-defined]


def _is_held(row: Any) -> bool:
    return row.acquisition is not None and not object_state(row).was_deleted


def acquiring(session: Session, model: type[M], wish: verbs.Wanted) -> Generator[Batch[M]]:
    """The block of :meth:`Claimable.acquiring`, for a :class:`~jobboard.orm.sessions.Scope`.

    :raises ClaimLost: some were lost; what became of the others stands.
    :raises ValueError: there is but one connection."""
    engine = _engine(session, model)
    batch = Batch[M]([], users_own(session, engine))
    keeper = _Keeper(model, batch, wish)
    beating = _beating(engine, model, keeper, wish.timeout / verbs.SECOND / 3)

    def acquire(session: Session) -> None:
        # Before the commit: an interrupt may come as soon as the rows are held.
        batch[:] = verbs.acquire(session, model, wish)

    def give_back() -> None:
        roll_back(session)
        try:
            if batch:
                transact(session, model, keeper.release)
        except sa.exc.SQLAlchemyError:
            LOG.exception("could not give rows back; others may take them when their time is up")

    try:
        transact(session, model, acquire)
        if batch:
            beating.start()
        yield batch
        commit_with(session, model, keeper.release)
    except BaseException:
        insist(give_back)
        raise
    finally:
        beating.stop()
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


class _Keeper:
    """Renews what a batch holds, and gives it back at the end. Called from two threads."""

    def __init__(self, model: type[Any], batch: Batch[Any], wish: verbs.Wanted) -> None:
        self._model = model
        self._mapper = verbs.mapper_of(model)
        self._batch = batch
        self._wish = wish

    def renew(self, session: Session) -> None:
        rows = self._held()
        held: Held = {key: verbs.held_by(row, self._wish.who) for key, row in rows.items()}
        connection = verbs.connection_of(session, self._mapper)
        asked = boottime()
        # What this process has locked itself, as it is writing to it, nobody else can take meanwhile.
        renewed = verbs.renew(connection, self._mapper, held, self._wish.timeout, None, skip=True)
        standing = seen_held(connection, self._mapper, {k: v for k, v in held.items() if k not in renewed})
        for key, row in rows.items():
            acquisition = row.acquisition
            if acquisition is None:
                continue
            if key in renewed:
                on_rollback(session, acquisition.extended(asked + self._wish.timeout / verbs.SECOND))
            elif key not in standing and not sa.inspect(row).was_deleted:
                acquisition.taken_away()

    def release(self, session: Session) -> None:
        verbs.unacquire(session, self._model, self._wish.who, list(self._held().values()), ())

    def _held(self) -> dict[Key, Any]:
        mine = (row for row in list(self._batch) if _is_held(row) and row.acquisition.who == self._wish.who)
        return {key_of(row): row for row in mine}


def _beating(engine: Engine, model: type[Any], keeper: _Keeper, interval: float) -> Heartbeat | _AsyncHeartbeat:
    if engine.dialect.is_async:
        from sqlalchemy.ext.asyncio import AsyncEngine

        return _AsyncHeartbeat(lambda: run(AsyncEngine(engine), model, keeper.renew), interval)
    return Heartbeat(model.__name__, lambda: run(engine, model, keeper.renew), interval)


class _AsyncHeartbeat:
    """What :class:`Heartbeat` is, as a task of the running event loop. Used from within SQLAlchemy's greenlets."""

    def __init__(self, beat: Callable[[], Awaitable[None]], interval: float) -> None:
        self._beat = beat
        self._beats = Beats(interval)
        self._stopped = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        self._stopped.set()
        if self._task is not None:
            await_only(self._task)

    async def _run(self) -> None:
        while not await self._stops_within(self._beats.pause):
            with self._beats.next():
                await self._beat()

    async def _stops_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._stopped.wait()
        except TimeoutError:
            return False
