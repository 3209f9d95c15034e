"""Scopes of limits: locks on their side records, counts of their claims, and the first jobs beside full groups.

A call that begins or revives a claim locks the scopes of the claim before it counts, and holds them until its commit. A
statement that waits for a lock sees what was committed before the statement began, and not what it has waited for. So
the locks and the count are two statements.

A job counts while it is stored as claimed, also once its claim has lapsed. So the count does not depend on a clock: a
heartbeat that was sent before the lapse and arrives after the count prolongs a claim that counts.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from jobboard.backends.sql.rows import Row, stored_of
from jobboard.backends.sql.statements import Statements, chunks
from jobboard.backends.sql.tables import place_of
from jobboard.engine import Lane, Occupied, ScopePlace, Stored

GROUPS = 50
"""How many groups one statement reads the first jobs of."""

Rows = Callable[..., list[Row]]
"""Run a statement, by its name or as it is, with its parameters. Return its rows."""


def lock(statements: Statements, rows: Rows, write: Callable[..., object], keys: Sequence[str]) -> None:
    """Lock the side records of these scopes, all in one order, until the end of the transaction."""
    if "scopes_locked" not in statements:
        # A transaction of SQLite's that writes is alone.
        return
    places = {place_of(key): key for key in keys}
    while missing := places.keys() - {place for (place,) in rows("scopes_locked", places=sorted(places))}:
        for place in sorted(missing):
            write("scope_make", place=place, key=places[place], version=secrets.randbits(62))


def count(statements: Statements, rows: Rows, scopes: Sequence[ScopePlace]) -> tuple[int, list[Occupied]]:
    """Count the claims in these scopes. Return the time too."""
    counts: dict[Lane | str, tuple[int, int]] = {}
    lapsed: dict[Lane | str, list[Stored]] = defaultdict(list)
    now = 0
    for grouped in (False, True):
        some = [(name, group or "") for _, name, group in scopes if (group is not None) is grouped]
        if not some:
            continue
        asked = {"names": sorted({name for name, _ in some}), "groups": sorted({group for _, group in some})}
        found = rows("claims_of_groups" if grouped else "claims_of_names", **asked)
        now = found[0][0]
        for _, name, group, claims, ended in found:
            counts[(name, group) if grouped else name] = int(claims or 0), int(ended or 0)
        if any(ended for _, ended in counts.values()):
            also = statements.text("of_groups") if grouped else ""
            for stored in map(stored_of, rows(statements.made("lapsed_of_names", also=also), **asked)):
                name, group = stored.record.name, stored.record.group or ""
                lapsed[(name, group) if grouped else name].append(stored)
    keys: list[Lane | str] = [name if group is None else (name, group) for _, name, group in scopes]
    return now, [Occupied(*counts.get(key, (0, 0)), lapsed[key]) for key in keys]


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
    for kind, of_kind in (
        ("ready_of_group", [lane for lane in lanes if lane[1] is not None]),
        ("ready_of_none", [lane for lane in lanes if lane[1] is None]),
    ):
        for some in chunks(of_kind, GROUPS):
            ones = {f"one{i}_name": name for i, (name, _) in enumerate(some)}
            ones |= {f"one{i}_group": group for i, (_, group) in enumerate(some)}
            found += rows(statements.union(kind, len(some)), **given, **ones)
    return sorted(found, key=lambda row: (row[2], row[3]))[:limit]
