"""Checks of the user's engines: those that boards, task loops and models cannot work on."""

from __future__ import annotations

from sqlalchemy.engine import Engine
from sqlalchemy.pool import AssertionPool, SingletonThreadPool, StaticPool

SYNC = "verbs call their driver in threads, under jobboard.aio, too: make a sync engine by sqlalchemy.create_engine"
"""The advice of errors about an async client."""


def is_in_memory(engine: Engine) -> bool:
    """Return whether the engine's database lies in SQLite's memory, shared by its connections or not."""
    if engine.dialect.name != "sqlite":
        return False
    database = engine.url.database or ":memory:"
    return ":memory:" in database or "mode=memory" in database or engine.url.query.get("mode") == "memory"


def gives_one(engine: Engine) -> bool:
    """Return whether the pool may give one connection to several users, who end each other's transactions."""
    return isinstance(engine.pool, (StaticPool, SingletonThreadPool, AssertionPool))


def is_async(given: object) -> bool:
    """Return whether an object is an AsyncEngine, or comes from one."""
    return type(given).__module__.startswith("sqlalchemy.ext.asyncio")


def check_engine(engine: Engine, who: str) -> None:
    """Check that connections of an engine can be used.

    :param who: the name of the user in errors, such as "a board".
    :raises ValueError: they cannot.
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
