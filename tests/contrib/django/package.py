"""The package of tasks that belongs to the installed Django: its own, or django-tasks."""

import importlib

import django

NAME = "django.tasks" if django.VERSION >= (6,) else "django_tasks"
DUMMY = f"{NAME}.backends.dummy.DummyBackend"

_package = importlib.import_module(NAME)
default_task_backend = _package.default_task_backend
task = _package.task
