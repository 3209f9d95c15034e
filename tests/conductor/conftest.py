"""What tests of conductors ask for."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobboard.outcomes import RetryPolicy
from tests.support.conductors import Hanging


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    """A handler that hangs. Its gate opens at the end of the test at the latest."""
    hanging = Hanging()
    yield hanging
    hanging.gate.set()


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failed jobs come back at once, and so do requests that failed in an outage."""
    monkeypatch.setattr("jobboard.outcomes.USUAL", RetryPolicy(base=1e-6))
    monkeypatch.setattr("jobboard.retry.OUTAGE_BASE", 0.01)


@pytest.fixture
def notes(tmp_path: Path) -> Callable[[], list[str]]:
    """The lines that handlers in other processes have written."""
    path = tmp_path / "notes"

    def lines() -> list[str]:
        text = path.read_text() if path.exists() else ""
        # A line without its end is still being written.
        return text[: text.rfind("\n") + 1].splitlines()

    return lines
