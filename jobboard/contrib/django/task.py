"""JobboardTask: a task with the options of a post that Django does not know."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, replace
from typing import Any, Self

from jobboard import arguments
from jobboard.contrib.django.interface import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class JobboardTask(Task):
    """A task of a :class:`~jobboard.contrib.django.JobboardBackend`: ``@task`` makes it, by Django's default backend or
    that of its ``backend``. ``@task`` and ``using()`` take these options beside Django's, with the meanings of
    :meth:`JobBoard.post <jobboard.board.JobBoard.post>`: ``key``, ``group``, ``delay`` and ``max_attempts``. ``delay``
    counts from ``enqueue()``, and ``run_after`` replaces it.
    """

    key: str | None = None
    group: str | None = None
    delay: float | datetime.timedelta | None = None
    max_attempts: int | None = None

    def __post_init__(self) -> None:
        # By its name: a class with slots is made twice, and super() knows the first one.
        Task.__post_init__(self)
        object.__setattr__(self, "delay", arguments.seconds("delay", self.delay) or None)

    def using(
        self,
        *,
        key: str | None = None,
        group: str | None = None,
        delay: float | datetime.timedelta | None = None,
        max_attempts: int | None = None,
        run_after: datetime.datetime | None = None,
        **changes: Any,
    ) -> Self:
        """Return the task with other options. None leaves an option as it is."""
        given = {"key": key, "group": group, "max_attempts": max_attempts}
        own: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if delay is not None or run_after is not None:
            own |= {"delay": delay, "run_after": run_after}
        return replace(Task.using(self, **changes), **own)
