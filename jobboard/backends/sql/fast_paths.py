"""Fast paths: the plain case of a verb in one request, or in one short transaction on SQLite.

The statements stand in ``postgresql.sql``, ``mariadb.sql`` and ``sqlite.sql``. A fast path does the whole call and
stores its answer, or does nothing and leaves the call to the engine. MySQL has no fast paths.
"""

from __future__ import annotations

import abc
import functools
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from jobboard import states
from jobboard.backends.sql import scopes
from jobboard.backends.sql.columns import RECORD_COLUMNS
from jobboard.backends.sql.rows import Row, record_of, stored_of
from jobboard.backends.sql.starts import CALLERS, Point, Starts, SurveyResult, WriteMoment
from jobboard.backends.sql.statements import NAMES_AT_ONCE, Statement, Statements
from jobboard.engine import ClaimTerms, LimitScope, Side, Stored, tries
from jobboard.primitives import Draft, Finish, Nonce
from jobboard.sql.connections import ConstraintViolated, Link, Links
from jobboard.sql.dialects import Database, Trouble
from jobboard.states import CONSUME, serving_order

T = TypeVar("T")

SPARE_JOBS = 8
"""The number of additional jobs that a take of several names, or from a starting point, reads, as others may hold the
first ones."""

MOST_HELD = 200
"""The number of jobs that a take from a starting point reads on MariaDB where others hold all the first ones."""

MOST_BELOW = 500
"""The largest product of priorities and names that a look from a starting point on MariaDB reads one by one."""

AHEAD = 9
"""The number of first jobs from which a take under limits chooses one. Other workers may claim the first jobs
meanwhile."""

Params = dict[str, Any]


class Looks(NamedTuple):
    """The statement of a take, the statement that shows why the take has found nothing, and their arguments."""

    take: Statement
    nothing: Statement
    params: Params


class FastPaths(abc.ABC):
    """See the fast paths of :class:`~jobboard.engine.Store`.

    :param base: the arguments of all statements: ``board`` and ``channel``.
    :param notify: whether a post wakes the listeners of the channel.
    """

    def __init__(self, links: Links, statements: Statements, base: Mapping[str, Any], notify: bool) -> None:
        self._links = links
        self._statements = statements
        self._base = base
        self._starts = Starts()
        self._notify = {"notify": statements.text("post_notify")} if notify else {}

    def forked(self) -> None:
        # A thread of the parent may have held the lock of a survey.
        self._starts = Starts()

    def post(self, drafts: Sequence[Draft], nonce: Nonce) -> list[Stored] | None:
        rows = self._insert_jobs(list(map(_row, drafts)), {**_slot(nonce), "answer": f"* {len(drafts)}"})
        if not rows:
            return None
        places = {uuid: (id_, tag, now) for uuid, id_, tag, now, *_ in rows}
        return [_posted(draft, *places[draft.uuid]) for draft in drafts]

    def take(
        self, lease: ClaimTerms, limit: int, names: Sequence[str] | None, readable: int, nonce: Nonce
    ) -> tuple[list[Stored], int | None] | None:
        looks = self._looks(names, limit)
        if looks is None:
            return None
        params = {**_slot(nonce), **lease._asdict(), **looks.params, "readable": readable, "limit": limit, "gate": -1}
        claims: list[Stored] | None = []
        if (point := self.point(names, readable)) is not None:
            take, more = self._since(point, names, limit)
            claims = self._claim_jobs(take, {**params, **more})
        if claims == []:
            claims = self._claim_jobs(looks.take, params)
        if claims is None:
            return None
        if claims:
            return sorted(claims, key=lambda claim: serving_order(claim.record)), None
        # No job can be taken if one statement sees none. Otherwise the engine looks: it sweeps, and finds jobs that
        # came back meanwhile, and jobs behind those that other transactions hold.
        [(now, event, has_rules, has_jobs)] = self._read(looks.nothing, {**self._base, **params, "behind": 0})
        if has_rules or has_jobs or (event is not None and event <= now):
            return None
        return [], None if event is None else event - now

    def take_limited(
        self,
        lease: ClaimTerms,
        names: Sequence[str] | None,
        readable: int,
        nonce: Nonce,
        gate: Side,
        scopes_of: Callable[[str, str | None], Sequence[LimitScope]],
    ) -> Stored | None:
        if names is not None and len(names) > NAMES_AT_ONCE:
            return None
        ahead, looked = self._first_ready(names, self.point(names, readable))
        params = {**self._base, **_slot(nonce), **lease._asdict(), "limit": 1, "gate": gate.tag}

        def work(link: Link) -> Stored | None:
            waits = False
            for _ in range(tries.LIMITED):
                found = self._read_first_ready(link, ahead, {**self._base, **looked, "readable": readable})
                jobs = [(id_, tag, scopes_of(name, group)) for id_, tag, name, group in found]
                wanted = {scope for *_, mine in (jobs[:1] if waits else jobs) for scope in mine}
                locks = scopes.part_locks(self._statements, wanted, waits)
                asked = [*locks, *scopes.counts(self._statements, wanted)]
                keeps_out = any(scopes.parts_beside(scope) == 0 for scope in wanted)
                filled = [(made, {**self._base, **some}) for made, some in asked]
                try:
                    rows = link.several(filled, begins=True, hurries=keeps_out)
                except Exception as error:
                    if self._links.known_product().trouble(error, link.raw) is not Trouble.CONTENDED:
                        raise
                    # If a scope is locked for long, the engine claims a later job.
                    link.rollback()
                    return None
                locked = scopes.with_locked_part(self._statements, wanted, rows[: len(locks)])
                claims = scopes.claims_in(rows[len(locks) :])
                if free := list(_free(jobs, locked, claims)):
                    tags = {"ids": [id_ for id_, _ in free], "versions": [f"{id_} {tag}" for id_, tag in free]}
                    more = {**params, **tags, "tags": json.dumps(free)}
                    if (claim := self._claim_one_of(link, more, keeps_out)) is not None:
                        return claim
                    # Other workers have claimed all of these jobs meanwhile.
                    waits = False
                else:
                    link.rollback()
                    if not jobs or locked.issuperset(jobs[0][2]):
                        return None
                    waits = True
            return None

        return self._try_once(work)

    def claim(self, uuid: str, lease: ClaimTerms, nonce: Nonce) -> Stored | None:
        claims = self._claim_jobs(
            self._statements["claim"], {**_slot(nonce), **lease._asdict(), "uuid": uuid, "gate": -1}
        )
        return claims[0] if claims else None

    def consume(self, acts: Sequence[Finish], nonce: Nonce, gate: Side) -> bool:
        if any(act.end.verb != CONSUME for act in acts):
            return False
        claims = self._claims([(act.uuid, act.holder.token) for act in acts])
        known = -1 if gate.tag is None else gate.tag
        params = {**_slot(nonce), **claims, "answer": f"* {len(acts)}", "count": len(acts), "gate": known}
        kept = []
        for act in acts:
            if act.keep:
                result, refused = act.end.result or (None, None)
                kept.append({"uuid": act.uuid, "keep": act.keep, "refused": refused, "result": result})
        if not kept:
            return self._end_claims(self._statements["consume"], params)
        outcomes = self._statements.text("consume_outcomes")
        leaving = self._statements.fill("consume", outcomes=outcomes, columns="*,")
        return self._end_claims(leaving, {**params, "outcomes": self._packed(kept), "kept": len(kept)})

    def renew(self, handle: str, held: Sequence[tuple[str, int]], ttl: int) -> Sequence[tuple[str, int]]:
        params = {**self._claims(held), "handle": handle, "ttl": ttl}
        renewed = {(uuid, token) for *_, uuid, token in self._renew_claims(params) or ()}
        return [claim for claim in held if claim not in renewed]

    # What differs from database to database

    @abc.abstractmethod
    def _write(self, link: Link, statement: Statement, params: Params) -> Sequence[Row]:
        """Run a statement as a transaction.

        :raises ConstraintViolated: it has done nothing.
        """

    def _insert_jobs(self, jobs: Sequence[Params], params: Params) -> Sequence[Row] | None:
        """Insert jobs; return their uuids, ids, tags and times, or None if the call was refused."""
        if len(jobs) == 1 and jobs[0]["due"] is None and jobs[0]["delay"] is None:
            return self._do(self._statements.fill("post", **self._notify), {**params, **jobs[0]})
        return self._do(self._statements.fill("post_many", **self._notify), {**params, **self._drafts(jobs)})

    def _claim_jobs(self, statement: Statement, params: Params) -> list[Stored] | None:
        """Run a statement that claims jobs; return None if it was refused."""
        rows = self._do(statement, params)
        return None if rows is None else [stored_of(row) for row in rows]

    def _end_claims(self, statement: Statement, params: Params) -> bool:
        """Run a statement that ends claims; return whether it has ended them all."""
        return bool(self._do(statement, params))

    def _renew_claims(self, params: Params) -> Sequence[Row] | None:
        """Renew claims; return rows that end with a uuid and a token."""
        return self._do(self._statements["renew"], params)

    def _read(self, statement: Statement, params: Params) -> Sequence[Row]:
        """Run a statement that only reads."""

        def work(link: Link) -> Sequence[Row]:
            rows = link.rows(statement, params)
            link.end_read()
            return rows

        return self._links.run(work)

    @abc.abstractmethod
    def _looks(self, names: Sequence[str] | None, limit: int) -> Looks | None:
        """Return the statements of a take; None: only the engine can do it."""

    @abc.abstractmethod
    def _first_ready(self, names: Sequence[str] | None, point: Point | None) -> tuple[Statement, Params]:
        """Return the statement that reads ids, tags, names and groups of the first ready jobs, and its arguments."""

    def _read_first_ready(self, link: Link, ahead: Statement, params: Params) -> Sequence[Row]:
        rows = link.rows(ahead, params)
        link.end_read()
        return rows

    @abc.abstractmethod
    def _claim_one_of(self, link: Link, params: Params, hurries: bool) -> Stored | None:
        """Claim the first free one of these jobs in the transaction that has begun, and end the transaction.

        :param hurries: see :meth:`Link.several`."""

    def _since(self, point: Point, names: Sequence[str] | None, limit: int) -> tuple[Statement, Params]:
        """Return the statement of a take that begins at a starting point, and its arguments."""
        raise NotImplementedError

    def ready_since(self, point: Point, names: Sequence[str] | None, limit: int) -> tuple[Statement, Params]:
        """Return the statement that reads the first ready jobs from a starting point on, and its arguments."""
        raise NotImplementedError

    def _surveying(self, point: Point, names: Sequence[str] | None) -> tuple[Statement, Params]:
        """Return the statement of a survey, and its arguments."""
        raise NotImplementedError

    def _drafts(self, jobs: Sequence[Params]) -> Params:
        """Return new jobs as arguments."""
        raise NotImplementedError

    @staticmethod
    @abc.abstractmethod
    def _listed(values: Sequence[str]) -> Any:
        """Return a list as an argument."""

    @staticmethod
    @abc.abstractmethod
    def _packed(rows: Sequence[Mapping[str, Any]]) -> Any:
        """Return rows as an argument."""

    # Parts

    def _do(self, statement: Statement, params: Params) -> Sequence[Row] | None:
        """Run a statement as a transaction; return None if it was refused."""
        return self._try_once(lambda link: self._write(link, statement, {**self._base, **params}))

    def _try_once(self, work: Callable[[Link], T]) -> T | None:
        """Do work as one transaction; return None if it was refused."""
        try:
            return self._links.run(work)
        except ConstraintViolated:
            return None

    def point(self, names: Sequence[str] | None, readable: int) -> Point | None:
        """Return the starting point of a take; None: the beginning of the index."""
        return self._starts.of(names).point(_Requests(self, names, readable))

    def moment(self, highest: int) -> WriteMoment | None:
        """See :meth:`SurveyRequests.moment <jobboard.backends.sql.starts.SurveyRequests.moment>`."""

        def work(link: Link) -> WriteMoment | None:
            if link.has_begun:
                return None
            # The transactions come last: a later one stores later instants, and draws higher ids.
            [(now, found)] = link.rows(self._statements["moment"], {**self._base, "highest": highest})
            under_way = self._under_way(link)
            link.end_read()
            return WriteMoment(now, found, frozenset(under_way))

        return self._links.run(work)

    def survey(self, since: Point, names: Sequence[str] | None, readable: int) -> SurveyResult:
        """See :meth:`SurveyRequests.survey <jobboard.backends.sql.starts.SurveyRequests.survey>`."""
        statement, params = self._surveying(since, names)
        rows = self._read(statement, {**self._base, **params, "readable": readable})
        *_, event, ran = rows[-1]
        return SurveyResult([(row[0], row[1]) for row in rows if row[0] is not None], event, ran)

    def _under_way(self, link: Link) -> Iterable[str]:
        """Return marks of the transactions that may write at this moment."""
        raise NotImplementedError

    def _claims(self, claims: Sequence[tuple[str, int | None]]) -> Params:
        return {
            "uuids": self._listed([uuid for uuid, _ in claims]),
            "claims": self._listed([f"{uuid} {token}" for uuid, token in claims]),
        }


class _Requests(NamedTuple):
    """The requests of a survey for the jobs of some names."""

    paths: FastPaths
    names: Sequence[str] | None
    readable: int

    def moment(self, highest: int) -> WriteMoment | None:
        return self.paths.moment(highest)

    def survey(self, since: Point) -> SurveyResult:
        return self.paths.survey(since, self.names, self.readable)


class PostgreSQLPaths(FastPaths):
    def _write(self, link: Link, statement: Statement, params: Params) -> Sequence[Row]:
        return link.single(statement, params)

    def _looks(self, names: Sequence[str] | None, limit: int) -> Looks | None:
        parts, params = self._ready(names, limit)
        take = self._statements.fill("take", limit=str(limit), **parts)
        return Looks(take, self._statements.fill("take_nothing", **parts), params)

    def _ready(self, names: Sequence[str] | None, limit: int) -> tuple[dict[str, str], Params]:
        """Return the parts of a statement for the first ready jobs, and its arguments."""
        st = self._statements
        if names is None:
            return {"ready": st.text("take_any")}, {}
        if len(names) == 1:
            return {"ready": st.text("take_of_name"), "of_one": st.text("of_one")}, {"name": names[0]}
        return {"ready": st.fill("take_of_names", some=str(limit + SPARE_JOBS)).text}, {"names": "\n".join(names)}

    def _first_ready(self, names: Sequence[str] | None, point: Point | None) -> tuple[Statement, Params]:
        parts, params = self._ready(names, AHEAD)
        if point is not None:
            ranges, params = self._ranges(point, names)
            parts = {"ready": self._statements.text("take_since", some=str(AHEAD), **ranges)}
        return self._statements.fill("ahead", limit=str(AHEAD), **parts), params

    def _claim_one_of(self, link: Link, params: Params, hurries: bool) -> Stored | None:
        take = self._statements.fill("take", ready=self._statements.text("take_ahead"), limit="1")
        [rows] = link.several([(take, params)], ends=True, hurries=hurries)
        return stored_of(rows[0]) if rows else None

    def _since(self, point: Point, names: Sequence[str] | None, limit: int) -> tuple[Statement, Params]:
        parts, params = self._ranges(point, names)
        ready = self._statements.text("take_since", some=str(2 * limit + SPARE_JOBS), **parts)
        since = self._statements.text("since")
        return self._statements.fill("take", ready=ready, since=since, limit=str(limit)), params

    def ready_since(self, point: Point, names: Sequence[str] | None, limit: int) -> tuple[Statement, Params]:
        parts, params = self._ranges(point, names)
        first = self._statements.text("take_since", some=str(limit), **parts)
        return self._statements.fill("ready_since", first=first), params

    def _surveying(self, point: Point, names: Sequence[str] | None) -> tuple[Statement, Params]:
        parts, params = self._ranges(point, names)
        return self._statements.fill("survey", **parts), params

    def _under_way(self, link: Link) -> Iterable[str]:
        return (mark for (mark,) in link.rows(self._statements["writing"], self._base))

    def _ranges(self, point: Point, names: Sequence[str] | None) -> tuple[dict[str, str], Params]:
        st, lists = self._statements, zip(("priorities", "ids", "pasts"), zip(*point.ranges, strict=True), strict=True)
        params = {**point.instants, **{name: f"{{{','.join(map(str, values))}}}" for name, values in lists}}
        if names is None:
            return {"ranges": st.text("ranges"), "in_range": st.text("in_range")}, params
        texts = {"ranges": "ranges_of_names", "in_range": "in_range_of_name", "of_one": "of_one", "of_any": "of_any"}
        parts = {part: st.text(name) for part, name in texts.items()}
        return parts, {**params, "names": "\n".join(names)}

    # Encoding an array costs the driver more than splitting a text costs the server.

    def _drafts(self, jobs: Sequence[Params]) -> Params:
        columns = zip(*(job.values() for job in jobs), strict=True)
        return {
            name: "\x1e".join(["\x1f" if value is None else str(value) for value in column])
            for name, column in zip(jobs[0], columns, strict=True)
        }

    @staticmethod
    def _listed(values: Sequence[str]) -> Any:
        return ",".join(values)

    @staticmethod
    def _packed(rows: Sequence[Mapping[str, Any]]) -> Any:
        return json.dumps(rows, ensure_ascii=False)


class MariaDBPaths(FastPaths):
    _callers = frozenset(map(str, range(CALLERS)))

    def _write(self, link: Link, statement: Statement, params: Params) -> Sequence[Row]:
        return _unpacked(link.compound(statement, params))

    def _read(self, statement: Statement, params: Params) -> Sequence[Row]:
        return _unpacked(super()._read(statement, params))

    def _claim_jobs(self, statement: Statement, params: Params) -> list[Stored] | None:
        def work(link: Link) -> list[Stored]:
            link.begin()
            return self._claim(link, statement, {**self._base, **params})

        return self._try_once(work)

    def _claim(self, link: Link, statement: Statement, params: Params) -> list[Stored]:
        """Claim the jobs that a statement locks, and end the transaction."""
        rows = _unpacked(link.rows(statement, params))
        if not rows and "returned" in params:
            # Other transactions may hold the first jobs. Skipping them with locking reads takes many times as long.
            rows = _unpacked(link.rows(statement, {**params, "some": MOST_HELD}))
        if not rows:
            link.rollback()
            return []
        now = rows[0][-1]
        claims = [_claim_of(row, params, now) for row in rows]
        changed = {
            "now": now,
            "ids": [record.sequence for record, *_ in claims],
            "answer": ",".join([f"{record.uuid} {record.token}" for record, *_ in claims]),
        }
        link.compound(self._statements["claim_locked"], {**params, **changed})
        return claims

    def _claim_one_of(self, link: Link, params: Params, hurries: bool) -> Stored | None:
        claims = self._claim(link, self._statements["take_ahead"], params)
        return claims[0] if claims else None

    def _first_ready(self, names: Sequence[str] | None, point: Point | None) -> tuple[Statement, Params]:
        st = self._statements
        if point is not None:
            ones, params = self._parts_of_names("take", point, names)
            returned = st.text("returned", of_names="" if names is None else st.text("of_names"))
            return st.fill("ahead", ones=ones, returned=returned), {**params, "some": AHEAD}
        if names is None:
            return st.fill("ahead", ones=st.text("ahead_any")), {"some": AHEAD}
        params = {"some": AHEAD, **{f"one{i}": name for i, name in enumerate(names)}}
        return st.union("ahead", "take_of", len(names)), params

    def _read_first_ready(self, link: Link, ahead: Statement, params: Params) -> Sequence[Row]:
        return [row[1:] for row in sorted(_unpacked(super()._read_first_ready(link, ahead, params)))]

    def _end_claims(self, statement: Statement, params: Params) -> bool:
        return self._do(statement, params) is not None

    def _renew_claims(self, params: Params) -> Sequence[Row] | None:
        def work(link: Link) -> Sequence[Row]:
            link.begin()
            rows = _unpacked(link.rows(self._statements["renew_locked"], {**self._base, **params}))
            if rows:
                link.count(self._statements["renew"], {**params, "ids": [row[0] for row in rows]})
            link.commit()
            return rows

        return self._try_once(work)

    def _looks(self, names: Sequence[str] | None, limit: int) -> Looks | None:
        st = self._statements
        if names is None:
            return Looks(st.fill("take", index="ready"), st.fill("take_nothing", index="ready"), {})
        if len(names) > NAMES_AT_ONCE:
            return None
        nothing = st.fill("take_nothing", index="by_name", of_names=st.text("of_names"))
        params: Params = {"names": names}
        if len(names) == 1:
            take = st.fill("take", index="by_name", of_names=st.text("of_names"))
        else:
            take = st.union("take_of_all", "take_of", len(names))
            params |= {"some": limit + SPARE_JOBS, **{f"one{i}": name for i, name in enumerate(names)}}
        return Looks(take, nothing, params)

    def _since(self, point: Point, names: Sequence[str] | None, limit: int) -> tuple[Statement, Params]:
        st, (ones, params) = self._statements, self._parts_of_names("take", point, names)
        returned = st.text("returned", of_names="" if names is None else st.text("of_names"))
        take = st.fill("take_of_all", ones=ones, returned=returned, since=st.text("since"))
        return take, {**params, "some": 2 * limit + SPARE_JOBS}

    def ready_since(self, point: Point, names: Sequence[str] | None, limit: int) -> tuple[Statement, Params]:
        st, (ones, params) = self._statements, self._parts_of_names("take", point, names)
        returned = st.text("returned", of_names="" if names is None else st.text("of_names"))
        return st.fill("ready_since", ones=ones, returned=returned), {**params, "some": limit}

    def _surveying(self, point: Point, names: Sequence[str] | None) -> tuple[Statement, Params]:
        ones, params = self._parts_of_names("survey", point, names)
        return self._statements.fill("survey_all", ones=ones), params

    def _under_way(self, link: Link) -> Iterable[str]:
        free = {place for (place,) in link.compound(self._statements["callers_free_locked"], self._base)}
        return self._callers - free

    def _parts_of_names(self, verb: str, point: Point, names: Sequence[str] | None) -> tuple[str, Params]:
        """Return the selects of a look or a survey, one for each name and range, and their arguments."""
        st, ranges, number = self._statements, point.ranges, 1 if names is None else len(names)
        parts = {"index": "ready"} if names is None else {"index": "by_name", "of_one": st.text("of_one")}
        ones = [(name, *bounds) for bounds in ranges for name in ([None] if names is None else names)]
        params: Params = {**point.instants, "names": names}
        for i, one in enumerate(ones):
            params |= zip((f"one{i}_{each}" for each in ("name", "priority", "id", "past")), one, strict=True)
        end = ranges[0][-1]
        if len(ranges) == 1 or end * number > MOST_BELOW:
            return st.repeat(f"{verb}_since", len(ones), **parts), params
        below = st.repeat(f"{verb}_below", number, **parts)
        since = st.repeat(f"{verb}_since", len(ones) - number, number, **parts)
        return f"{below}\nunion all\n{since}", {**params, "below": _numbers(end)}

    def _drafts(self, jobs: Sequence[Params]) -> Params:
        row, board = self._statements.row, {"board": self._base["board"]}
        kinds = {True: "post_many_row", False: "post_many_row_later"}
        return {"rows": [row(kinds[job["due"] is None is job["delay"]], {**job, **board}) for job in jobs]}

    @staticmethod
    def _listed(values: Sequence[str]) -> Any:
        return values

    @staticmethod
    def _packed(rows: Sequence[Mapping[str, Any]]) -> Any:
        # As bytes: the driver examines each character of a text.
        return json.dumps([list(row.values()) for row in rows], ensure_ascii=False).encode()


class SQLitePaths(FastPaths):
    def point(self, names: Sequence[str] | None, readable: int) -> Point | None:
        # A deletion leaves no entries.
        return None

    def _write(self, link: Link, statement: Statement, params: Params) -> Sequence[Row]:
        link.begin()
        rows = link.rows(statement, params)
        if not rows:
            link.rollback()
            return []
        if "call" in params:
            self._keep(link, params, ",".join([f"{row[0]} {row[10]}" for row in rows]))
        link.commit()
        return rows

    def _end_claims(self, statement: Statement, params: Params) -> bool:
        params = {**self._base, **params}

        def work(link: Link) -> bool:
            link.begin()
            kept = link.count(self._statements["consume_outcomes"], params) if "outcomes" in params else 0
            # Each statement has its own time, and a lease or a window may have ended in between.
            if kept < params.get("kept", 0) or link.count(statement, params) < params["count"]:
                link.rollback()
                return False
            self._keep(link, params, params["answer"])
            link.commit()
            return True

        return bool(self._try_once(work))

    def _insert_jobs(self, jobs: Sequence[Params], params: Params) -> Sequence[Row] | None:
        def work(link: Link) -> Sequence[Row]:
            link.begin()
            [(now,)] = link.rows(self._statements["clock"], {})
            link.each(self._statements["post"], [{**self._base, "now": now, **job} for job in jobs])
            [(last,)] = link.rows(self._statements["last_posted"], {})
            self._keep(link, params, params["answer"])
            link.commit()
            # No other transaction has drawn an id meanwhile.
            return [(job["uuid"], id_, 0, now) for id_, job in enumerate(jobs, last - len(jobs) + 1)]

        return self._try_once(work)

    def _keep(self, link: Link, params: Params, answer: str) -> None:
        if not link.count(self._statements["keep_answer"], {**params, "answer": answer}):
            raise ConstraintViolated("this call was overtaken by its repetition")

    def _looks(self, names: Sequence[str] | None, limit: int) -> Looks | None:
        ready, params = self._ready(names)
        take, nothing = (self._statements.fill(name, ready=ready) for name in ("take", "take_nothing"))
        return Looks(take, nothing, params)

    def _ready(self, names: Sequence[str] | None) -> tuple[str, Params]:
        ready = self._statements.text("take_any" if names is None else "take_of_names")
        return ready, {} if names is None else {"names": json.dumps(names)}

    def _first_ready(self, names: Sequence[str] | None, point: Point | None) -> tuple[Statement, Params]:
        ready, params = self._ready(names)
        return self._statements.fill("ahead", ready=ready), {**params, "limit": AHEAD}

    def _claim_one_of(self, link: Link, params: Params, hurries: bool) -> Stored | None:
        rows = link.rows(self._statements.fill("take", ready=self._statements.text("take_ahead")), params)
        if rows:
            self._keep(link, params, f"{rows[0][0]} {rows[0][10]}")
        link.commit()
        return stored_of(rows[0]) if rows else None

    @staticmethod
    def _listed(values: Sequence[str]) -> Any:
        return json.dumps(values)

    @staticmethod
    def _packed(rows: Sequence[Mapping[str, Any]]) -> Any:
        return json.dumps([list(row.values()) for row in rows], ensure_ascii=False)


def fast_paths(
    links: Links, product: Database, statements: Statements, base: Mapping[str, Any], notify: bool
) -> FastPaths | None:
    """Return the fast paths of a database; None: there are none."""
    kind: type[FastPaths]
    if product.dialect.name == "postgresql":
        kind = PostgreSQLPaths
    elif product.compound:
        kind = MariaDBPaths
    elif product.dialect.driver == "pysqlite" and product.dialect.update_returning:
        kind = SQLitePaths
    else:
        return None
    return kind(links, statements, base, notify)


def _claim_of(row: Row, lease: Params, now: int) -> Stored:
    """Return the job in a row of ``{record}, tag``, as the claim leaves it."""
    _, record = states.claim(record_of(row), now, lease["who"], lease["keeper"], now + lease["ttl"])
    assert record is not None
    return Stored(record, (row[3], row[RECORD_COLUMNS] + 1))


def _free(
    jobs: Sequence[tuple[int, int, Sequence[LimitScope]]],
    locked: Collection[LimitScope],
    claims: Mapping[tuple[str, str | None], tuple[int, int]],
) -> Iterator[tuple[int, int]]:
    """Yield the ids and tags of the jobs with room, up to the first job about which the locked parts do not decide."""
    for id_, tag, mine in jobs:
        left = {
            scope: scope.most - claims.get((scope.name, scope.group), (0, 0))[0]
            for scope in mine
            if scope.most is not None and scope in locked
        }
        if len(left) == len(mine) and all(room > scopes.parts_beside(scope) for scope, room in left.items()):
            yield id_, tag
        elif all(room > 0 for room in left.values()):
            return


def _posted(draft: Draft, id_: int, tag: int, now: int) -> Stored:
    return Stored(draft.record(id_, now), (id_, tag))


def _row(draft: Draft) -> dict[str, Any]:
    uuid, name, priority, _, version, posting, max_attempts, delay, due, _, group, *_ = draft
    return {
        "uuid": uuid,
        "name": name,
        "priority": priority,
        "version": version,
        "max_attempts": max_attempts,
        "job_group": group,
        "due": due,
        "delay": delay,
        "posting": posting,
    }


@functools.cache
def _numbers(end: int) -> str:
    return json.dumps([*range(end)])


def _slot(nonce: Nonce) -> Params:
    return {"handle": nonce.handle, "slot": nonce.slot, "call": nonce.call}


def _unpacked(rows: Sequence[Row]) -> list[Row]:
    """:raises ConstraintViolated: a row is longer, as JSON, than max_allowed_packet, and NULL: the engine reads it by
    columns."""
    texts = [row[0].decode() if isinstance(row[0], bytes) else row[0] for row in rows]
    if None in texts:
        raise ConstraintViolated("a row is too long for one packet")
    # One call for all rows: the decoder takes longer to begin than to read a row.
    return [row[1:] for row in json.loads(f"[{','.join(texts)}]")]
