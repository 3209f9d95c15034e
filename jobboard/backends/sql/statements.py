"""The statements of a board that run on every database, built once per table prefix."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import OID
from sqlalchemy.engine import Dialect

from jobboard.backends.sql.tables import PURGED, Tables, literal, place_of
from jobboard.engine import GATE
from jobboard.sql.claims import ClaimStatements, locking
from jobboard.sql.dialects import Database, insert_new
from jobboard.sql.expressions import XACT, Greatest, Now, Place, Veiled
from jobboard.sql.hints import PRIMARY, by_index, by_key, delete_by_index
from jobboard.sql.prepared import Prepared, elements, param, text
from jobboard.states import CLAIMED, SCHEDULED, TRASHED, UNCLAIMED

SWEEP = 100
"""How many overdue rows one sweep takes."""
HOUR = 3600 * 1_000_000
DAY = 24 * HOUR
LAG = HOUR // 6
"""By how much the stamp of an answer may be too old."""
TIDIED = 1000
"""How many rows one tidying takes away, at most, of each kind."""

T = TypeVar("T")

now = Now()

_ZERO = sa.literal(0, sa.Integer(), literal_execute=True)
_TIDIED = sa.literal(TIDIED, sa.Integer(), literal_execute=True)


def not_exhausted(jobs: sa.Table) -> sa.ColumnElement[bool]:
    return sa.or_(jobs.c.max_attempts.is_(None), jobs.c.attempts < jobs.c.max_attempts)


def claimable(jobs: sa.Table) -> sa.ColumnElement[bool]:
    """UNCLAIMED at this instant, whether a sweep has met it or not."""
    c = jobs.c
    freed = sa.or_(c.state == literal(SCHEDULED), sa.and_(c.state == literal(CLAIMED), not_exhausted(jobs)))
    return sa.or_(c.state == literal(UNCLAIMED), sa.and_(c.lock_until <= now, freed))


def logical_state(jobs: sa.Table) -> sa.ColumnElement[str]:
    c = jobs.c
    lapsed_for_good = sa.and_(c.state == literal(CLAIMED), c.attempts >= c.max_attempts)
    return sa.case(
        (sa.or_(c.lock_until.is_(None), c.lock_until > now), c.state),
        (lapsed_for_good, literal(TRASHED)),
        else_=literal(UNCLAIMED),
    )


def held(jobs: sa.Table) -> sa.ColumnElement[bool]:
    """The claim stands, or a sweep has written its lapse down; to be compared with the token. A lapse that is not
    written down is for the engine. So is a job whose key outlives it: one statement can't keep that key."""
    c = jobs.c
    window = sa.or_(c.key_until.is_(None), c.key_until <= now)
    stands = sa.and_(c.state == literal(CLAIMED), c.lock_until > now)
    return sa.and_(c.who.is_not(None), sa.or_(c.state == literal(UNCLAIMED), stands), window)


def claimed_values(jobs: sa.Table, instant: Any) -> dict[str, Any]:
    """What a claim writes; ``p_ttl`` is the lease."""
    return {
        "state": literal(CLAIMED),
        "attempts": jobs.c.attempts + 1,
        "token": Greatest(jobs.c.token + 1, instant),
        "who": text("who"),
        "keeper": text("keeper"),
        "lock_until": instant + param("ttl"),
        "wake_at": instant + param("ttl"),
        "modified_on": instant,
    }


def restamped(answers: sa.Table) -> sa.ColumnElement[int]:
    """The stamp of an answer that follows another."""
    stamp = answers.c.stamp
    return sa.case((stamp < now - LAG, now), else_=stamp)


@functools.lru_cache(maxsize=32)
def _shared(tables: Tables, kind: _Kind) -> Statements:
    return Statements(tables, kind.product)


def shared(tables: Tables, product: Database) -> Statements:
    """The same for all boards of a prefix that have databases of one kind, on engines of our own: to build and to
    compile them takes longer than to connect. The engine of somebody else may have any cursor, which the texts show."""
    return _shared(tables, _Kind(product))


class _Kind:
    """A product, equal to all others for which SQLAlchemy writes the same texts."""

    def __init__(self, product: Database) -> None:
        self.product = product
        dialect: Any = product.dialect
        # What both have learned of their first connection, and what is written in another way then.
        self._signs = (
            type(product),
            *(value for name, value in sorted(vars(product).items()) if name != "dialect"),
            type(dialect),
            dialect.server_version_info,
            getattr(dialect, "is_mariadb", None),
            dialect.identifier_preparer.initial_quote,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Kind) and self._signs == other._signs

    def __hash__(self) -> int:
        return hash(self._signs)


class Statements:
    def __init__(self, tables: Tables, product: Database) -> None:
        self.tables = tables
        self.jobs = jobs = tables.jobs
        self.product = product
        self._parts: dict[tuple[Any, ...], Any] = {}
        dialect = product.dialect
        c = jobs.c
        self.mine = c.board == text("board")
        self.mine_too = Veiled(c.board) == text("board")
        by_uuid = sa.and_(c.uuid.in_(elements("uuids", sa.String())), self.mine_too)
        by_id = c.id.in_(elements("ids"))

        self.instant = now
        self.clock = Prepared(sa.select(now))
        self.place = Prepared(sa.select(Place(jobs)))
        # Of a transaction of the caller's, which has its id from here on, before it draws that of a job; and its level.
        joined = (sa.func.current_setting("transaction_isolation"), sa.literal_column(XACT, sa.BigInteger))
        self.place_joined = Prepared(sa.select(Place(jobs), *(joined if product.returning else ())))
        self.by_uuid = Prepared(sa.select(*tables.record, now).where(by_uuid), "p_uuids")
        # A small table would be read as a whole, and wait for rows of others.
        named = by_index(sa.select(*tables.record, now).where(by_uuid), jobs, f"{tables.prefix}_uuid")
        self.lock = Prepared(named.with_for_update(), "p_uuids")
        ids = by_index(sa.select(*tables.record, now).where(by_id), jobs, PRIMARY)
        self.lock_ids = Prepared(ids.with_for_update(), "p_ids")
        self.lock_free = Prepared(locking(named, product), "p_uuids")
        keyed = sa.select(*tables.record, now).where(self.mine, c.live_key.in_(elements("keys", sa.String())))
        self.by_key = Prepared(by_index(keyed, jobs, f"{tables.prefix}_key").with_for_update(), "p_keys")
        self.ids = Prepared(sa.select(c.uuid, c.id).where(by_uuid), "p_uuids")

        self.insert = Prepared(insert_new(jobs, dialect).values({name: self._typed(name) for name in _INSERTED}))
        same = (c.id == param("id"), c.token == param("was_token"), c.state == text("was_state"))
        returned = self._returned(text("state"))
        stored = {**{name: self._typed(name) for name in _STORED}, **returned, **self._grown()}
        found = self._update(*same)
        self.store = Prepared(found.values(stored))
        posted = {name: self._typed(name) for name in _POSTED}
        self.restate = Prepared(found.values({**stored, **posted}))
        self.delete = self._delete(by_uuid)
        # As they lie in a record.
        identity = {3: c.id, 10: c.token}
        self.claim = ClaimStatements(product, jobs, self._claimed, identity, c.state == literal(UNCLAIMED))
        # Of rows that are locked, if the rules are still those by which they were chosen.
        chosen = self._update(by_id)
        self.claim_ruled = Prepared(
            chosen.where(self.gate() == param("gate")).values(self._claimed(param("now"))), "p_ids"
        )
        self.consume = self._delete(by_uuid, c.token == param("token"), held(jobs))
        self.renew = Prepared(chosen.values(lock_until=param("until")), "p_ids")
        self.revive = Prepared(
            chosen.values(state=literal(CLAIMED), lock_until=param("until"), wake_at=param("until")), "p_ids"
        )

        self.ready = self.pick()
        # SQLite has two indexes by name, and is to be shown their conditions.
        split = dialect.name == "sqlite"
        self.halves = [c.job_group.is_(None), c.job_group.is_not(None)] if split else [sa.true()]
        of_name = c.id.in_(self.of_name()) if split else c.name == text("name")
        self.ready_named = self.pick(of_name, index=None if split else "by_name")
        self.ready_ids = self.pick_ids()
        self.ready_ids_shown = self.pick_ids(locked=False)

        # Along an index that begins with the board, a name at a time: DISTINCT reads it all.
        self.there = Prepared(self.in_order(sa.select(c.board).where(self.mine), "serving"))
        later = sa.select(c.board).where(c.board > text("after")).order_by(c.board, c.priority, c.id)
        one = later.limit(sa.literal(1, sa.Integer(), literal_execute=True))
        self.next_board = Prepared(by_index(one, jobs, f"{tables.prefix}_serving"))

        self.event = Prepared(sa.select(now, self.first_event().scalar_subquery(), self.gate()))
        late = sa.select(*tables.record, now).where(self.mine, c.wake_at >= param("since"), c.wake_at <= now)
        late = late.order_by(c.wake_at).limit(sa.literal(SWEEP, sa.Integer(), literal_execute=True))
        # Without the hint MariaDB reads all of the board's dead entries, where few of its jobs are left.
        self.overdue = Prepared(locking(by_index(late, jobs, f"{tables.prefix}_wake"), product))
        overdue = by_index(sa.select(*tables.record, now).where(by_id, c.wake_at <= now), jobs, PRIMARY)
        overdue = overdue.limit(sa.literal(SWEEP, sa.Integer(), literal_execute=True))
        self.overdue_ids = Prepared(locking(overdue, product), "p_ids")
        asleep = {"wake_at": sa.null(), "lock_until": sa.null()}
        self.freed = Prepared(chosen.values(state=literal(UNCLAIMED), **asleep, **self._returned()), "p_ids")
        # Damaged: see oddities.
        self.aside = Prepared(
            chosen.values(
                state=literal(TRASHED),
                errors=text("errors"),
                keeper=sa.null(),
                live_key=sa.null(),
                modified_on=now,
                gone_on=now,
                **asleep,
                **self._gone(),
            ),
            "p_ids",
        )
        self.refiled = Prepared(chosen.values(wake_at=c.lock_until), "p_ids")
        self.call = Prepared(sa.select(sa.func.pg_notify(text("channel"), text("board"))))
        self._answers(dialect)
        self._purging(by_uuid)
        self._sides(dialect)

    def _update(self, *conditions: sa.ColumnElement[bool]) -> sa.Update:
        """Of jobs with ids that are among the conditions."""
        return by_key(sa.update(self.jobs).where(*conditions), self.jobs)

    def _delete(self, *conditions: sa.ColumnElement[bool]) -> Prepared:
        """Of jobs with ``p_uuids``, which are among the conditions."""
        delete = sa.delete(self.jobs).where(*conditions)
        return Prepared(delete_by_index(delete, self.jobs, f"{self.tables.prefix}_uuid"), "p_uuids")

    def pick(
        self,
        *conditions: sa.ColumnElement[bool],
        index: str | None = "ready",
        lists: tuple[str, ...] = (),
        locked: bool = True,
        chosen: bool = False,
    ) -> Prepared:
        """Lock the first ready rows in serving order. Also answers the time."""
        select = sa.select(*self.tables.record, now).where(self.ready_condition(chosen), *conditions)
        ordered = self.in_order(select, index)
        return Prepared(locking(ordered, self.product) if locked else ordered, *lists)

    def pick_ids(self, *conditions: sa.ColumnElement[bool], locked: bool = True) -> Prepared:
        """Those of the rows in ``p_ids`` that are still ready. A walk to them along another index would lock what lies
        between them for a moment, and others pass that over."""
        chosen = self.jobs.c.id.in_(elements("ids"))
        return self.pick(chosen, *conditions, index=PRIMARY, lists=("p_ids",), locked=locked, chosen=True)

    def part(self, kind: Callable[..., T], *args: Hashable) -> T:
        """What has more statements, made of these; it is shared as these are, and so remembers nothing else."""
        part = self._parts.get((kind, *args))
        if part is None:
            part = self._parts[kind, *args] = kind(self, *args)
        return cast("T", part)

    def outside(self, lanes: int, c: Any = None) -> list[sa.ColumnElement[bool]]:
        """In none of so many groups, each with its name."""
        c = self.jobs.c if c is None else c
        found: list[sa.ColumnElement[bool]] = []
        for i in range(lanes):
            group, name = f"group_of{i}", f"name_of{i}"
            found.append(sa.or_(c.job_group.is_(None), c.job_group != text(group), c.name != text(name)))
        return found

    def candidates(self, limit: int, *conditions: sa.ColumnElement[bool], index: str | None = None) -> sa.Select[Any]:
        """The ids of the first ready rows, unlocked; ``limit`` is ``p_limit``, too."""
        c = self.jobs.c
        select = sa.select(c.id, c.priority).where(self.ready_condition(), *conditions)
        ordered = self.in_order(select, index)
        if self.product.compound:
            # By its own parameter, as each text is prepared once on a connection.
            return ordered
        # Written out, or PostgreSQL plans it anew each time.
        return ordered.limit(sa.literal(limit, sa.Integer(), literal_execute=True))

    def ready_condition(self, chosen: bool = False) -> sa.ColumnElement[bool]:
        """And the gate is as ``p_gate`` has it: of what is ready then, who takes has chosen the names."""
        return sa.and_(self.readable(chosen), self.gate() == param("gate"))

    def readable(self, chosen: bool = False) -> sa.ColumnElement[bool]:
        """What is ready, whatever the gate.

        :param chosen: of rows that are looked up by their ids: a plan that was made before the table was analyzed would
            rather walk along an index of what is ready, past all that is done.
        """
        c = self.jobs.c
        mine, state = (self.mine_too, Veiled(c.state)) if chosen else (self.mine, c.state)
        return sa.and_(mine, state == literal(UNCLAIMED), c.version <= param("readable"))

    def gate(self) -> sa.ColumnElement[int]:
        """The version of the side record of that kind; 0: there is none."""
        t = self.tables.sides
        kind, place = (sa.literal(each, sa.String(), literal_execute=True) for each in (GATE[0], place_of(GATE[1])))
        found = sa.select(t.c.version).where(t.c.board == text("board"), t.c.kind == kind, t.c.place == place)
        return sa.func.coalesce(found.scalar_subquery(), sa.literal(0, sa.Integer(), literal_execute=True))

    def of_name(self, *conditions: sa.ColumnElement[bool]) -> sa.Select[Any]:
        """The ids of the first ready jobs with ``p_name``, from several indexes in one order."""
        c = self.jobs.c
        ready = sa.select(c.id, c.priority).where(self.ready_condition(), c.name == text("name"), *conditions)
        both = sa.union_all(*(ready.where(half) for half in self.halves))
        ordered = both.order_by(sa.text("priority"), sa.text("id")).limit(param("limit", sa.Integer()))
        return sa.select(ordered.subquery("first").c.id)

    def any_of(self, *conditions: sa.ColumnElement[bool], index: str | None = None) -> sa.ColumnElement[bool]:
        # In order, which only the index gives: a plain EXISTS is answered by a walk through the table where many rows
        # are expected to match, past all that was claimed before them.
        first = self.in_order(sa.select(self.jobs.c.id).where(*conditions), index)
        return first.limit(sa.literal(1, sa.Integer(), literal_execute=True)).scalar_subquery().is_not(None)

    def first_event(self, *conditions: sa.ColumnElement[bool]) -> sa.Select[Any]:
        """The instant at which a row next needs a look."""
        wake_at = self.jobs.c.wake_at
        # The first entry of the index: for min() MariaDB reads them all. A partial index must be shown its condition.
        return (
            sa.select(wake_at.label("event"))
            .where(self.mine, wake_at.is_not(None), *conditions)
            .order_by(wake_at)
            .limit(sa.literal(1, sa.Integer(), literal_execute=True))
        )

    def behind(self) -> sa.ColumnElement[bool]:
        """Later in serving order than (p_priority, p_id)."""
        c = self.jobs.c
        return sa.or_(c.priority > param("priority"), sa.and_(c.priority == param("priority"), c.id > param("id")))

    def in_order(self, select: sa.Select[Any], index: str | None) -> sa.Select[Any]:
        select = select.order_by(self.jobs.c.priority, self.jobs.c.id).limit(param("limit", sa.Integer()))
        if index is not None:
            select = by_index(select, self.jobs, index if index == PRIMARY else f"{self.tables.prefix}_{index}")
        return select

    def _returned(self, state: sa.ColumnElement[str] | None = None) -> dict[str, sa.ColumnElement[Any]]:
        """What tells, where looks begin behind floors, that a job is ready again.

        :param state: what it becomes, if it may be another one.
        """
        own: sa.ColumnElement[int] = now
        if self.product.returning:
            own = sa.func.txid_current(type_=sa.BigInteger)
        elif not self.product.dated:
            return {}
        return {"returned": own if state is None else sa.case((state == literal(UNCLAIMED), own))}

    def _gone(self) -> dict[str, sa.ColumnElement[Any]]:
        """The same of what is no longer ready. PostgreSQL's index has no entry of it anyway."""
        return {"returned": sa.null()} if self.product.dated else {}

    def _claimed(self, instant: Any) -> dict[str, Any]:
        return {**claimed_values(self.jobs, instant), **self._gone(), **self._grown()}

    def _grown(self) -> dict[str, sa.ColumnElement[Any]]:
        """What makes room in a row for what a claim adds to it."""
        return {"spare": literal("")} if self.product.dated else {}

    def _typed(self, name: str) -> sa.BindParameter[Any]:
        type_ = self.jobs.c[name].type
        return param(name, sa.String() if isinstance(type_, sa.String) else type_)

    def _answers(self, dialect: Dialect) -> None:
        t = self.tables.answers
        mine = sa.and_(t.c.handle == text("handle"), t.c.slot == param("slot"))
        again = {"call": param("call"), "answer": text("answer"), "stamp": restamped(t)}
        key = {"handle": text("handle"), "slot": param("slot")}
        self.answer, self.answer_first = self.answering(text("answer"))
        self.answer_again = Prepared(sa.update(t).where(mine, t.c.call <= param("call")).values(again))
        self.slot = Prepared(sa.select(t.c.call, t.c.answer).where(mine).with_for_update())
        blank = {**key, "call": sa.literal(0), "answer": sa.literal(""), "stamp": now}
        self.slot_open = Prepared(insert_new(t, dialect).values(blank))
        old = t.c.stamp < now - HOUR - LAG
        found = sa.select(t.c.handle).where(old).order_by(t.c.stamp).limit(_TIDIED)
        self.answers_old = Prepared(by_index(found, t, f"{self.tables.prefix}_answers_stamp"))
        self.answers_gone = Prepared(
            sa.delete(t).where(t.c.handle.in_(elements("handles", sa.String())), old), "p_handles"
        )

    def answering(self, answer: sa.ColumnElement[str]) -> tuple[Prepared, Prepared]:
        """What keeps an answer in a slot that has one of an earlier call, and what does so in one that is new."""
        t = self.tables.answers
        key = {"handle": text("handle"), "slot": param("slot")}
        values = {"call": param("call"), "answer": answer}
        mine = (*(t.c[name] == value for name, value in key.items()), t.c.call < param("call"))
        again = sa.update(t).where(*mine).values({**values, "stamp": restamped(t)})
        return Prepared(again), Prepared(sa.insert(t).values({**key, **values, "stamp": now}))

    def _purging(self, by_uuid: sa.ColumnElement[bool]) -> None:
        c = self.jobs.c
        purged = sa.and_(self.mine, c.state == literal(PURGED))
        empty = {
            "state": literal(PURGED),
            "name": sa.literal(""),
            "posting": sa.literal(""),
            **{name: sa.null() for name in ("key", "live_key", "who", "keeper", "errors", "job_group")},
            **{name: sa.null() for name in ("key_until", "lock_until", "wake_at")},
            "modified_on": now,
            "gone_on": -now,
        }
        self.purge = Prepared(self._update(c.id == param("id")).values(empty))
        self.purged_again = self._delete(by_uuid, purged)
        old = (purged, c.gone_on < _ZERO, c.gone_on > DAY - now)
        found = sa.select(c.uuid).where(*old).order_by(c.gone_on.desc()).limit(_TIDIED)
        self.purged_old = Prepared(by_index(found, self.jobs, f"{self.tables.prefix}_trash"))

    def _sides(self, dialect: Dialect) -> None:
        t = self.tables.sides
        mine = sa.and_(t.c.board == text("board"), t.c.kind == text("kind"))
        of = sa.and_(mine, t.c.place.in_(elements("places", sa.String())))
        found = sa.select(t.c.key, t.c.value, t.c.until, t.c.version, now)
        # Where there are none, they tell the time all the same.
        clock = sa.select(now.label("now")).subquery("clock")
        shown = sa.select(t.c.key, t.c.value, t.c.until, t.c.version, clock.c.now)
        self.sides = Prepared(shown.select_from(clock.outerjoin(t, of)), "p_places")
        # In one order, or two who lock several wait for each other.
        ordered = by_index(found.where(of).order_by(t.c.place), t, PRIMARY)
        self.lock_sides = Prepared(ordered.with_for_update(), "p_places")
        self.lock_sides_free = Prepared(locking(ordered, self.product), "p_places")
        self._gates(clock)
        self._settling()
        self.sides_listed = Prepared(shown.select_from(clock.outerjoin(t, mine)))
        some = sa.and_(mine, t.c.place > text("after"))
        self.sides_next = Prepared(found.where(some).order_by(t.c.place).limit(param("limit", sa.Integer())))
        one = sa.and_(mine, t.c.place == text("place"))
        ends = sa.func.coalesce(param("until"), now + param("ttl"))
        told = {"value": param("value", sa.LargeBinary()), "until": ends, "version": param("version")}
        key = {"board": text("board"), "kind": text("kind"), "place": text("place"), "key": text("key")}
        self.side_first = Prepared(insert_new(t, dialect).values({**key, **told}))
        self.side_version = Prepared(sa.select(t.c.version).where(one))
        self.side_again = Prepared(sa.update(t).where(one, t.c.version == param("was")).values(told))
        self.side_gone = Prepared(sa.delete(t).where(one, t.c.version == param("was")))
        self.side_forgotten = Prepared(sa.delete(t).where(one))
        old = sa.and_(t.c.board == text("board"), t.c.until < now)
        first = sa.select(t.c.kind, t.c.place).where(old).order_by(t.c.until).limit(_TIDIED)
        self.sides_old = Prepared(by_index(first, t, f"{self.tables.prefix}_sides_until"))
        self.sides_gone = Prepared(sa.delete(t).where(of, old), "p_places")

    def _settling(self) -> None:
        c = self.jobs.c
        # In the order of its primary key, so that the whole table is read once.
        some = sa.select(c.id).where(self.mine_too, claimable(self.jobs))
        walk = some.where(c.id > param("after")).order_by(c.id).limit(param("limit", sa.Integer()))
        self.takeable = Prepared(by_index(walk, self.jobs, PRIMARY))
        by_id = c.id.in_(elements("ids"))
        self.takeable_still = Prepared(by_index(some.where(by_id), self.jobs, PRIMARY), "p_ids")
        self.lock_ids_free = Prepared(
            locking(by_index(sa.select(c.id).where(by_id), self.jobs, PRIMARY), self.product), "p_ids"
        )
        shown = ("database", "relation", "mode", "pid", "virtualtransaction")
        lock = sa.table("pg_locks", *(sa.column(name) for name in shown)).alias("lock")
        base = sa.table("pg_database", sa.column("oid"), sa.column("datname"))

        def holds(table: sa.Table, mode: str) -> sa.ColumnElement[bool]:
            name = self.product.dialect.identifier_preparer.format_table(table)
            relation = sa.cast(sa.func.to_regclass(sa.literal(name, sa.String())), OID)
            return sa.and_(lock.c.relation == relation, lock.c.mode == sa.literal(mode, sa.String()))

        here = sa.select(base.c.oid).where(base.c.datname == sa.func.current_database()).scalar_subquery()
        self.under_way = Prepared(
            sa.select(lock.c.virtualtransaction).where(
                lock.c.database == here,
                lock.c.pid.is_distinct_from(sa.func.pg_backend_pid()),
                sa.or_(holds(self.tables.answers, "RowExclusiveLock"), holds(self.tables.sides, "RowShareLock")),
            )
        )

    def _gates(self, clock: sa.Subquery) -> None:
        """What looks where there may be limits; and what keeps the gate from changing until a transaction ends."""
        t = self.tables.sides
        kind, place = (sa.literal(each, sa.String(), literal_execute=True) for each in (GATE[0], place_of(GATE[1])))
        gate = sa.and_(t.c.board == text("board"), t.c.kind == kind, t.c.place == place)
        event = self.first_event().scalar_subquery()
        glance = sa.select(clock.c.now, event, t.c.value, t.c.version).select_from(clock.outerjoin(t, gate))
        self.glance = Prepared(glance)
        self.glance_shared = Prepared(glance.with_for_update(read=True))
        version = sa.select(t.c.version).where(gate)
        self.gate_version = Prepared(version)
        self.gate_version_shared = Prepared(version.with_for_update(read=True))
        self.gate_same = Prepared(sa.update(t).where(gate, t.c.version == param("was")).values(version=param("was")))
        # A row that many share is written by each of them there, and who wants to change it may wait for ever.
        lock = sa.func.hashtextextended(
            sa.literal(self.tables.prefix + " ", sa.String(), literal_execute=True) + text("board"), _ZERO
        )
        self.gate_shared = Prepared(sa.select(sa.cast(sa.func.pg_advisory_xact_lock_shared(lock), sa.String)))
        self.gate_alone = Prepared(sa.select(sa.cast(sa.func.pg_advisory_xact_lock(lock), sa.String)))


_INSERTED = (
    *("uuid", "name", "priority", "key", "version", "posting", "state", "attempts", "max_attempts", "token", "who"),
    *("errors", "retries", "job_group", "key_until", "lock_until", "created_on", "modified_on", "board", "live_key"),
    *("wake_at", "gone_on"),
)
_STORED = (
    *("state", "attempts", "token", "who", "keeper", "lock_until", "modified_on", "errors", "retries"),
    *("live_key", "wake_at", "gone_on"),
)
_POSTED = ("priority", "version", "posting")
"""What else changes where a job gets what another post has brought."""
