"""Claiming what is next, in whatever way the database does it best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from jobboard.backends.sql.answers import Items
from jobboard.backends.sql.oddities import Aside
from jobboard.backends.sql.quick import Quick
from jobboard.backends.sql.rows import record_in
from jobboard.backends.sql.single import Single
from jobboard.backends.sql.statements import SWEEP
from jobboard.backends.sql.store import SQLStore
from jobboard.backends.sql.tables import RECORD
from jobboard.backends.sql.writing import RowWriter
from jobboard.exceptions import JobFailure
from jobboard.primitives import Nonce
from jobboard.sql.prepared import Prepared, Runner, text
from jobboard.states import CLAIMED, Record

_SOON = 50_000
"""µs until the next look at what another's transaction has locked."""

_MANY_NAMES = 50


class TakeRequest(NamedTuple):
    """What a take asks for."""

    claim: dict[str, Any]
    limit: int
    readable: int
    names: Sequence[str] | None
    where: sa.ColumnElement[bool] | None


class TakenRows(NamedTuple):
    """What a take found; ``margin``, only of claims that a first try had made: for how long they stand."""

    records: list[Record]
    trashed: list[Record]
    event: int | None
    margin: int | None


class Glance(NamedTuple):
    """What one look found; ``event`` is in µs from now, and ``overdue`` tells that some jobs were not considered."""

    records: list[Record]
    overdue: bool
    event: int | None
    margin: int | None = None


class Taker:
    def __init__(self, store: SQLStore, writer: RowWriter, single: Single | None, quick: Quick | None) -> None:
        self._store = store
        self._writer = writer
        self._single = single
        self._quick = quick
        self._st = store.statements
        self._by_names: dict[tuple[int, int, bool], Prepared] = {}

    def take(self, request: TakeRequest, nonce: Nonce) -> TakenRows:
        trashed: list[Record] = []
        swept = full = False
        while True:
            try:
                look = self._look(request, nonce, swept)
            except JobFailure as error:
                # One row can have had the claim of all refused. Each time round there are fewer of these.
                damaged = self._set_aside() if type(error) is JobFailure else []
                if not damaged:
                    raise
                trashed += damaged
                continue
            if look.records or not (full if swept else look.overdue):
                event = look.event
                event = _SOON if event is not None and event <= 0 else event
                return TakenRows(look.records, trashed, event, look.margin)
            swept_rows, gone = self._store.transact(None, lambda run, _: self._writer.sweep(run))
            trashed += gone
            # While a sweep finds as much as it may, there may be more.
            swept, full = True, swept_rows >= SWEEP

    def _set_aside(self) -> list[Record]:
        aside = Aside(self._st)
        return self._store.transact(None, lambda run, _: aside(run, self._store.base["p_board"]))

    def _look(self, request: TakeRequest, nonce: Nonce, swept: bool) -> Glance:
        direct = request.where is None and (request.names is None or len(request.names) == 1)
        if self._single is not None and nonce.attempt == 1:
            if direct:
                statement = self._single.take("any" if request.names is None else "named", request.limit)
                return self._at_once(statement, request, nonce, swept)
            return self._at_once_of_candidates(request, nonce, swept)

        def work(run: Runner, earlier: Items | None) -> tuple[Glance, Items]:
            if earlier:
                standing, now = self._writer.still_held(run, earlier)
                if standing:
                    margin = min(record.lock_until - now for record in standing if record.lock_until is not None)
                    return Glance(standing, False, 0, margin), earlier
            if direct:
                statement = self._st.ready if request.names is None else self._st.ready_named
                (records, overdue), answer = self._writer.take(
                    run, statement, _params(request), request.claim, not swept
                )
            else:
                (records, overdue), answer = self._of_candidates(run, request, not swept)
            return Glance(records, overdue, 0), answer

        if self._quick is not None and nonce.attempt == 1 and direct:
            named = request.names is not None
            look = Glance(self._quick.take(request.claim, _params(request), named, swept, nonce), False, 0)
        else:
            look = self._store.transact(nonce, work)
        if look.records or look.overdue:
            return look
        [(now, event)] = self._store.query(self._st.event)
        return Glance([], event is not None and event <= now, None if event is None else event - now)

    def _at_once(self, statement: Prepared, request: TakeRequest, nonce: Nonce, swept: bool, **more: Any) -> Glance:
        params = {
            **self._store.base,
            **request.claim,
            **_params(request),
            **more,
            "p_swept": swept,
            "p_handle": nonce.handle,
            "p_slot": nonce.slot,
            "p_call": nonce.call,
        }
        rows = self._store.single(statement, params)
        now, event, busy = rows[0][RECORD:]
        left = None if event is None else event - now
        if rows[0][0] is None:
            overdue = left is not None and left <= 0
            return Glance([], overdue, _soon(left) if busy else left)
        records = [record_in(row, CLAIMED) for row in rows]
        if len(records) > 1:
            records.sort(key=_place)
        return Glance(records, False, left)

    def _at_once_of_candidates(self, request: TakeRequest, nonce: Nonce, swept: bool) -> Glance:
        assert self._single is not None
        single, limit = self._single, request.limit
        statement = single.take("ids", limit) if request.where is None else single.take_where(limit, request.where)
        after: tuple[int, int] | None = None
        busy = False
        while True:
            ids, after = self._store.links.run(lambda link, after=after: self._candidates(link, request, after))  # type: ignore[misc]
            look = self._at_once(statement, request, nonce, swept, p_ids=ids)
            if look.records or (look.overdue and not swept):
                return look
            if not ids:
                return look._replace(event=_soon(look.event)) if busy else look
            busy = True

    def _of_candidates(
        self, run: Runner, request: TakeRequest, sweep_first: bool
    ) -> tuple[tuple[list[Record], bool], Items]:
        # Rows that are looked at must not be locked before they are known to be taken: an engine locks what it reads.
        conditions = () if request.where is None else (request.where,)
        statement = self._st.ready_ids if request.where is None else self._st.pick_ids(*conditions)
        after: tuple[int, int] | None = None
        while True:
            ids, after = self._candidates(run, request, after)
            if not ids:
                return ([], False), []
            result, answer = self._writer.take(
                run, statement, {**_params(request), "p_ids": ids}, request.claim, sweep_first
            )
            if answer or result[1]:
                return result, answer

    def _candidates(
        self, run: Runner, request: TakeRequest, after: tuple[int, int] | None
    ) -> tuple[list[int], tuple[int, int] | None]:
        """The first ids behind ``after`` that look as wished; where the next ones begin."""
        params = {**self._store.base, "p_readable": request.readable}
        if after is not None:
            params |= {"p_priority": after[0], "p_id": after[1]}
        found: list[tuple[int, int]] = []
        names = request.names if request.where is None else None
        if names is None:
            conditions = [request.where] if request.where is not None else []
            if request.names is not None:
                conditions.append(self._st.jobs.c.name.in_(request.names))
            if after is not None:
                conditions.append(self._st.behind())
            found = [
                (row[1], row[0]) for row in run.rows(Prepared(self._st.candidates(request.limit, *conditions)), params)
            ]
        else:
            for start in range(0, len(names), _MANY_NAMES):
                some = names[start : start + _MANY_NAMES]
                statement = self._of_names(len(some), request.limit, after is None)
                named = {f"p_name{i}": name for i, name in enumerate(some)}
                found += [(row[1], row[0]) for row in run.rows(statement, {**params, **named})]
            found = sorted(set(found))[: request.limit]
        return [id_ for _, id_ in found], found[-1] if found else None

    def _of_names(self, count: int, limit: int, first: bool) -> Prepared:
        """For each name its own walk along the index, so that the other names' jobs are not met."""
        statement = self._by_names.get((count, limit, first))
        if statement is None:
            c = self._st.jobs.c
            parts = []
            for i in range(count):
                parameter = f"name{i}"
                conditions = [c.name == text(parameter)] + ([] if first else [self._st.behind()])
                parts.append(sa.select(self._st.candidates(limit, *conditions, index="by_name").subquery()))
            statement = self._by_names[count, limit, first] = Prepared(sa.union_all(*parts))
        return statement


def _soon(event: int | None) -> int:
    return _SOON if event is None else min(event, _SOON)


def _params(request: TakeRequest) -> dict[str, Any]:
    params: dict[str, Any] = {"p_readable": request.readable, "p_limit": request.limit}
    if request.names is not None and len(request.names) == 1:
        params["p_name"] = request.names[0]
    return params


def _place(record: Record) -> tuple[int, int]:
    return record[2], record[3]
