"""``manage.py jobboard``: the command line, on the board of a task backend."""

from __future__ import annotations

import argparse
import os
import sys
from importlib import metadata
from typing import Any, ClassVar

from django.core.management.base import BaseCommand, CommandError

from jobboard.contrib.django.backend import JobboardBackend
from jobboard.contrib.django.interface import DEFAULT_TASK_BACKEND_ALIAS, InvalidTaskBackend, task_backends
from jobboard.contrib.django.options import TaskOptions
from jobboard.outcomes import ATTEMPTS, OneFailure

_DECRYPTING = (["work"], ["show"], ["done", "show"])
"""The commands that take a cipher."""


class Command(BaseCommand):
    help = "Run a command of jobboard on the project's board: 'work' runs tasks, 'help' lists the commands."
    requires_system_checks: ClassVar[list[str]] = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--backend", default=DEFAULT_TASK_BACKEND_ALIAS, metavar="ALIAS", help="The backend in TASKS."
        )
        parser.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND ...", help="As in 'work --jobs 16'.")

    def handle(self, *args: Any, backend: str, words: list[str], **options: Any) -> None:
        try:
            found = task_backends[backend]
            if not isinstance(found, JobboardBackend):
                raise CommandError(f"TASKS[{backend!r}] is a {type(found).__name__}, which has no board")
            given = found.checked
            environment = {"JOBBOARD_URL": given.uri, "JOBBOARD_NAME": given.name}
        except (InvalidTaskBackend, ValueError) as error:
            raise CommandError(str(error)) from None
        for command in _DECRYPTING:
            if words[: len(command)] == command and given.conf.get("cipher") is not None:
                words = [*command, f"--cipher=jobboard.contrib.django.ciphers:{backend}", *words[len(command) :]]
        if words[:1] == ["work"]:
            words = [*_work(backend, given), *words[1:]]
        elif words in ([], ["help"]):
            words = ["--help"]
        [entry_point] = metadata.distribution("jobboard").entry_points.select(group="console_scripts", name="jobboard")
        before = dict(os.environ)
        os.environ.update(environment)
        try:
            status = entry_point.load()(words, found.command)
        finally:
            os.environ.clear()
            os.environ.update(before)
        if status:
            sys.exit(status)


def _work(alias: str, task_options: TaskOptions) -> list[str]:
    # Options of the user follow these, and replace them.
    retry = task_options.retry
    given = {
        "--max-attempts": None if retry.max_attempts is ATTEMPTS else retry.max_attempts or 0,
        "--max-retries": retry.max_retries,
        "--retry-base": retry.base,
        "--retry-cap": retry.cap,
    }
    options = (f"{name}={value}" for name, value in given.items() if value is not None)
    once = ["--one-failure"] if isinstance(retry, OneFailure) else []
    return ["work", f"jobboard.contrib.django.worker:{alias}", *once, *options]
