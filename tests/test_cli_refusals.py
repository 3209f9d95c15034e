"""A backend that answers, and lets nobody in: that is a failure, and not one that can't be reached."""

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import redis
import sqlalchemy as sa

from jobboard.cli import main
from jobboard.sql.dialects import database

FAILED, USAGE, UNREACHABLE = 1, 2, 3


def failed(capsys: pytest.CaptureFixture[str], uri: str, *words: str, command: str = "setup") -> bool:
    """With one line that has all of these words in it."""
    assert main(["--board", uri, command]) == FAILED
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert len(err.splitlines()) == 1
    return all(word in err for word in words)


@pytest.mark.backends("postgresql", "mariadb")
def test_a_database_that_is_not_there(backend: str, server_uris: dict[str, str], capsys: Any) -> None:
    uri = sa.make_url(server_uris[backend]).set(database="nope").render_as_string(hide_password=False)
    assert failed(capsys, uri, "'nope'" if backend == "mariadb" else '"nope"')


@pytest.mark.backends("postgresql", "mariadb", "redis")
def test_a_user_that_is_not_there(backend: str, server_uris: dict[str, str], capsys: Any) -> None:
    uri = sa.make_url(server_uris[backend]).set(username="mallory", password="sesame")
    assert failed(capsys, uri.render_as_string(hide_password=False))


@pytest.mark.backends("postgresql")
def test_a_password_that_is_wrong(private_server: Any, capsys: Any) -> None:
    server = private_server("postgresql")
    rules = server.folder / "data" / "pg_hba.conf"
    rules.write_text("host all anna all scram-sha-256\nhost all all all trust\n")
    server.restart()
    engine = sa.create_engine(sa.make_url(server.uri).set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE ROLE anna LOGIN PASSWORD 'open'")
    engine.dispose()
    for password in ("sesame", None):
        uri = sa.make_url(server.uri).set(username="anna", password=password).render_as_string(hide_password=False)
        assert failed(capsys, uri, "password")


@pytest.mark.backends("postgresql", "mariadb")
def test_a_user_who_may_not(backend: str, database_uri: Any, capsys: Any) -> None:
    """Create tables."""
    uri = sa.make_url(database_uri(backend))
    driver = {"postgresql": "postgresql+psycopg", "mariadb": "mariadb+pymysql"}[backend]
    engine = sa.create_engine(uri.set(drivername=driver))
    with engine.begin() as connection:
        for statement in {
            "postgresql": ("CREATE ROLE {} LOGIN",),
            "mariadb": ("CREATE USER {}@'%%'", "GRANT SELECT ON {database}.* TO {}@'%%'"),
        }[backend]:
            connection.exec_driver_sql(statement.format(f"guest_{uri.database}", database=uri.database))
    engine.dispose()
    guest = uri.set(username=f"guest_{uri.database}").render_as_string(hide_password=False)
    assert failed(capsys, f"{guest}?table=guests", "denied")


@pytest.mark.backends("redis")
def test_a_server_that_asks_for_a_password(private_server: Any, capsys: Any) -> None:
    server = private_server("redis")
    client = redis.Redis.from_url(server.uri)
    client.config_set("requirepass", "open")
    client.close()
    assert failed(capsys, server.uri, "Authentication required")
    assert failed(capsys, server.uri.replace("//", "//:sesame@"), "lets nobody in", "password")


@pytest.mark.backends("postgresql")
def test_a_uri_that_names_no_server(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("PGHOST", raising=False)
    monkeypatch.setenv("PGPORT", "1")
    assert main(["--board", "postgresql://?retry_for=0", "stats"]) == UNREACHABLE
    assert "can't connect to postgresql at the place that is the driver's default: " in capsys.readouterr().err


@pytest.mark.backends("redis")
def test_a_number_without_a_database(server_uris: dict[str, str], capsys: Any) -> None:
    assert failed(capsys, sa.make_url(server_uris["redis"]).set(database="99999").render_as_string(), "DB index")


@pytest.mark.backends("sqlite")
def test_a_file_that_can_not_be_opened(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "text").write_text("no database\n" * 100)
    assert failed(capsys, f"sqlite:///{tmp_path}/no/such.db", f"there is no folder {tmp_path}/no")
    assert failed(capsys, f"sqlite:///{tmp_path}", "it is a folder")
    assert failed(capsys, f"sqlite:///{tmp_path}/text", "not a database")
    assert failed(capsys, f"sqlite:///{tmp_path}/text", "not a database", command="stats")


@pytest.mark.backends("zookeeper")
def test_a_certificate_that_is_not_there(capsys: Any) -> None:
    assert failed(capsys, "zookeeper://127.0.0.1:1?use_ssl=true&ca=/no/such", "/no/such")


@pytest.mark.backends("sqlite", "postgresql", "mariadb")
def test_a_table_of_somebody_elses(backend: str, conf_of: Any, capsys: Any) -> None:
    """It stays as it is, and the way out is said."""
    conf = conf_of(backend)
    uri, table = conf["board"], conf.get("table", "jobboard")
    drivers = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "mariadb": "mariadb+pymysql"}
    engine = sa.create_engine(sa.make_url(uri).set(drivername=drivers[backend]))
    mine = sa.Table(table, sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("note", sa.Text))
    mine.create(engine)
    before = sa.inspect(engine).get_table_names()
    for command in ("setup", "post"):
        assert main(["--board", f"{uri}?table={table}", command, *(["a"] if command == "post" else [])]) == FAILED
        err = capsys.readouterr().err
        assert f"table {table!r}" in err
        assert "table=" in err
    assert sa.inspect(engine).get_table_names() == before
    engine.dispose()


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    """To try again does not help before somebody has made room."""
    url = sa.make_url(f"sqlite:///{tmp_path}/jobs.db")
    with contextlib.closing(sqlite3.connect(str(url.database))) as connection:
        connection.execute("PRAGMA max_page_count = 1")
        with pytest.raises(sqlite3.OperationalError) as caught:
            connection.execute("CREATE TABLE jobs (id INTEGER)")
    assert database(url.get_dialect()()).refusal(caught.value, url) == "database or disk is full"
