"""Commands on each backend: all of them, boards that are empty or absent, and backends that refuse a user."""

import contextlib
import datetime
import json
import os
import re
import sqlite3
import sys
import urllib.request
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
import redis
import sqlalchemy as sa
from kazoo.client import KazooClient

import jobboard
from jobboard.cli import main
from jobboard.cli.common import DONE, FAILED, UNREACHABLE, USAGE
from jobboard.cli.root import COMMANDS
from jobboard.cli.watch import Watcher
from jobboard.conductor import Conductor
from jobboard.sql.dialects import database
from tests.conftest import DRIVERS
from tests.support.commands import Commands, Ran, posting

STORED = pytest.mark.backends("sqlite", "postgresql", "mariadb", "redis", "zookeeper", "etcd")


def test_every_command_runs(
    board: Any, run: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    (tmp_path / f"handlers_{backend}.py").write_text("def anything(job):\n    pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    ran = {"demo", "loop"}  # no board of ours

    def command(*args: str, status: int = DONE) -> Ran:
        ran.add(args[0])
        return run(*args, status=status)

    command("setup")
    refused = backend == "memory"
    posted = command("post", "one", status=USAGE if refused else DONE).out.strip()
    uuids = [board.post("one").uuid if refused else posted, *(board.post(name).uuid for name in ("two", "three"))]
    board.register_entity(jobboard.Entity("conductor", "me", {"host": "here", "pid": 7, "names": None}))
    claimed = board.claim_next("somebody")
    assert [each["owner"] for each in command("list", "--json").lines] == ["somebody", None, None]
    assert [each["uuid"] for each in run("list", "--after", uuids[0], "--newer", "1h", "--json").lines] == uuids[1:]
    assert run("list", "--older", "1h", "--json").out == ""
    assert command("show", uuids[0], "--json").json["owner"] == "somebody"
    assert command("stats", "--json").json["claimed"] == 1
    assert "me" in command("entities").out
    assert "'two'" in command("pause", "two").out
    board.set_limit("two", concurrency=9)
    assert "9" in command("limit", "list").out
    odd = command("doctor", "--json", status=USAGE if refused else FAILED if list(board.examine()) else DONE).lines
    assert {each["place"].split()[0] for each in odd} <= {"characteristic", "jobs"}, "a server of the tests may be fast"
    assert [each["kind"] for each in odd if "kind" in each] == ([] if refused else ["paused"])
    seen = command("top", "--once", "--json").json
    assert seen["counts"] == {"unclaimed": 2, "scheduled": 0, "claimed": 1, "trashed": 0, "on_board": 3}
    assert seen["by_name"] == [
        {"label": n, "name": n, "waiting": n != "one", "scheduled": 0, "running": n == "one"}
        for n in ("one", "three", "two")
    ]
    assert datetime.datetime.fromisoformat(seen["time"]).utcoffset() == datetime.timedelta(0)
    assert seen["oldest_waiting"]["uuid"] == uuids[1]
    assert [(each["uuid"], each["owner"]) for each in seen["running"]] == [(uuids[0], "somebody")]
    assert [each["name"] for each in seen["entities"]] == ["me"]
    assert set(seen["change_per_second"]) == set(seen["counts"])
    assert seen["paused"] == {"everything": False, "names": ["two"]}
    assert [(each["name"], each["concurrency"]) for each in seen["limits"]] == [("two", 9)]
    command("resume")
    ran.add("watch")
    with posting(board):
        run.until(lambda out: "POSTED" in out and "posted[/]" in out, "watch")
    assert "was taken from 'somebody'" in command("release", uuids[0]).out
    assert claimed.state == "UNCLAIMED"
    command("cancel", *uuids[:2], "--reason", "why not")
    assert [each["uuid"] for each in command("trash", "list", "--json").lines] == uuids[1::-1]
    run("trash", "restore", uuids[0])
    run("trash", "purge", "--all")
    command("work", f"handlers_{backend}:anything", "--max-jobs", "2")
    assert board.job_count == 0
    assert command("done", "list", "--json").out == command("schedule", "list", "--json").out == ""
    # Both have tests of their own: move needs two boards, and web has no end.
    assert set(COMMANDS) - ran <= {"move", "web"}


# Empty and absent boards


@pytest.fixture
def pictures(board: Any, make_board: Any) -> Any:
    """A board with a job, beside the one that the commands are about."""
    made = make_board("pictures")
    made.post("resize")
    return made


@pytest.mark.rule("Commands name the board, and its siblings where it is empty.")
@STORED
def test_an_empty_board_names_its_siblings(
    board: Any, pictures: Any, run: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking = (
        "stats",
        "list",
        "list --state CLAIMED",
        "entities",
        "top --once",
        "trash list",
        "done list",
        "pause",
        "resume",
    )
    for command in looking:
        ran = run(*command.split())
        assert f"board {board.name!r}" in ran.out + ran.err
        assert f"{pictures.name!r} (see --name)" in ran.out + ran.err, command
        ran = run(*command.split(), "--name", pictures.name)
        assert f"{board.name!r}" not in ran.out + ran.err
    monkeypatch.setattr(Watcher, "reported", lambda _: iter(()))
    monkeypatch.setattr(Watcher, "compared", lambda _: iter(()))
    assert pictures.name in run("watch").err
    assert pictures.name not in run("watch", "--name", pictures.name).err
    monkeypatch.setattr(Conductor, "run", lambda *_, **__: None)
    assert pictures.name in run("work", "os:getpid").err
    assert pictures.name not in run("work", "os:getpid", "--name", pictures.name).err
    for command in (*looking, "watch"):
        ran = run(*command.split(), "--json")
        assert pictures.name not in ran.out + ran.err, command
    assert run("list", "--json").out == ""
    assert run("stats", "--json").json["board"] == board.name
    board.post("a")
    for command in looking:
        ran = run(*command.split())
        assert pictures.name not in ran.out + ran.err


@STORED
def test_a_board_with_trash_or_workers_is_not_empty(board: Any, pictures: Any, run: Commands) -> None:
    worker = jobboard.Entity("conductor", "me")
    board.register_entity(worker)
    for _ in range(2):
        ran = run("top", "--once")
        assert "empty" not in ran.out + ran.err
        assert "empty" not in run("stats").out
        board.deregister_entity(worker)
        board.cancel(board.post("a"))
    board.purge_trash(0)
    assert "is empty" in run("top", "--once").err


@pytest.mark.rule("Commands name the board, and its siblings where it is empty.")
@STORED
def test_a_board_of_a_mistyped_name_is_reported(
    pictures: Any, conf_of: Any, run: Commands, capsys: pytest.CaptureFixture[str]
) -> None:
    """A store that makes something for each board reports that nothing was made. Other stores report an empty board."""
    here, there = os.environ["JOBBOARD_URL"], conf_of("sqlite")["board"]
    ran = run("move", here, there, "--name", "pictuers", status=FAILED)
    assert ran.out == ""
    assert ran.is_one_line_about("'pictuers'", f"{pictures.name!r}")
    assert main(["stats", "--name", "pictuers"]) in (DONE, FAILED)
    both = "".join(capsys.readouterr())
    assert "'pictuers'" in both
    assert f"{pictures.name!r}" in both
    assert main(["doctor", "--name", "pictuers"]) in (DONE, FAILED)
    assert f"{pictures.name!r}" in capsys.readouterr().err
    # A board that has been emptied may be moved again, to finish a move.
    assert "1 moved" in run("move", here, there, "--name", pictures.name).out
    assert "nothing to move" in run("move", here, there, "--name", pictures.name).out


# Refusals: the backend answers, and the status is 1


def refused(run: Commands, uri: str, *words: str, command: str = "setup") -> None:
    ran = run("--board", uri, command, status=FAILED)
    assert ran.is_one_line_about(*words), ran.err


def as_uri(url: sa.URL) -> str:
    return url.render_as_string(hide_password=False)


@pytest.mark.rule("A backend that refuses is told apart from a backend that is away.")
@pytest.mark.backends("postgresql", "mariadb")
def test_a_database_or_user_that_does_not_exist_is_a_refusal(
    backend: str, server_uris: dict[str, str], database_uri: Any, run: Commands
) -> None:
    server = sa.make_url(server_uris[backend])
    refused(run, as_uri(server.set(database="nope")), "nope")
    refused(run, as_uri(server.set(username="mallory", password="sesame")))
    uri = sa.make_url(database_uri(backend))
    engine = sa.create_engine(uri.set(drivername=DRIVERS[backend]))
    with engine.begin() as connection:
        for statement in {
            "postgresql": ("CREATE ROLE {} LOGIN",),
            "mariadb": ("CREATE USER {}@'%%'", "GRANT SELECT ON {database}.* TO {}@'%%'"),
        }[backend]:
            connection.exec_driver_sql(statement.format(f"guest_{uri.database}", database=uri.database))
    engine.dispose()
    # A user who may not create tables.
    refused(run, f"{as_uri(uri.set(username=f'guest_{uri.database}'))}?table=guests", "denied")


@pytest.mark.rule("A backend that refuses is told apart from a backend that is away.")
@pytest.mark.backends("postgresql")
def test_a_wrong_password_is_a_refusal(private_server: Any, run: Commands) -> None:
    server = private_server("postgresql")
    rules = server.folder / "data" / "pg_hba.conf"
    rules.write_text("host all anna all scram-sha-256\nhost all all all trust\n")
    server.restart()
    engine = sa.create_engine(sa.make_url(server.uri).set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE ROLE anna LOGIN PASSWORD 'open'")
    engine.dispose()
    for password in ("sesame", None):
        refused(run, as_uri(sa.make_url(server.uri).set(username="anna", password=password)), "password")


@pytest.mark.rule("A backend that refuses is told apart from a backend that is away.")
@pytest.mark.backends("redis")
def test_redis_refuses_users_and_databases(private_server: Any, server_uris: dict[str, str], run: Commands) -> None:
    shared = sa.make_url(server_uris["redis"])
    refused(run, as_uri(shared.set(username="mallory", password="sesame")))
    refused(run, as_uri(shared.set(database="99999")), "DB index")
    server = private_server("redis")
    with redis.Redis.from_url(server.uri) as client:
        client.config_set("requirepass", "open")
    refused(run, server.uri, "Authentication required")
    refused(run, server.uri.replace("//", "//:sesame@"), "refuses the user or the password", "password")


@pytest.mark.backends("postgresql")
def test_a_uri_without_a_server_names_the_drivers_default(run: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGHOST", raising=False)
    monkeypatch.setenv("PGPORT", "1")
    ran = run("--board", "postgresql://?retry_for=0", "stats", status=UNREACHABLE)
    assert "can't connect to postgresql at the place that is the driver's default: " in ran.err


@pytest.mark.backends("sqlite")
def test_a_file_that_cannot_be_opened_is_a_refusal(tmp_path: Path, run: Commands) -> None:
    (tmp_path / "text").write_text("no database\n" * 100)
    refused(run, f"sqlite:///{tmp_path}/no/such.db", f"there is no folder {tmp_path}/no")
    refused(run, f"sqlite:///{tmp_path}", "it is a folder")
    refused(run, f"sqlite:///{tmp_path}/text", "not a database")
    refused(run, f"sqlite:///{tmp_path}/text", "not a database", command="stats")
    for uri, option in (
        ("zookeeper://127.0.0.1:1?use_ssl=true", "ca"),
        ("rediss://127.0.0.1:1", "ssl_ca_certs"),
        (f"rediss://127.0.0.1:1?ssl_keyfile={tmp_path}/text", "ssl_certfile"),
        ("mariadb://app@127.0.0.1:1/db", "ssl_ca"),
        (f"mysql://app@127.0.0.1:1/db?ssl_cert={tmp_path}/text", "ssl_key"),
    ):
        for command in ("setup", "stats"):
            given = f"{uri}{'&' if '?' in uri else '?'}{option}=/no/such"
            refused(run, given, f"option {option}: there is no file '/no/such'", command=command)


@pytest.mark.backends("sqlite", "postgresql", "mariadb")
def test_a_table_of_another_program_stays_as_it_is(backend: str, conf_of: Any, run: Commands) -> None:
    conf = conf_of(backend)
    uri, table = conf["board"], conf.get("table", "jobboard")
    engine = sa.create_engine(sa.make_url(uri).set(drivername=DRIVERS[backend]))
    mine = sa.Table(table, sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("note", sa.Text))
    mine.create(engine)
    before = sa.inspect(engine).get_table_names()
    for command in (["setup"], ["post", "a"]):
        ran = run("--board", f"{uri}?table={table}", *command, status=FAILED)
        assert f"table {table!r}" in ran.err
        assert "table=" in ran.err
    assert sa.inspect(engine).get_table_names() == before
    engine.dispose()


@pytest.mark.rule("A full disk is reported as a refusal of SQLite.")
@pytest.mark.backends("sqlite")
def test_a_full_disk_is_a_refusal(tmp_path: Path) -> None:
    """A later try does not help before somebody has made room."""
    url = sa.make_url(f"sqlite:///{tmp_path}/jobs.db")
    with contextlib.closing(sqlite3.connect(str(url.database))) as connection:
        connection.execute("PRAGMA max_page_count = 1")
        with pytest.raises(sqlite3.OperationalError) as caught:
            connection.execute("CREATE TABLE jobs (id INTEGER)")
    assert database(url.get_dialect()()).refusal(caught.value, url) == "database or disk is full"


@pytest.mark.rule("show names the key, the znode or the row of a job on the server.")
@STORED
def test_show_names_the_place_of_a_job(board: Any, run: Commands, backend: str, server_uris: dict[str, str]) -> None:
    job = board.post("one")
    place = run("show", job.uuid, "--json").json["place"]
    assert f"place: {place}\n" in run("show", job.uuid).out
    # An operator finds the record there.
    match backend:
        case "redis":
            key, field = place.split(", field ")
            with redis.Redis.from_url(server_uris["redis"]) as client:
                assert client.hexists(key, field.strip('"'))
        case "zookeeper":
            client = KazooClient(hosts=server_uris["zookeeper"].removeprefix("zookeeper://"))
            client.start()
            assert client.exists(place)
            client.stop()
            client.close()
        case "etcd":
            key = b64encode(place.removeprefix("the key ").encode()).decode()
            address = server_uris["etcd"].replace("etcd://", "http://")
            with urllib.request.urlopen(f"{address}/v3/kv/range", json.dumps({"key": key}).encode()) as reply:
                assert json.load(reply)["count"] == "1"
        case _:
            table, uuid = re.fullmatch(r"table (\S+), row with uuid (\S+)", place).groups()
            assert (table, uuid) == (board.table.name, job.uuid)


def test_show_names_no_place_of_a_consumed_job(make_board: Any, board: Any, run: Commands) -> None:
    job = board.post("one")
    keeping = make_board(keep_done=600)
    keeping.consume(keeping.claim_next("me"), "me")
    assert "place" not in run("show", job.uuid, "--json").json
