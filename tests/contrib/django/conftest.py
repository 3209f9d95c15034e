"""Fixtures of tests with Django, which run in environments of their own: ``tox run -e django,django52``.

There a missing Django fails the run, as nothing is collected. Python 3.11 can't have Django 6. Tasks on Django 5.2 are
those of the package django-tasks.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

if find_spec("django") is None:
    collect_ignore_glob = ["test_*.py", "released.py"]
else:
    import django
    from django.test.utils import setup_test_environment

    from tests.contrib.django import released

    if not released.FOLDER.exists():
        raise pytest.UsageError("Django's own tests are missing: run 'python tests/contrib/django/released.py'")
    if not released.OWN:
        # The project of the example is written for Django 6.
        collect_ignore_glob = [str(Path(__file__).with_name("test_example.py"))]
    # They call themselves tasks.tasks, and a test of theirs compares that.
    sys.path.append(str(released.FOLDER))
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.contrib.django.project"
    django.setup()
    setup_test_environment()


ENGINES = {"sqlite": "sqlite3", "postgresql": "postgresql", "mariadb": "mysql"}


@pytest.fixture
def database(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """The settings of ``project``, a database of Django's."""
    import sqlalchemy
    from django.db import connections

    from jobboard.contrib.django import databases

    settings: dict[str, Any] = {"ENGINE": f"django.db.backends.{ENGINES[backend]}"}
    if backend == "sqlite":
        settings["NAME"] = str(tmp_path / "project.sqlite3")
    else:
        url = sqlalchemy.make_url(request.getfixturevalue("database_uri")(backend))
        settings |= {"NAME": url.database, "USER": url.username, "PASSWORD": url.password or ""}
        settings |= {"HOST": url.host, "PORT": url.port or ""}
    if backend == "mariadb" and find_spec("MySQLdb") is None:
        # mysqlclient is built from source, and so is not everywhere; where it is, it is what is tested.
        pymysql = pytest.importorskip("pymysql")
        pymysql.install_as_MySQLdb()
    configured = connections.settings
    connections.settings = connections.configure_settings({**configured, "project": dict(settings)})
    yield settings
    connections["project"].close()
    del connections["project"]
    databases.engine_of.cache_clear()
    connections.settings = configured


@pytest.fixture
def tables(database: dict[str, Any]) -> Iterator[None]:
    """The tables of the claimable models, in ``project``."""
    from django.db import connections

    from tests.contrib.django.rows import MODELS, USING

    with connections[USING].schema_editor() as editor:
        for model in MODELS:
            editor.create_model(model)
    yield
    with connections[USING].schema_editor() as editor:
        for model in reversed(MODELS):
            editor.delete_model(model)


@pytest.fixture
def tasks_on(board_conf: dict[str, Any]) -> Iterator[Callable[..., Any]]:
    """``tasks_on(**options)``: the default task backend, on the test's board until the test ends."""
    from django.test import override_settings

    from jobboard.contrib.django import boards
    from tests.contrib.django.package import default_task_backend

    overridden = []

    def use(backend: str = "jobboard.contrib.django.JobboardBackend", queues: Any = (), **options: Any) -> Any:
        configured = {"BACKEND": backend, "QUEUES": list(queues), "OPTIONS": {**board_conf, **options}}
        overridden.append(override_settings(TASKS={"default": configured}))
        overridden[-1].enable()
        return default_task_backend

    yield use
    for each in reversed(overridden):
        each.disable()
    boards.close()


@pytest.fixture
def work(start: Any) -> Callable[..., Any]:
    """``work()``: a conductor that runs the tasks, until the test ends; ``work(3)`` has run three."""
    from jobboard.conductor import Conductor
    from jobboard.contrib.django import worker
    from jobboard.contrib.django.interface import task_backends

    def begin(count: int | None = None, **options: Any) -> Conductor:
        backend = task_backends["default"]
        options = {"retry": backend.checked.retry, **options}
        conductor = Conductor("worker", backend.board, worker.handlers("default"), **options)
        start(conductor, count)
        if count is not None:
            assert conductor.wait(30)
        return conductor

    return begin
