"""A backend for Django's own ``django.tasks``, and models whose rows are acquired; needs the extra ``django``.

The backend needs Django 6, or the package django-tasks on Django 5.2. All else works without.

In the settings of a project::

    INSTALLED_APPS = [..., "jobboard.contrib.django"]
    TASKS = {"default": {"BACKEND": "jobboard.contrib.django.JobboardBackend", "OPTIONS": {"board": "redis://redis1"}}}

- ``interface``: Django's interface for tasks, of Django itself or of the package
- ``backend``: the backend that Django calls; ``options``: its ``OPTIONS``; ``boards``: the boards of the process
- ``task``: the class of tasks, with the options of a post
- ``databases``: Django's databases and connections, for boards and models
- ``ciphers``: the ciphers of ``OPTIONS``, for commands
- ``results``: jobs of tasks, and results of jobs; ``worker``: the handler that runs tasks
- ``claimable`` and ``fields``: models whose rows are acquired
- ``apps`` and ``management``: the tables of boards, and ``manage.py jobboard``
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobboard.contrib.django.backend import JobboardBackend as JobboardBackend
    from jobboard.contrib.django.task import JobboardTask as JobboardTask


def __getattr__(name: str) -> Any:
    """Import the backend once it is asked for: models do without tasks."""
    if name not in ("JobboardBackend", "JobboardTask"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from jobboard.contrib.django import backend

    return getattr(backend, name)
