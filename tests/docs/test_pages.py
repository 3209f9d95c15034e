"""The code blocks of the manual, run as they stand: each page in a process and a folder of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import TRUSTED, selected
from tests.docs.blocks import Page, PageError, parse
from tests.docs.shell import lines_of

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LIMIT = 120
"""Seconds that a page may take."""
SKIPPED = 2
"""The number of blocks that are not run, at most. Raise it only for what no machine of the tests can run."""
ENVIRONMENT = os.environ.get("JOBBOARD_TEST_DOCS", "")
"""The environment of tox whose pages are run: those of ``.. environment:``, or else the pages without one."""


def manual() -> dict[str, Page]:
    """The pages by their names."""
    pages = {}
    for path in sorted(DOCS.rglob("*.rst")):
        name = str(path.relative_to(ROOT))
        try:
            pages[name] = parse(path.read_text())
        except PageError as error:
            # Its own test reports that.
            pages[name] = Page(str(error))
    return pages


PAGES = manual()


def runnable() -> Iterator[Any]:
    """The pages of this environment, and of the backends that the run selects."""
    for name, page in PAGES.items():
        if page.environment == ENVIRONMENT and set(page.backends) <= set(selected()):
            # One without servers is run once, beside the tests of SQLite.
            yield pytest.param(name, id=name, marks=pytest.mark.backends(*page.backends or ["sqlite"]))


def run(page: Path, servers: dict[str, str], limit: float = LIMIT, path: Path | None = None) -> str:
    """Run a page, and return the complaint; an empty one if all is well.

    :param path: the folder of commands that start quickly; see forks.py.
    """
    start = [str(path / "page"), "--path", str(path)] if path else [sys.executable, "-m", "tests.docs.page"]
    command = [*start, str(page), "--say", "--servers", json.dumps(servers)]
    # The page's own processes are of this session, and go with it.
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **TRUSTED},
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        _, complaint = process.communicate(timeout=limit)
        return (complaint or f"{page}: exit status {process.returncode}") if process.returncode else ""
    except subprocess.TimeoutExpired as error:
        *_, last = (error.stdout or b"at its beginning").decode().splitlines()
        return f"{page}:{last}: the page is not done after {limit} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.timeout(LIMIT + 60)
@pytest.mark.parametrize("name", [*runnable()])
def test_the_blocks_of_the_page(
    name: str, servers_of: Callable[[list[str]], dict[str, str]], quick_commands: Path
) -> None:
    page = parse((ROOT / name).read_text())
    # In an assert that fails, pytest would run the page again to explain it.
    complaint = run(ROOT / name, servers_of(page.backends), path=quick_commands)
    assert not complaint, complaint


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("name", [*PAGES])
def test_each_block_can_be_run(name: str) -> None:
    """In every environment: its language is known, and its commands have an end."""
    list(lines_of(parse((ROOT / name).read_text()).blocks))


@pytest.mark.backends("sqlite")
def test_hardly_a_block_is_skipped() -> None:
    skipped = [f"{name}:{block.line}" for name, page in PAGES.items() for block in page.blocks if block.skip]
    assert len(skipped) <= SKIPPED, skipped
