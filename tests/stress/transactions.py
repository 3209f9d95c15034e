"""Verbs in transactions of a worker's own, and a ledger that shows which of these were committed.

Each transaction ends claims, perhaps posts a job, and writes one row into the table ``ledger``. So the ledger says in
the end what became of a commit that was never answered: the acts of a transaction happened exactly if its row is there.
"""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import sqlalchemy as sa

from jobboard.exceptions import JobBoardError
from jobboard.job import Act, Job, Posting
from jobboard.runtime import boottime
from jobboard.states import State, Verb
from jobboard.testing.history import HistoryEntry, Outcome
from jobboard.testing.recording import Recorder, with_job

LEDGER = sa.Table(
    "ledger",
    sa.MetaData(),
    sa.Column("process", sa.String(60), primary_key=True),
    sa.Column("began", sa.String(40), primary_key=True),
)

MARK = " in a transaction"
"""Ends the process of such an entry."""


def engine_of(database: str) -> sa.Engine:
    sqlite = database.startswith("sqlite:")
    options = {"connect_args": {"timeout": 60}} if sqlite else {"isolation_level": "READ COMMITTED"}
    return sa.create_engine(database, poolclass=sa.NullPool, **options)


class Caller:
    """One transaction after the other, each on a thread, so that the worker goes on meanwhile.

    :param holds: for how many seconds a transaction may be held open.
    """

    def __init__(self, recorder: Recorder, database: str, holds: Sequence[float]) -> None:
        self._recorder, self._holds = recorder, holds
        self._engine = engine_of(database)
        self._pool = ThreadPoolExecutor(1)
        self._running: Future[list[Job]] | None = None

    @property
    def busy(self) -> bool:
        return self._running is not None

    def begin(self, jobs: Sequence[tuple[Job, str | None]], who: str, dice: random.Random) -> None:
        """End the claims of these jobs in a transaction, consumed ones with these results, and then commit or roll
        back."""
        verb = dice.choice([Verb.CONSUME, Verb.CONSUME, Verb.ABANDON, Verb.ABANDON, Verb.TRASH])
        posting = Posting(dice.choice(["job 0", "job 1", "job 2", "plain"]), group="group 0")
        posting = dice.choice([posting, posting._replace(key="key 0"), None])
        commits, seconds = dice.random() < 0.6, dice.choice(self._holds)
        self._running = self._pool.submit(self._run, jobs, who, verb, posting, commits, seconds)

    def ended(self, wait: bool = False) -> list[Job]:
        """Return the jobs whose claims are held again, as their transaction has been rolled back."""
        if self._running is None or not (wait or self._running.done()):
            return []
        running, self._running = self._running, None
        return running.result()

    def _run(
        self,
        given: Sequence[tuple[Job, str | None]],
        who: str,
        verb: Verb,
        posting: Posting | None,
        commits: bool,
        seconds: float,
    ) -> list[Job]:
        recorder, jobs = self._recorder, [job for job, _ in given]
        began = boottime()
        acts = [Act(job, verb, result=result if verb == Verb.CONSUME else None) for job, result in given]
        entry = HistoryEntry(began, math.inf, recorder.process + MARK, verb, "", "unknown")
        keeps = verb == Verb.CONSUME and recorder.board.options["keep_done"] > 0
        ends = [
            (job, entry._replace(uuid=job.uuid, token=job.claim.token, keeps=keeps, result=act.result))
            for job, act in zip(jobs, acts, strict=True)
            if job.claim
        ]
        written = [(recorder._put(end), end, job) for job, end in ends]
        post = entry._replace(verb=Verb.POST, asked=int(posting is not None and posting.key is not None))
        number = None if posting is None else recorder._put(post)
        outcome, posted = self._transact(entry, acts, who, posting, commits, seconds)
        told = {"ended": boottime(), "outcome": outcome}
        for end_number, end, job in written:
            recorder._write(end_number, end._replace(**told, ready=job.seen_state == State.UNCLAIMED))
        if number is not None:
            post = post._replace(**told)
            recorder._write(number, post._replace(outcome="refused") if posted is None else with_job(post, posted))
        return list(jobs) if outcome == "refused" else []

    def _transact(
        self, entry: HistoryEntry, acts: Sequence[Act], who: str, posting: Posting | None, commits: bool, seconds: float
    ) -> tuple[Outcome, Job | None]:
        board, posted = self._recorder.board, None
        try:
            connection = self._engine.connect()
        except sa.exc.SQLAlchemyError:
            return "refused", None
        # What breaks with its connection is rolled back.
        with contextlib.suppress(sa.exc.SQLAlchemyError), connection:
            try:
                board.finish_many(acts, who, connection=connection)
                if posting is not None:
                    [posted] = board.post_many([posting], connection=connection)
                row = {"process": entry.process, "began": repr(entry.began)}
                connection.execute(LEDGER.insert().values(row))
                time.sleep(seconds)
            except (JobBoardError, sa.exc.SQLAlchemyError):
                commits = False
            if not commits:
                connection.rollback()
                return "refused", posted
            try:
                connection.commit()
            except sa.exc.SQLAlchemyError:
                return "unknown", posted
            return "ok", posted
        return "refused", posted


def settled(entries: Iterable[HistoryEntry], database: str) -> tuple[list[HistoryEntry], list[str]]:
    """Return the entries, where a commit was not answered with the outcome that the ledger shows, and the faults."""
    with engine_of(database).connect() as connection:
        committed = {(row.process, row.began) for row in connection.execute(LEDGER.select())}
    found, faults = [], []
    for entry in entries:
        if entry.process.endswith(MARK) and entry.uuid:
            outcome: Outcome = "ok" if (entry.process, repr(entry.began)) in committed else "refused"
            if entry.outcome not in ("unknown", outcome):
                faults.append(f"{entry.verb} of {entry.uuid} was {entry.outcome} to {entry.process}, and is {outcome}")
            found.append(entry._replace(outcome=outcome))
        else:
            found.append(entry)
    return found, faults
