"""examples/web/django_mount.py: the page of a board in Django's admin, as its staff uses it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import jobboard
from tests.support.programs import gunicorn
from tests.web.browser import Browser

FOLDER = Path(__file__).parents[3] / "examples/web"
HOME = "/admin/jobs/jobboard"


@pytest.mark.rule("The page works under any path, and its addresses stay under it.")
@pytest.mark.backends("sqlite")
def test_the_staff_of_a_project_has_the_page_in_the_admin(board_conf: dict[str, Any], tmp_path: Path) -> None:
    env = {
        "JOBBOARD_URL": board_conf["board"],
        "DATABASE": str(tmp_path / "project.db"),
        "DJANGO_SUPERUSER_PASSWORD": "x",
    }
    user = ("createsuperuser", "--noinput", "--username", "staff", "--email", "staff@example.org")
    for words in (("migrate", "--verbosity", "0"), user):
        subprocess.run([sys.executable, "django_mount.py", *words], cwd=FOLDER, env={**os.environ, **env}, check=True)
    with jobboard.backend("jobboard", board_conf["board"]) as board:
        job = board.post("resize")
        board.cancel(job)
        with gunicorn("django_mount:application", FOLDER, tmp_path / "service.log", **env) as address:
            browser = Browser(address)
            browser.get(f"{HOME}/trash")
            assert browser.at.startswith("/admin/login/?next=/admin/jobs/jobboard/trash")
            browser.submit(username="staff", password="x")
            assert browser.at == f"{HOME}/trash"
            browser.press("Restore", job=1)
            assert "1 job restored." in browser.answer.text
            assert board.get(job.uuid).errors[-1].text == "restored by staff"
            board.cancel(job)
            browser.get(f"{HOME}/trash")
            browser.press("Purge", job=1)
            assert "1 job purged." in browser.press("Purge this job").text
            assert list(board.trashed()) == []
