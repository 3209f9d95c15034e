"""How a call of the engine is carried out: in one transaction, which locks what the call reads."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from jobboard.backends.sql.answers import JOINT, Items, answer_in, items_of, taken
from jobboard.backends.sql.rows import record_of
from jobboard.backends.sql.store import SQLStore
from jobboard.backends.sql.tables import MAX_ATTEMPTS, MAX_TOKEN
from jobboard.engine import Answer, Change, Committer, Deed, Mark, Plan, Result, Side, Stale, Stored
from jobboard.exceptions import JobFailure
from jobboard.primitives import Nonce
from jobboard.sql.links import Contended
from jobboard.sql.prepared import Runner
from jobboard.states import OK, Record, serving_order

P = TypeVar("P", Plan, Plan | None)

Again = Callable[[Answer], Plan | None] | None


class SQLCommitter(Committer):
    """:param read_only: what has ended is not written down."""

    def __init__(self, store: Callable[[], SQLStore], rest: Callable[[float], None], read_only: bool) -> None:
        super().__init__(store, rest)
        self.read_only = read_only

    @property
    def store(self) -> SQLStore:
        return cast(SQLStore, super().store)

    def do(
        self,
        nonce: Nonce | None,
        plan: Callable[[], Plan],
        again: Again = None,
        beaten: Callable[[Stale], None] | None = None,
    ) -> Result:
        store, numbers = self.store, itertools.count(1)
        if store.running is not None:
            return self._joined(plan)

        def work(run: Runner, earlier: Items | None) -> tuple[Result, Items]:
            number = next(numbers)

            def timed() -> Plan:
                made = plan()
                if made.timely is not None:
                    store.commit_by(made.timely.end(number))
                return made

            with store.within(run):
                if beaten is not None:
                    return self._taken(earlier, timed)
                return self._done(nonce, earlier, timed, again)

        return store.transact(nonce, work)

    def _joined(self, plan: Callable[[], Plan]) -> Result:
        """In a transaction of the caller's, which is not repeated. What it has locked is its own; but what is new can
        meet what others have just stored."""
        for _ in self.tries():
            made = plan()
            try:
                return Result(made.done, self.commit(made.changes, made.marks, checks=made.checks).jobs, False)
            except Stale:
                continue
        raise AssertionError("unreachable")

    def _done(
        self, nonce: Nonce | None, earlier: Items | None, plan: Callable[[], Plan], again: Again
    ) -> tuple[Result, Items]:
        attempt = 1 if nonce is None else nonce.attempt
        if nonce is None or earlier is None:
            made = self._afresh(plan)
        else:
            answer = answer_in(earlier, nonce.call)
            repeated = None if again is None else self._afresh(lambda: again(answer))
            if repeated is None:
                return Result(answer.done, [], True), earlier
            made = repeated
        if not (made.changes or made.marks) and attempt == 1:
            return Result(made.done, [], False), []
        try:
            committed = self.commit(made.changes, made.marks, checks=made.checks)
        except Stale as error:
            raise Contended("another has changed a row between its reading and its writing") from error
        return Result(made.done, committed.jobs, False), items_of(made.done, attempt)

    def _afresh(self, plan: Callable[[], P]) -> P:
        """A plan may write down that the job has lapsed that it is about, and then is of a row that has changed."""
        made = plan()
        if made is None or not self.store.swept.intersection(c.before.record.uuid for c in made.changes if c.before):
            return made
        return plan()

    def _taken(self, earlier: Items | None, plan: Callable[[], Plan]) -> tuple[Result, Items]:
        """Its answer is that of any other take."""
        store = self.store
        if earlier:
            tokens = {int(id_): token for ids, token, _ in earlier for id_ in ids.split(JOINT)}
            found = store.rows(store.statements.lock_ids, p_ids=list(tokens))
            records = sorted((r for row in found if (r := record_of(row)) is not None), key=serving_order)
            return Result([Deed(OK, r.uuid, tokens[r.sequence]) for r in records], [], True), earlier
        made = plan()
        if not made.changes and store.held_back:
            raise Contended("all that is ready is in scopes that others hold")
        for _, after, _ in made.changes:
            if isinstance(after, Record) and (after.attempts > MAX_ATTEMPTS or after.token > MAX_TOKEN):
                # Not every database refuses that.
                raise JobFailure(f"job {after.uuid} can't be claimed: its attempts, or its tokens, are used up")
        try:
            jobs = self.commit(made.changes, made.marks, checks=made.checks).jobs if made.changes else []
        except Stale as error:
            raise Contended("another has changed a row between its reading and its writing") from error
        return Result(made.done, jobs, False), taken([stored.record for stored in jobs])

    def sweep(self, overdue: Sequence[Stored], now: int) -> list[Record]:
        """In a transaction, only what no other holds: it may wait for what this one has locked."""
        if self.read_only:
            return []
        if self.store.running is None:
            return super().sweep(overdue, now)
        swept = super().sweep(self.store.lock(overdue), now)
        self.store.swept.update(record.uuid for record in swept)
        return swept

    def _key_marks(self, changes: Sequence[Change], sides: Sequence[Side]) -> list[Mark]:
        """A key is a column of its job here."""
        return []
