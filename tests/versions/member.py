"""A process of one release that shares a board with processes of another one; see test_versions.py.

Commands and answers are lines of JSON. The first argument names the release: ``old`` or ``new``.
"""

import contextlib
import json
import os
import random
import sys
import threading
import time
from typing import Any

import jobboard
from jobboard import codec
from jobboard.board import JobBoard
from jobboard.exceptions import JobBoardError, JobFailure
from jobboard.job import ClaimedJob, Posting

RELEASE, NAME, CONF = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
NEW = RELEASE == "new"
NAMES = ["job", "limited", *(["later"] if NEW else [])]
"""Jobs of the last name have a posting of a version that the old release can't read."""


ENDS = ["consume", "consume", "abandon", "trash", "lapse"]


class Ledger:
    """The ids of jobs that this process has posted, and those that it has consumed, with their posters."""

    def __init__(self) -> None:
        self.posted: list[str] = []
        self.consumed: list[tuple[str, str]] = []
        self.ticks: list[str] = []
        self.kept = 0
        self.faults: list[str] = []


class Worker(threading.Thread):
    """Posts, claims and ends jobs, until it is stopped."""

    def __init__(self, ledger: Ledger, number: int) -> None:
        super().__init__(name=f"{RELEASE}{number}")
        self.ledger, self.stopped = ledger, threading.Event()
        self._random = random.Random(self.name)
        self._ids = iter(range(10**9))
        # With and without outcomes, as each has a fast path of its own.
        self._keeps = number % 2 == 0
        self._board = jobboard.fetch(NAME, {**CONF, "keep_done": 3600 if self._keeps else 0})
        self._board.connect()

    def run(self) -> None:
        try:
            while not self.stopped.wait(0.01):
                self.post()
                self.work()
                self.revive()
                self._board.post_due()
                self.limit()
        except BaseException as error:
            self.ledger.faults.append(f"{self.name}: {error!r}")
            raise
        finally:
            self._board.close()

    def _posting(self) -> Posting:
        identity = f"{self.name}-{next(self._ids)}"
        key = self._random.choice([None, None, f"key{self._random.randrange(5)}"])
        delay = self._random.choice([None, None, 0.1])
        name = self._random.choice(NAMES)
        return Posting(name, details={"id": identity, "by": RELEASE}, key=key, delay=delay)

    def post(self) -> None:
        posting = self._posting()
        if self._board.post_many([posting])[0].created:
            self.ledger.posted.append(posting.details["id"])

    def work(self) -> None:
        board, who = self._board, self.name
        expiry = self._random.choice([None, None, 0.05])
        for job in board.claim_many(who, self._random.randrange(1, 4), expiry=expiry):
            self.check(job)
            how = "consume" if job.attempts > 3 else self._random.choice(ENDS)
            try:
                if how == "abandon":
                    job.claim.note("half", checkpoint={"by": who})
                    board.abandon(job, who, error="again", delay=self._random.choice([None, 0.05]))
                elif how == "trash":
                    board.trash(job, who, reason="aside")
                elif how == "consume":
                    self.consume(job)
                elif expiry is None:
                    board.extend(job, who, expiry=0.05)
            except jobboard.ClaimLost:
                if expiry is None:
                    raise

    def consume(self, job: ClaimedJob) -> None:
        follow = [self._posting()._replace(key=None)] if self._random.random() < 0.1 else []
        self._board.consume(job, self.name, result=self.name if self._keeps else None, then=follow)
        self.ledger.posted += [posting.details["id"] for posting in follow]
        self.ledger.kept += self._keeps
        if job.schedule is None:
            self.ledger.consumed.append((job.details["id"], job.details["by"]))
        else:
            self.ledger.ticks.append(f"{job.schedule[0]} {job.schedule[1].isoformat()}")

    def revive(self) -> None:
        for job in self._board.trashed():
            self.check(job)
            try:
                self._board.restore(job)
            except JobFailure:
                # Its key is taken, or another process was first.
                continue
            except jobboard.NotFound:
                continue
            return

    def limit(self) -> None:
        """Set or remove the limit now and then: fast paths leave all claims to the engine while there is one."""
        with contextlib.suppress(jobboard.NotFound):
            match self._random.randrange(20):
                case 0:
                    self._board.set_limit("limited", concurrency=2)
                case 1:
                    self._board.remove_limit("limited")

    def check(self, job: Any) -> None:
        """The new fields stay, whoever has written the job in between. Poison would be a fault, too."""
        if NEW:
            by = job.details.get("by")
            posting = codec.decode(job.record.posting, self._board.engine.wire)
            if by != (job.record.mark or "old") or by != (posting.origin or "old"):
                self.ledger.faults.append(f"{self.name}: {by}'s {job} has {job.record.mark} and {posting.origin}")
        if any(failure.kind == "poison" for failure in job.errors):
            self.ledger.faults.append(f"{self.name}: {job} {job.errors}")


class Member:
    def __init__(self) -> None:
        self.ledger = Ledger()
        self.workers: list[Worker] = []

    def start(self) -> None:
        number = len(self.workers)
        self.workers += [Worker(self.ledger, each) for each in range(number, number + 2)]
        for worker in self.workers[number:]:
            worker.start()

    def is_mixed(self) -> bool:
        """Return whether this process has consumed jobs of both releases, or has found a fault."""
        return bool(self.ledger.faults) or len({by for _, by in self.ledger.consumed}) == 2

    def stop(self) -> dict[str, Any]:
        for worker in self.workers:
            worker.stopped.set()
        for worker in self.workers:
            worker.join()
        return vars(self.ledger)

    def connect(self) -> None:
        jobboard.fetch(NAME, CONF).connect()

    def setup(self, killed: bool = False, contract: bool = False) -> Any:
        """:param killed: in its middle. contract: as a release does that drops what it did for older readers."""
        if contract:
            from jobboard.backends.redis import store as redis
            from jobboard.backends.sql import layout as sql
            from jobboard.kv import store as kv

            redis.MIN_READER = sql.MIN_READER = kv.MIN_READER = 2
        board = jobboard.fetch(NAME, CONF)
        if not killed:
            return board.setup()
        child = os.fork()
        if not child:
            os.environ["KILLED_IN_SETUP"] = "1"
            board.setup()
            os._exit(0)
        return os.waitpid(child, 0)[1]

    def prepare(self) -> None:
        """Set a schedule of this release."""
        with jobboard.backend(NAME, CONF) as board:
            board.schedule(RELEASE, name="job", every=0.3, details={"by": RELEASE})

    def outcomes(self) -> int:
        with jobboard.backend(NAME, CONF) as board:
            return len(list(board.outcomes()))

    def drain(self) -> dict[str, Any]:
        """Consume what is left, the jobs in the trash and the delayed ones included."""
        worker = Worker(self.ledger, len(self.workers))
        board: JobBoard = worker._board
        for id_ in ("old", "new"):
            board.unschedule(id_)
        end = time.monotonic() + 60
        while time.monotonic() < end and (board.job_count or board.stats().trashed):
            worker.revive()
            for job in board.claim_many(worker.name, 50, timeout=0.05):
                worker.check(job)
                worker.consume(job)
        board.close()
        return vars(self.ledger)


def main() -> None:
    member = Member()
    for line in sys.stdin:
        verb, named = json.loads(line)
        try:
            answer = getattr(member, verb)(**named)
        except JobBoardError as error:
            answer = str(error)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
