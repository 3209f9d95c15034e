"""The jobboard: what every backend's users see, over the primitives that a backend gives.

Every outcome of every verb is decided here, in the two classes underneath and in :mod:`jobboard.states`; a backend only
stores and compares.
"""

from __future__ import annotations

import datetime
import functools
import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, final

from jobboard import arguments, codec, logs, notifier
from jobboard.base import BATCH, POST_BYTES, about
from jobboard.claiming import Claiming, nothing_claimed
from jobboard.engine import weaknesses
from jobboard.exceptions import ClaimLost, ConnectionFailure, JobFailure, NotFound, UnclaimableJob
from jobboard.iterator import JobBoardIterator
from jobboard.job import Entity, Job, Posting
from jobboard.primitives import MENTIONED, BoardStats, Draft, Finish, Oddity, Peeked, Posted, Seen
from jobboard.priorities import JobPriority
from jobboard.ruling import Ruling
from jobboard.scheduling import Scheduling
from jobboard.session import Session
from jobboard.states import CLAIMED, COMPLETE, LIVE, OK, SCHEDULED, TRASHED, UNCLAIMED, Record, State, Status, Verb

LOG = logging.getLogger(__name__)

POST_BATCH = 500
PAGE = 500


class JobBoard(Claiming, Ruling, Scheduling):
    """A place to post jobs on, and to claim them from.

    :param name: the board's name; boards of different names never share jobs.
    :param conf: a URI, the plain name of a backend, or a dict with ``board`` and options.
    :param client: a connected client of the caller's own, which the board uses and never closes.
    :param persistence: a TaskFlow persistence backend, from which ``job.book`` is loaded.
    :raises ValueError: an option is unknown or does not fit.

    Building one talks to nobody; :meth:`connect` does. All verbs may be called from any thread.
    """

    # Posting

    @final
    def post(
        self,
        /,
        name: str,
        book: Any = None,
        details: Mapping[str, Any] | None = None,
        priority: int | str = JobPriority.NORMAL,
        *,
        key: str | None = None,
        delay: float | datetime.timedelta | None = None,
        due: datetime.datetime | None = None,
        max_attempts: int | None = None,
        context: Mapping[str, str] | None = None,
        group: str | None = None,
        key_for: float | datetime.timedelta | None = None,
        on_key: Literal["keep", "replace"] = "keep",
        **extra: Any,
    ) -> Job:
        """Put a job on the board. ``job.created`` tells whether this post has made it, or another job had its key.

        :param name: what kind of work it is; handlers and ``names=`` go by it. At most 255 characters.
        :param book: a logbook of TaskFlow's, or anything with a ``name`` and a ``uuid``.
        :param details: what the work needs, of JSON's shape, at most ``max_details`` bytes as JSON.
        :param priority: an integer from -100 to 100, or the name of one (:class:`~jobboard.job.JobPriority`); a higher
            one is served first.
        :param key: at most one live job has it; posting it again answers that job, unchanged.
        :param delay: seconds (or a timedelta) from now, on the server's clock, before which nobody can claim it.
        :param due: the same as an aware datetime; one in the past is due at once.
        :param max_attempts: with which claim the job goes to the trash unless that one consumes it. A claim that has
            lapsed counts, as after the death of a worker; a :class:`~jobboard.outcomes.Retry` does not.
        :param context: what programs around the work tell each other, as in the headers of a request: str to str, at
            most 16 KiB of JSON. ``board.tracing`` may add to it.
        :param group: whose work it is, a customer's for instance; at most 255 characters.
        :param key_for: seconds (or a timedelta) from this post for which the key stays taken at least, whatever becomes
            of the job. Posting it again answers that job, and does not make it longer. Where the job has left the board
            the answer is a handle of it, COMPLETE, which has the details of this post, as its own are gone.
        :param on_key: ``"replace"``: a job that has the key, and that nobody has claimed, gets the details (book and
            context, too), the priority and the due time of this post, and its attempts begin anew (``job.replaced``).
            One that is claimed, or has come to its end, stays as it is.
        :raises TypeError, ValueError: an argument does not fit; nothing was posted.
        """
        posting = Posting(
            *(name, book, details, priority),
            key=key,
            delay=delay,
            due=due,
            max_attempts=max_attempts,
            context=context,
            group=group,
            key_for=key_for,
            on_key=on_key,
        )
        return self._post([posting], "post", extra)[0]

    @final
    def post_many(self, /, postings: Iterable[Posting | Mapping[str, Any]], **extra: Any) -> list[Job]:
        """Put many jobs on the board: all or none of each 500 postings or 512 KiB, all checked beforehand.

        :raises TypeError, ValueError: a posting does not fit, whose number the error tells, counted from 0; nothing was
            posted.
        :raises JobFailure: it failed between two such batches; its ``posted`` holds the jobs that stand.
        """
        return self._post(arguments.postings(postings), "post_many", extra)

    def _post(self, postings: Sequence[Posting], verb: str, extra: dict[str, Any]) -> list[Job]:
        extra = self._extras(verb, extra)
        return self.tracing.post(postings, lambda traced: self._insert_all(traced, verb, extra))

    def _insert_all(self, postings: Sequence[Posting], verb: str, extra: dict[str, Any]) -> list[Job]:
        session = self._live()
        numbered = verb == "post_many"
        drafts = arguments.drafts(postings, self._conf["max_details"], self.engine.wire, numbered=numbered)
        jobs: list[Job] = []
        start = 0
        while start < len(drafts):
            end = _batch_end(drafts, start)
            try:
                answers = self._mutate(self.engine.insert, drafts[start:end], **extra)
            except JobFailure as error:
                error.posted = tuple(jobs)
                raise
            made: dict[str, tuple[Draft, Posting]] = {}
            batch = []
            for answer, draft, posting in zip(answers, drafts[start:end], postings[start:end], strict=True):
                if answer.status == OK:
                    made[draft.uuid] = draft, posting
                batch.append(self._answered(session, answer, *made.get(answer.uuid, (draft, posting)), extra))
            fresh = [job for job in batch if job.created or job.replaced]
            self.engine.after_commit(extra, functools.partial(self._posted, session, fresh), _nothing)
            jobs += batch
            start = end
        return jobs

    def _answered(self, session: Session, answer: Posted, draft: Draft, posting: Posting, extra: dict[str, Any]) -> Job:
        """The job that a post is answered by, which ``draft`` has made, or has found."""
        status, uuid, record = answer
        if record is None and uuid != draft.uuid and not self.engine.joins(extra):
            # It has left the board, and its key stays taken.
            [seen] = session.query(self.engine.read, [uuid])
            record, state = seen.record, seen.state
        else:
            # Without a record: the answer came again after the job had already been consumed.
            state = COMPLETE if record is None else record.state
        if record is None:
            job = Job(self, draft.record(0, 0)._replace(uuid=uuid), draft.posting, state, posting.book)
        elif status == OK:
            job = Job(self, record, record.posting, state, posting.book)
        else:
            job = self._job(record, state)
        job.created, job.replaced = status == OK, status == Status.REPLACED
        return job

    # Looking

    @final
    def iterjobs(
        self,
        only_unclaimed: bool = False,
        ensure_fresh: bool = False,
        *,
        names: Iterable[str] | None = None,
        states: Iterable[State | str] | None = None,
        after: Job | None = None,
    ) -> JobBoardIterator:
        """The jobs on the board, in the order in which they are served, whatever their state.

        :param only_unclaimed: only what can be claimed now; not what is paused, or waits for a limit.
        :param ensure_fresh: see everything that was acknowledged before, also where reads are cached.
        :param names: only jobs of these names.
        :param states: only jobs in these states.
        :param after: only jobs that are served after this one, which need not be on the board any more.
        """
        self._live()
        wanted_names = arguments.names(names)
        wanted = None if states is None else frozenset(State(state) for state in states)
        if only_unclaimed:
            wanted = frozenset({UNCLAIMED}) if wanted is None else wanted & {UNCLAIMED}
        if wanted is not None and wanted - LIVE:
            raise ValueError("iterjobs() shows what is on the board; see trashed() for the trash")
        behind = ensure_fresh
        may_go: set[str] | None = None

        def read(after: Record | None) -> list[Seen]:
            nonlocal behind, may_go
            session = self._live()
            page = session.query(self.engine.page, after, PAGE, wanted_names, wanted, behind)
            behind = False
            if only_unclaimed:
                free = [seen.record for seen in page if seen.record is not None and seen.state == UNCLAIMED]
                may_go = session.query(self.engine.open_to_claims, free) if free else set()
            return page

        # Nothing has been asked for yet: that is left to who iterates.
        return JobBoardIterator(
            self,
            read,
            # Without a wish, too: what a lapse has trashed may still lie among the live ones, unswept.
            lambda seen: (
                seen.state in (LIVE if wanted is None else wanted)
                and seen.record is not None
                and (wanted_names is None or seen.record.name in wanted_names)
                and (may_go is None or seen.record.uuid in may_go)
            ),
            self._readable,
            PAGE,
            after=None if after is None else arguments.job(after)._record,
            only_unclaimed=only_unclaimed,
            ensure_fresh=ensure_fresh,
        )

    @final
    def get(self, uuid: str) -> Job:
        """The job with this uuid, be it on the board, in the trash, or consumed and kept: see :meth:`outcomes`.

        :raises NotFound: there is none.
        """
        return self._found(uuid, self._job)

    def _to_act_on(self, uuid: str) -> Job:
        """The same; without its details where they can't be read."""
        return self._found(uuid, self._job_or_shell)

    def _found(self, uuid: str, made: Callable[[Record, State], Job]) -> Job:
        try:
            codec.check_text("a uuid", uuid)
        except ValueError as error:
            # No job has it, and not every backend can even be asked.
            raise NotFound(f"there is no job {uuid!r}: {error}") from None
        [seen] = self._live().query(self.engine.read, [uuid])
        if seen.record is None:
            return self._done_job(uuid)
        return made(seen.record, seen.state)

    @final
    def find_owner(self, job: Job) -> str | None:
        """Who has claimed the job; None if nobody has, or it is gone."""
        seen = self._refresh(arguments.job(job))
        return seen.record.who if seen.record is not None and seen.state == CLAIMED else None

    @property
    def job_count(self) -> int:
        """How many jobs are on the board, in any state but trashed."""
        tally = self._live().query(self.engine.tally)
        return sum(tally.get(state, 0) for state in LIVE)

    @final
    def stats(self, max_age: float = 0) -> BoardStats:
        """How many jobs are in each state; an answer up to ``max_age`` seconds old will do."""
        session = self._live()
        if self._stats is None or time.monotonic() - self._stats[0] >= max_age:
            tally = session.query(self.engine.tally)
            counts = {state.lower(): tally.get(state, 0) for state in (UNCLAIMED, SCHEDULED, CLAIMED, TRASHED)}
            self._stats = (time.monotonic(), BoardStats(**counts))
        return self._stats[1]

    @final
    def trashed(self) -> Iterator[Job]:
        """The jobs in the trash, the last trashed first; ``job.error`` says why."""
        session = self._live()
        after: Record | None = None
        while page := session.query(self.engine.trash_page, after, PAGE):
            for record in page:
                yield self._job_or_shell(record, TRASHED)
            after = page[-1]

    @final
    def wait(self, timeout: float | None = None) -> JobBoardIterator:
        """Wait until a job can be claimed, and iterate over what can.

        :param timeout: seconds; None waits for ever.
        :raises NotFound: no job in time.
        """
        for turn in self._rounds(timeout):
            peeked = self._peek(turn.session)
            if peeked.any:
                return self.iterjobs(only_unclaimed=True)
            if turn.left() <= 0:
                break
            self._doze(turn, peeked.mark, None, peeked.next_event)
        raise nothing_claimed(timeout)

    def _peek(self, session: Session, names: Sequence[str] | None = None) -> Peeked:
        return session.query(self.engine.peek, names, codec.VERSION)

    def examine(self) -> Iterator[Oddity]:
        """What is odd about the board: entries that are damaged or have no counterpart, postings and outcomes that
        can't be read, characteristics by which the promise is weaker, and clocks that differ. Reads all of the board
        page by page, and changes nothing. What others do meanwhile is not taken for damage, but look again before you
        act on it."""
        session = self._live()
        asked = time.time()
        now = session.query(self.engine.now) / 1e6
        most = self.characteristics.claim_ttl / 10
        # Whatever the request took is no skew.
        skew = max(asked - now, now - time.time(), 0.0)
        if skew > most:
            yield Oddity(
                "clock",
                f"this machine's clock and the server's differ by {skew:.3g} s",
                "leases go by the server's; set both by NTP, or what people are shown is wrong",
            )
        yield from weaknesses(self.characteristics, self.engine.has_replicas)
        try:
            yield from self.engine.examine()
            yield from self._odd_postings(session)
            yield from self._odd_outcomes(session)
        except ConnectionFailure:
            raise
        except JobFailure as error:
            yield Oddity("store", f"it can't be read any further: {error}", "see what refuses it, and why")

    def _odd_postings(self, session: Session) -> Iterator[Oddity]:
        after: Record | None = None
        while page := session.query(self.engine.page, after, PAGE, None, None):
            for seen in page:
                if seen.record is not None and seen.state in LIVE:
                    yield from self._odd_posting(seen.record)
            after = page[-1].record
            if len(page) < PAGE and page[-1].state in LIVE:
                break

    def _odd_posting(self, record: Record) -> Iterator[Oddity]:
        if record.version > codec.VERSION:
            yield Oddity(
                f"job {record.uuid}",
                f"it was posted in version {record.version}, and this library reads up to {codec.VERSION}",
                "upgrade the library here; until then, this process passes the job over",
            )
            return
        try:
            self._content(record)
        except codec.Undecodable as error:
            yield Oddity(f"job {record.uuid}", str(error), "the claim that meets it puts it into the trash")

    # Operating

    @final
    def release(self, job: Job, *, reason: str | None = None, token: int | None = None) -> None:
        """Take a job away from whoever has claimed it: its holder gets ClaimLost.

        :param reason: kept in ``job.error``.
        :param token: release the claim that has this token, and never one that somebody has made since.
        :raises NotFound: it is not claimed, or not on the board.
        :raises ClaimLost: it is claimed with another token; nothing was changed.
        """
        told = logs.fields(arguments.job(job))
        if token is not None:
            arguments.integer("token", token)
        session = self._live()
        mine = [claim for claim in session.held() if claim.uuid == job.uuid]
        self._operate_on(Verb.RELEASE, job, codec.clip_error(reason), token)
        session.refused(mine)
        LOG.info("%s was taken away from %r: %s", job, told["who"], reason or "no reason given", extra=told)
        self._notify(notifier.RELEASED, job)
        if self._refresh(job).state == TRASHED:
            self._gone(notifier.TRASHED, job)
        else:
            self._live().wake()

    @final
    def cancel(self, job: Job, *, reason: str | None = None) -> None:
        """Put a job that nobody has claimed into the trash.

        :raises UnclaimableJob: somebody has claimed it: release it, then cancel it before another worker claims it.
        :raises NotFound: it is not on the board.
        """
        self._operate_on(Verb.CANCEL, job, codec.clip_error(reason))
        LOG.info("%s was cancelled: %s", job, reason or "no reason given", extra=logs.fields(job))
        job.seen_state = TRASHED
        self._gone(notifier.TRASHED, job)

    @final
    def restore(self, job: Job) -> None:
        """Bring a job back from the trash, to its old place and with all its attempts.

        :raises JobFailure: it is not in the trash, or another job has taken its key.
        :raises NotFound: it is gone.
        """
        self._operate_on(Verb.RESTORE, job)
        job.seen_state = UNCLAIMED
        self._posted(self._live(), [job])

    @final
    def purge(self, job: Job) -> None:
        """Remove a job from the trash for good.

        :raises JobFailure: it is not in the trash.
        :raises NotFound: it is gone.
        """
        self._operate_on(Verb.PURGE, job)

    @final
    def purge_trash(self, older_than: float | datetime.timedelta) -> int:
        """Purge what has been in the trash for longer than this, in seconds or a timedelta; how many jobs that were.
        A job that leaves the trash meanwhile stays, though it may come back at once.

        ``last_modified`` of a trashed job, on the server's clock, is when it was trashed.
        """
        age = arguments.micros("older_than", older_than)
        assert age is not None
        limit = self._live().query(self.engine.now) - age
        session, after, purged = self._live(), None, 0
        while page := session.query(self.engine.trash_page, after, PAGE):
            after = page[-1]
            # Only what is still as it was listed: restored, worked on and trashed again, it is another failure.
            acts = [Finish.parting(record, Verb.PURGE) for record in page if record.modified_on <= limit]
            for start in range(0, len(acts), BATCH):
                statuses, _ = session.mutate(self.engine.finish, acts[start : start + BATCH])
                purged += statuses.count(OK)
        return purged

    def _operate_on(self, verb: Verb, job: Job, error: str | None = None, token: int | None = None) -> None:
        status, _ = self._live().mutate(self.engine.operate, verb, arguments.job(job).uuid, error, token=token)
        if status == Status.LOST:
            raise about(ClaimLost(f"{job} is claimed with another token than {token}"), job)
        if verb == Verb.CANCEL and status == Status.CLAIMED:
            way = "release it, then cancel it before another worker claims it; or wait until its holder is done"
            raise about(UnclaimableJob(f"{job} is claimed: {way}"), job)
        if status != OK:
            raise self._refusal(status, job)

    # Other boards

    @final
    def siblings(self, limit: int = MENTIONED) -> list[str]:
        """The names of other boards in the same store, at most ``limit``: to tell a board that is empty from a name
        that was mistyped. For people, not for programs: a store need not find them all. On SQL a board is there while a
        job lies on it or in its trash; of a Redis Cluster, only this board's node is searched.
        """
        arguments.limit(limit)
        found = self._live().query(self.engine.boards, limit + 1)
        return sorted(name for name in found if name != self._name)[:limit]

    # Entities

    @final
    def register_entity(self, entity: Any) -> None:
        """Show an entity (a conductor, say) to all who look, for as long as this board is connected.

        :param entity: anything with a ``kind``, a ``name`` and (of JSON's shape) ``metadata``, which is read anew with
            each heartbeat, every third of ``claim_ttl``: at most 64 KiB of JSON.
        :raises TypeError, ValueError: what it tells of itself can't be shown.
        """
        kind = codec.check_text("an entity's kind", entity.kind)
        name = codec.check_text("an entity's name", entity.name)
        metadata = self._metadata_of(entity)
        session = self._live()
        with session.roster:
            session.query(self.engine.enlist, session.handle, kind, name, metadata, self._ttl)
            session.enlist(kind, name, entity)

    @final
    def deregister_entity(self, entity: Any) -> None:
        """Show an entity no longer that was registered through this board object; nothing happens if it was not."""
        session = self._live()
        # A heartbeat that is under way must not bring it back.
        with session.roster:
            if session.entities.pop((entity.kind, entity.name), None) is None:
                return
            session.query(self.engine.delist, session.handle)
            session.query(self._renew_entities, session)

    @final
    def entities(self, kind: str | None = None) -> list[Entity]:
        """The entities that are alive, by kind and name."""
        found = sorted(self._live().query(self.engine.roster))
        return [
            Entity(of, name, known)
            for of, name, metadata in found
            if kind in (None, of) and (known := _known(of, name, metadata)) is not None
        ]


def _known(kind: str, name: str, metadata: str) -> dict[str, Any] | None:
    """What an entity tells of itself; None where that is damaged."""
    try:
        return dict(json.loads(metadata))
    except (ValueError, TypeError):
        LOG.warning("the %s %r is not shown, as its metadata can't be read: %r", kind, name, metadata)
        return None


def _nothing() -> None:
    """A posting that is rolled back leaves nothing to undo here."""


def _batch_end(drafts: Sequence[Draft], start: int) -> int:
    """Where the batch that begins at ``start`` ends: after 500 postings, or 512 KiB of them."""
    size = 0
    for index in range(start, min(start + POST_BATCH, len(drafts))):
        size += len(drafts[index].posting)
        if size > POST_BYTES and index > start:
            return index
    return min(start + POST_BATCH, len(drafts))
