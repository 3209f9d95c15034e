"""The history of a board: entries of its users' acts, and pure checks of the promises over all of them.

Every process writes down its own acts, each with the moments at which it began and ended on a clock that the processes
share (:func:`jobboard.job.boottime` on one machine). :func:`judge` takes the merged entries and the board as it was
left, and answers what no order of events that the entries allow can explain: a list of faults, empty if all is well. A
fault is only reported where the entries prove it, so that two acts that overlap in time accuse nobody.

Nothing here reads a clock or a file, and nothing here talks to a board.
"""

from __future__ import annotations

import bisect
import functools
import heapq
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from jobboard.states import FINISHES, LIVE, State, Verb

Outcome = Literal["ok", "refused", "unknown"]
"""``ok``: acknowledged. ``refused``: it surely did not happen. ``unknown``: nobody was told, as the process died or its
retries ran out."""

_TAKES = frozenset({Verb.RELEASE, Verb.CANCEL, Verb.STOP})
"""The acts of operators after which an earlier token no longer counts."""

_ENDS = FINISHES | {Verb.RELEASE, Verb.STOP}


class HistoryEntry(NamedTuple):
    """An act of one process on one job, which happened (if it did) at some moment from ``began`` to ``ended``.

    ``token`` is the one that a claim got, or that an act was made with. ``until`` is the moment before which nobody
    else may have the job, as a claim or an extend told its holder: None for a claim that is kept without a lease.
    ``rank`` (of the priority, 0 first), ``name`` and ``group`` go with a post; ``ready`` (claimable at once) with that
    and with an abandon. A post that has met a finished job by its key has no name. ``chosen``: the board chose this job
    for a claim, out of all of them, or of those ``among`` these names. ``uuid`` is empty where a post or a claim was
    never answered. ``keeps``: a consume that leaves an outcome, with this ``result``. ``occasion``, of a job that a
    schedule has posted: which schedule it was, and for which due time.

    Each call that claims has an entry without a uuid as well, ``refused`` once it was answered. It asked for so many
    jobs as ``asked``, and a post may meet as many keys. It is ``chosen`` if a job that was free all the time had to be
    found: the call had neither a condition nor another reason to end.
    """

    began: float
    ended: float
    process: str
    verb: Verb
    uuid: str
    outcome: Outcome
    token: int | None = None
    who: str | None = None
    until: float | None = None
    rank: int = 0
    ready: bool = True
    chosen: bool = False
    among: tuple[str, ...] | None = None
    name: str = ""
    occasion: str | None = None
    keeps: bool = False
    group: str | None = None
    result: Any = None
    asked: int = 1

    def as_dict(self) -> dict[str, Any]:
        """Return a map of JSON's shape, for :meth:`from_dict`."""
        return self._asdict()

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> HistoryEntry:
        return cls(**{**given, "verb": Verb(given["verb"])})


class Limiting(NamedTuple):
    """A limit that was set at some moment from ``began`` to ``ended``: how many claims may live at once, and how many
    may begin within how many seconds; with neither, that it was removed."""

    began: float
    ended: float
    name: str
    per: Literal["name", "group"] = "name"
    concurrency: int | None = None
    rate: tuple[int, float] | None = None

    def binds(self, post: HistoryEntry | None) -> bool:
        return post is not None and post.name == self.name and (self.per == "name" or post.group is not None)


class RecordedClaims:
    """The claims of a history, for how long each has lived for sure, and perhaps."""

    def __init__(self, entries: Sequence[HistoryEntry]) -> None:
        self._posts = _named_posts(entries)
        self._acts: dict[str, list[HistoryEntry]] = defaultdict(list)
        self._seen: dict[str, float] = defaultdict(lambda: -math.inf)
        for entry in entries:
            self._acts[entry.uuid].append(entry)
            last = entry.began if math.isinf(entry.ended) else entry.ended
            self._seen[entry.process] = max(self._seen[entry.process], last)
        self.told = [entry for entry in entries if entry.verb == Verb.CLAIM and entry.uuid and entry.outcome == "ok"]
        self.nameless = [entry for entry in entries if entry.verb == Verb.CLAIM and entry.outcome == "unknown"]

    def scope(self, limit: Limiting, uuid: str) -> str | None:
        """Return the limit's scope of a job: its group, or "" for all of them."""
        post = self._posts.get(uuid)
        if post is None or not limit.binds(post):
            return None
        return post.group if limit.per == "group" else ""

    def surely_until(self, claim: HistoryEntry) -> float:
        """Return the end of the claim, if it lived until then."""
        until = self._seen[claim.process] if claim.until is None else claim.until
        for act in sorted(self._of(claim), key=lambda act: act.began):
            if act.verb != Verb.EXTEND or act.outcome == "unknown":
                until = min(until, act.began)
            elif act.ended <= until:
                until = self._seen[act.process] if act.until is None else act.until
        return until

    @functools.cached_property
    def ends(self) -> list[tuple[HistoryEntry, float]]:
        """The claims, each with its latest possible end."""
        return [(claim, self.perhaps_until(claim)) for claim in self.told]

    def perhaps_until(self, claim: HistoryEntry) -> float:
        """Return the latest possible end of the claim."""
        ends = (act for act in self._of(claim) if act.verb != Verb.EXTEND and act.outcome == "ok")
        # What is made without a token may have come before a claim that it overlaps.
        ended = (act.ended for act in ends if act.token is not None or act.began >= claim.ended)
        return min(ended, default=math.inf)

    def _of(self, claim: HistoryEntry) -> Iterator[HistoryEntry]:
        """Return the acts on this claim, and those that perhaps were."""
        for act in self._acts[claim.uuid]:
            later = act.verb == Verb.CLAIM and (act.token or math.inf) > (claim.token or 0)
            own = act.verb in _ENDS | {Verb.EXTEND} and act.token in (None, claim.token)
            if (later or own) and act.outcome != "refused" and act.ended > claim.began:
                yield act


def over_the_limit(entries: Sequence[HistoryEntry], limits: Sequence[Limiting]) -> list[str]:
    """Claims that began although as many as a limit allows surely lived all the time, or had begun in its window."""
    claims = RecordedClaims(entries)
    faults: list[str] = []
    for limit in limits:
        others = [other for other in limits if (other.name, other.per) == (limit.name, limit.per)]
        ends = min((other.began for other in others if other.began > limit.began), default=math.inf)
        scopes: dict[str, list[HistoryEntry]] = defaultdict(list)
        for claim in claims.told:
            if (scope := claims.scope(limit, claim.uuid)) is not None:
                scopes[scope].append(claim)
        for scope, inside in scopes.items():
            bound = [claim for claim in inside if limit.ended < claim.began and claim.ended < ends]
            told = f"{limit.name!r}" + (f", group {scope!r}" if limit.per == "group" else "")
            if limit.concurrency is not None:
                since = _bound_since(limit, others)
                counted = [claim for claim in inside if since < claim.began]
                faults += _too_many_at_once(claims, counted, bound, limit.concurrency, told)
            if limit.rate is not None:
                faults += _too_many_within(bound, *limit.rate, told)
    return faults


def _bound_since(limit: Limiting, others: Sequence[Limiting]) -> float:
    """Return the time since which the scope has had a concurrency limit. Claims from before may stay uncounted."""
    since = limit.ended
    for earlier in sorted((other for other in others if other.began < limit.began), key=lambda other: -other.began):
        if earlier.concurrency is None:
            break
        since = earlier.ended
    return since


def _too_many_at_once(
    claims: RecordedClaims, counted: Sequence[HistoryEntry], bound: Sequence[HistoryEntry], most: int, told: str
) -> Iterator[str]:
    lived = [(claim.ended, claims.surely_until(claim), claim) for claim in counted]
    for claim in bound:
        # Those of one call begin together.
        call = (claim.process, claim.began, claim.ended)
        mates = sum((each.process, each.began, each.ended) == call for each in bound)
        others = sum(start <= claim.began and until >= claim.ended for start, until, _ in lived)
        if others + mates > most:
            yield f"over the limit: {claim.uuid}, by {claim.process}, beside {others + mates - 1} of {told}"


def _too_many_within(bound: Sequence[HistoryEntry], most: int, seconds: float, told: str) -> Iterator[str]:
    ordered = sorted(bound, key=lambda claim: claim.ended)
    for first in range(len(ordered) - most):
        some = ordered[first : first + most + 1]
        span = some[-1].ended - min(claim.began for claim in some)
        if span < seconds:
            yield f"over the limit: {some[-1].uuid}, by {some[-1].process}, one of {most + 1} in {span:.3f} s of {told}"


Scope = tuple[Limiting, str]
"""A limit, and the group of its jobs, or "" for all of them."""


class Crowds:
    """Jobs that perhaps had to wait for a slot."""

    def __init__(self, entries: Sequence[HistoryEntry], limits: Sequence[Limiting]) -> None:
        self._limits = limits
        self._claims = RecordedClaims(entries) if limits else None
        # Many jobs of a scope wait during one claim, and all find the same room.
        self._known: dict[tuple[Scope, float, float], float] = {}
        # Of the claims of a scope: when they began, when they were answered, and when they have perhaps ended.
        self._inside: dict[Scope, tuple[list[float], list[float], list[float]]] = {}

    def perhaps_full(self, uuid: str, began: float, ended: float) -> bool:
        """Return whether this job perhaps had to wait at some moment in between."""
        return any(room <= 0 for room in self.rooms(uuid, began, ended).values())

    def rooms(self, uuid: str, began: float, ended: float) -> dict[Scope, float]:
        """Return for how many more claims each scope of this job surely had room all the time in between."""
        if (claims := self._claims) is None:
            return {}
        limits = [limit for limit in self._limits if limit.began < ended]
        scopes = [(limit, group) for limit in limits if (group := claims.scope(limit, uuid)) is not None]
        for scope in scopes:
            if (scope, began, ended) not in self._known:
                self._known[scope, began, ended] = self._room(claims, scope, began, ended)
        return {scope: self._known[scope, began, ended] for scope in scopes}

    def _room(self, claims: RecordedClaims, scope: Scope, began: float, ended: float) -> float:
        limit, group = scope
        if scope not in self._inside:
            told = [(claim, until) for claim, until in claims.ends if claims.scope(limit, claim.uuid) == group]
            begun, answered = sorted(claim.began for claim, _ in told), sorted(claim.ended for claim, _ in told)
            self._inside[scope] = begun, answered, sorted(until for _, until in told)
        begun, answered, until = self._inside[scope]
        before = bisect.bisect_left(begun, ended)
        # Whatever a killed process has claimed without being told may be there, too.
        more = sum(claim.asked for claim in claims.nameless if claim.began < ended)
        room = math.inf
        if limit.concurrency is not None:
            room = limit.concurrency - (before - bisect.bisect_right(until, began)) - more
        if limit.rate is not None:
            most, seconds = limit.rate
            room = min(room, most - (before - bisect.bisect_right(answered, began - seconds)) - more)
        return room


class Pausing(NamedTuple):
    """A pause of ``names`` (None: all), or (``resumed``) its end, at some moment from ``began`` to ``ended``.
    To pause everything, and to resume it, is told without names."""

    began: float
    ended: float
    names: tuple[str, ...] | None
    resumed: bool = False
    outcome: Outcome = "ok"

    def covers(self, name: str) -> bool:
        return self.names is None or name in self.names


class LeftJob(NamedTuple):
    """A job as it was left on the board, or in its trash; COMPLETE: the outcome of a consumed job, with its result."""

    state: State
    token: int
    result: Any = None


Board = Mapping[str, LeftJob]


class Unseen(NamedTuple):
    """The free jobs that others may hold although no entry shows it.

    spare: how many jobs acts without entries may hold, such as the renewal of a claim that comes late. settles: the
    seconds from the beginning of an act without an answer within which it has happened, if it does, and its claims have
    lapsed. lingers: the seconds for which the server may keep the locks of a broken try of a call that was repeated and
    answered. A call that took no longer than :data:`SLOW` was not repeated after silence. beats: the seconds after an
    abandon for which a renewal of the claim that was sent before may hold the job."""

    spare: int = 0
    settles: float = math.inf
    lingers: float = 0.0
    beats: float = 0.0


NONE_UNSEEN = Unseen()

SLOW = 1.0
"""The shortest time of a call, in seconds, whose connection may have broken without the knowledge of the server."""


def judge(
    entries: Iterable[HistoryEntry],
    board: Board,
    *,
    contended: bool = False,
    pauses: Sequence[Pausing] = (),
    limits: Sequence[Limiting] = (),
    unseen: Unseen = NONE_UNSEEN,
) -> list[str]:
    """Run all checks of this module. ``contended``: as in :func:`disorder`."""
    history = sorted(entries, key=_when)
    return [
        *lost(history, board),
        *invented(history, board),
        *consumed_again(history, board),
        *lost_outcomes(history, board),
        *lost_results(history, board),
        *fallen_tokens(history, board),
        *stale_acts(history),
        *stopped_in_vain(history, board),
        *taken_too_early(history),
        *disorder(history, contended=contended, pauses=pauses, limits=limits, unseen=unseen),
        *empty_answers(history, board, pauses=pauses, limits=limits, unseen=unseen),
        *claimed_while_paused(history, pauses),
        *over_the_limit(history, limits),
        *posted_twice(history),
    ]


def lost(entries: Sequence[HistoryEntry], board: Board) -> list[str]:
    """Jobs whose post was acknowledged, that nobody took off, and that are not there."""
    gone = {entry.uuid for entry in _happened(entries, Verb.CONSUME, Verb.PURGE, perhaps=True)}
    return [
        f"lost: {post.uuid}, posted by {post.process}"
        for post in _happened(entries, Verb.POST)
        if post.uuid not in gone and post.uuid not in board
    ]


def invented(entries: Sequence[HistoryEntry], board: Board) -> list[str]:
    """Jobs that nobody posted."""
    posted = {entry.uuid for entry in _happened(entries, Verb.POST, perhaps=True)}
    posted |= {entry.uuid for entry in entries if entry.occasion is not None}
    seen = {entry.uuid for entry in entries if entry.verb != Verb.POST and entry.outcome == "ok"} | set(board)
    strangers = sorted(seen - posted)
    unanswered = sum(entry.verb == Verb.POST and not entry.uuid for entry in entries)
    return [f"invented: {uuid}" for uuid in strangers] if len(strangers) > unanswered else []


def consumed_again(entries: Sequence[HistoryEntry], board: Board) -> list[str]:
    """Jobs that were consumed twice, or that came back after they had been consumed."""
    faults = []
    first: dict[str, HistoryEntry] = {}
    for entry in _happened(entries, Verb.CONSUME):
        before = first.setdefault(entry.uuid, entry)
        if before is not entry:
            faults.append(f"consumed twice: {entry.uuid}, by {before.process} and by {entry.process}")
    for entry in _happened(entries, Verb.CLAIM):
        end = first.get(entry.uuid)
        if end is not None and entry.began > end.ended:
            faults.append(f"claimed after it was consumed: {entry.uuid}, by {entry.process}")
    faults += [f"consumed and still there: {uuid}" for uuid in first if uuid in board and not _is_outcome(board, uuid)]
    return faults


def posted_twice(entries: Sequence[HistoryEntry]) -> list[str]:
    """Due times of schedules for which there have been several jobs."""
    jobs: dict[str, set[str]] = defaultdict(set)
    for entry in entries:
        if entry.occasion is not None:
            jobs[entry.occasion].add(entry.uuid)
    return [
        f"posted twice for a due time: {occasion}, as {' and '.join(sorted(uuids))}"
        for occasion, uuids in sorted(jobs.items())
        if len(uuids) > 1
    ]


def lost_outcomes(entries: Sequence[HistoryEntry], board: Board) -> list[str]:
    """Jobs that were to leave an outcome, and have left none; and outcomes of jobs that nobody has consumed so. The
    board was read before any outcome expired. An outcome that was perhaps purged may be absent."""
    consumed = _happened(entries, Verb.CONSUME, perhaps=True)
    told = {entry.uuid for entry in consumed if entry.keeps and entry.outcome == "ok"}
    told -= {entry.uuid for entry in _happened(entries, Verb.PURGE, perhaps=True)}
    may = {entry.uuid for entry in consumed if entry.keeps}
    return [f"outcome lost: {uuid}" for uuid in sorted(told) if not _is_outcome(board, uuid)] + [
        f"outcome of a job that nobody has consumed: {uuid}"
        for uuid in board
        if _is_outcome(board, uuid) and uuid not in may
    ]


def lost_results(entries: Sequence[HistoryEntry], board: Board) -> list[str]:
    """Outcomes with another result than the acknowledged consume of the job has given, or (without such a consume) than
    any consume that perhaps happened. An absent outcome is a fault of :func:`lost_outcomes`."""
    told: dict[str, list[HistoryEntry]] = defaultdict(list)
    for entry in _happened(entries, Verb.CONSUME, perhaps=True):
        told[entry.uuid].append(entry)
    faults = []
    for uuid, consumes in told.items():
        sure = [consume for consume in consumes if consume.outcome == "ok"]
        given = [consume.result for consume in sure or consumes]
        if _is_outcome(board, uuid) and board[uuid].result not in given:
            found, wanted = board[uuid].result, " or ".join(map(repr, given))
            faults.append(f"result lost: {uuid} has {found!r}, and not {wanted} of {(sure or consumes)[0].process}")
    return faults


def _is_outcome(board: Board, uuid: str) -> bool:
    return uuid in board and board[uuid].state == State.COMPLETE


def fallen_tokens(entries: Sequence[HistoryEntry], board: Board) -> list[str]:
    """Claims whose token does not rise above that of an earlier claim of the same job."""
    faults = []
    for uuid, claims in _by_job(_happened(entries, Verb.CLAIM)).items():
        highest = -math.inf
        for earlier, later in _pairs_in_time(claims):
            if (later.token or 0) <= (earlier.token or 0):
                faults.append(f"token fell: {uuid}, from {earlier.token} to {later.token}")
        for claim in claims:
            highest = max(highest, claim.token or 0)
        if len({claim.token for claim in claims}) < len(claims):
            faults.append(f"token given twice: {uuid}")
        left = board.get(uuid)
        if left is not None and left.token < highest:
            faults.append(f"token fell: {uuid}, from {highest} to {left.token} on the board")
    return faults


def stale_acts(entries: Sequence[HistoryEntry]) -> list[str]:
    """Acts of a claim that were accepted after a later claim of the job, after the claim's own end, or after somebody
    had taken the job away."""
    faults = []
    takes = _by_job(_happened(entries, *_TAKES))
    acts = _by_job(_happened(entries, Verb.EXTEND, *FINISHES))
    claims = _by_job(_happened(entries, Verb.CLAIM))
    for uuid, accepted in acts.items():
        for act in accepted:
            if act.token is None:
                continue
            if any((c.token or 0) > act.token and c.ended < act.began for c in claims.get(uuid, ())):
                faults.append(f"stale {act.verb} accepted: {uuid}, token {act.token} of {act.process}")
            if any(
                other.token == act.token and other.verb != Verb.EXTEND and other.ended < act.began for other in accepted
            ):
                faults.append(f"{act.verb} after the claim's end: {uuid}, token {act.token} of {act.process}")
            began = [c.ended for c in claims.get(uuid, ()) if c.token == act.token]
            faults += [
                f"{act.verb} after a {take.verb}: {uuid}, token {act.token} of {act.process}"
                for take in takes.get(uuid, ())
                if any(ended < take.began for ended in began) and take.ended < act.began
            ]
    return faults


def stopped_in_vain(entries: Sequence[HistoryEntry], board: Board) -> list[str]:
    """Stopped jobs that were consumed, claimed or left on the board, although nobody can have restored them before."""
    faults = []
    for uuid, history in _by_job(entries).items():
        for stop in _happened(history, Verb.STOP):
            restores = _happened(history, Verb.RESTORE, perhaps=True)
            back = min((each.began for each in restores if each.ended > stop.began), default=math.inf)
            for act in _happened(history, Verb.CLAIM, Verb.CONSUME):
                # Either the consume or the stop has found the job gone.
                never = act.verb == Verb.CONSUME and math.isinf(back)
                if never or (stop.ended < act.began and act.ended < back):
                    faults.append(f"stopped, and a {act.verb} accepted: {uuid}, by {act.process}")
            left = board.get(uuid)
            if left is not None and left.state != State.TRASHED and math.isinf(back):
                faults.append(f"stopped, and left {left.state}: {uuid}")
    return faults


def taken_too_early(entries: Sequence[HistoryEntry]) -> list[str]:
    """Claims of a job that another surely still held: its lease had not run out, and nothing had ended it."""
    faults = []
    for uuid, history in _by_job(entries).items():
        claims = _happened(history, Verb.CLAIM)
        for earlier, later in _pairs_in_time(claims):
            ends = [e for e in _happened(history, *_ENDS, perhaps=True) if e.ended > earlier.began]
            if any(end.began < later.ended and end.token in (None, earlier.token) for end in ends):
                continue
            extended = [
                e
                for e in _happened(history, Verb.EXTEND, perhaps=True)
                if e.token in (None, earlier.token) and e.began < later.ended
            ]
            told = [e for e in extended if e.outcome == "ok" and e.ended < later.began]
            if len(told) < len(extended):
                continue  # an extend that overlaps the later claim, or that nobody was told about
            held = max(told, key=lambda entry: entry.began, default=earlier)
            if held.until is not None and held.until > later.ended:
                faults.append(
                    f"taken too early: {uuid}, {held.until - later.ended:.3f} s before the lease of {earlier.process} "
                    f"ended, by {later.process}"
                )
    return faults


def disorder(
    entries: Sequence[HistoryEntry],
    *,
    contended: bool = False,
    pauses: Sequence[Pausing] = (),
    limits: Sequence[Limiting] = (),
    unseen: Unseen = NONE_UNSEEN,
) -> list[str]:
    """Claims for which the board chose a job although a better one had surely been waiting all the time.

    Better: of a higher priority, or of the same and surely posted earlier. It waits from its post, or from when its
    holder gave it back, until somebody touches it: what lapses and comes due is judged by tests of its own. Any job may
    have been touched by a claim that was never answered. What was perhaps paused, or had to wait for a limit, is passed
    over.

    :param contended: judge claims that overlap others, too. A job that one of the others took was not waiting all the
        time; a job that none of them took was. With ``limits``, or where something is paused or resumed during it, an
        overlapping call may also have held the job for a moment.
    """
    unanswered = (entry.began for entry in entries if entry.verb == Verb.CLAIM and entry.outcome == "unknown")
    doubtful = min(unanswered, default=math.inf)
    posts: dict[str, HistoryEntry] = {}
    for entry in _happened(entries, Verb.POST):
        # A post that finds its key taken returns a job that has its place already.
        posts.setdefault(entry.uuid, entry)
    jobs = {uuid: history for uuid, history in _by_job(entries).items() if uuid in posts}
    waits = _Periods((*wait, posts[uuid]) for uuid, history in jobs.items() for wait in _waits(history, unseen))
    claims = _happened(entries, Verb.CLAIM, perhaps=True)

    def may_let_go(call: HistoryEntry) -> bool:
        """Return whether a call may have held jobs that it looked at, and found no room, or a pause since its look."""
        return bool(limits) or any(act.began < call.ended and call.began < act.ended for act in pauses)

    refused = (entry for entry in entries if entry.verb == Verb.CLAIM and entry.outcome == "refused")
    claims += filter(may_let_go, refused)
    claims.sort(key=_when)
    crowds = Crowds(entries, limits)
    faults = []
    for claim in claims if contended else _alone(claims):
        post = posts.get(claim.uuid)
        if post is None or not claim.chosen or claim.outcome != "ok" or claim.ended > doubtful:
            continue
        place = (post.rank, post.began)
        ahead = [
            better
            for since, until, better in waits.over(claim.began, claim.ended)
            if since < claim.began and claim.ended < until and (better.rank, better.ended) < place
        ]
        for better in sorted(ahead, key=lambda each: (each.rank, each.ended)):
            if claim.among is not None and better.name not in claim.among:
                continue
            if _paused(better.name, claim, pauses, perhaps=True):
                continue
            if crowds.perhaps_full(better.uuid, claim.began, claim.ended):
                continue
            if any(_may_hold(call, better, claim) and may_let_go(call) for call in claims):
                continue
            faults.append(f"out of order: {claim.uuid} was served while {better.uuid} was waiting")
            break
    return faults


def empty_answers(
    entries: Sequence[HistoryEntry],
    board: Board,
    *,
    pauses: Sequence[Pausing] = (),
    limits: Sequence[Limiting] = (),
    unseen: Unseen = NONE_UNSEEN,
    short: bool = False,
) -> list[str]:
    """Claims that got no job, although more jobs were free during the whole call than others can have held meanwhile.

    A job is free from its post, or from when its holder gave it back at once, until any recorded act touches it. Acts
    in open transactions of callers, acts without an answer and refused acts touch their jobs as well. Its name was not
    paused at any moment of the call. Of the jobs of a limit only so many count as there surely was room for.

    Each other call that overlaps may hold as many of the free jobs as it asked for. So may each claim without an
    answer, from its beginning on. A post of a key without an answer may have met one job, and hold that job.

    A job that nobody is known to have touched later has to be UNCLAIMED on the board. And before a restore or a purge
    the job was in the trash: a claim without an answer may have used up its attempts.

    Other jobs prove nothing: those that came free by a lapse, a due time, a release or a restore; those that a refused
    act has just let go; those of a limit that was perhaps full. Neither does a call with a condition (``where``), nor
    one that its caller could end (``unless``). Thus a fault that makes calls miss only such jobs is not seen here.

    :param short: judge calls that got fewer jobs than they asked for, too. No call has to get all of them at once.
    """
    calls = [entry for entry in entries if entry.verb == Verb.CLAIM and not entry.uuid]
    got: dict[tuple[str, float, float], int] = defaultdict(int)
    for claim in _happened(entries, Verb.CLAIM):
        got[claim.process, claim.began, claim.ended] += 1
    posts = {uuid: post for uuid, post in _named_posts(_happened(entries, Verb.POST)).items() if post.name}
    jobs = {uuid: history for uuid, history in _by_job(entries).items() if uuid in posts}
    free = _Periods(
        (*wait, uuid) for uuid, history in jobs.items() for wait in _sure_waits(history, board.get(uuid), unseen)
    )
    unanswered = (entry for entry in entries if entry.verb == Verb.POST and not entry.uuid)
    held = _Periods((call.began, _held_until(call, unseen), call) for call in (*calls, *unanswered))
    crowds = Crowds(entries, limits)
    faults = []
    for call in sorted(calls, key=_when):
        answered = got[call.process, call.began, call.ended]
        if call.outcome != "refused" or not call.chosen or answered >= (call.asked if short else 1):
            continue
        waiting = sorted(
            uuid
            for since, until, uuid in free.over(call.began, call.ended)
            if since < call.began
            and call.ended < until
            and (call.among is None or posts[uuid].name in call.among)
            and not _paused(posts[uuid].name, call, pauses, perhaps=True)
        )
        found = []
        left: dict[Scope, float] = {}
        for uuid in waiting:
            rooms = crowds.rooms(uuid, call.began, call.ended)
            left = rooms | left
            if all(left[scope] > 0 for scope in rooms):
                left |= {scope: left[scope] - 1 for scope in rooms}
                found.append(uuid)
        others = (
            sum(other.asked for _, _, other in held.over(call.began, call.ended) if other is not call) + unseen.spare
        )
        if len(found) > others:
            what = f"short answer: {answered} of {call.asked}" if answered else "empty answer"
            when = f"to {call.process} at {call.began:.6f} to {call.ended:.6f}"
            faults.append(f"{what} {when}, beside {len(found)} free jobs, of which others held {others}: {found[0]}")
    return faults


def _held_until(call: HistoryEntry, unseen: Unseen) -> float:
    """Return the end of the time in which a call may hold free jobs."""
    if call.outcome == "unknown":
        return min(call.ended, call.began + unseen.settles)
    return call.ended + unseen.lingers if call.ended - call.began > SLOW else call.ended


def _sure_waits(history: Sequence[HistoryEntry], left: LeftJob | None, unseen: Unseen) -> Iterator[tuple[float, float]]:
    """Find times as :func:`_waits` does, without those at whose end the job was perhaps in the trash."""
    acts = sorted((entry for entry in history if entry.outcome != "refused"), key=_when)
    begun = [act.began for act in acts]
    for since, until in _waits(history, unseen):
        ends = bisect.bisect_left(begun, until)
        if ends == len(acts):
            stays = left is not None and left.state == State.UNCLAIMED
        else:
            stays = acts[ends].verb not in (Verb.RESTORE, Verb.PURGE)
        if stays:
            yield since, until


T = TypeVar("T")


class _Periods(Generic[T]):
    """Periods of time, each with a thing. They are asked for in the order of time, and forgotten when they are over."""

    def __init__(self, spans: Iterable[tuple[float, float, T]]) -> None:
        self._coming = sorted(spans, key=lambda span: span[0], reverse=True)
        self._begun: list[tuple[float, int, tuple[float, float, T]]] = []

    def over(self, began: float, ended: float) -> Iterator[tuple[float, float, T]]:
        """Yield the spans that overlap a time, which begins no earlier than those asked for before."""
        while self._coming and self._coming[-1][0] < ended:
            span = self._coming.pop()
            heapq.heappush(self._begun, (span[1], len(self._coming), span))
        while self._begun and self._begun[0][0] <= began:
            heapq.heappop(self._begun)
        return (span for _, _, span in self._begun if span[0] < ended)


def _may_hold(call: HistoryEntry, job: HistoryEntry, claim: HistoryEntry) -> bool:
    """Return whether another call may have held a job, without taking it, while a claim passed over this job."""
    is_another = (call.process, call.began) != (claim.process, claim.began)
    looks = call.chosen or call.outcome == "refused"
    overlaps = call.began < claim.ended and claim.began < call.ended
    return is_another and looks and overlaps and (call.among is None or job.name in call.among)


def _waits(history: Sequence[HistoryEntry], unseen: Unseen = NONE_UNSEEN) -> list[tuple[float, float]]:
    """Find a time in which one job could surely be claimed, and was not. A refused act may hold the job, too."""
    done = [entry for entry in history if entry.outcome != "refused"]
    found: list[tuple[float, float]] = []
    for begin in done:
        if begin.outcome != "ok" or not begin.ready:
            continue
        # Whoever has it next may have ended that, too, by the time at which this act is answered.
        if begin.verb == Verb.POST:
            touched = (entry.began for entry in done if entry is not begin)
        elif begin.verb == Verb.ABANDON and begin.token is not None:
            touched = (e.began for e in done if e.ended > begin.began and e.token != begin.token)
        else:
            continue
        since = begin.ended + (unseen.beats if begin.verb == Verb.ABANDON else 0)
        found.append((since, min(touched, default=math.inf)))
    for act in history:
        if act.outcome == "refused":
            found = [
                part
                for since, until in found
                for part in ((since, min(until, act.began)), (max(since, act.ended), until))
                if part[0] < part[1]
            ]
    return found


def claimed_while_paused(entries: Sequence[HistoryEntry], pauses: Sequence[Pausing]) -> list[str]:
    """Claims that began when jobs of that name were surely paused, and ended before anybody resumed them."""
    names = {uuid: post.name for uuid, post in _named_posts(_happened(entries, Verb.POST)).items()}
    return [
        f"claimed while paused: {claim.uuid}, by {claim.process}"
        for claim in _happened(entries, Verb.CLAIM)
        if claim.uuid in names and _paused(names[claim.uuid], claim, pauses)
    ]


def _named_posts(entries: Sequence[HistoryEntry]) -> dict[str, HistoryEntry]:
    """Return a post of each job, with its name and group if any post shows them."""
    posts = (entry for entry in entries if entry.verb == Verb.POST)
    return {post.uuid: post for post in sorted(posts, key=lambda post: post.name != "")}


def _paused(name: str, claim: HistoryEntry, pauses: Sequence[Pausing], *, perhaps: bool = False) -> bool:
    """Return whether jobs of this name were surely paused all through a claim; or ``perhaps`` at some moment of it."""
    for pause in pauses:
        if pause.resumed or not pause.covers(name) or (pause.outcome == "unknown" and not perhaps):
            continue
        ends = [each for each in pauses if each.resumed and each.covers(name) and each.ended > pause.began]
        if pause.names is None:
            # A switch of its own.
            ends = [each for each in ends if each.names is None]
        if perhaps:
            over = any(each.outcome == "ok" and pause.ended < each.began and each.ended < claim.began for each in ends)
            if pause.began < claim.ended and not over:
                return True
        elif pause.ended < claim.began and not any(each.began < claim.ended for each in ends):
            return True
    return False


def left_over(board: Board) -> list[str]:
    """Return faults of a drained board that still holds jobs."""
    return [f"left {left.state}: {uuid}" for uuid, left in board.items() if left.state in LIVE]


def _happened(entries: Iterable[HistoryEntry], *verbs: Verb, perhaps: bool = False) -> list[HistoryEntry]:
    """Return the entries of these verbs that took effect, ``perhaps`` with those of unknown outcome."""
    outcomes = ("ok", "unknown") if perhaps else ("ok",)
    return [entry for entry in entries if entry.verb in verbs and entry.uuid and entry.outcome in outcomes]


def _when(entry: HistoryEntry) -> tuple[float, float]:
    return entry.began, entry.ended


def _by_job(entries: Iterable[HistoryEntry]) -> dict[str, list[HistoryEntry]]:
    jobs: dict[str, list[HistoryEntry]] = defaultdict(list)
    for entry in entries:
        jobs[entry.uuid].append(entry)
    return jobs


def _pairs_in_time(entries: Sequence[HistoryEntry]) -> list[tuple[HistoryEntry, HistoryEntry]]:
    """Each entry with the next one that surely came after it."""
    ordered = sorted(entries, key=_when)
    pairs = []
    for index, earlier in enumerate(ordered):
        later = next((entry for entry in ordered[index + 1 :] if entry.began > earlier.ended), None)
        if later is not None:
            pairs.append((earlier, later))
    return pairs


def _alone(claims: Sequence[HistoryEntry]) -> list[HistoryEntry]:
    """Return the claims that overlap no other. Claims of one process with the same times are one act, a batch."""
    found: list[HistoryEntry] = []
    reached = -math.inf
    spans: dict[tuple[str, float, float], list[HistoryEntry]] = defaultdict(list)
    for claim in claims:
        spans[claim.process, claim.began, claim.ended].append(claim)
    groups = sorted(spans.values(), key=lambda group: group[0].began)
    for index, group in enumerate(groups):
        first = group[0]
        following = groups[index + 1][0].began if index + 1 < len(groups) else math.inf
        if first.began > reached and first.ended < following:
            found += group
        reached = max(reached, first.ended)
    return found
