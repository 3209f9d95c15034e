"""What a board does to many rows at once, where the database locks them: claiming, sweeping and keeping.

Each function runs within one transaction and gives its result and its answer, to be kept for a repetition.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Sequence
from typing import Any

from jobboard import states
from jobboard.backends.sql.answers import DONE, JOINT, Items, taken
from jobboard.backends.sql.looking import Glance, TakeRequest
from jobboard.backends.sql.rows import changed, record_in, record_of
from jobboard.backends.sql.sides import SideRows
from jobboard.backends.sql.statements import Statements
from jobboard.backends.sql.tables import MAX_ATTEMPTS, MAX_TOKEN, RECORD
from jobboard.codec import failures_as_json, failures_from_json
from jobboard.engine import GATE, Change, Side, Stale, Stored
from jobboard.exceptions import JobFailure
from jobboard.logs import tell_of_lapse
from jobboard.primitives import Renewed, Seen
from jobboard.sql.links import Contended
from jobboard.sql.prepared import LONGEST, Prepared, Row, Runner
from jobboard.states import CLAIMED, OK, TRASHED, Holder, Record, Status, serving_order

LOG = logging.getLogger(__name__)


class RowWriter:
    """:param fenced: whether rows can't be locked, so that every write must compare what it has read."""

    def __init__(self, statements: Statements, board: str, fenced: bool) -> None:
        self.st = statements
        self._board = {"p_board": board}
        self._sides = SideRows(statements, self._board)
        self._fenced = fenced

    def _save(self, run: Runner, record: Record, was: Record) -> None:
        if not run.count(self.st.store, changed(record, was)):
            raise Contended("another has changed a row between its reading and its writing")

    def take(
        self,
        run: Runner,
        pick: Prepared,
        request: TakeRequest,
        **more: Any,
    ) -> tuple[Glance, Items]:
        """Claim what ``pick`` gives.

        :param more: parameters of ``pick`` beside those of the request.
        """
        if not request.swept:
            # Before anything is locked: others pass that over, and would be served what comes behind it.
            [(now, event, _)] = run.rows(self.st.event, self._board)
            if event is not None and event <= now:
                return Glance([], True, 0, since=event), []
        rows: Sequence[Row] = run.rows(pick, {**self._board, **request.params, **more})
        if not rows:
            return Glance([], False, 0), []
        now = rows[0][RECORD]
        rows = self._claim(run, rows, request, now)
        records = [claimed(row, request.lease, now) for row in rows]
        return Glance(records, False, 0), taken(records)

    def _claim(self, run: Runner, rows: Sequence[Row], request: TakeRequest, now: int) -> Sequence[Row]:
        """Once its job is locked, the gate is as it was: see :mod:`jobboard.backends.sql.settling`."""
        params = {**request.lease, "p_now": now}
        if self.st.product.skip_locked:
            params |= {**self._board, "p_gate": request.gate, "p_ids": [row[3] for row in rows]}
            if run.count(self.st.claim_ruled, params) < len(rows):
                raise Contended("the rules have changed between its reading and its writing")
            return rows
        rows = self.st.claim.write(run, rows, params)
        if self._fenced:
            try:
                self._sides.compare_gate(run, Side(*GATE, None, None, request.gate or None))
            except Stale as error:
                raise Contended("the rules have changed between its reading and its writing") from error
        return rows

    def still_held(self, run: Runner, earlier: Items) -> tuple[list[Record], int]:
        """Of the claims that a first try has made, those that stand; and the time."""
        tokens = {int(id_): token for ids, token, _ in earlier for id_ in ids.split(JOINT)}
        rows = run.rows(self.st.lock_ids, {"p_ids": list(tokens)})
        now = rows[0][RECORD] if rows else 0
        held = ((r, tokens[r.sequence]) for row in rows if (r := record_of(row)) is not None)
        found = (_still_held(record, token, now) for record, token in held)
        return sorted((r for r in found if r is not None), key=serving_order), now

    def sweep(
        self, run: Runner, since: int = 0, ids: Sequence[int] | None = None
    ) -> tuple[tuple[int, list[Record]], Items]:
        """Sweep what is overdue: how many rows that were, and which jobs went to the trash.

        :param since: an instant before which nothing is.
        :param ids: where these rows are all that is overdue, if they are.
        """
        if ids is None:
            rows = run.rows(self.st.overdue, {**self._board, "p_since": since})
        else:
            rows = run.rows(self.st.overdue_ids, {"p_ids": ids}) if ids else []
        freed, refiled = list[int](), list[int]()
        lapsed = list[tuple[Record, Record]]()
        for row in rows:
            was, now = record_of(row), row[RECORD]
            if was is None:
                set_aside_stateless(run, self.st, row)
                continue
            record = states.settle(was, now)
            if record is was:
                # A heartbeat has moved the end of the lease on.
                refiled.append(was.sequence)
            elif was.state == CLAIMED:
                lapsed.append((record, was))
            else:
                freed.append(was.sequence)
        if self._fenced:
            self._sweep_fenced(run, rows)
        else:
            for ids, statement in (
                (freed, self.st.freed),
                (refiled, self.st.refiled),
            ):
                if ids:
                    run.count(statement, {"p_ids": ids})
            if lapsed:
                run.many(self.st.store, [changed(record, was) for record, was in lapsed])
        trashed = [record for record, _ in lapsed if record.state == TRASHED]
        for record in trashed:
            self._sides.remember(run, record)
        for record, _ in lapsed:
            tell_of_lapse(record)
        return (len(rows), trashed), DONE if rows else []

    def _sweep_fenced(self, run: Runner, rows: Sequence[Row]) -> None:
        for row in rows:
            was = record_of(row)
            if was is not None:
                self._save(run, states.settle(was, row[RECORD]), was)

    def renew(
        self, run: Runner, handle: str, held: Sequence[tuple[str, int]], ttl: int
    ) -> tuple[tuple[Renewed, dict[tuple[str, int], Change]], Items]:
        """Prolong what is kept by ``handle``. Passes over rows that others lock. Also what would revive claims that
        have lapsed: where there are rules, that may need room."""
        uuids = list(dict(held))
        found = self._rows(run, self.st.lock_free, uuids)
        # What is locked by another's transaction, or gone, is read as it was before that transaction.
        found |= {uuid: (row, False) for uuid, (row, _) in self._rows(run, self.st.by_uuid, uuids, found).items()}
        lost: list[tuple[str, int]] = []
        missed: list[tuple[str, int]] = []
        unkept: list[tuple[str, int, int | None]] = []
        standing, lapsed = set[int](), set[int]()
        revived: dict[tuple[str, int], Change] = {}
        now = 0
        for uuid, token in held:
            row, locked = found.get(uuid, (None, False))
            record = None if row is None else record_of(row)
            now = now if row is None else row[RECORD]
            if record is None or states.check(record, Holder("", token), now) not in (OK, Status.UNCLAIMED):
                lost.append((uuid, token))
            elif record.who is None or record.keeper != handle:
                unkept.append((uuid, token, Seen.at(now, record).stands))
            elif not locked:
                missed.append((uuid, token))
            else:
                stands = states.settle(record, now).state == CLAIMED
                (standing if stands else lapsed).add(record.sequence)
                if not stands:
                    # As it is stored: a lapse that no sweep has written down is not to show.
                    revival = record._replace(state=CLAIMED, lock_until=now + ttl)
                    revived[uuid, token] = Change(Stored(record, None), revival)
        if lapsed and self._ruled(run):
            lapsed = set()
        else:
            revived = {}
        for ids, statement in ((standing, self.st.renew), (lapsed, self.st.revive)):
            if ids:
                run.count(statement, {"p_ids": list(ids), "p_until": now + ttl})
        return (Renewed(lost, ttl, missed, unkept), revived), DONE if standing or lapsed else []

    def _ruled(self, run: Runner) -> bool:
        """Whether there is a gate, once these jobs are locked; see :meth:`SQLStore.settled`."""
        _, sides = self._sides.read(
            lambda statement, **params: run.rows(statement, {**self._board, **params}), "all", [GATE]
        )
        return bool(sides)

    def _rows(
        self, run: Runner, statement: Prepared, uuids: Sequence[str], without: Container[str] = ()
    ) -> dict[str, tuple[Row, bool]]:
        wanted = [uuid for uuid in uuids if uuid not in without]
        found: dict[str, tuple[Row, bool]] = {}
        for start in range(0, len(wanted), LONGEST):
            rows = run.rows(statement, {**self._board, "p_uuids": wanted[start : start + LONGEST]})
            found.update((row[0], (row, True)) for row in rows)
        return found


def claimed(row: Row, lease: dict[str, Any], now: int) -> Record:
    """A ready row, as a claim with this lease, in parameters, has made it.

    :raises JobFailure: it can't be claimed, on a database that lets one do so.
    """
    attempts, token = row[8], row[10]
    if type(attempts) is not int or type(token) is not int or attempts >= MAX_ATTEMPTS or token >= MAX_TOKEN:
        raise JobFailure(f"job {row[0]} can't be claimed: its token is {token!r}, its attempts are {attempts!r}")
    return Record._make(
        (
            *row[:7],
            CLAIMED,
            row[8] + 1,
            row[9],
            states.next_token(row[10], now),
            lease["p_who"],
            lease["p_keeper"],
            now + lease["p_ttl"],
            row[14],
            now,
            failures_from_json(row[16]),
            *row[17:RECORD],
        )
    )


def set_aside(run: Runner, statements: Statements, record: Record, now: int, error: str) -> Record:
    """Put a row that is damaged into the trash."""
    record = states.failed(record, now, None, error)
    run.count(statements.aside, {"p_ids": [record.sequence], "p_errors": failures_as_json(record.errors)})
    return record._replace(state=TRASHED, keeper=None, lock_until=None)


def set_aside_stateless(run: Runner, statements: Statements, row: Row) -> None:
    """The same of one whose state is none, and which is no job to anybody."""
    error = f"the row is damaged: its state is {row[7]!r}"
    set_aside(run, statements, record_in(row, TRASHED), row[RECORD], error)
    LOG.warning("job %s goes to the trash: %s", row[0], error)


def _still_held(record: Record | None, token: int, now: int) -> Record | None:
    if record is None or record.token != token:
        return None
    record = states.settle(record, now)
    return record if record.state == CLAIMED else None
