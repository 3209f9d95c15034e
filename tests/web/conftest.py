"""A board, and browsers that look at its page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jobboard.web import app
from tests.web.browser import Browser

Open = Callable[..., Browser]


@pytest.fixture
def board(make_board: Callable[..., Any]) -> Any:
    return make_board(keep_done=1000, retry_for=1)


@pytest.fixture
def browse(board: Any) -> Open:
    """``browse(authorize)``: a browser at the page of the board."""

    def opened(authorize: Any = lambda request: ("act", "maria"), **options: Any) -> Browser:
        return Browser(app(board, authorize=authorize, **options))

    return opened


@pytest.fixture
def home(board: Any) -> str:
    """The address of the board."""
    return f"/{board.name}"
