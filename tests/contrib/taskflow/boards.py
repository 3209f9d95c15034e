"""Where the tests of the bridge run, and the boards and clients that TaskFlow's own suites are given there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pytest
from taskflow.jobs import backends
from taskflow.utils import kazoo_utils, redis_utils
from taskflow.utils.kazoo_utils import make_client as make_kazoo_client

from tests.support.servers import selected_backends

# Only its name tells one memory board from another, and these are told apart by where they lie.
BACKENDS = [name for name in selected_backends() if name != "memory"]


DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "mariadb": "mariadb+pymysql"}


def in_taskflows_words(conf: dict[str, Any]) -> dict[str, Any]:
    """A configuration for :func:`jobboard.fetch` as one for TaskFlow's ``fetch``."""
    return {"url" if name == "board" else name: value for name, value in conf.items()} | {"board": "jobboard"}


def make_client(url: str) -> Any:
    """A client as TaskFlow makes it, which has connected to nothing yet; an SQLAlchemy engine where TaskFlow has no
    board; None for etcd, where our board takes none."""
    uri = urlsplit(url)
    if uri.scheme == "redis":
        return redis_utils.RedisClient(host=uri.hostname, port=uri.port)
    if uri.scheme == "zookeeper":
        return make_kazoo_client({"hosts": uri.netloc, "timeout": 10.0})
    if uri.scheme == "etcd":
        return None
    import sqlalchemy

    engine = sqlalchemy.create_engine(sqlalchemy.make_url(url).set(drivername=DRIVERS[uri.scheme]))
    engine.close = engine.dispose  # as the others, for contextlib.closing
    return engine


def close_client(client: Any) -> None:
    if hasattr(client, "client_state"):
        kazoo_utils.finalize_client(client)
    elif client is not None:
        client.close()


class OnOurs:
    """Gives a suite of TaskFlow's our board of one backend, and a client of its own."""

    backend: ClassVar[str]

    @pytest.fixture(autouse=True)
    def _conf(self, conf_of: Callable[[str], dict[str, Any]]) -> None:
        self.conf = in_taskflows_words(conf_of(self.backend))

    def create_board(self, persistence: Any = None) -> tuple[Any, Any]:
        client = make_client(self.conf["url"])
        board = backends.fetch("test-board", self.conf, client=client, persistence=persistence)
        self.addCleanup(board.close)
        self.addCleanup(close_client, client)
        return client, board

    close_client = staticmethod(close_client)

    def flush(self, client: Any) -> contextlib.AbstractContextManager[None]:
        """Nothing of what a board does is seen later than when it returns."""
        return contextlib.nullcontext()


def on_ours(released: tuple[type, ...], but: dict[str, str], **attributes: Any) -> dict[str, type]:
    """Subclasses of released suites, one for each backend.

    :param but: the tests that can't apply, each with its reason.
    """
    found = {}
    for name in but:
        assert any(hasattr(suite, name) for suite in released), f"{name} is in none of {released}"
    for backend in BACKENDS:
        name = f"{released[0].__name__}On{backend.capitalize()}"
        without = dict.fromkeys(but)
        marks = {"backend": backend, "pytestmark": [pytest.mark.backends(backend)]}
        found[name] = type(name, (OnOurs, *released), {**without, **marks, **attributes})
    return found
