"""The tables of a board, for any prefix."""

from __future__ import annotations

import functools
import hashlib
from typing import Any

import sqlalchemy as sa

from jobboard.sql.expressions import Exact, LongText, Spare, serial
from jobboard.states import CLAIMED, SCHEDULED, TRASHED, UNCLAIMED, State

LAYOUT = 3
"""The layout of these tables."""
MIN_READER = 3
"""The oldest layout whose readers understand them."""

PURGED = "PURGED"
"""The state of a row that was emptied, kept for a day to tell what became of its job."""

RECORD = 20
"""How many leading columns of the jobs table make a :class:`~jobboard.states.Record`, in its order."""

OUTCOME = (
    *("uuid", "name", "priority", "id", "key", "version", "posting", "attempts", "max_attempts", "token", "who"),
    *("created_on", "begun", "modified_on", "until", "errors", "retries", "job_group", "result", "refused"),
)
"""The columns of the outcomes' table beside the board's name."""

SPARE = 90
"""By how many bytes a claim may make a row longer: by those of ``who``, of ``keeper``, and 14."""

MAX_ATTEMPTS = 2**31 - 1
MAX_TOKEN = 2**63 - 1
"""The last ones: a job that has one of them can't be claimed any more."""


def literal(state: str) -> sa.BindParameter[str]:
    """A state written out: a partial index serves only conditions that show its own."""
    return sa.literal(str(state), sa.String(), literal_execute=True)


@functools.lru_cache(maxsize=4096)
def place_of(key: str) -> str:
    """Where the side record of a key lies: an index takes keys of a bounded length only."""
    return hashlib.sha256(key.encode()).hexdigest()


def finds_returned(dialect: sa.Dialect) -> bool:
    """Whether looks find by an index of its own what has come back."""
    return dialect.name == "postgresql" or getattr(dialect, "is_mariadb", False)


def has_partial_indexes(dialect: sa.Dialect) -> bool:
    """Where there are none, an index has the rows of every state."""
    return dialect.name in ("postgresql", "sqlite")


def _where(condition: Any) -> dict[str, Any]:
    return {"postgresql_where": condition, "sqlite_where": condition}


def _storage(table: sa.Table, **parameters: float) -> None:
    """PostgreSQL's storage parameters, for when the table is created."""
    listed = ", ".join(f"{name} = {value}" for name, value in parameters.items())
    change: Any = sa.DDL("ALTER TABLE %(table)s SET (" + listed + ")")  # type: ignore[no-untyped-call]
    sa.event.listen(table, "after_create", change.execute_if(dialect="postgresql"))


class Tables:
    """The tables whose names begin with ``prefix``."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.metadata = sa.MetaData()
        options: dict[str, Any] = {
            "mysql_engine": "InnoDB",
            "mysql_charset": "utf8mb4",
            "mariadb_engine": "InnoDB",
            "mariadb_charset": "utf8mb4",
            "sqlite_autoincrement": True,
        }
        self.jobs = jobs = sa.Table(
            prefix,
            self.metadata,
            sa.Column("uuid", Exact(64), nullable=False),
            sa.Column("name", Exact(255), nullable=False),
            sa.Column("priority", sa.SmallInteger, nullable=False),
            sa.Column("id", serial(), primary_key=True, autoincrement=True),
            sa.Column("key", Exact(255)),
            sa.Column("version", sa.Integer, nullable=False),
            sa.Column("posting", LongText, nullable=False),
            sa.Column("state", Exact(9), nullable=False),
            sa.Column("attempts", sa.Integer, nullable=False),
            sa.Column("max_attempts", sa.Integer),
            sa.Column("token", sa.BigInteger, nullable=False),
            sa.Column("who", Exact(255)),
            sa.Column("keeper", Exact(64)),
            sa.Column("lock_until", sa.BigInteger),
            sa.Column("created_on", sa.BigInteger, nullable=False),
            sa.Column("modified_on", sa.BigInteger, nullable=False),
            sa.Column("errors", LongText),
            sa.Column("retries", sa.Integer, nullable=False),
            sa.Column("job_group", Exact(255)),
            sa.Column("key_until", sa.BigInteger),
            sa.Column("board", Exact(255), nullable=False),
            sa.Column("live_key", Exact(255)),
            # The instant at which a row next needs a look: indexed in the place of lock_until, which every heartbeat
            # writes and which no index may contain if those writes are to stay cheap.
            sa.Column("wake_at", sa.BigInteger),
            # Of a ready job that has been claimed or delayed: the transaction that gave it back on PostgreSQL, see
            # floors; the time at which it came back on MariaDB, see lows.
            sa.Column("returned", sa.BigInteger),
            # InnoDB puts a row that grows onto another place, and writes the page anew where it is full: that made four
            # fifths of a claim's log. The first claim empties this, and its owner and lease fit into the row's place.
            sa.Column("spare", Exact(SPARE), server_default=sa.DefaultClause(Spare(SPARE))),
            # When it went to the trash; and minus that of its purge. An index by state would move with each claim.
            sa.Column("gone_on", sa.BigInteger),
            **options,
        )
        c = jobs.c
        self.record = tuple(jobs.c)[:RECORD]
        sa.Index(f"{prefix}_uuid", c.uuid, c.board, unique=True)
        sa.Index(f"{prefix}_key", c.board, c.live_key, unique=True, **_where(c.live_key.is_not(None)))
        # In exactly the order in which jobs are served, or InnoDB sorts and locks all that it has sorted.
        self._partial("ready", UNCLAIMED, c.priority, c.id)
        self._partial("by_name", UNCLAIMED, c.name, c.priority, c.id)
        self.halves = self._halves()
        # The first jobs of each group: see lanes and heads. SQLite finds in it all that it has to know of them: each of
        # the rows would be on another page. Where it is not partial it has no state, so that no claim moves an entry.
        grouped = sa.and_(c.state == str(UNCLAIMED), c.job_group.is_not(None))
        places = (c.name, c.job_group, c.priority, c.id)
        self.by_group = sa.Index(f"{prefix}_by_group", c.board, *places, postgresql_where=grouped)
        self.by_group.ddl_if(callable_=lambda *_, dialect, **kw: dialect.name != "sqlite")
        covering = sa.Index(f"{prefix}_by_group", c.board, c.state, *places, c.version, sqlite_where=grouped)
        self.by_group_covering = covering.ddl_if(dialect="sqlite")
        # One for both: each index costs each claim something, even where it is partial and gets no entry.
        self.trash = sa.Index(f"{prefix}_trash", c.board, c.gone_on, c.id, **_where(c.gone_on.is_not(None)))
        # Without the state: no claim moves an entry of it.
        self.serving = sa.Index(f"{prefix}_serving", c.board, c.priority, c.id)
        came_back = sa.and_(c.state == str(UNCLAIMED), c.returned.is_not(None))
        self.returned = sa.Index(f"{prefix}_returned", c.board, c.returned, postgresql_where=came_back)
        self.returned.ddl_if(callable_=lambda *_, dialect, **kw: finds_returned(dialect))
        # With the state, which changes when this does, jobs that are not ready are counted without the table.
        self.wake = sa.Index(f"{prefix}_wake", c.board, c.wake_at, c.state, **_where(c.wake_at.is_not(None)))
        self.answers = sa.Table(
            f"{prefix}_answers",
            self.metadata,
            sa.Column("handle", Exact(64), primary_key=True),
            sa.Column("slot", sa.Integer, primary_key=True, autoincrement=False),
            sa.Column("call", sa.BigInteger, nullable=False),
            sa.Column("answer", LongText, nullable=False),
            sa.Column("stamp", sa.BigInteger, nullable=False),
            **{key: value for key, value in options.items() if key != "sqlite_autoincrement"},
        )
        # Written anew once in a while, not with each answer: a column of an index that changes costs a write to it.
        sa.Index(f"{prefix}_answers_stamp", self.answers.c.stamp)
        # What a board keeps beside its jobs; see jobboard.engine.store.KINDS. A key may be longer than an index takes.
        self.sides = sa.Table(
            f"{prefix}_sides",
            self.metadata,
            sa.Column("board", Exact(255), primary_key=True),
            sa.Column("kind", Exact(16), primary_key=True),
            sa.Column("place", Exact(64), primary_key=True),
            sa.Column("key", LongText, nullable=False),
            sa.Column("value", sa.LargeBinary(2**32 - 1), nullable=False),
            sa.Column("until", sa.BigInteger),
            sa.Column("version", sa.BigInteger, nullable=False),
            **{key: value for key, value in options.items() if key != "sqlite_autoincrement"},
        )
        ends = self.sides.c.until
        sa.Index(f"{prefix}_sides_until", self.sides.c.board, ends, **_where(ends.is_not(None)))
        # What consumed jobs have left; "id" is the job's place, as it was. Nothing that looks for work meets these.
        self.outcomes = sa.Table(
            f"{prefix}_outcomes",
            self.metadata,
            sa.Column("uuid", Exact(64), primary_key=True),
            sa.Column("board", Exact(255), primary_key=True),
            sa.Column("name", Exact(255), nullable=False),
            sa.Column("priority", sa.SmallInteger, nullable=False),
            sa.Column("id", sa.BigInteger, nullable=False),
            sa.Column("key", Exact(255)),
            sa.Column("version", sa.Integer, nullable=False),
            sa.Column("posting", LongText, nullable=False),
            sa.Column("attempts", sa.Integer, nullable=False),
            sa.Column("max_attempts", sa.Integer),
            sa.Column("token", sa.BigInteger, nullable=False),
            sa.Column("who", Exact(255)),
            sa.Column("created_on", sa.BigInteger, nullable=False),
            sa.Column("begun", sa.BigInteger, nullable=False),
            sa.Column("modified_on", sa.BigInteger, nullable=False),
            sa.Column("until", sa.BigInteger, nullable=False),
            sa.Column("errors", LongText),
            sa.Column("retries", sa.Integer, nullable=False),
            sa.Column("job_group", Exact(255)),
            sa.Column("result", LongText),
            sa.Column("refused", LongText),
            **{key: value for key, value in options.items() if key != "sqlite_autoincrement"},
        )
        left = self.outcomes.c
        sa.Index(f"{prefix}_outcomes_newest", left.board, left.modified_on, left.id)
        sa.Index(f"{prefix}_outcomes_until", left.board, left.until)
        self.schema = sa.Table(
            f"{prefix}_schema",
            self.metadata,
            # The only row would need no key. Clusters, replicas and publications refuse tables that have none.
            sa.Column("layout", sa.Integer, primary_key=True, autoincrement=False),
            sa.Column("min_reader", sa.Integer, nullable=False),
            **{key: value for key, value in options.items() if key != "sqlite_autoincrement"},
        )

        # Room for the updates of heartbeats on the page that they begin on; and dead rows go before they pile up.
        _storage(
            self.jobs,
            fillfactor=70,
            autovacuum_vacuum_scale_factor=0.02,
            autovacuum_vacuum_insert_scale_factor=0.05,
            autovacuum_analyze_scale_factor=0.05,
        )
        _storage(self.answers, fillfactor=50)

    def _partial(self, name: str, state: str, *columns: sa.Column[Any]) -> None:
        """An index of the rows in one state."""
        c = self.jobs.c
        one = c.state == str(state)
        # PostgreSQL takes the condition as met and no longer uses the columns behind it to find its place. SQLite needs
        # it, or finds the index no better than one without the condition; and elsewhere no index is partial.
        narrow = sa.Index(f"{self.prefix}_{name}", c.board, *columns, **_where(one))
        whole = sa.Index(f"{self.prefix}_{name}", c.board, c.state, *columns, **_where(one))
        narrow.ddl_if(dialect="postgresql")
        served = ("postgresql", "sqlite") if c.name in columns else ("postgresql",)
        whole.ddl_if(callable_=lambda *_, dialect, **kw: dialect.name not in served)

    def _halves(self) -> list[sa.Index]:
        """SQLite's indexes of the ready jobs of a name: of those that have no group, which are found past any number of
        others by that, and of those that have one. One for all that also has the group would cost each job more."""
        c, ready = self.jobs.c, self.jobs.c.state == str(UNCLAIMED)
        found = []
        for name, half in (("by_name", c.job_group.is_(None)), ("by_name_grouped", c.job_group.is_not(None))):
            columns, where = (c.board, c.state, c.name, c.priority, c.id), sa.and_(ready, half)
            found.append(sa.Index(f"{self.prefix}_{name}", *columns, sqlite_where=where))
            found[-1].ddl_if(dialect="sqlite")
        return found


@functools.cache
def tables_of(prefix: str) -> Tables:
    """The same for all boards of a prefix: to build them takes some milliseconds."""
    return Tables(prefix)


STORED: dict[str, State] = {str(state): state for state in (UNCLAIMED, SCHEDULED, CLAIMED, TRASHED)}
"""The states that a row can be stored in, but PURGED."""
