"""Actors: scripts that are played by the verbs of a board, and the calls that come of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobboard.board import JobBoard
from jobboard.exceptions import ConnectionFailure, JobBoardError, JobFailures
from jobboard.job import Act, Claim, Job
from jobboard.testing.conformance.support import engine_of
from tests.simulator.stories import Step
from tests.simulator.world import Over, Process, World, running

if TYPE_CHECKING:
    from tests.simulator.answers import Answers


class Effect:
    """The change of a job by a call: its time, the states before and after, and the tokens."""

    __slots__ = ("had", "has", "stands", "stood", "uuid", "when")

    def __init__(self, when: int, uuid: str, stood: str | None, stands: str | None, had: Any, has: Any) -> None:
        self.when, self.uuid, self.stood, self.stands, self.had, self.has = when, uuid, stood, stands, had, has


class Call:
    """A call of a verb: its times, its outcome, and the jobs that it has changed.

    outcome: *ok*, *refused* (nothing was done), or *unknown*, as it is of a call that has not returned.
    """

    def __init__(self, process: Process, key: Any, verb: str, args: dict[str, Any], now: int) -> None:
        self.process, self.key, self.verb, self.args, self.began = process, key, verb, args, now
        self.ended: int | None = None
        self.outcome = "unknown"
        self.requests = 0
        self.told: Any = None
        self.jobs: list[Job] = []
        self.tokens: dict[str, int] = {}
        self.effects: list[Effect] = []
        self.errors: dict[str, JobBoardError] = {}
        self.is_confirmed = False
        """Whether a reply has told the outcome of the last request that has changed something."""

    def __str__(self) -> str:
        return f"{self.key[0]}.{self.key[1]} {self.verb}"


class Stage:
    """What the scripts of a story have in common: boards, the jobs that steps have got, and calls."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.boards: dict[str, JobBoard] = {}
        self.jobs: dict[tuple[str, int], list[Job]] = {}
        self.calls: list[Call] = []
        self.claims: list[tuple[Process, Claim, Call]] = []
        """The claims that scripts have got, with the calls that made them."""
        self.losses: list[tuple[int, Process, Claim]] = []
        """The LOST events."""
        self.answers: Answers


class Actor:
    """One script, played. Each verb of a story is a method."""

    def __init__(self, stage: Stage, process: Process, script: str, steps: list[Step]) -> None:
        self.stage, self.process, self.script, self.steps = stage, process, script, steps
        self.board = stage.boards[process.name]

    def run(self) -> None:
        for step in self.steps:
            running().park(step.pause if step.pause >= 0 else self._until_next(-step.pause, step.id))
            self.perform(step)

    def _until_next(self, every: int, number: int) -> int:
        world = self.stage.world
        return every - world.now % every + int(world.draw(self.script, number, "rush") * 2_000)

    def perform(self, step: Step) -> None:
        world, args = self.stage.world, dict(step.args)
        call = running().call = Call(self.process, (self.script, step.id), step.verb, args, world.now)
        if (ref := args.pop("job", None)) is not None:
            script, number, index = ref
            job = self._job((script, number), index, args.pop("by_name", False))
            if job is None:
                return
            call.jobs, call.tokens = [job], {} if job.claim is None else {job.uuid: job.claim.token}
        self.stage.calls.append(call)
        try:
            call.told = getattr(self, step.verb)(call, **args)
            call.outcome = "ok"
        except Over:
            raise
        except ConnectionFailure as error:
            call.told, call.outcome = error, "unknown" if error.outcome == "unknown" else "refused"
        except JobFailures as errors:
            call.told, call.outcome = errors, "ok"
            failures = [each for each in errors.exceptions if isinstance(each, JobBoardError)]
            call.errors = {each.job.uuid: each for each in failures if each.job is not None}
        except JobBoardError as error:
            call.told, call.outcome = error, "refused"
        call.ended = world.now
        self.stage.answers.returned(call)

    def _job(self, step: tuple[str, int], index: int, by_name: bool) -> Job | None:
        jobs = self.stage.jobs.get(step, [])
        if index >= len(jobs):
            return None
        job = jobs[index]
        return job if job.board is self.board and not by_name else self._another(job)

    def _another(self, job: Job) -> Job:
        """Return another handle of a job, without a claim."""
        return Job(self.board, job.record, job._posted, job.seen_state)

    def _got(self, call: Call, jobs: list[Job]) -> list[Job]:
        self.stage.jobs[call.key] = jobs
        self.stage.claims += [(self.process, job.claim, call) for job in jobs if job.claim is not None]
        return jobs

    # Verbs

    def post(self, call: Call, postings: list[dict[str, Any]]) -> list[Job]:
        return self._got(call, self.board.post_many(postings))

    def take(self, call: Call, limit: int, **args: Any) -> list[Job]:
        return self._got(call, list(self.board.claim_many(self.script, limit, **args)))

    def claim(self, call: Call, expiry: float | None) -> list[Job]:
        # A handle of its own, so that the script may claim the job again.
        job = self._another(call.jobs[0])
        self.board.claim(job, self.script, expiry)
        call.jobs = [job]
        return self._got(call, [job])

    def extend(self, call: Call, expiry: float | None) -> None:
        self.board.extend(call.jobs[0], self.script, expiry)

    def abandon(self, call: Call, delay: float | None, error: str | None) -> None:
        self.board.abandon(call.jobs[0], self.script, delay=delay, error=error)

    def consume(self, call: Call) -> None:
        result = str(call) if self.board.options["keep_done"] else None
        self.board.consume(call.jobs[0], self.script, result=result)

    def trash(self, call: Call) -> None:
        self.board.trash(call.jobs[0], self.script, reason="no")

    def consume_many(self, call: Call) -> None:
        mine = [some for (owner, _), some in self.stage.jobs.items() if owner == self.script]
        jobs = {job.uuid: job for some in mine for job in some if job.claim is not None}
        call.jobs = list(jobs.values())
        call.tokens = {job.uuid: job.claim.token for job in call.jobs if job.claim is not None}
        self.board.finish_many([Act(job, "consume") for job in call.jobs], self.script)

    def read_lost(self, call: Call) -> bool | None:
        claim = call.jobs[0].claim
        return None if claim is None else claim.lost

    def release(self, call: Call) -> None:
        self.board.release(call.jobs[0])

    def release_claim(self, call: Call) -> None:
        """Release the claim that a look has shown, and no later one."""
        call.verb = "release"
        job = call.jobs[0]
        self.board.refresh([job])
        running().park(self.stage.world.draw(call.key, "thought") * 20_000)
        call.args["token"] = job.record.token
        self.board.release(job, token=job.record.token)

    def cancel(self, call: Call) -> None:
        self.board.cancel(call.jobs[0])

    def stop(self, call: Call) -> None:
        self.board.cancel(call.jobs[0], running=True)

    def restore(self, call: Call) -> None:
        self.board.restore(call.jobs[0])

    def purge(self, call: Call) -> None:
        self.board.purge(call.jobs[0])

    def purge_trash(self, call: Call, age: float) -> int:
        return self.board.purge_trash(age)

    def pause(self, call: Call, names: list[str] | None) -> None:
        self.board.pause(names)

    def resume(self, call: Call, names: list[str] | None) -> None:
        self.board.resume(names)

    def set_limit(self, call: Call, name: str, **limit: Any) -> None:
        if limit["rate"] is not None:
            limit["rate"] = tuple(limit["rate"])
        self.board.set_limit(name, **limit)

    def remove_limit(self, call: Call, name: str) -> None:
        self.board.remove_limit(name)

    def schedule(self, call: Call, id: str, name: str, every: float, missed: Any) -> None:  # noqa: A002
        self.board.schedule(id, name=name, every=every, missed=missed)

    def unschedule(self, call: Call, id: str) -> None:  # noqa: A002
        self.board.unschedule(id)

    def post_due(self, call: Call) -> None:
        self.board.post_due()

    def tidy(self, call: Call) -> None:
        engine_of(self.board).tidy(0.05)

    def look(self, call: Call) -> dict[str, str]:
        shown = {job.uuid: str(job.seen_state) for job in self.board.iterjobs(ensure_fresh=True)}
        self.board.stats()
        return shown | {job.uuid: "TRASHED" for job in self.board.trashed()}

    def outcome(self, call: Call) -> Any:
        return self.board.outcome(call.jobs[0]).result

    def outcomes(self, call: Call) -> list[str]:
        return [outcome.uuid for outcome in self.board.outcomes()]

    def close(self, call: Call) -> None:
        self.board.close()
        self.board.connect()
