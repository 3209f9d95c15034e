"""The move of schedules from one board to another.

A schedule has no claim and no trash. A mover *holds* it instead: nobody posts a held schedule. Each step compares the
whole schedule, its next due time included:

====  ========================  ==================================  ==================================================
step  source                    target                              if the move ends here, the next run
====  ========================  ==================================  ==================================================
0     posted                    absent                              copies the schedule
1     posted                    held, coming, equal                 goes on
1     posted, changed since     held, coming                        copies the schedule again
1     removed                   held, coming                        removes the copy
2     held, gone                held, coming                        copies the held schedule, and starts the copy
3     held, gone                posted, set again, or removed       removes the schedule at the source
4     removed                   posted                              has nothing to do
====  ========================  ==================================  ==================================================

A held schedule at the source does not change, so any mover may start its copy. A mover that was held up finds the copy
started. Both marks name the run, for its sign: see :mod:`jobboard.moving.mover`.
"""

from __future__ import annotations

from collections.abc import Callable

from jobboard.board import JobBoard
from jobboard.engine import StoredSchedule, Unreadable
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.marks import COMING, GONE, MoveMark
from jobboard.moving.origin import Left, place_of, posting_of

_TRIES = 100
"""The most looks at a schedule that other processes keep changing."""


class ScheduleMover:
    """The move of all schedules of a board.

    :param run: the uuid of this run.
    :param knows: returns whether a board has the sign of a run.
    :param leave: told of each schedule that can't be moved.
    """

    def __init__(
        self,
        source: JobBoard,
        target: JobBoard,
        run: str,
        knows: Callable[[JobBoard, str], bool],
        leave: Callable[[Left], object],
    ) -> None:
        self._source, self._target = source, target
        self._run, self._knows, self._leave = run, knows, leave

    def move(self) -> int:
        """Move all schedules, and return the number of those that were started at the target."""
        # The target first: a copy whose schedule is absent at the source afterwards was removed there.
        there = {each.id: each for each in self._target.engine.all_schedules()}
        here = {each.id: each for each in self._source.engine.all_schedules()}
        ids = here.keys() | {id_ for id_, each in there.items() if _mark(each) is not None}
        return sum(self._move(id_, here.get(id_), there.get(id_)) for id_ in ids)

    def _move(
        self, id_: str, here: StoredSchedule | Unreadable | None, there: StoredSchedule | Unreadable | None
    ) -> bool:
        why = "others change it all the time"
        try:
            for _ in range(_TRIES):
                if isinstance(here, Unreadable):
                    raise JobFailure(here.why)
                if isinstance(there, Unreadable):
                    raise JobFailure(f"at {place_of(self._target)}: {there.why}")
                if here is None and _mark(there) is None:
                    return False
                self._check(here, there)
                if self._step(id_, here, there):
                    return True
                there, here = _read(self._target, id_), _read(self._source, id_)
        except ConnectionFailure:
            raise
        except (JobFailure, ValueError) as error:
            why = str(error)
        name = next((each.draft.name for each in (here, there) if isinstance(each, StoredSchedule)), id_)
        self._leave(Left(id_, name, why, "schedule"))
        return False

    def _check(self, here: StoredSchedule | None, there: StoredSchedule | None) -> None:
        """:raises JobFailure: another move holds the schedule, or the target has another one of its id."""
        gone, coming = _mark(here), _mark(there)
        for mark, way, seen, board, other in (
            (gone, GONE, here, self._source, self._target),
            (coming, COMING, there, self._target, self._source),
        ):
            if mark is not None and (mark.way != way or not self._knows(other, mark.run)):
                held = f"held at {place_of(board)} by a move that must be run again"
                raise JobFailure(f"{held}: {seen and seen.held}")
        if here is not None and there is not None and gone is None and coming is None:
            raise JobFailure(f"{place_of(self._target)} has a schedule of this id: remove one of the two")

    def _step(self, id_: str, here: StoredSchedule | None, there: StoredSchedule | None) -> bool:
        """Take the next step, and return whether it has started the schedule at the target."""
        source, target = self._source, self._target
        if here is None:
            _change(target, id_, there, None)
            return False
        posting = posting_of(source, here.draft, target.engine.wire)
        copy = here._replace(draft=here.draft._replace(posting=posting), held=None)
        if _mark(here) is None:
            if there is None or there._replace(held=None) != copy:
                coming = MoveMark(self._run, way=COMING).text(place_of(source))
                there = _change(target, id_, there, copy._replace(held=coming))
            if there is not None and there._replace(held=None) == copy and _mark(there) is not None:
                gone = MoveMark(self._run, way=GONE).text(place_of(target))
                _change(source, id_, here, here._replace(held=gone))
            return False
        if _mark(there) is not None and _change(target, id_, there, copy) != copy:
            return False
        _change(source, id_, here, None)
        return _mark(there) is not None


def _mark(each: StoredSchedule | Unreadable | None) -> MoveMark | None:
    """Return the mark of a schedule. None: no mover holds it."""
    mark = MoveMark.parse(each.held) if isinstance(each, StoredSchedule) else None
    return mark if mark is not None and mark.way is not None else None


def _read(board: JobBoard, id_: str) -> StoredSchedule | None:
    """Return the stored schedule."""
    return board.engine.set_schedule(id_, lambda now, before: before)


def _change(
    board: JobBoard, id_: str, seen: StoredSchedule | None, after: StoredSchedule | None
) -> StoredSchedule | None:
    """Change a schedule unless it has changed since it was read, and return the stored schedule."""
    return board.engine.set_schedule(id_, lambda now, before: after if before == seen else before)
