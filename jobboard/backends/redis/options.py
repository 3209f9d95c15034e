"""The options of a board on Redis, and their checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import redis

from jobboard.conf import Option, Settings, choice, flag, integer, mapping, port, seconds, text


def _namespace(value: Any) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    if not isinstance(raw, bytes):
        raise TypeError(f"must be str or bytes, not {type(value).__name__}")
    if not raw:
        raise ValueError("must not be empty")
    return raw


def _hosts(value: Any) -> list[str]:
    """Convert ``h1:p1,h2:p2``, or a list of hosts and (host, port) pairs."""
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, Sequence):
        raise TypeError(f"must be a str or a list, not {type(value).__name__}")
    try:
        return [item.strip() if isinstance(item, str) else f"{item[0]}:{item[1]}" for item in given]
    except (TypeError, IndexError):
        raise TypeError("must name hosts, as in 'h1:26379' or ('h1', 26379)") from None


def _cert_reqs(value: Any) -> str:
    """Convert a requirement for certificates. ``CERT_NONE``, as in Python's ssl, is ``none``."""
    named = value.lower().removeprefix("cert_") if isinstance(value, str) else value
    return choice("none", "optional", "required")(named)


def _socket_path(value: Any) -> str:
    """Convert a path. It is absolute, although a URI has no first slash left."""
    return "/" + text(value).lstrip("/")


URI_PARTS: Mapping[str, str] = {
    "user": "username",
    "password": "password",
    "host": "host",
    "port": "port",
    "path": "db",
}

TLS: Mapping[str, Option] = {
    "ssl_keyfile": Option(text, None, "TLS: the client's key"),
    "ssl_certfile": Option(text, None, "TLS: the client's certificate"),
    "ssl_password": Option(text, None, "TLS: the password of the client's key", secret=True),
    "ssl_cert_reqs": Option(_cert_reqs, None, "TLS: how the server must prove itself"),
    "ssl_ca_certs": Option(text, None, "TLS: a file with the authority's certificate"),
    "ssl_check_hostname": Option(flag, None, "TLS: the certificate must name this host"),
}

OPTIONS: Mapping[str, Option] = {
    "namespace": Option(_namespace, b"jobboard", "first part of all keys"),
    "host": Option(text, None, "host of the server; h1:p1,h2:p2 for several sentinels or nodes of a cluster"),
    "port": Option(port, None, "port of the server"),
    "db": Option(integer(0, 2**31), 0, "number of the database"),
    "username": Option(text, None, "user of the server"),
    "password": Option(text, None, "the user's password", secret=True),
    "unix_socket_path": Option(text, None, "path of the server's socket, in place of host and port"),
    "socket_timeout": Option(seconds(0.1, 3600), 5.0, "seconds that a reply may take"),
    "socket_connect_timeout": Option(seconds(0.1, 3600), 5.0, "seconds that a connection may take"),
    "protocol": Option(integer(2, 3), None, "RESP2 (the default) or RESP3"),
    "cluster": Option(flag, False, "the host is a node of a Redis Cluster"),
    "sentinel": Option(text, None, "name of the service; the host is then a sentinel"),
    "sentinel_fallbacks": Option(_hosts, (), "further sentinels"),
    "sentinel_kwargs": Option(mapping, None, "arguments of redis-py for connections to sentinels", secret=True),
    "min_replicas": Option(integer(0, 100), 0, "replicas that must have the changes of a call before it returns"),
    "allow_eviction": Option(flag, False, "accept a server that evicts keys when its memory is full"),
    "ssl": Option(flag, None, "TLS, as with rediss://"),
    **TLS,
}

SOCKET_PARTS: Mapping[str, str] = {"user": "username", "password": "password", "path": "unix_socket_path"}
"""The parts of a ``unix://`` URI, which redis-py has too."""
SOCKET_OPTIONS: Mapping[str, Option] = {
    **OPTIONS,
    "unix_socket_path": Option(_socket_path, None, "path of the server's socket"),
}


def check_options(conf: Settings) -> None:
    """Check options against each other.

    :raises ValueError: options contradict each other.
    """
    conf.check_no_driver()
    if conf["sentinel"] == "":
        raise ValueError("option sentinel='': must be the name of the service; leave it out without Sentinel")
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
        raise ValueError("option unix_socket_path: leave out host, port, cluster and sentinel")
    for option, hosts in (("host", hosts_of(conf)), ("sentinel_fallbacks", conf["sentinel_fallbacks"])):
        for host in hosts:
            try:
                address_of(host, 0)
            except ValueError as error:
                raise ValueError(f"option {option}: {error}") from None
    if len(hosts_of(conf)) > 1 and not (conf["cluster"] or conf["sentinel"]):
        raise ValueError(f"option host={conf['host']!r}: set cluster=true, or sentinel to the name of the service")


def _check_tls(conf: Settings) -> None:
    if not has_tls(conf):
        for option in TLS:
            if conf[option] is not None:
                raise ValueError(f"option {option}: set ssl=true, or use rediss://")
    elif conf["ssl"] is False:
        raise ValueError("option ssl=False: rediss:// has TLS; use redis:// without")
    elif conf["unix_socket_path"]:
        raise ValueError("option unix_socket_path: there is no TLS on a unix socket")


def has_tls(conf: Settings) -> bool:
    """Return whether connections to the server use TLS."""
    return bool(conf["ssl"]) or conf.scheme == "rediss"


def hosts_of(conf: Settings) -> list[str]:
    """Return the hosts of the option ``host``, some with ports: see :func:`address_of`."""
    return _hosts(conf["host"] or "localhost")


def address_of(host: str, number: int) -> tuple[str, int]:
    """Return host and port of ``host:port``, ``[v6]:port`` or a bare host, whose port is ``number``."""
    name, colon, digits = host.rpartition(":")
    if not colon or (":" in name and not name.endswith("]")):
        return host.strip("[]"), number
    if not digits.isdigit():
        # The host is not shown: it may contain a password.
        raise ValueError("one of the hosts is not a host and port, as in redis1:6379")
    return name.strip("[]"), int(digits)
