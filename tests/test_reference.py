"""docs/reference.rst, which people read in a clone, says what the code says."""

from __future__ import annotations

import importlib.util
from importlib import metadata
from pathlib import Path

import pytest

import jobboard
from jobboard.board import INTERNAL as BOARDS_OWN
from jobboard.conf import COMMON
from jobboard.job import INTERNAL as JOBS_OWN
from jobboard.job import Job

pytestmark = pytest.mark.backends("memory")

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "reference.rst").read_text()


def test_it_is_what_the_code_says() -> None:
    spec = importlib.util.spec_from_file_location("reference", DOCS / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.reference() == PAGE, "python docs/reference.py > docs/reference.rst"


def test_nothing_is_missing() -> None:
    """By another way than that on which the page is written."""
    options = {
        option
        for point in metadata.entry_points(group="jobboard.backends")
        if point.dist is not None and point.dist.name == "jobboard"
        for option in {**COMMON, **point.load().options}
    }
    job = {name for name in dir(Job) if not name.startswith("_")} - JOBS_OWN
    verbs = {name for name in dir(jobboard.JobBoard) if not name.startswith("_")}
    verbs -= BOARDS_OWN
    fields = {*jobboard.Posting._fields}
    for name in options | job | verbs | fields:
        assert f"``{name}``" in PAGE or f"``{name}(" in PAGE or f", {name}=" in PAGE or f"({name}," in PAGE, name
