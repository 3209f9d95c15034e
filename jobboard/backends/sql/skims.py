"""Takes on MariaDB that pass dead entries of an index without a lock or a look at their rows.

A dead entry stays until no snapshot can see it any more: under a long transaction of anybody's, for as long as that
takes. A locking read locks each one, and looks up its row to tell whether another holds it; so does a consistent read,
unlocked, while a transaction that has written is open. At READ UNCOMMITTED a read does neither: it takes an entry as it
finds it. So a *skim* reads the ids of the first jobs, and the next event, at READ UNCOMMITTED. Then, at READ COMMITTED,
the jobs are locked by their ids, and what does not hold is passed over.

Why nothing is passed over that a plain look would find. A skim remembers nothing: each begins at the start of its
indexes, so that it does not matter when a job became ready, nor which id it has.

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
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import sqlalchemy as sa

from jobboard.backends.sql.dear import Queue, Queues
from jobboard.backends.sql.looking import Glance, TakeRequest
from jobboard.backends.sql.statements import SWEEP, Statements, now
from jobboard.sql.claims import locking
from jobboard.sql.dialects import PRIMARY, by_index
from jobboard.sql.links import Link
from jobboard.sql.prepared import Compound, Prepared, param, text

SPARES = (8, 40, 200, 1000)
"""How many more jobs than wanted a skim reads, as others may be at the first ones; and how many if that was too few."""
A_MS = 500
"""How many pages are read in a millisecond, at most."""

_FOUND = "JSON_TABLE(l_ids, '$[*]' COLUMNS (id BIGINT PATH '$')) AS found"


class Skimmed(NamedTuple):
    """What a skim and the locks after it have come to.

    :param texts: the rows that are locked now, each as :func:`as_text` has it.
    :param glance: where there are none, what is told.
    """

    texts: list[Any]
    glance: Glance


class _SkimQueue(Queue):
    # Two for each job that was done. A skim costs what it takes to pass some three hundred.
    many = 512

    def __init__(self) -> None:
        super().__init__()
        self.spare = SPARES[0]


class SkimStatements:
    """Of all names, and of one."""

    def __init__(self, st: Statements) -> None:
        name = st.jobs.c.name == text("name")
        self.skims = {False: _skim(st, "ready"), True: _skim(st, "by_name", name)}
        self.probes = {False: _probe(st, "ready"), True: _probe(st, "by_name", name)}
        self.overdue = _overdue(st)


class Skims:
    def __init__(self, statements: Statements) -> None:
        self.queues = Queues(_SkimQueue)
        self._sql = statements.part(SkimStatements)

    def look(self, link: Link, request: TakeRequest, params: dict[str, Any]) -> Skimmed | None:
        """None: the plain look is to be had."""
        queue = self.queues.of(request)
        if queue is None or queue.quiet():
            return None
        named = request.names is not None
        queue.probe(lambda: self._pages(link, named, params, queue))
        if not queue.dear:
            return None
        for spare in SPARES[SPARES.index(queue.spare) :]:
            queue.spare = spare
            reach = request.limit + spare
            skimmed, seen = _run(link, self._sql.skims[named], {**params, "p_reach": reach, "p_swept": request.swept})
            if skimmed.glance.overdue or seen < reach or len(skimmed.texts) == request.limit:
                return skimmed
            link.rollback()
        return None

    def overdue(self, link: Link, request: TakeRequest, params: dict[str, Any]) -> list[int] | None:
        """As :meth:`Shortcuts.overdue`, where looks are dear."""
        queue = self.queues.of(request)
        if queue is None or not queue.dear:
            return None
        [(told,)] = link.rows(self._sql.overdue, params)
        while link.cursor.nextset():
            pass
        ids = json.loads(told or "[]")
        # Of so many others may be at the first ones, and there may be more.
        return ids if len(ids) < SWEEP else None

    def _pages(self, link: Link, named: bool, params: dict[str, Any], queue: _SkimQueue) -> int:
        queue.spare = SPARES[0]
        [(told,)] = link.rows(self._sql.probes[named], {**params, "p_limit": 1})
        link.rollback()
        return pages(told)


def _run(link: Link, skim: Compound, params: dict[str, Any]) -> tuple[Skimmed, int]:
    """And how many jobs the skim has met."""
    answers = [link.rows(skim, params)]
    while link.cursor.nextset():
        answers.append(link.cursor.fetchall())
    *picked, [(at, event, gate, seen)] = (answer for answer in answers if answer)
    overdue = not params["p_swept"] and event is not None and event <= at
    glance = Glance([], overdue, None if event is None else event - at, gate=gate, since=event or 0)
    return Skimmed([row[0] for rows in picked for row in rows], glance), seen


def as_text(st: Statements, event: sa.ColumnElement[Any]) -> sa.ColumnElement[str]:
    """A row, the time and the next event as one text: to tell of each column costs the server and the driver more."""
    # Of columns with different collations it takes none unless it is told of one.
    uuid, *rest = st.tables.record
    return sa.func.json_array(sa.collate(uuid, "utf8mb4_bin"), *rest, now, event)


def _skim(st: Statements, index: str, *conditions: sa.ColumnElement[bool]) -> Compound:
    c = st.jobs.c
    variable: Callable[[str], sa.ColumnElement[Any]] = sa.literal_column
    first = sa.select(c.id, c.priority).where(st.readable(), *conditions).order_by(c.priority, c.id)
    first = by_index(first.limit(param("reach", sa.Integer())), st.jobs, f"{st.tables.prefix}_{index}")
    ids = sa.select(variable("JSON_ARRAYAGG(first.id ORDER BY first.priority, first.id)"))
    ids = ids.select_from(first.subquery("first"))
    event = st.first_event().scalar_subquery()
    sure = st.first_event(c.wake_at == variable("l_event")).scalar_subquery()
    # In the order of the ids, and no more of them than are wanted: to sort them would be to lock them all.
    pick = (
        sa.select(as_text(st, variable("l_event"))).prefix_with("STRAIGHT_JOIN").select_from(sa.text(_FOUND), st.jobs)
    )
    pick = pick.where(c.id == variable("found.id"), st.ready_condition(), *conditions)
    pick = by_index(pick.limit(param("limit", sa.Integer())), st.jobs, PRIMARY)
    seen = sa.func.coalesce(sa.func.json_length(variable("l_ids")), variable("0"))
    return Compound(
        "DECLARE l_now, l_event, l_sure BIGINT; DECLARE l_ids LONGTEXT;",
        "SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED;",
        _into("l_now, l_event, l_ids", now, event, ids.scalar_subquery()),
        "COMMIT;",
        "IF NOT %(p_swept)s AND l_event <= l_now THEN",
        _into("l_sure", sure),
        "IF l_sure IS NULL THEN",
        _into("l_event", event),
        "END IF; END IF;",
        "IF %(p_swept)s OR l_event IS NULL OR l_event > l_now THEN",
        Prepared(locking(pick, st.product)),
        "END IF;",
        # Last: if the rules have changed since the rows were picked by them, it shows.
        Prepared(sa.select(*map(variable, ("l_now", "l_event")), st.gate(), seen)),
    )


def _overdue(st: Statements) -> Compound:
    c = st.jobs.c
    late = sa.select(c.id).where(st.mine, c.wake_at >= param("since"), c.wake_at <= now).order_by(c.wake_at)
    late = late.limit(sa.literal(SWEEP, sa.Integer(), literal_execute=True))
    first = by_index(late, st.jobs, f"{st.tables.prefix}_wake").subquery("late")
    ids = sa.select(sa.literal_column("JSON_ARRAYAGG(late.id)", sa.String)).select_from(first)
    return Compound(
        "DECLARE l_ids LONGTEXT;",
        "SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED;",
        _into("l_ids", ids.scalar_subquery()),
        "COMMIT;",
        Prepared(sa.select(sa.literal_column("l_ids"))),
    )


def _into(variables: str, *values: sa.ColumnElement[Any]) -> Prepared:
    return Prepared(sa.select(*values).suffix_with(f"INTO {variables}"))


# Whether plain looks are dear


def _probe(st: Statements, index: str, *conditions: sa.ColumnElement[bool]) -> Prepared:
    look = sa.select(st.jobs.c.id, st.first_event().scalar_subquery()).where(st.readable(), *conditions)
    return _Analyzed(locking(st.in_order(look, index), st.product))


class _Analyzed(Prepared):
    """Has a select run, and told how."""

    def _compile(self, dialect: sa.Dialect, size: int) -> Any:
        text = super()._compile(dialect, size)
        text = self._texts[size] = text._replace(text=f"ANALYZE FORMAT=JSON {text.text}")
        return text


def pages(told: str) -> int:
    """How many pages the statement of an :class:`_Analyzed` has read."""
    plan = json.loads(told)
    read = list(_values(plan, "pages_accessed"))
    if not read:
        # Before 10.6.15 and 10.11.5 the server does not tell.
        return int(sum(_values(plan, "r_table_time_ms")) * A_MS)
    return int(sum(read))


def _values(plan: Any, name: str) -> Iterator[float]:
    """All that stand under this name."""
    if isinstance(plan, dict):
        for key, value in plan.items():
            if key == name:
                yield value
            else:
                yield from _values(value, name)
    elif isinstance(plan, list):
        for value in plan:
            yield from _values(value, name)
