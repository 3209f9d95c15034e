"""Marks of moves: texts by which movers tell each other how far they have come.

=========================  ==============================================================================
mark                       text
=========================  ==============================================================================
the sign of a run          ``jobboard move <run>``, the holder of a job in the trash
a copy at the target       ``jobboard move <run> <token>[+] [due <time>]``, the holder of the copy
a departure                ``jobboard move <run> <token>: gone to <target>``, the error of a trashed job
a schedule on its way      ``jobboard move <run>: coming from <source>``, or ``gone to <target>``
=========================  ==============================================================================

:mod:`jobboard.moving.mover` has the protocol that they serve."""

from __future__ import annotations

import re
from typing import NamedTuple

from jobboard.states import CLAIMED, TRASHED, Record

NAME = "jobboard move"
COMING, GONE = "coming from", "gone to"

_MARK = re.compile(rf"{NAME} ([^\s:]+)(?: (\d+)(\+?))?(?: due (\d+))?(?:: ({COMING}|{GONE}) .*)?", re.DOTALL)


class Version(NamedTuple):
    """The version of a job that nobody holds: its token, and whether its last holder may come back."""

    token: int
    may_return: bool = False

    @classmethod
    def of(cls, record: Record) -> Version:
        return cls(record.token, record.who is not None)


class MoveMark(NamedTuple):
    """A mark of a move.

    run: the uuid of the run that has left it. version: of a copy, the version of the copied job; of a departure, the
    token of the copy. due: the due time of a copied job. way: :data:`COMING` or :data:`GONE`.
    """

    run: str
    version: Version | None = None
    due: int | None = None
    way: str | None = None

    @classmethod
    def parse(cls, text: str | None) -> MoveMark | None:
        """Return None where the text is no mark."""
        found = _MARK.fullmatch(text or "")
        if found is None:
            return None
        run, token, plus, due, way = found.groups()
        version = None if token is None else Version(int(token), bool(plus))
        return cls(run, version, int(due) if due else None, way)

    def text(self, board: str = "") -> str:
        """Return the text of the mark. ``board``: the place that a departure or a schedule names."""
        token = "" if self.version is None else f" {self.version.token}{'+' if self.version.may_return else ''}"
        due = "" if self.due is None else f" due {self.due}"
        return f"{NAME} {self.run}{token}{due}{f': {self.way} {board}' if self.way else ''}"


def copy_mark(record: Record | None) -> MoveMark | None:
    """Return the mark of a copy. None: no mover holds the job."""
    mark = MoveMark.parse(record.who) if record is not None and record.state in (CLAIMED, TRASHED) else None
    return mark if mark is not None and mark.version is not None else None


def departure_mark(record: Record | None) -> MoveMark | None:
    """Return the mark of a job that the source let go of. None: the job did not depart."""
    mark = MoveMark.parse(record.error) if record is not None and is_trashed(record) else None
    return mark if mark is not None and mark.version is not None and mark.way == GONE else None


def is_copy_of(copy: Record, job: Record) -> bool:
    """Return whether a mover holds ``copy``, which is the job as it is now."""
    mark = copy_mark(copy)
    return mark is not None and mark.version == Version.of(job) and is_trashed(job) == is_trashed(copy)


def is_sign(record: Record) -> bool:
    mark = MoveMark.parse(record.who)
    return mark is not None and mark == MoveMark(mark.run)


def is_trashed(record: Record) -> bool:
    return record.state == TRASHED


def is_of_move(record: Record) -> bool:
    """Return whether a mover has left this record: a sign, a held copy or a departed job. A copy in the trash has
    arrived, and is a job like others."""
    if not ((record.who or "").startswith(NAME) or (record.error or "").startswith(NAME)):
        return False
    is_held = record.state == CLAIMED and copy_mark(record) is not None
    return is_sign(record) or is_held or departure_mark(record) is not None
