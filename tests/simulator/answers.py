"""The oracle of answers: what calls return, what claims believe, what waits sleep through, and what events report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jobboard.exceptions import ClaimLost, ConnectionFailure, JobBoardError, NotFound, UnclaimableJob
from jobboard.job import Claim, Job
from jobboard.states import Record
from tests.simulator.actors import Call, Effect, Stage
from tests.simulator.oracle import FOREVER, ON_BOARD, SLACK, Gate, Oracle, Version
from tests.simulator.stories import CLAIMS, ENDS
from tests.simulator.world import Process

ROUNDED = 10
"""The µs by which a deadline in seconds may be rounded."""

SLEPT = 1_000_000
"""The µs for which a wait may leave a job that it could claim."""


class Answers:
    """The judge of all calls of a story, once they have returned."""

    def __init__(self, oracle: Oracle, stage: Stage) -> None:
        self.oracle, self.stage = oracle, stage
        self.server, self.world, self.counts = oracle.server, oracle.world, oracle.counts

    # As soon as a call has returned

    def returned(self, call: Call) -> None:
        if call.outcome == "ok" and call.verb in (*CLAIMS, "extend"):
            self._check_deadlines(call)
        if call.outcome == "ok" and call.verb == "read_lost" and call.told is not None:
            self._check_reading(call)

    def _check_deadlines(self, call: Call) -> None:
        """Report a claim whose deadline is after the end of its lease."""
        for job in call.told if isinstance(call.told, list) else call.jobs:
            record, claim = self.oracle.at(job.uuid, self.world.now).record, job.claim
            if (
                record is None
                or claim is None
                or record.token != claim.token
                or not (record.lock_until and claim.deadline)
            ):
                continue
            ends = record.lock_until - (self.oracle.clock(self.world.now) - self.world.now)
            is_steady = len(self.oracle.steps) == 1 and call.process.wall == 0
            if claim.deadline * 1e6 - call.process.boot > ends + ROUNDED and is_steady:
                self.oracle.fault(f"deadline: {call} believes in {self._short(job)} for longer than its lease")

    def _check_reading(self, call: Call) -> None:
        """Report a wrong value of ``claim.lost``."""
        claim = call.jobs[0].claim
        assert claim is not None
        is_past = claim.deadline is not None and claim.deadline * 1e6 <= self.world.now + call.process.boot
        if is_past and not call.told and not claim.ended:
            self.oracle.fault(f"lost unseen: {call} reads no loss of {self._short(claim.job)} after the deadline")
        if call.told:
            self.counts["claims read as lost"] += 1
            if not self._is_lost(claim, call.process, call.began):
                self.oracle.fault(f"false loss: {call} reads {self._short(claim.job)} as lost")

    # At the end of the story

    def check(self) -> None:
        for call in self.stage.calls:
            if call.ended is not None and call.outcome != "unknown":
                self._check_call(call)
            if call.outcome == "ok" and call.effects and self._has_lost_a_reply(call):
                self.counts["replays"] += 1
        for call, uuid, since in self.oracle.passed:
            others = (each for each in self.stage.calls if each is not call and each.verb in CLAIMS)
            mates = [
                each for each in others if each.began < (call.ended or FOREVER) and (each.ended or FOREVER) > call.began
            ]
            # A call that overlaps may have taken the job.
            if not any(uuid == effect.uuid for each in mates for effect in each.effects):
                self.oracle.fault(f"out of order: {call} passed over {self._name(uuid)}, unclaimed since {since}")
        self._check_losses()

    def _has_lost_a_reply(self, call: Call) -> bool:
        return any(key == call.key and fault in ("lose", "late") for key, _, fault in self.server.fired)

    def _check_call(self, call: Call) -> None:
        changed = {effect.uuid: effect for effect in call.effects}
        fault = self.oracle.fault
        if len(call.effects) > len(changed) and call.verb not in ("extend", *CLAIMS):
            # A second extend does no harm. A claim that has lapsed before its answer came is made again.
            fault(f"acted twice: {call}")
        is_refused = call.outcome == "refused" and isinstance(call.told, ConnectionFailure)
        stands = [effect for effect in call.effects if call.verb not in CLAIMS or self._stands(effect, call.ended or 0)]
        if stands and is_refused:
            fault(f"done though refused: {call} has changed {self._name(stands[0].uuid)}, and reports no change")
        if call.verb in CLAIMS:
            self._check_claims(call)
        if call.verb in (*ENDS, "release", "cancel", "stop", "restore", "purge"):
            for job in call.jobs:
                self._check_act(call, job, job.uuid in changed)
        if call.verb == "outcome":
            self._check_outcome(call)
        elif call.outcome == "ok" and (check := getattr(self, f"_check_{call.verb}", None)) is not None:
            check(call)

    def _check_post(self, call: Call) -> None:
        changed = {effect.uuid: effect for effect in call.effects}
        for job in call.told:
            if job.created and job.uuid in changed and changed[job.uuid].stood is not None:
                self.oracle.fault(f"wrong answer: {call}: {self._short(job)} created={job.created}")
            if job.created and not self.oracle.versions[job.uuid]:
                self.oracle.fault(f"wrong answer: {call}: {self._short(job)} was never stored")
            if not job.created and not job.replaced:
                self.counts["keys kept"] += 1
                states = {state for _, state in self.oracle.moments(job.uuid, call.began - SLACK, call.ended or 0)}
                self.counts["keys kept by windows"] += not states & {*ON_BOARD}

    def _end_of(self, uuid: str) -> tuple[Call, Effect] | None:
        """Return the call that has consumed a job, with its effect on the job."""
        for call in self.stage.calls:
            for effect in call.effects:
                if effect.uuid == uuid and effect.stands is None and call.verb.startswith("consume"):
                    return call, effect
        return None

    def _check_outcome(self, call: Call) -> None:
        """Report an outcome that is shown after its end, or not shown before it."""
        job, end = call.jobs[0], self._end_of(call.jobs[0].uuid)
        if len(self.oracle.steps) > 1 or isinstance(call.told, ConnectionFailure):
            return
        began, ended = call.began - SLACK, (call.ended or 0) + SLACK
        since, until = (FOREVER, 0) if end is None else (end[1].when, end[1].when + self.oracle.keep)
        if call.outcome == "ok" and (since > ended or until < began):
            self.oracle.fault(f"outcome: {call} shows that of {self._short(job)}, consumed at {since}")
        if (
            call.outcome == "ok"
            and end is not None
            and call.told != (str(end[0]) if end[0].verb == "consume" else None)
        ):
            self.oracle.fault(f"result: {call} shows {call.told!r} as that of {self._short(job)}, consumed by {end[0]}")
        purges = (each for each in self.stage.calls if each.verb == "purge" and each.began < ended)
        is_purged = any(each.jobs[:1] == [job] and each.outcome != "refused" for each in purges)
        if call.outcome == "refused" and since < began and until > ended and not is_purged:
            self.oracle.fault(f"no outcome: {call} does not show that of {self._short(job)}, consumed at {since}")

    def _check_take(self, call: Call) -> None:
        if not call.told:
            self._check_empty(call)
        if call.args.get("timeout"):
            self._check_sleep(call)

    def _stands(self, effect: Effect, when: int) -> bool:
        """Return whether the claim of an effect has not lapsed at an instant. A lapsed one is claimed again."""
        version = self.oracle.at(effect.uuid, when)
        is_same = version.record is not None and version.record.token == effect.has.token
        return is_same and self.oracle.state(version, when) == "CLAIMED"

    def _check_claims(self, call: Call) -> None:
        changed = {effect.uuid: effect for effect in call.effects}
        if call.outcome == "ok":
            for job in call.told:
                # A claim may be lost while the call claims more, and the job may come once more.
                made = {effect.has.token for effect in call.effects if effect.uuid == job.uuid}
                if self._token_of(call, job) not in made:
                    self.oracle.fault(f"wrong answer: {call} got {self._short(job)} without a claim")
        elif call.outcome == "refused" and not isinstance(call.told, (ClaimLost, ConnectionFailure)):
            for uuid, effect in changed.items():
                now = self.oracle.versions[uuid][-1].record
                if effect.stands == "CLAIMED" and now and now.token == effect.has.token and now.state == "CLAIMED":
                    self.oracle.fault(f"claimed for nobody: {self._name(uuid)} by {call}")
        if call.verb == "claim" and isinstance(call.told, (UnclaimableJob, NotFound)):
            job = call.jobs[0]
            states = {state for _, state in self.oracle.moments(job.uuid, call.began - SLACK, call.ended or 0)}
            wanted = {None, "TRASHED"} if isinstance(call.told, NotFound) else {"CLAIMED", "SCHEDULED", "TRASHED"}
            if not (states & wanted or self.oracle.may_be_closed(job.name, call.began - SLACK, call.ended or 0)):
                self.oracle.fault(f"false {type(call.told).__name__}: {call} on {self._short(job)}")

    def _token_of(self, call: Call, job: Job) -> int | None:
        return next((claim.token for _, claim, made in self.stage.claims if made is call and claim.job is job), None)

    def _check_act(self, call: Call, job: Job, is_changed: bool) -> None:
        error = call.errors.get(job.uuid) or (call.told if call.outcome == "refused" else None)
        # A kept claim that is extended by name stays as it is.
        is_prolonged = call.verb == "extend" and job.uuid not in call.tokens and call.args["expiry"] is None
        moments = self.oracle.moments(job.uuid, call.began - SLACK, call.ended or 0)
        # A purge of a consumed job deletes its outcome, and no job.
        is_outcome = call.verb == "purge" and self.oracle.keep and any(version.record is None for version, _ in moments)
        if error is None and not (is_changed or is_prolonged or is_outcome):
            self.oracle.fault(f"nothing done: {call} on {self._short(job)} was answered as done")
        if not isinstance(error, JobBoardError) or isinstance(error, ConnectionFailure):
            return
        self.counts[f"answers: {type(error).__name__}"] += 1
        if is_changed and call.verb != "extend":
            self.oracle.fault(f"done though refused: {call} on {self._short(job)}: {type(error).__name__}")
        elif not is_changed:
            moments = self.oracle.moments(job.uuid, call.began - SLACK, call.ended or 0)
            if not any(self._is_right(call, job.uuid, error, *each) for each in moments):
                self.oracle.fault(f"false {type(error).__name__}: {call} on {self._short(job)}")

    def _is_right(self, call: Call, uuid: str, error: Exception, version: Version, state: str | None) -> bool:
        """Return whether an act deserves this error while the job is in this state."""
        record, token = version.record, call.tokens.get(uuid)
        if call.verb in ENDS and token is None:
            return state != "CLAIMED" or (record is not None and record.who != call.key[0])
        if call.verb in ENDS and isinstance(error, ClaimLost):
            limits = (limit for gate in self.oracle.gates for limit in gate.limits)
            if call.verb == "extend" and any(limit.concurrency for limit in limits):
                return True  # A lapsed claim needs a slot again, and no start.
            return record is None or state == "TRASHED" or record.token != token
        if call.verb in ENDS:
            return record is None or (record.token == token and record.who is None)
        if call.verb == "restore" and record is not None and record.key is not None:
            return True
        if call.verb == "release" and isinstance(error, ClaimLost):
            return record is not None and record.token != call.args.get("token")
        wanted = {
            "release": {"CLAIMED"},
            "cancel": {"UNCLAIMED", "SCHEDULED"},
            "stop": {"UNCLAIMED", "SCHEDULED", "CLAIMED"},
            "restore": {"TRASHED"},
            "purge": {"TRASHED"},
        }
        return state not in wanted[call.verb]

    def _check_look(self, call: Call) -> None:
        """Report a job that a look has missed, or shown in a state that it never had meanwhile."""
        for uuid in self.oracle.versions:
            moments = list(self.oracle.moments(uuid, call.began - SLACK, call.ended or 0))
            # A record is judged by the time of its reading, which may be a later one.
            states = {state for _, state in moments}
            states |= {self.oracle.state(version, call.ended or 0) for version, _ in moments}
            if len(states) > 1 and "TRASHED" in states:
                # The walks through the board and the trash are two.
                states.add(None)
            # A walk may miss a job that moves to another place meanwhile.
            places = {version.record.priority for version, _ in moments if version.record is not None}
            if call.told.get(uuid) not in states and len(self.oracle.steps) == 1 and len(places) < 2:
                self.oracle.fault(
                    f"wrong look: {call} shows {call.told.get(uuid)} for {self._name(uuid)}, not {states}"
                )

    # Waits

    def _check_empty(self, call: Call) -> None:
        """Report an empty answer although a job could be claimed all the time."""
        names = call.args.get("names")
        if len(self.oracle.steps) > 1:
            return
        began, ended = call.began - SLACK, call.ended or 0
        for uuid in self.oracle.versions:
            version = self.oracle.at(uuid, ended)
            if version.record is None or (names and version.record.name not in names):
                continue
            since = self.oracle.unclaimed_since(uuid, ended)
            is_closed = self.oracle.may_be_closed(version.record.name, began, ended)
            if since is not None and since < began and version.since < began and not is_closed:
                self.oracle.fault(f"empty answer: {call} though {self._name(uuid)} was unclaimed since {since}")
                return

    def _check_sleep(self, call: Call) -> None:
        """Report a wait that has slept while it could claim a job: one that came, lapsed, or got a slot."""
        ended = min((effect.when for effect in call.effects), default=call.ended or 0)
        keys = (call.key, (call.process.name, "heartbeat"), (call.process.name, "bell"))
        is_troubled = any(key in keys for key, _, _ in self.server.fired) or len(self.oracle.steps) > 1
        if ended - call.began < SLEPT or is_troubled or call.process.was_troubled(call.began, ended):
            return
        names = call.args.get("names")
        since: int | None = None
        was_closed = False
        for when in sorted({call.began, ended - 1, *(edge for edge in self._edges() if call.began < edge < ended)}):
            ready, closed = self._claimable(names, when)
            if ready:
                since = when if since is None else since
            else:
                since, was_closed = None, was_closed or closed
            if since is not None and ended - since >= SLEPT and when >= since + SLEPT - 1:
                uuids = " and ".join(map(self._name, ready))
                self.oracle.fault(f"slept: {call} while it could claim {uuids} since {since}")
                return
        if was_closed and call.told:
            self.counts["waits woken by slots"] += 1

    def _edges(self) -> Iterator[int]:
        for uuid in self.oracle.versions:
            yield from self.oracle.edges(uuid)
        for gate in self.oracle.gates:
            yield gate.since
            for limit in gate.limits:
                if limit.rate is not None:
                    starts = (
                        start for scope, some in self.oracle.starts.items() if scope[0] == limit.name for start in some
                    )
                    yield from (start + int(limit.rate[1] * 1.1e6) for start in starts)

    def _claimable(self, names: Any, when: int) -> tuple[list[str], bool]:
        """Return the jobs that a take could claim at an instant, and whether limits close others."""
        gate = [each for each in self.oracle.gates if each.since <= when][-1]
        ready, is_closed = [], False
        for uuid in self.oracle.versions:
            version = self.oracle.at(uuid, when)
            record = version.record
            if record is None or self.oracle.state(version, when) != "UNCLAIMED":
                continue
            if (names and record.name not in names) or gate.pauses(record.name):
                continue
            if self._has_room(record, gate, when):
                ready.append(uuid)
            else:
                is_closed = True
        return ready, is_closed

    def _has_room(self, record: Record, gate: Gate, when: int) -> bool:
        for limit in gate.limits:
            if (scope := limit.scope(record)) is None:
                continue
            if limit.concurrency is not None and len(self.oracle.living(scope, limit, when)) >= limit.concurrency:
                return False
            if limit.rate is not None:
                most, seconds = limit.rate
                if sum(when - seconds * 1.1e6 < start <= when for start in self.oracle.starts[scope]) >= most:
                    return False
        return True

    # Losses

    def _has_heard(self, claim: Claim) -> bool:
        """Return whether the holder has read the loss, or an act of the claim was refused for it."""
        acts = (call for call in self.stage.calls if call.tokens.get(claim.uuid) == claim.token)
        errors = (error for call in acts for error in (call.told, call.errors.get(claim.uuid)))
        return claim.seen_lost or any(isinstance(error, (ClaimLost, NotFound)) for error in errors)

    def _check_losses(self) -> None:
        """Report LOST events of standing claims, second ones, and losses that nobody has been told of."""
        for when, process, claim in self.stage.losses:
            self.counts["LOST events"] += 1
            if not self._is_lost(claim, process, when):
                self.oracle.fault(f"false LOST: {process.name} at {when}, for {self._short(claim.job)}")
        for process, claim, made in self.stage.claims:
            events = sum(each is claim for _, _, each in self.stage.losses)
            revived = [call for call in self.stage.calls if call.verb == "extend" and claim.uuid in call.tokens]
            if events > 1 + len(revived):
                self.oracle.fault(f"LOST twice: {self._short(claim.job)} for {claim.who}")
            if claim.kept and not claim.ended and not process.is_dead and not self._has_heard(claim):
                taken = self._taken_at(claim)
                if taken is not None and taken < self.world.now - 20_000_000 and made.outcome == "ok":
                    self.oracle.fault(f"loss untold: {claim.who} has not heard that {self._short(claim.job)} is lost")

    def _is_lost(self, claim: Claim, process: Process, when: int) -> bool:
        """Return whether a claim was lost by an instant: by its own clock, by the act of another, or as it was read."""
        # An extension may have followed, so that the deadline of that time is not known.
        mine = [call for call in self.stage.calls if any(job.uuid == claim.uuid for job in call.jobs)]
        if any(call.verb == "extend" for call in mine):
            return True
        mine = [call for call in mine if call.process is process and call.began < when]
        is_past = claim.deadline is not None and claim.deadline * 1e6 <= when + process.boot + ROUNDED
        if is_past or any(call.verb in ("read_lost", "release", "stop") for call in mine):
            return True
        if any(isinstance(call.told, JobBoardError) or call.errors for call in mine):
            return True
        ends = [call for call in mine if call.verb in ENDS and call.key[0] == claim.who]
        own = {effect.when for call in ends for effect in call.effects}
        for version, state in self.oracle.moments(claim.uuid, 0, when):
            record = version.record
            if version.since not in own and version.since:
                if record is None or record.token > claim.token:
                    return True
                if record.token == claim.token and state != "CLAIMED":
                    return True
        return False

    def _taken_at(self, claim: Claim) -> int | None:
        """Return when a claim has ended on the server by the act of another."""
        for version in self.oracle.versions[claim.uuid]:
            if version.record is not None and version.record.token > claim.token:
                return version.since
        return None

    # Words

    def _name(self, uuid: str) -> str:
        return self.oracle.short(uuid)

    def _short(self, job: Job) -> str:
        return self.oracle.short(job.uuid)
