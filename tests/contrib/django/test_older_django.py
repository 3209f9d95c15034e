"""Models on a Django without tasks: the installed one, with its tasks hidden."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.backends("sqlite")

PROGRAM = """
import sys

sys.modules["django.tasks"] = sys.modules["django_tasks"] = None

import django
from django.conf import settings
from django.core.management import call_command

settings.configure(
    INSTALLED_APPS=["jobboard.contrib.django"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "project.db"}},
)
django.setup()
from django.db import connection
from jobboard.contrib.django.claimable import ClaimableModel

class Picture(ClaimableModel):
    class Meta:
        app_label = "jobboard"

call_command("migrate", verbosity=0)
with connection.schema_editor() as editor:
    editor.create_model(Picture)
Picture.objects.create()
print(len(Picture.acquire("anna")))
call_command("flush", interactive=False, verbosity=0)
try:
    from jobboard.contrib.django import JobboardBackend
except ImportError as error:
    print(error)
"""


@pytest.mark.rule("Models do without tasks, as on Django 5.2.")
def test_models_do_without_tasks(tmp_path: Path) -> None:
    program = [sys.executable, "-c", PROGRAM]
    run = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    rows, error = run.stdout.splitlines()
    assert rows == "1"
    assert "django.tasks came with Django 6: install the package" in error
    assert "pip install 'django-tasks>=" in error
