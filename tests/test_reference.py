"""What the manual takes from the code is up to date: the page of options, and the picture of the lifecycle."""

from __future__ import annotations

import runpy
from importlib import metadata
from pathlib import Path

import pytest

from jobboard.conf import COMMON

pytestmark = pytest.mark.backends("memory")

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "reference/options.rst").read_text()


@pytest.mark.rule("The reference lists every option, verb and attribute.")
def test_the_page_is_what_the_code_says() -> None:
    assert runpy.run_path(str(DOCS / "reference.py"))["options"]() == PAGE, (
        "python docs/reference.py > docs/reference/options.rst"
    )


def test_the_picture_shows_the_table_of_transitions() -> None:
    drawn = runpy.run_path(str(DOCS / "lifecycle.py"))["draw"]()
    assert (DOCS / "images" / "lifecycle.svg").read_text() == drawn, "python docs/lifecycle.py"


@pytest.mark.rule("The reference lists every option, verb and attribute.")
def test_no_option_is_missing() -> None:
    """By another way than the page is written."""
    options = {
        option
        for point in metadata.entry_points(group="jobboard.backends")
        if point.dist is not None and point.dist.name == "jobboard"
        for option in {**COMMON, **point.load().options}
    }
    assert len(options) > 30
    assert [name for name in options if f"   * - ``{name}``" not in PAGE] == []
