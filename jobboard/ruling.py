"""What holds for all claims of a board: which jobs are paused."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import final

from jobboard import arguments
from jobboard.base import BoardBase
from jobboard.primitives import Paused

LOG = logging.getLogger(__name__)


class Ruling(BoardBase):
    """The verbs by which a board is told what to give no claims of."""

    @final
    def pause(self, names: Iterable[str] | None = None) -> None:
        """Give no more claims of jobs of these names, or without names of any job, in whatever process, until
        :meth:`resume`. What is claimed already goes on: its claims are kept, extended and ended as ever. Jobs are
        posted as ever, too, and stay UNCLAIMED; to claim one is an UnclaimableJob.

        ``pause()`` is a switch of its own, beside the names: ``resume(names)`` does not undo it.

        :raises JobFailure: more than 1,000 names would be paused.
        """
        wanted = arguments.names(names)
        self._live().query(self.engine.pause, wanted)
        LOG.info("board %r: paused %s", self._name, _told(wanted))

    @final
    def resume(self, names: Iterable[str] | None = None) -> None:
        """Give claims of jobs of these names again, or without names of all jobs, whatever was paused. Whoever waits
        for a job looks again."""
        wanted = arguments.names(names)
        session = self._live()
        session.query(self.engine.resume, wanted)
        LOG.info("board %r: resumed %s", self._name, _told(wanted))
        session.wake()

    @final
    def paused(self) -> Paused:
        """What is paused now: ``everything``, and the ``names`` beside that; ``name in board.paused()`` is of one."""
        return self._live().query(self.engine.rules).paused


def _told(names: Iterable[str] | None) -> str:
    return "everything" if names is None else ", ".join(map(repr, names))
