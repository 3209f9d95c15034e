"""The protocol of a move between any two boards.

No two servers share a transaction, so each job goes in steps, and whoever comes next can tell from what the two boards
hold how far it has come. A copy is *held* at the target (CLAIMED by a mover, or in its trash) before the source lets go
of the job; what the source does then, in one atomic step and only if the job is as it was copied, decides about it:

====  =======================================  =============================  =========================================
step  source                                   target                         if it ends here, the next run
====  =======================================  =============================  =========================================
0     UNCLAIMED, SCHEDULED, TRASHED            absent                         copies it
1     the same                                 held, of this version          takes that copy for its own, and goes on
1     the same, but changed since              held, of an earlier version    drops the copy, and copies it again
1     CLAIMED                                  held, of this version          leaves both: the claim has lapsed before,
                                                                              and come back
1     CLAIMED, or TRASHED by others            held, of an earlier version    drops the copy
1     gone                                     held, CLAIMED                  drops the copy: it was finished there
2     TRASHED, with the mark of this copy       held                           gives the copy free, and purges the mark
3     TRASHED, with a mark                     given free, or worked off      purges the mark
3     TRASHED, with the mark of another copy   held                           drops the copy, and purges the mark
4     gone                                     given free, or TRASHED         has nothing to do
====  =======================================  =============================  =========================================

Step 2 is a cancel, whose reason is the mark: it names the copy by its token. A job in the trash has no such step: its
copy harms nobody, as nobody works on it, and the purge of step 4 follows step 1.

A *version* is a token, and whether the last holder may still come back: no job that nobody holds has the same twice
with another content. Every act at the source compares it, so a mover that was held up can't commit what another has
dropped; every act at the target compares the token of the copy, which no later copy has. So any number of movers may do
this at once.

"Gone" says nothing on the wrong board. Each run leaves a *sign* of itself in the trash of both, until it has come to
its end: a copy, or a mark, of a run whose sign the other board has never seen is left alone. A board that shows the
sign that was put on the other is that other one.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from oslo_utils import uuidutils

from jobboard import codec
from jobboard.base import BATCH
from jobboard.board import PAGE, JobBoard
from jobboard.door import Origin
from jobboard.exceptions import JobFailure
from jobboard.job import boottime
from jobboard.moving.kept import carry_keys, carry_outcomes
from jobboard.moving.listing import BYTES, FREE, Left, Moved, claimed_by, claimed_jobs, pages, trash_of
from jobboard.moving.marks import NAME, Copy, Departure, Version, is_buried, is_sign
from jobboard.moving.scheduled import ScheduleMover
from jobboard.primitives import Arrival, Draft, Finish, batches
from jobboard.states import CLAIMED, OK, SCHEDULED, TRASHED, Failure, Holder, Record, Status, Verb

_SPREAD = 2**20
"""Among how many tokens that of a copy is drawn. They are microseconds, and a second ahead is nothing to a failover."""
_LAST_TOKEN = 2**53 - 2 * _SPREAD
"""Redis counts no further, one by one."""
_LOOK = 0.5
"""How often to look for jobs whose claims have ended, in seconds."""


class _Copied(NamedTuple):
    """A job as it was read at the source, and its copy at the target."""

    job: Record
    copy: Record


class Mover:
    """Moves jobs from ``source`` to ``target``, both connected. The source may be a board of another library: any
    :class:`~jobboard.door.Origin`.

    :param moved: told of each number of jobs that have just been moved.
    :param waiting: told of how many claimed jobs are waited for, whenever that changes.
    :param copied: told of how many outcomes have been copied, or were there already, and of how many.
    """

    def __init__(
        self,
        source: Origin,
        target: JobBoard,
        moved: Callable[[int], object] = lambda count: None,
        waiting: Callable[[int], object] = lambda count: None,
        copied: Callable[[int, int], object] = lambda count, total: None,
    ) -> None:
        self._source = source
        self._target = target
        self._tell = moved
        self._tell_waiting = waiting
        self._tell_copied = copied
        self._run = uuidutils.generate_uuid()
        self._sign = (
            f"a move from {_place(source)} to {_place(target)} has not come to its end: run it again to finish it"
        )
        self._schedules = self._schedule_mover()
        self._runs: dict[tuple[str, Origin], bool] = {}
        self._moved = Moved()
        self._left: dict[str, Left] = {}
        self._unfinished = False
        self._again = False

    def run(
        self, wait: bool = False, *, timeout: float | None = None, trash: bool = True, outcomes: bool = True
    ) -> Moved:
        """Move what nobody has claimed, until no such job is left but those that can't be moved.

        :param wait: and wait for the claimed ones to come back, or to be consumed.
        :param timeout: for so many seconds at most, once it has begun to wait.
        :param trash: and move what lies in the trash.
        :param outcomes: and copy what consumed jobs have left.
        :raises JobFailure: the boards are one and the same, or one of them refuses to store what the move needs.
        :raises ConnectionFailure: one of them can't be reached; a further run goes on from there.
        """
        end: float | None = None
        waited = 0
        self._put_signs()
        self._carry_rules()
        self._carry_keys()
        while True:
            self._left = {}
            self._unfinished = self._again = False
            self._finish_others()
            for page in pages(self._source, FREE):
                self._carry(page)
            self._empty_trash(trash)
            # Behind the jobs: one that has the key of a schedule is at the target before that.
            if self._schedules is not None and (started := self._schedules.carry()):
                self._moved.schedules += started
                # What it has posted until then.
                self._again = True
            if self._again:
                continue
            claimed = list(claimed_jobs(self._source))
            if not (wait and claimed) or (end is not None and boottime() >= end):
                break
            if end is None and timeout is not None:
                end = boottime() + timeout
            if len(claimed) != waited:
                waited = len(claimed)
                self._tell_waiting(waited)
            time.sleep(_LOOK)
        for record in claimed:
            self._leave(record, claimed_by(record))
        # Those of what has ended meanwhile, too.
        self._carry_keys()
        if outcomes and isinstance(self._source, JobBoard):
            self._moved.outcomes += carry_outcomes(self._source, self._target, self._leave_this, self._tell_copied)
        if not self._unfinished:
            self._take_signs()
        self._moved.left = list(self._left.values())
        return self._moved

    def _schedule_mover(self) -> ScheduleMover | None:
        source, target = self._source, self._target
        if not isinstance(source, JobBoard):
            return None
        return ScheduleMover(source, target, (_place(source), _place(target)), self._run, self._known, self._leave_this)

    def _carry_rules(self) -> None:
        """What is paused or limited here is so there before a job of it arrives, and stays so here: jobs may remain."""
        if not isinstance(self._source, JobBoard):
            return
        paused = self._source.paused()
        if paused.everything:
            self._target.pause()
        if paused.names:
            self._target.pause(paused.names)
        # What has been set there is meant for there.
        there = {(limit.name, limit.per) for limit in self._target.limits()}
        for limit in self._source.limits():
            if (limit.name, limit.per) not in there:
                self._target.set_limit(limit.name, concurrency=limit.concurrency, per=limit.per, rate=limit.rate)

    def _carry_keys(self) -> None:
        if isinstance(self._source, JobBoard):
            self._moved.keys += carry_keys(self._source, self._target)

    # Signs

    def _put_signs(self) -> None:
        for board in (self._source, self._target):
            now = board.door.now()
            sign = Draft(
                uuid=self._run,
                name=NAME,
                priority=0,
                key=None,
                version=codec.VERSION,
                posting=codec.encode(codec.Content({}, None), board.door.wire),
                max_attempts=None,
                delay=None,
                due=None,
                arrival=Arrival(f"{NAME} {self._run}", 0, (Failure(now, None, 0, self._sign),), now, now, 0),
            )
            [(status, _, _)] = board.door.insert([sign])
            if status != OK:
                self._purge(board, [board.door.read([self._run])[0].record])
                raise JobFailure(f"{_place(self._source)} and {_place(self._target)} are the same board")

    def _take_signs(self) -> None:
        """All that this move has put, be it in other runs: what those have begun has come to its end, too."""
        for board, other in ((self._source, self._target), (self._target, self._source)):
            signs = filter(is_sign, trash_of(board))
            # The other board knows nothing of a run that was killed before it had done anything else.
            ours = [each for each in signs if each.error == self._sign or self._known(other, each.uuid)]
            self._purge(board, ours)

    def _known(self, board: Origin, run: str) -> bool:
        """Whether a run had to do with this board."""
        if (run, board) not in self._runs:
            [seen] = board.door.read([run])
            self._runs[run, board] = seen.state == TRASHED
        return self._runs[run, board]

    # What other runs have left behind

    def _finish_others(self) -> None:
        """Decide about the copies that are held at the target."""
        after: Record | None = None
        target = self._target
        while page := target.door.page(after, PAGE, None, frozenset({CLAIMED}), fresh=after is None):
            held = [seen.record for seen in page if Copy.of(seen.record) is not None and seen.record]
            for start in range(0, len(held), BATCH):
                self._judge(held[start : start + BATCH])
            after = page[-1].record

    def _judge(self, copies: Sequence[Record], seen_before: bool = False) -> None:
        """Do with these copies what the source says about their jobs now.

        :param seen_before: this run has read all of these jobs at the source.
        """
        source = self._source
        landing: list[Record] = []
        dropping: list[Record] = []
        for copy, seen in zip(copies, source.door.read([each.uuid for each in copies]), strict=True):
            about, job = Copy.of(copy), seen.record
            assert about is not None
            mark = None if job is None else Departure.of(job)
            if job is None and not seen_before and not self._known(source, about.run):
                why = f"held at {_place(self._target)} by a move from another board, which must be run again"
                self._leave(copy, why)
            elif job is None:
                # A copy in the trash is where it belongs: another mover has purged the job.
                dropping += [] if is_buried(copy) else [copy]
            elif mark is not None and mark.token == copy.token:
                landing.append(copy)
            elif mark is not None:
                # The mark stands for one that was given free before this one came.
                dropping.append(copy)
                self._again = True
            elif not about.is_of(job, copy):
                dropping.append(copy)
                self._again = self._again or (seen_before and job.state != CLAIMED)
            elif job.state == CLAIMED:
                # Whether its holder finishes it, or it lapses once more, the next run decides.
                self._unfinished = True
            else:
                self._again = self._again or seen_before
        self._drop(dropping)
        self._land(landing)

    # Carrying

    def _carry(self, jobs: Sequence[Record]) -> None:
        now = self._source.door.now() if any(job.key_until is not None for job in jobs) else 0
        drafts = [draft for job in jobs if (draft := self._draft(job, now)) is not None]
        by_uuid = {job.uuid: job for job in jobs}
        for batch in batches(drafts, _size, BATCH, BYTES):
            self._carry_batch([by_uuid[draft.uuid] for draft in batch], batch)

    def _carry_batch(self, jobs: Sequence[Record], drafts: Sequence[Draft]) -> None:
        target = self._target
        try:
            answers = target.door.insert(drafts)
        except ValueError as error:
            # Too large for the target; together, or the one.
            if len(jobs) == 1:
                self._leave(jobs[0], str(error))
                return
            for job, draft in zip(jobs, drafts, strict=True):
                self._carry_batch([job], [draft])
            return
        held: list[_Copied] = []
        outdated: list[Record] = []
        there: list[Record] = []
        # Whether it has just been made does not matter: of a call that was repeated, it may have gone on since.
        for job, (_, uuid, copy) in zip(jobs, answers, strict=True):
            about = Copy.of(copy)
            if uuid != job.uuid:
                self._leave(job, f"{_place(target)} has another job with its key, {uuid}")
            elif copy is None:
                # Worked off already, or dropped by another mover.
                self._again = True
            elif about is not None and about.is_of(job, copy):
                held.append(_Copied(job, copy))
            elif about is not None:
                outdated.append(copy)
            else:
                there.append(job)
        self._commit(held)
        if outdated:
            # Whether by a copy that another mover has made, or by what was read here.
            self._judge(outdated, seen_before=True)
        self._check_there(there)

    def _commit(self, held: Sequence[_Copied]) -> None:
        """Have the source let go of these jobs, if they are as they were copied."""
        gone = f"gone to {_place(self._target)}"
        acts = [
            Finish.parting(job, Verb.PURGE)
            if is_buried(job)
            else Finish.parting(job, Verb.CANCEL, f"{NAME} {self._run} {copy.token}: {gone}")
            for job, copy in held
        ]
        statuses = self._finish(self._source, acts)
        done = [pair for pair, status in zip(held, statuses, strict=True) if status == OK]
        others = [copy for (_, copy), status in zip(held, statuses, strict=True) if status != OK]
        self._land([copy for job, copy in done if not is_buried(job)])
        buried = sum(is_buried(job) for job, _ in done)
        self._moved.trashed += buried
        self._tell(buried)
        if others:
            self._judge(others, seen_before=True)

    def _land(self, copies: Sequence[Record]) -> None:
        """Give free what the source has let go of, then remove the marks."""
        acts = []
        for copy in copies:
            about = Copy.of(copy)
            assert about is not None
            acts.append(Finish(copy.uuid, Holder(copy.who or "", copy.token), Verb.ABANDON, due=about.due))
        # What is refused has been given free by another mover: what the source has let go of is dropped by nobody.
        self._moved.moved += len([status for status in self._finish(self._target, acts) if status == OK])
        self._tell(len(copies))
        self._unmark([copy.uuid for copy in copies])

    def _unmark(self, uuids: Sequence[str]) -> None:
        source = self._source
        found = source.door.read(uuids) if uuids else []
        self._purge(source, [seen.record for seen in found if seen.record is not None and Departure.of(seen.record)])

    def _drop(self, copies: Sequence[Record]) -> None:
        held = [copy for copy in copies if copy.state == CLAIMED]
        acts = [Finish(copy.uuid, Holder(copy.who or "", copy.token), Verb.CONSUME) for copy in held]
        self._finish(self._target, acts)
        self._purge(self._target, [copy for copy in copies if copy.state == TRASHED])

    def _check_there(self, jobs: Sequence[Record]) -> None:
        """What the target has already is either no longer at the source, or must not be there."""
        source = self._source
        found = source.door.read([job.uuid for job in jobs]) if jobs else []
        for job, seen in zip(jobs, found, strict=True):
            if seen.record is not None and Version.of(seen.record) == Version.of(job):
                self._leave(job, f"{_place(self._target)} has it already: was it restored after a move?")

    def _empty_trash(self, all_of_it: bool) -> None:
        """Do with the marks what their copies say; carry the jobs, if it is asked for."""
        marked: list[Record] = []
        jobs: list[Record] = []
        for record in trash_of(self._source):
            if Departure.of(record) is not None:
                marked.append(record)
            elif all_of_it and not is_sign(record):
                jobs.append(record)
            if len(jobs) == PAGE:
                self._carry(jobs[::-1])
                jobs = []
        self._carry(jobs[::-1])
        for start in range(0, len(marked), BATCH):
            self._finish_marked(marked[start : start + BATCH])

    def _finish_marked(self, marked: Sequence[Record]) -> None:
        target = self._target
        arrived: list[str] = []
        copies: list[Record] = []
        found = target.door.read([record.uuid for record in marked])
        for record, seen in zip(marked, found, strict=True):
            mark, copy = Departure.of(record), seen.record
            assert mark is not None
            if copy is None and not self._known(target, mark.run):
                self._leave(record, record.error or "")
                continue
            if copy is not None and copy.state == CLAIMED and Copy.of(copy) is not None:
                copies.append(copy)
            else:
                arrived.append(record.uuid)
        self._judge(copies)
        self._unmark(arrived)

    def _draft(self, job: Record, now: int) -> Draft | None:
        try:
            posting = self._source.door.posting(job, self._target.door.wire)
        except JobFailure as error:
            self._leave(job, str(error))
            return None
        if job.token > _LAST_TOKEN:
            self._leave(job, f"its token is {job.token}, and not every board counts further")
            return None
        due = job.lock_until if job.state == SCHEDULED else None
        buried, window = is_buried(job), job.key_until
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
                who=str(Copy(self._run, Version.of(job), due)),
                attempts=job.attempts,
                errors=job.errors,
                created_on=job.created_on,
                trashed_on=job.modified_on if buried else None,
                # At random, or two copies of one version would have the same where the target's clock is behind.
                token=job.token + 1 + secrets.randbelow(_SPREAD),
                retries=job.retries,
            ),
            group=job.group,
            key_for=window - now if window is not None and window > now else None,
        )

    def _leave(self, job: Record, why: str) -> None:
        self._leave_this(Left(job.uuid, job.name, why))

    def _leave_this(self, left: Left) -> None:
        self._left[f"{left.what} {left.uuid}"] = left

    def _purge(self, board: Origin, records: Sequence[Record | None]) -> None:
        acts = [Finish.parting(record, Verb.PURGE) for record in records if record is not None]
        self._finish(board, acts)

    @staticmethod
    def _finish(board: Origin, acts: Sequence[Finish]) -> list[Status]:
        statuses: list[Status] = []
        for start in range(0, len(acts), BATCH):
            statuses += board.door.finish(acts[start : start + BATCH])
        return statuses


def _place(board: Origin) -> str:
    return f"{board.name!r} at {board._shown}"


def _size(draft: Draft) -> int:
    errors = draft.arrival.errors if draft.arrival is not None else ()
    return len(draft.posting) + sum(len(failure.text) for failure in errors)
