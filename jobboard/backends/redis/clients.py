"""Clients of redis-py: the check of a caller's client, the board's own client, and connections to the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.retry import Retry
from redis.sentinel import Sentinel

from jobboard.backends.redis.options import TLS, address_of, has_tls, hosts_of
from jobboard.conf import Settings, check_files


def check_client(client: Any, conf: Settings) -> None:
    """Check a client of the caller's, and the options beside it.

    :raises TypeError: the object is no client.
    :raises ValueError: an option tells an address, which the client has already.
    """
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
    """Return a client of the board's own. A RedisCluster connects to its nodes at once.

    :raises ConnectionFailure: a file is missing.
    """
    check_files(conf, "ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
    kwargs: dict[str, Any] = {
        "username": conf["username"],
        "password": conf["password"],
        "socket_timeout": conf["socket_timeout"],
        "socket_connect_timeout": conf["socket_connect_timeout"],
        "protocol": conf["protocol"] or 2,
        # The engine repeats requests, with the same nonce and for retry_for seconds.
        "retry": Retry(NoBackoff(), 0),
    }
    if has_tls(conf):
        kwargs["ssl"] = True
        # Before redis-py 6, the default was not to check the host.
        kwargs["ssl_check_hostname"] = conf["ssl_cert_reqs"] != "none"
        kwargs.update({option: conf[option] for option in TLS if conf[option] is not None})
    hosts = hosts_of(conf)
    if conf["cluster"]:
        nodes = [ClusterNode(*address_of(host, conf["port"] or 6379)) for host in hosts]
        return RedisCluster(startup_nodes=nodes, **kwargs)
    if conf["sentinel"]:
        addresses = [address_of(host, conf["port"] or 26379) for host in hosts]
        addresses += [address_of(host, 26379) for host in conf["sentinel_fallbacks"]]
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
    host, number = address_of(hosts[0], conf["port"] or 6379)
    return redis.Redis(host=host, port=number, db=conf["db"], **kwargs)


def source(client: Any, key: bytes, timeout: float) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Return the class of connections to the server that has a key now, and their arguments.

    :raises redis.RedisError: no server is found.
    """
    if isinstance(client, RedisCluster):
        client = client.get_redis_connection(client.get_node_from_key(key))
    pool = client.connection_pool
    # Arguments for maintenance events serve the pool, which the board's connections are no part of.
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


def primaries(client: Any) -> list[dict[str, Any]]:
    """Return the arguments of connections to each primary of a cluster; none for a server alone."""
    if isinstance(client, RedisCluster):
        return [{"host": node.host, "port": node.port} for node in client.get_primaries()]
    return []


def locate_again(client: Any) -> None:
    """Have a client find out again which server has which key.

    :raises redis.RedisError: no server tells.
    """
    if isinstance(client, RedisCluster):
        client.nodes_manager.initialize()


def close(client: Any, conf: Settings) -> None:
    """Close the connections that a client of the board's own has made to find the server."""
    client.close()
    for sentinel in client.connection_pool.sentinel_manager.sentinels if conf["sentinel"] else ():
        sentinel.close()
