"""Gets Django's own tests of its tasks, from the released source of the Django that is installed.

They are in no wheel. tox runs this before the tests; they stay in the virtual environment. The package django-tasks is
released without tests: this writes its names into the tests of Django 6.0, which took its tasks from there.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from pathlib import Path

import django

OWN = django.VERSION >= (6,)
VERSION = django.__version__ if OWN else "6.0"
FOLDER = Path(sys.prefix) / "django-source" / VERSION


def get() -> None:
    if FOLDER.exists():
        return
    # An older Django goes with an older Python, which only reads these tests.
    wanted = (
        "--no-deps",
        "--ignore-requires-python",
        "--no-binary",
        "django",
        f"django=={VERSION}{'' if OWN else '.*'}",
    )
    made = FOLDER.with_name(f"{VERSION}.part")
    subprocess.run([sys.executable, "-m", "pip", "-q", "download", "--dest", made, *wanted], check=True)
    with tarfile.open(next(made.glob("django-*.tar.gz"))) as source:
        for member in source.getmembers():
            path = Path(member.name)
            if member.isfile() and path.parts[1:-1] == ("tests", "tasks"):
                member.name = f"tasks/{path.name}"
                source.extract(member, made, filter="data")
                if not OWN:
                    _translate(made / member.name)
    made.rename(FOLDER)


def _translate(path: Path) -> None:
    """Write the names of the package in place of Django's."""
    text = path.read_text().replace("django.utils.json", "django_tasks.utils").replace("django.tasks", "django_tasks")
    path.write_text(re.sub(r"\bInvalidTask(Backend)?\b", r"\g<0>Error", text))


if __name__ == "__main__":
    get()
