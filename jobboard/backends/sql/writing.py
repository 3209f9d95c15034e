"""What a board does to its rows, on every database: lock them, ask :mod:`jobboard.states` what becomes of them, write.

Each function runs within one transaction and gives its result and its answer, to be kept for a repetition.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Sequence
from typing import Any

from jobboard import states
from jobboard.backends.sql.statements import Statements
from jobboard.backends.sql.store import ALL, DONE, JOINT, Answer, record_in, record_of, stored
from jobboard.backends.sql.tables import MAX_ATTEMPTS, MAX_TOKEN, RECORD
from jobboard.codec import failures_as_json, failures_from_json
from jobboard.exceptions import JobFailure
from jobboard.primitives import Draft, Finish
from jobboard.sql.links import Contended
from jobboard.sql.prepared import LONGEST, Prepared, Row, Runner
from jobboard.states import CLAIMED, OK, TRASHED, UNCLAIMED, Holder, Record, Status, Verb

LOG = logging.getLogger(__name__)

HELD_BY = -1
"""In a post's answer: the key was taken, and the uuid is that of the job which has it."""

TRY = "try"
"""In a post's answer, behind its jobs: which try of the call it was that answered."""

_CHANGED = "another has changed a row between its reading and its writing"


class RowWriter:
    """:param fenced: whether rows can't be locked, so that every write must compare what it has read."""

    def __init__(self, statements: Statements, board: str, fenced: bool) -> None:
        self.st = statements
        self._board = {"p_board": board}
        self._fenced = fenced

    def lock(self, run: Runner, uuids: Sequence[str]) -> tuple[dict[str, Record], int]:
        """The jobs, as nobody else can change them any more, and the time."""
        rows = run.rows(self.st.lock, {**self._board, "p_uuids": uuids})
        records = {row[0]: record for row in rows if (record := record_of(row)) is not None}
        return records, rows[0][RECORD] if rows else 0

    def save(self, run: Runner, record: Record, was: Record) -> None:
        if not run.count(self.st.store, stored(record, was)):
            raise Contended(_CHANGED)

    # Posting

    def insert(
        self, run: Runner, drafts: Sequence[Draft], earlier: Answer | None, attempt: int = 1
    ) -> tuple[list[Any], Answer]:
        """:param earlier: what a try of this call has answered, this one being number ``attempt``."""
        if earlier is not None:
            results, answer = self._inserted_before(run, drafts, earlier, attempt)
        else:
            results, answer = self._insert(run, drafts)
        return results, [*answer, (TRY, attempt)]

    def _insert(self, run: Runner, drafts: Sequence[Draft]) -> tuple[list[Any], Answer]:
        now = run.rows(self.st.clock, {})[0][0]
        fresh = [draft.record(0, now) for draft in drafts]
        arriving = [draft.uuid for draft in drafts if draft.arrival is not None]
        if arriving:
            run.count(self.st.purged_again, {**self._board, "p_uuids": arriving})
        ids = self._insert_new(run, fresh)
        holders = self._holders(run, [record for record in fresh if record.uuid not in ids])
        lapsed = [holder for holder in holders.values() if holder.state == TRASHED]
        if lapsed:
            # No sweep has met them yet, and their keys are free.
            self._expire(run, lapsed)
            missing = [record for record in fresh if record.uuid not in ids]
            ids |= self._insert_new(run, missing)
            holders = self._holders(run, [record for record in missing if record.uuid not in ids])
        before = self._there_before(run, [each for each in fresh if each.uuid in ids and each.uuid in arriving])
        results: list[tuple[bool, Record | None]] = []
        for record in fresh:
            if record.uuid in before:
                results.append((False, before[record.uuid]))
            elif record.uuid in ids:
                results.append((True, record._replace(sequence=ids[record.uuid])))
            elif record.key in holders:
                results.append((False, holders[record.key]))
            else:
                # The job that had the key has gone since.
                raise Contended(_CHANGED)
        answer = [(r.uuid, r.sequence if created else HELD_BY) for created, r in results if r is not None]
        return results, answer

    def _insert_new(self, run: Runner, records: Sequence[Record]) -> dict[str, int]:
        """The places of those whose key was free, by uuid."""
        run.many(self.st.insert, [self._inserted(record) for record in records])
        return dict(run.rows(self.st.ids, {**self._board, "p_uuids": [record.uuid for record in records]}))

    def _there_before(self, run: Runner, arrivals: Sequence[Record]) -> dict[str, Record]:
        """The jobs that have the uuids of these, and have not just been inserted."""
        uuids = [record.uuid for record in arrivals]
        rows = run.rows(self.st.by_uuid, {**self._board, "p_uuids": uuids}) if uuids else []
        there = {record.uuid: states.settle(record, row[RECORD]) for row in rows if (record := record_of(row))}
        if len(there) < len(uuids):
            # Purged only now, its row was in the way.
            raise Contended(_CHANGED)
        mine = {(record.uuid, record.who, record.token) for record in arrivals}
        return {uuid: each for uuid, each in there.items() if (uuid, each.who, each.token) not in mine}

    def _holders(self, run: Runner, wanting: Sequence[Record]) -> dict[str | None, Record]:
        """The jobs that have the keys of these, locked, as they stand."""
        keys = [record.key for record in wanting]
        rows = run.rows(self.st.by_key, {**self._board, "p_keys": keys}) if keys else []
        return {record.key: states.settle(record, row[RECORD]) for row in rows if (record := record_of(row))}

    def free_key_of(self, run: Runner, uuid: str) -> tuple[bool, Answer]:
        """Whether the key of a trashed job was held by one whose claim has lapsed for good, and is free now."""
        records, _ = self.lock(run, [uuid])
        holders = self._holders(run, [record for record in records.values() if record.key is not None])
        lapsed = [holder for holder in holders.values() if holder.state == TRASHED]
        if not lapsed:
            return False, []
        self._expire(run, lapsed)
        return True, DONE

    def _expire(self, run: Runner, lapsed: Sequence[Record]) -> None:
        """Write down that the last claims of these, which they are locked with, have lapsed."""
        run.many(self.st.store, [stored(record, record._replace(state=CLAIMED)) for record in lapsed])

    def _inserted_before(
        self, run: Runner, drafts: Sequence[Draft], earlier: Answer, attempt: int
    ) -> tuple[list[Any], Answer]:
        tried = dict(earlier).get(TRY, 1)
        answer = [each for each in earlier if each[0] != TRY]
        rows = run.rows(self.st.by_uuid, {**self._board, "p_uuids": [uuid for uuid, _ in answer]})
        now = rows[0][RECORD] if rows else 0
        found = {row[0]: states.settle(record, now) for row in rows if (record := record_of(row))}
        results: list[Any] = [(place != HELD_BY, found.get(uuid)) for uuid, place in answer]
        mine = {uuid for uuid, place in answer if place != HELD_BY}
        freed = [
            index
            for index, (draft, (uuid, _)) in enumerate(zip(drafts, answer, strict=True))
            if uuid != draft.uuid and uuid not in mine and (uuid not in found or found[uuid].state == TRASHED)
        ]
        if freed and attempt > tried:
            # Those were kept out by jobs that have their keys no longer.
            again = self._insert(run, [drafts[index] for index in freed])
            for index, result, each in zip(freed, *again, strict=True):
                results[index], answer[index] = result, each
        return results, answer

    def _inserted(self, record: Record) -> dict[str, Any]:
        return {
            **self._board,
            "p_uuid": record.uuid,
            "p_name": record.name,
            "p_priority": record.priority,
            "p_key": record.key,
            "p_version": record.version,
            "p_posting": record.posting,
            "p_state": record.state.value,
            "p_attempts": record.attempts,
            "p_max_attempts": record.max_attempts,
            "p_token": record.token,
            "p_who": record.who,
            "p_lock_until": record.lock_until,
            "p_created_on": record.created_on,
            "p_modified_on": record.modified_on,
            "p_errors": failures_as_json(record.errors),
            "p_retries": record.retries,
            "p_job_group": record.group,
            "p_live_key": None if record.state == TRASHED else record.key,
            "p_wake_at": record.lock_until,
        }

    # Claiming

    def claim(
        self, run: Runner, uuid: str, lease: dict[str, Any], earlier: Answer | None
    ) -> tuple[tuple[Status, Record | None, int], Answer]:
        """Answers also for how long the claim stands."""
        records, now = self.lock(run, [uuid])
        was = records.get(uuid)
        if earlier:
            record = _still_held(was, earlier[0][1], now)
            if record is None or record.lock_until is None:
                return (Status.LOST, None, 0), earlier
            return (OK, record, record.lock_until - now), earlier
        ttl = lease["p_ttl"]
        status, record = states.claim(was, now, lease["p_who"], lease["p_keeper"], now + ttl)
        if status != OK or record is None or was is None:
            return (status, None, 0), []
        self.save(run, record, was)
        return (OK, record, ttl), [(uuid, record.token)]

    def take(
        self,
        run: Runner,
        pick: Prepared,
        params: dict[str, Any],
        claim: dict[str, Any],
        sweep_first: bool,
    ) -> tuple[tuple[list[Record], bool], Answer]:
        """Claim what ``pick`` gives. The result says whether something overdue must be swept before it may.

        :param claim: who, keeper and ttl, as parameters.
        """
        rows: Sequence[Row] = run.rows(pick, {**self._board, **params})
        if not rows:
            return ([], False), []
        now, event = rows[0][RECORD : RECORD + 2]
        if sweep_first and event is not None and event <= now:
            return ([], True), []
        rows = self.st.claim.write(run, rows, {**claim, "p_now": now})
        records = [claimed(row, claim, now) for row in rows]
        together: dict[int, list[str]] = {}
        for record in records:
            together.setdefault(record.token, []).append(str(record.sequence))
        return (records, False), [(JOINT.join(ids), token) for token, ids in together.items()]

    def still_held(self, run: Runner, earlier: Answer) -> tuple[list[Record], int]:
        """Of the claims that a first try has made, those that stand; and the time."""
        taken = {int(id_): token for ids, token in earlier for id_ in ids.split(JOINT)}
        rows = run.rows(self.st.lock_ids, {"p_ids": list(taken)})
        now = rows[0][RECORD] if rows else 0
        held = ((r, taken[r.sequence]) for row in rows if (r := record_of(row)) is not None)
        found = (_still_held(record, token, now) for record, token in held)
        return sorted((r for r in found if r is not None), key=lambda r: (r.priority, r.sequence)), now

    def sweep(self, run: Runner) -> tuple[tuple[int, list[Record]], Answer]:
        """Sweep what is overdue: how many rows that were, and which jobs went to the trash."""
        rows = run.rows(self.st.overdue, self._board)
        freed, refiled, trashed = [], [], []
        for row in rows:
            was, now = record_of(row), row[RECORD]
            if was is None:
                error = f"the row is damaged: its state is {row[7]!r}"
                set_aside(run, self.st, record_in(row, TRASHED), now, error)
                LOG.warning("job %s goes to the trash: %s", row[0], error)
                continue
            record = states.settle(was, now)
            if record is was:
                # A heartbeat has moved the end of the lease on.
                refiled.append(was.sequence)
            elif record.state == UNCLAIMED:
                freed.append(was.sequence)
            else:
                trashed.append(record)
        if self._fenced:
            self._sweep_fenced(run, rows)
        else:
            for ids, statement in (
                (freed, self.st.freed),
                (refiled, self.st.refiled),
            ):
                if ids:
                    run.count(statement, {"p_ids": ids})
            if trashed:
                self._expire(run, trashed)
        return (len(rows), trashed), DONE if rows else []

    def _sweep_fenced(self, run: Runner, rows: Sequence[Row]) -> None:
        for row in rows:
            was = record_of(row)
            if was is not None:
                self.save(run, states.settle(was, row[RECORD]), was)

    # Holding and finishing

    def renew(
        self, run: Runner, handle: str, held: Sequence[tuple[str, int]], ttl: int
    ) -> tuple[list[tuple[str, int]], Answer]:
        """Prolong what is kept by ``handle``; which of these claims are lost. Passes over rows that others lock."""
        uuids = list(dict(held))
        found = self._rows(run, self.st.lock_free, uuids)
        # What is locked by another's transaction, or gone, is read as it was before that transaction.
        found |= {uuid: (row, False) for uuid, (row, _) in self._rows(run, self.st.by_uuid, uuids, found).items()}
        lost: list[tuple[str, int]] = []
        standing, lapsed = set[int](), set[int]()
        now = 0
        for uuid, token in held:
            row, locked = found.get(uuid, (None, False))
            record = None if row is None else record_of(row)
            now = now if row is None else row[RECORD]
            if states.check(record, Holder("", token), now) not in (OK, Status.UNCLAIMED):
                lost.append((uuid, token))
            elif record is not None and locked and record.who is not None and record.keeper == handle:
                (standing if record.state == CLAIMED else lapsed).add(record.sequence)
        for ids, statement in ((standing, self.st.renew), (lapsed, self.st.revive)):
            if ids:
                run.count(statement, {"p_ids": list(ids), "p_until": now + ttl})
        return lost, DONE if standing or lapsed else []

    def _rows(
        self, run: Runner, statement: Prepared, uuids: Sequence[str], without: Container[str] = ()
    ) -> dict[str, tuple[Row, bool]]:
        wanted = [uuid for uuid in uuids if uuid not in without]
        found: dict[str, tuple[Row, bool]] = {}
        for start in range(0, len(wanted), LONGEST):
            rows = run.rows(statement, {**self._board, "p_uuids": wanted[start : start + LONGEST]})
            found.update((row[0], (row, True)) for row in rows)
        return found

    def extend(
        self, run: Runner, uuid: str, holder: Holder, lease: dict[str, Any]
    ) -> tuple[tuple[Status, bool], Answer]:
        """Also whether the claim ends earlier now. To do it again, for a repetition, does no harm."""
        records, now = self.lock(run, [uuid])
        was = records.get(uuid)
        status, record = states.extend(was, holder, now, lease["p_keeper"], now + lease["p_ttl"])
        if status != OK or record is None or was is None:
            return (status, False), []
        self.save(run, record, was)
        sooner = was.lock_until is not None and record.lock_until is not None and record.lock_until < was.lock_until
        return (OK, sooner), [(uuid, record.token)]

    def consume(self, run: Runner, acts: Sequence[Finish]) -> tuple[bool, Answer]:
        """Consume claims of one token: all of them, or none."""
        uuids = [act.uuid for act in acts]
        token = acts[0].holder.token
        assert token is not None
        done = run.count(self.st.consume, {**self._board, "p_uuids": uuids, "p_token": token})
        # Without an answer the transaction is taken back.
        return (True, [(ALL, 0)]) if done == len(uuids) else (False, [])

    def finish(self, run: Runner, acts: Sequence[Finish], earlier: Answer | None) -> tuple[list[Status], Answer]:
        done = dict(earlier or ())
        if ALL in done:
            return [OK] * len(acts), [(ALL, 0)]
        statuses: list[Status] = []
        answer = list(earlier or ())
        records, now = self.lock(run, [act.uuid for act in acts])
        old = dict(records)
        for act in acts:
            token = done.get(act.uuid)
            if token is not None and act.holder.token in (None, token):
                # Of two acts on one job, one was carried out.
                del done[act.uuid]
                statuses.append(OK)
                continue
            was = records.get(act.uuid)
            status, record = states.finish(was, act.holder, now, *act[2:])
            statuses.append(status)
            if status != OK or was is None:
                continue
            answer.append((act.uuid, was.token))
            if act.verb == Verb.PURGE:
                run.count(self.st.purge, {"p_id": was.sequence})
                del records[act.uuid], old[act.uuid]
            elif record is None:
                del records[act.uuid]
            else:
                records[act.uuid] = record
        self._write(run, old, records)
        return statuses, answer

    def _write(self, run: Runner, old: dict[str, Record], new: dict[str, Record]) -> None:
        gone = [record.sequence for uuid, record in old.items() if uuid not in new]
        if gone and run.count(self.st.delete, {"p_ids": gone}) < len(gone):
            raise Contended(_CHANGED)
        for uuid, record in new.items():
            if record is not old[uuid]:
                self.save(run, record, old[uuid])

    def operate(
        self, run: Runner, verb: Verb, uuid: str, error: str | None, token: int | None, earlier: Answer | None
    ) -> tuple[Status, Answer]:
        if earlier:
            return OK, earlier
        records, now = self.lock(run, [uuid])
        was = records.get(uuid)
        status, record = _OPERATIONS[verb](was, now, error, token)
        if status != OK or was is None:
            return status, []
        if record is None:
            run.count(self.st.purge, {"p_id": was.sequence})
        else:
            self.save(run, record, was)
        return OK, [(uuid, 0)]

    # The rest

    def enlist(self, run: Runner, handle: str, kind: str, name: str, metadata: str, ttl: int) -> tuple[None, Answer]:
        params = {
            **self._board,
            "p_handle": handle,
            "p_kind": kind,
            "p_name": name,
            "p_metadata": metadata,
            "p_ttl": ttl,
        }
        if not run.count(self.st.enlist_again, params):
            run.count(self.st.enlist, params)
        return None, DONE

    def clean(self, run: Runner, statement: Prepared, **params: Any) -> tuple[None, Answer]:
        """Run a deletion; it counts as nothing when it found nothing."""
        return None, DONE if run.count(statement, {**self._board, **params}) else []


_OPERATIONS: dict[Verb, Callable[[Record | None, int, str | None, int | None], tuple[Status, Record | None]]] = {
    Verb.RELEASE: states.release,
    Verb.CANCEL: lambda record, now, error, token: states.cancel(record, now, error),
    Verb.RESTORE: lambda record, now, error, token: states.restore(record, now),
    Verb.PURGE: lambda record, now, error, token: states.purge(record, now),
}


def claimed(row: Row, claim: dict[str, Any], now: int) -> Record:
    """A ready row, as the claim has made it.

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
            claim["p_who"],
            claim["p_keeper"],
            now + claim["p_ttl"],
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


def _still_held(record: Record | None, token: int, now: int) -> Record | None:
    if record is None or record.token != token:
        return None
    record = states.settle(record, now)
    return record if record.state == CLAIMED else None
