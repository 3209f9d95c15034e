"""A backend for Django's own ``django.tasks``, and models whose rows are acquired; needs the extra ``django``.

The backend needs Django 6. All else works on Django 5.2, too.

In the settings of a project::

    INSTALLED_APPS = [..., "jobboard.contrib.django"]
    TASKS = {"default": {"BACKEND": "jobboard.contrib.django.JobboardBackend", "OPTIONS": {"board": "redis://redis1"}}}

- ``backend``: the backend that Django calls; ``options``: its ``OPTIONS``; ``boards``: the boards of the process
- ``databases``: Django's databases and connections, for boards and models
- ``results``: jobs of tasks, and results of jobs; ``worker``: the handler that runs tasks
- ``claimable`` and ``fields``: models whose rows are acquired
- ``apps`` and ``management``: the tables of boards, and ``manage.py jobboard``
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobboard.contrib.django.backend import JobboardBackend as JobboardBackend


def __getattr__(name: str) -> Any:
    """Import the backend once it is asked for: models do without ``django.tasks``."""
    if name != "JobboardBackend":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from jobboard.contrib.django import databases

    if not databases.has_tasks():
        import django

        raise ImportError(
            f"JobboardBackend needs django.tasks, which came with Django 6, and this is Django {django.__version__}: "
            "upgrade Django, or post to a board by jobboard.fetch()"
        )
    from jobboard.contrib.django.backend import JobboardBackend

    return JobboardBackend
