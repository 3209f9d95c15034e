"""How movers tell each other how far a job has come: by the holder's name of a copy, by the error of a job that has
gone, and by signs. What each says is in :mod:`jobboard.moving.mover`."""

from __future__ import annotations

import re
from typing import NamedTuple

from jobboard.states import CLAIMED, TRASHED, Record

NAME = "jobboard move"

_SIGN = re.compile(r"jobboard move (\S+)")
_COPY = re.compile(r"jobboard move (\S+) (\d+)(\+?)(?: due (\d+))?")
_MARK = re.compile(r"jobboard move (\S+) (\d+): gone to ")

_HALF = re.compile(r"jobboard move (\S+): (coming from|gone to) ")


class Version(NamedTuple):
    token: int
    may_return: bool

    @classmethod
    def of(cls, record: Record) -> Version:
        return cls(record.token, record.who is not None)


class Copy(NamedTuple):
    """What the holder's name of a copy says: which run has made it, of which version, and when the job is due."""

    run: str
    version: Version
    due: int | None

    @classmethod
    def of(cls, record: Record | None) -> Copy | None:
        """None: it is not held by a mover."""
        found = _COPY.fullmatch(record.who or "") if record is not None else None
        if record is None or found is None or record.state not in (CLAIMED, TRASHED):
            return None
        run, token, may_return, due = found.groups()
        return cls(run, Version(int(token), bool(may_return)), int(due) if due else None)

    def is_of(self, job: Record, copy: Record) -> bool:
        """Whether ``copy``, of which this was told, is that of the job as it is."""
        return self.version == Version.of(job) and is_buried(job) == is_buried(copy)

    def __str__(self) -> str:
        due = "" if self.due is None else f" due {self.due}"
        return f"{NAME} {self.run} {self.version.token}{'+' if self.version.may_return else ''}{due}"


class Departure(NamedTuple):
    """What the error of a job says that the source has let go of: which run has done it, and for which copy."""

    run: str
    token: int

    @classmethod
    def of(cls, record: Record) -> Departure | None:
        found = _MARK.match(record.error or "") if is_buried(record) else None
        return None if found is None else cls(found[1], int(found[2]))


class Half(NamedTuple):
    """Why a schedule is held: a run has begun to take it to the one board (``coming``) from the other (not so)."""

    run: str
    coming: bool

    @classmethod
    def of(cls, held: str | None) -> Half | None:
        """None: it is not held by a mover."""
        found = _HALF.match(held or "")
        return None if found is None else cls(found[1], found[2] == "coming from")

    def told(self, board: str) -> str:
        return f"{NAME} {self.run}: {'coming from' if self.coming else 'gone to'} {board}"


def is_sign(record: Record) -> bool:
    return _SIGN.fullmatch(record.who or "") is not None


def is_buried(record: Record) -> bool:
    return record.state == TRASHED
