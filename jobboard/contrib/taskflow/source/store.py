"""The store of a TaskFlow board: the calls of a move, shared by Redis, ZooKeeper and etcd."""

from __future__ import annotations

import abc
import enum
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from jobboard.conf import Option, Settings
from jobboard.states import Status

NOTES = ".jobboard-move"
"""The notes of a move, in the board's own namespace or path; TaskFlow's boards don't look there."""

Folder = enum.Enum("Folder", ("JOBS", "TRASH", "NOTES"))


class StoredPosting(NamedTuple):
    """A posting on the board or in its trash, or a note.

    place: its field, znode or key within the folder. owner: the holder of its claim. since: the time of the posting in
    µs, None where the store does not know it.
    """

    place: str
    raw: bytes
    owner: str | None
    since: int | None


class Leaving(NamedTuple):
    """A job to be taken off the board, and the note that is left in its stead, whose place is the uuid."""

    place: str
    uuid: str
    note: bytes


class OriginStore(abc.ABC):
    """The store of one of TaskFlow's boards, which connects as TaskFlow does.

    Each call may be repeated, and then does what the first try has not done. Calls raise errors of the client.
    """

    server: ClassVar[str]
    options: ClassVar[Mapping[str, Option]]
    parts: ClassVar[Mapping[str, str]]
    """The option that each part of the URI sets."""

    # Errors of the client: the login is refused, the server can't be reached, or it refuses the call.
    denied: ClassVar[tuple[type[Exception], ...]] = ()
    unreachable: ClassVar[tuple[type[Exception], ...]]
    failures: ClassVar[tuple[type[Exception], ...]]

    name: str
    """The namespace or path, by which alone boards are told apart."""

    @abc.abstractmethod
    def __init__(self, settings: Settings) -> None: ...
    @abc.abstractmethod
    def open(self, limit: float) -> None:
        """Connect, and try that for ``limit`` seconds."""

    @abc.abstractmethod
    def close(self) -> None: ...
    @abc.abstractmethod
    def exists(self) -> bool:
        """Return whether anything has ever been posted there."""

    @abc.abstractmethod
    def read(self, folder: Folder, places: Sequence[str] | None = None) -> list[StoredPosting]:
        """Return all that is in a folder; with ``places``, what is there of them."""

    @abc.abstractmethod
    def remove(self, folder: Folder, places: Sequence[str]) -> list[Status]:
        """Remove from the trash or the notes."""

    @abc.abstractmethod
    def write_note(self, uuid: str, note: bytes) -> None: ...
    @abc.abstractmethod
    def depart(self, leaving: Sequence[Leaving]) -> list[Status]:
        """Take jobs off the board, each in one step with its note, if nobody has claimed it. ABSENT: see the note, an
        earlier try may have done so."""

    def decode(self, kept: StoredPosting) -> dict[str, Any]:
        """Return a posting as :func:`taskflow.jobs.base.format_posting` has made it, with its ``sequence``.

        :raises Exception: it is none.
        """
        found = json.loads(kept.raw)
        return {**found}


def given(settings: Settings) -> dict[str, Any]:
    """Return the options of the URI, as TaskFlow wants its configuration."""
    return {name: value for name, value in settings.items() if value is not None and name != "retry_for"}


def options(**parsers: Callable[[Any], Any]) -> dict[str, Option]:
    """Return options under TaskFlow's names. Passwords are not shown."""
    return {name: Option(parse, secret="password" in name) for name, parse in parsers.items()}


def owner_in(lock: bytes | None) -> str | None:
    """Return the holder of a claim. A lock that can't be read still belongs to somebody."""
    try:
        return None if lock is None else str(json.loads(lock)["owner"])
    except (TypeError, ValueError, LookupError):
        return "a lock that can't be read"
