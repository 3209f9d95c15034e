"""Handlers that fork, and whose child would leave them."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def note(job: Any, what: str) -> None:
    with Path(job.details["notes"]).open("a") as file:
        file.write(f"{job.details['mode']}: {job.name} {what}\n")


@contextlib.contextmanager
def around(job: Any) -> Iterator[None]:
    """A context that no child is to leave."""
    parent = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != parent:
            note(job, "left by the child")


def in_child(job: Any) -> bool:
    """Fork. Return True in the child, and False in the parent once the child has ended."""
    note(job, "run")
    child = os.fork()
    if child:
        note(job, f"status {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}")
    return not child


def returns(job: Any) -> object:
    return "by the child" if in_child(job) else None


def raises(job: Any) -> None:
    if in_child(job):
        raise ValueError("only the child's")


def exits(job: Any) -> None:
    if in_child(job):
        sys.exit(7)


@contextlib.contextmanager
def forking(job: Any) -> Iterator[None]:
    """A context that forks as it is entered or left."""
    if job.name == "entered":
        in_child(job)
    yield
    if job.name == "left":
        in_child(job)


def handled(job: Any) -> None:
    note(job, "handled")


HANDLERS = {"returns": returns, "raises": raises, "exits": exits}
