"""The move of jobs between any two boards.

No two servers share a transaction, so each job moves in steps. Any mover can tell from the two boards which step a job
has reached. The target *holds* a copy (CLAIMED by a mover, or in the trash) before the source lets go of the job. The
source lets go in one atomic step, and only of the version that was copied. That step decides about the copy:

====  =======================================  =============================  =========================================
step  source                                   target                         if the move ends here, the next run
====  =======================================  =============================  =========================================
0     UNCLAIMED, SCHEDULED, TRASHED            absent                         copies the job
1     the same                                 held, of this version          adopts the copy, and goes on
1     the same, but changed since              held, of an earlier version    drops the copy, and copies the job again
1     CLAIMED                                  held, of this version          leaves both: the claim has lapsed before,
                                                                              and come back
1     CLAIMED, or TRASHED by others            held, of an earlier version    drops the copy
1     gone                                     held, CLAIMED                  drops the copy: the job was finished
2     TRASHED, with the mark of this copy      held                           releases the copy, and purges the mark
3     TRASHED, with a mark                     released, or worked off        purges the mark
3     TRASHED, with the mark of another copy   held                           drops the copy, and purges the mark
4     gone                                     released, or TRASHED           has nothing to do
====  =======================================  =============================  =========================================

Step 2 is a cancel. Its reason is the mark, which names the copy by the token of the copy. A job in the trash skips
steps 2 and 3: nobody works on its copy, so the purge of step 4 follows step 1.

A *version* is a token, and whether the last holder may come back. No two contents of an unheld job share a version.
Every act at the source compares the version, so a mover that was held up can't commit a copy that another mover has
dropped. Every act at the target compares the token of the copy, which no later copy has. So any number of movers may
move the same board at once.

An absent job says nothing on a wrong board. Each run leaves a *sign* in the trash of both boards until the run is
complete. A mover leaves a copy or a mark alone if the other board has no sign of its run. Two boards are one if the
sign for the source appears at the target.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from jobboard import codec, runtime
from jobboard.board import JobBoard
from jobboard.engine import Unreadable
from jobboard.exceptions import JobFailure
from jobboard.marks import (
    GONE,
    NAME,
    MoveMark,
    Version,
    copy_mark,
    departure_mark,
    is_copy_of,
    is_sign,
    is_trashed,
)
from jobboard.moving.leftovers import BYTES, copy_keys, copy_of, copy_outcomes, keys_of, outcomes_of
from jobboard.moving.origin import Left, Moved, Origin, pages_of, place_of, posting_of, trash_of
from jobboard.moving.schedules import ScheduleMover
from jobboard.primitives import BATCH, PAGE, Arrival, Draft, End, Finish, batches
from jobboard.states import (
    CLAIMED,
    OK,
    SCHEDULED,
    TRASHED,
    UNCLAIMED,
    Failure,
    FailureKind,
    Holder,
    Record,
    Status,
    Verb,
)

_SPREAD = 2**20
"""The number of tokens from which the token of a copy is drawn. Tokens are microseconds: a second ahead is nothing to
a failover."""

_LOOK = 0.5
"""The seconds between two looks for jobs whose claims have ended."""


class SameBoard(JobFailure):
    """The source and the target of a move are one board."""


class Mover:
    """A move of jobs from ``source`` to ``target``, both connected. The source may be a board of another library: any
    :class:`~jobboard.moving.origin.Origin`.

    :param moved: called with each number of jobs that have just moved.
    :param waiting: called with the number of claimed jobs that the move waits for, whenever the number changes.
    :param copied: called with the number of outcomes that are at the target, and of how many.
    """

    def __init__(
        self,
        source: Origin,
        target: JobBoard,
        moved: Callable[[int], object] = lambda count: None,
        waiting: Callable[[int], object] = lambda count: None,
        copied: Callable[[int, int], object] = lambda count, total: None,
    ) -> None:
        self._source, self._target = source, target
        self._tell, self._tell_waiting, self._tell_copied = moved, waiting, copied
        self._run = str(runtime.uuid4())
        self._sign = (
            f"a move from {place_of(source)} to {place_of(target)} has not come to its end: run it again to finish it"
        )
        self._runs: dict[tuple[str, Origin], bool] = {}
        self._moved = Moved()
        self._left: dict[str, Left] = {}
        # Whether a copy stays held whose job was claimed again, and whether another pass is due.
        self._is_unfinished = self._again = False

    def run(
        self, wait: bool = False, *, timeout: float | None = None, trash: bool = True, outcomes: bool = True
    ) -> Moved:
        """Move the jobs that nobody has claimed, until only jobs that can't be moved are left.

        :param wait: also wait until claimed jobs come back or are consumed.
        :param timeout: the most seconds to wait.
        :param trash: also move the jobs in the trash.
        :param outcomes: also copy the outcomes of consumed jobs.
        :raises SameBoard: the boards are one and the same.
        :raises JobFailure: one of the boards refuses to store what the move needs.
        :raises ConnectionFailure: one of them can't be reached; a further run goes on from there.
        """
        # A board of another library has neither rules, nor keys, schedules or outcomes.
        source = self._source if isinstance(self._source, JobBoard) else None
        until: float | None = None
        waited = 0
        self._put_signs()
        if source is not None:
            self._copy_rules(source)
            self._moved.keys += copy_keys(source, self._target)
        while True:
            self._move_all(source, trash)
            if self._again:
                continue
            claimed = [job for page in pages_of(self._source, CLAIMED) for job in page]
            if not (wait and claimed) or (until is not None and runtime.boottime() >= until):
                break
            if until is None and timeout is not None:
                until = runtime.boottime() + timeout
            if len(claimed) != waited:
                waited = len(claimed)
                self._tell_waiting(waited)
            runtime.sleep(_LOOK)
        for job in claimed:
            self._leave(job, f"claimed by {job.who}")
        if source is not None:
            # Also the keys of jobs that have ended since.
            self._moved.keys += copy_keys(source, self._target)
            if outcomes:
                self._moved.outcomes += copy_outcomes(source, self._target, self._note, self._tell_copied)
        if not self._is_unfinished:
            self._take_signs()
        self._moved.left = list(self._left.values())
        return self._moved

    def _copy_rules(self, source: JobBoard) -> None:
        """Pause and limit the target like the source, before the first job comes. A limit of the target stays."""
        target, paused = self._target, source.paused()
        if paused.everything:
            target.pause()
        if paused.names:
            target.pause(paused.names)
        there = {(limit.name, limit.per) for limit in target.limits()}
        for limit in source.limits():
            if (limit.name, limit.per) not in there:
                target.set_limit(limit.name, concurrency=limit.concurrency, per=limit.per, rate=limit.rate)

    def _move_all(self, source: JobBoard | None, trash: bool) -> None:
        """Move all jobs and schedules that can be moved now. ``self._again`` is true afterwards if there may be
        more."""
        self._left = {}
        self._is_unfinished = self._again = False
        self._finish_copies()
        for page in pages_of(self._source, UNCLAIMED, SCHEDULED):
            self._move_jobs(page)
        self._empty_trash(trash)
        if source is not None:
            # After the jobs: a job with the key of a schedule must be at the target before the schedule posts there.
            started = ScheduleMover(source, self._target, self._run, self._has_sign, self._note).move()
            self._moved.schedules += started
            # A schedule may have posted jobs until it moved.
            self._again = self._again or bool(started)

    # Signs

    def _put_signs(self) -> None:
        """:raises JobFailure: both boards are one."""
        for board in (self._source, self._target):
            now = board.engine.now()
            failure = Failure(now, None, 0, self._sign, FailureKind.CANCELLED)
            arrival = Arrival(MoveMark(self._run).text(), 0, (failure,), now, now, 0)
            posting = codec.encode(codec.Content({}, None), board.engine.wire)
            sign = Draft(self._run, NAME, 0, None, codec.VERSION, posting, None, None, None, arrival=arrival)
            [(status, *_)] = board.engine.insert([sign])
            if status != OK:
                [seen] = board.engine.read([self._run])
                self._purge(board, [seen.record] if seen.record else [])
                raise SameBoard(f"{place_of(self._source)} and {place_of(self._target)} are the same board")

    def _take_signs(self) -> None:
        """Purge the signs of this move, those of its earlier runs included: they are complete as well."""
        for board, other in ((self._source, self._target), (self._target, self._source)):
            # The other board knows nothing of a run that was killed after its first sign.
            signs = [job for job in trash_of(board) if is_sign(job)]
            self._purge(board, [job for job in signs if job.error == self._sign or self._has_sign(other, job.uuid)])

    def _has_sign(self, board: Origin, run: str) -> bool:
        """Return whether a board has the sign of a run."""
        if (run, board) not in self._runs:
            [seen] = board.engine.read([run])
            self._runs[run, board] = seen.state == TRASHED
        return self._runs[run, board]

    # Copies that other runs have left behind

    def _finish_copies(self) -> None:
        """Decide about the copies that the target holds."""
        for page in pages_of(self._target, CLAIMED):
            held = [job for job in page if copy_mark(job) is not None]
            for start in range(0, len(held), BATCH):
                self._judge(held[start : start + BATCH])

    def _judge(self, copies: Sequence[Record], seen_before: bool = False) -> None:
        """Release or drop these copies, or leave them, as the source says now.

        :param seen_before: this run has read all of these jobs at the source.
        """
        releasing: list[Record] = []
        dropping: list[Record] = []
        seen = self._source.engine.read([copy.uuid for copy in copies]) if copies else []
        for copy, job in zip(copies, (each.record for each in seen), strict=True):
            mark, departure = copy_mark(copy), departure_mark(job)
            assert mark is not None
            if job is None and not seen_before and not self._has_sign(self._source, mark.run):
                why = f"held at {place_of(self._target)} by a move from another board, which must be run again"
                self._leave(copy, why)
            elif job is None:
                # A copy in the trash stays there: another mover has purged the job.
                dropping += [] if is_trashed(copy) else [copy]
            elif departure is not None and departure.version == Version(copy.token):
                releasing.append(copy)
            elif departure is not None:
                # The mark is that of a copy that was released before this one came.
                dropping.append(copy)
                self._again = True
            elif not is_copy_of(copy, job):
                dropping.append(copy)
                self._again = self._again or (seen_before and job.state != CLAIMED)
            elif job.state == CLAIMED:
                # The next run decides, once the holder has finished the job or its claim has lapsed again.
                self._is_unfinished = True
            else:
                self._again = self._again or seen_before
        held = [copy for copy in dropping if not is_trashed(copy)]
        self._finish(self._target, [Finish(copy.uuid, _holder(copy), End(Verb.CONSUME)) for copy in held])
        self._purge(self._target, [copy for copy in dropping if is_trashed(copy)])
        self._release(releasing)

    # Jobs of the source

    def _move_jobs(self, jobs: Sequence[Record]) -> None:
        """Move the jobs that have not changed since they were read."""
        now = self._source.engine.now() if any(job.key_until is not None for job in jobs) else 0
        drafts = [(job, draft) for job in jobs if (draft := self._draft(job, now)) is not None]
        for batch in batches(drafts, lambda each: _size(each[1]), BATCH, BYTES):
            self._move_batch(batch)

    def _draft(self, job: Record, now: int) -> Draft | None:
        """Return the copy of a job. None: the job can't be moved."""
        try:
            posting = posting_of(self._source, job, self._target.engine.wire)
        except JobFailure as error:
            self._leave(job, str(error))
            return None
        due = job.lock_until if job.state == SCHEDULED else None
        window = job.key_until
        return Draft(
            uuid=job.uuid,
            name=job.name,
            priority=job.priority,
            key=job.key,
            version=job.version,
            posting=posting,
            max_attempts=job.max_attempts,
            delay=None,
            due=None,
            arrival=Arrival(
                who=MoveMark(self._run, Version.of(job), due).text(),
                attempts=job.attempts,
                errors=job.errors,
                created_on=job.created_on,
                trashed_on=job.modified_on if is_trashed(job) else None,
                # Random, or two copies of one version would have one token where the target's clock is behind.
                token=job.token + 1 + runtime.secrets.randbelow(_SPREAD),
                retries=job.retries,
            ),
            group=job.group,
            key_for=window - now if window is not None and window > now else None,
            expires=job.expires,
            note=codec.transcode_note(job.note, self._target.engine.wire),
        )

    def _move_batch(self, batch: Sequence[tuple[Record, Draft]]) -> None:
        target = place_of(self._target)
        try:
            answers = self._target.engine.insert([draft for _, draft in batch])
        except ValueError as error:
            # Too large for the target: all together, or a single job.
            if len(batch) == 1:
                self._leave(batch[0][0], str(error))
                return
            for each in batch:
                self._move_batch([each])
            return
        held: list[tuple[Record, Record]] = []
        outdated: list[Record] = []
        there: list[Record] = []
        # The status says nothing here: after a repeated call, the copy may have gone on.
        for (job, _), (_, uuid, copy, _) in zip(batch, answers, strict=True):
            if uuid != job.uuid:
                self._leave(job, f"{target} has another job with its key, {uuid}")
            elif copy is None:
                # The job was already consumed, or another mover has dropped the copy.
                self._again = True
            elif copy_mark(copy) is None:
                there.append(job)
            elif is_copy_of(copy, job):
                held.append((job, copy))
            else:
                outdated.append(copy)
        self._depart(held)
        # The copy of another mover, or a newer reading of this one, has replaced it.
        self._judge(outdated, seen_before=True)
        # A job that the target has already must have left the source.
        seen = self._source.engine.read([job.uuid for job in there]) if there else []
        for job, now in zip(there, (each.record for each in seen), strict=True):
            if now is not None and Version.of(now) == Version.of(job):
                self._leave(job, f"{target} has it already: was it restored after a move?")

    def _depart(self, held: Sequence[tuple[Record, Record]]) -> None:
        """Have the source let go of the jobs that are the same as their copies."""
        target = place_of(self._target)
        statuses = self._finish(
            self._source,
            [
                Finish.of_seen(job, Verb.PURGE)
                if is_trashed(job)
                else Finish.of_seen(job, Verb.CANCEL, MoveMark(self._run, Version(copy.token), way=GONE).text(target))
                for job, copy in held
            ],
        )
        gone = [copy for (_, copy), status in zip(held, statuses, strict=True) if status == OK]
        refused = [copy for (_, copy), status in zip(held, statuses, strict=True) if status != OK]
        released = [copy for copy in gone if not is_trashed(copy)]
        self._release(released)
        self._moved.trashed += len(gone) - len(released)
        self._tell(len(gone) - len(released))
        self._judge(refused, seen_before=True)

    def _release(self, copies: Sequence[Record]) -> None:
        """Release the copies of jobs that the source let go of, and purge the marks."""
        acts = []
        for copy in copies:
            mark = copy_mark(copy)
            assert mark is not None
            acts.append(Finish(copy.uuid, _holder(copy), End(Verb.ABANDON), due=mark.due))
        # Another mover has released the copy where this is refused: nobody drops the copy of a departed job.
        self._moved.moved += self._finish(self._target, acts).count(OK)
        self._tell(len(copies))
        self._purge_marks([copy.uuid for copy in copies])

    def _empty_trash(self, all_of_it: bool) -> None:
        """Decide about the marks in the source's trash, and move the jobs in the trash if ``all_of_it``."""
        marked: list[Record] = []
        jobs: list[Record] = []
        for job in trash_of(self._source):
            if departure_mark(job) is not None:
                marked.append(job)
            elif all_of_it and not is_sign(job):
                jobs.append(job)
            if len(jobs) == PAGE:
                self._move_jobs(jobs[::-1])
                jobs = []
        self._move_jobs(jobs[::-1])
        for start in range(0, len(marked), BATCH):
            self._finish_marked(marked[start : start + BATCH])

    def _finish_marked(self, marked: Sequence[Record]) -> None:
        arrived: list[str] = []
        copies: list[Record] = []
        found = self._target.engine.read([job.uuid for job in marked])
        for job, copy in zip(marked, (seen.record for seen in found), strict=True):
            departure = departure_mark(job)
            assert departure is not None
            if copy is None and not self._has_sign(self._target, departure.run):
                self._leave(job, job.error or "")
            elif copy is not None and copy.state == CLAIMED and copy_mark(copy) is not None:
                copies.append(copy)
            else:
                arrived.append(job.uuid)
        self._judge(copies)
        self._purge_marks(arrived)

    def _purge_marks(self, uuids: Sequence[str]) -> None:
        found = self._source.engine.read(uuids) if uuids else []
        self._purge(self._source, [seen.record for seen in found if seen.record and departure_mark(seen.record)])

    # Acts and notes

    def _purge(self, board: Origin, jobs: Sequence[Record]) -> None:
        self._finish(board, [Finish.of_seen(job, Verb.PURGE) for job in jobs])

    @staticmethod
    def _finish(board: Origin, acts: Sequence[Finish]) -> list[Status]:
        return board.engine.finish(acts) if acts else []

    def _leave(self, job: Record, why: str) -> None:
        self._note(Left(job.uuid, job.name, why))

    def _note(self, left: Left) -> None:
        self._left[f"{left.what} {left.uuid}"] = left


def _holder(copy: Record) -> Holder:
    return Holder(copy.who or "", copy.token)


def _size(draft: Draft) -> int:
    errors = draft.arrival.errors if draft.arrival is not None else ()
    return len(draft.posting) + len(draft.note or "") + sum(len(failure.text) for failure in errors)


def survey(source: Origin, wire: codec.Wire, trash: bool = True, outcomes: bool = True) -> Moved:
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


def _survey_schedules(source: JobBoard, wire: codec.Wire, found: Moved) -> None:
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
