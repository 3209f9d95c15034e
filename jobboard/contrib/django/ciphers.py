"""The ciphers of task backends, by their aliases in ``TASKS``: ``--cipher jobboard.contrib.django.ciphers:default``."""

from __future__ import annotations

from typing import Any

from jobboard.contrib.django.backend import JobboardBackend
from jobboard.contrib.django.interface import task_backends


def __getattr__(alias: str) -> Any:
    backend = None if alias.startswith("__") else task_backends.settings.get(alias) and task_backends[alias]
    if not isinstance(backend, JobboardBackend):
        raise AttributeError(f"TASKS has no backend {alias!r} with a board")
    return backend.checked.conf.get("cipher")
