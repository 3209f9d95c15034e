"""Tasks of the tests."""

from __future__ import annotations

import math
import os
import signal
import threading
import warnings
from pathlib import Path

from django.test import override_settings

from jobboard import Reject, Retry
from tests.contrib.django.package import task

release = threading.Event()
BOARD = {"default": {"BACKEND": "jobboard.contrib.django.JobboardBackend"}}
"""Settings by which a task gets our class. The tasks without it are as those made for another backend."""


@task
def add(a, b=1):
    return a + b


@task
def nothing():
    return "nothing"


@task(takes_context=True)
def die(context, notes):
    with Path(notes).open("a") as out:
        out.write(f"{context.attempt}\n")
    os.kill(os.getpid(), signal.SIGKILL)


@task(priority=5, queue_name="sums")
async def add_async(a, b):
    return a + b


@task
def fail(message="no"):
    raise KeyError(message)


@task
def chatter():
    error = ValueError("one\nTraceback (most recent call last):\nOSError: two")
    error.add_note("three")
    raise error


@task
def leave():
    raise SystemExit(3)


@task
def fork():
    with warnings.catch_warnings():
        # This process has threads, on purpose.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if child else "by the child"


@task
def unfit():
    return {1, 2}


@task
def endless():
    return [math.nan]


@task(takes_context=True)
def third_time(context, folder):
    """Fail twice."""
    Path(folder, str(context.attempt)).touch()
    if context.attempt < 3:
        raise OSError(f"attempt {context.attempt}")
    return context.task_result.id


@task
def later(delay):
    raise Retry("not now", delay=delay)


@task
def later_counted():
    raise Retry("not now", delay=0.01, count=True)


@task(takes_context=True)
def later_twice(context):
    """Ask for another run twice, and then fail."""
    if context.attempt <= 2:
        raise Retry("not now", delay=0.01)
    raise OSError(f"attempt {context.attempt}")


@task
def refuse():
    raise Reject("never")


@task
def hold():
    release.wait(30)


with override_settings(TASKS=BOARD):

    @task(group="letters", max_attempts=2)
    def letter(text):
        raise ValueError(text)


@task
def where():
    return os.getpid()


def _hidden(a):
    return a


hidden = task(_hidden)
