"""The store of a TaskFlow board: the calls of a move, shared by Redis, ZooKeeper and etcd."""

from __future__ import annotations

import abc
import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from jobboard.conf import Option, Settings
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.states import Status

NOTES = ".jobboard-move"
"""The notes of a move, in the board's own namespace or path; TaskFlow's boards don't look there."""


class StoredPosting(NamedTuple):
    """A posting on the board or in its trash.

    place: its field, znode or key. owner: the holder of its claim. since: the time of the posting in µs, None where
    the store does not know it.
    """

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
    """The store of one of TaskFlow's boards.

    Each call may be repeated, and then does what the first try has not done. Calls raise errors of the client, which
    :meth:`translated` turns into those of this library.
    """

    server: ClassVar[str]
    options: ClassVar[Mapping[str, Option]]
    parts: ClassVar[Mapping[str, str]]
    """The option that each part of the URI sets."""

    # Errors of the client: the login is refused, the server can't be reached, or it refuses the call.
    denied: ClassVar[tuple[type[Exception], ...]] = ()
    unreachable: ClassVar[tuple[type[Exception], ...]]
    failures: ClassVar[tuple[type[Exception], ...]]

    @abc.abstractmethod
    def __init__(self, settings: Settings) -> None:
        """
        :raises ValueError: the settings don't fit together.
        """

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The namespace or path, by which alone boards are told apart."""

    @abc.abstractmethod
    def open(self, limit: float) -> None:
        """Connect.

        :param limit: for how many seconds to try.
        """

    @abc.abstractmethod
    def close(self) -> None: ...
    @abc.abstractmethod
    def exists(self) -> bool:
        """Return whether anything has ever been posted there."""

    @abc.abstractmethod
    def jobs(self, places: Sequence[str] | None = None) -> list[StoredPosting]:
        """Return the postings on the board; with ``places``, those of them that are there."""

    @abc.abstractmethod
    def trash(self) -> list[StoredPosting]: ...

    @abc.abstractmethod
    def depart(self, leaving: Sequence[Leaving]) -> list[Status]:
        """Take jobs off the board, each in one step with its note, if nobody has claimed it. ABSENT: see the note, an
        earlier try may have done so."""

    @abc.abstractmethod
    def remove_trash(self, places: Sequence[str]) -> list[Status]: ...

    @abc.abstractmethod
    def notes(self, uuids: Sequence[str] | None = None) -> dict[str, bytes]:
        """Return all notes, or those of these jobs."""

    @abc.abstractmethod
    def write_note(self, uuid: str, note: bytes) -> None: ...
    @abc.abstractmethod
    def remove_notes(self, uuids: Sequence[str]) -> None: ...

    def decode(self, kept: StoredPosting) -> dict[str, Any]:
        """Return a posting as :func:`taskflow.jobs.base.format_posting` has made it, with its ``sequence``.

        :raises ValueError, TypeError: it is none.
        """
        return decoded(json.loads(kept.raw))

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """
        :raises ConnectionFailure: the server can't be reached.
        :raises JobFailure: the server has refused the call.
        """
        try:
            yield
        except self.denied as error:
            raise ConnectionFailure(
                f"TaskFlow's {self.server} refuses this user: {error}", error, refused=True
            ) from error
        except self.unreachable as error:
            why = f"TaskFlow's {self.server} can't be reached: {error or type(error).__name__}"
            raise ConnectionFailure(why, error, outcome="unknown") from error
        except self.failures as error:
            raise JobFailure(f"TaskFlow's {self.server} refused: {type(error).__name__}: {error}", error) from error


def given(settings: Settings) -> dict[str, Any]:
    """Return the options of the URI, as TaskFlow wants its configuration."""
    return {name: value for name, value in settings.items() if value is not None and name != "retry_for"}


def options(**parsers: Callable[[Any], Any]) -> dict[str, Option]:
    """Return options under TaskFlow's names. Passwords are not shown."""
    return {name: Option(parse, secret="password" in name) for name, parse in parsers.items()}


def decoded(found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise TypeError("it is not a map")
    return found


def owner_in(lock: bytes) -> str:
    """Return the holder of a claim. A lock that can't be read still belongs to somebody."""
    try:
        return str(decoded(json.loads(lock))["owner"])
    except (TypeError, ValueError, LookupError):
        return "a lock that can't be read"
