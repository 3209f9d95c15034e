"""The picture of the lifecycle shows the transitions that the code has."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.backends("memory")

DOCS = Path(__file__).parents[1] / "docs"


def test_the_picture_shows_the_table_of_transitions() -> None:
    drawn = runpy.run_path(str(DOCS / "lifecycle.py"))["draw"]()
    assert (DOCS / "images" / "lifecycle.svg").read_text() == drawn, "python docs/lifecycle.py"
