"""What a history tells of limits: a part of :mod:`jobboard.testing.history`, which has the entries."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from jobboard.states import FINISHES, Verb

if TYPE_CHECKING:
    from jobboard.testing.history import HistoryEntry

_ENDS = FINISHES | {Verb.RELEASE}


class Limiting(NamedTuple):
    """That a limit was set at some moment from ``began`` to ``ended``: how many claims may live at once, and how many
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
        self._posts = {entry.uuid: entry for entry in entries if entry.verb == Verb.POST}
        self._acts: dict[str, list[HistoryEntry]] = defaultdict(list)
        self._seen: dict[str, float] = defaultdict(lambda: -math.inf)
        for entry in entries:
            self._acts[entry.uuid].append(entry)
            last = entry.began if math.isinf(entry.ended) else entry.ended
            self._seen[entry.process] = max(self._seen[entry.process], last)
        self.told = [entry for entry in entries if entry.verb == Verb.CLAIM and entry.uuid and entry.outcome == "ok"]
        self.nameless = [entry for entry in entries if entry.verb == Verb.CLAIM and entry.outcome == "unknown"]

    def scope(self, limit: Limiting, uuid: str) -> str | None:
        """Which of the limit's scopes a job is in: its group, or "" of all of them."""
        post = self._posts.get(uuid)
        if post is None or not limit.binds(post):
            return None
        return post.group if limit.per == "group" else ""

    def surely_until(self, claim: HistoryEntry) -> float:
        """Until when it has lived, if it has at its end."""
        until = self._seen[claim.process] if claim.until is None else claim.until
        for act in sorted(self._of(claim), key=lambda act: act.began):
            if act.verb != Verb.EXTEND or act.outcome == "unknown":
                until = min(until, act.began)
            elif act.ended <= until:
                until = self._seen[act.process] if act.until is None else act.until
        return until

    def perhaps_until(self, claim: HistoryEntry) -> float:
        """Until when it has lived at most."""
        ends = (act for act in self._of(claim) if act.verb != Verb.EXTEND and act.outcome == "ok")
        # What is made without a token may have come before a claim that it overlaps.
        ended = (act.ended for act in ends if act.token is not None or act.began >= claim.ended)
        return min(ended, default=math.inf)

    def _of(self, claim: HistoryEntry) -> Iterator[HistoryEntry]:
        """What was done with this claim, or to it, perhaps."""
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


class Crowds:
    """Which jobs perhaps had to wait for a slot."""

    def __init__(self, entries: Sequence[HistoryEntry], limits: Sequence[Limiting]) -> None:
        self._limits = limits
        self._claims = RecordedClaims(entries) if limits else None
        # Many jobs of a scope wait during one claim, and all find it as full.
        self._known: dict[tuple[Limiting, str, float, float], bool] = {}
        self._inside: dict[tuple[Limiting, str], list[tuple[HistoryEntry, float]]] = {}

    def perhaps_full(self, uuid: str, began: float, ended: float) -> bool:
        """Whether this job perhaps had to at some moment in between."""
        return any(self._full(limit, uuid, began, ended) for limit in self._limits if limit.began < ended)

    def _full(self, limit: Limiting, uuid: str, began: float, ended: float) -> bool:
        claims = self._claims
        if claims is None or (scope := claims.scope(limit, uuid)) is None:
            return False
        asked = (limit, scope, began, ended)
        if asked not in self._known:
            self._known[asked] = self._found_full(claims, *asked)
        return self._known[asked]

    def _found_full(self, claims: RecordedClaims, limit: Limiting, scope: str, began: float, ended: float) -> bool:
        if (limit, scope) not in self._inside:
            told = (claim for claim in claims.told if claims.scope(limit, claim.uuid) == scope)
            self._inside[limit, scope] = [(claim, claims.perhaps_until(claim)) for claim in told]
        inside = [(claim, until) for claim, until in self._inside[limit, scope] if claim.began < ended]
        # Whatever a killed process has claimed without being told may be there, too.
        more = sum(claim.began < ended for claim in claims.nameless)
        if limit.concurrency is not None:
            living = sum(until > began for _, until in inside)
            if living + more >= limit.concurrency:
                return True
        if limit.rate is None:
            return False
        most, seconds = limit.rate
        return sum(claim.ended > began - seconds for claim, _ in inside) + more >= most
