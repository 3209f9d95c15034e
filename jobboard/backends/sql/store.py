"""One board's rows: transactions with their answers, and what rows mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from jobboard.backends.sql.statements import Statements
from jobboard.backends.sql.tables import RECORD, STORED
from jobboard.codec import failures_as_json, failures_from_json
from jobboard.exceptions import JobFailure
from jobboard.primitives import Nonce, Seen
from jobboard.sql.links import ConstraintViolated, Link, Links
from jobboard.sql.prepared import Prepared, Row, Runner
from jobboard.states import COMPLETE, TRASHED, Record, State

T = TypeVar("T")

Answer = list[tuple[str, int]]
"""What a call did, to be answered again: uuids, each with a number (a token; for a post the job's place). Of a take it
is the ids of the rows that share a token, with :data:`JOINT` between them; and of an end of claims that ended them all
:data:`ALL`: what is short is written within its page."""

DONE: Answer = [("", 0)]
"""Something was done, and no repetition will ask for it."""

JOINT = "+"
ALL = "*"


class SQLStore:
    """:param base: the parameters that every statement gets."""

    def __init__(self, links: Links, statements: Statements, board: str) -> None:
        self.links = links
        self.statements = statements
        self.base = {"p_board": board}

    def query(self, statement: Prepared, **params: Any) -> list[Row]:
        """Read something, outside of any transaction."""
        return self.links.run(lambda link: self._read(link, statement, params))

    def single(self, statement: Prepared, params: dict[str, Any]) -> list[Row]:
        """Run a mutation that is one statement."""
        return self.links.run(lambda link: link.single(statement, params))

    def _read(self, link: Link, statement: Prepared, params: dict[str, Any]) -> list[Row]:
        rows = link.rows(statement, {**self.base, **params})
        link.end_read()
        return rows

    def transact(self, nonce: Nonce | None, work: Callable[[Runner, Answer | None], tuple[T, Answer]]) -> T:
        """Run ``work`` in a transaction and keep its answer with it.

        ``work`` gets what an earlier try of this call answered, None if there was none, and gives its result and what
        it did; nothing done, nothing written.
        """
        try:
            return self.links.run(lambda link: self.once(link, nonce, work))
        except ConstraintViolated:
            if nonce is None or nonce.attempt > 1:
                raise
            # Perhaps this very call was answered before.
            return self.transact(nonce._replace(attempt=2), work)

    def once(self, link: Link, nonce: Nonce | None, work: Callable[[Runner, Answer | None], tuple[T, Answer]]) -> T:
        link.begin()
        earlier = self._earlier(link, nonce) if nonce is not None and nonce.attempt > 1 else None
        result, answer = work(link, earlier)
        if not answer and (nonce is None or nonce.attempt == 1):
            link.rollback()
            return result
        self._keep(link, nonce, answer)
        link.commit()
        return result

    def _earlier(self, link: Runner, nonce: Nonce) -> Answer | None:
        """Lock the call's slot against a first try that is still on its way; what that answered."""
        st = self.statements
        key = {"p_handle": nonce.handle, "p_slot": nonce.slot}
        link.count(st.slot_open, key)
        [(call, answer)] = link.rows(st.slot, key)
        if call > nonce.call:
            raise JobFailure("this call comes after a later one of its slot; its caller has long gone on")
        return parse(answer) if call == nonce.call else None

    def _keep(self, link: Runner, nonce: Nonce | None, answer: Answer) -> None:
        if nonce is None:
            return
        st = self.statements
        params = {
            "p_handle": nonce.handle,
            "p_slot": nonce.slot,
            "p_call": nonce.call,
            "p_answer": ",".join([f"{uuid} {number}" for uuid, number in answer]),
        }
        if nonce.attempt > 1:
            link.count(st.answer_again, params)
        elif not link.count(st.answer, params):
            # A slot's first call; or one that its own repetition has overtaken, which the primary key refuses.
            link.count(st.answer_first, params)

    def now(self) -> int:
        return int(self.query(self.statements.clock)[0][0])


def parse(answer: str) -> Answer:
    pairs = (item.split(" ") for item in answer.split(",")) if answer else ()
    return [(uuid, int(number)) for uuid, number in pairs]


def record_of(row: Sequence[Any]) -> Record | None:
    """The job in a row; None if it was purged."""
    state = STORED.get(row[7])
    return None if state is None else record_in(row, state)


def record_in(row: Sequence[Any], state: State) -> Record:
    """The job in a row, in this state."""
    return Record._make((*row[:7], state, *row[8:16], failures_from_json(row[16]), *row[17:RECORD]))


def seen(row: Sequence[Any] | None) -> Seen:
    """What a row of a record and the time shows."""
    if row is None:
        return Seen(COMPLETE, None, None)
    record = record_of(row)
    if record is None:
        return Seen(TRASHED, None, None)
    return Seen.at(row[RECORD], record)


def stored(record: Record, was: Record) -> dict[str, Any]:
    """The parameters that write a changed record."""
    live = record.state != TRASHED
    return {
        "p_id": record.sequence,
        "p_was_token": was.token,
        "p_was_state": was.state.value,
        "p_state": record.state.value,
        "p_attempts": record.attempts,
        "p_token": record.token,
        "p_who": record.who,
        "p_keeper": record.keeper,
        "p_lock_until": record.lock_until,
        "p_modified_on": record.modified_on,
        "p_errors": failures_as_json(record.errors),
        "p_retries": record.retries,
        "p_live_key": record.key if live else None,
        "p_wake_at": record.lock_until,
    }
