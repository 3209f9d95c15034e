"""TaskFlow's configurations of its boards, as ours take them, without a server."""

from __future__ import annotations

from typing import Any

import pytest
from taskflow import exceptions
from taskflow.jobs import backends

from jobboard.contrib.taskflow import board as boards
from jobboard.contrib.taskflow.options import MAX_DETAILS, NAME, locate

TLS_OFF = {
    "ssl": "False",
    "ssl_keyfile": None,
    "ssl_certfile": None,
    "ssl_ca_certs": "/ca",
    "ssl_cert_reqs": "required",
}
"""As Octavia's settings have it where nobody has set any."""


def settings(conf: Any, **kwargs: Any) -> Any:
    """Return the settings of our board under TaskFlow's configuration."""
    return backends.fetch("board", conf, **kwargs).jobboard._conf


@pytest.mark.parametrize(
    ("conf", "kind"),
    [
        ("jobboard-sql", boards.SQLTaskFlowBoard),
        ({"board": "jobboard-redis"}, boards.RedisTaskFlowBoard),
        ("jobboard-zookeeper://zk1", boards.ZooKeeperTaskFlowBoard),
        ({"board": "jobboard", "url": "sqlite:///jobs.db"}, boards.TaskFlowBoard),
    ],
)
def test_taskflow_finds_each_board(conf: Any, kind: type) -> None:
    assert type(backends.fetch("board", conf)) is kind


@pytest.mark.parametrize(
    ("conf", "name", "namespace"),
    [
        ({"board": "jobboard-redis"}, "taskflow", b"taskflow"),
        ({"board": "jobboard-redis", "namespace": b"octavia"}, "taskflow", b"octavia"),
        ({"board": "jobboard", "url": "redis://h?namespace=octavia"}, "taskflow", b"octavia"),
        ({"board": "jobboard", "url": "valkey://h", "path": "octavia"}, "taskflow", b"octavia"),
        ({"board": "jobboard-zookeeper"}, "taskflow", "taskflow/jobs"),
        ({"board": "jobboard-zookeeper", "path": "/octavia/jobs"}, "taskflow", "octavia/jobs"),
        ({"board": "jobboard-zookeeper://zk1?path=/octavia/jobs"}, "taskflow", "octavia/jobs"),
        ({"board": "jobboard-sql"}, "taskflow", None),
        ({"board": "jobboard-sql", "path": "/octavia/jobs"}, "/octavia/jobs", None),
        ({"board": "jobboard", "url": "sqlite:///jobs.db?namespace=octavia"}, "octavia", None),
    ],
)
def test_path_or_namespace_names_the_board(conf: Any, name: str, namespace: str | bytes | None) -> None:
    ours = backends.fetch("label", conf).jobboard
    assert (ours.name, ours._conf.get("namespace")) == (name, namespace)


def test_the_configuration_for_redis_is_taken() -> None:
    conf = {
        "board": "jobboard-redis",
        "host": "redis1",
        "port": "6390",
        "db": "2",
        "username": "octavia",
        "password": "p%40ss",
        "encoding": "utf-8",
        "encoding_errors": "strict",
        "retry_on_timeout": "true",
        "health_check_interval": "30",
        "socket_timeout": "7",
        "socket_connect_timeout": 3,
        "sentinel": None,
        "sentinel_fallbacks": [],
        "sentinel_kwargs": {**TLS_OFF, "password": "x"},
        **TLS_OFF,
    }
    made = settings(conf)
    expected = {"host": "redis1", "port": 6390, "db": 2, "username": "octavia", "password": "p%40ss"}
    expected |= {"socket_timeout": 7, "socket_connect_timeout": 3, "sentinel": None, "ssl_ca_certs": None}
    assert {name: made[name] for name in expected} == expected
    made = settings({**conf, "ssl": "True", "sentinel": "mymaster", "sentinel_fallbacks": ["[::1]:26379"]})
    assert (made["ssl"], made["ssl_cert_reqs"], made["ssl_ca_certs"]) == (True, "required", "/ca")
    assert (made["sentinel"], made["sentinel_fallbacks"]) == ("mymaster", ["[::1]:26379"])
    assert made["sentinel_kwargs"] == {"ssl": "False", "password": "x"}


@pytest.mark.rule("The bridge takes a socket of Redis beside host and port.")
def test_a_socket_of_redis_wins_over_host_and_port() -> None:
    made = settings({"board": "jobboard-redis", "host": "redis1", "port": 6390, "unix_socket_path": "/run/redis.sock"})
    assert (made["unix_socket_path"], made["host"], made["port"]) == ("/run/redis.sock", None, None)


def test_the_configuration_for_zookeeper_is_taken() -> None:
    conf = {
        "board": "jobboard-zookeeper",
        "hosts": {"zk2:2182", "zk1:2181"},
        "timeout": "7.5",
        "check_compatible": "True",
        "read_only": True,
        "randomize_hosts": "no",
        "command_retry": {"max_tries": 5},
        "auth_data": [("digest", "a:b")],
        "use_ssl": "False",
        "keyfile": "/key",
        "keyfile_password": "x",
        "certfile": "/cert",
        "verify_certs": False,
    }
    made = settings(conf)
    expected = {"hosts": "zk1:2181,zk2:2182", "claim_ttl": 7.5, "read_only": False, "randomize_hosts": False}
    expected |= {"command_retry": {"max_tries": 5}, "auth_data": [("digest", "a:b")], "keyfile": None, "use_ssl": False}
    assert {name: made[name] for name in expected} == expected
    made = settings({**conf, "use_ssl": True, "hosts": "zk1,zk2:2182/octavia"})
    assert (made["hosts"], made["chroot"]) == ("zk1,zk2:2182", "/octavia")
    assert (made["keyfile"], made["verify_certs"]) == ("/key", False)


@pytest.mark.rule("Options of TaskFlow's boards are taken.")
def test_the_configuration_for_etcd_is_taken() -> None:
    tls = {"protocol": "https", "ca_cert": "/ca", "cert_cert": "/cert", "cert_key": "/key"}
    where = {"host": "etcd1", "port": 2379, "path": "octavia", "timeout": 7.5, "ttl": 30, "api_path": "/v3/"}
    made = locate({"board": "jobboard-etcd", **where, **tls}, "etcd", None)
    expected = {"board": "etcd", "hosts": "etcd1", "port": 2379, "namespace": "octavia", "timeout": 7.5}
    expected |= {"use_ssl": True, "ca": "/ca", "certfile": "/cert", "keyfile": "/key", "max_details": MAX_DETAILS}
    assert made == (NAME, expected, 30)
    made = locate({**where, **tls, "protocol": "http"}, "etcd", None)
    assert made.conf.keys() == expected.keys() - {"use_ssl", "ca", "certfile", "keyfile"}


def test_the_host_and_port_of_a_uri_count() -> None:
    made = settings("jobboard-redis://octavia:p%40ss@10.9.8.7:6390/3?namespace=octavia&retry_on_timeout=yes")
    expected = {"host": "10.9.8.7", "port": 6390, "username": "octavia", "password": "p@ss", "db": 3}
    assert {name: made[name] for name in expected} == expected


def test_a_client_says_where_the_board_is() -> None:
    import redis
    from kazoo.client import KazooClient

    made = settings({"board": "jobboard-redis://localhost:1", "host": "redis1", "db": 2}, client=redis.Redis())
    assert (made["host"], made["db"]) == (None, 0)
    made = settings({"board": "jobboard-zookeeper", "hosts": "zk1", "timeout": 3, "path": "/a"}, client=KazooClient())
    assert (made["hosts"], made["claim_ttl"], made["namespace"]) == (None, 30, "a")


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ("jobboard", "option url is missing"),
        ({"board": "jobboard-redis", "hots": "redis1"}, "no option 'hots'; did you mean 'host'"),
        ({"board": "jobboard-redis", "path": "a", "namespace": "b"}, "options path and namespace"),
        ({"board": "jobboard-sql", "ttl": "soon"}, "option ttl='soon': must be from 0.001"),
    ],
)
def test_a_wrong_configuration_is_refused(conf: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        backends.fetch("board", conf)


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(exceptions.NotFound, match="there is no backend 'oracle'"):
        backends.fetch("board", {"board": "jobboard", "url": "oracle://h"})


def test_a_silent_server_is_a_job_failure() -> None:
    board = backends.fetch("board", {"board": "jobboard-redis://127.0.0.1:1", "retry_for": 0})
    with pytest.raises(exceptions.JobFailure, match="reach"):
        board.connect()
    assert not board.connected
