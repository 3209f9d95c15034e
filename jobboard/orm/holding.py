"""What an object knows of the row that it holds."""

from __future__ import annotations

import datetime
from collections.abc import Callable

import sqlalchemy as sa
from sqlalchemy.engine import Dialect

from jobboard.arguments import aware
from jobboard.job import boottime
from jobboard.states import moment


class Moment(sa.TypeDecorator[datetime.datetime]):
    """A time, aware of its zone; stored as µs since 1970, UTC."""

    impl = sa.BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime.datetime | None, dialect: Dialect) -> int | None:
        return None if value is None else aware("time", value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime.datetime | None:
        return None if value is None else moment(value)


class Acquisition:
    """What an acquired object holds of its row."""

    def __init__(self, who: str, token: int, deadline: float) -> None:
        self.who = who
        self.token = token
        """Rises with every acquisition of the row: hand it on to storage of your own, to refuse who was overtaken."""
        self._deadline = deadline
        self._lost = False

    def __repr__(self) -> str:
        return f"<Acquisition by {self.who!r}, token {self.token}{', lost' if self.lost else ''}>"

    def extended(self, deadline: float) -> Callable[[], None]:
        """Have it last until then; what undoes that."""
        before = self._deadline, self._lost
        self._deadline, self._lost = deadline, False

        def undo() -> None:
            self._deadline, self._lost = before

        return undo

    def taken_away(self) -> None:
        self._lost = True

    def expires_in(self) -> float:
        """Seconds until others may take the row; counted on this machine, from before it was asked for."""
        return self._deadline - boottime()

    @property
    def lost(self) -> bool:
        """Whether the row is lost, as far as is known without asking: it was told so, or the time is up."""
        return self._lost or self.expires_in() <= 0
