"""Django's databases: their settings for boards, and their connections for SQLAlchemy, within Django's transaction."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from importlib.util import find_spec
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
"""SQLAlchemy's dialects by the module of Django's driver. Boards need psycopg 3, and Django then uses no psycopg 2."""

_PARTS = {"USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
_TAKEN = {
    "postgresql": (
        *("sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl", "channel_binding"),
        *("options", "service", "passfile", "target_session_attrs"),
    ),
    "mysql": ("unix_socket", "ssl_ca", "ssl_cert", "ssl_key", "ssl_mode"),
    "sqlite": (),
}
"""The ``OPTIONS`` that a board has by the same name."""
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
"""The ``OPTIONS`` that a board's connection does without: it leads to the same place, as the same user, as safely."""


def has_tasks() -> bool:
    """Return whether there is an interface for tasks: that of Django 6, or that of the package django-tasks."""
    return any(map(find_spec, ("django.tasks", "django_tasks")))


def conf_of(alias: str) -> dict[str, Any]:
    """Return the configuration of a board in one of Django's databases.

    :raises ValueError: there is no such database, or no board can be in it.
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
    """Return the database's name on its server, or its file. A test runner gives each of its processes another."""
    return connections[alias].settings_dict["NAME"]


def _options(alias: str, scheme: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``OPTIONS`` of a database for a board.

    :raises ValueError: without an option a connection would lead elsewhere, or be less safe.
    """
    options = dict(given)
    if scheme == "mysql" and isinstance(tls := options.get("ssl") or {}, Mapping):
        options.pop("ssl", None)
        options |= {f"ssl_{part}": value for part, value in tls.items()}
    taken = {option: options.pop(option) for option in _TAKEN[scheme] if option in options}
    for option in options:
        if option not in _DJANGOS[scheme]:
            raise ValueError(
                f"DATABASES[{alias!r}]['OPTIONS'] has {option!r}, which the board's own connections can't have: "
                "let the server set it for the user or the database, or give the board a database of its own, by a URI"
            )
    return taken


def run_within(alias: str | None, work: Callable[[dict[str, Any]], T]) -> T:
    """Call ``work`` with the arguments by which a board takes part in Django's transaction, if Django is in one.

    :raises TransactionManagementError: the project may be in a transaction that it commits itself.
    """
    if alias is None:
        return work({})
    django = connections[alias]
    if not django.in_atomic_block:
        # get_autocommit() would connect.
        if not (django.settings_dict["AUTOCOMMIT"] if django.connection is None else django.autocommit):
            raise transaction.TransactionManagementError(
                f"the database {alias!r} does not commit by itself, and Django has no event for the commit: "
                "turn autocommit on, and enqueue within transaction.atomic()"
            )
        return work({})
    joined = engine_of(alias).connect()
    joined.begin()
    done = work({"connection": joined})
    # This wakes waiting workers after the commit. A rollback drops it.
    transaction.on_commit(functools.partial(_end, joined), using=alias)
    return done


def _end(joined: Connection) -> None:
    joined.commit()
    joined.close()


@functools.cache
def engine_of(alias: str) -> Engine:
    """Return an engine on Django's own connections to a database."""
    # Boards elsewhere do without SQLAlchemy.
    import sqlalchemy as sa
    from sqlalchemy.pool import NullPool

    dialect = _dialect(alias)
    options: dict[str, Any] = {}
    if dialect.startswith("postgresql"):
        # SQLAlchemy would call the connection in a way that only psycopg's own class allows.
        options["use_native_hstore"] = False
    elif dialect.startswith("sqlite"):
        # Django's cursors take "?", too, but can't record such a query.
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
    """Django's connection of this thread, as a driver's connection that never commits, rolls back or closes."""

    def __init__(self, alias: str) -> None:
        self._django = connections[alias]

    def cursor(self) -> Any:
        return self._django.cursor()

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def close(self) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return getattr(self._django.connection, name)
