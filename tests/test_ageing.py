"""``benchmarks/ageing`` runs, and reports throughput under a pinned snapshot."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

pytestmark = pytest.mark.backends("sqlite")

ROOT = Path(__file__).parent.parent
PROGRAM = ROOT / "benchmarks" / "ageing"


def run(folder: Path, *arguments: str) -> tuple[str, list[dict[str, Any]]]:
    command = [sys.executable, str(PROGRAM), *arguments, "--only", "sqlite", "--folder", str(folder)]
    files = ("--json", str(folder / "all.json"), "--chart", str(folder / "chart.svg"))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([*command, *files], env=environment, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads((folder / "all.json").read_text())


def test_a_drain_under_a_pin_has_laps_and_a_chart(tmp_path: Path) -> None:
    out, [curve] = run(tmp_path, "drain", "--jobs", "60", "--every", "20", "--batch", "10", "--pin", "read")
    assert curve["laps"][-1]["done"] == 60
    assert set(curve["laps"][0]["verbs"]) == {"claim", "consume"}
    assert "sqlite, pin read" in out
    assert len(list(ElementTree.parse(tmp_path / "chart.svg").iter("{http://www.w3.org/2000/svg}polyline"))) == 1


def test_a_steady_load_is_compared_before_and_under_a_pin(tmp_path: Path) -> None:
    given = ("--minutes", "0.02", "--around", "0.02", "--rate", "400", "--pin", "read", "--batch", "20")
    out, [curve] = run(tmp_path, "steady", *given)
    assert [lap["pinned"] for lap in curve["laps"]] == [False, True, False]
    assert "sqlite, of what it was before pin read: under it throughput" in out
    verbs = {verb for lap in curve["laps"] for verb in lap["verbs"]}
    assert {"post", "claim", "consume", "abandon"} <= verbs
    # The chart marks the time of the pin.
    assert len(list(ElementTree.parse(tmp_path / "chart.svg").iter("{http://www.w3.org/2000/svg}rect"))) == 2
