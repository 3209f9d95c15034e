"""Acquisitions: the name, the token and the deadline by which an object holds its row."""

from __future__ import annotations

import datetime
from collections.abc import Callable

import sqlalchemy as sa
from sqlalchemy.engine import Dialect

from jobboard.arguments import aware
from jobboard.job import boottime
from jobboard.states import moment


class Moment(sa.TypeDecorator[datetime.datetime]):
    """An aware time, stored as microseconds since 1970 in UTC."""

    impl = sa.BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime.datetime | None, dialect: Dialect) -> int | None:
        return None if value is None else aware("time", value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime.datetime | None:
        return None if value is None else moment(value)


class Acquisition:
    """The lease that an acquired object holds on its row."""

    def __init__(self, who: str, token: int, deadline: float) -> None:
        self.who = who
        self.token = token
        """The fencing token, which rises with each acquisition of the row. Pass it to storage of your own, which then
        refuses workers that were overtaken."""
        self._deadline = deadline
        self._lost = False

    def __repr__(self) -> str:
        return f"<Acquisition by {self.who!r}, token {self.token}{', lost' if self.lost else ''}>"

    def extend(self, deadline: float) -> Callable[[], None]:
        """Extend the lease until ``deadline``, and return a function that undoes the extension."""
        before = self._deadline, self._lost
        self._deadline, self._lost = deadline, False

        def undo() -> None:
            self._deadline, self._lost = before

        return undo

    def lose(self) -> None:
        """Mark the lease as lost, as another may have the row."""
        self._lost = True

    def expires_in(self) -> float:
        """Return the seconds until others may take the row, on this machine's clock, from before the request."""
        return self._deadline - boottime()

    @property
    def lost(self) -> bool:
        """True once the row is lost, as far as is known without a request."""
        return self._lost or self.expires_in() <= 0
