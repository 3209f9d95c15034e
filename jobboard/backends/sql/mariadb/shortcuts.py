"""MariaDB's shortcuts: several statements in one request, as a compound statement, which also commits.

A compound statement needs no right, and the driver binds its values as those of any other. What breaks off in its
middle has not come to its commit. Where something does not fit it fails, as if by a key that is taken, and is rolled
back.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa

from jobboard.backends.sql.answers import answered, taken, whole
from jobboard.backends.sql.looking import Candidates, Glance, TakeRequest
from jobboard.backends.sql.mariadb.compounds import ALL, as_text, committed, first_of
from jobboard.backends.sql.mariadb.lists import TEXT, ScopeLists
from jobboard.backends.sql.mariadb.openings import Openings, rules_told
from jobboard.backends.sql.mariadb.singles import Singles, one_rule
from jobboard.backends.sql.mariadb.skims import Skims
from jobboard.backends.sql.outcomes import Leaves, leaving, left_by
from jobboard.backends.sql.scopes import entries_of, exits
from jobboard.backends.sql.shortcuts import OWN, Ended, Scopes, Shortcuts, alike, nothing_ready, of_one_token
from jobboard.backends.sql.statements import Statements, held, now
from jobboard.backends.sql.store import SQLStore
from jobboard.backends.sql.tables import RECORD, literal, place_of
from jobboard.backends.sql.writing import claimed
from jobboard.engine import Limits
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.primitives import Draft, Finish, Nonce
from jobboard.sql.claims import locking
from jobboard.sql.hints import PRIMARY
from jobboard.sql.links import ConstraintViolated, Link
from jobboard.sql.prepared import Compound, Prepared, elements, param, text
from jobboard.states import SCHEDULED, UNCLAIMED, Record

LOG = logging.getLogger(__name__)

T = TypeVar("T")

# The longest comes last: what stands behind it is found only by reading it.
_DRAFTS = f"""JSON_TABLE(CONVERT(:p_drafts USING utf8mb4), '$[*]' COLUMNS (
  uuid VARCHAR(64) {TEXT} PATH '$[0]', name VARCHAR(255) {TEXT} PATH '$[1]', priority SMALLINT PATH '$[2]',
  version INT PATH '$[3]', max_attempts INT PATH '$[4]', job_group VARCHAR(255) {TEXT} PATH '$[5]',
  due BIGINT PATH '$[6]', delay BIGINT PATH '$[7]', posting LONGTEXT CHARACTER SET utf8mb4 PATH '$[8]')) AS draft"""
_RESULTS = f"""JSON_TABLE(:p_results, '$[*]' COLUMNS (
  uuid VARCHAR(64) {TEXT} PATH '$[0]', result LONGTEXT CHARACTER SET utf8mb4 PATH '$[1]')) AS act"""
_ALIKE = f"""JSON_TABLE(CONVERT(:p_drafts USING utf8mb4), '$[*]' COLUMNS (
  uuid VARCHAR(64) {TEXT} PATH '$[0]', posting LONGTEXT CHARACTER SET utf8mb4 PATH '$[1]')) AS draft"""
_GIVEN = ("uuid", "name", "priority", "version", "max_attempts", "job_group", "posting")

TRIES = 8
"""How often a take under limits looks for jobs that others are not quicker at."""
LOSSES = 2
"""And how often it finds room that is not there."""

_NOTHING = Compound("DECLARE l_now BIGINT; DECLARE l_told LONGTEXT;")


class MariaDBStatements:
    def __init__(self, statements: Statements) -> None:
        self._st = st = statements
        self.insert_one = committed(st, _insert_one(st))
        self.insert_alike = committed(st, _insert_alike(st))
        self.insert_many = committed(st, _insert_many(st))
        self.picks = {False: _pick(st, "ready"), True: _pick(st, "by_name", st.jobs.c.name == text("name"))}
        self.pick_ids = _pick(st, PRIMARY, st.jobs.c.id.in_(elements("ids")), lists=("p_ids",))
        timely = _timely(st)
        self.pick_first = Prepared(
            locking(first_of(st, sa.select(as_text(st)).where(st.ready_condition(), timely)), st.product)
        )
        self.claim = committed(st, st.claim_ruled, ALL, lists=("p_ids",))
        self._lists = st.part(ScopeLists)
        # The jobs come first, then the gate, then the lists: in this order all lock them.
        self.claim_entering = committed(st, st.claim_ruled, ALL, *self._lists.enter, lists=("p_ids",))
        self._ends: dict[tuple[Leaves, int], Compound] = {}

    def end(self, leaves: Leaves, exits: int) -> Compound:
        """:param exits: so many scopes are left; 2: several. It answers how many were, unless that is 0."""
        if (leaves, exits) not in self._ends:
            left = () if leaves == "nothing" else (_leave(self._st, leaves), ALL)
            leaving = ((), (self._lists.exit_one,), (self._lists.exit,))[exits]
            parts = (*left, self._st.consume, ALL, *leaving)
            self._ends[leaves, exits] = committed(self._st, *parts, lists=("p_uuids",))
        return self._ends[leaves, exits]


class MariaDBShortcuts(Shortcuts):
    def __init__(self, store: SQLStore) -> None:
        super().__init__(store)
        self._able: bool | None = None
        self._sql = store.statements.part(MariaDBStatements)
        self._singles = store.statements.part(Singles)
        self._skims = Skims(store.statements)
        self._openings = Openings(store.statements)
        self._candidates = store.statements.part(Candidates)

    def _run(self, work: Callable[[Link], T]) -> T:
        if self._able is None:
            # The server, or what stands before it, may not take any: in its Oracle mode MariaDB spells them otherwise.
            try:
                self.store.links.run(lambda link: link.compound(_NOTHING, {}))
            except ConnectionFailure:
                raise
            except JobFailure as error:
                LOG.info("compound statements are refused (%s), so that each statement is a request", error)
                self._able = False
            else:
                self._able = True
        if not self._able:
            raise ConstraintViolated("no compound statements here")
        return self.store.links.run(work)

    def insert(self, drafts: Sequence[Draft], nonce: Nonce) -> list[Record]:
        params = {**self.store.base, **answered(nonce, [whole(len(drafts))])}
        listed: list[Any] = []
        if alike(drafts):
            statement = self._sql.insert_one
            params |= {f"p_{name}": value for name, value in zip(_GIVEN, _given(drafts[0]), strict=True)}
            if len(drafts) > 1:
                statement = self._sql.insert_alike
                listed = [(draft.uuid, draft.posting) for draft in drafts]
        else:
            statement = self._sql.insert_many
            listed = [[*_given(draft)[:-1], draft.due, draft.delay, draft.posting] for draft in drafts]
        if listed:
            # Of a text the driver looks at each character for what is to be escaped: a quarter of what a batch costs
            # the client. Bytes it writes down in hex, twice as long.
            params["p_drafts"] = _as_json(listed).encode()
        rows = self._run(lambda link: link.compound(statement, params))
        places = {uuid: (int(id_), int(at)) for id_, at, uuid in (row[0].split(" ") for row in rows)}
        return [draft.record(*places[draft.uuid]) for draft in drafts]

    def take(self, request: TakeRequest, nonce: Nonce) -> Glance | None:
        return self._taken(request, None, nonce) if request.where is None else None

    def overdue(self, request: TakeRequest, since: int) -> list[int] | None:
        # Of several names it is not known whether looks are dear.
        if not (self._able and request.direct):
            return None
        return self._run(lambda link: self._skims.overdue(link, request, {**self.store.base, "p_since": since}))

    def enter(self, request: TakeRequest, limits: Limits, nonce: Nonce) -> Glance | None:
        if request.where is not None:
            return None
        rules = rules_told(limits, request.names) if request.direct else None
        beside = rules is not None and self._openings.crowded(request.name)
        losses: list[ConstraintViolated] = []
        for _ in range(TRIES):
            lost = len(losses)
            look = None
            try:
                look = self._taken(request, limits, nonce, rules if beside else None)
            except ConstraintViolated as error:
                losses.append(error)
            if look is not None and (look.records or look.overdue or not beside):
                break
            if not beside and rules is not None:
                self._openings.crowd(request.name)
                beside = True
            elif look is None and (rules is None or len(losses) in (lost, LOSSES)):
                break
            else:
                # Others have been quicker at what it has found.
                self._openings.widen(request.name)
        if look is not None and look.records:
            return look
        if losses:
            raise losses[-1]
        # Of what others hold, or has to wait, the general way tells more.
        return None

    def _taken(
        self, request: TakeRequest, limits: Limits | None, nonce: Nonce, rules: dict[str, str] | None = None
    ) -> Glance | None:
        """None: not all of these jobs have room for sure.

        :param rules: by these it looks for the first ones that have room."""
        params = {**self.store.base, **request.params, "p_swept": request.swept}

        def work(link: Link) -> Glance | None:
            skimmed = None
            if rules is not None:
                params["p_ids"] = self._openings.first(link, request, {**params, **rules})
                if params["p_ids"] is None:
                    link.rollback()
                    return None
            elif request.direct:
                skimmed = self._skims.look(link, request, params)
            alone = skimmed is None and request.direct and request.limit == 1
            if alone and (rule := one_rule(limits, request.names)) is not None:
                return self._singles.take(link, request, {**params, **rule}, nonce)
            texts = self._texts(link, request, params) if skimmed is None else skimmed.texts
            records = self._claim(link, request, limits, params, texts, nonce)
            if not records:
                [(instant, event, _)] = link.rows(self.statements.event, params) if rules else [(0, None, None)]
                link.rollback()
                nothing = None if rules is None else Glance([], event is not None and event <= instant, None)
                return None if records is None else nothing if skimmed is None else skimmed.glance
            if skimmed is None and request.direct:
                self._skims.queues.taken(request, len(records))
            return Glance(records, False, 0)

        look = self._run(work)
        return nothing_ready(self.store) if look is None and limits is None else look

    def _texts(self, link: Link, request: TakeRequest, params: dict[str, Any]) -> list[str]:
        """The first jobs, locked, as texts."""
        if not request.direct:
            return self._among(link, request, params)
        pick = self._sql.pick_first if "p_ids" in params else self._sql.picks[request.names is not None]
        return [row[0] for row in link.often(pick, params)]

    def _claim(
        self,
        link: Link,
        request: TakeRequest,
        limits: Limits | None,
        params: dict[str, Any],
        texts: Sequence[str],
        nonce: Nonce,
    ) -> list[Record] | None:
        """Claim these, all of them; None: not all of them have room for sure."""
        if None in texts:
            raise ConstraintViolated("a row is longer, as JSON, than a packet may be")
        if not texts:
            return []
        rows = [json.loads(each) for each in texts]
        instant = rows[0][RECORD]
        records = [claimed(row, request.lease, instant) for row in rows]
        kept = answered(nonce, taken(records))
        ids = [record.sequence for record in records]
        entries = [] if limits is None else entries_of(limits, records)
        if entries is None:
            return None
        if entries:
            told = sorted([each[f"p_{name}"] for name in ("place", "key", "part", "room")] for each in entries)
            kept |= {"p_entries": _as_json(told), "p_number": len(told), "p_version": secrets.randbits(62)}
        claim = self._sql.claim_entering if entries else self._sql.claim
        kept |= {"p_now": instant, "p_ids": ids, "p_count": len(ids)}
        link.compound(claim, {**params, **request.lease, **kept})
        return records

    def _among(self, link: Link, request: TakeRequest, params: dict[str, Any]) -> list[str]:
        """The first jobs of several names, locked, as texts. They are found without a lock."""
        for ids in self._candidates.lists(request, lambda each, more: link.often(each, {**params, **more})):
            if not ids:
                break
            if texts := [row[0] for row in link.rows(self._sql.pick_ids, {**params, "p_ids": ids})]:
                return texts
            [(instant, event, gate)] = link.rows(self.statements.event, params)
            if gate != request.gate or not (request.swept or event is None or event > instant):
                break
        return []

    def end(self, acts: Sequence[Finish], held: Scopes, gate: int, nonce: Nonce) -> Ended | None:
        left = left_by(acts)
        if left is None or not of_one_token(acts):
            return None
        params = {
            **self.store.base,
            **answered(nonce, [whole(len(acts))]),
            **left.params,
            "p_uuids": [act.uuid for act in acts],
            "p_token": acts[0].holder.token,
            "p_count": len(acts),
        }
        if left.leaves == "own":
            params["p_results"] = _as_json([[act.uuid, act.result] for act in acts])
        left_ones = [[place_of(scope.key), part] for scope, part in exits(acts, held)]
        # One statement changes a row once.
        once = 0 < len(left_ones) == len({place for place, _ in left_ones})
        if once and len(left_ones) == 1:
            [(params["p_place"], params["p_part"])] = left_ones
        elif once:
            params["p_exits"] = _as_json(sorted(left_ones))
        statement = self._sql.end(left.leaves, min(len(left_ones), 2) if once else 0)
        rows = self._run(lambda link: link.compound(statement, params))
        listed = not left_ones or (once and rows[0][0] == len(left_ones))
        return Ended(() if listed else held, gate)


def _as_json(rows: Sequence[Sequence[Any]]) -> str:
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":"))


def _given(draft: Draft) -> tuple[Any, ...]:
    uuid, name, priority, _, version, posting, max_attempts, _, _, _, group, *_ = draft
    return uuid, name, priority, version, max_attempts, group, posting


def _leave(st: Statements, leaves: Leaves) -> Prepared:
    """Before the jobs go: both statements must meet all of them, or nothing is done."""
    c = st.jobs.c
    mine = (c.uuid.in_(elements("uuids", sa.String())), st.mine_too, c.token == param("token"), held(st.jobs))
    if leaves == "alike":
        return Prepared(leaving(st.tables, c, *mine), "p_uuids")
    results = sa.text(_RESULTS).bindparams(text("results"))
    result: sa.ColumnElement[str] = sa.literal_column("act.result")
    same = c.uuid == sa.literal_column("act.uuid")
    return Prepared(leaving(st.tables, c, *mine, same, result=result, source=results), "p_uuids")


def _insert_one(st: Statements) -> Prepared:
    values: dict[str, Any] = {name: param(name, st.jobs.c[name].type) for name in _GIVEN}
    return _returning(st, sa.insert(st.jobs).values({**values, "state": literal(UNCLAIMED), **_fresh()}))


def _insert_alike(st: Statements) -> Prepared:
    drafts = sa.text(_ALIKE).bindparams(param("drafts", sa.LargeBinary()))
    values: dict[str, Any] = {name: param(name, st.jobs.c[name].type) for name in _GIVEN if name not in OWN}
    values |= {**{name: sa.literal_column(f"draft.{name}") for name in OWN}, "state": literal(UNCLAIMED), **_fresh()}
    rows = sa.select(*values.values()).select_from(drafts)
    return _returning(st, sa.insert(st.jobs).from_select(list(values), rows))


def _insert_many(st: Statements) -> Prepared:
    drafts = sa.text(_DRAFTS).bindparams(param("drafts", sa.LargeBinary()))
    c: dict[str, sa.ColumnElement[Any]] = {
        name: sa.literal_column(f"draft.{name}") for name in (*_GIVEN, "due", "delay")
    }
    wanted = sa.func.coalesce(c["due"], now + c["delay"])
    due = sa.case((wanted > now, wanted))
    state = sa.case((due.is_(None), literal(UNCLAIMED)), else_=literal(SCHEDULED))
    values = {**{name: c[name] for name in _GIVEN}, "state": state, "lock_until": due, "wake_at": due, **_fresh()}
    rows = sa.select(*values.values()).select_from(drafts)
    return _returning(st, sa.insert(st.jobs).from_select(list(values), rows))


def _fresh() -> dict[str, Any]:
    zeros = dict.fromkeys(("attempts", "token", "retries"), sa.literal(0))
    return {**zeros, "created_on": now, "modified_on": now, "board": text("board")}


def _returning(st: Statements, insert: sa.Insert) -> Prepared:
    c = st.jobs.c
    blank = sa.literal(" ", sa.String(), literal_execute=True)
    return Prepared(insert.returning(sa.func.concat_ws(blank, c.id, c.created_on, c.uuid)))


def _pick(st: Statements, index: str, *conditions: sa.ColumnElement[bool], lists: Sequence[str] = ()) -> Prepared:
    select = st.in_order(sa.select(as_text(st)).where(st.ready_condition(), _timely(st), *conditions), index)
    return Prepared(locking(select, st.product), *lists)


def _timely(st: Statements) -> sa.ColumnElement[bool]:
    """Nothing is overdue. Not only found out afterwards: others pass over what is locked, and would be served what
    comes behind it."""
    event = st.first_event().scalar_subquery()
    return sa.or_(param("swept", sa.Boolean()), event.is_(None), event > now)
