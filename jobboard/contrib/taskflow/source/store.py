"""What each of TaskFlow's stores answers about a board, and does to it."""

from __future__ import annotations

import abc
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from jobboard.conf import Option, Settings
from jobboard.exceptions import JobFailure
from jobboard.states import Status

NOTES = ".jobboard-move"
"""Where a move keeps its notes, in the board's own namespace or path; TaskFlow's boards don't look there."""


class StoredPosting(NamedTuple):
    """A posting as it lies on the board or in its trash. ``place``: its field, znode or key. ``owner``: who has claimed
    it. ``since``: when it came there, in µs, where the store knows."""

    place: str
    raw: bytes
    owner: str | None
    since: int | None


class Leaving(NamedTuple):
    """A job to be taken off the board, and the note that is left in its stead."""

    place: str
    uuid: str
    note: bytes


class OriginStore(abc.ABC):
    """One of TaskFlow's boards on its server. Each call may be repeated, and does then what the first try has not done.

    :raises ConnectionFailure: the server can't be reached.
    """

    options: ClassVar[Mapping[str, Option]]
    parts: ClassVar[Mapping[str, str]]
    """Which option a part of the URI sets."""

    @abc.abstractmethod
    def __init__(self, settings: Settings) -> None:
        """:raises ValueError: they don't fit together."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The namespace or path, which alone makes a board's identity."""

    @abc.abstractmethod
    def open(self, limit: float) -> None:
        """:param limit: for how many seconds to try."""

    @abc.abstractmethod
    def close(self) -> None: ...
    @abc.abstractmethod
    def exists(self) -> bool:
        """Whether anything has ever been posted there."""

    @abc.abstractmethod
    def jobs(self, places: Sequence[str] | None = None) -> list[StoredPosting]:
        """What lies on the board; with ``places``, what of these does."""

    @abc.abstractmethod
    def trash(self) -> list[StoredPosting]: ...

    @abc.abstractmethod
    def depart(self, leaving: Sequence[Leaving]) -> list[Status]:
        """Take jobs off the board, each in one step with its note, if nobody has claimed it. ABSENT where an earlier
        try has done so: its note tells."""

    @abc.abstractmethod
    def remove_trash(self, places: Sequence[str]) -> list[Status]: ...

    @abc.abstractmethod
    def notes(self, uuids: Sequence[str] | None = None) -> dict[str, bytes]:
        """All notes, or those of these."""

    @abc.abstractmethod
    def write_note(self, uuid: str, note: bytes) -> None: ...
    @abc.abstractmethod
    def remove_notes(self, uuids: Sequence[str]) -> None: ...

    @abc.abstractmethod
    def decode(self, kept: StoredPosting) -> dict[str, Any]:
        """A posting as :func:`taskflow.jobs.base.format_posting` has made it, with its ``sequence``.

        :raises ValueError: it is none.
        """


def given(settings: Settings) -> dict[str, Any]:
    """The options that the URI has, as TaskFlow wants its configuration."""
    return {name: value for name, value in settings.items() if value is not None and name != "retry_for"}


def options(**parsers: Callable[[Any], Any]) -> dict[str, Option]:
    """Options under TaskFlow's names; what may be a password is not shown."""
    return {name: Option(parse, secret="password" in name) for name, parse in parsers.items()}


def decoded_json(raw: bytes) -> dict[str, Any]:
    found = json.loads(raw)
    if not isinstance(found, dict):
        raise TypeError("it is not an object")
    return found


def owner_in(raw: bytes) -> str:
    """Who has claimed a job; a lock that can't be read is somebody's still."""
    try:
        return str(decoded_json(raw)["owner"])
    except (TypeError, ValueError, LookupError):
        return "a lock that can't be read"


def refused(error: BaseException) -> JobFailure:
    return JobFailure(f"TaskFlow's server refused: {type(error).__name__}: {error}", error)
