"""The protocol of moving a schedule. In place of a claim and of the trash, it has a reason why nobody posts it; each
step compares the whole schedule, its next due time included:

====  ========================  ==================================  ================================================
step  source                    target                              if it ends here, the next run
====  ========================  ==================================  ================================================
0     posted                    absent                              copies it
1     posted                    held, coming, as it is there        goes on
1     posted, changed since     held, coming                        copies it again
1     removed                   held, coming                        removes the copy
2     held, gone                held, coming                        copies it as it is there, and starts it
3     held, gone                posted, set anew, or removed again  removes it at the source
4     removed                   posted                              has nothing to do
====  ========================  ==================================  ================================================

What is held at the source does not change any more, so whoever comes may start it; and whoever was held up finds that
it is no longer held. Both halves name the run, for its sign: see :mod:`jobboard.moving.mover`.
"""

from __future__ import annotations

from collections.abc import Callable

from jobboard.board import JobBoard
from jobboard.engine import StoredSchedule, Unreadable
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.moving.listing import Left
from jobboard.moving.marks import Half

_TRIES = 100
"""How often a schedule is looked at anew because others have changed it."""


class ScheduleMover:
    """:param run: the uuid of this run.
    :param knows: whether a run has left its sign on that board.
    :param leave: told of each that can't be moved.
    """

    def __init__(
        self,
        source: JobBoard,
        target: JobBoard,
        places: tuple[str, str],
        run: str,
        knows: Callable[[JobBoard, str], bool],
        leave: Callable[[Left], object],
    ) -> None:
        self._source = source
        self._target = target
        self._places = places
        self._run = run
        self._knows = knows
        self._leave = leave

    def carry(self) -> int:
        """Move them all; how many have been started at the target."""
        # The target first: what is absent at the source then has gone before.
        there, here = _listed(self._target), _listed(self._source)
        moved = 0
        for id_ in here.keys() | {id_ for id_, each in there.items() if _half(each) is not None}:
            moved += self._move(id_, here.get(id_), there.get(id_))
        return moved

    def _move(
        self, id_: str, here: StoredSchedule | Unreadable | None, there: StoredSchedule | Unreadable | None
    ) -> bool:
        try:
            for _ in range(_TRIES):
                if isinstance(here, Unreadable):
                    raise JobFailure(here.why)
                if isinstance(there, Unreadable):
                    raise JobFailure(f"at {self._places[1]}: {there.why}")
                if here is None and _half(there) is None:
                    return False
                self._check(here, there)
                if self._step(id_, here, there):
                    return True
                there, here = _read(self._target, id_), _read(self._source, id_)
        except ConnectionFailure:
            raise
        except (JobFailure, ValueError) as error:
            named = next((each.draft.name for each in (here, there) if isinstance(each, StoredSchedule)), id_)
            self._leave(Left(id_, named, str(error), "schedule"))
            return False
        self._leave(Left(id_, id_, "others change it all the time", "schedule"))
        return False

    def _check(self, here: StoredSchedule | None, there: StoredSchedule | None) -> None:
        """:raises JobFailure: it is none of this move's."""
        gone, coming = _half(here), _half(there)
        source, target = self._places
        if gone is not None and (gone.coming or not self._knows(self._target, gone.run)):
            raise JobFailure(f"held at {source} by a move that must be run again: {here and here.held}")
        if coming is not None and (not coming.coming or not self._knows(self._source, coming.run)):
            raise JobFailure(f"held at {target} by a move that must be run again: {there and there.held}")
        if here is not None and there is not None and gone is None and coming is None:
            raise JobFailure(f"{target} has a schedule of this id: remove one of the two")

    def _step(self, id_: str, here: StoredSchedule | None, there: StoredSchedule | None) -> bool:
        """The next one; whether this has started the schedule at the target."""
        source, target = self._places
        if here is None:
            _change(self._target, id_, there, None)
        elif _half(here) is None:
            copy = self._copy(here)
            if there is None or there._replace(held=None) != copy:
                there = _change(self._target, id_, there, copy._replace(held=Half(self._run, True).told(source)))
            if there is not None and there._replace(held=None) == copy and _half(there) is not None:
                _change(self._source, id_, here, here._replace(held=Half(self._run, False).told(target)))
        elif _half(there) is not None:
            started = self._copy(here)
            if _change(self._target, id_, there, started) == started:
                _change(self._source, id_, here, None)
                return True
        else:
            _change(self._source, id_, here, None)
        return False

    def _copy(self, here: StoredSchedule) -> StoredSchedule:
        """It as it is to be posted at the target."""
        posting = self._source.door.posting(here.draft, self._target.door.wire)
        return here._replace(draft=here.draft._replace(posting=posting), held=None)


def _half(each: StoredSchedule | Unreadable | None) -> Half | None:
    return Half.of(each.held) if isinstance(each, StoredSchedule) else None


def _listed(board: JobBoard) -> dict[str, StoredSchedule | Unreadable]:
    return {each.id: each for each in board.door.schedules()}


def _read(board: JobBoard, id_: str) -> StoredSchedule | None:
    return board.door.set_schedule(id_, lambda now, before: before)


def _change(
    board: JobBoard, id_: str, seen: StoredSchedule | None, after: StoredSchedule | None
) -> StoredSchedule | None:
    """How it stands then; not as it is to be if it is no longer as it was seen."""
    return board.door.set_schedule(id_, lambda now, before: after if before == seen else before)
