"""docs/reference/options.rst, which people read in a clone, says what the code says."""

from __future__ import annotations

import importlib.util
from importlib import metadata
from pathlib import Path

import pytest

from jobboard.conf import COMMON

pytestmark = pytest.mark.backends("memory")

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "reference/options.rst").read_text()


def test_the_page_is_what_the_code_says() -> None:
    spec = importlib.util.spec_from_file_location("reference", DOCS / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.options() == PAGE, "python docs/reference.py > docs/reference/options.rst"


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
