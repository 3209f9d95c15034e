"""Benchmarks with so few jobs that it only shows that they run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parents[1] / "benchmarks"

pytestmark = [pytest.mark.backends("sqlite", "redis"), pytest.mark.any_driver]


def test_the_board_beside_the_ideal(backend: str, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    few = ("--rounds", "1", "--jobs", "10", "--no-peers", "--profile", "--json", str(figures))
    run = _run("ideal", backend, tmp_path, *few)
    assert "round 1 of 1, claim + consume, 100: jobboard" in run.stderr
    [found] = json.loads(figures.read_text())["backends"]
    steps = ("post", "claim + consume", "post, 100", "claim + consume, 100", "one conductor")
    assert set(found["steps"]) == {f"{each}: {step}" for each in ("ideal", "jobboard") for step in steps}
    # Statements for each job: the yardstick must not change by the way.
    ideal = {step: found["steps"][f"ideal: {step}"]["statements"] for step in steps}
    assert ideal == dict(zip(steps, (1, 2, 0.01, 0.02, 0.02), strict=True))
    for name, cost in found["steps"].items():
        assert min(cost["rate"], cost["client"], cost["written"], cost["of_ideal"], cost["statements"]) > 0, name
    assert set(found["parts"]) == {"post", "finish", "post_many", "finish_many"}
    for line in run.stdout.splitlines():
        if line.startswith(("ideal ", "jobboard ")):
            assert line.count("(") == len(steps), line


@pytest.mark.backends("sqlite")
def test_what_features_cost(backend: str, tmp_path: Path) -> None:
    few = ("--workers", "2", "--rounds", "1", "--seconds", "0.1", "--jobs", "2000", "--case", "runs", "--behind", "100")
    run = _run("features.py", backend, tmp_path, *few)
    first, plain, runs, behind = run.stdout.splitlines()
    assert "jobs/s" in first
    assert plain.split() == ["plain", "1.00", "(1.00", "to", "1.00)"]
    assert float(runs.split()[1]) > 0
    assert behind.startswith("  behind 100: ")


def _run(program: str, backend: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    where = ("--backend", backend, "--folder", str(folder), "--volatile")
    command = [sys.executable, PROGRAMS / program, *where, *options]
    environment = {**os.environ, "PYTHONPATH": str(PROGRAMS.parent)}
    run = subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=60)
    assert not run.returncode, run.stderr
    return run
