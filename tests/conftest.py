"""Every selected backend on a real server, one set of servers per run, shared by all xdist workers.

A selected backend whose server cannot be started fails the run, with what to install.
"""

import contextlib
import fnmatch
import gc
import itertools
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobboard.conductor import Conductor
from jobboard.testing.conformance.support import board, other  # noqa: F401 - fixtures
from tests.support.servers import KINDS, Server, ServerError, running, selected_backends

_uris = pytest.StashKey[dict[str, str]]()
_stack = pytest.StashKey[contextlib.ExitStack]()
_serial = itertools.count(1)
DRIVERS = {"postgresql": "postgresql+psycopg", "mariadb": "mariadb+pymysql", "sqlite": "sqlite"}

TRUSTED = {name: os.environ[name] for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if name in os.environ}
"""Where the environment of the run says that certificates are, for tests that download."""

SHARED = "shared"
"""The tables of tests that make none of their own."""


def selected() -> list[str]:
    try:
        return selected_backends()
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "backends(*names): this test concerns these backends alone; not collected for others",
    )
    config.addinivalue_line(
        "markers",
        "any_driver: this test says nothing of the driver, as it runs no statement of its own and makes no connection "
        "in a way of its own; not run again with the oldest drivers",
    )
    config.addinivalue_line("markers", "rule(text): a rule that this test holds; python -m tests.rules lists all rules")
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        # As a shell starts what it runs in the background; a process that a test sends it to would never hear of it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[_stack] = contextlib.ExitStack()
    if hasattr(config, "workerinput"):
        config.stash[_uris] = config.workerinput["jobboard_uris"]


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    config = session.config
    if _uris in config.stash:
        return
    servers = [KINDS[name]() for name in selected() if name in KINDS]
    if config.option.collectonly:
        servers = []
    try:
        config.stash[_stack].enter_context(running(*servers))
    except ServerError as error:
        pytest.exit(str(error), returncode=pytest.ExitCode.USAGE_ERROR)
    config.stash[_uris] = {server.kind: server.uri for server in servers}


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["jobboard_uris"] = node.config.stash[_uris]


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_stack].close()


def _concerned(marker: pytest.Mark | None) -> list[str]:
    return [name for name in selected() if marker is None or name in marker.args]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "backend" in metafunc.fixturenames:
        names = _concerned(metafunc.definition.get_closest_marker("backends"))
        metafunc.parametrize("backend", names, scope="session")


def pytest_itemcollected(item: pytest.Item) -> None:
    # The conformance suite has no markers, which other authors of backends would have to register.
    if getattr(getattr(item, "cls", None), "any_driver", False):
        item.add_marker("any_driver")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept: list[pytest.Item] = []
    gone: list[pytest.Item] = []
    for item in items:
        (kept if _concerned(item.get_closest_marker("backends")) else gone).append(item)
    if gone:
        config.hook.pytest_deselected(items=gone)
        items[:] = kept


def pytest_collection_finish() -> None:
    # Thousands of items that live until the end are not gone through by each collection of garbage.
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _trusted() -> Iterator[None]:
    """No authorities but those that a test names: PyMySQL reads the system's for each connection, which takes 25 ms."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
            patch.setenv(name, os.devnull)
        # pytest-xdist sets it, and commands would cut what they print into a pipe.
        patch.delenv("COLUMNS", raising=False)
        yield


@pytest.fixture(autouse=True)
def _log_level() -> Iterator[None]:
    """A command that was called in this process has set it for good."""
    names = ("jobboard", "jobboard.drivers", "jobboard.cli.work", "jobboard.conductor.signals")
    levels = [(log, log.level) for log in map(logging.getLogger, names)]
    yield
    for log, level in levels:
        log.setLevel(level)


@pytest.fixture(scope="session")
def server_uris(pytestconfig: pytest.Config) -> dict[str, str]:
    """Where the run's shared servers are, by kind. Nobody may stop or change these."""
    return pytestconfig.stash[_uris]


@pytest.fixture(scope="session")
def database_uri(server_uris: dict[str, str], request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Gives the URI of an SQL database, by kind, that this xdist worker has for itself."""
    import sqlalchemy

    made: dict[str, str] = {}
    name = "jobboard_" + getattr(request.config, "workerinput", {}).get("workerid", "main")

    def uri(kind: str) -> str:
        if kind not in made:
            shared = sqlalchemy.make_url(server_uris[kind])
            engine = sqlalchemy.create_engine(shared.set(drivername=DRIVERS[kind]), isolation_level="AUTOCOMMIT")
            with engine.connect() as connection:
                connection.exec_driver_sql(f"CREATE DATABASE {name}")
            engine.dispose()
            made[kind] = shared.set(database=name).render_as_string(hide_password=False)
        return made[kind]

    return uri


@pytest.fixture
def conf_of(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], dict[str, Any]]:
    """``conf_of(backend)``: a configuration for ``jobboard.fetch`` that shares jobs with no other."""

    def conf(backend: str) -> dict[str, Any]:
        number = next(_serial)
        if backend == "memory":
            return {"board": "memory"}
        if backend == "sqlite":
            return {"board": f"sqlite:///{tmp_path}/board{number}.db"}
        if backend in ("postgresql", "mariadb"):
            uri = request.getfixturevalue("database_uri")(backend)
            return {"board": uri, "table": f"test{number}"}
        uri = request.getfixturevalue("server_uris")[backend]
        return {"board": uri, "namespace": f"test{os.getpid()}x{number}"}

    return conf


@pytest.fixture(scope="session")
def users_url(
    backend: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Any]:
    """Where engines of users' find an SQL database; on SQLite, each name has one to itself."""
    import sqlalchemy

    def url(name: str) -> Any:
        if backend == "sqlite":
            return sqlalchemy.make_url(f"sqlite:///{tmp_path_factory.mktemp(name)}/{name}.db")
        uri = request.getfixturevalue("database_uri")(backend)
        return sqlalchemy.make_url(uri).set(drivername=DRIVERS[backend])

    return url


@pytest.fixture
def board_conf(backend: str, conf_of: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """The configuration of the test's board."""
    return conf_of(backend)


@pytest.fixture
def make_board(backend: str, board_conf: dict[str, Any]) -> Iterator[Callable[..., Any]]:
    """``make_board(name='board', **options)``: a connected board, closed when the test ends.

    The same name gives another handle on the same board.
    """
    import jobboard

    # The name is all that tells one memory board from another, or boards whose tables a test shares.
    suffix = f"-{next(_serial)}" if backend == "memory" or board_conf.get("table") == SHARED else ""
    with contextlib.ExitStack() as stack:

        def make(name: str = "board", **options: Any) -> Any:
            board = jobboard.fetch(name + suffix, {**board_conf, **options})
            stack.callback(board.close)
            board.connect()
            return board

        yield make


@pytest.fixture
def engine(backend: str, board_conf: dict[str, Any]) -> Iterator[Any]:
    """An engine of a user's, in the database of ``board_conf``."""
    import sqlalchemy

    url = sqlalchemy.make_url(board_conf["board"]).set(drivername=DRIVERS[backend])
    engine = sqlalchemy.create_engine(url, connect_args={"timeout": 1} if backend == "sqlite" else {})
    yield engine
    engine.dispose()


@pytest.fixture
def board_of_commands(
    make_board: Callable[..., Any], board_conf: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> Any:
    """A board that the command line finds through the environment."""
    made = make_board()
    options = "&".join(f"{name}={value}" for name, value in board_conf.items() if name != "board")
    uri = board_conf["board"]
    monkeypatch.setenv("JOBBOARD_URL", uri + ("&" if "?" in uri else "?") + options if options else uri)
    monkeypatch.setenv("JOBBOARD_NAME", made.name)
    return made


@pytest.fixture
def private_server() -> Iterator[Callable[..., Server]]:
    """``private_server(kind, **options)``: a started server to kill, pause or restart. A kind is a name or a class."""
    with contextlib.ExitStack() as stack:

        def start(kind: str | type[Server], **options: Any) -> Server:
            return stack.enter_context((KINDS[kind] if isinstance(kind, str) else kind)(**options))

        yield start


class Runner:
    """Runs conductors in threads, and stops what is left at the end."""

    def __init__(self) -> None:
        self._running: list[tuple[Conductor, threading.Thread]] = []

    def __call__(self, conductor: Conductor, max_dispatches: int | None = None) -> Conductor:
        thread = threading.Thread(target=conductor.run, args=(max_dispatches,))
        thread.start()
        self._running.append((conductor, thread))
        return conductor

    def end(self) -> None:
        for conductor, _ in self._running:
            conductor.stop()
        for _, thread in self._running:
            thread.join(30)
            assert not thread.is_alive()


class Refused(set[str]):
    """Names, with * for what may stand there. ``times``: how often a thread was refused."""

    times = 0


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> Refused:
    """The threads that the system refuses to start."""
    names = Refused()
    start = threading.Thread.start

    def start_unless_refused(thread: threading.Thread) -> None:
        if any(fnmatch.fnmatchcase(thread.name, name) for name in names):
            names.times += 1
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_unless_refused)
    return names


@pytest.fixture
def long_reserve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Conductors keep half of the drain's time for handing over: longer than a busy machine holds up a thread."""
    monkeypatch.setattr("jobboard.conductor.conductor.RESERVE", 60.0)
    monkeypatch.setattr("jobboard.conductor.conductor.RESERVED", 0.5)


@pytest.fixture
def start() -> Iterator[Runner]:
    """``start(conductor)`` on a thread of its own, until the test ends."""
    runner = Runner()
    yield runner
    runner.end()
