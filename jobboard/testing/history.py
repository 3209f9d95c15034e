"""What happened on a board: entries of what its users did and saw, and pure checks of the promises over all of them.

Every process writes down its own acts, each with the moments at which it began and ended on a clock that the processes
share (:func:`jobboard.job.boottime` on one machine). :func:`judge` takes the merged entries and the board as it was
left, and answers what no order of events that the entries allow can explain: a list of faults, empty if all is well. A
fault is only reported where the entries prove it, so that two acts that overlap in time accuse nobody.

Nothing here reads a clock or a file, and nothing here talks to a board.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from jobboard.states import FINISHES, LIVE, State, Verb
from jobboard.testing.limited import Crowds, Limiting, over_the_limit

Outcome = Literal["ok", "refused", "unknown"]
"""``ok``: acknowledged. ``refused``: it surely did not happen. ``unknown``: nobody was told, as the process died or its
retries ran out."""

_ENDS = FINISHES | {Verb.RELEASE}


class HistoryEntry(NamedTuple):
    """One act of one process on one job, which happened (if it did) at some moment from ``began`` to ``ended``.

    ``token`` is the one that a claim got, or that an act was made with. ``until`` is the moment before which nobody
    else may have the job, as a claim or an extend told its holder: None for a claim that is kept without a lease.
    ``rank`` (of the priority, 0 first), ``name`` and ``group`` go with a post; ``ready`` (claimable at once) with that
    and with an abandon. ``chosen``: the board chose this job for a claim, out of all of them, or of those ``among``
    these names. ``uuid`` is empty where a post or a claim was never answered. ``keeps``: a consume that leaves an
    outcome. ``occasion``, of a job that a schedule has posted: which schedule it was, and for which due time.
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

    def as_dict(self) -> dict[str, Any]:
        """A map of JSON's shape, for :meth:`from_dict`."""
        return self._asdict()

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> HistoryEntry:
        return cls(**{**given, "verb": Verb(given["verb"])})


class Pausing(NamedTuple):
    """That ``names`` (None: all) were paused, or (``resumed``) no longer, at some moment from ``began`` to ``ended``.
    To pause everything, and to resume it, is told without names."""

    began: float
    ended: float
    names: tuple[str, ...] | None
    resumed: bool = False
    outcome: Outcome = "ok"

    def covers(self, name: str) -> bool:
        return self.names is None or name in self.names


class LeftJob(NamedTuple):
    """A job as it was left on the board, or in its trash; COMPLETE: what a consumed one has left."""

    state: State
    token: int


Board = Mapping[str, LeftJob]


def judge(
    entries: Iterable[HistoryEntry],
    board: Board,
    *,
    contended: bool = False,
    pauses: Sequence[Pausing] = (),
    limits: Sequence[Limiting] = (),
) -> list[str]:
    """All the checks of this module. ``contended``: as in :func:`disorder`."""
    history = sorted(entries, key=_when)
    return [
        *lost(history, board),
        *invented(history, board),
        *consumed_again(history, board),
        *lost_outcomes(history, board),
        *fallen_tokens(history, board),
        *stale_acts(history),
        *taken_too_early(history),
        *disorder(history, contended=contended, pauses=pauses, limits=limits),
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
    """Jobs that were to leave an outcome, and have left none; and outcomes of jobs that nobody has consumed so."""
    consumed = _happened(entries, Verb.CONSUME, perhaps=True)
    told = {entry.uuid for entry in consumed if entry.keeps and entry.outcome == "ok"}
    may = {entry.uuid for entry in consumed if entry.keeps}
    return [f"outcome lost: {uuid}" for uuid in sorted(told) if not _is_outcome(board, uuid)] + [
        f"outcome of a job that nobody has consumed: {uuid}"
        for uuid in board
        if _is_outcome(board, uuid) and uuid not in may
    ]


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
    """Acts of a claim that were accepted after a later claim of the job, or after the claim's own end."""
    faults = []
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
) -> list[str]:
    """Claims for which the board chose a job although a better one had surely been waiting all the time.

    Better: of a higher priority, or of the same and surely posted earlier. It waits from its post, or from when its
    holder gave it back, until somebody touches it: what lapses and comes due is judged by tests of its own. Any job may
    have been touched by a claim that was never answered. What was perhaps paused, or had to wait for a limit, is passed
    over.

    :param contended: judge claims that overlap others, too. What one of those took was not waiting all the time; what
        none of them took was.
    """
    unanswered = (entry.began for entry in entries if entry.verb == Verb.CLAIM and entry.outcome == "unknown")
    doubtful = min(unanswered, default=math.inf)
    posts: dict[str, HistoryEntry] = {}
    for entry in _happened(entries, Verb.POST):
        # A post that finds its key taken returns a job that has its place already.
        posts.setdefault(entry.uuid, entry)
    waits = {uuid: _waits(history) for uuid, history in _by_job(entries).items() if uuid in posts}
    ordered = sorted(posts.values(), key=lambda post: (post.rank, post.ended))
    claims = _happened(entries, Verb.CLAIM, perhaps=True)
    if limits:
        # Who found no room may have held what it looked at.
        claims += [entry for entry in entries if entry.verb == Verb.CLAIM and entry.outcome == "refused"]
    claims.sort(key=_when)
    crowds = Crowds(entries, limits)
    faults = []
    for claim in claims if contended else _alone(claims):
        post = posts.get(claim.uuid)
        if post is None or not claim.chosen or claim.outcome != "ok" or claim.ended > doubtful:
            continue
        for better in ordered:
            if (better.rank, better.ended) >= (post.rank, post.began):
                break
            if claim.among is not None and better.name not in claim.among:
                continue
            if _paused(better.name, claim, pauses, perhaps=True):
                continue
            if any(since < claim.began and claim.ended < until for since, until in waits[better.uuid]):
                if crowds.perhaps_full(better.uuid, claim.began, claim.ended):
                    continue
                faults.append(f"out of order: {claim.uuid} was served while {better.uuid} was waiting")
                break
    return faults


def _waits(history: Sequence[HistoryEntry]) -> list[tuple[float, float]]:
    """From when until when one job could surely be claimed, and was not. An act that is refused may hold it, too."""
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
        found.append((begin.ended, min(touched, default=math.inf)))
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
    names = {entry.uuid: entry.name for entry in _happened(entries, Verb.POST)}
    return [
        f"claimed while paused: {claim.uuid}, by {claim.process}"
        for claim in _happened(entries, Verb.CLAIM)
        if claim.uuid in names and _paused(names[claim.uuid], claim, pauses)
    ]


def _paused(name: str, claim: HistoryEntry, pauses: Sequence[Pausing], *, perhaps: bool = False) -> bool:
    """Whether jobs of this name were paused all through a claim, for sure; or ``perhaps`` at some moment of it."""
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
    """What a drained board should not hold any more."""
    return [f"left {left.state}: {uuid}" for uuid, left in board.items() if left.state in LIVE]


def _happened(entries: Iterable[HistoryEntry], *verbs: Verb, perhaps: bool = False) -> list[HistoryEntry]:
    """The entries of these verbs that took effect, ``perhaps`` with those of which nobody knows."""
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
    """The claims that overlap no other one. Claims of one process with the same times are one act, a batch."""
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
