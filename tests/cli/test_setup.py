"""``jobboard setup``: what it changes, ``--check`` and ``--sql``, and boards that a newer version has written."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

import jobboard
from jobboard.cli.common import DONE, FAILED, USAGE
from jobboard.engine import library_version, too_new
from jobboard.testing.conformance.harness import Harness
from tests.conftest import DRIVERS
from tests.support.commands import Commands

STORED = pytest.mark.backends("sqlite", "postgresql", "mariadb", "redis", "zookeeper", "etcd")
SQL = pytest.mark.backends("sqlite", "postgresql", "mariadb")


@pytest.fixture
def uri(backend: str, conf_of: Callable[[str], dict[str, Any]]) -> str:
    """A board that is not there yet."""
    conf = dict(conf_of(backend))
    place = conf.pop("board")
    more = "&".join(f"{name}={value}" for name, value in {**conf, "auto_setup": "false"}.items())
    return f"{place}{'&' if '?' in place else '?'}{more}"


@pytest.fixture
def setup(run: Commands, uri: str) -> Callable[..., Any]:
    return lambda *args, status=DONE: run("--board", uri, "--name", "new", "setup", *args, status=status)


@pytest.mark.rule(
    "setup says what it changes; --check and --sql change nothing, and the statements make the same board."
)
@STORED
def test_it_says_what_it_changed_and_what_is_to_be_done(setup: Any, backend: str) -> None:
    wanted = setup("--check", "--json", status=FAILED).json["to_do"]
    assert wanted
    shown = setup("--check", status=FAILED).out.splitlines()
    assert shown[:-1] == [f"to do: {each['what']}" for each in wanted]
    assert shown[-1].endswith(" needs `jobboard setup`.")
    assert setup("--check", status=FAILED).out.splitlines() == shown, "nothing was done"
    changed = setup("--json").json["changed"]
    assert changed == [each["what"] for each in wanted]
    assert setup("--check").out.endswith(" is up to date.\n")
    assert setup("--check", "--json").json["to_do"] == setup("--json").json["changed"] == []
    assert "\n  nothing was to be done\n" in setup().out


@SQL
def test_what_is_missing_alone_is_created(setup: Any, uri: str, backend: str) -> None:
    setup()
    with jobboard.backend("new", uri) as board:
        table, job = board.table.name, board.post("a")
        url = Harness(board).store.links.engine.url
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        on = f" ON {table}" if backend == "mariadb" else ""
        connection.exec_driver_sql(f"DROP INDEX {table}_trash{on}")
        connection.exec_driver_sql(f"DROP TABLE {table}_outcomes")
    engine.dispose()
    assert {each["what"] for each in setup("--check", "--json", status=FAILED).json["to_do"]} == {
        f"create the index '{table}_trash'",
        f"create the table '{table}_outcomes'",
    }
    assert f"\n  done: create the index '{table}_trash'\n" in setup().out
    with jobboard.backend("new", uri) as board:
        assert list(board.iterjobs()) == [job]


@pytest.mark.rule(
    "setup says what it changes; --check and --sql change nothing, and the statements make the same board."
)
@SQL
def test_its_statements_make_the_same_board(setup: Any, uri: str, backend: str) -> None:
    printed = setup("--sql").out
    statements = [each.strip() for each in re.sub(r"(?m)^-- .*\n", "", printed).split(";\n") if each.strip()]
    with pytest.raises(jobboard.JobFailure, match="jobboard setup"):
        jobboard.fetch("new", uri).connect()
    engine = sa.create_engine(sa.make_url(uri.partition("?")[0]).set(drivername=DRIVERS[backend]))
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement.replace("%", "%%") if backend != "sqlite" else statement)
    engine.dispose()
    assert setup("--sql").out == ""
    assert setup("--check").out.endswith(" is up to date.\n")
    with jobboard.backend("new", uri) as board:
        board.post("a", key="k", details={"n": 1})
        job = board.claim_next("anna")
        assert (job.key, job.details) == ("k", {"n": 1})
        board.consume(job, "anna")


@pytest.mark.backends("redis")
def test_only_sql_has_statements(setup: Any) -> None:
    assert setup("--sql", status=USAGE).is_one_line_about("leave out --sql")
    assert setup("--sql", "--check", status=USAGE).is_one_line_about("give --check or --sql")


@pytest.mark.rule(
    "An error about a newer layout names the version that wrote it, and advises no upgrade to an older one."
)
@pytest.mark.backends("memory")
@pytest.mark.parametrize(
    ("library", "advice"),
    [
        ("99.1", f"99.1 wrote it, and this is {library_version()}: upgrade this one to 99.1 or later"),
        ("0.0.1", f"0.0.1 wrote it, and this is {library_version()}: an upgrade is none here, install that 0.0.1"),
        (None, f"upgrade this one, {library_version()}, which reads layout 1"),
    ],
)
def test_no_upgrade_to_an_older_version_is_advised(library: str | None, advice: str) -> None:
    error = str(too_new("the board", 3, 1, library))
    assert error == f"the board has layout 3 of a newer version of this library; {advice}"


@pytest.mark.rule(
    "An error about a newer layout names the version that wrote it, and advises no upgrade to an older one."
)
@STORED
def test_a_board_names_the_version_that_wrote_it(setup: Any, run: Commands, uri: str, backend: str) -> None:
    setup()
    with jobboard.backend("new", uri) as board:
        store = Harness(board).store
        if backend in DRIVERS:
            schema = store.tables.schema
            with sa.create_engine(store.links.engine.url, poolclass=sa.NullPool).begin() as connection:
                assert connection.execute(sa.select(schema.c.library)).scalar() == library_version()
                connection.execute(sa.update(schema).values(layout=9, min_reader=9, library="99.1"))
        elif backend == "redis":
            values = {b"layout": b"9", b"min_reader": b"9", b"library": b"99.1"}
            assert store._command(b"HGET", store.keys.of("meta"), b"library").decode() == library_version()
            for name, value in values.items():
                store._command(b"HSET", store.keys.of("meta"), name, value)
        else:
            from jobboard.kv.driver import Op
            from jobboard.kv.layout import LAYOUT

            [made] = store._driver.read([LAYOUT]).nodes
            assert made.value.decode().split()[2] == library_version()
            store._driver.commit([Op("put", LAYOUT, b"9 9 99.1", made.version)])
    for command in ("setup", "stats"):
        ran = run("--board", uri, "--name", "new", command, status=FAILED)
        assert ran.is_one_line_about("layout 9", "upgrade this one to 99.1 or later")
