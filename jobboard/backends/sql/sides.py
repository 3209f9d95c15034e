"""Side records: what a board keeps beside its jobs, in a table of its own. Keys of live jobs, and what was purged,
stand in the rows of the jobs instead; outcomes have a table for themselves."""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from jobboard.backends.sql.scopes import shown, stored
from jobboard.backends.sql.statements import TIDIED, Statements
from jobboard.backends.sql.tables import place_of
from jobboard.engine import HELD, SCOPE, Mark, Side, Stale
from jobboard.sql.prepared import LONGEST, Row, Runner, chunks
from jobboard.states import Record

ELSEWHERE = frozenset({"key", "purged", "outcome"})
"""The kinds that have no rows here: but for a key that outlives its job."""

PAGE = 500

Locks = Literal["not", "all", "free"]
"""How to read rows in a transaction: without a lock, waiting for those that others hold, or passing over these."""

Rows = Callable[..., list[Row]]
"""Runs a statement that reads, with its parameters."""


class SideRows:
    def __init__(self, statements: Statements, base: dict[str, Any]) -> None:
        self._st = statements
        self._base = base

    def read(self, rows: Rows, locks: Locks, asked: Sequence[tuple[str, str]]) -> tuple[int, list[Side]]:
        """Those that are there, and the time; locked, 0 if none is there."""
        places: dict[str, list[str]] = defaultdict(list)
        for kind, key in asked:
            places[kind].append(place_of(key))
        st = self._st
        statements = {"not": (st.sides,), "all": (st.lock_sides,), "free": (st.lock_sides_free, st.sides)}[locks]
        now, found = 0, dict[str, Side]()
        for statement in statements:
            now, sides = _told(
                (kind, row)
                for kind, wanted in places.items()
                for some in chunks(sorted(wanted), LONGEST)
                for row in rows(statement, p_kind=kind, p_places=some)
            )
            held = statement is st.sides and locks == "free"
            for side in sides:
                found.setdefault(side.kind + side.key, side._replace(tag=HELD) if held else side)
        return now, list(found.values())

    def listed(self, rows: Rows, kind: str) -> tuple[int, list[Side]]:
        return _told((kind, row) for row in rows(self._st.sides_listed, p_kind=kind))

    def walk(self, rows: Rows, kind: str, after: str) -> tuple[int, list[Side], str | None]:
        """The next of a kind, of keys those that outlive their jobs, and behind what to go on."""
        now, sides = _told((kind, row) for row in rows(self._st.sides_next, p_kind=kind, p_after=after, p_limit=PAGE))
        return now, sides, place_of(sides[-1].key) if len(sides) == PAGE else None

    def arrive(self, run: Runner, mark: Mark) -> None:
        """A key that another board has remembered.

        :raises Stale: another's window runs.
        """
        key, value = mark.before.key, mark.value or b""
        self.compare(run, {key: value.decode()})
        self._remember(run, key, value, mark.until)

    def write(self, run: Runner, mark: Mark) -> Side:
        """
        :raises Stale: it is not as it was read.
        """
        st, side, value = self._st, mark.before, mark.value
        one = {**self._base, "p_kind": side.kind, "p_place": place_of(side.key)}
        if value is None:
            if side.tag is not None and not run.count(st.side_gone, {**one, "p_was": side.tag}):
                raise Stale
            return Side(side.kind, side.key, None, None, None)
        version = secrets.randbits(62)
        kept = stored(side, value) if side.kind == SCOPE else value
        told = {**one, "p_value": kept, "p_ttl": mark.ttl, "p_until": mark.until, "p_version": version}
        if side.tag is not None:
            if not run.count(st.side_again, {**told, "p_was": side.tag}):
                raise Stale
        else:
            run.count(st.side_first, {**told, "p_key": side.key})
            # Of a row that was there already not every database tells that nothing was inserted.
            if [row[0] for row in run.rows(st.side_version, one)] != [version]:
                raise Stale
        return Side(side.kind, side.key, value, None, version)

    def in_order(self, marks: Sequence[Mark]) -> list[Mark]:
        """As they are locked where they are read."""
        return sorted(marks, key=lambda mark: (mark.before.kind, place_of(mark.before.key)))

    def compare_gate(self, run: Runner, gate: Side) -> None:
        """It is as it was read, and stays so until the end of the transaction.

        :raises Stale: it is not.
        """
        st, product = self._st, self._st.product
        if product.returning:
            run.rows(st.gate_shared, self._base)
        elif not (product.exclusive or product.skip_locked or gate.tag is None) and not run.count(
            st.gate_same, {**self._base, "p_was": gate.tag}
        ):
            raise Stale
        statement = st.gate_version_shared if product.skip_locked and not product.returning else st.gate_version
        if [row[0] for row in run.rows(statement, self._base)] != ([] if gate.tag is None else [gate.tag]):
            raise Stale

    def remember(self, run: Runner, record: Record) -> None:
        """The key of a job that has come to its end stays taken until its window ends."""
        if record.key is not None and record.key_until is not None:
            self._remember(run, record.key, record.uuid.encode(), record.key_until)

    def _remember(self, run: Runner, key: str, value: bytes, until: int | None) -> None:
        one = {**self._base, "p_kind": "key", "p_place": place_of(key)}
        run.count(self._st.side_forgotten, one)
        told = {"p_key": key, "p_value": value, "p_version": secrets.randbits(62)}
        run.count(self._st.side_first, {**one, **told, "p_ttl": None, "p_until": until})

    def compare(self, run: Runner, taken: Mapping[str, str]) -> None:
        """Behind what takes keys for these jobs. Who had one since it was read has gone, and has left it here.

        :raises Stale: another's window runs.
        """
        now, found = self.read(
            lambda statement, **params: run.rows(statement, {**self._base, **params}),
            "not",
            [("key", key) for key in taken],
        )
        if any(side.stands(now) and side.value != taken[side.key].encode() for side in found):
            raise Stale

    def tidy(self, query: Rows, clean: Callable[..., float]) -> bool:
        """Drop some whose time has gone by; whether there may be more."""
        places: dict[str, list[str]] = defaultdict(list)
        found = query(self._st.sides_old)
        for kind, place in found:
            places[kind].append(place)
        for kind, some in places.items():
            clean(self._st.sides_gone, p_kind=kind, p_places=some)
        return len(found) >= TIDIED


def _told(found: Any) -> tuple[int, list[Side]]:
    now, sides = 0, []
    for kind, (key, value, until, version, at) in found:
        now = at
        if key is not None:
            told = bytes(value)
            sides.append(Side(kind, key, shown(told) if kind == SCOPE else told, until, version))
    return now, sides
