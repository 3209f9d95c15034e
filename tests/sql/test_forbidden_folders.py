"""Files in folders that this user may not enter."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import jobboard
from jobboard.exceptions import ConnectionFailure
from jobboard.sql import binds
from jobboard.taskloop import TaskLoop
from jobboard.testing.conformance.processes import in_child

pytestmark = pytest.mark.backends("sqlite")

NOBODY = 65534


def as_nobody(act: Callable[[], Any]) -> Any:
    """Run ``act`` in a process of a user without rights, as root may enter every folder."""

    def child() -> Any:
        if os.geteuid() == 0:
            os.seteuid(NOBODY)
        return act()

    return in_child(child)()


@pytest.fixture
def sealed(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "sealed"
    folder.mkdir()
    with jobboard.backend("board", f"sqlite:///{folder}/jobs.db"):
        pass
    folder.chmod(0)
    yield folder
    folder.chmod(0o700)


def failure(act: Callable[[], object]) -> tuple[str, bool]:
    with pytest.raises(ConnectionFailure) as error:
        act()
    return str(error.value), error.value.refused


@pytest.mark.rule("A file in a folder that this user may not enter is a ConnectionFailure.")
@pytest.mark.parametrize("options", [{}, {"auto_setup": False}, {"read_only": True}])
@pytest.mark.parametrize("file", ["jobs.db", "missing.db", "missing/jobs.db"])
def test_a_board_says_that_it_cannot_connect(sealed: Path, options: dict[str, Any], file: str) -> None:
    conf = {"board": f"sqlite:///{sealed}/{file}", "retry_for": 0.1, **options}
    text, is_refused = as_nobody(lambda: failure(jobboard.fetch("board", conf).connect))
    assert text.startswith(f"can't connect to sqlite at {sealed}/{file}: permission denied")
    assert is_refused


def test_a_connected_board_says_so(sealed: Path) -> None:
    def act() -> tuple[str, bool]:
        sealed.chmod(0o700)
        board = jobboard.fetch("board", {"board": f"sqlite:///{sealed}/jobs.db", "retry_for": 0.1})
        board.connect()
        os.seteuid(NOBODY) if os.geteuid() == 0 else sealed.chmod(0)
        assert board.engine.store is not None
        board.engine.store.links._discard_idle()
        return failure(lambda: board.post("a"))

    assert "permission denied" in in_child(act)()[0]


def test_setup_and_loops_say_so(sealed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binds, "PATIENCE", 0.1)
    url = f"sqlite:///{sealed}/jobs.db"
    board = jobboard.fetch("board", {"board": url, "retry_for": 0.1})
    loop = TaskLoop(sa.create_engine(url), "loop")
    for act in (board.setup, loop.create):
        assert "permission denied" in as_nobody(lambda act=act: failure(act))[0]


@pytest.mark.rule("A file in a folder that this user may not enter is a ConnectionFailure.")
def test_a_certificate_there_is_named(sealed: Path) -> None:
    conf = {"board": "mariadb://app@127.0.0.1:1/prod", "ssl_ca": f"{sealed}/ca.pem", "retry_for": 0.1}
    board = jobboard.fetch("board", conf)
    text, is_refused = as_nobody(lambda: failure(board.connect))
    assert text == f"option ssl_ca: this user may not enter the folder of '{sealed}/ca.pem'"
    assert is_refused
