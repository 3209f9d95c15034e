"""What holds for all claims of a board: which jobs are paused, and how many may be claimed at once or within a time."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import timedelta
from typing import final

from jobboard import arguments, codec
from jobboard.base import BoardBase
from jobboard.exceptions import NotFound
from jobboard.primitives import Limit, Paused
from jobboard.states import OK

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
        self._live().mutate(self.engine.pause, wanted)
        LOG.info("board %r: paused %s", self._name, _told(wanted))

    @final
    def resume(self, names: Iterable[str] | None = None) -> None:
        """Give claims of jobs of these names again, or without names of all jobs, whatever was paused. Whoever waits
        for a job looks again."""
        wanted = arguments.names(names)
        session = self._live()
        session.mutate(self.engine.resume, wanted)
        LOG.info("board %r: no longer paused: %s", self._name, _told(wanted))
        session.wake()

    @final
    def paused(self) -> Paused:
        """What is paused now: ``everything``, and the ``names`` beside that; ``name in board.paused()`` is of one."""
        return self._live().query(self.engine.rules).paused

    @final
    def set_limit(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        per: str = "name",
        rate: tuple[int, float | timedelta] | None = None,
    ) -> Limit:
        """Bound how many claims of jobs of this name there are, in all processes together, from when this returns on.

        A job for which there is no room stays UNCLAIMED, and is passed over; what can be claimed keeps its order. To
        claim it by itself is an UnclaimableJob. Claims that already exist go on. On SQL they count; elsewhere claims
        from before the first limit of their scope may stay uncounted. A claim gives its slot back when it ends, and
        when it lapses: whoever extends it after that finds it lost if the slot is another's.

        To set a limit of the same name and ``per`` again replaces it.

        :param concurrency: how many may be claimed at any instant, from 1 to 10,000.
        :param per: "name": all jobs of the name together; "group": those of each ``group`` of theirs by itself, and
            jobs without a group are not bound. There may be one limit of each; both then need room.
        :param rate: how many claims may begin within how many seconds, ``(100, 60)`` for instance; from 1 to 10,000,
            and by the server's clock. Every claim counts, whatever becomes of it; to extend one does not.
        :raises ValueError: neither is given, or one is out of range.
        :raises JobFailure: 1,000 limits are set already; or, on SQL, transactions of others that were open when this
            began have not ended in time: the limit may not count their claims then, until it is set again.
        """
        limit = arguments.bound(name, per, concurrency, rate)
        session = self._live()
        session.mutate(self.engine.set_limit, limit)
        LOG.info("board %r: limit of %r set: %s", self._name, name, limit)
        session.wake()
        return limit

    @final
    def limits(self) -> list[Limit]:
        """The limits that are set, by name."""
        return list(self._live().query(self.engine.rules).limits)

    @final
    def remove_limit(self, name: str, per: str | None = None) -> None:
        """Take the limit of jobs of this name away; without ``per``, both. Whoever waits for a job looks again.

        :raises NotFound: there is none.
        """
        session = self._live()
        if per is not None:
            arguments.per(per)
        status, _ = session.mutate(self.engine.remove_limit, codec.check_text("a job's name", name), per)
        if status != OK:
            told = "" if per is None else f" per {per}"
            raise NotFound(f"there is no limit of {name!r}{told}; limits() lists them")
        LOG.info("board %r: limit of %r removed", self._name, name)
        session.wake()


def _told(names: Iterable[str] | None) -> str:
    return "everything" if names is None else ", ".join(map(repr, names))
