"""The first jobs on MariaDB that have room, found without a lock where scopes are full.

The statement tells of one moment. What it passes over was in a scope then that was full for sure: as long as its limit,
with nothing but claims that live. What it finds is locked and counted again by whoever takes it. So nothing is
remembered but that a scope was full lately, and that it pays to look here first.

It walks past some :data:`NEAR` jobs. Where there are more of full groups, one job is looked for in another way: the
first one of each group, which an index has. What that costs depends on how many groups have jobs, not on how many these
are.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from jobboard.backends.sql.dear import NAMES
from jobboard.backends.sql.heads import MOST, PLACES, written
from jobboard.backends.sql.looking import SPARE, TakeRequest
from jobboard.backends.sql.mariadb.compounds import variable
from jobboard.backends.sql.mariadb.heads import MariaDBHeads
from jobboard.backends.sql.mariadb.lists import TEXT
from jobboard.backends.sql.scopes import ENTRY
from jobboard.backends.sql.statements import Statements
from jobboard.backends.sql.tables import literal
from jobboard.engine import SCOPE, Limits
from jobboard.sql.hints import by_index
from jobboard.sql.links import Link
from jobboard.sql.prepared import Prepared, param, text
from jobboard.states import CLAIMED

NEAR = (100, 400)
"""At how many ready jobs it looks: at more where it has found too few."""
MORE = 1600
"""And then for several jobs."""
FIRST = 64
"""Of how many groups, in the order of their first jobs, it finds out whether they have room."""
REACH = 100
"""How many more jobs than wanted it tells of at most: others are at work on these as well."""
PROBED = 100
"""Of how many claims in a scope it finds out whether they live."""
MOST_RULES = 50
"""By how many limits it decides, at most."""
CROWDED = 1.0
"""For how many seconds takes begin here after one has found no room."""

_RULES = f"""JSON_TABLE(:p_rules, '$[*]' COLUMNS (name VARCHAR(255) {TEXT} PATH '$[0]', per_group INT PATH '$[1]',
  most INT PATH '$[2]')) AS given"""
# Of a list that is anything else than "uuid token,uuid token," none.
_CLAIMS = f"""JSON_TABLE(IF(listed.value REGEXP '^([0-9a-f-]{{36}} [0-9]{{16}},)+$', CONCAT('[["', REPLACE(REPLACE(
  TRIM(TRAILING ',' FROM CONVERT(listed.value USING utf8mb4)), ',', '"],["'), ' ', '","'), '"]]'), '[]'),
  '$[*]' COLUMNS (uuid VARCHAR(64) {TEXT} PATH '$[0]', token BIGINT PATH '$[1]')) AS claim"""
_IDS = """CONCAT('[', GROUP_CONCAT(IF(served.fits, served.id, NULL) ORDER BY served.priority, served.id
  LIMIT :p_reach), ']')"""


class Openings:
    def __init__(self, statements: Statements) -> None:
        self._sql = statements.part(OpeningStatements)
        # With which statement to begin, and until when.
        self._crowded: dict[str | None, tuple[int, float]] = {}

    def crowded(self, name: str | None) -> bool:
        """Whether a take of this name, or of all, has found no room lately."""
        return self._begin(name) is not None

    def crowd(self, name: str | None, begin: int = 0) -> None:
        at = time.monotonic()
        left = {each: told for each, told in list(self._crowded.items()) if told[1] > at}
        self._crowded = {**(left if len(left) < NAMES else {}), name: (begin, at + CROWDED)}

    def widen(self, name: str | None) -> None:
        """Others have been quicker at all that was found: look at more."""
        self.crowd(name, min((self._begin(name) or 0) + 1, len(NEAR) - 1))

    def _begin(self, name: str | None) -> int | None:
        begin, until = self._crowded.get(name, (0, 0.0))
        return begin if until > time.monotonic() else None

    def calm(self, name: str | None) -> None:
        self._crowded.pop(name, None)

    def first(self, link: Link, request: TakeRequest, params: dict[str, Any]) -> str | None:
        """The ids of the first jobs that can be claimed together, in their order, and of a few more; None, too, where
        it can't tell which are the first."""
        asked = {**params, "p_turns": request.limit + SPARE, "p_reach": request.limit + REACH}
        ways = self._sql.ways(request.names is not None, request.limit == 1)
        for way in range(self._begin(request.name) or 0, len(ways)):
            size, statement = ways[way]
            # As a text: MariaDB runs a statement that has a name once, and from then on finds a column of it unknown.
            [(told, seen, room)] = link.rows(statement, asked)
            ids: list[int] = json.loads(told or "[]")
            if room != 0 and 2 * len(ids) > size:
                # As it looks, takes would find that without this.
                self.calm(request.name)
            if len(ids) >= request.limit or (seen or 0) < size:
                return told or None
            if way + 1 < len(ways):
                self.crowd(request.name, way + 1)
        return None


def rules_told(limits: Limits, names: Sequence[str] | None) -> dict[str, str] | None:
    """These limits as a parameter; None if there are others than a count for each name."""
    rules = limits.among(names)
    alone = len({rule.name for rule in rules}) == len(rules) <= MOST_RULES
    if not alone or any(rule.rate is not None for rule in rules):
        return None
    told = [[rule.name, int(rule.per == "group"), rule.concurrency] for rule in rules]
    return {"p_rules": json.dumps(told, ensure_ascii=False)}


class OpeningStatements:
    def __init__(self, st: Statements) -> None:
        self._st = st
        self._heads = st.part(MariaDBHeads)
        self._made: dict[tuple[bool, bool], list[tuple[int, Prepared]]] = {}

    def ways(self, named: bool, alone: bool) -> list[tuple[int, Prepared]]:
        """What finds the first jobs, or the first one if it is wanted ``alone``, and at how many it looks."""
        key = named, alone
        if key not in self._made:
            name = text("name")
            looked = ("by_name", self._st.jobs.c.name == name) if named else ("ready",)
            sizes = NEAR if alone else (*NEAR, MORE)
            self._made[key] = [(size, self._fitting(self._near(size, *looked))) for size in sizes]
            if alone:
                # From the first of each group it is not known what comes next.
                self._made[key].append((FIRST, self._fitting(self._far([name] if named else []))))
        return self._made[key]

    def _near(self, size: int, index: str, *conditions: sa.ColumnElement[bool]) -> sa.FromClause:
        c = self._st.jobs.c
        ready = sa.select(c.id, c.priority, c.name, c.job_group).where(self._st.ready_condition(), *conditions)
        page = self._st.in_order(ready, index).limit(written(size)).subquery("page")
        turn = sa.func.row_number().over(partition_by=(page.c.name, page.c.job_group), order_by=_serving(page.c))
        lined = sa.select(*page.c, turn.label("turn"), sa.func.count().over().label("seen")).subquery("lined")
        # Of each group no more than may be wanted: the rest of the statement costs as much for each as this.
        return sa.select(*lined.c).where(lined.c.turn <= _TURNS).subquery("some")

    def _far(self, names: list[Any]) -> sa.FromClause:
        heads = self._heads.heads(names)
        position, places = heads.c.head, written(PLACES)
        of = ((position % places).label("id"), position.op("DIV")(places).label("priority"))
        # Of too many groups none is known to be the first.
        told = sa.select(*of, heads.c.name, heads.c.job_group).where(heads.c.number < written(MOST))
        first = told.order_by(position).limit(written(FIRST)).subquery("page")
        return sa.select(*first.c, _TURNS.label("turn"), sa.func.count().over().label("seen")).subquery("some")

    def _fitting(self, some: sa.FromClause) -> Prepared:
        """Which of these jobs have room, if those before them enter their scopes: the first ones; of how many it tells;
        and how many more claims the fullest of their scopes takes.

        :param some: as many of each group as there may be wanted, each with its ``turn``, and how many were ``seen``.
        """
        c = some.c
        source = sa.text(_RULES).bindparams(text("rules"))
        told = [variable(f"given.{name}").label(name) for name in ("name", "per_group", "most")]
        rule = sa.select(*told).select_from(source).subquery("rule")
        grouped = rule.c.per_group == written(1)
        bound = sa.and_(rule.c.name == c.name, sa.or_(sa.not_(grouped), c.job_group.is_not(None)))
        group, room = sa.case((grouped, c.job_group)).label("job_group"), self._room(c, rule.c).label("room")
        ruled = sa.select(c.id, c.priority, c.turn, c.seen, rule.c.name, group, room)
        r = ruled.select_from(some.outerjoin(rule, bound)).subquery("ruled").c
        turn = sa.func.row_number().over(partition_by=(r.name, r.job_group), order_by=_serving(r))
        left = sa.case((r.name.is_(None), _TURNS), else_=r.room - turn).label("left")
        u = sa.select(r.id, r.priority, r.turn, r.seen, r.room, left).subquery("turned").c
        fits = u.left >= written(0)
        # What comes behind the last one told of its group may have room as well, and is served before others.
        ends = sa.and_(u.left > written(0), u.turn >= _TURNS)
        before = sa.func.coalesce(sa.func.sum(ends).over(order_by=_serving(u), rows=(None, -1)), written(0))
        told_of = sa.and_(fits, before == written(0)).label("fits")
        served = sa.select(u.id, u.priority, u.seen, u.room, told_of).subquery("served")
        ids = sa.text(_IDS).bindparams(param("reach", sa.Integer()))
        return Prepared(sa.select(ids, sa.func.max(served.c.seen), sa.func.min(served.c.room)).select_from(served))

    def _room(self, page: Any, rule: Any) -> sa.ColumnElement[int]:
        """How many more claims the scope of a job takes, if not less."""
        st, listed, held = self._st, self._st.tables.sides.alias("listed"), self._st.jobs.alias("held")
        size = sa.func.length(listed.c.value)
        lives = (
            held.c.uuid == variable("claim.uuid"),
            held.c.board == text("board"),
            held.c.token == variable("claim.token"),
            held.c.state == literal(CLAIMED),
        )
        # One that has lapsed is overdue, and then nothing is taken.
        probe = sa.select(sa.func.count()).prefix_with("STRAIGHT_JOIN").select_from(sa.text(_CLAIMS), held)
        live = by_index(probe.where(*lives), held, f"{st.tables.prefix}_uuid").correlate(listed).scalar_subquery()
        # What the list tells to have ended takes no room, but where it can't be told.
        left = sa.case(
            (size <= written(PROBED * ENTRY), sa.func.greatest(rule.most - live, written(0))), else_=rule.most
        )
        key = sa.case(
            (rule.per_group == written(1), sa.func.concat(page.name, _NEWLINE, page.job_group)), else_=page.name
        )
        mine = (
            listed.c.board == text("board"),
            listed.c.kind == sa.literal(SCOPE, sa.String(), literal_execute=True),
            listed.c.place == sa.func.sha2(key, written(256)),
        )
        found = sa.select(left).where(*mine).correlate_except(listed).scalar_subquery()
        # Nobody has entered a scope that has no list.
        return sa.func.coalesce(found, rule.most)


def _serving(c: Any) -> tuple[Any, Any]:
    return c.priority, c.id


_TURNS = param("turns", sa.Integer())
_NEWLINE = variable("CHAR(10 USING utf8mb4)", sa.String)
