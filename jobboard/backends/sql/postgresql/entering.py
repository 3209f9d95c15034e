"""Statements for PostgreSQL where limits are set: a take enters the scopes of its jobs, what ends claims leaves them.

A take is one statement in the usual case, and the usual case is one job in one scope, which somebody has entered
before, or in none. Then the list of the scope is lengthened if it is short enough, and the job is claimed if it was: by
its row's lock nobody else is at the list meanwhile, and who has waited for that lock looks at the list as it is then.
Who finds no row, as it was tidied away or is yet to be made, takes nothing.

Else the lists of the scopes that its jobs are in are short, and jobs before these are in scopes that are surely full,
or that the first ones fill. It counts again as it locks the lists, in the order in which all do; if one has grown
meanwhile, it fails. Where it meets anything else it takes nothing, and says so: rates, lists that are damaged or tell
of claims that have ended, limits that do not bind yet, a long walk past full scopes.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSON, Insert, insert

from jobboard.backends.sql.postgresql.parts import Parts
from jobboard.backends.sql.scopes import ENTRY, PROBED, TOKEN, UUID, group_key
from jobboard.backends.sql.statements import Statements
from jobboard.backends.sql.tables import literal
from jobboard.engine import SCOPE
from jobboard.sql.claims import among
from jobboard.sql.expressions import Greatest, Now, Veiled
from jobboard.sql.prepared import Prepared, param, text
from jobboard.states import CLAIMED

SHUT = 50
"""How many full scopes one statement passes over, at most."""
FAR = 2000
"""How many ready jobs of these it passes over, from one job to the next."""
SPARE = 24
"""How many more jobs than wanted it finds room for at most, as others may be at the first ones."""

now = Now()


class Entering:
    def __init__(self, statements: Statements) -> None:
        self._st = statements
        self._parts = statements.part(Parts)
        self._jobs = statements.jobs
        self._sides = statements.tables.sides
        self._takes: dict[tuple[str, int, bool, str], Prepared] = {}

    # Takes

    def take(self, kind: str, limit: int, rules: int, way: str) -> Prepared:
        """Take the first ``limit`` of "any" jobs, of those with ``p_name`` ("named"), or of those in ``p_ids`` ("ids"),
        by so many limits. It answers as other takes do; at the end of each row what has kept it from taking, or NULL:

        - ``unsure``: it can't decide about what it has found;
        - ``busy``: others are at all that has room, or have been;
        - ``more``: something is ready that it has not got to.

        :param way: "crowded": pass over jobs in full scopes; else the first jobs are taken, or none. "known": and none
            in several scopes, or in one that nobody has entered before; it is for one job.
        """
        key = kind, limit, rules == 1, way
        statement = self._takes.get(key)
        if statement is None:
            known = way == "known"
            alone = rules == 1
            made = self._take_known(kind, alone) if known else self._take(kind, limit, alone, way == "crowded")
            statement = self._takes[key] = made
        return statement

    def _take(self, kind: str, limit: int, alone: bool, crowded: bool) -> Prepared:
        parts = self._parts
        clock, seen, rules = parts.clock(), self._seen(), self._rules(alone)
        conditions = parts.of_kind(kind)
        ready = self._jobs_of(clock).where(*conditions)
        # Behind those that others are at, or that have no room, there are more to be looked at.
        hitches = [] if kind == "ids" else [(self._st.any_of(*conditions), _string("more"))]
        if crowded:
            walk = self._walk(limit, rules, kind == "ids", *conditions)
            first = self._with_room(walk, self._jobs_of(clock))
            hitches.insert(0, (sa.select(walk.c.id).where(walk.c.open).exists(), _string("busy")))
        else:
            c = self._jobs.c
            first = ready.order_by(c.priority, c.id).with_for_update(skip_locked=True, of=self._jobs)
        chosen = first.where(self._may(seen)).limit(_number(limit))
        picked = chosen.cte(parts.named("picked")).prefix_with("MATERIALIZED")
        wanted = self._wanted(picked, rules, alone and limit == 1)
        fits = self._fits(wanted)
        entered = self._entered(wanted, fits)
        taken = parts.claimed(among(self._jobs, sa.select(picked.c.id).where(fits)), clock)
        # All or nothing: NULL, which the column refuses.
        all_in = _count(entered) == _count(wanted)
        done = parts.taken_one(taken) if limit == 1 else parts.taken_together(taken)
        told = done.subquery("told")
        kept = sa.select(sa.case((all_in, told.c[0]))).select_from(told)
        if crowded or kind == "ids":
            hitches.insert(0, (_count(picked) > _number(0), _string("unsure")))
        return self._taking(seen, taken, kept, *hitches)

    def _take_known(self, kind: str, alone: bool) -> Prepared:
        """The first job: much the shortest, as each part of a plan costs something whether it runs or not. What it
        can't enter a scope for it does not take, so that nothing is to be taken back."""
        parts, c = self._parts, self._jobs.c
        clock, seen = parts.clock(), self._seen()
        conditions = parts.of_kind(kind)
        first = self._jobs_of(clock).where(*conditions).order_by(c.priority, c.id).limit(_one)
        locked = first.where(self._may(seen)).with_for_update(skip_locked=True, of=self._jobs)
        picked = locked.cte(parts.named("picked")).prefix_with("MATERIALIZED")
        place, most, free = self._bound(picked, alone)
        entered = self._entered_known(picked, place, most)
        fits = sa.or_(free, sa.select(entered.c.place).exists())
        one = sa.select(picked.c.id).where(fits).scalar_subquery()
        taken = parts.claimed(c.id == one, clock)
        hitches = [] if kind == "ids" else [(self._st.any_of(*conditions), _string("more"))]
        return self._taking(seen, taken, parts.taken_one(taken), *hitches)

    def _bound(self, picked: sa.CTE, alone: bool) -> tuple[Any, Any, sa.ColumnElement[bool]]:
        """The place of the scope that a job is in, if it is one, how many claims that may have; and whether it is in
        none."""
        # Looked up, not joined: a plan made while there were few scopes would read all of them.
        rules: Any = _Rule() if alone else self._rules(False)
        within, place = self._in(rules, picked.c), _place_of(_key(rules, picked.c))
        if alone:
            return sa.select(place).where(within).scalar_subquery(), rules.c.most, sa.not_(within)
        number, most = sa.func.count(), sa.func.min(rules.c.most)
        told = (number.label("number"), sa.func.min(place).label("place"), most.label("most"))
        found = sa.select(*told).select_from(rules.join(picked, within)).cte(self._parts.named("bound")).c
        only = sa.select(found.place).where(found.number == _one).scalar_subquery()
        none = sa.select(found.number).scalar_subquery() == _number(0)
        return only, sa.select(found.most).scalar_subquery(), none

    def _entered_known(self, picked: sa.CTE, place: Any, most: Any) -> sa.CTE:
        t = self._sides
        size = sa.func.length(t.c.value)
        part = sa.select(sa.func.convert_to(_entry(picked.c), _UTF8)).select_from(picked).scalar_subquery()
        return (
            sa.update(t)
            .where(self._of(t.c), t.c.place == place, _whole(size), size < most * _ENTRY)
            .values(value=t.c.value.op("||")(part), version=t.c.version + _one)
            .returning(t.c.place)
            .cte(self._parts.named("entered"))
        )

    def _taking(self, seen: sa.CTE, taken: sa.CTE, kept: sa.Select[Any], *hitches: Any) -> Prepared:
        decided = sa.or_(taken.c.uuid.is_not(None), seen.c.gate != param("gate"))
        hitch = sa.case((decided, sa.null()), *hitches) if hitches else sa.null()
        return Prepared(
            sa.select(*taken.c, now, seen.c.event, sa.false(), seen.c.gate, hitch)
            .select_from(seen.outerjoin(taken, sa.true()))
            .add_cte(self._parts.answer(taken, kept))
        )

    @staticmethod
    def _may(seen: sa.CTE) -> sa.ColumnElement[bool]:
        chosen = seen.c.gate == param("gate")
        timely = (seen.c.event <= now).is_not(sa.true())
        return sa.select(sa.and_(chosen, timely)).scalar_subquery()

    def _seen(self) -> sa.CTE:
        event, gate = self._st.first_event().scalar_subquery(), self._st.gate()
        return sa.select(event.label("event"), gate.label("gate")).cte(self._parts.named("seen"))

    def _rules(self, alone: bool) -> Any:
        columns = (sa.column("name", sa.String), sa.column("per_group", sa.Boolean), sa.column("most", sa.BigInteger))
        if alone:
            c = _Rule.c
            return sa.values(*columns, name="rule").data([(c.name, c.per_group, c.most)])
        rule = _records("rules").table_valued(*columns, name="rule").render_derived(with_types=True)
        return sa.select(*rule.c).cte(self._parts.named("rules")).prefix_with("MATERIALIZED")

    def _jobs_of(self, clock: sa.CTE) -> sa.Select[Any]:
        """Jobs, each with the token that it gets."""
        c = self._jobs.c
        token = Greatest(c.token + 1, sa.select(clock.c.now).scalar_subquery()).label("token")
        return sa.select(c.id, c.uuid, c.name, c.job_group, token)

    def _with_room(self, walk: sa.CTE, jobs: sa.Select[Any]) -> sa.Select[Any]:
        """The first ones of a walk, locked. Each is looked up and locked before the walk goes on: it goes no further
        than it must. So nothing may sort them: they come in the order of the walk, which is theirs."""
        found = jobs.where(self._jobs.c.id == walk.c.id, self._st.readable(chosen=True)).correlate(walk)
        job = found.with_for_update(skip_locked=True).lateral("found")
        return sa.select(job).select_from(walk.join(job, sa.true())).where(walk.c.open)

    def _walk(self, limit: int, rules: Any, few: bool, *conditions: sa.ColumnElement[bool]) -> sa.CTE:
        """The first jobs that have room together, and some more, with those between them that have none.

        From job to job it carries the scopes that have no room for one more, whose jobs it passes over at the cost of a
        comparison; and those that the jobs which it has found have entered.

        :param few: these conditions name a few jobs.
        """
        c: Any = self._jobs.c
        most = limit + SPARE
        ready = sa.select(c.id, c.priority, c.name, c.job_group).where(*conditions)
        if few:
            c = ready.cte(self._parts.named("few")).prefix_with("MATERIALIZED").c
            ready = sa.select(*c)
        # As names are collated, which the type of an array does not show.
        none = sa.type_coerce(sa.literal_column("CAST('{}' AS TEXT[]) COLLATE \"C\""), ARRAY(sa.Text))
        begin: dict[str, sa.ColumnElement[Any]] = {
            "id": sa.cast(_number(-1), sa.BigInteger),
            "priority": sa.cast(_number(-1), sa.SmallInteger),
            "open": sa.false(),
            "shut": none,
            "entered": none,
            "found": _number(0),
            "steps": _number(0),
        }
        first = sa.select(*(value.label(name) for name, value in begin.items()))
        walk = first.cte(self._parts.named("walk"), recursive=True)
        behind = sa.tuple_(c.priority, c.id) > sa.tuple_(walk.c.priority, walk.c.id)
        further = ready.where(behind).order_by(c.priority, c.id).limit(None if few else _number(FAR))
        near = further.correlate(walk).subquery("near")
        group = sa.or_(near.c.job_group.is_(None), group_key(near.c) != sa.all_(walk.c.shut))
        passing = sa.select(near).where(near.c.name != sa.all_(walk.c.shut), group)
        job = passing.order_by(near.c.priority, near.c.id).limit(_one).lateral("job")
        room = self._room(rules, job.c, walk.c.entered).lateral("room")
        enters = room.c.closed.is_(None)
        more = sa.select(
            job.c.id,
            job.c.priority,
            enters,
            walk.c.shut.op("||")(sa.case((enters, room.c.filled), else_=room.c.closed)),
            walk.c.entered.op("||")(sa.case((enters, room.c.entering))),
            walk.c.found + sa.cast(enters, sa.Integer),
            walk.c.steps + _one,
        ).select_from(walk.join(job, sa.true()).join(room, sa.true()))
        more = more.where(walk.c.found < _number(most), walk.c.steps < _number(most + SHUT))
        return walk.union_all(more)

    def _room(self, rules: Any, job: Any, entered: Any) -> sa.Select[Any]:
        """The scopes of a job; those of them that are surely full, together with what has entered them; and those that
        are with this job. NULL: there are none."""
        key = _key(rules, job)
        within = sa.func.coalesce(sa.func.cardinality(sa.func.array_positions(entered, key)), _number(0))
        # What it can't decide has room: with that the take then fails.
        unlisted = sa.func.greatest(rules.c.most, _one) - within
        free = sa.func.coalesce(self._free(rules, key, within).scalar_subquery(), unlisted)
        # Not to be flattened, or it is reckoned twice.
        each = sa.select(key.label("key"), free.label("free")).where(self._in(rules, job))
        each_scope = each.offset(_number(0)).correlate_except(rules).subquery("each")
        c = each_scope.c
        keys = sa.func.array_agg(c.key)
        told = {"entering": keys, "closed": keys.filter(c.free <= _number(0)), "filled": keys.filter(c.free <= _one)}
        return sa.select(*(value.label(name) for name, value in told.items()))

    def _free(self, rules: Any, key: sa.ColumnElement[str], within: sa.ColumnElement[int]) -> sa.Select[Any]:
        """How many claims a scope has room for beside those ``within`` it, by its list: none where they are as many
        together as the limit, and the list has nothing but claims that live; some where it can't tell."""
        # Each row is looked up by itself: joined, a plan made while a table was small would read the whole of it.
        scope, claim = self._sides.alias("scope"), self._jobs.alias("claim")
        size, listed = sa.func.length(scope.c.value), sa.func.encode(scope.c.value, _ESCAPE)
        begin = sa.func.generate_series(_one, size, _ENTRY).column_valued("begin")
        lives = (
            sa.select(claim.c.id)
            .where(
                claim.c.uuid == sa.func.substr(listed, begin, _number(UUID)),
                sa.cast(claim.c.token, sa.Text) == sa.func.substr(listed, begin + _number(UUID + 1), _number(TOKEN)),
                *(Veiled(claim.c.board) == text("board"), claim.c.state == literal(CLAIMED), claim.c.lock_until > now),
            )
            .limit(_one)
            .correlate_except(claim)
        )
        ended = sa.select(begin).where(lives.scalar_subquery().is_(None)).correlate(scope).exists()
        unsure = sa.or_(size > _number(PROBED * ENTRY), sa.not_(_whole(size)), ended)
        left = rules.c.most - size.op("/")(_ENTRY) - within
        # Nothing fills a scope of which it can't tell.
        sure = sa.or_(left > _one, size == _number(0))
        free = sa.case((rules.c.most == _number(0), _one), (sure, left), (unsure, _number(2)), else_=left)
        found = sa.select(free).where(self._of(scope.c), scope.c.place == _place_of(key)).limit(_one)
        return found.correlate_except(scope)

    def _wanted(self, picked: sa.CTE, rules: Any, alone: bool) -> sa.CTE:
        """The scopes of these jobs, what each gets, and how long its list is by now.

        :param alone: there can be one at most.
        """
        entry, key = _entry(picked.c), _key(rules, picked.c)
        told = (_one, rules.c.most, entry)
        if not alone:
            told = (sa.func.count(), sa.func.min(rules.c.most), sa.func.string_agg(entry, _string("")))
        columns = zip(("key", "place", "number", "most", "part"), (key, _place_of(key), *told), strict=True)
        found = sa.select(*(column.label(name) for name, column in columns)).where(self._in(rules, picked.c))
        wanted = (found if alone else found.group_by(key)).subquery("wanted")
        scope = self._sides
        size = sa.select(sa.func.length(scope.c.value)).where(self._of(scope.c), scope.c.place == wanted.c.place)
        size = size.limit(_one).correlate_except(scope)
        listed = sa.func.coalesce(size.scalar_subquery(), _number(0)).label("size")
        return sa.select(wanted, listed).cte(self._parts.named("wanted")).prefix_with("MATERIALIZED")

    @staticmethod
    def _fits(wanted: sa.CTE) -> sa.ColumnElement[bool]:
        """Whether all of that has room by now."""
        c = wanted.c
        size = c.number * _ENTRY
        fits = sa.and_(sa.func.length(c.part) == size, _whole(c.size), c.size + size <= c.most * _ENTRY)
        return sa.select(sa.func.coalesce(sa.func.bool_and(fits), sa.true())).scalar_subquery()

    def _entered(self, wanted: sa.CTE, fits: sa.ColumnElement[bool]) -> sa.CTE:
        t = self._sides
        upsert = self._listing(wanted, fits)
        most = sa.select(wanted.c.most).where(wanted.c.place == sa.literal_column("excluded.place")).scalar_subquery()
        size = sa.func.length(t.c.value)
        room = sa.and_(_whole(size), size + sa.func.length(upsert.excluded.value) <= most * _ENTRY)
        entered = self._relisting(upsert, t.c.value.op("||")(upsert.excluded.value), room)
        return entered.returning(t.c.place).cte(self._parts.named("entered"))

    # Ends

    def left(self, taken: sa.CTE, several: bool) -> tuple[sa.FromClause, sa.ColumnElement[Any], sa.ColumnElement[bool]]:
        """Take claims that ``taken`` has ended from lists, but for those that others hold. What is to be read then;
        from how many, and whether any of them was full.

        :param several: from those in ``p_exits``; else from one by one claim: ``p_place``, ``p_part``, ``p_size``.
        """
        # Who has locked a scope may be about to write down that one of these claims has lapsed: nobody waits for that.
        return self._left_all(taken) if several else self._left_one(taken)

    def _held(self, place: Any, *conditions: sa.ColumnElement[bool]) -> sa.Select[Any]:
        t = self._sides
        found = sa.select(t.c.place).where(self._of(t.c), t.c.place == place, *conditions).limit(_one)
        return found.with_for_update(skip_locked=True).correlate_except(t)

    def _left_one(self, taken: sa.CTE) -> tuple[sa.FromClause, sa.ColumnElement[Any], sa.ColumnElement[bool]]:
        t = self._sides
        held = self._held(text("place"), sa.select(taken.c[0]).exists()).scalar_subquery()
        left = sa.func.replace(sa.func.encode(t.c.value, _ESCAPE), text("part"), _string(""))
        size = sa.func.length(t.c.value)
        exited = (
            sa.update(t)
            .where(self._of(t.c), t.c.place == held, _whole(size))
            .values(value=sa.func.convert_to(left, _UTF8), version=t.c.version + _one)
            .returning(size.label("left"))
            .cte(self._parts.named("exited"))
        )
        left_one = taken.outerjoin(exited, sa.true())
        return left_one, exited.c.left.is_not(None), exited.c.left >= param("size")

    def _left_all(self, taken: sa.CTE) -> tuple[sa.FromClause, sa.ColumnElement[Any], sa.ColumnElement[bool]]:
        t = self._sides
        columns = {"place": sa.String, "key": sa.String, "part": sa.String, "size": sa.Integer}
        exits = (
            _records("exits")
            .table_valued(*(sa.column(name, type_) for name, type_ in columns.items()), name="exit")
            .render_derived(with_types=True)
        )
        leaving = (
            sa.select(exits)
            .select_from(sa.join(exits, self._held(exits.c.place).lateral("found"), sa.true()))
            # Counted, so that all jobs are locked before the first scope is.
            .where(_count(taken) > _number(0))
            .cte(self._parts.named("leaving"))
            .prefix_with("MATERIALIZED")
        )
        upsert = self._listing(leaving, sa.true())
        ended = sa.func.convert_from(upsert.excluded.value, _UTF8)
        pattern = sa.func.rtrim(sa.func.replace(ended, _string(","), _string(",|")), _string("|"))
        left = sa.func.regexp_replace(sa.func.encode(t.c.value, _ESCAPE), pattern, _string(""), _string("g"))
        size = sa.func.length(t.c.value)
        exited = (
            self._relisting(upsert, sa.func.convert_to(left, _UTF8), _whole(size))
            .returning(t.c.place, size.label("left"))
            .cte(self._parts.named("exited"))
        )
        full = sa.select(exited.c.place).where(exited.c.place == leaving.c.place, exited.c.left >= leaving.c.size)
        return taken, _count(exited), full.limit(_one).exists()

    # Parts

    def _listing(self, lists: sa.CTE, condition: sa.ColumnElement[bool]) -> Insert:
        """Begins what writes lists: row by row, each found by its key, in the order in which all lock them."""
        values = {
            "board": text("board"),
            "kind": _SCOPE,
            "place": lists.c.place,
            "key": lists.c.key,
            "value": sa.func.convert_to(lists.c.part, _UTF8),
            # As of any side record: no two of one place may be alike.
            "version": sa.cast(sa.func.random() * sa.literal_column("4e18", sa.Float), sa.BigInteger),
        }
        rows = sa.select(*values.values()).where(condition).order_by(lists.c.place)
        return insert(self._sides).from_select(list(values), rows)

    def _relisting(self, upsert: Insert, value: Any, condition: sa.ColumnElement[bool]) -> Insert:
        t = self._sides
        values = {"value": value, "version": t.c.version + _one}
        return upsert.on_conflict_do_update(
            index_elements=[t.c.board, t.c.kind, t.c.place], set_=values, where=condition
        )

    def _of(self, c: Any) -> sa.ColumnElement[bool]:
        return sa.and_(c.board == text("board"), c.kind == _SCOPE)

    @staticmethod
    def _in(rules: Any, job: Any) -> sa.ColumnElement[bool]:
        """Whether a rule is about a job."""
        return sa.and_(rules.c.name == job.name, sa.or_(sa.not_(rules.c.per_group), job.job_group.is_not(None)))


def _number(value: int) -> sa.ColumnElement[int]:
    # Written out: each parameter costs the driver something.
    return sa.literal_column(str(value), sa.Integer)


def _string(value: str) -> sa.ColumnElement[str]:
    return sa.literal_column(f"'{value}'", sa.String)


_one = _number(1)
_ENTRY = _number(ENTRY)
_SCOPE, _ESCAPE, _UTF8 = (_string(each) for each in (SCOPE, "escape", "UTF8"))


def _whole(size: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
    """Whether a list has nothing but claims of that length."""
    return sa.func.mod(size, _ENTRY) == _number(0)


def _records(name: str) -> Any:
    return sa.func.json_to_recordset(sa.cast(text(name), JSON))


def _count(rows: sa.CTE) -> sa.ColumnElement[int]:
    return sa.select(sa.func.count()).select_from(rows).scalar_subquery()


class _Rule:
    """The one limit of a statement: its parameters in the place of columns."""

    c = SimpleNamespace(name=text("rule_name"), per_group=param("per_group", sa.Boolean()), most=param("most"))


def _entry(job: Any) -> sa.ColumnElement[str]:
    """What a claim adds to a list."""
    return job.uuid + _string(" ") + sa.cast(job.token, sa.Text) + _string(",")  # type: ignore[no-any-return]


def _key(rules: Any, job: Any) -> sa.ColumnElement[str]:
    """Of a scope."""
    return sa.case((rules.c.per_group, group_key(job)), else_=job.name)


def _place_of(key: sa.ColumnElement[str]) -> sa.ColumnElement[str]:
    """See :func:`jobboard.backends.sql.tables.place_of`."""
    hashed = sa.func.sha256(sa.func.convert_to(key, _UTF8))
    return sa.func.encode(hashed, _string("hex"), type_=sa.String)
