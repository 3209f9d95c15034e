"""Scopes of limits: locks on their side records, counts of their claims, and the first jobs beside full groups.

A call that begins or revives a claim locks the scopes of the claim before it counts, and holds them until its commit. A
statement that waits for a lock sees what was committed before the statement began, and not what it has waited for. So
the locks and the count are two statements.

The lock of a scope has :data:`PARTS` parts, each a row. A claim that finds room for one more claim of each part needs
only one of the parts: whoever holds the others, the limit holds. So claims wait for each other only near the limit,
where a claim locks all parts. A limit that never has so much room has one part, and so has a rate, whose record each
claim changes. The parts make concurrent takes under one limit 1.36 to 1.58 times as fast as a single lock does.

A job counts while it is stored as claimed, also once its claim has lapsed. So the count does not depend on a clock: a
heartbeat that was sent before the lapse and arrives after the count prolongs a claim that counts.
"""

from __future__ import annotations

import functools
import json
import random
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from jobboard.backends.sql.rows import Row, stored_of
from jobboard.backends.sql.statements import Statement, Statements, chunks
from jobboard.backends.sql.tables import place_of
from jobboard.engine import Lane, Occupied, ScopeLock, ScopePlace, Stored

GROUPS = 50
"""How many groups one statement reads the first jobs of."""

PARTS = 8
"""How many parts the lock of a scope has where claims wait for each other."""

Rows = Callable[..., list[Row]]
"""Run a statement, by its name or as it is, with its parameters. Return its rows."""

Asked = tuple[Statement, dict[str, Any]]
"""A statement with its parameters."""

Together = Callable[[Sequence[Asked]], list[list[Row]]]
"""Run statements as one request where the database takes that. Return the rows of each."""


def locked(
    statements: Statements,
    together: Together,
    write: Callable[..., object],
    scopes: Sequence[ScopePlace],
    how: ScopeLock,
) -> tuple[list[ScopePlace], list[list[Row]]]:
    """Lock these scopes, or a part of each, until the end of the transaction, and then count: in one request where the
    rows exist that are locked. Return the locked scopes and the counts."""
    keys = {scope: _parts(scope.key, scope.parts) for scope in scopes}
    places = {scope: list(some) for scope, some in keys.items()}
    if how == "part":
        # Others hold all parts, so any part will do to wait for.
        places = {scope: [random.choice(some)] for scope, some in places.items()}
    wanted = {place: scope for scope, some in places.items() for place in some}
    if "scopes_locked" not in statements or not scopes:
        # A transaction of SQLite's that writes is alone.
        locks: list[Asked] = []
    elif how == "free part":
        locks = [_free_parts(statements, list(places.values()))]
    else:
        locks = [(statements["scopes_locked"], {"places": some}) for some in chunks(sorted(wanted))]
    while True:
        found = together([*locks, *counts(statements, scopes)])
        have = {place for rows in found[: len(locks)] for (place,) in rows}
        met = {wanted[place] for place in have}
        held = [scope for scope in scopes if not locks or scope in met]
        if not locks or (len(held) == len(scopes) if how == "free part" else have == wanted.keys()):
            return held, found[len(locks) :]
        lacking = {place for place, scope in wanted.items() if how != "free part" or scope not in met}
        if how == "free part":
            [there] = together([(statements["scopes_there"], {"places": sorted(lacking)})])
            lacking -= {place for (place,) in there}
            if not lacking:
                return held, found[len(locks) :]
        made = [{"place": place, "key": keys[wanted[place]][place]} for place in sorted(lacking - have)]
        write("scopes_make", parts=json.dumps(made), version=secrets.randbits(62))


def _free_parts(statements: Statements, places: Sequence[Sequence[str]]) -> Asked:
    """Return the statement that locks the first free place of each list."""
    if "parts_locked_all" in statements:
        made = statements.union("parts_locked_all", "parts_locked", len(places))
        return made, {f"one{i}": some for i, some in enumerate(places)}
    return statements["parts_locked"], {"scopes": " ".join(map(",".join, places))}


@functools.lru_cache(1000)
def _parts(key: str, number: int) -> Mapping[str, str]:
    """Return the places of the records of a lock's parts, with their keys. The first part is the scope's own record."""
    # No group is empty.
    return {place_of(part): part for part in (key, *(f"{key}\n\n{i}" for i in range(1, number)))}


def counts(statements: Statements, scopes: Sequence[ScopePlace]) -> list[Asked]:
    """Return the statements that count the claims in these scopes."""
    asked = ((statements[f"claims_of_{kind}"], params) for kind, params in _asked(scopes))
    return list(asked) or [(statements["claims_of_names"], {"names": []})]


def _asked(scopes: Sequence[ScopePlace]) -> Iterator[tuple[str, dict[str, Any]]]:
    for kind in ("names", "groups"):
        some = [(name, group or "") for _, name, group, _ in scopes if (group is not None) is (kind == "groups")]
        if some:
            yield kind, {"names": sorted({name for name, _ in some}), "groups": sorted({group for _, group in some})}


def counted(
    statements: Statements, rows: Rows, scopes: Sequence[ScopePlace], found: Sequence[Sequence[Row]]
) -> tuple[int, dict[str, Occupied]]:
    """Return the time, and the counted claims of these scopes by their keys."""
    claims: dict[Lane, tuple[int, int]] = {}
    lapsed: dict[Lane, list[Stored]] = defaultdict(list)
    for _, name, group, number, ended in (row for some in found for row in some):
        claims[(name, group or "")] = int(number or 0), int(ended or 0)
    for kind, params in _asked(scopes):
        if any(ended for (_, group), (_, ended) in claims.items() if bool(group) is (kind == "groups")):
            also = statements.text("of_groups") if kind == "groups" else ""
            for stored in map(stored_of, rows(statements.made("lapsed_of_names", also=also), **params)):
                lapsed[(stored.record.name, (stored.record.group or "") if kind == "groups" else "")].append(stored)
    return found[0][0][0], {
        key: Occupied(*claims.get((name, group or ""), (0, 0)), lapsed[(name, group or "")])
        for key, name, group, _ in scopes
    }


def ready_beside(
    statements: Statements, rows: Rows, limit: int, full: Sequence[Lane], also: str, given: dict[str, Any]
) -> list[Row]:
    """Read the first ``limit`` jobs that can be claimed and that are in none of these groups.

    The first jobs are in the groups whose own first jobs come first.

    :param also: a condition on names.
    """
    shut = {*full}
    firsts = rows(statements.made("groups", also=also), **{**given, "limit": limit + len(shut)})
    lanes = [(name, group) for name, group, _ in firsts if (name, group) not in shut][:limit]
    found: list[Row] = []
    for whole, one, of_kind in (
        ("ready_of_group_all", "ready_of_group", [lane for lane in lanes if lane[1] is not None]),
        ("ready_of_none_all", "ready_of_none", [lane for lane in lanes if lane[1] is None]),
    ):
        for some in chunks(of_kind, GROUPS):
            ones = {f"one{i}_name": name for i, (name, _) in enumerate(some)}
            ones |= {f"one{i}_group": group for i, (_, group) in enumerate(some)}
            found += rows(statements.union(whole, one, len(some)), **given, **ones)
    return sorted(found, key=lambda row: (row[2], row[3]))[:limit]
