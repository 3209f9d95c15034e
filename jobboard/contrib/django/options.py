"""Checked ``OPTIONS`` of a task backend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self
from urllib.parse import urlencode

from jobboard import backends
from jobboard.contrib.django import databases
from jobboard.exceptions import JobBoardError
from jobboard.outcomes import OneFailure, RetryPolicy

DAY = 86400
"""The seconds for which results are kept without ``keep_done``."""


class TaskOptions(NamedTuple):
    """The board's name and configuration, and the retries of a failed task: none by default.

    ``database``: the alias of Django's database that the board is in; None for a board elsewhere. ``known_as``: the
    name of that database on its server when the options were checked.
    """

    name: str
    conf: Mapping[str, Any]
    retry: RetryPolicy
    database: str | None = None
    known_as: object = None

    @property
    def current(self) -> bool:
        """True while the alias still leads to the same database."""
        return self.database is None or databases.name_of(self.database) == self.known_as

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Return the checked options.

        :raises ValueError: an option is wrong. The error names it and the way out.
        """
        options = {"name": "jobboard", "keep_done": DAY, **given}
        name, retry = options.pop("name"), options.pop("retry", None)
        board = options.get("board")
        if not isinstance(board, str):
            raise ValueError("the option 'board' is missing: the URI of a board, as in 'redis://redis1:6379/0'")
        database = known_as = None
        if board.startswith(databases.SCHEME):
            database = board.removeprefix(databases.SCHEME)
            place, known_as = databases.conf_of(database), databases.name_of(database)
            options = {**place, **options, "board": place["board"]}
        try:
            backends.fetch(name, options)
            return cls(name, options, _policy(retry), database, known_as)
        except (TypeError, JobBoardError) as error:
            raise ValueError(str(error)) from error

    @property
    def uri(self) -> str:
        """The configuration as a URI, for the command line, without the cipher.

        :raises ValueError: an option does not fit into a URI.
        """
        given = self.conf.items()
        options = {name: value for name, value in given if name not in ("board", "cipher") and value is not None}
        for name, value in options.items():
            if not isinstance(value, str | int | float):
                raise ValueError(f"the option {name!r} can't be passed to a command: only text, numbers and flags can")
        board: str = self.conf["board"]
        if not options:
            return board
        where = board if "://" in board else f"{board}://"
        return f"{where}{'&' if '?' in where else '?'}{urlencode(options)}"


def _policy(given: object) -> RetryPolicy:
    # The first exception ends a task, as in Django's own backends. A dead worker is no exception of the task.
    if given is None:
        return OneFailure()
    if not isinstance(given, Mapping):
        raise TypeError(f"option retry must be a dict, as in {{'max_attempts': 5}}, not {type(given).__name__}")
    return RetryPolicy(**given)
