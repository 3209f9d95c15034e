"""Configurations: names, URIs and dicts; what is wrong with them is said, and a secret never is."""

from collections.abc import Callable
from typing import Any

import pytest
import redis.asyncio
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

import jobboard
from jobboard import conf
from jobboard.conductor import Conductor
from jobboard.conf import Option
from jobboard.exceptions import NotFound
from jobboard.outcomes import RetryPolicy
from jobboard.taskloop import TaskLoop

OPTIONS = {
    "host": Option(conf.text, "localhost"),
    "port": Option(conf.port, 1234),
    "user": Option(conf.text),
    "password": Option(conf.text, secret=True),
    "database": Option(conf.text),
    "claim_ttl": Option(conf.seconds(0.1, 100), 30.0),
    "durable": Option(conf.flag, True),
    "mode": Option(conf.choice("one", "many"), "one"),
    "token": Option(conf.text, secret=True),
}
PARTS = {"user": "user", "password": "password", "host": "host", "port": "port", "path": "database"}
SECRET = "p@ss/w%rd:?#"
QUOTED = "p%40ss%2Fw%25rd%3A%3F%23"


def parse(given: object) -> conf.Settings:
    return conf.parse(given, OPTIONS, PARTS)


def test_every_part_of_a_uri_counts() -> None:
    settings = parse(f"mine+fast://us%40er:{QUOTED}@db.example:99/prod%2F1?claim_ttl=2.5&durable=no&mode=MANY")
    assert (settings.scheme, settings.driver) == ("mine", "fast")
    assert dict(settings) == {
        "host": "db.example",
        "port": 99,
        "user": "us@er",
        "password": SECRET,
        "database": "prod/1",
        "claim_ttl": 2.5,
        "durable": False,
        "mode": "many",
        "token": None,
    }
    assert len(settings) == len(OPTIONS)


def test_a_name_with_options() -> None:
    assert parse("mine?claim-ttl=5&mode=many")["claim_ttl"] == 5
    assert parse({"board": "mine?claim_ttl=5", "claim_ttl": 6})["claim_ttl"] == 6


@pytest.mark.parametrize("given", ["mine", "MINE", {"board": "mine"}, "mine://", {"board": " mine "}])
def test_a_plain_name(given: object) -> None:
    settings = parse(given)
    assert settings.scheme == "mine"
    assert settings.driver is None
    assert dict(settings) == {name: option.default for name, option in OPTIONS.items()}


def test_options_beside_a_uri_go_first() -> None:
    settings = parse({"board": "mine://h:1/d?claim_ttl=2", "claim_ttl": 3, "host": "other", "mode": None})
    assert (settings["claim_ttl"], settings["host"], settings["port"], settings["mode"]) == (3.0, "other", 1, "one")


def test_an_option_that_is_none_is_not_given() -> None:
    settings = parse({"board": "mine://h:1/d?claim_ttl=2", "port": None, "claim_ttl": None})
    assert (settings["port"], settings["claim_ttl"]) == (1, 2.0)


def test_a_uri_may_say_the_same_twice() -> None:
    settings = parse("mine://u:p@h:1/d?user=u&password=p&host=h&port=1&database=d")
    assert (settings["user"], settings["password"], settings["port"]) == ("u", "p", 1)


@pytest.mark.parametrize(
    ("uri", "host", "port"),
    [
        ("mine://[::1]:5432/d", "::1", 5432),
        ("mine://[fe80::1%25eth0]/d", "fe80::1%eth0", 1234),
        ("mine://u:p@[2001:db8::7]:1/d", "2001:db8::7", 1),
        ("mine://h1:2181,h2:2182,[::1]:2183/d", "h1:2181,h2:2182,[::1]:2183", 1234),
        ("mine://u@h1,h2/d", "h1,h2", 1234),
        ("mine://h:/d", "h", 1234),
        ("mine:///d", "localhost", 1234),
        ("mine://%2Frun%2Fdb.sock/d", "/run/db.sock", 1234),
    ],
)
def test_hosts(uri: str, host: str, port: int) -> None:
    settings = parse(uri)
    assert (settings["host"], settings["port"]) == (host, port)


@pytest.mark.parametrize(
    ("given", "kind", "match"),
    [
        (
            {"board": "mine", "claim_tll": 1},
            ValueError,
            "a mine board has no option 'claim_tll'; did you mean 'claim_ttl'",
        ),
        ("mine://h/d?durrable=1", ValueError, "'durrable'; did you mean 'durable'"),
        ({"board": "mine", "zzz": 1}, ValueError, "'zzz'; see the page 'Options'"),
        ({"board": "mine", "ttl": 1}, ValueError, r"'ttl'; did you mean 'claim_ttl'\?"),
        ("mine?claim-ttl=0", ValueError, "claim_ttl='0': must be from 0.1"),
        ("mine://h/d?mode=one&mode=many", ValueError, "'mode' is given twice"),
        (
            "mine://h/d?database=e",
            ValueError,
            "path and the option database in its query differ: 'd' and 'e'; leave one",
        ),
        ("mine://me@h?user=you", ValueError, "user and the option user in its query differ: 'me' and 'you'; leave one"),
        ("mine://h?host=", ValueError, "host and the option host in its query differ: 'h' and ''; leave one"),
        ({"board": "mine://h:1?port=2", "port": 1}, ValueError, "differ: '1' and '2'; leave one"),
        ("mine://h:99999/d", ValueError, "port='99999': must be from 1 to 65535"),
        ("mine://h:0/d", ValueError, "port"),
        ("mine://h:-1/d", ValueError, "port"),
        ("mine://h:abc/d", ValueError, "port is a whole number"),
        ("mine://h/d?zzz=1", ValueError, "no option 'zzz'; see the page 'Options'"),
        ("mine://h/d?password=a&zzz=1", ValueError, "no option like one in the URI .*; see the page 'Options'"),
        ({"board": "mine", "port": "x"}, ValueError, "port"),
        ({"board": "mine", "port": True}, TypeError, "port"),
        ({"board": "mine", "port": 1.5}, TypeError, "port"),
        ({"board": "mine", "host": 5}, TypeError, "host"),
        ({"board": "mine", "claim_ttl": "nan"}, ValueError, "claim_ttl"),
        ({"board": "mine", "claim_ttl": 0.05}, ValueError, "from 0.1 to 100 seconds"),
        ({"board": "mine", "claim_ttl": True}, TypeError, "claim_ttl"),
        ({"board": "mine", "claim_ttl": []}, TypeError, "claim_ttl"),
        ({"board": "mine", "durable": "perhaps"}, ValueError, "true or false"),
        ({"board": "mine", "durable": 5}, ValueError, "true or false"),
        ({"board": "mine", "mode": "few"}, ValueError, "one of one, many"),
        ("mine://[::1/d", ValueError, "brackets"),
        ("mine://[::1]x/d", ValueError, "brackets|host"),
        ({}, ValueError, "no 'board'"),
        ({"board": 5}, ValueError, "no 'board'"),
        ({"board": "mine", 5: 5}, TypeError, "option names must be str"),
        (None, TypeError, "not NoneType"),
        (b"mine", TypeError, "not bytes"),
        (["mine"], TypeError, "not list"),
    ],
)
def test_what_is_wrong_is_said(given: object, kind: type[Exception], match: str) -> None:
    with pytest.raises(kind, match=match):
        parse(given)


@pytest.mark.parametrize("part", ["mine://user@", "mine://:secret@", "mine://host", "mine://:99", "mine:///path"])
def test_a_part_that_a_backend_does_not_take_is_refused(part: str) -> None:
    with pytest.raises(ValueError, match=r"takes no (user|password|host|port|path)") as failure:
        conf.parse(part, OPTIONS, {})
    assert "secret" not in str(failure.value)


@pytest.mark.parametrize(
    "given",
    [
        f"mine://user:{QUOTED}@h:1/d",
        {"board": "mine", "password": SECRET, "token": SECRET},
        f"mine://user:{QUOTED}@h/d?token={QUOTED}",
    ],
)
def test_secrets_are_never_shown(given: object) -> None:
    settings = parse(given)
    assert settings["password"] == SECRET
    for shown in (repr(settings), str(settings), f"{settings}", settings.location):
        assert SECRET not in shown
        assert QUOTED not in shown
        assert "ss/w" not in shown


@pytest.mark.parametrize(
    "uri",
    [
        "mine://user:sesame@h:abc/d",
        "mine://user:sesame.h:1/d",
        "mine://user:sesame.h1:1,h2:2/d",
        "mine://user:@h1:sesame,h2/d",
        "mine://user:sesame@h/d?nonsense=1",
        "mine://user:sesame@h/d?claim_ttl=x",
        "mine://user:sesame@[::1/d",
        "mine://user:pw/sesame@h:1/d",
        "mine://user:pw?sesame@h:1/d",
        "mine://user:pw/sesame@h/d?claim_ttl=x",
        "mine://h/d?token=sesame&claim_ttl=x",
        "mine://user:sesame@h/d?password=open",
        "mine://user:open@h/d?password=sesame",
        "mine://h/d?host=u:sesame@other",
        {"board": "mine", "password": ["sesame"]},
        {"board": "mine", "host": "u:sesame@h"},
    ],
)
def test_no_error_repeats_a_secret(uri: object) -> None:
    with pytest.raises((ValueError, TypeError)) as failure:
        parse(uri)
    assert "sesame" not in str(failure.value)
    assert failure.value.__cause__ is None
    assert failure.value.__suppress_context__ or failure.value.__context__ is None


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("mine", "mine"),
        ({"board": "mine", "password": "x"}, "mine"),
        ("mine+fast://us%40er:x@h:1/d%2Fe?token=x", "mine://us%40er@h:1/d/e"),
        ("mine://[::1]:5/d", "mine://[::1]:5/d"),
        ("mine://h1:1,h2:2/d", "mine://h1:1,h2:2/d"),
        ("mine://h?port=7&token=x", "mine://h:7/"),
        ({"board": "mine", "host": "h", "port": 7, "password": "x", "token": "x"}, "mine://h:7/"),
        ({"board": "mine", "host": "::1", "database": "/d"}, "mine://[::1]//d"),
        ({"board": "mine", "host": "h1:1,[::1]", "user": "u@"}, "mine://u%40@h1:1,[::1]/"),
        ({"board": "mine://h:1/d", "host": "other", "port": None}, "mine://other:1/d"),
    ],
)
def test_location_holds_no_secret(given: object, shown: str) -> None:
    assert parse(given).location == shown


@pytest.mark.parametrize(
    ("scheme", "option", "highest"),
    [
        *(("memory", *each) for each in [("claim_ttl", 86400), ("retry_for", 3600), ("max_details", 2**30)]),
        *[("memory", "keep_done", "1e\\+09"), ("redis", "port", 65535), ("redis", "socket_timeout", 3600)],
        *[("zookeeper", "claim_ttl", ""), ("etcd", "timeout", 3600), ("postgresql", "connect_timeout", 3600)],
    ],
)
def test_a_number_without_measure(scheme: str, option: str, highest: object) -> None:
    for number, shown in ((10**400, "10{99}…"), ("9" * 400, "'9{99}…")):
        with pytest.raises(ValueError, match=f"^option {option}={shown}.*: must be .*{highest}") as failure:
            jobboard.fetch("board", {"board": scheme, option: number})
        assert len(str(failure.value)) < 200


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("delay", lambda board, number: board.post("a", delay=number)),
        ("key_for", lambda board, number: board.post("a", key="k", key_for=number)),
        ("expiry", lambda board, number: board.claim_next("anna", expiry=number)),
        ("expiry", lambda board, number: board.extend(next(board.iterjobs()), "anna", number)),
        ("every", lambda board, number: board.schedule("s", every=number, name="a")),
        ("older_than", lambda board, number: board.purge_trash(number)),
        ("the seconds of rate", lambda board, number: board.set_limit("a", rate=(1, number))),
        ("the claims of rate", lambda board, number: board.set_limit("a", rate=(int(number), 1))),
        ("concurrency", lambda board, number: board.set_limit("a", concurrency=int(number))),
        ("max_attempts", lambda board, number: board.post("a", max_attempts=int(number))),
        ("max_attempts", lambda board, number: RetryPolicy(max_attempts=int(number))),
        ("max_retries", lambda board, number: RetryPolicy(max_retries=int(number))),
        ("limit", lambda board, number: board.claim_many("anna", int(number))),
        ("max_simultaneous_jobs", lambda board, number: Conductor("a", board, max_simultaneous_jobs=int(number))),
        ("limit", lambda board, number: TaskLoop(sa.create_engine("sqlite:///loop.db"), "loop").get(int(number))),
        (r"details\['n'\]", lambda board, number: board.post("a", details={"n": int(number)})),
        ("", lambda board, number: board.post("a", priority=int(number))),
    ],
)
def test_a_span_without_measure(argument: str, call: Callable[[Any, float], object]) -> None:
    with jobboard.backend("spans", "memory") as board:
        job = board.post("a")
        board.claim(job, "anna")
        for number in (10**400, 1e308):
            with pytest.raises(ValueError, match=f"^{argument}") as failure:
                call(board, number)
            assert len(str(failure.value)) < 300
        board.consume(job, "anna")


@pytest.mark.parametrize(
    ("uri", "match"),
    [
        ("redis://h/3?db=4", "path and the option db in its query differ: '3' and '4'; leave one of them out"),
        ("redis://me@h?username=you", "user and the option username in its query differ: 'me' and 'you'"),
        ("rediss://:one@h?password=two", "password and the option password in its query differ; leave"),
        ("redis://h:1?port=2", "port and the option port in its query differ: '1' and '2'"),
        ("sqlite:///a.db?database=b.db", "path and the option database in its query differ: 'a.db' and 'b.db'"),
        ("postgresql://h/d?host=other", "host and the option host in its query differ: 'h' and 'other'"),
        ("mariadb://me@h/d?user=you", "user and the option user in its query differ: 'me' and 'you'"),
        ("mariadb://h/d?unix_socket=/s", "unix_socket: it takes the place of host and port"),
        ("mysql://localhost:3306/d?unix_socket=/s", "unix_socket: it takes the place of host and port"),
        ("zookeeper://h1,h2/a?chroot=b", "path and the option chroot in its query differ: 'a' and 'b'"),
        ("zookeeper://h1:1,h2?hosts=h3", "host and the option hosts in its query differ; leave"),
    ],
)
def test_no_backend_takes_one_of_two(uri: str, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        jobboard.fetch("board", uri)


@pytest.mark.parametrize(
    ("uri", "match"),
    [
        ("postgresql+pg8000://h/d?sslmode=verify-full", "sslmode: is known of psycopg alone; for pg8000 .* client="),
        ("mysql+mysqldb://h/d?ssl_ca=/ca.pem", "ssl_ca: is known of pymysql alone; for mysqldb .* client="),
        ("mariadb+mysqldb:///d?unix_socket=/s", "unix_socket: is known of pymysql alone"),
    ],
)
def test_what_a_driver_does_not_know_is_not_dropped(uri: str, match: str) -> None:
    """An encryption that was asked for, say."""
    with pytest.raises(ValueError, match=match):
        jobboard.fetch("board", uri)


@pytest.mark.parametrize(
    ("uri", "driver"),
    [
        ("sqlite+aiosqlite:///a.db", "sqlite://"),
        ("postgresql+asyncpg://app:sesame@h/d?sslmode=require", r"postgresql\+psycopg://"),
        ("postgresql+psycopg_async://app:sesame@h/d", r"postgresql\+psycopg://"),
        ("mysql+aiomysql://app:sesame@h/d", r"mysql\+pymysql://"),
        ("mariadb+asyncmy://app:sesame@h/d", r"mariadb\+pymysql://"),
    ],
)
def test_an_async_driver_is_no_outage(uri: str, driver: str) -> None:
    with pytest.raises(ValueError, match=f"is an async driver.*{driver}.*jobboard.aio") as failure:
        jobboard.fetch("board", uri)
    assert "sesame" not in str(failure.value)


def test_an_async_client_is_refused() -> None:
    asynchronous = create_async_engine("postgresql+psycopg_async://h/d")
    for client, hint in (
        (asynchronous, "not AsyncEngine"),
        (asynchronous.sync_engine, "psycopg is an async driver"),
        (redis.asyncio.Redis(), "not redis.asyncio.client.Redis"),
        (redis.asyncio.RedisCluster("h"), "not redis.asyncio.cluster.RedisCluster"),
    ):
        scheme = "redis" if "redis" in hint else "postgresql"
        with pytest.raises((TypeError, ValueError), match=f"{hint}.*jobboard.aio, too.*sync"):
            jobboard.fetch("board", scheme, client=client)
    for bind in (asynchronous, asynchronous.sync_engine, asynchronous.connect()):
        with pytest.raises((TypeError, ValueError), match=r"async.*sync"):
            TaskLoop(bind, "loop")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "uri",
    [
        "postgres://u:p@h/d?sslmode=require&channel_binding=require&application_name=app&options=-c%20geqo%3Doff",
        "postgresql://h1:5432,h2,[::1]:5/d?target_session_attrs=read-write&keepalives=1&keepalives_idle=5",
        "postgresql:///?service=mine",
        "postgres://h/d?ssl=true",
        "mysql://u:p@h/d?ssl-mode=REQUIRED&charset=utf8mb4",
        "mariadb://h/d?ssl_mode=VERIFY_IDENTITY&ssl_ca=ca.pem",
        "unix:///run/redis.sock?db=2",
        "unix://u:p@/run/redis.sock",
        "rediss://h/0?ssl_cert_reqs=CERT_NONE",
        "etcd://h?use_ssl=true&ca=ca.pem",
        "memory?keep_done=60",
    ],
)
def test_a_uri_as_others_have_it(uri: str) -> None:
    jobboard.fetch("board", uri)


@pytest.mark.parametrize(
    ("uri", "match"),
    [
        ("mysql://h/d?charset=latin1", "charset='latin1': must be one of utf8mb4"),
        ("mysql://h/d?ssl-mode=on", "must be one of disabled, preferred, required"),
        ("mysql://h/d?ssl_mode=VERIFY_CA", "set ssl_ca"),
        ("mysql://h/d?ssl_mode=DISABLED&ssl_ca=ca.pem", "leave out ssl_ca"),
        ("mysql://h/d?sslmode=require", "no option 'sslmode'; did you mean 'ssl_mode'"),
        ("etcd+ftp://h", r"takes no driver, as in etcd\+ftp"),
        ("unix://run/redis.sock", "takes no host"),
    ],
)
def test_the_way_out_of_an_option(uri: str, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        jobboard.fetch("board", uri)


def test_a_socket_is_on_this_host() -> None:
    jobboard.fetch("board", "mysql://me@localhost/d?unix_socket=/s")


def test_an_unknown_backend_is_not_found() -> None:
    for given in ("nonsense", "nonsense://h/d", {"board": "nonsense"}):
        with pytest.raises(NotFound, match=r"'nonsense'; installed are: .*memory"):
            jobboard.fetch("board", given)


def test_a_boards_repr_keeps_the_secret() -> None:
    parts = {"user": "app", "password": SECRET, "host": "db", "port": 5, "database": "prod"}
    assert " at postgresql://app@db:5/prod," in repr(jobboard.fetch("jobs", {"board": "postgresql", **parts}))
    for uri in (f"postgresql://app:{QUOTED}@db:5/prod", f"mariadb://app:{QUOTED}@db/prod?claim_ttl=5"):
        shown = repr(jobboard.fetch("jobs", uri))
        assert "'jobs'" in shown
        assert "app@db" in shown
        assert SECRET not in shown
        assert QUOTED not in shown
