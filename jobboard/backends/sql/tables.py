"""The tables of the boards of one prefix: columns, constraints and indexes, for each database.

Jobs lie in ``{prefix}``, one row each. Beside them: answers of calls, side records, outcomes, and the layout's number.
"""

from __future__ import annotations

import functools
import hashlib
from typing import Any

import sqlalchemy as sa

from jobboard.backends.sql.columns import DERIVED, FIELDS, KEPT, RECORD_COLUMNS
from jobboard.codec import MAX_TEXT
from jobboard.sql.expressions import Exact, LongText, Spare
from jobboard.states import CLAIMED, SCHEDULED, TRASHED, UNCLAIMED, State

SPARE_BYTES = 90
"""The number of bytes that a claim may add to a row: ``who``, ``keeper``, and 14 bytes."""

STORED: dict[str, State] = {str(state): state for state in (UNCLAIMED, SCHEDULED, CLAIMED, TRASHED)}
"""The states that a row can be stored in."""


@functools.lru_cache(maxsize=4096)
def place_of(key: str) -> str:
    """Return the place of a side record: an index takes keys of a bounded length only."""
    return hashlib.sha256(key.encode()).hexdigest()


class Tables:
    """The tables whose names begin with ``prefix``."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.metadata = sa.MetaData()
        self.jobs = self._jobs()
        self.record = tuple(self.jobs.c)[:RECORD_COLUMNS]
        self._constrain()
        self._index()
        self.answers = self._answers()
        self.sides = self._sides()
        self.outcomes = self._outcomes()
        self.schema = self._table(
            "_schema",
            # The only row would need no key. Clusters, replicas and publications refuse tables that have none.
            sa.Column("layout", sa.Integer, primary_key=True, autoincrement=False),
            sa.Column("min_reader", sa.Integer, nullable=False),
            # The version of the library that has written this.
            sa.Column("library", sa.String(64)),
        )

    def _table(self, suffix: str, *columns: sa.Column[Any], **options: Any) -> sa.Table:
        for name in ("mysql", "mariadb"):
            # The server's default row format may not allow long texts in an index.
            options |= {f"{name}_engine": "InnoDB", f"{name}_charset": "utf8mb4", f"{name}_row_format": "DYNAMIC"}
        return sa.Table(self.prefix + suffix, self.metadata, *columns, **options)

    def _jobs(self) -> sa.Table:
        jobs = self._table(
            "",
            *(
                sa.Column(name, kind, primary_key=name == "id", autoincrement=name == "id", nullable=nullable)
                for name, kind, nullable, *_ in FIELDS.values()
            ),
            # Rises with every write. No id comes again, so (id, tag) tells a version of a job from every other one.
            sa.Column("tag", sa.BigInteger, nullable=False, server_default=sa.text("0")),
            sa.Column("board", Exact(MAX_TEXT), nullable=False),
            *(sa.Column(name, kind) for name, kind in DERIVED.items()),
            # When an unclaimed job came back from a claim, a delay or the trash, by the server's clock: see starts.py.
            sa.Column("returned", sa.BigInteger),
            # InnoDB puts a row that grows onto another place, and writes a full page again: that made four
            # fifths of a claim's log. The first claim empties this, and its owner and lease fit into the row's place.
            sa.Column("spare", Exact(SPARE_BYTES), server_default=sa.DefaultClause(Spare(SPARE_BYTES))),
            sqlite_autoincrement=True,
        )
        # Room for the updates of heartbeats on the page that they begin on; and dead rows go before they pile up.
        _set_storage(
            jobs,
            fillfactor=70,
            autovacuum_vacuum_scale_factor=0.02,
            autovacuum_vacuum_insert_scale_factor=0.05,
            autovacuum_analyze_scale_factor=0.05,
        )
        return jobs

    def _constrain(self) -> None:
        """Have the database refuse rows that a board would never read again, or whose key is not held. Only a person
        writes such rows by hand.

        PostgreSQL reads the constraints for each statement. They take a fifth of its CPU time for a post, so there
        are no more of them."""
        c = self.jobs.c
        rests, is_live = c.lock_until.is_(None), c.gone_on.is_(None)
        state = sa.case(
            (sa.not_(is_live), str(TRASHED)),
            (rests, str(UNCLAIMED)),
            # A board reads a row again when the job expires, whatever its state.
            (sa.or_(c.state == str(CLAIMED), c.lock_until == c.expires), c.state),
            else_=str(SCHEDULED),
        )
        rules = {
            "state": sa.and_(c.state == state, rests == c.wake_at.is_(None), sa.or_(rests, is_live)),
            "key": c.live_key.is_not_distinct_from(sa.case((is_live, c.key))),
        }
        for name, rule in rules.items():
            self.jobs.append_constraint(sa.CheckConstraint(rule, f"{self.prefix}_{name}_check"))

    def _index(self) -> None:
        c = self.jobs.c
        unclaimed = c.state == str(UNCLAIMED)
        self._add("uuid", c.uuid, c.board, unique=True)
        self._add("key", c.board, c.live_key, where=c.live_key.is_not(None), unique=True)
        # In exactly the order in which jobs are served, or InnoDB sorts and locks all that it has sorted.
        self._add_of_state("ready", unclaimed, c.priority, c.id)
        self._add_of_state("by_name", unclaimed, c.name, c.priority, c.id)
        # The first jobs of each group, and of those that have none. SQLite finds in it all that it has to know of them:
        # each of the rows would be on another page. A key of InnoDB has 3,072 bytes, and so there is no state in it.
        places = (c.name, c.job_group, c.priority, c.id)
        self._add("by_group", c.board, *places, where=unclaimed, only=("postgresql", "mysql", "mariadb"))
        self._add("by_group", c.board, c.state, *places, c.version, where=unclaimed, only=("sqlite",))
        # The claims of a limit's scope, which are counted. In InnoDB the end of a long group is left out.
        self._add_of_state("claims", c.state == str(CLAIMED), c.name, c.job_group, length={"job_group": 240})
        # One for both: each index costs each claim something, even where it is partial and gets no entry.
        self._add("trash", c.board, c.gone_on, c.id, where=c.gone_on.is_not(None))
        # The live jobs. Without the state: no claim moves an entry of it.
        is_live = c.gone_on.is_(None)
        self._add("serving", c.board, c.priority, c.id, where=is_live, only=("postgresql", "sqlite"))
        self._add("serving", c.board, c.gone_on, c.priority, c.id, only=("mysql", "mariadb"))
        came_back = sa.and_(unclaimed, c.returned.is_not(None))
        self._add("returned", c.board, c.returned, where=came_back, only=("postgresql", "mariadb"))
        # With the state, which changes when this does, jobs that are not ready are counted without the table. Many jobs
        # may be due at one instant, and a search goes on behind any of them.
        self._add("wake", c.board, c.wake_at, c.id, c.state, where=c.wake_at.is_not(None))

    def _add_of_state(
        self, name: str, state: sa.ColumnElement[bool], *columns: sa.Column[Any], length: dict[str, int] | None = None
    ) -> None:
        """Add an index of the jobs in one state."""
        c = self.jobs.c
        # PostgreSQL takes the condition as met and no longer uses the columns behind it to find its place. SQLite needs
        # it, or finds the index no better than one without the condition; and elsewhere no index is partial.
        self._add(name, c.board, *columns, where=state, only=("postgresql",))
        whole = ("sqlite", "mysql", "mariadb")
        self._add(name, c.board, c.state, *columns, where=state, only=whole, length=length)

    def _add(
        self,
        name: str,
        *columns: sa.ColumnElement[Any],
        where: sa.ColumnElement[bool] | None = None,
        only: tuple[str, ...] = (),
        length: dict[str, int] | None = None,
        unique: bool = False,
    ) -> None:
        """Add an index of the jobs.

        :param where: the rows in it, on databases that can leave rows out.
        :param only: the databases that have it; MariaDB is one by either of its names. Empty: all.
        :param length: how many characters of a column MariaDB and MySQL store.
        """
        options: dict[str, Any] = {"postgresql_where": where, "sqlite_where": where} if where is not None else {}
        if length is not None:
            options |= {"mysql_length": length, "mariadb_length": length}
        index = sa.Index(f"{self.prefix}_{name}", *columns, unique=unique, **options)
        if only:
            index.ddl_if(callable_=lambda *_, dialect, **kw: not _names(dialect).isdisjoint(only))

    def _answers(self) -> sa.Table:
        answers = self._table(
            "_answers",
            sa.Column("handle", Exact(64), primary_key=True),
            sa.Column("slot", sa.Integer, primary_key=True, autoincrement=False),
            sa.Column("call", sa.BigInteger, nullable=False),
            sa.Column("attempt", sa.Integer, nullable=False, server_default=sa.text("1")),
            sa.Column("answer", LongText, nullable=False),
            sa.Column("stamp", sa.BigInteger, nullable=False),
        )
        # Written again once in a while, not with each answer: a column of an index that changes costs a write to it.
        sa.Index(f"{self.prefix}_answers_stamp", answers.c.stamp)
        _set_storage(answers, fillfactor=50)
        return answers

    def _sides(self) -> sa.Table:
        """Return the table of side records; see jobboard.engine.store.KINDS."""
        sides = self._table(
            "_sides",
            sa.Column("board", Exact(MAX_TEXT), primary_key=True),
            sa.Column("kind", Exact(16), primary_key=True),
            # A key may be longer than an index takes.
            sa.Column("place", Exact(64), primary_key=True),
            sa.Column("key", LongText, nullable=False),
            # NULL: nothing is stored, and the row is there to be locked.
            sa.Column("value", sa.LargeBinary(2**32 - 1)),
            sa.Column("until", sa.BigInteger),
            sa.Column("version", sa.BigInteger, nullable=False),
        )
        ends = sides.c.until
        where: dict[str, Any] = {"postgresql_where": ends.is_not(None), "sqlite_where": ends.is_not(None)}
        sa.Index(f"{self.prefix}_sides_until", sides.c.board, ends, **where)
        return sides

    def _outcomes(self) -> sa.Table:
        """Return the table of outcomes, which no look for jobs reads. "id" is the place that the job had."""
        outcomes = self._table(
            "_outcomes",
            sa.Column("uuid", Exact(64), primary_key=True),
            sa.Column("board", Exact(MAX_TEXT), primary_key=True),
            *(
                sa.Column(each.name, sa.BigInteger if field == "sequence" else each.type, nullable=each.nullable)
                for field, each in FIELDS.items()
                if field in KEPT and field != "uuid"
            ),
            sa.Column("begun", sa.BigInteger, nullable=False),
            sa.Column("until", sa.BigInteger, nullable=False),
            sa.Column("result", LongText),
            sa.Column("refused", LongText),
        )
        c = outcomes.c
        sa.Index(f"{self.prefix}_outcomes_newest", c.board, c.modified_on, c.id)
        sa.Index(f"{self.prefix}_outcomes_until", c.board, c.until)
        return outcomes


@functools.cache
def tables_of(prefix: str) -> Tables:
    """Return the tables of a prefix, the same for all its boards: to build them takes some milliseconds."""
    return Tables(prefix)


def _names(dialect: sa.Dialect) -> set[str]:
    """Return the names that a database goes by: MariaDB is often reached by a URL of MySQL."""
    return {dialect.name, "mariadb"} if getattr(dialect, "is_mariadb", False) else {dialect.name}


def _set_storage(table: sa.Table, **parameters: float) -> None:
    """Set PostgreSQL's storage parameters when the table is created."""
    listed = ", ".join(f"{name} = {value}" for name, value in parameters.items())
    change: Any = sa.DDL("ALTER TABLE %(table)s SET (" + listed + ")")  # type: ignore[no-untyped-call]
    sa.event.listen(table, "after_create", change.execute_if(dialect="postgresql"))
