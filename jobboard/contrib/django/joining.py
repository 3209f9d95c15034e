"""Django's own database connection as SQLAlchemy takes one, so that a task is posted in a transaction of Django's.

Django begins and ends the transaction; here nothing does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from django.db import connections, transaction
from django.utils.connection import ConnectionDoesNotExist

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection, Engine

T = TypeVar("T")

SCHEME = "django:"
"""``django:default`` is the database that Django knows as ``default``."""

DIALECTS = {
    "sqlite3.dbapi2": "sqlite+pysqlite",
    "psycopg": "postgresql+psycopg",
    "MySQLdb": "mysql+mysqldb",
    "pymysql": "mysql+pymysql",
}
"""By the driver's module. Django takes psycopg 2 only where psycopg 3 is missing, which the board itself needs."""

_PARTS = {"USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
_TAKEN = {
    "postgresql": (
        *("sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl", "channel_binding"),
        *("options", "service", "passfile", "target_session_attrs"),
    ),
    "mysql": ("unix_socket", "ssl_ca", "ssl_cert", "ssl_key", "ssl_mode"),
    "sqlite": (),
}
"""The ``OPTIONS`` that the board has by the same name."""
_DJANGOS = {
    "postgresql": (
        *("isolation_level", "pool", "server_side_binding", "cursor_factory", "row_factory", "prepare_threshold"),
        *("client_encoding", "application_name", "fallback_application_name", "connect_timeout", "autocommit"),
        *("tcp_user_timeout", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count"),
    ),
    "mysql": (
        *("isolation_level", "charset", "collation", "use_unicode", "sql_mode", "init_command", "conv", "cursorclass"),
        *("connect_timeout", "read_timeout", "write_timeout", "client_flag", "autocommit", "local_infile", "compress"),
        *("max_allowed_packet", "binary_prefix", "program_name"),
    ),
    "sqlite": (
        *("transaction_mode", "isolation_level", "timeout", "init_command", "detect_types", "cached_statements"),
        *("factory", "check_same_thread", "uri", "autocommit"),
    ),
}
"""Those that a connection of the board's does without: it leads to the same place, as the same user, as safely."""


def conf_of(alias: str) -> dict[str, Any]:
    """The board in this database, for connections of its own.

    :raises ValueError: there is no such database, or none that a board can be in.
    """
    try:
        connection = connections[alias]
    except ConnectionDoesNotExist:
        raise ValueError(f"DATABASES has no {alias!r}; it has {', '.join(sorted(connections))}") from None
    scheme = _dialect(alias).partition("+")[0]
    settings: Mapping[str, Any] = connection.settings_dict
    taken = _options(alias, scheme, settings.get("OPTIONS", {}))
    if scheme == "sqlite":
        if connection.is_in_memory_db():
            raise ValueError(
                f"the database {alias!r} is in the memory of one connection, and workers need others: give it a file, "
                "for tests as DATABASES[…]['TEST'] = {'NAME': …}"
            )
        return {"board": "sqlite", "database": str(settings["NAME"])}
    conf = {"board": scheme, "database": settings["NAME"]}
    conf |= {ours: settings[theirs] for theirs, ours in _PARTS.items() if settings.get(theirs)}
    conf |= taken
    if scheme == "mysql" and str(conf.get("host", "")).startswith("/"):
        conf["unix_socket"] = conf.pop("host")
    return conf


def name_of(alias: str) -> object:
    """What Django calls this database on its server, or its file: a test runner changes that, in each of its processes
    to another one."""
    return connections[alias].settings_dict["NAME"]


def _options(alias: str, scheme: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """``OPTIONS`` of a database, as the board has them.

    :raises ValueError: without one of them a connection would lead elsewhere, or be less safe.
    """
    options = dict(given)
    if scheme == "mysql" and isinstance(tls := options.get("ssl") or {}, Mapping):
        options.pop("ssl", None)
        options |= {f"ssl_{part}": value for part, value in tls.items()}
    taken = {option: options.pop(option) for option in _TAKEN[scheme] if option in options}
    for option in options:
        if option not in _DJANGOS[scheme]:
            raise ValueError(
                f"DATABASES[{alias!r}]['OPTIONS'] has {option!r}, which the board's own connections can't have: have "
                "the server set it for the user or the database, or give the board a database of its own, by a URI"
            )
    return taken


def within(alias: str | None, work: Callable[[dict[str, Any]], T]) -> T:
    """Call ``work`` with what has the board take part in Django's transaction: nothing where Django is in none.

    :raises TransactionManagementError: there may be one that Django leaves to the project to commit.
    """
    if alias is None:
        return work({})
    django = connections[alias]
    if not django.in_atomic_block:
        # Not by get_autocommit(), which connects.
        if not (django.settings_dict["AUTOCOMMIT"] if django.connection is None else django.autocommit):
            raise transaction.TransactionManagementError(
                f"the database {alias!r} does not commit by itself, and when the project does, Django does not tell: "
                "turn autocommit on, and enqueue within transaction.atomic()"
            )
        return work({})
    joined = _engine(alias).connect()
    joined.begin()
    done = work({"connection": joined})
    # It has told of its commit by then those who wait; rolled back, it is forgotten.
    transaction.on_commit(functools.partial(_end, joined), using=alias)
    return done


def _end(joined: Connection) -> None:
    joined.commit()
    joined.close()


@functools.cache
def _engine(alias: str) -> Engine:
    # Nobody else needs it: a board elsewhere does without.
    import sqlalchemy as sa
    from sqlalchemy.pool import NullPool

    dialect = _dialect(alias)
    options: dict[str, Any] = {}
    if dialect.startswith("postgresql"):
        # It would ask the connection in a way that only psycopg's own class allows.
        options["use_native_hstore"] = False
    elif dialect.startswith("sqlite"):
        # Django's cursors take "?", too, but can't write down such a query where queries are recorded.
        options["paramstyle"] = "format"
    return sa.create_engine(
        f"{dialect}://",
        creator=lambda: DjangosConnection(alias),
        poolclass=NullPool,
        pool_reset_on_return=None,
        **options,
    )


def _dialect(alias: str) -> str:
    driver = getattr(getattr(connections[alias], "Database", None), "__name__", "that is not known")
    if driver not in DIALECTS:
        raise ValueError(f"the database {alias!r} uses the driver {driver}; a board knows {', '.join(DIALECTS)}")
    return DIALECTS[driver]


class DjangosConnection:
    """Django's connection of this thread, as a driver's that never commits, rolls back or closes."""

    def __init__(self, alias: str) -> None:
        self._django = connections[alias]

    def cursor(self) -> Any:
        return self._django.cursor()

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def close(self) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return getattr(self._django.connection, name)
