"""What ``INSTALLED_APPS`` leads to."""

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate
from django.tasks import task_backends


class JobboardConfig(AppConfig):
    name = "jobboard.contrib.django"
    label = "jobboard"
    verbose_name = "Jobboard"

    def ready(self) -> None:
        post_migrate.connect(make_tables, sender=self)


def make_tables(using: str, **kwargs: Any) -> None:
    """``manage.py migrate`` makes the tables of the boards that are in the database that it is about."""
    from jobboard.backends import fetch
    from jobboard.contrib.django.backend import JobboardBackend

    for backend in task_backends.all(initialized_only=False):
        if isinstance(backend, JobboardBackend) and backend.database == using:
            fetch(backend.checked.name, backend.checked.conf).setup()
