"""Obstacles: what keeps the jobs of a board from being worked on, for people who ask why nothing happens."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from jobboard import runtime
from jobboard.job import Job
from jobboard.primitives import PAGE, Limit, span
from jobboard.states import CLAIMED, LIVE, SCHEDULED, UNCLAIMED, State

if TYPE_CHECKING:
    from jobboard.board import JobBoard
    from jobboard.engine import ClosedScope, Rules
    from jobboard.job import Entity

FEW = 3
"""The number of claims that hold a limit, or of handlers that hang, that a reason names."""

NAMES = 5
"""The number of names of jobs that a reason names."""

SHORT = 8
"""The first characters of a uuid that stand for it: every command takes them."""

LEAST_SKEW = 1.0
"""The seconds by which a clock may be wrong in any case."""

Kind = Literal[
    "due", "claimed", "paused", "unhandled", "hung", "limit", "rate", "busy", "namesakes", "clock", "skipped", "turn"
]


@dataclass(frozen=True)
class Obstacle:
    """A reason why jobs wait.

    kind: see the table. place, reason, advice: texts, as of an :class:`~jobboard.primitives.Oddity`; the place is empty
    where the job itself is meant. is_odd: somebody has to act. Otherwise the board does as it was told, and the
    obstacle passes by itself, or by the command of its advice.

    ==============  ================================================================  ======
    kind            what it is                                                        is_odd
    ==============  ================================================================  ======
    ``due``         the job is SCHEDULED                                              no
    ``claimed``     the job has a holder                                              no
    ``turn``        other jobs are served before the job                              no
    ``paused``      names, or all jobs, are paused                                    no
    ``limit``       a concurrency limit is full                                       no
    ``rate``        a rate limit is used up                                           no
    ``busy``        the conductors that handle the name have no free slot             no
    ``unhandled``   no conductor handles the name                                     yes
    ``hung``        handlers go on after their timeout, and keep their slots          yes
    ``namesakes``   conductors have one name                                          yes
    ``clock``       the clock of a conductor's machine is wrong                       yes
    ``skipped``     the key of a schedule is taken, so that nothing is posted         yes
    ==============  ================================================================  ======
    """

    kind: Kind
    place: str
    reason: str
    advice: str
    is_odd: bool = False

    def __str__(self) -> str:
        place, advice = self.place and f"{self.place}: ", self.advice and f" ({self.advice})"
        return f"{place}{self.reason}{advice}"


def obstacles(board: JobBoard, job: Job | None = None) -> list[Obstacle]:
    """Return what keeps jobs of a board from being worked on, from the first 500 jobs in the order of serving.

    The call changes nothing. Conductors say at each heartbeat how they are, so that what is said of them may be as old
    as a third of their ``claim_ttl``.

    :param job: only what this job waits for, as it was last seen: its holder, where it is claimed. A job that is not on
        the board has no obstacles.
    """
    survey = _Survey(board)
    return list(survey.of_board() if job is None else survey.of_job(job))


def first_jobs(board: JobBoard, count: int | None = None, state: State | None = None) -> list[Job]:
    """Return the first jobs in the order of serving, as many as one request returns.

    :param count: the number of jobs in ``state``, so that a store without an index of states does not walk to the end.
    """
    states = None if state is None else frozenset({state})
    seen = board.engine.page(None, PAGE if count is None else min(PAGE, count), None, states)
    if state is not None and any(each.state != state for each in seen):
        # Nobody has swept jobs that are due, or lapsed, and they took the places of others.
        seen = [each for each in board.engine.page(None, PAGE, None, states) if each.state == state]
    return [Job(board, each.record, each.record.posting, each.state) for each in seen if each.record is not None]


def unhandled(jobs: Iterable[Job], rules: Rules, entities: Iterable[Entity]) -> list[str]:
    """Return the names of waiting jobs that no conductor handles, the most frequent first.

    Paused names are left out, and names with a claimed job: a worker without a conductor runs them.
    """
    jobs = list(jobs)
    waiting = Counter(job.name for job in jobs if job.seen_state == UNCLAIMED)
    return unhandled_names(waiting, {job.name for job in jobs if job.seen_state == CLAIMED}, rules, entities)


def unhandled_names(waiting: Counter[str], running: set[str], rules: Rules, entities: Iterable[Entity]) -> list[str]:
    """Return the names among those of waiting jobs that no conductor handles: see :func:`unhandled`."""
    handled = set(running)
    for entity in entities:
        if entity.kind == "conductor":
            names = _names_of(entity)
            if names is None:
                return []
            handled.update(names)
    return [name for name, _ in waiting.most_common() if name not in handled and name not in rules.paused]


def unhandled_obstacle(names: Sequence[str]) -> Obstacle:
    """Return the obstacle of names that no conductor handles."""
    advice = "start one with 'jobboard work MODULE:NAME'"
    return Obstacle("unhandled", _named(names), "no conductor handles them", advice, is_odd=True)


class _Survey:
    """A survey of a board. What not every question needs is read when it is asked for."""

    def __init__(self, board: JobBoard) -> None:
        self._board = board
        self._now = board.engine.now() / 1e6
        self._at = runtime.wall_time()
        self._rules: Rules = board.engine.rules()
        self._conductors = board.entities("conductor")
        self._jobs = first_jobs(board)
        self._held: list[Job] | None = None

    def of_board(self) -> Iterator[Obstacle]:
        waiting = [job for job in self._jobs if job.seen_state == UNCLAIMED]
        paused = self._rules.paused
        if paused.everything:
            yield _pause_obstacle(None)
        elif paused.names:
            yield _pause_obstacle(paused.names)
        if names := self._unhandled_names([]):
            yield unhandled_obstacle(names)
        yield from self._hung_conductors(self._conductors)
        yield from self._capacity_obstacles(waiting)
        yield from self._duplicate_names()
        yield from self._wrong_clocks()
        yield from self._skipping_schedules()

    def of_job(self, job: Job) -> Iterator[Obstacle]:
        if job.seen_state == SCHEDULED and job.due is not None:
            why = "it failed, and is tried again in" if job.errors and job.attempts else "it is due in"
            yield Obstacle("due", "", f"{why} {span(job.due.timestamp() - self._now)}", "")
        if job.seen_state == CLAIMED:
            yield self._claim_obstacle(job)
        if job.seen_state not in (UNCLAIMED, SCHEDULED):
            return
        found: list[Obstacle] = []
        if job.name in self._rules.paused:
            found.append(_pause_obstacle(None if self._rules.paused.everything else [job.name]))
        if job.name in self._unhandled_names([job]):
            found.append(unhandled_obstacle([job.name]))
        there = self._handling(job.name)
        if not any(map(_has_room, there)):
            found += self._hung_conductors(there)
        if job.seen_state == UNCLAIMED:
            found += self._capacity_obstacles([job]) or ([] if found else [self._turn_obstacle(job)])
        yield from found

    # Jobs and claims

    def _claims(self) -> list[Job]:
        """Return the first claimed jobs, the oldest claim first."""
        if self._held is None:
            count = self._board.stats(cap=PAGE).claimed
            found = first_jobs(self._board, count, CLAIMED) if count else []
            self._held = sorted(found, key=lambda job: job.last_modified)
        return self._held

    def _held_by(self, is_meant: Callable[[Job], bool]) -> str:
        """Return the claims that are meant, with their holders, as text; "" without one."""
        held = [job for job in self._claims() if is_meant(job)]
        return _few([f"{job.uuid[:SHORT]} by {job.owner!r} for {self._age_of(job)}" for job in held], FEW)

    def _age_of(self, job: Job) -> str:
        return span(self._now - job.last_modified.timestamp())

    # Rules of the board

    def _capacity_obstacles(self, waiting: Sequence[Job]) -> list[Obstacle]:
        """Return full limits, used-up rates, and names whose conductors have no free slot."""
        open_ = [job for job in waiting if job.name not in self._rules.paused]
        limited = {limit.name for limit in self._rules.limits}
        asked = [job.record for job in open_ if job.name in limited]
        closed = self._board.engine.closed_scopes(asked) if asked else {}
        counts: Counter[ClosedScope] = Counter(scope for scopes in closed.values() for scope in scopes)
        found: list[Obstacle] = []
        for scope, count in sorted(counts.items(), key=lambda each: (each[0].limit.name, each[0].group or "")):
            found += self._limit_obstacles(scope, count)
        names = Counter(job.name for job in open_ if job.uuid not in closed)
        by_conductors: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for name in names:
            there = self._handling(name)
            if there and not any(map(_has_room, there)):
                by_conductors[tuple(sorted(each.name for each in there))].append(name)
        return found + [self._busy_obstacle(alike) for alike in by_conductors.values()]

    def _limit_obstacles(self, scope: ClosedScope, count: int) -> Iterator[Obstacle]:
        limit, group, is_full, opens_in = scope
        place = f"limit of {limit.name!r}" + (f", group {group!r}" if group is not None else "")
        wait = f"{count} wait{'s' * (count == 1)}"
        if is_full:
            held = self._held_by(lambda job: job.name == limit.name and group in (None, job.group))
            full = f"{limit.concurrency} at once, full: {wait}; held: {held or 'by claims behind the first 500'}"
            advice = "wait; 'jobboard release' frees a claim that hangs, and 'jobboard limit set' raises the limit"
            yield Obstacle("limit", place, full, advice)
        if opens_in:
            used_up = f"{_rate(limit)}, used up: {wait}; the next may begin in {span(opens_in / 1e6)}"
            yield Obstacle("rate", place, used_up, "")

    def _claim_obstacle(self, job: Job) -> Obstacle:
        there = [_where(each) for each in self._conductors if each.name == job.owner]
        alive = (
            f"alive: {'; '.join(there)}" if there else "no living conductor, though another program may be the holder"
        )
        reason = f"claimed by {job.owner!r} for {self._age_of(job)}; {alive}"
        return Obstacle("claimed", "", reason, "'jobboard release' takes it from a holder that hangs")

    def _turn_obstacle(self, job: Job) -> Obstacle:
        waiting = [each.uuid for each in self._jobs if each.seen_state == UNCLAIMED]
        place = str(waiting.index(job.uuid)) if job.uuid in waiting else f"more than {len(waiting)}"
        reason = f"nothing holds it up; waiting jobs that are served before it: {place}"
        return Obstacle("turn", "", reason, "")

    # Conductors

    def _unhandled_names(self, more: Sequence[Job]) -> list[str]:
        jobs = [*self._jobs, *more]
        # Claims are read only where they matter.
        found = unhandled(jobs, self._rules, self._conductors)
        return unhandled([*jobs, *self._claims()], self._rules, self._conductors) if found else []

    def _handling(self, name: str) -> list[Entity]:
        """Return the conductors that handle jobs of this name."""
        names = ((each, _names_of(each)) for each in self._conductors)
        return [each for each, handled in names if handled is None or name in handled]

    def _hung_conductors(self, conductors: Iterable[Entity]) -> Iterator[Obstacle]:
        for each in conductors:
            if hung := _number(each, "hung"):
                jobs = [
                    f"{name!r} {uuid[:SHORT]} for {span(self._at - since)}" for uuid, name, since in _hanging_jobs(each)
                ]
                told = f"; handlers that go on after their timeout: {_few(jobs, FEW)}" if jobs else ""
                reason = f"{hung} of {each.metadata.get('slots')} slots hang{told}"
                advice = "restart this process; with --processes, a handler that hangs is killed at its timeout"
                yield Obstacle("hung", f"conductor {each.name!r} ({_where(each)})", reason, advice, is_odd=True)

    def _busy_obstacle(self, names: Sequence[str]) -> Obstacle:
        there = self._handling(names[0])
        slots, hung = (sum(_number(each, field) for each in there) for field in ("slots", "hung"))
        owners = {each.name for each in there}
        held = self._held_by(lambda job: job.owner in owners)
        reason = f"all {slots} slots of the conductors that handle it are taken"
        reason += f", {hung} by handlers that hang" if hung else ""
        reason += f"; oldest claims: {held}" if held else ""
        advice = "restart the workers that hang, or start more" if hung else "wait, or start more workers"
        return Obstacle("busy", _named(names), reason, advice)

    def _duplicate_names(self) -> Iterator[Obstacle]:
        by_name: dict[str, list[Entity]] = defaultdict(list)
        for each in self._conductors:
            by_name[each.name].append(each)
        for name, there in by_name.items():
            if len(there) > 1:
                reason = f"{len(there)} conductors have this name: {'; '.join(map(_where, there))}"
                ttl = span(self._board.characteristics.claim_ttl)
                advice = (
                    "give each a name of its own, or nobody can tell which one holds a job; a killed one is gone "
                    f"after {ttl}"
                )
                yield Obstacle("namesakes", f"conductor {name!r}", reason, advice, is_odd=True)

    def _wrong_clocks(self) -> Iterator[Obstacle]:
        # Without a server's clock, the board's time is the highest time of any client.
        now = self._now if self._board.characteristics.server_clock else self._at
        for each in self._conductors:
            clock, ttl = each.metadata.get("clock"), each.metadata.get("claim_ttl")
            if not isinstance(clock, int | float) or not isinstance(ttl, int | float):
                continue
            skew, most = clock - now, max(LEAST_SKEW, ttl / 10)
            # What it says of itself may be as old as its lease.
            if skew > most or -skew > ttl + most:
                reason = f"the clock of its machine is {span(abs(skew))} {'ahead' if skew > 0 else 'behind'}"
                yield Obstacle(
                    "clock", f"conductor {each.name!r} ({_where(each)})", reason, self._clock_advice, is_odd=True
                )

    @property
    def _clock_advice(self) -> str:
        # There the clocks of clients count.
        more = "; see Clocks on the page about etcd" if not self._board.characteristics.server_clock else ""
        return f"set it by NTP{more}"

    # Schedules

    def _skipping_schedules(self) -> Iterator[Obstacle]:
        schedules = [each for each in self._board.engine.schedules() if each.skipped is not None and each.is_active]
        keys = {each.draft.key for each in schedules if each.draft.key is not None}
        holders = self._board.engine.key_holders(sorted(keys)) if keys else {}
        for each in sorted(schedules):
            uuid = holders.get(each.draft.key or "")
            if uuid is None or each.skipped is None:
                continue
            [seen] = self._board.engine.read([uuid])
            by, advice = "a job that is gone, until its key_for ends", ""
            if seen.record is not None and seen.state in LIVE:
                job = Job(self._board, seen.record, seen.record.posting, seen.state)
                owner = f" by {job.owner!r}" if job.owner is not None and job.seen_state == CLAIMED else ""
                advice = f"see 'jobboard show {uuid[:SHORT]}'"
                by = f"job {uuid[:SHORT]}, {job.seen_state}{owner} for {self._age_of(job)}"
            when = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(each.skipped / 1e6))
            reason = f"it has posted nothing since {when}: its key {each.draft.key!r} is held by {by}"
            yield Obstacle("skipped", f"schedule {each.id!r}", reason, advice, is_odd=True)


def _pause_obstacle(names: Sequence[str] | None) -> Obstacle:
    what = "all jobs" if names is None else _named(names)
    return Obstacle("paused", what, "they are paused", "'jobboard resume' lets them be claimed again")


def _named(names: Sequence[str]) -> str:
    return f"jobs named {_few(list(map(repr, names)))}"


def _few(texts: Sequence[str], most: int = NAMES) -> str:
    more = [f"{len(texts) - most} more"] if len(texts) > most else []
    return ", ".join([*texts[:most], *more])


def _rate(limit: Limit) -> str:
    assert limit.rate is not None
    return f"{limit.rate[0]} in {span(limit.rate[1])}"


# Metadata of entities may be anything: other programs register conductors, too.


def _names_of(entity: Entity) -> list[str] | None:
    """Return the names of the jobs that a conductor handles; None for any name."""
    names = entity.metadata.get("names")
    return list(map(str, names)) if isinstance(names, list) else None


def _hanging_jobs(entity: Entity) -> Iterator[tuple[str, str, float]]:
    """Yield the uuids and names of the jobs whose handlers hang, and since when."""
    listed = entity.metadata.get("hanging")
    for each in listed if isinstance(listed, list) else ():
        match each:
            case {"uuid": str(uuid), "name": str(name), "since": int() | float() as since}:
                yield uuid, name, since


def _number(entity: Entity, field: str) -> int:
    found = entity.metadata.get(field)
    return found if isinstance(found, int) else 0


def _has_room(entity: Entity) -> bool:
    """Return whether a conductor has a free slot. One that does not say has."""
    slots = _number(entity, "slots")
    return not slots or _number(entity, "running") + _number(entity, "hung") < slots


def _where(entity: Entity) -> str:
    return f"host {entity.metadata.get('host')}, pid {entity.metadata.get('pid')}"
