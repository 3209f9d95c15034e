"""Claiming what is next, in whatever way the database does it best."""

from __future__ import annotations

from jobboard.backends.sql.answers import Items
from jobboard.backends.sql.looking import SOON, Candidates, Glance, TakeRequest
from jobboard.backends.sql.oddities import Aside
from jobboard.backends.sql.shortcuts import Shortcuts, nothing_ready, tried
from jobboard.backends.sql.statements import SWEEP
from jobboard.backends.sql.store import SQLStore
from jobboard.backends.sql.writing import RowWriter
from jobboard.exceptions import JobFailure
from jobboard.primitives import Nonce
from jobboard.sql.prepared import Runner
from jobboard.states import Record


class Taker:
    def __init__(self, store: SQLStore, writer: RowWriter, shortcuts: Shortcuts) -> None:
        self._store = store
        self._writer = writer
        self._shortcuts = shortcuts
        self._st = store.statements
        self._candidates = store.statements.part(Candidates)

    def take(self, request: TakeRequest, nonce: Nonce) -> tuple[Glance, list[Record]]:
        """What was found; and what has gone to the trash on the way."""
        trashed: list[Record] = []
        full = False
        while True:
            if request.without:
                # Each time round: what a sweep brings back may have a name that was not there before.
                request = request._replace(names=self._store.names_but(request.without))
            try:
                look, nonce = tried(nonce, self._shortcuts.take, request)
                if look is None:
                    look = self._look(request, nonce)
            except JobFailure as error:
                self.make_way(error, trashed)
                continue
            ruled = look.gate not in (None, request.gate)
            if look.records or ruled or not (full if request.swept else look.overdue):
                if look.event is not None and look.event <= 0:
                    look = look._replace(event=SOON)
                return look, trashed
            since, ids = look.since, self._shortcuts.overdue(request, look.since)
            swept_rows, gone = self._store.transact(
                None,
                lambda run, _, since=since, ids=ids: self._writer.sweep(run, since, ids),  # type: ignore[misc]
            )
            trashed += gone
            # While a sweep finds as much as it may, there may be more.
            request, full = request._replace(swept=True), swept_rows >= SWEEP

    def make_way(self, error: JobFailure, trashed: list[Record]) -> None:
        """Put the rows into the trash that can't be claimed any more: one can have had the claim of all refused. Each
        time round there are fewer of these.

        :raises JobFailure: the error, where there are none.
        """
        aside = Aside(self._st)
        damaged: list[Record] = []
        if type(error) is JobFailure:
            damaged = self._store.transact(None, lambda run, _: aside(run, self._store.base["p_board"]))
        if not damaged:
            raise error
        trashed += damaged

    def _look(self, request: TakeRequest, nonce: Nonce) -> Glance:
        """The general way."""

        def work(run: Runner, earlier: Items | None) -> tuple[Glance, Items]:
            if earlier:
                standing, now = self._writer.still_held(run, earlier)
                if standing:
                    margin = min(record.lock_until - now for record in standing if record.lock_until is not None)
                    return Glance(standing, False, 0, margin), earlier
            if not request.direct:
                return self._of_candidates(run, request)
            statement = self._st.ready if request.names is None else self._st.ready_named
            return self._writer.take(run, statement, request)

        look = self._store.transact(nonce, work)
        return look if look.records or look.overdue else nothing_ready(self._store)

    def _of_candidates(self, run: Runner, request: TakeRequest) -> tuple[Glance, Items]:
        pick = self._st.ready_ids if request.where is None else self._st.pick_ids(request.where)
        base = self._store.base
        for ids in self._candidates.lists(request, lambda statement, params: run.rows(statement, {**base, **params})):
            if ids:
                look, answer = self._writer.take(run, pick, request, p_ids=ids)
                if answer or look.overdue:
                    return look, answer
        return Glance([], False, 0), []
