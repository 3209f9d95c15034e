"""Commands on a board that they find through the environment."""

from typing import Any

import pytest

from tests.support.commands import Commands


@pytest.fixture
def board(board_of_commands: Any) -> Any:
    return board_of_commands


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Commands:
    return Commands(capsys, monkeypatch)
