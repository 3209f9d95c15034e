"""The way below the verbs: for moving whole boards, for what looks at one at its own pace, and for tests."""

from __future__ import annotations

from collections.abc import Sequence

from jobboard.engine import Engine
from jobboard.primitives import Draft, Finish, Seen
from jobboard.session import Session
from jobboard.states import Record, State, Status


class Door:
    """An open board's engine, each call of it repeated on a lost connection for as long as the board's verbs are.

    What each takes and answers is told by :class:`~jobboard.engine.Engine`. Nothing is checked or translated here,
    nobody is notified, and no claim is kept.
    """

    def __init__(self, engine: Engine, session: Session) -> None:
        self._engine = engine
        self._session = session

    def insert(self, drafts: Sequence[Draft]) -> list[tuple[bool, Record | None]]:
        return self._session.mutate(self._engine.insert, drafts)[0]

    def finish(self, acts: Sequence[Finish]) -> list[Status]:
        return self._session.mutate(self._engine.finish, acts)[0]

    def read(self, uuids: Sequence[str]) -> list[Seen]:
        return self._session.query(self._engine.read, uuids)

    def page(
        self,
        after: Record | None,
        limit: int,
        names: Sequence[str] | None = None,
        states: frozenset[State] | None = None,
    ) -> list[Seen]:
        return self._session.query(self._engine.page, after, limit, names, states)

    def trash_page(self, after: Record | None, limit: int) -> list[Record]:
        return self._session.query(self._engine.trash_page, after, limit)

    def boards(self, most: int) -> list[str]:
        return self._session.query(self._engine.boards, most)

    def sync(self) -> None:
        self._session.query(self._engine.sync)

    def now(self) -> int:
        return self._session.query(self._engine.now)
