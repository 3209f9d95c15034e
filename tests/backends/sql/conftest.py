"""What the tests of the SQL board share."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard.backends.sql import SQLJobBoard

_DRIVERS = {"postgresql": "postgresql+psycopg", "mariadb": "mariadb+pymysql", "sqlite": "sqlite"}


@pytest.fixture
def engine(backend: str, board_conf: dict[str, Any]) -> Iterator[sa.Engine]:
    """An engine of the user's, in the board's database."""
    url = sa.make_url(board_conf["board"]).set(drivername=_DRIVERS[backend])
    engine = sa.create_engine(url, connect_args={"timeout": 1} if backend == "sqlite" else {})
    yield engine
    engine.dispose()


class Spy:
    """Records the statements that a board runs on this thread's connection; may stop before some."""

    def __init__(self, board: SQLJobBoard, before: Callable[[str], None] | None = None) -> None:
        assert board._opened is not None
        board._opened.run(lambda link: None)
        self._link = board._opened._local.link
        self._before = before
        self.texts: list[str] = []

    def __enter__(self) -> "Spy":
        self._cursor = self._link.cursor
        self._link.cursor = self
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._link.cursor = self._cursor

    def execute(self, text: str, *params: Any) -> Any:
        if self._before is not None:
            self._before(text)
        self.texts.append(text)
        return self._cursor.execute(text, *params)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)


@pytest.fixture
def spy() -> type[Spy]:
    """``with spy(board, before=…) as seen:`` then ``seen.texts``; ``before(text)`` is called ahead of each."""
    return Spy
