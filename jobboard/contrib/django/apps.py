"""The app for ``INSTALLED_APPS``: the tables of boards in Django's databases, and room for test runners."""

import contextlib
import glob
from pathlib import Path
from typing import Any

from django.apps import AppConfig
from django.db import connections
from django.db.backends.base.base import NO_DB_ALIAS
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate


class JobboardConfig(AppConfig):
    name = "jobboard.contrib.django"
    label = "jobboard"
    verbose_name = "Jobboard"

    def ready(self) -> None:
        post_migrate.connect(make_tables, sender=self)
        connection_created.connect(leave_databases_to_runner)


def make_tables(using: str, **kwargs: Any) -> None:
    """Create the tables of the boards in a database, after ``manage.py migrate``."""
    from jobboard.contrib.django import databases

    if not databases.has_tasks():
        return
    from jobboard.contrib.django.backend import boards_in

    found = boards_in(using)
    for board in found:
        board.setup()
    connection = connections[using]
    if found and connection.vendor == "sqlite" and not connection.in_atomic_block:
        with connection.cursor() as cursor:
            # SQLite's log is a file of its own from now on, and a test runner copies only the database's file: so that
            # file gets all writes at once, also those of further apps.
            cursor.execute("PRAGMA wal_autocheckpoint = 1")
            cursor.execute("PRAGMA wal_checkpoint")
        if connection.settings_dict["NAME"] == connection.settings_dict["TEST"]["NAME"]:
            _clear_away_logs(connection)


def _clear_away_logs(connection: Any) -> None:
    """Remove the logs beside copies of earlier test runs. Django removes only the file of a copy, and SQLite would take
    the log for that of the next copy."""
    database = Path(connection.settings_dict["NAME"])
    for log in database.parent.glob(f"{glob.escape(database.stem)}_*{glob.escape(database.suffix)}-wal"):
        copy = log.with_name(log.name.removesuffix("-wal"))
        if copy.exists():
            # The last connection to close removes the log.
            with contextlib.closing(connection.Database.connect(copy)) as old:
                old.execute("PRAGMA wal_checkpoint")
        else:
            log.unlink(missing_ok=True)


def leave_databases_to_runner(connection: Any, **kwargs: Any) -> None:
    """Leave Django's databases when a test runner connects to create, copy or drop one.

    PostgreSQL refuses that while others are connected. Test runners connect to no database for it.
    """
    if connection.alias == NO_DB_ALIAS:
        from jobboard.contrib.django import boards

        boards.leave_databases()
