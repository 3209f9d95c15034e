"""A backend for Django's own ``django.tasks``; needs the extra ``django``, and Django 6 a Python of 3.12 or newer.

In the settings of a project::

    INSTALLED_APPS = [..., "jobboard.contrib.django"]
    TASKS = {"default": {"BACKEND": "jobboard.contrib.django.JobboardBackend", "OPTIONS": {"board": "redis://redis1"}}}

- ``backend``: the backend that Django calls; ``options``: its ``OPTIONS``; ``boards``: the boards of the process
- ``databases``: Django's databases and connections, for boards and models
- ``results``: jobs of tasks, and results of jobs; ``worker``: the handler that runs tasks
- ``claimable`` and ``fields``: models whose rows are acquired
- ``apps`` and ``management``: the tables of boards, and ``manage.py jobboard``
"""

from jobboard.contrib.django.backend import JobboardBackend as JobboardBackend
