"""What a move would do."""

from __future__ import annotations

import itertools

from jobboard.board import JobBoard
from jobboard.codec import Wire
from jobboard.door import Origin
from jobboard.engine import Unreadable
from jobboard.exceptions import JobFailure
from jobboard.moving.kept import keys_of, outcomes_of, refused
from jobboard.moving.listing import FREE, Left, Moved, claimed_by, claimed_jobs, pages, trash_of
from jobboard.moving.marks import Departure, is_buried, is_sign


def survey(source: Origin, wire: Wire, trash: bool = True, outcomes: bool = True) -> Moved:
    """What a move from there would do now, without any change: how many jobs it would move, and what it would leave.

    :param wire: that of the target.
    """
    found = Moved()
    if isinstance(source, JobBoard):
        _survey_schedules(source, wire, found)
        found.keys = sum(map(len, keys_of(source)))
        for done in (done for page in outcomes_of(source) for done in page) if outcomes else ():
            if left := refused(source, wire, done):
                found.left.append(left)
            else:
                found.outcomes += 1
    # Page by page: there may be millions.
    free = itertools.chain.from_iterable(pages(source, FREE))
    buried = (job for job in trash_of(source) if not is_sign(job) and not Departure.of(job)) if trash else ()
    for record in itertools.chain(free, buried):
        try:
            source.door.posting(record, wire)
        except JobFailure as error:
            found.left.append(Left(record.uuid, record.name, str(error)))
            continue
        if is_buried(record):
            found.trashed += 1
        else:
            found.moved += 1
    for record in claimed_jobs(source):
        found.left.append(Left(record.uuid, record.name, claimed_by(record)))
    return found


def _survey_schedules(source: JobBoard, wire: Wire, found: Moved) -> None:
    for each in source.door.schedules():
        if isinstance(each, Unreadable) or each.held is not None:
            why = each.why if isinstance(each, Unreadable) else f"held: {each.held}"
            found.left.append(Left(each.id, each.id, why, "schedule"))
            continue
        try:
            source.door.posting(each.draft, wire)
        except JobFailure as error:
            found.left.append(Left(each.id, each.draft.name, str(error), "schedule"))
        else:
            found.schedules += 1
