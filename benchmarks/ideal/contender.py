"""What is compared: who posts, claims and finishes jobs, each in a way of its own."""

from __future__ import annotations

import abc
from typing import Any, ClassVar

DETAILS = {"path": "/srv/images/" + "x" * 165, "width": 640}
"""200 bytes of JSON."""
NAME = "resize"
WHO = "anna"
BATCH = 100


class Contender(abc.ABC):
    """Posts jobs of :data:`DETAILS` and works them off. What it can't do raises ``NotImplementedError``.

    :param uri: of a server, or of an SQLite file, that it shares with the others; its tables or keys are its own.
    """

    library: ClassVar[str]
    settings: ClassVar[tuple[int, ...]] = (BATCH,)
    """How many jobs, or workers, its conductor may have at once: the best of these counts."""
    slow: ClassVar[bool] = False
    """Whether a tenth of the jobs is enough to measure it by."""

    @abc.abstractmethod
    def __init__(self, uri: str) -> None: ...

    @abc.abstractmethod
    def close(self) -> None:
        """Give the connections back."""

    def post(self, jobs: int) -> None:
        """Post so many, one at a time."""
        raise NotImplementedError

    def finish(self, jobs: int) -> None:
        """Claim and consume so many, one at a time."""
        raise NotImplementedError

    def post_many(self, jobs: int) -> None:
        """Post so many in batches of :data:`BATCH`."""
        raise NotImplementedError

    def finish_many(self, jobs: int) -> None:
        """Claim and consume so many in batches of :data:`BATCH`."""
        raise NotImplementedError

    def conduct(self, jobs: int, setting: int) -> None:
        """Have one worker process, which this is, run so many jobs that do nothing, and finish them."""
        raise NotImplementedError


def handle(details: dict[str, Any]) -> None:
    """The job that does nothing."""
