"""examples/django, as its users run it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from jobboard.testing import eventually
from tests.support.programs import gunicorn, running

PROJECT = Path(__file__).parents[3] / "examples/django"
pytestmark = pytest.mark.backends("sqlite")


def test_a_view_enqueues_tasks_and_shows_their_results(board_conf: dict[str, Any], tmp_path: Path) -> None:
    env = {"JOBBOARD_URL": board_conf["board"], "DJANGO_SETTINGS_MODULE": "project.settings"}

    def ask(path: str, text: str | None = None) -> Any:
        data = None if text is None else text.encode()
        with urllib.request.urlopen(address + path, data, timeout=30) as reply:
            return json.loads(reply.read())

    with (
        gunicorn("project.wsgi", PROJECT, tmp_path / "service.log", **env) as address,
        running(PROJECT, tmp_path / "worker.log", "manage.py", "jobboard", "work", **env),
    ):
        good, bad = ask("/texts", "to be or not to be")["task"], ask("/texts", "")["task"]
        done = eventually(lambda: found if (found := ask(f"/texts/{good}"))["words"] else None)
        assert done == {"status": "SUCCESSFUL", "words": {"to": 2, "be": 2, "or": 1, "not": 1}}
        assert eventually(lambda: ask(f"/texts/{bad}")["status"] == "FAILED")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            ask("/texts/123")
