"""Blocks that are interrupted before their body, behind it, or where no thread can be started, hold nothing."""

import pathlib
import subprocess
import sys

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from tests.conftest import Refused
from tests.orm.models import Picture

ROOT = pathlib.Path(__file__).parent.parent.parent


def left_by(*arguments: str) -> list[str]:
    """What :mod:`tests.support.interrupting` has found still held."""
    program = [sys.executable, "-m", "tests.support.interrupting", *arguments]
    ended = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    *left, moments = ended.stdout.splitlines() or [ended.stderr]
    assert int(moments.removesuffix(" moments")) > 20
    return left


@pytest.mark.backends("sqlite", "postgresql")
@pytest.mark.parametrize("times", ["once", "twice"])
@pytest.mark.parametrize("block", ["acquiring", "start"])
def test_an_interrupt_at_any_moment_leaves_nothing_held(engine: sa.Engine, block: str, times: str) -> None:
    assert left_by(block, times, engine.url.render_as_string(hide_password=False)) == []


@pytest.mark.backends("sqlite")
def test_a_job_that_is_worked_on_is_given_back_too(tmp_path: pathlib.Path) -> None:
    assert left_by("working", "once", f"sqlite:///{tmp_path}/jobs.db") == []


@pytest.mark.backends("sqlite")
def test_a_conductor_that_is_interrupted_at_its_start_leaves_nothing(tmp_path: pathlib.Path) -> None:
    assert left_by("run", "once", f"sqlite:///{tmp_path}/jobs.db") == []


@pytest.mark.backends("sqlite", "postgresql", "mariadb")
def test_rows_are_given_back_when_their_renewal_can_not_start(
    engine: sa.Engine, other: Session, refused: Refused
) -> None:
    other.add_all([Picture() for _ in range(3)])
    other.commit()
    refused.add("Picture-heartbeat")
    with pytest.raises(RuntimeError, match="can't start new thread"), Picture.acquiring(engine, "anna"):
        pass
    assert Picture.acquired(other, "anna") == []
