"""How a call of the engine is carried out: in one transaction, which locks what the call reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jobboard.backends.sql.answers import Items, answer_in, items_of
from jobboard.backends.sql.store import SQLStore
from jobboard.engine import Answer, Change, Committed, Committer, Mark, Plan, Result, Side, Stale
from jobboard.primitives import Nonce
from jobboard.sql.links import Contended
from jobboard.sql.prepared import Runner

Again = Callable[[Answer], Plan | None] | None


class SQLCommitter(Committer):
    store: SQLStore

    def do(
        self, nonce: Nonce | None, plan: Callable[[], Plan], again: Again = None, beaten: set[str] | None = None
    ) -> Result:
        store = self.store
        if store.running is not None:
            return self._joined(plan)

        def work(run: Runner, earlier: Items | None) -> tuple[Result, Items]:
            with store.within(run):
                return self._done(nonce, earlier, plan, again)

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
            made = plan()
        else:
            answer = answer_in(earlier, nonce.call)
            repeated = again(answer) if again is not None else None
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

    def commit(
        self,
        changes: Sequence[Change],
        marks: Sequence[Mark] = (),
        sides: Sequence[Side] = (),
        checks: Sequence[Side] = (),
    ) -> Committed:
        return self.store.commit(changes, marks, checks)
