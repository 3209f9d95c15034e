"""Slips that type checkers report to users of the library: ``tests/typing/uses.py`` has them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
USES = ROOT / "tests" / "typing" / "uses.py"

MYPY = ["mypy", "--strict", "--output=json", str(USES)]
# A fork of pyright that brings its Node.js along as a wheel: pyright itself downloads programs at its first run.
PYRIGHT = ["basedpyright", "--outputjson", "--level=error", f"--pythonpath={sys.executable}", str(USES)]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_checkers_report_each_slip_and_nothing_else(checker: str) -> None:
    command = {"mypy": MYPY, "pyright": PYRIGHT}[checker]
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    if checker == "mypy":
        told = map(json.loads, done.stdout.splitlines())
        errors = [(each["line"], each["message"]) for each in told if ROOT / each["file"] == USES]
    else:
        found = json.loads(done.stdout)["generalDiagnostics"]
        errors = [(each["range"]["start"]["line"] + 1, each["message"]) for each in found]
    lines = USES.read_text().splitlines()
    bad = {number for number, line in enumerate(lines, 1) if line.endswith("# BAD")}
    reported = {line for line, _ in errors}
    assert [lines[line - 1] for line in sorted(bad - reported)] == []
    assert [error for error in errors if error[0] not in bad] == []
