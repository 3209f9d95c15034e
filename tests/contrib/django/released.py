"""Gets Django's own tests of its tasks, from the released source of the Django that is installed.

They are in no wheel. ``tox run -e django`` runs this before the tests; they stay in the virtual environment.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import django

FOLDER = Path(sys.prefix) / "django-source" / django.__version__
TASKS = f"django-{django.__version__}/tests/tasks"


def get() -> None:
    if FOLDER.exists():
        return
    wanted = ("--no-deps", "--no-binary", "django", f"django=={django.__version__}")
    made = FOLDER.with_suffix(".part")
    subprocess.run([sys.executable, "-m", "pip", "-q", "download", "--dest", made, *wanted], check=True)
    with tarfile.open(next(made.glob("django-*.tar.gz"))) as source:
        for member in source.getmembers():
            if member.isfile() and member.name.startswith(f"{TASKS}/"):
                member.name = f"tasks/{Path(member.name).name}"
                source.extract(member, made, filter="data")
    made.rename(FOLDER)


if __name__ == "__main__":
    get()
