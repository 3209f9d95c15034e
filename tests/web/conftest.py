"""A board, and browsers that look at its page: without a screen, and Chromium."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jobboard.web import app
from tests.web.browser import Browser
from tests.web.chromium import Window, launched

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


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    # Not longer than a module: other tests run event loops of their own on this thread.
    with launched() as browser:
        yield browser


OpenWindow = Callable[..., Window]


@pytest.fixture
def window(chromium: Any) -> Iterator[OpenWindow]:
    """``window(address, **options)``: a window of Chromium, with options of Playwright's contexts."""
    with contextlib.ExitStack() as stack:

        def opened(address: str, **options: Any) -> Window:
            context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
            stack.callback(context.close)
            return Window(context, address)

        yield opened
