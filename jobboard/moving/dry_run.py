"""The dry run of a move: its result, without any change."""

from __future__ import annotations

import itertools

from jobboard.board import JobBoard
from jobboard.codec import Wire
from jobboard.engine import Unreadable
from jobboard.exceptions import JobFailure
from jobboard.moving.leftovers import copy_of, keys_of, outcomes_of
from jobboard.moving.marks import departure_mark, is_sign, is_trashed
from jobboard.moving.origin import Left, Moved, Origin, pages_of, posting_of, trash_of
from jobboard.states import CLAIMED, SCHEDULED, UNCLAIMED


def survey(source: Origin, wire: Wire, trash: bool = True, outcomes: bool = True) -> Moved:
    """Return the result that a move from ``source`` would have now.

    :param wire: that of the target.
    """
    found = Moved()
    if isinstance(source, JobBoard):
        _survey_schedules(source, wire, found)
        found.keys = sum(map(len, keys_of(source)))
        for done in itertools.chain.from_iterable(outcomes_of(source)) if outcomes else ():
            found.outcomes += copy_of(done, source, wire, found.left.append) is not None
    # Page by page: there may be millions of jobs.
    free = itertools.chain.from_iterable(pages_of(source, UNCLAIMED, SCHEDULED))
    trashed = (job for job in trash_of(source) if not (is_sign(job) or departure_mark(job))) if trash else ()
    for job in itertools.chain(free, trashed):
        try:
            posting_of(source, job, wire)
        except JobFailure as error:
            found.left.append(Left(job.uuid, job.name, str(error)))
        else:
            found.trashed += is_trashed(job)
            found.moved += not is_trashed(job)
    for job in itertools.chain.from_iterable(pages_of(source, CLAIMED)):
        found.left.append(Left(job.uuid, job.name, f"claimed by {job.who}"))
    return found


def _survey_schedules(source: JobBoard, wire: Wire, found: Moved) -> None:
    for each in source.engine.all_schedules():
        name = each.id if isinstance(each, Unreadable) else each.draft.name
        try:
            if isinstance(each, Unreadable):
                raise JobFailure(each.why)
            if each.held is not None:
                raise JobFailure(f"held: {each.held}")
            posting_of(source, each.draft, wire)
        except JobFailure as error:
            found.left.append(Left(each.id, name, str(error), "schedule"))
        else:
            found.schedules += 1
