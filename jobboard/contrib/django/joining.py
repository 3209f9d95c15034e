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
_TLS = ("sslmode", "sslrootcert", "sslcert", "sslkey")


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
    if scheme == "sqlite":
        if connection.is_in_memory_db():
            raise ValueError(
                f"the database {alias!r} is in the memory of one connection, and workers need others: give it a file, "
                "for tests as DATABASES[…]['TEST'] = {'NAME': …}"
            )
        return {"board": "sqlite", "database": str(settings["NAME"])}
    conf = {"board": scheme, "database": settings["NAME"]}
    conf |= {ours: settings[theirs] for theirs, ours in _PARTS.items() if settings.get(theirs)}
    conf |= {option: value for option, value in settings.get("OPTIONS", {}).items() if option in _TLS}
    if scheme == "mysql" and str(conf.get("host", "")).startswith("/"):
        conf["unix_socket"] = conf.pop("host")
    return conf


def within(alias: str | None, work: Callable[[dict[str, Any]], T]) -> T:
    """Call ``work`` with what has the board take part in Django's transaction: nothing where Django is in none."""
    if alias is None or not connections[alias].in_atomic_block:
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
    # It would ask the connection in a way that only psycopg's own class allows.
    options = {"use_native_hstore": False} if dialect.startswith("postgresql") else {}
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
