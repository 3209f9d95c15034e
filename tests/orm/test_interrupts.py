"""Blocks that end at their start or at their end, by an interrupt or for want of a thread, hold nothing."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from tests.conftest import Refused
from tests.orm.models import Picture

ROOT = pathlib.Path(__file__).parents[2]


def left_by(*arguments: str) -> list[str]:
    """Return the report of :mod:`tests.support.interrupting` on everything that is still held."""
    program = [sys.executable, "-m", "tests.support.interrupting", *arguments]
    ended = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    *left, moments = ended.stdout.splitlines() or [ended.stderr]
    assert int(moments.removesuffix(" moments")) > 20
    return left


@pytest.mark.rule("A block gives back what it holds when an interrupt ends its start.")
@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("times", ["once", "twice"])
@pytest.mark.parametrize("block", ["acquiring", "start"])
def test_an_interrupt_at_any_moment_leaves_no_row_held(engine: sa.Engine, block: str, times: str) -> None:
    assert left_by(block, times, engine.url.render_as_string(hide_password=False)) == []


@pytest.mark.rule("A block gives back what it holds when an interrupt ends its start.")
@pytest.mark.backends("memory")
@pytest.mark.parametrize("block", ["working", "run"])
def test_an_interrupt_at_any_moment_leaves_no_job_or_conductor_held(backend: str, block: str) -> None:
    assert left_by(block, "once", backend) == []


@pytest.mark.rule("Rows are given back when their renewal can't start.")
@pytest.mark.backends("sqlite")
def test_rows_are_given_back_when_their_renewal_cannot_start(
    engine: sa.Engine, other: Session, refused: Refused
) -> None:
    other.add_all([Picture() for _ in range(3)])
    other.commit()
    refused.add("Picture-heartbeat")
    with pytest.raises(RuntimeError, match="can't start new thread"), Picture.acquiring(engine, "anna"):
        pass
    assert Picture.acquired(other, "anna") == []
