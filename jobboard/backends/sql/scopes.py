"""How what a limit counts of a scope is stored, so that a statement can count it, too: ``uuid token,`` for each claim,
then ``µs;`` for each start. Claims of jobs that this library has posted have one length, and a list of nothing else has
a multiple of it, as no other list has."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from jobboard.backends.sql.tables import place_of
from jobboard.engine import Limits, LimitScope, Listed, Side
from jobboard.primitives import Finish
from jobboard.states import Record

UUID, TOKEN = 36, 16
ENTRY = UUID + TOKEN + 2
"""How long a claim is. All tokens have so many digits from 2001 to 2286."""

NEWLINE = sa.literal_column("chr(10)", sa.String)

PROBED = 20
"""Of how many claims one statement finds out whether they live."""


def stored(side: Side, value: bytes) -> bytes:
    """A value of this scope as it lies in its row; what is damaged as it is."""
    try:
        listed = Listed.read(side._replace(value=value))
    except ValueError:
        return value
    claims = [entry(uuid, token) for uuid, token in listed.claims]
    text = "".join([*claims, *(f"{start};" for start in listed.starts)])
    if len(text) % ENTRY == 0 and (listed.starts or any(len(claim) != ENTRY for claim in claims)):
        # A statement takes what has such a length for so many claims: two with short uuids would be one.
        text = "," + text
    return text.encode()


def shown(value: bytes) -> bytes | None:
    """The value of a scope, from what lies in its row."""
    claims, _, starts = value.decode(errors="replace").rpartition(",")
    try:
        listed = [each.split(" ") for each in claims.split(",") if each]
        began = starts.split(";")
        if began.pop():
            return value
        return Listed(tuple((uuid, int(token)) for uuid, token in listed), tuple(map(int, began))).packed()
    except ValueError:
        return value


def entry(uuid: str, token: int) -> str:
    return f"{uuid} {token},"


def group_key(job: Any) -> sa.ColumnElement[str]:
    """The key of the scope of a job's group; see :meth:`jobboard.engine.limits.Limits.scopes`."""
    return job.name + NEWLINE + job.job_group  # type: ignore[no-any-return]


def rules_of(limits: Limits, names: Sequence[str] | None) -> tuple[int, dict[str, object]]:
    """How many limits these names have, None: all; and these as parameters of a statement, with 0 instead of those that
    it can't decide about."""
    rules: list[dict[str, object]] = [
        {
            "name": limit.name,
            "per_group": limit.per == "group",
            "most": limit.concurrency if limit.rate is None else 0,
        }
        for limit in limits.among(names)
    ]
    if len(rules) != 1:
        return len(rules), {"p_rules": json.dumps(rules)}
    [rule] = rules
    return 1, {"p_rule_name": rule["name"], "p_per_group": rule["per_group"], "p_most": rule["most"]}


def entries_of(limits: Limits, claims: Sequence[Record]) -> list[dict[str, object]] | None:
    """What these claims add to the lists of their scopes, as parameters, with how long a list may be before; None where
    its length alone does not tell whether there is room."""
    entering: dict[LimitScope, list[str]] = {}
    for claim in claims:
        for scope in limits.scopes(claim):
            entering.setdefault(scope, []).append(entry(claim.uuid, claim.token))
    entries: list[dict[str, object]] = []
    for (key, limit), parts in entering.items():
        room = ((limit.concurrency or 0) - len(parts)) * ENTRY
        if limit.rate is not None or room < 0 or any(len(part) != ENTRY for part in parts):
            return None
        entries.append({"p_place": place_of(key), "p_key": key, "p_part": "".join(parts), "p_room": room})
    return entries


def exits(acts: Sequence[Finish], scopes: Mapping[str, Sequence[LimitScope]]) -> Iterator[tuple[LimitScope, str]]:
    """Each scope that one of these claims leaves, and what is taken from its list: a rate alone lists none."""
    for act in acts:
        for scope in scopes.get(act.uuid, ()):
            if scope.limit.concurrency is not None:
                yield scope, entry(act.uuid, act.holder.token or 0)


def exits_of(acts: Sequence[Finish], scopes: Mapping[str, Sequence[LimitScope]]) -> tuple[int, dict[str, object]]:
    """How many scopes these claims leave; and as parameters what is taken from each list, and how long it is afterwards
    if it was full."""
    leaving: dict[str, dict[str, Any]] = {}
    for scope, part in exits(acts, scopes):
        left = leaving.get(scope.key)
        if left is None:
            size = (scope.limit.concurrency or 0) * ENTRY
            left = leaving[scope.key] = {"place": place_of(scope.key), "key": scope.key, "part": "", "size": size}
        left["part"] += part
        left["size"] -= ENTRY
    if len(leaving) > 1 or len(acts) > 1:
        return len(leaving), {"p_exits": json.dumps([*leaving.values()])}
    return len(leaving), {f"p_{name}": left[name] for left in leaving.values() for name in ("place", "part", "size")}
