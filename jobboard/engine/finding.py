"""What can be claimed next: what the store shows, under the rules of the board, once what has ended is settled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from jobboard.engine.calls import Committer, standing
from jobboard.engine.rules import GATE, Rules
from jobboard.engine.store import Look, Mark, Side, Stale
from jobboard.primitives import Peeked
from jobboard.states import TRASHED, UNCLAIMED, Record


class Allowed(NamedTuple):
    """Of which names a job may be: ``names``, or any but those in ``without``; ``shut``: of none. ``gate``: by what
    that was decided."""

    gate: Side
    names: Sequence[str] | None
    without: Sequence[str]
    shut: bool


class Finder:
    """It looks by the rules that it has seen last, and again where the look shows that these have changed."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._seen: tuple[Side, Rules] = (Side(*GATE, None, None, None), Rules())

    def allowed(self, names: Sequence[str] | None) -> Allowed:
        gate, (paused,) = self._seen
        left = None if names is None else [name for name in names if name not in paused]
        return Allowed(gate, left, () if names is not None else paused.names, paused.everything or left == [])

    def look(self, limit: int, names: Sequence[str] | None, readable: int, *, known: bool = False) -> Look:
        """:param known: what the store knows without a request will do."""
        store = self._committer.store
        for _ in self._committer.tries():
            gate, allowed, without, shut = self.allowed(names)
            if shut:
                look = store.look(0, [], readable)
            else:
                found = store.known(limit, allowed, readable, without) if known else None
                look = found or store.look(limit, allowed, readable, without)
            if look.gate.tag == gate.tag:
                # What ends by itself does not matter to who may have nothing.
                return look._replace(overdue=[], next_event=None) if shut else look
            self._saw(look.gate)
        raise AssertionError("unreachable")

    def settled(
        self, limit: int, names: Sequence[str] | None, readable: int, trashed: list[Record], *, known: bool = False
    ) -> Look:
        """As :meth:`look`, with what has ended brought back to its place. ``trashed`` takes in what went to the trash
        by that."""
        look = self.look(limit, names, readable, known=known)
        settled, tries = False, self._committer.tries()
        while look.overdue and not (settled and look.ready):
            met = self._committer.sweep(look.overdue, look.now)
            if not met:
                next(tries)
            trashed.extend(record for record in met if record.state == TRASHED)
            look, settled = self.look(limit, names, readable), True
        return look

    def peek(self, names: Sequence[str] | None, readable: int) -> Peeked:
        look = self.look(1, names, readable)
        paused = Rules.of(look.gate).paused
        coming = any(
            (record := standing(stored, look.now)).state == UNCLAIMED
            and (names is None or record.name in names)
            and record.name not in paused
            and record.version <= readable
            for stored in look.overdue
        )
        return Peeked(bool(look.ready) or coming, look.next_event, None)

    def _saw(self, gate: Side) -> None:
        self._seen = gate, Rules.of(gate)

    def changed(self, since: Side) -> bool:
        """Look at the gate: whether it is another than this."""
        gate = self._gate()
        self._saw(gate)
        return gate.tag != since.tag

    # The rules themselves

    def rules(self) -> Rules:
        return Rules.of(self._gate())

    def rule(self, change: Callable[[Rules], Rules]) -> None:
        """Change the rules; to do it again does no harm."""
        for _ in self._committer.tries():
            gate = self._gate()
            before = Rules.of(gate)
            after = change(before)
            try:
                if after != before:
                    self._committer.commit([], [Mark(gate, after.packed())])
            except Stale:
                continue
            return

    def _gate(self) -> Side:
        return self._committer.store.read([], [GATE]).sides[0]
