"""Takes on MariaDB that pass dead entries of an index without a lock or a look at their rows.

A dead entry stays until no snapshot can see it any more: under a long transaction of anybody's, for as long as that
takes. A locking read locks each one, and looks up its row to tell whether another holds it; so does a consistent read,
unlocked, while a transaction that has written is open. At READ UNCOMMITTED a read does neither: it takes an entry as it
finds it. So a *skim* reads the ids of the first jobs, and the next event, at READ UNCOMMITTED. Then, at READ COMMITTED,
the jobs are locked by their ids, and what does not hold is passed over.

Why nothing is passed over that a plain look would find. A skim begins at the start of its indexes, so that it does not
matter when a job became ready, nor which id it has; or where :mod:`~jobboard.backends.sql.mariadb.lows` says.

- What is committed and ready lives in the index, and a skim shows it: but for what a transaction that is still open has
  claimed, changed or deleted. That one holds the row's lock, by which a plain look passes it over, too.
- What a skim shows that is not committed yet is locked by the one who wrote it, and is passed over as its row is to be
  locked. More of these may lie before the first that can be had than a skim reads: then it is repeated with a longer
  reach, and then the plain look follows.
- Between a skim and the locks others may claim jobs, or put them aside: each row is compared again under its lock. What
  becomes ready meanwhile has come after this look.
- An instant that has passed is looked up at READ COMMITTED. If nobody has committed it, the first one that is committed
  counts. What is overdue then is found in the same way as what is ready, and compared again under its lock.
- The rules are read at READ COMMITTED, in the statement that locks, as in a plain look.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import sqlalchemy as sa

from jobboard.backends.sql.dear import Queue, Queues
from jobboard.backends.sql.looking import Glance, TakeRequest
from jobboard.backends.sql.mariadb.compounds import as_text, first_of, into, variable
from jobboard.backends.sql.mariadb.lows import FEW, RETURNED, Lows, Told, Watermark
from jobboard.backends.sql.statements import SWEEP, Statements, now
from jobboard.backends.sql.tables import literal
from jobboard.sql.claims import locking
from jobboard.sql.expressions import Place
from jobboard.sql.hints import PRIMARY, by_index
from jobboard.sql.links import Link
from jobboard.sql.prepared import Compound, Prepared, Row, param, text
from jobboard.states import UNCLAIMED

SPARES = (8, 40, 200, 1000)
"""How many more jobs than wanted a skim reads, as others may be at the first ones; and how many if that was too few."""
_OVERDUE = 10 * SWEEP
"""How many jobs that are overdue are looked at: others may be sweeping the first ones."""
A_MS = 100
"""How many pages are read in a millisecond, at most."""

_KNOWN = "JSON_TABLE(:p_known, '$[*]' COLUMNS (id BIGINT PATH '$')) AS known"
_FOUND = "JSON_TABLE(l_ids, '$[*]' COLUMNS (id BIGINT PATH '$')) AS found"


class Skimmed(NamedTuple):
    """What a skim and the locks after it have come to.

    :param texts: the rows that are locked now, each as :func:`~jobboard.backends.sql.mariadb.compounds.as_text` has it.
    :param glance: where there are none, what is told.
    """

    texts: list[Any]
    glance: Glance


class _SkimQueue(Queue):
    # Of the indexes alone, where a thousand jobs that were done fill some ten. A skim costs what it takes a plain look
    # to pass those.
    many = 12

    def __init__(self) -> None:
        super().__init__()
        self.spare = SPARES[0]
        self.lows: WeakKeyDictionary[Link, Lows] = WeakKeyDictionary()


class SkimStatements:
    """Of all names, and of one."""

    def __init__(self, st: Statements) -> None:
        self._st = st
        self._name = name = st.jobs.c.name == text("name")
        self.skims = {False: _skim(st, _first(st, "ready")), True: _skim(st, _first(st, "by_name", name), name)}
        self.mark = _mark(st)
        self._there = {False: _there(st, "ready"), True: _there(st, "by_name", name)}
        self.first = {named: _survey(st, there, there) for named, there in self._there.items()}
        self.probes = {False: _probe(st, "ready"), True: _probe(st, "by_name", name)}
        self.overdue = _overdue(st)
        self._behind: dict[tuple[bool, int], BehindLows] = {}

    def behind(self, named: bool, floors: int) -> BehindLows:
        """What reads behind lows with so many floors: each part of a statement costs the server, also where there is
        nothing to find."""
        if (named, floors) not in self._behind:
            conditions = (self._name,) if named else ()
            kept = _kept(self._st, floors, *conditions)
            look = _skim(self._st, _behind(self._st, floors, *conditions), *conditions)
            survey, net = (_survey(self._st, kept, there) for there in (kept, self._there[named]))
            self._behind[named, floors] = BehindLows(look, survey, net)
        return self._behind[named, floors]


class BehindLows(NamedTuple):
    look: Compound
    survey: Compound
    net: Compound


class Skims:
    def __init__(self, statements: Statements) -> None:
        self.queues = Queues(_SkimQueue)
        self._sql = statements.part(SkimStatements)

    def look(self, link: Link, request: TakeRequest, params: dict[str, Any]) -> Skimmed | None:
        """None: the plain look is to be had.

        It lets go of no job that it has locked: others pass that over, and are served what comes behind it.
        """
        queue = self.queues.of(request)
        if queue is None or queue.quiet():
            return None
        named = request.names is not None
        queue.probe(lambda: self._pages(link, named, params, queue))
        if not queue.dear:
            return None
        lows = self._lows(link, queue, named, params)
        behind = lows.near
        for spare in SPARES[SPARES.index(queue.spare) :]:
            queue.spare = spare
            reach = request.limit + spare
            skim = self._sql.behind(named, lows.floors).look if behind else self._sql.skims[named]
            asked = {**params, **lows.params(not behind), "p_reach": reach}
            *picked, (at, event, gate, seen, came) = _answers(link, skim, asked)
            glance = Glance([], False, None if event is None else event - at, gate=gate, since=event or 0)
            skimmed = Skimmed([text for text, *_ in picked], glance)
            if not request.swept and event is not None and event <= at:
                return skimmed._replace(glance=glance._replace(overdue=True))
            if came <= RETURNED and (seen < reach or len(skimmed.texts) == request.limit):
                return skimmed
            if skimmed.texts:
                # These are locked. The next look reads more; at the end of that the plain one goes on from here.
                longer = SPARES[SPARES.index(spare) + 1 :]
                queue.spare = (*longer, spare)[0]
                return skimmed if longer else None
            behind = behind and came <= RETURNED
            link.rollback()
        return None

    def _lows(self, link: Link, queue: _SkimQueue, named: bool, params: dict[str, Any]) -> Lows:
        lows = queue.lows.get(link)
        if lows is None:
            lows = queue.lows[link] = Lows()
        if lows.due():
            lows.mark(Watermark(*link.rows(self._sql.mark, params)[0]))
            link.rollback()
            if lows.near or lows.unsure:
                unsure, begun = lows.unsure, time.monotonic()
                behind = self._sql.behind(named, lows.floors)
                survey = self._sql.first[named] if lows.blank else behind.net if unsure else behind.survey
                [told] = _answers(link, survey, {**params, **lows.params(unsure)})
                lows.learn(Told.of(told), unsure, time.monotonic() - begun)
        return lows

    def overdue(self, link: Link, request: TakeRequest, params: dict[str, Any]) -> list[int] | None:
        """As :meth:`Shortcuts.overdue`, where looks are dear."""
        queue = self.queues.of(request)
        if queue is None or not queue.dear:
            return None
        [(told,)] = _answers(link, self._sql.overdue, params)
        ids: list[int] = json.loads(told or "[]")
        # Of so many others may be at all, and there may be more.
        return ids if len(ids) < _OVERDUE else None

    def _pages(self, link: Link, named: bool, params: dict[str, Any], queue: _SkimQueue) -> int:
        queue.spare = SPARES[0]
        [(told,)] = _answers(link, self._sql.probes[named], params)
        return pages(told)


def _answers(link: Link, skim: Compound, params: dict[str, Any]) -> list[Row]:
    # As a text: of a statement that has a name the server takes no value for a constant as it plans it, and walks the
    # index of events from its start, where it is to begin behind the lows.
    rows = [*link.rows(skim, params)]
    while link.cursor.nextset():
        rows += link.cursor.fetchall()
    return rows


def _skim(st: Statements, found: sa.FromClause, *conditions: sa.ColumnElement[bool]) -> Compound:
    """:param found: the first jobs: ids, priorities, and whether they came back."""
    c = st.jobs.c
    event = st.first_event(c.wake_at > param("wake")).scalar_subquery()
    sure = st.first_event(c.wake_at == variable("l_event")).scalar_subquery()
    ids = sa.text("JSON_ARRAYAGG(first.id ORDER BY first.priority, first.id LIMIT :p_reach)")
    ids = ids.bindparams(param("reach", sa.Integer()))
    pick = first_of(st, sa.select(as_text(st)).where(st.ready_condition(), *conditions), sa.text(_FOUND))
    seen = sa.func.coalesce(sa.func.json_length(variable("l_ids")), variable("0"))
    return Compound(
        "DECLARE l_now, l_event, l_sure, l_came BIGINT; DECLARE l_ids LONGTEXT;",
        "SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED;",
        into("l_now, l_event", now, event),
        into("l_ids, l_came", ids, variable("COALESCE(SUM(first.returned), 0)"), of=found),
        "COMMIT;",
        "IF NOT %(p_swept)s AND l_event <= l_now THEN",
        into("l_sure", sure),
        "IF l_sure IS NULL THEN",
        into("l_event", event),
        "END IF; END IF;",
        # Nor is any locked where those that came back were too many to tell which are first.
        f"IF l_came <= {RETURNED} AND (%(p_swept)s OR l_event IS NULL OR l_event > l_now) THEN",
        Prepared(locking(pick, st.product)),
        "END IF;",
        # Last: if the rules have changed since the rows were picked by them, it shows.
        Prepared(sa.select(variable("l_now"), variable("l_event"), st.gate(), seen, variable("l_came"))),
    )


def _first(st: Statements, index: str, *conditions: sa.ColumnElement[bool]) -> sa.FromClause:
    """The first ones in serving order, from the start of an index."""
    c = st.jobs.c
    first = sa.select(*_place(st)).where(st.readable(), *conditions).order_by(c.priority, c.id)
    return by_index(first.limit(param("reach", sa.Integer())), st.jobs, f"{st.tables.prefix}_{index}").subquery("first")


def _behind(st: Statements, floors: int, *conditions: sa.ColumnElement[bool]) -> sa.FromClause:
    """The first ones behind the lows: of those that are young, or known, all that have come back, and some behind each
    floor."""
    reach = param("reach", sa.Integer())
    some = sa.literal(RETURNED + 1, sa.Integer(), literal_execute=True)
    young, known, *others = _parts(st, floors, reach, some, st.readable(), *conditions)
    # To read a row costs a fifth of what it costs to put it together with those of other parts.
    young, known = (part.order_by(st.jobs.c.priority, st.jobs.c.id).limit(reach) for part in (young, known))
    parts = (young, known, *others)
    id_, priority, returned = sa.union_all(*parts).subquery("found").c
    each = sa.select(id_, priority, sa.func.max(returned).label("returned")).group_by(id_, priority)
    return each.subquery("first")


def _parts(
    st: Statements, floors: int, of_each: Any, came_back: Any, *conditions: sa.ColumnElement[bool]
) -> Iterator[sa.Select[Any]]:
    """What is behind the lows.

    :param floors: how many there are.
    :param of_each: how many behind each of them.
    :param came_back: how many that have come back; None: all.
    """
    c = st.jobs.c
    ranks = [param(f"rank{number}", sa.Integer()) for number in range(floors)]
    # Those with a floor are behind it, too, where no more of them are read than are asked for.
    young = (c.id > param("low"), *(c.priority.is_distinct_from(rank) for rank in ranks))
    yield by_index(sa.select(*_place(st)).where(*young, *conditions), st.jobs, PRIMARY)
    source = sa.text(_KNOWN).bindparams(text("known"))
    known = sa.select(*_place(st)).prefix_with("STRAIGHT_JOIN").select_from(source, st.jobs)
    yield by_index(known.where(c.id == variable("known.id"), *conditions), st.jobs, PRIMARY)
    back = sa.select(*_place(st, 1)).where(c.returned > param("back"), *conditions)
    if came_back is not None:
        back = back.order_by(c.returned).limit(came_back)
    yield by_index(back, st.jobs, f"{st.tables.prefix}_returned")
    for number, rank in enumerate(ranks):
        here = (c.priority == rank, c.id >= param(f"floor{number}"))
        behind = sa.select(*_place(st)).where(*here, *conditions).order_by(c.id).limit(of_each)
        # Not by the index of the ready ones: told of a priority, the optimiser may well leave the floor out, as it
        # counts the dead entries behind it, and walk through all that are before.
        yield by_index(behind, st.jobs, PRIMARY)


def _place(st: Statements, returned: int = 0) -> tuple[Any, ...]:
    return st.jobs.c.id, st.jobs.c.priority, sa.literal_column(str(returned)).label("returned")


def _kept(st: Statements, floors: int, *conditions: sa.ColumnElement[bool]) -> sa.FromClause:
    """What is ready behind the lows."""
    some = sa.literal(FEW + 1, sa.Integer(), literal_execute=True)
    # Jobs of any version, as not every index tells of it.
    parts = _parts(st, floors, some, None, st.mine, st.jobs.c.state == literal(UNCLAIMED), *conditions)
    return sa.union(*(each.with_only_columns(st.jobs.c.id, st.jobs.c.priority) for each in parts)).subquery("seen")


def _there(st: Statements, index: str, *conditions: sa.ColumnElement[bool]) -> sa.FromClause:
    """All that is ready."""
    c = st.jobs.c
    ready = sa.select(c.id, c.priority).where(st.mine, c.state == literal(UNCLAIMED), *conditions)
    return by_index(ready, st.jobs, f"{st.tables.prefix}_{index}").subquery("seen")


def _survey(st: Statements, committed: sa.FromClause, there: sa.FromClause) -> Compound:
    """What is committed and what is there; in this order, so that what is committed in between is there."""
    event = st.first_event(st.jobs.c.wake_at > param("wake"))
    return Compound(
        "DECLARE l_wake BIGINT; DECLARE l_committed, l_there LONGTEXT;",
        into("l_committed", _firsts(committed)),
        "COMMIT;",
        "SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED;",
        # Where others write, a read of what is committed looks each dead entry's row up: all that are still to come.
        into("l_there, l_wake", _firsts(there), event.scalar_subquery()),
        "COMMIT;",
        Prepared(sa.select(*map(variable, ("l_committed", "l_there", "l_wake")))),
    )


def _firsts(seen: sa.FromClause) -> sa.ScalarSelect[str]:
    """The first ids of each priority."""
    ids = variable(f"GROUP_CONCAT(seen.id ORDER BY seen.id LIMIT {FEW + 1})").label("ids")
    each = sa.select(seen.c.priority, ids).group_by(seen.c.priority).subquery("found")
    told = sa.select(variable("JSON_ARRAYAGG(JSON_ARRAY(found.priority, found.ids))"))
    return told.select_from(each).scalar_subquery()


def _mark(st: Statements) -> Prepared:
    shown = [sa.column(name, sa.String()) for name in ("TABLE_SCHEMA", "TABLE_NAME")]
    told = sa.table("TABLES", *shown, sa.column("AUTO_INCREMENT", sa.BigInteger), schema="information_schema")
    here = (sa.func.database() == told.c.TABLE_SCHEMA, sa.literal(st.jobs.name) == told.c.TABLE_NAME)
    drawn = sa.select(told.c.AUTO_INCREMENT - 1).where(*here).scalar_subquery()
    return Prepared(sa.select(drawn, now, Place(st.jobs)))


def _overdue(st: Statements) -> Compound:
    c = st.jobs.c
    # The first ones, overdue or not: between two bounds the optimiser may well take the board alone, and walk from the
    # start of its entries, as it counts the dead ones between them, too.
    first = sa.select(c.id, c.wake_at).where(st.mine, c.wake_at >= param("since")).order_by(c.wake_at)
    first = first.limit(sa.literal(_OVERDUE, sa.Integer(), literal_execute=True))
    late = by_index(first, st.jobs, f"{st.tables.prefix}_wake").subquery("late")
    ids = sa.select(sa.literal_column("JSON_ARRAYAGG(late.id)", sa.String)).where(late.c.wake_at <= now)
    return Compound(
        "DECLARE l_ids LONGTEXT;",
        "SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED;",
        into("l_ids", ids.select_from(late).scalar_subquery()),
        "COMMIT;",
        Prepared(sa.select(sa.literal_column("l_ids"))),
    )


# Whether plain looks are dear


def _probe(st: Statements, index: str, *conditions: sa.ColumnElement[bool]) -> Compound:
    """It locks nothing; see :meth:`Skims.look`."""
    c = st.jobs.c
    # By nothing that the index has not got.
    ready = sa.select(c.id).where(st.mine, c.state == literal(UNCLAIMED), *conditions)
    first = st.in_order(ready, index).limit(sa.literal(1, sa.Integer(), literal_execute=True)).scalar_subquery()
    return Compound(
        "SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED;",
        _Analyzed(sa.select(first, st.first_event().scalar_subquery())),
        "COMMIT;",
    )


class _Analyzed(Prepared):
    """Has a select run, and told how."""

    def _compile(self, dialect: sa.Dialect, size: int) -> Any:
        text = super()._compile(dialect, size)
        text = self._texts[size] = text._replace(text=f"ANALYZE FORMAT=JSON {text.text}")
        return text


def pages(told: str) -> int:
    """How many pages the statement of an :class:`_Analyzed` has read; 0 where that is not told."""
    read = _values(told, "pages_accessed")
    # Before 10.6.15 and 10.11.5 the server does not tell.
    return int(sum(read) if read else sum(_values(told, "r_table_time_ms")) * A_MS)


def _values(told: str, name: str) -> list[float]:
    """All that stand under this name, each on a line of its own. Conditions stand there with their constants as they
    are, so that a quote in the name of a job or a board leaves no JSON."""
    return [float(value) for value in re.findall(rf'^\s*"{name}": ([\d.e+-]+),?$', told, re.MULTILINE)]
