"""What boards, task loops and models can't have of an engine of the user's."""

from __future__ import annotations

from sqlalchemy.engine import Engine
from sqlalchemy.pool import AssertionPool, SingletonThreadPool, StaticPool

SYNC = "verbs call their driver in threads, under jobboard.aio, too: make a sync engine by sqlalchemy.create_engine"
"""The advice of errors about an async client."""


def is_in_memory(engine: Engine) -> bool:
    """Whether it is on a database in SQLite's memory, be it one that its connections share."""
    if engine.dialect.name != "sqlite":
        return False
    database = engine.url.database or ":memory:"
    return ":memory:" in database or "mode=memory" in database or engine.url.query.get("mode") == "memory"


def gives_one(engine: Engine) -> bool:
    """Whether it gives a connection that others may have as well, and commit, roll back or reset at any time."""
    return isinstance(engine.pool, (StaticPool, SingletonThreadPool, AssertionPool))


def is_async(given: object) -> bool:
    """Return whether an object is an AsyncEngine, or comes from one."""
    return type(given).__module__.startswith("sqlalchemy.ext.asyncio")


def check_engine(engine: Engine, who: str) -> None:
    """
    :param who: what the error calls that which works on the engine.
    :raises ValueError: it can't.
    """
    if engine.dialect.is_async:
        raise ValueError(f"{who} can't use this engine, as {engine.dialect.driver} is an async driver; {SYNC}")
    if gives_one(engine):
        raise ValueError(
            f"{who} needs connections of its own, which an engine with a {type(engine.pool).__name__} does not give: "
            "leave out poolclass=, or have it be QueuePool or NullPool"
        )
    if engine.get_execution_options().get("schema_translate_map"):
        raise ValueError(
            f"{who} does not follow an engine's schema_translate_map: have its connections begin in that schema (on "
            "PostgreSQL by search_path) or database"
        )
