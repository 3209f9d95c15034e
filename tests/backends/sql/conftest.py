"""What the tests of the SQL board share."""

import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from jobboard.board import JobBoard
from jobboard.testing.faults import FaultyProxy


def statements_in(text: str) -> list[str]:
    return re.split(r";\n", text.removeprefix("BEGIN NOT ATOMIC\n"))


class Spy:
    """Records the statements that a board runs on this thread's connection; may stop before some."""

    def __init__(self, board: JobBoard, before: Callable[[str], None] | None = None) -> None:
        assert board.engine.store is not None
        board.engine.store.links.run(lambda link: None)
        self._link = board.engine.store.links._local.link
        self._before = before
        self.texts: list[str] = []

    def __enter__(self) -> "Spy":
        self._cursor = self._link.cursor
        self._link.cursor = self
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._link.cursor = self._cursor

    def execute(self, text: str, *params: Any) -> Any:
        if text.startswith("PREPARE "):
            return self._cursor.execute(text, *params)
        written = self.written(text)
        if self._before is not None:
            self._before(written)
        self.texts.append(written)
        return self._cursor.execute(text, *params)

    def written(self, text: str) -> str:
        """What a statement was before MariaDB was given a name for it."""
        named = self._link._named
        texts = {} if named is None else {call: of for of, call in named._calls.items()}
        return texts.get(text, text)

    def executemany(self, text: str, *params: Any) -> Any:
        self.texts.append(text)
        return self._cursor.executemany(text, *params)

    @property
    def statements(self) -> list[str]:
        """The texts, where one of several statements is taken apart."""
        return [statement for text in self.texts for statement in statements_in(text)]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)


@pytest.fixture
def spy() -> type[Spy]:
    """``with spy(board, before=…) as seen:`` then ``seen.texts``; ``before(text)`` is called ahead of each."""
    return Spy


@pytest.fixture
def proxy(backend: str, server_uris: dict[str, str]) -> Iterator[FaultyProxy]:
    """Before the server of the backend."""
    where = urlsplit(server_uris[backend])
    assert where.hostname is not None
    assert where.port is not None
    with FaultyProxy(where.hostname, where.port) as proxy:
        yield proxy


@pytest.fixture
def far(proxy: FaultyProxy, board_conf: dict[str, Any], make_board: Callable[..., Any]) -> JobBoard:
    """The board through the proxy."""
    return make_board(board=proxy.uri_for(board_conf["board"]))


@pytest.fixture
def decisive(backend: str) -> bytes:
    """What the request contains with which a mutation becomes true."""
    return b"COMMIT" if backend == "mariadb" else b"_answers"
