"""The end of a test of moves."""

from collections.abc import Iterator

import pytest

from tests.support.boards import opened


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    opened.close()
