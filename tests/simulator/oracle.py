"""The oracle of commits: the rules of the lifecycle, told a second time, over the records of a server.

It uses no transition of the library. It decodes records, and knows the names of fields and of states.
"""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgpack

from jobboard.engine import Side, StoredOutcome
from jobboard.engine.records import unpack
from jobboard.kv.driver import ALIVE, Op
from jobboard.kv.layout import (
    DONE,
    JOB,
    KEPT,
    LIVE,
    OVER,
    READY,
    TIMED,
    TRASH,
    job_names,
    outcome_names,
    uuid_at,
)
from jobboard.states import TRASHED, Record
from tests.simulator.actors import Call, Effect, Stage
from tests.simulator.server import Server
from tests.simulator.stories import CLAIMS, ENDS
from tests.simulator.world import EPOCH

SLACK = 20_000
"""The µs by which a client's view of the time may be old."""

FOREVER = 10**18

OUTCOME = "side/outcome/"

ON_BOARD = ("UNCLAIMED", "SCHEDULED", "CLAIMED")
KEEPERS = ("heartbeat", "close")
"""The calls that give claims back which nobody has got."""

ALLOWED: dict[tuple[str | None, str | None], set[str]] = {
    (None, "UNCLAIMED"): {"post", "post_due"},
    (None, "SCHEDULED"): {"post", "post_due"},
    ("UNCLAIMED", "CLAIMED"): {*CLAIMS, "extend", "heartbeat"},
    ("UNCLAIMED", "UNCLAIMED"): {"post", "abandon", *KEEPERS},
    ("UNCLAIMED", "SCHEDULED"): {"post", "abandon"},
    ("UNCLAIMED", "TRASHED"): {"cancel", "stop", "trash", "abandon"},
    ("UNCLAIMED", None): {"consume", "consume_many"},
    ("SCHEDULED", "UNCLAIMED"): {"post"},
    ("SCHEDULED", "SCHEDULED"): {"post"},
    ("SCHEDULED", "TRASHED"): {"cancel", "stop"},
    ("CLAIMED", "CLAIMED"): {"extend", "heartbeat"},
    ("CLAIMED", "UNCLAIMED"): {"abandon", "release", *KEEPERS},
    ("CLAIMED", "SCHEDULED"): {"abandon"},
    ("CLAIMED", "TRASHED"): {"trash", "abandon", "release", "stop", "heartbeat"},
    ("CLAIMED", None): {"consume", "consume_many"},
    ("TRASHED", "UNCLAIMED"): {"restore"},
    ("TRASHED", None): {"purge", "purge_trash"},
}
"""The verbs that may move a job from one state to another. Any call may write down a lapse."""


class Version(NamedTuple):
    """A job since an instant of the world. session: the session that keeps its claim."""

    since: int
    record: Record | None
    session: str | None


class Limit(NamedTuple):
    name: str
    per: str
    concurrency: int | None
    rate: tuple[int, float] | None

    def scope(self, record: Record) -> tuple[str, str, str | None] | None:
        if record.name != self.name or (self.per == "group" and record.group is None):
            return None
        return self.name, self.per, record.group if self.per == "group" else None


class Gate(NamedTuple):
    """The pauses and limits since an instant."""

    since: int
    everything: bool = False
    paused: tuple[str, ...] = ()
    limits: tuple[Limit, ...] = ()

    @property
    def is_open(self) -> bool:
        return not (self.everything or self.paused or self.limits)

    def pauses(self, name: str) -> bool:
        return self.everything or name in self.paused


class Oracle:
    """The judge of each commit of a server, and the history of its jobs."""

    def __init__(self, server: Server, stage: Stage, keep: int) -> None:
        self.server, self.stage, self.world, self.counts = server, stage, server.world, server.counts
        self.keep = keep
        """The µs for which an outcome is kept; 0: there is none."""
        self.faults: list[str] = []
        self.versions: dict[str, list[Version]] = defaultdict(list)
        self.gates = [Gate(0)]
        self.steps: list[tuple[int, int]] = [(0, 0)]
        """The steps of the server's clock, and what it has been set forward by in all."""
        self.starts: dict[Any, list[int]] = defaultdict(list)
        """The instants at which claims of a scope began."""
        self.passed: list[tuple[Call, str, int]] = []
        """Takes that have passed over an unclaimed job, with the time since when it has been unclaimed."""
        self._sessions: dict[str, tuple[int, float]] = {}
        self._tokens: dict[str, int] = defaultdict(int)
        self._windows: dict[str, tuple[int, str]] = {}
        self._latest = 0
        self._swept: dict[tuple[str, int], int] = {}
        # Since when a limit of a name and ``per`` has bound, and one with its rate.
        self._bound: dict[Any, int] = {}
        # By schedule: the earliest time at which the poster of its last job has looked.
        self._posted: dict[str, int] = {}
        self._judged_at = 0

    def fault(self, text: str) -> None:
        self.faults.append(text)

    # The state of a job

    def clock(self, when: int) -> int:
        """Return the server's time at an instant of the world."""
        return EPOCH + when + self.steps[bisect.bisect_right(self.steps, (when, FOREVER)) - 1][1]

    def session_end(self, session: str | None) -> float:
        return self._sessions.get(session or "", (0, 0))[1]

    def latest_clock(self, began: int, ended: int) -> int:
        """Return the latest time that the server's clock has shown in this time."""
        steps = (at - 1 for at, _ in self.steps if began < at <= ended)
        return max(map(self.clock, (began, *steps, ended)))

    def state(self, version: Version, when: int, clock: int | None = None) -> str | None:
        """Return the state of a job at an instant, by the server's clock at that instant, or by another time of it."""
        record, clock = version.record, self.clock(when) if clock is None else clock
        if record is None:
            return None
        until, state = record.lock_until, str(record.state)
        is_over = until is not None and until <= clock
        if state in ("SCHEDULED", "UNCLAIMED") and is_over:
            return "UNCLAIMED" if record.expires is None or record.expires > clock else "TRASHED"
        is_kept = self.server.habits.keeps == "session" and until is None
        if state == "CLAIMED" and (is_over or (is_kept and when >= self.session_end(version.session))):
            is_worn = record.max_attempts is not None and record.attempts >= record.max_attempts
            return "TRASHED" if is_worn else "UNCLAIMED"
        return state

    def at(self, uuid: str, when: int) -> Version:
        """Return the version of a job at an instant."""
        found = Version(0, None, None)
        for version in self.versions[uuid]:
            if version.since <= when:
                found = version
        return found

    def edges(self, uuid: str) -> Iterator[int]:
        """Yield the instants at which the state of a job may have changed."""
        for version in self.versions[uuid]:
            yield version.since
            if version.record is not None:
                for until in {version.record.lock_until, version.record.expires} - {None}:
                    yield until - (self.clock(version.since) - version.since)
                yield int(min(self.session_end(version.session), FOREVER))

    def moments(self, uuid: str, began: int, ended: int) -> Iterator[tuple[Version, str | None]]:
        """Yield each version of a job in this time, with each state that it had then."""
        for when in sorted({began, ended, *(edge for edge in self.edges(uuid) if began <= edge <= ended)}):
            for exact in (when - 1, when):
                version = self.at(uuid, exact)
                yield version, self.state(version, exact)

    def unclaimed_since(self, uuid: str, until: int) -> int | None:
        """Return since when the job has been unclaimed and unchanged; None if it is not so at ``until``."""
        version = self.at(uuid, until)
        if version.record is None or self.state(version, until) != "UNCLAIMED":
            return None
        lock = version.record.lock_until
        if str(version.record.state) != "UNCLAIMED" and lock is not None:
            return max(version.since, lock - (self.clock(until) - until))
        if str(version.record.state) != "UNCLAIMED":
            return max(version.since, int(self.session_end(version.session)))
        # A sweep changes the record and not the job.
        return min(version.since, self._swept.get((uuid, version.since), FOREVER))

    # Each commit

    def saw(self, ops: Sequence[Op]) -> None:
        """Judge a commit by its operations."""
        now, records = self.world.now, self.server.shelf.records
        bounds = [int(op.path) - 1 - (EPOCH + self.server.step) for op in ops if op.do == "before"]
        # Where the server does not compare times, a commit counts from when it was sent.
        self._judged_at = min(now, *bounds) if bounds and not self.server.habits.compares_times else now
        for op in ops:
            if op.path.startswith(f"{ALIVE}/"):
                name = op.path.partition("/")[2]
                self._sessions[name] = (now, math.inf) if op.do == "add" else (self._sessions[name][0], now)
        changed = [op.path for op in ops if op.do in ("create", "put", "delete")]
        if "gate" in changed:
            self._saw_gate(records["gate"].value)
        jobs: dict[str, Version] = {}
        for path in changed:
            if path.startswith(JOB):
                node = records.get(path)
                record, session, _ = (None, None, ()) if node is None else unpack(uuid_at(path), node.value)
                jobs[uuid_at(path)] = Version(now, record, session)
        outcomes = {path.removeprefix(OUTCOME) for path in changed}
        if jobs:
            self._saw_jobs(jobs, any(path.startswith("side/answer/") for path in changed), outcomes)

    def _saw_gate(self, value: bytes) -> None:
        packed = msgpack.unpackb(value, use_list=False)[0] if value else b""
        everything, paused, limits = msgpack.unpackb(packed, use_list=False) if packed else (False, (), ())
        gate = Gate(self.world.now, everything, paused, tuple(Limit(*each[:4]) for each in limits))
        self.gates.append(gate)
        there: set[Any] = {(each.name, each.per) for each in gate.limits if each.concurrency is not None}
        there |= {(each.name, each.per, each.rate) for each in gate.limits if each.rate is not None}
        self._bound = {key: self._bound.get(key, self.world.now) for key in there}

    def _saw_jobs(self, jobs: Mapping[str, Version], answers: bool, outcomes: Collection[str]) -> None:
        """Judge the new versions of jobs.

        :param answers: the commit has stored the answer of its call.
        :param outcomes: the jobs whose outcomes the commit has stored.
        """
        call, taken = self.server.serving, []
        for uuid, version in jobs.items():
            had = self.at(uuid, self.world.now)
            if had.record is None and self.versions[uuid]:
                self.fault(f"came back: {self.short(uuid)} had left the board")
            if self._saw_job(uuid, had, version, call):
                assert version.record is not None
                taken.append((uuid, version.record))
            is_consumed = version.record is None and had.record is not None and verb_of(call).startswith("consume")
            if is_consumed and self.keep and uuid not in outcomes:
                self.fault(f"no outcome: {self.short(uuid)} was consumed without it")
            self.versions[uuid].append(version)
        has_ended = isinstance(call, Call) and call.ended is not None and call.outcome != "unknown"
        if answers and has_ended and call.verb != "close":
            names = ", ".join(map(self.short, jobs))
            self.fault(f"too late: {call} has changed {names} after its answer ({call.outcome})")
        for uuid, record in taken:
            self._check_limits(uuid, record)
        if taken and isinstance(call, Call) and call.verb == "take":
            self._check_order(call, [record for _, record in taken])
        self._check_keys(jobs)

    def _saw_job(self, uuid: str, had: Version, has: Version, call: Any) -> bool:
        """Judge the change of a job. Return whether a claim has begun or was revived."""
        old, new, verb = had.record, has.record, verb_of(call)
        stood, stands = self.state(had, self._judged_at), None if new is None else str(new.state)
        if old is not None and new is not None:
            if new.token < old.token:
                self.fault(f"token fell: {self.short(uuid)} from {old.token} to {new.token} by {call}")
            if self._is_sweep(uuid, had, new, call) or self._is_given_back(uuid, stood, old, new, call):
                return False
        if isinstance(call, Call):
            call.effects.append(Effect(self.world.now, uuid, stood, stands, old, new))
            if stood == "UNCLAIMED" and verb not in ALLOWED.get((stood, stands), set()):
                # The call may have read the job before the lapse. The time that it read decides.
                stood = self.state(had, max(had.since, call.began - SLACK))
        if verb not in ALLOWED.get((stood, stands), set()):
            self.fault(f"not allowed: {call} moved {self.short(uuid)} from {stood} to {stands}")
            return False
        if verb == "post_due" and new is not None:
            self._check_schedule(new, call)
        if old is not None:
            self._check_holder(uuid, old, stood, call, verb)
        if new is not None:
            self._check_token(uuid, old, new, call, verb)
        begins = stands == "CLAIMED" and stood != "CLAIMED"
        if begins and old is not None and new is not None:
            self.counts["claims" if verb in CLAIMS else "revivals"] += 1
            if verb in CLAIMS:
                self._check_claim(uuid, old, new, call)
        return begins

    def _is_sweep(self, uuid: str, had: Version, new: Record, call: Any) -> bool:
        """Return whether a change only writes down a lapse, or a due time that has passed."""
        old, now = had.record, self.world.now
        assert old is not None
        stood = self.state(had, self._judged_at)
        states, is_meant = {stood}, verb_of(call) in ALLOWED.get((stood, str(new.state)), set())
        if len(self.steps) > 1 and isinstance(call, Call) and not is_meant:
            # The clock was set. A call may have read the time before that, and the job behind it.
            states |= {state for _, state in self.moments(uuid, max(had.since, call.began - SLACK), now)}
            states.add(self.state(had, now, self.latest_clock(max(0, call.began - SLACK), now)))
        is_same = (new.token, new.who) == (old.token, old.who)
        if is_same and stood == "TRASHED" == self.state(Version(now, new, None), now) != str(new.state):
            # It has written the due time down of a job that has expired since.
            return True
        if not is_same or str(new.state) == str(old.state) or str(new.state) not in states:
            return False
        ends = "expiries" if str(new.state) == "TRASHED" else "due times"
        self.counts["lapses" if str(old.state) == "CLAIMED" else ends] += 1
        if (since := self.unclaimed_since(uuid, now)) is not None:
            self._swept[uuid, now] = since
        return True

    def _is_given_back(self, uuid: str, stood: str | None, old: Record, new: Record, call: Any) -> bool:
        """Return whether a call only gives back what an earlier call of its process has claimed for nobody."""
        if call is None or stood != "CLAIMED" or str(new.state) not in ("UNCLAIMED", "TRASHED"):
            return False
        is_meant = isinstance(call, Call) and any(job.uuid == uuid for job in call.jobs)
        is_own = verb_of(call) in ENDS and is_meant and call.tokens.get(uuid, old.token) == old.token
        if is_own or new.token != old.token or not (old.who or "").startswith(call.process.name):
            return False
        self.counts["given back"] += 1
        if call.verb == "close" and self.server.habits.keeps == "process" and new.attempts != old.attempts - 1:
            self.fault(f"attempts: the close of {call.process.name} has used up one of {self.short(uuid)}")
        return True

    def _check_token(self, uuid: str, old: Record | None, new: Record, call: Any, verb: str) -> None:
        has_risen = new.token > self._tokens[uuid]
        self._tokens[uuid] = max(self._tokens[uuid], new.token)
        raises = verb in (*CLAIMS, "release", "cancel", "stop", "restore") or (verb == "post" and old is not None)
        if raises and not has_risen:
            self.fault(f"token stays: {self.short(uuid)} by {call}")
        keeps = verb in ("extend", "heartbeat") and old is not None and str(new.state) == "CLAIMED"
        if keeps and old is not None and new.attempts != old.attempts:
            self.fault(f"attempts: {call} has changed those of {self.short(uuid)}")
        if verb == "restore" and new.attempts:
            self.fault(f"attempts: {self.short(uuid)} has {new.attempts} after its restore")

    def _check_claim(self, uuid: str, old: Record, new: Record, call: Call) -> None:
        is_worn = old.max_attempts is not None and old.attempts >= old.max_attempts
        if new.attempts != old.attempts + 1 or is_worn:
            self.fault(f"attempts: {self.short(uuid)} from {old.attempts} to {new.attempts} of {old.max_attempts}")
        if self.gates[-1].pauses(new.name):
            self.fault(f"paused: {call} claimed {self.short(uuid)}")
        self._check_believers(uuid, old, call)

    def _check_schedule(self, new: Record, call: Call) -> None:
        """Report the second of two jobs for due times that were missed together."""
        self.counts["posts by schedules"] += 1
        content = self.stage.boards[call.process.name]._content(new)
        assert content.schedule is not None
        name, due = content.schedule
        looked = self._posted.get(name, 0)
        self._posted[name] = self.clock(call.began) - SLACK
        settings = [each for each in self.stage.calls if each.verb == "schedule" and each.args["id"] == name]
        if all(each.args["missed"] == "one" for each in settings) and len(settings) == 1 and due <= looked:
            self.fault(f"missed twice: {call} posted {name!r} for {due}, though a poster has looked at {looked}")

    def _check_holder(self, uuid: str, old: Record, stood: str | None, call: Any, verb: str) -> None:
        """Report an act of somebody who does not hold the job."""
        if verb == "purge_trash":
            since = old.modified_on
            if old.state != TRASHED and old.expires is not None:
                # A job that comes back behind its expiry has been in the trash since then.
                since = min(since, old.expires)
            age = self.clock(self.world.now) - since
            if age < call.args["age"] * 1e6 - SLACK and len(self.steps) == 1:
                self.fault(f"purged too early: {self.short(uuid)} by {call}, {age} µs after it was trashed")
        if verb not in ENDS:
            if verb == "release" and call.args.get("token") not in (None, old.token):
                self.fault(f"stale: {call} released token {old.token}, not {call.args['token']}")
            if (
                stood == "CLAIMED"
                and verb not in ("release", "stop")
                and not (old.who or "").startswith(call.process.name)
            ):
                self.fault(f"stolen: {call} moved {self.short(uuid)}, which {old.who} holds")
            return
        token = call.tokens.get(uuid)
        if token is None and stood != "CLAIMED":
            # The call may have read the job before the lapse.
            had = self.at(uuid, self.world.now)
            stood = self.state(had, max(had.since, call.began - SLACK))
        if token is None and (stood != "CLAIMED" or old.who != call.key[0]):
            self.fault(f"stolen: {call} acted by name on {self.short(uuid)}, {stood}, which {old.who} held last")
        if token is not None and (token != old.token or old.who is None):
            self.fault(f"stale: {call} acted on {self.short(uuid)} with token {token}, not {old.token} of {old.who}")

    def _check_believers(self, uuid: str, old: Record, call: Call) -> None:
        """Report a claim of a job whose earlier holder must believe that it still has the job."""
        if len(self.steps) > 1 or self.server.habits.keeps == "process":
            return
        for process, claim, _ in self.stage.claims:
            if claim.uuid != uuid or claim.token != old.token or old.who != claim.who:
                continue
            boot = (self.world.now + process.boot) / 1e6
            is_over = claim.seen_lost or claim.ended or (claim.deadline is not None and claim.deadline <= boot)
            calls = [each for each in self.stage.calls if any(job.uuid == uuid for job in each.jobs)]
            is_ending = any(each.ended is None or each.outcome == "unknown" for each in calls if uuid in each.tokens)
            # Another handle may have acted by the name of the owner, which the claim does not learn.
            is_shared = any(each.verb in ENDS and uuid not in each.tokens for each in calls)
            if not (process.is_dead or is_over or is_ending or is_shared):
                left = "ever" if claim.deadline is None else f"{claim.deadline - boot:.3f} s"
                self.fault(f"taken too early: {call} claimed {self.short(uuid)}, which {old.who} holds for {left}")

    # Limits, order and keys

    def living(self, scope: Any, limit: Limit, when: int) -> list[tuple[str, int]]:
        """Return the claimed jobs of a scope, each with the begin of its claim."""
        found = []
        for uuid in self.versions:
            version = self.at(uuid, when)
            if version.record is None or limit.scope(version.record) != scope:
                continue
            if self.state(version, when) == "CLAIMED":
                token = version.record.token
                its = (each for each in self.versions[uuid] if each.record and each.record.token == token)
                found.append((uuid, next((v.since for v in its if v.record and str(v.record.state) == "CLAIMED"), 0)))
        return found

    def _check_limits(self, uuid: str, record: Record) -> None:
        now = self.world.now
        for limit in self.gates[-1].limits:
            if (scope := limit.scope(record)) is None:
                continue
            if limit.concurrency is not None:
                # Claims from before the limit do not count.
                since = self._bound[limit.name, limit.per]
                inside = {other for other, begun in self.living(scope, limit, now) if begun > since} | {uuid}
                if len(inside) == limit.concurrency:
                    self.counts["limits full"] += 1
                if len(inside) > limit.concurrency:
                    self.fault(f"over the limit: {len(inside)} claims at once of {limit.concurrency} in {scope}")
            if any(each.record and each.record.token == record.token for each in self.versions[uuid][:-1]):
                continue  # A revived claim is no start.
            # A claim counts from when it was sent: its commit may have come late, and its lease has run since.
            starts = self.starts[scope]
            starts.append(self.server.sent)
            if limit.rate is not None and len(self.steps) == 1:
                most, seconds = limit.rate
                # Two windows may overlap by a tenth.
                since = max(now - int(seconds * 0.9e6), self._bound[limit.name, limit.per, limit.rate])
                inside_rate = sum(start > since for start in starts)
                self.counts["rates full"] += inside_rate == most
                if inside_rate > most:
                    self.fault(f"over the rate: more than {most} in {seconds} s in {scope}")

    def may_be_closed(self, name: str, began: int, ended: int) -> bool:
        """Return whether jobs of this name may have been paused or limited at some time of this span."""
        ends = [*(gate.since for gate in self.gates[1:]), FOREVER]
        during = [gate for gate, end in zip(self.gates, ends, strict=True) if end >= began and gate.since <= ended]
        return any(gate.pauses(name) or any(limit.name == name for limit in gate.limits) for gate in during)

    def _check_order(self, call: Call, taken: Sequence[Record]) -> None:
        """Note unclaimed jobs that a take has passed over. :class:`Answers` judges them, as others may take them."""
        if len(self.steps) > 1:
            return
        names, last = call.args.get("names"), max((record.priority, record.sequence) for record in taken)
        mine = {record.uuid for record in taken}
        for uuid, versions in self.versions.items():
            record = versions[-1].record
            if record is None or uuid in mine or (record.priority, record.sequence) >= last:
                continue
            if (names and record.name not in names) or self.may_be_closed(record.name, 0, self.world.now):
                continue
            since = self.unclaimed_since(uuid, self.world.now)
            if since is not None and since < call.began - SLACK:
                self.passed.append((call, uuid, since))

    def _check_keys(self, jobs: Mapping[str, Version]) -> None:
        holders: dict[str, list[str]] = defaultdict(list)
        for uuid, versions in self.versions.items():
            record = versions[-1].record
            if record is not None and record.key is not None and self.state(versions[-1], self.world.now) in ON_BOARD:
                holders[record.key].append(uuid)
        # A window that has ended once stays ended where the clock is set back, as its key may have been freed.
        self._latest = now = max(self._latest, self.clock(self.world.now))
        for uuid in jobs:
            record = self.versions[uuid][-1].record
            if record is not None and record.key is not None and len(self.versions[uuid]) == 1:
                until, owner = self._windows.get(record.key, (0, uuid))
                if owner != uuid and until > now + SLACK:
                    self.fault(f"key again: {self.short(uuid)} got {record.key!r}, which {self.short(owner)} keeps")
                if record.key_until:
                    self._windows[record.key] = record.key_until, uuid
        for key, owners in holders.items():
            if len(owners) > 1 and jobs.keys() & owners:
                self.fault(f"key twice: {key!r} is held by {' and '.join(map(self.short, owners))}")

    # The end

    def check_indexes(self) -> None:
        """Compare the indexes with the records."""
        wanted: dict[str, set[str]] = defaultdict(set)
        for versions in self.versions.values():
            _, record, session = versions[-1]
            for name in () if record is None else job_names(record, session):
                place, _, rest = name.partition("/")
                wanted[place].add(rest)
        for path, node in self.server.shelf.records.items():
            if path.startswith(OUTCOME):
                value, until = msgpack.unpackb(node.value)
                found = StoredOutcome.of(Side("outcome", unquote(path.removeprefix(OUTCOME)), value, until, 0))
                assert found is not None
                for name in outcome_names(found.record, found.until):
                    place, _, rest = name.partition("/")
                    wanted[place].add(rest)
        for place in (READY, LIVE, TIMED, KEPT, TRASH, DONE, OVER):
            there = set(self.server.shelf.names[place].range("", FOREVER))
            for name in sorted(there ^ wanted[place]):
                self.fault(f"index: {place}/{name} is {'left over' if name in there else 'missing'}")

    # Words

    def short(self, uuid: str) -> str:
        return f"job {list(self.versions).index(uuid) + 1}" if uuid in self.versions else f"job {uuid}"


def verb_of(call: Any) -> str:
    """Return the verb of a call, or the name of the thread that has made a request of its own."""
    return "" if call is None else str(call.verb).rpartition("-")[2]
