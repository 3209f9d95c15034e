"""Servers for the pages of the manual."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import DRIVERS
from tests.docs.forks import forked_commands
from tests.docs.page import ENVIRONMENT

_serial = itertools.count(1)


@pytest.fixture
def servers_of(
    request: pytest.FixtureRequest, server_uris: dict[str, str], private_server: Callable[..., Any]
) -> Callable[[list[str]], dict[str, str]]:
    """``servers_of(kinds)``: the URIs of servers, by their kind, on which a page is alone."""

    def database(kind: str) -> str:
        import sqlalchemy

        shared = sqlalchemy.make_url(server_uris[kind])
        name = f"page{os.getpid()}x{next(_serial)}"
        engine = sqlalchemy.create_engine(shared.set(drivername=DRIVERS[kind]), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {name}")
        engine.dispose()
        return shared.set(database=name).render_as_string(hide_password=False)

    def uri(kind: str) -> str:
        if kind in ("postgresql", "mariadb"):
            return database(kind)
        if kind == "redis":
            return str(private_server("redis").uri)
        return f"{server_uris[kind]}/page{os.getpid()}x{next(_serial)}"

    return lambda kinds: {kind: uri(kind) for kind in kinds}


@pytest.fixture(scope="session")
def quick_commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a command ``jobboard`` that starts quickly."""
    with forked_commands(tmp_path_factory.mktemp("commands"), ENVIRONMENT) as folder:
        yield folder
