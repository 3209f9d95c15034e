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
from jobboard.backends.etcd.options import members
from jobboard.backends.zookeeper.options import make_client
from jobboard.taskloop import TaskLoop

SECRET = "pass/w:rd@%€"

Refused = tuple[Any, str]
"""A configuration, a URI or the options beside ``board``, and the words of its error."""

REFUSED: list[Refused] = [
    # A bad name or value is named.
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
    # An option would have no effect.
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
    # No backend takes one of two.
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
    # A driver lacks an option or is async: no encryption that was asked for is dropped.
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

Taken = tuple[Any, str, dict[str, Any]]
"""A configuration, the place that the board shows, and some of its options. ``members`` are the hosts with ports."""

PROVIDERS = "sslmode=require&channel_binding=require&application_name=app&options=-c%20geqo%3Doff"
SESSION = "target_session_attrs=read-write&keepalives=1&keepalives_idle=5"

TAKEN: list[Taken] = [
    ("memory?keep_done=60", "memory", {"keep_done": 60.0}),
    (f"postgres://u:geheim@h/d?{PROVIDERS}", "postgres://u@h/d", {"sslmode": "require", "options": "-c geqo=off"}),
    (f"postgresql://h1:5432,h2,[::1]:5/d?{SESSION}", "postgresql://h1:5432,h2,[::1]:5/d", {"keepalives_idle": "5"}),
    ("postgresql:///?service=mine", "postgresql", {"service": "mine"}),
    ("postgres://h/d?ssl=true", "postgres://h/d", {"ssl": True}),
    (
        {"board": "postgresql", "user": "app", "host": "db", "port": 5, "database": "prod", "password": SECRET},
        "postgresql://app@db:5/prod",
        {"password": SECRET},
    ),
    ("mysql://u:geheim@h/d?ssl-mode=REQUIRED&charset=utf8mb4", "mysql://u@h/d", {"ssl_mode": "required"}),
    ("mysql://me@localhost/d?unix_socket=/s", "mysql://me@localhost/d", {"unix_socket": "/s"}),
    ("mariadb://h/d?ssl_mode=VERIFY_IDENTITY&ssl_ca=ca.pem", "mariadb://h/d", {"ssl_mode": "verify_identity"}),
    ("unix:///run/redis.sock?db=2", "unix:///run/redis.sock", {"unix_socket_path": "/run/redis.sock", "db": 2}),
    ("rediss://h/0?ssl_cert_reqs=CERT_NONE", "rediss://h/0", {"ssl_cert_reqs": "none"}),
    ({"board": "redis", "host": "h", "port": 7, "db": 3, "password": SECRET}, "redis://h:7/3", {"password": SECRET}),
    ("etcd://h?use_ssl=true&ca=ca.pem", "etcd://h/", {"ca": "ca.pem", "members": [("h", 2379)]}),
    (
        "etcd://anna:geheim@one:1,[::1]:2,three/services/jobs?port=7",
        "etcd://anna@one:1,[::1]:2,three:7/services/jobs",
        {"members": [("one", 1), ("::1", 2), ("three", 7)], "namespace": "services/jobs"},
    ),
    ("zookeeper", "zookeeper", {"members": [("127.0.0.1", 2181)], "chroot": ""}),
    (
        "zookeeper://one:7,two/a/b",
        "zookeeper://one:7,two/a/b",
        {"members": [("one", 7), ("two", 2181)], "chroot": "/a/b"},
    ),
    (
        {"board": "zookeeper", "hosts": ["one:7", "two"], "chroot": "/x/"},
        "zookeeper://one:7,two//x/",
        {"members": [("one", 7), ("two", 2181)], "chroot": "/x"},
    ),
    (
        {"board": "zookeeper", "hosts": {"one": 7, "::1": 8}, "chroot": "x", "user": "anna", "password": SECRET},
        "zookeeper://anna@one:7,[::1]:8/x",
        {"members": [("one", 7), ("::1", 8)], "chroot": "/x"},
    ),
    ("zk://[::1]:7,[::2]", "zk://[::1]:7,[::2]/", {"members": [("::1", 7), ("::2", 2181)]}),
    (
        {"board": "zookeeper", "hosts": "two:8,one", "port": 7},
        "zookeeper://two:8,one:7/",
        {"members": [("two", 8), ("one", 7)]},
    ),
]
MEMBERS: dict[str, Any] = {
    "etcd": members,
    "zookeeper": lambda conf: make_client(conf, None).hosts,
    "zk": lambda conf: make_client(conf, None).hosts,
}


@pytest.mark.rule("URIs of hosting providers work, or the error names the way out.")
@pytest.mark.rule("A host that is none is refused.")
@pytest.mark.rule("Option values that would be dropped are refused.")
@pytest.mark.rule("A URI that names two databases, hosts or users is refused.")
@pytest.mark.rule("A socket contradicts a host or a port.")
@pytest.mark.rule(
    "A Redis user may give a scheme, a socket, a database and a namespace, and a contradiction between them is refused."
)
@pytest.mark.rule("An option that a driver does not take is refused, and never dropped.")
@pytest.mark.rule("An async driver or client is refused at fetch, with the name of the right driver.")
@pytest.mark.parametrize(("conf", "told"), REFUSED)
def test_a_wrong_option_is_refused_by_its_name(conf: Any, told: str) -> None:
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
def test_a_number_beyond_its_bound_is_refused_and_shortened(scheme: str, option: str, highest: object) -> None:
    for number, shown in ((10**400, "10{99}…"), ("9" * 400, "'9{99}…")):
        with pytest.raises(ValueError, match=f"^option {option}={shown}.*: must be .*{highest}") as failure:
            jobboard.fetch("board", {"board": scheme, option: number})
        assert len(str(failure.value)) < 200


@pytest.mark.rule("A socket contradicts a host or a port.")
@pytest.mark.rule("URIs of hosting providers work, or the error names the way out.")
@pytest.mark.rule("A board shows where it is, made from a dict or a URI.")
@pytest.mark.parametrize(("conf", "shown", "values"), TAKEN)
def test_a_configuration_is_taken_and_shown_without_its_password(conf: Any, shown: str, values: dict[str, Any]) -> None:
    board = jobboard.fetch("jobs", conf)
    settings: Any = board._conf
    known = {"members": MEMBERS[settings.scheme](settings)} if "members" in values else {}
    assert {name: known[name] if name in known else settings[name] for name in values} == values
    told = repr(board) + repr(settings)
    assert f"'jobs' at {shown}," in told
    assert "geheim" not in told
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
def test_a_wrong_client_and_an_address_beside_a_client_are_refused(conf: Any, client: Any, told: str) -> None:
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
