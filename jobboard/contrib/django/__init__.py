"""A backend for Django's own ``django.tasks``; needs the extra ``django``, and Django 6 a Python of 3.12 or newer.

In the settings of a project::

    INSTALLED_APPS = [..., "jobboard.contrib.django"]
    TASKS = {"default": {"BACKEND": "jobboard.contrib.django.JobboardBackend", "OPTIONS": {"board": "redis://redis1"}}}

``backend`` is what Django calls, ``options`` reads ``OPTIONS``, ``boards`` holds the boards of the process, ``results``
makes a job of a task and a result of a job, ``worker`` runs tasks, and ``management`` is ``manage.py jobboard``.
``claimable`` is for models whose rows are acquired.
"""

from jobboard.contrib.django.backend import JobboardBackend as JobboardBackend
