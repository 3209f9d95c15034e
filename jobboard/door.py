"""The way below the verbs: for moving whole boards, for what looks at one at its own pace, and for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from jobboard import codec
from jobboard.engine import Done, Engine, Make, Remembered, Rules, StoredSchedule, Unreadable
from jobboard.exceptions import JobFailure
from jobboard.primitives import BoardStats, Draft, Finish, Posted, Seen
from jobboard.session import Session
from jobboard.states import Record, State, Status


class Door:
    """An open board's engine, each call of it repeated on a lost connection for as long as the board's verbs are.

    What each takes and answers is told by :class:`~jobboard.engine.Engine`. Nothing is checked here, nobody is
    notified, and no claim is kept.
    """

    def __init__(self, engine: Engine, session: Session) -> None:
        self._engine = engine
        self._session = session

    @property
    def wire(self) -> codec.Wire:
        return self._engine.wire

    def posting(self, job: Record | Draft, wire: codec.Wire) -> bytes | str:
        """The posting of a job of this board, for a board of that wire.

        :raises JobFailure: it can't be told there.
        """
        if job.version > codec.VERSION and wire != self.wire:
            raise JobFailure("posted by a newer version of this library; upgrade to move it")
        try:
            return codec.transcode(job.posting, self.wire, wire)
        except codec.Undecodable as error:
            raise JobFailure(str(error), error) from error

    def insert(self, drafts: Sequence[Draft]) -> list[Posted]:
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
        fresh: bool = False,
    ) -> list[Seen]:
        return self._session.query(self._engine.page, after, limit, names, states, fresh)

    def trash_page(self, after: Record | None, limit: int) -> list[Record]:
        return self._session.query(self._engine.trash_page, after, limit)

    def outcomes(self, after: Done | None, limit: int) -> list[Done]:
        return self._session.query(self._engine.done_page, after, limit)

    def keep(self, dones: Sequence[Done]) -> int:
        return self._session.query(self._engine.keep, dones)

    def remembered(self, place: Any) -> tuple[list[Remembered], Any]:
        return self._session.query(self._engine.remembered, place)

    def remember(self, keys: Sequence[Remembered]) -> int:
        return self._session.query(self._engine.remember, keys)

    def schedules(self) -> list[StoredSchedule | Unreadable]:
        return self._session.query(self._engine.all_schedules)

    def set_schedule(self, id: str, make: Make) -> StoredSchedule | None:  # noqa: A002 - as users have it
        return self._session.mutate(self._engine.set_schedule, id, make)[0]

    def rules(self) -> Rules:
        return self._session.query(self._engine.rules)

    def boards(self, most: int) -> list[str]:
        return self._session.query(self._engine.boards, most)

    def now(self) -> int:
        return self._session.query(self._engine.now)


class OriginDoor(Protocol):
    """What a move asks of the board that it empties; each is as in :class:`Door`."""

    @property
    def wire(self) -> codec.Wire: ...
    def posting(self, job: Record, wire: codec.Wire) -> bytes | str: ...
    def insert(self, drafts: Sequence[Draft]) -> list[Posted]: ...
    def finish(self, acts: Sequence[Finish]) -> list[Status]: ...
    def read(self, uuids: Sequence[str]) -> list[Seen]: ...
    def page(
        self,
        after: Record | None,
        limit: int,
        names: Sequence[str] | None = None,
        states: frozenset[State] | None = None,
        fresh: bool = False,
    ) -> list[Seen]: ...
    def trash_page(self, after: Record | None, limit: int) -> list[Record]: ...
    def now(self) -> int: ...


class Origin(Protocol):
    """A board that jobs are moved from: a :class:`~jobboard.board.JobBoard`, or one of another library."""

    _shown: str

    @property
    def name(self) -> str: ...
    @property
    def door(self) -> OriginDoor: ...
    def stats(self) -> BoardStats: ...
