"""Options of the backends: a wrong one is refused at fetch by its name, with the way out, and no secret is shown."""

from collections.abc import Callable
from typing import Any

import pytest
import redis
import redis.asyncio
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from sqlalchemy.ext.asyncio import create_async_engine

import jobboard
from jobboard.taskloop import TaskLoop

SECRET = "pass/w:rd@%€"

Refused = tuple[Any, str]
"""A configuration, a URI or the options beside ``board``, and the words of its error."""

VALUES: list[Refused] = [
    ("memory?claim_tll=3", "'claim_tll'; did you mean 'claim_ttl'"),
    ("memory?claim_ttl=soon", "claim_ttl"),
    ("memory?retry_for=-1", "retry_for"),
    ("redis://h?pasword=x", "'pasword'.*did you mean 'password'"),
    ("redis://h/abc", "db"),
    ("redis://h?protocol=4", "protocol"),
    ("redis://h?namespace=", "namespace"),
    ("redis://h1:1,h2:2", "host"),
    ("redis://h1:x,h2:2?cluster=true", "port"),
    ("redis://h?sentinel=", "sentinel=''"),
    ("redis+hiredis://h", "no driver"),
    ("rediss://h?ssl_cert_reqs=perhaps", "ssl_cert_reqs"),
    ({"board": "redis", "sentinel": "s", "sentinel_fallbacks": [("h2", 1), 5]}, "sentinel_fallbacks.*must name hosts"),
    ({"board": "redis", "sentinel": "s", "sentinel_kwargs": {"passwort": SECRET}}, "sentinel_kwargs.*passwort"),
    ("unix://run/redis.sock", "takes no host"),
    ({"board": "zookeeper", "hosts": 7}, "hosts"),
    ({"board": "zookeeper", "hosts": ["one:port"]}, "hosts"),
    ("zookeeper://h?namespace=a/../b", "namespace"),
    ("zookeeper://h?handler=twisted", "handler"),
    ({"board": "zookeeper", "connection_retry": {"max_trys": 1}}, "connection_retry"),
    ({"board": "zookeeper", "default_acl": SECRET}, "default_acl"),
    ({"board": "zookeeper", "auth_data": [SECRET]}, "auth_data"),
    ({"board": "zookeeper", "sasl_options": SECRET}, "sasl_options"),
    ("zk+kazoo://one", "no driver"),
    ("etcd?hosts=one:99999", "from 1 to 65535"),
    ("etcd?hosts=", "must name hosts"),
    ("etcd://https://one:2379", r"leave out https://, as in etcd://one:2379,two:2379\?use_ssl=true"),
    ({"board": "etcd", "hosts": ["http://one:2379"]}, "leave out http://"),
    ("etcd?namespace=a/../b", "must be a path"),
    (r"etcd+ftp://h", r"takes no driver, as in etcd\+ftp"),
    ("mysql://h/d?charset=latin1", "charset='latin1': must be one of utf8mb4"),
    ("mysql://h/d?ssl-mode=on", "must be one of disabled, preferred, required"),
    ("mysql://h/d?sslmode=require", "no option 'sslmode'; did you mean 'ssl_mode'"),
    *((uri, f"{uri.replace('://', ':///')}.*four") for uri in ("sqlite://rel.db", "sql://rel.db")),
]
WITHOUT_EFFECT: list[Refused] = [
    ("redis://h?sentinel_fallbacks=h2:26379", "sentinel_fallbacks.*sentinel"),
    ({"board": "redis", "sentinel_kwargs": {"password": SECRET}}, "sentinel_kwargs"),
    ("redis://h?ssl_ca_certs=/ca", "ssl_ca_certs.*rediss"),
    ("redis://h?ssl_cert_reqs=none", "ssl_cert_reqs"),
    ("zookeeper?ca=/ca", "ca: set use_ssl"),
    ("zookeeper?certfile=/cert&use_ssl=false", "certfile: set use_ssl"),
    ("zookeeper?use_ssl=true&keyfile=/key", "keyfile: set certfile"),
    ({"board": "zookeeper", "use_ssl": True, "certfile": "/c", "keyfile_password": SECRET}, "keyfile_password: set"),
    ("zookeeper://:geheim@one", "password: set user"),
    ("etcd?ca=/ca.pem", "option ca: set use_ssl=true, too"),
    ({"board": "etcd", "password": SECRET}, "option password: set user, too"),
    ("etcd?user=x", "option user: set password, too"),
    ("etcd?use_ssl=true&certfile=/c", "option certfile: set keyfile, too"),
    ("mysql://h/d?ssl_mode=VERIFY_CA", "set ssl_ca"),
]
ONE_OF_TWO: list[Refused] = [
    ("redis://h/3?db=4", "path and the option db in its query differ: '3' and '4'; leave one of them out"),
    ("redis://me@h?username=you", "user and the option username in its query differ: 'me' and 'you'"),
    ("rediss://:one@h?password=two", "password and the option password in its query differ; leave"),
    ("redis://h?cluster=true&sentinel=s", "cluster and sentinel"),
    ("redis://h/1?cluster=true", "db=1"),
    ("redis://h?unix_socket_path=/s", "unix_socket_path"),
    ("rediss?unix_socket_path=/s", "unix_socket_path"),
    ("rediss://h?ssl=false", "ssl"),
    ("sqlite:///a.db?database=b.db", "path and the option database in its query differ: 'a.db' and 'b.db'"),
    ("postgresql://h/d?host=other", "host and the option host in its query differ: 'h' and 'other'"),
    ("mariadb://h/d?unix_socket=/s", "unix_socket: it takes the place of host and port"),
    ("mysql://localhost:3306/d?unix_socket=/s", "unix_socket: it takes the place of host and port"),
    ("mysql://h/d?ssl_mode=DISABLED&ssl_ca=ca.pem", "leave out ssl_ca"),
    ("zookeeper://h1,h2/a?chroot=b", "path and the option chroot in its query differ: 'a' and 'b'"),
    ("zookeeper://h1:1,h2?hosts=h3", "host and the option hosts in its query differ; leave"),
]
DRIVERS: list[Refused] = [
    ("postgresql+pg8000://h/d?sslmode=verify-full", "sslmode: is known of psycopg alone; for pg8000 .* client="),
    ("mysql+mysqldb://h/d?ssl_ca=/ca.pem", "ssl_ca: is known of pymysql alone; for mysqldb .* client="),
    *(
        (f"{uri}://app:geheim@h/d", rf"is an async driver.*{driver}://.*jobboard\.aio")
        for uri, driver in (
            ("postgresql+asyncpg", r"postgresql\+psycopg"),
            ("postgresql+psycopg_async", r"postgresql\+psycopg"),
            ("mysql+aiomysql", r"mysql\+pymysql"),
            ("mariadb+asyncmy", r"mariadb\+pymysql"),
        )
    ),
    ("sqlite+aiosqlite:///a.db", "is an async driver.*sqlite://"),
]


@pytest.mark.rule("URIs of hosting providers work, or the error names the way out.")
@pytest.mark.rule("A host that is none is refused.")
@pytest.mark.parametrize(("conf", "told"), VALUES)
def test_a_bad_value_is_refused_by_the_name_of_its_option(conf: Any, told: str) -> None:
    assert_refused(conf, told)


@pytest.mark.rule("An option that a driver does not take is refused, and never dropped.")
@pytest.mark.rule("Option values that would be dropped are refused.")
@pytest.mark.parametrize(("conf", "told"), WITHOUT_EFFECT)
def test_an_option_without_effect_is_refused(conf: Any, told: str) -> None:
    assert_refused(conf, told)


@pytest.mark.rule("A URI that names two databases, hosts or users is refused.")
@pytest.mark.rule("A socket contradicts a host or a port.")
@pytest.mark.rule(
    "A Redis user may give a scheme, a socket, a database and a namespace, and a contradiction between them is refused."
)
@pytest.mark.parametrize(("conf", "told"), ONE_OF_TWO)
def test_no_backend_takes_one_of_two(conf: Any, told: str) -> None:
    assert_refused(conf, told)


@pytest.mark.rule("An option that a driver does not take is refused, and never dropped.")
@pytest.mark.rule("An async driver or client is refused at fetch, with the name of the right driver.")
@pytest.mark.parametrize(("conf", "told"), DRIVERS)
def test_a_driver_that_lacks_an_option_or_is_async_is_refused(conf: Any, told: str) -> None:
    """An encryption that was asked for is not dropped."""
    assert_refused(conf, told)


@pytest.mark.rule(
    "Details in place of the book, and an option in place of an argument, get an error that names the right call."
)
@pytest.mark.parametrize("fetch", [jobboard.fetch, lambda *args, **given: jobboard.backend(*args, **given).__enter__()])
def test_an_option_in_the_place_of_an_argument(fetch: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"no argument 'claim_ttl': .*URI, as in .*claim_ttl=.*dict, as in"):
        fetch("board", "memory", claim_ttl=3)
    with pytest.raises(TypeError) as failure:
        fetch("board", "postgresql://h/db", password=SECRET)
    assert SECRET not in str(failure.value)


def assert_refused(conf: Any, told: str, client: Any = None) -> None:
    with pytest.raises((TypeError, ValueError), match=told) as failure:
        jobboard.fetch("board", conf, client=client)
    assert SECRET not in str(failure.value)
    assert "geheim" not in str(failure.value)


@pytest.mark.rule("A number without measure is refused by its name, value and bound.")
@pytest.mark.parametrize(
    ("scheme", "option", "highest"),
    [
        ("memory", "claim_ttl", 86400),
        ("memory", "max_details", 2**30),
        ("memory", "keep_done", "1e\\+09"),
        ("redis", "port", 65535),
        ("zookeeper", "claim_ttl", ""),
        ("etcd", "timeout", 3600),
        ("postgresql", "connect_timeout", 3600),
    ],
)
def test_a_number_without_measure(scheme: str, option: str, highest: object) -> None:
    for number, shown in ((10**400, "10{99}…"), ("9" * 400, "'9{99}…")):
        with pytest.raises(ValueError, match=f"^option {option}={shown}.*: must be .*{highest}") as failure:
            jobboard.fetch("board", {"board": scheme, option: number})
        assert len(str(failure.value)) < 200


@pytest.mark.rule("A socket contradicts a host or a port.")
@pytest.mark.rule("URIs of hosting providers work, or the error names the way out.")
@pytest.mark.parametrize(
    "uri",
    [
        "postgres://u:p@h/d?sslmode=require&channel_binding=require&application_name=app&options=-c%20geqo%3Doff",
        "postgresql://h1:5432,h2,[::1]:5/d?target_session_attrs=read-write&keepalives=1&keepalives_idle=5",
        "postgresql:///?service=mine",
        "postgres://h/d?ssl=true",
        "mysql://u:p@h/d?ssl-mode=REQUIRED&charset=utf8mb4",
        "mysql://me@localhost/d?unix_socket=/s",
        "mariadb://h/d?ssl_mode=VERIFY_IDENTITY&ssl_ca=ca.pem",
        "unix:///run/redis.sock?db=2",
        "rediss://h/0?ssl_cert_reqs=CERT_NONE",
        "etcd://h?use_ssl=true&ca=ca.pem",
        "memory?keep_done=60",
    ],
)
def test_a_uri_as_others_have_it(uri: str) -> None:
    jobboard.fetch("board", uri)


@pytest.mark.rule("A board shows where it is, made from a dict or a URI.")
@pytest.mark.parametrize(
    ("conf", "shown"),
    [
        (
            {"board": "postgresql", "user": "app", "host": "db", "port": 5, "database": "prod"},
            "postgresql://app@db:5/prod",
        ),
        ({"board": "redis", "host": "h", "port": 7, "db": 3}, "redis://h:7/3"),
        (
            {"board": "zookeeper", "hosts": {"one": 7, "two": 8}, "chroot": "x", "user": "anna"},
            "zookeeper://anna@one:7,two:8/x",
        ),
    ],
)
def test_repr_shows_where_the_board_is(conf: dict[str, Any], shown: str) -> None:
    told = repr(jobboard.fetch("jobs", {**conf, "password": SECRET}))
    assert f"'jobs' at {shown}," in told
    assert SECRET not in told


# Clients of the caller's


CALLERS: list[tuple[Any, Any, str]] = [
    ("redis", "redis://localhost", r"client .* not builtins\."),
    ("redis", redis.ConnectionPool(), r"client .* not redis\."),
    *(({"board": "redis", option: 3}, redis.Redis(), option) for option in ("port", "db", "protocol")),
    ({"board": "redis", "host": "h"}, redis.Redis(), "host"),
    ({"board": "redis", "password": SECRET}, redis.Redis(), "password"),
    *(({"board": "redis", option: True}, redis.Redis(), option) for option in ("cluster", "ssl")),
    ("zookeeper", object(), "KazooClient"),
    ("zookeeper://elsewhere", KazooClient(), "hosts"),
    ({"board": "zookeeper", "handler": SequentialThreadingHandler()}, KazooClient(), "handler"),
    ({"board": "zookeeper", "auth_data": [("digest", f"anna:{SECRET}")]}, KazooClient(), "auth_data"),
    ("etcd", object(), "makes its own connections; give it hosts"),
]


@pytest.mark.parametrize(("conf", "client", "told"), CALLERS)
def test_what_is_no_client_and_an_address_beside_a_client_are_refused(conf: Any, client: Any, told: str) -> None:
    assert_refused(conf, told, client)


@pytest.mark.rule("An async driver or client is refused at fetch, with the name of the right driver.")
def test_an_async_client_is_refused() -> None:
    asynchronous = create_async_engine("postgresql+psycopg_async://h/d")
    for client, hint in (
        (asynchronous, "not AsyncEngine"),
        (asynchronous.sync_engine, "psycopg is an async driver"),
        (redis.asyncio.Redis(), "not redis.asyncio.client.Redis"),
        (redis.asyncio.RedisCluster("h"), "not redis.asyncio.cluster.RedisCluster"),
    ):
        scheme = "redis" if "redis" in hint else "postgresql"
        assert_refused(scheme, f"{hint}.*jobboard.aio, too.*sync", client)
    for bind in (asynchronous, asynchronous.sync_engine, asynchronous.connect()):
        with pytest.raises((TypeError, ValueError), match=r"async.*sync"):
            TaskLoop(bind, "loop")  # type: ignore[arg-type]
