"""The queue in a table that examples/ has."""

from __future__ import annotations

import re
import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")

PROGRAM = Path(__file__).parents[2] / "examples" / "mysql_job_queue.py"


def test_two_generators_and_ten_consumers(engine: sa.Engine) -> None:
    main: Any = runpy.run_path(str(PROGRAM))["main"]

    def run(command: str, *options: str) -> str:
        uri = engine.url.render_as_string(hide_password=False)
        return CliRunner().invoke(main, [command, "--uri", uri, *options], catch_exceptions=False).output

    for _ in range(2):
        assert run("setup-tables") == ""
    counts: Counter[str] = Counter()
    for line in run("start-processing", "--jobs", "300").splitlines():
        reported = re.fullmatch(r"(consumer \d): (\d+) jobs", line)
        assert reported, line
        counts[reported[1]] += int(reported[2])
    assert counts.total() == 300
    assert len(counts) == 10
    with engine.begin() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM queue").scalar() == 0
        connection.exec_driver_sql("DROP TABLE queue")
