"""The server that a configuration means, and the redis-py client for it."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.retry import Retry
from redis.sentinel import Sentinel

from jobboard.conf import Option, Settings, choice, flag, integer, mapping, port, seconds, text


def _namespace(value: Any) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    if not isinstance(raw, bytes):
        raise TypeError(f"must be str or bytes, not {type(value).__name__}")
    if not raw:
        raise ValueError("must not be empty")
    return raw


def _hosts(value: Any) -> list[str]:
    """``h1:p1,h2:p2``, or a list of such or of (host, port)."""
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, Sequence):
        raise TypeError(f"must be a str or a list, not {type(value).__name__}")
    try:
        return [item.strip() if isinstance(item, str) else f"{item[0]}:{item[1]}" for item in given]
    except (TypeError, IndexError):
        raise TypeError("must name hosts, as in 'h1:26379' or ('h1', 26379)") from None


def _cert_reqs(value: Any) -> str:
    """Also as Python's ssl has it: CERT_NONE."""
    named = value.lower().removeprefix("cert_") if isinstance(value, str) else value
    return choice("none", "optional", "required")(named)


def _socket_path(value: Any) -> str:
    """An absolute path, of whose slashes a URI has taken the first."""
    return "/" + text(value).lstrip("/")


URI_PARTS: Mapping[str, str] = {
    "user": "username",
    "password": "password",
    "host": "host",
    "port": "port",
    "path": "db",
}

_TLS: Mapping[str, Option] = {
    "ssl_keyfile": Option(text, None, "TLS: the client's key"),
    "ssl_certfile": Option(text, None, "TLS: the client's certificate"),
    "ssl_password": Option(text, None, "TLS: the password of the client's key", secret=True),
    "ssl_cert_reqs": Option(_cert_reqs, None, "TLS: whether the server must prove itself"),
    "ssl_ca_certs": Option(text, None, "TLS: a file with the authority's certificate"),
    "ssl_ca_path": Option(text, None, "TLS: a folder with the authorities' certificates"),
    "ssl_ca_data": Option(text, None, "TLS: the authority's certificate itself, in PEM"),
    "ssl_check_hostname": Option(flag, None, "TLS: whether the certificate must be of this host"),
    "ssl_ciphers": Option(text, None, "TLS: the ciphers to offer, as OpenSSL names them"),
    "ssl_min_version": Option(choice("1.2", "1.3"), None, "TLS: the oldest version to take"),
}

OPTIONS: Mapping[str, Option] = {
    "namespace": Option(_namespace, b"jobboard", "first part of all keys"),
    "host": Option(text, None, "where the server is; h1:p1,h2:p2 for several sentinels or nodes of a cluster"),
    "port": Option(port, None, "on which port it listens"),
    "db": Option(integer(0, 2**31), 0, "number of the database"),
    "username": Option(text, None, "whom to connect as"),
    "password": Option(text, None, "the user's password", secret=True),
    "unix_socket_path": Option(text, None, "path of the server's socket, in place of host and port"),
    "socket_timeout": Option(seconds(0.1, 3600), 5.0, "how long an answer may take, in seconds"),
    "socket_connect_timeout": Option(seconds(0.1, 3600), 5.0, "how long a connection may take, in seconds"),
    "protocol": Option(integer(2, 3), None, "RESP2 (the default) or RESP3"),
    "cluster": Option(flag, False, "the host is a node of a Redis Cluster"),
    "sentinel": Option(text, None, "name of the service; the host is a sentinel then"),
    "sentinel_fallbacks": Option(_hosts, (), "further sentinels"),
    "sentinel_kwargs": Option(mapping, None, "what redis-py needs to connect to the sentinels", secret=True),
    "min_replicas": Option(integer(0, 100), 0, "how many replicas must have what a call has written before it returns"),
    "allow_eviction": Option(flag, False, "put up with a server that drops keys when its memory is full"),
    "ssl": Option(flag, None, "TLS, as rediss:// has it"),
    **_TLS,
}

SOCKET_PARTS: Mapping[str, str] = {"user": "username", "password": "password", "path": "unix_socket_path"}
"""The options of ``unix://``, a scheme of redis-py."""
SOCKET_OPTIONS: Mapping[str, Option] = {
    **OPTIONS,
    "unix_socket_path": Option(_socket_path, None, "path of the server's socket"),
}


def check(conf: Settings) -> None:
    """:raises ValueError: options that don't go together."""
    conf.check_no_driver()
    if conf["sentinel"] == "":
        raise ValueError("option sentinel='': it is the name of the service; leave it out where there is none")
    if conf["cluster"] and conf["sentinel"]:
        raise ValueError("options cluster and sentinel exclude each other")
    if conf["cluster"] and conf["db"]:
        raise ValueError(f"option db={conf['db']}: a cluster has database 0 only")
    for option in ("sentinel_fallbacks", "sentinel_kwargs"):
        if conf[option] and not conf["sentinel"]:
            raise ValueError(f"option {option}: set sentinel, the name of the service, too")
    if conf["sentinel_kwargs"]:
        try:
            redis.Redis(**conf["sentinel_kwargs"])
        except TypeError as error:
            raise ValueError(f"option sentinel_kwargs: {error}") from None
    _check_hosts(conf)
    _check_tls(conf)


def _check_hosts(conf: Settings) -> None:
    if conf["unix_socket_path"] and (conf["host"] or conf["port"] or conf["cluster"] or conf["sentinel"]):
        raise ValueError("option unix_socket_path: it takes the place of host and port")
    for option, hosts in (("host", _hosts_of(conf)), ("sentinel_fallbacks", conf["sentinel_fallbacks"])):
        for host in hosts:
            try:
                _address(host, 0)
            except ValueError as error:
                raise ValueError(f"option {option}: {error}") from None
    if len(_hosts_of(conf)) > 1 and not (conf["cluster"] or conf["sentinel"]):
        raise ValueError(f"option host={conf['host']!r}: set cluster=true, or sentinel to the name of the service")


def _check_tls(conf: Settings) -> None:
    if not _tls(conf):
        for option in _TLS:
            if conf[option] is not None:
                raise ValueError(f"option {option}: set ssl=true, or use rediss://")
    elif conf["ssl"] is False:
        raise ValueError("option ssl=False: rediss:// has TLS; use redis:// without")
    elif conf["unix_socket_path"]:
        raise ValueError("option unix_socket_path: there is no TLS on a unix socket")


def check_client(client: Any, conf: Settings) -> None:
    """:raises TypeError: it is not a client.
    :raises ValueError: options that say where to connect, beside a client that is connected."""
    if not isinstance(client, (redis.Redis, RedisCluster)):
        kind = f"{type(client).__module__}.{type(client).__qualname__}"
        hint = (
            "; verbs call it in threads, under jobboard.aio, too: give a sync one"
            if kind.startswith("redis.asyncio.")
            else ""
        )
        raise TypeError(f"client must be a redis.Redis or a RedisCluster, not {kind}{hint}")
    own = ("host", "port", "db", "username", "password", "unix_socket_path", "protocol", "sentinel", "cluster", "ssl")
    for option in own:
        if conf[option]:
            raise ValueError(f"option {option}: client= is connected already")


def make(conf: Settings) -> Any:
    """A client of the board's own. A RedisCluster asks its nodes right here."""
    kwargs: dict[str, Any] = {
        "username": conf["username"],
        "password": conf["password"],
        "socket_timeout": conf["socket_timeout"],
        "socket_connect_timeout": conf["socket_connect_timeout"],
        "protocol": conf["protocol"] or 2,
        # The board itself repeats, with the same nonce and for as long as retry_for says.
        "retry": Retry(NoBackoff(), 0),
    }
    if _tls(conf):
        kwargs["ssl"] = True
        # Before redis-py 6 it would not look at the host unless asked.
        kwargs["ssl_check_hostname"] = conf["ssl_cert_reqs"] != "none"
        kwargs.update({option: conf[option] for option in _TLS if conf[option] is not None})
        if "ssl_min_version" in kwargs:
            kwargs["ssl_min_version"] = ssl.TLSVersion[f"TLSv{conf['ssl_min_version'].replace('.', '_')}"]
    hosts = _hosts_of(conf)
    if conf["cluster"]:
        nodes = [ClusterNode(*_address(host, conf["port"] or 6379)) for host in hosts]
        return RedisCluster(startup_nodes=nodes, **kwargs)
    if conf["sentinel"]:
        addresses = [_address(host, conf["port"] or 26379) for host in hosts]
        addresses += [_address(host, 26379) for host in conf["sentinel_fallbacks"]]
        about_sentinels = {
            "socket_timeout": conf["socket_timeout"],
            "socket_connect_timeout": conf["socket_connect_timeout"],
            "retry": Retry(NoBackoff(), 0),
            **(conf["sentinel_kwargs"] or {}),
        }
        sentinel = Sentinel(addresses, sentinel_kwargs=about_sentinels, **kwargs)
        return sentinel.master_for(conf["sentinel"], db=conf["db"])
    if conf["unix_socket_path"]:
        return redis.Redis(unix_socket_path=conf["unix_socket_path"], db=conf["db"], **kwargs)
    host, number = _address(hosts[0], conf["port"] or 6379)
    return redis.Redis(host=host, port=number, db=conf["db"], **kwargs)


def source(client: Any, key: bytes, timeout: float) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The class of a connection to the server that has a key, as it is now, and what to make it with.

    :raises redis.RedisError: no server is to be found.
    """
    if isinstance(client, RedisCluster):
        client = client.get_redis_connection(client.get_node_from_key(key))
    pool = client.connection_pool
    # These belong to the pool, which the board's connections are not part of.
    own = ("maint", "oss_", "orig_")
    kwargs = {name: value for name, value in pool.connection_kwargs.items() if not name.startswith(own)}
    kwargs.update(
        decode_responses=False,
        health_check_interval=0,
        socket_timeout=kwargs.get("socket_timeout") or timeout,
        socket_connect_timeout=kwargs.get("socket_connect_timeout") or timeout,
        retry=Retry(NoBackoff(), 0),
        retry_on_timeout=False,
        retry_on_error=[],
    )
    return pool.connection_class, kwargs


def look_again(client: Any) -> None:
    """A connection has broken, or the server was the wrong one: find out anew who has the board.

    :raises redis.RedisError: nobody knows.
    """
    if isinstance(client, RedisCluster):
        client.nodes_manager.initialize()


def close(client: Any, conf: Settings) -> None:
    """What a client of the board's own has opened by itself, to look for the server."""
    client.close()
    for sentinel in client.connection_pool.sentinel_manager.sentinels if conf["sentinel"] else ():
        sentinel.close()


def _tls(conf: Settings) -> bool:
    return bool(conf["ssl"]) or conf.scheme == "rediss"


def _hosts_of(conf: Settings) -> list[str]:
    return _hosts(conf["host"] or "localhost")


def _address(host: str, number: int) -> tuple[str, int]:
    """The host and the port of ``host:port``, ``[v6]:port``, or a bare host."""
    name, colon, digits = host.rpartition(":")
    if not colon or (":" in name and not name.endswith("]")):
        return host.strip("[]"), number
    if not digits.isdigit():
        # Not shown: a password that was put before a host ends up here.
        raise ValueError("one of the hosts is not a host and port, as in redis1:6379")
    return name.strip("[]"), int(digits)
