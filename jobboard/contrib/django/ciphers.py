"""The ciphers of task backends, by alias: ``manage.py jobboard`` has commands load ``default`` from here."""

from __future__ import annotations

from jobboard.ciphers import Cipher
from jobboard.contrib.django.interface import task_backends


def __getattr__(alias: str) -> Cipher:
    if alias.startswith("__") or not isinstance(task_backends.settings.get(alias), dict):
        raise AttributeError(f"TASKS has no backend {alias!r}")
    cipher: Cipher = task_backends[alias].checked.conf["cipher"]
    return cipher
