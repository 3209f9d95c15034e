"""The options of a board on ZooKeeper, and the client that is made from the options or from the caller's client."""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.hosts import collect_hosts
from kazoo.protocol.serialization import SASL, Auth, Connect
from kazoo.retry import KazooRetry
from kazoo.security import ACL, make_acl, make_digest_acl

from jobboard.conf import Option, Settings, bracketed, check_files, flag, mapping, path, port, seconds, text
from jobboard.kv.options import TLS, check_together

PATIENCE = 5.0
"""The seconds for which a server may be silent in the middle of a message, or while a connection is made."""

_HANDLERS = {
    "threading": "SequentialThreadingHandler",
    "gevent": "SequentialGeventHandler",
    "eventlet": "SequentialEventletHandler",
}
"""The classes of kazoo's handlers, in modules of the handlers' names."""

KAZOO_LOG = logging.getLogger("jobboard.drivers.kazoo")


def _no_secrets(record: logging.LogRecord) -> bool:
    # kazoo's debug output shows whole requests, passwords included.
    arguments = record.args if isinstance(record.args, tuple) else ()
    return "passwd" not in str(record.msg) and not any(isinstance(each, (Auth, SASL, Connect)) for each in arguments)


KAZOO_LOG.addFilter(_no_secrets)


def _hosts(value: Any) -> str:
    """Parse ``'a:2181,b'``, ``['a:2181', 'b']`` or ``{'a': 2181}`` into one text."""
    if isinstance(value, Mapping):
        value = [f"{bracketed(host)}:{number}" for host, number in value.items()]
    if isinstance(value, (list, tuple)):
        value = ",".join(map(text, value))
    if not isinstance(value, str):
        raise TypeError(f"must be a str, a list or a dict, not {type(value).__name__}")
    hosts = ",".join(bracketed(each.strip()) for each in value.split(","))
    try:
        found, chroot = collect_hosts(hosts)
    except ValueError:
        raise ValueError("must name hosts, as in 'one:2181,two:2181'") from None
    if chroot:
        raise ValueError("the chroot stands in the URI's path, or in the option chroot")
    assert found
    return hosts


def _chroot(value: Any) -> str:
    return "/" + path(value) if text(value).strip("/") else ""


def _retry(value: Any) -> Any:
    if not isinstance(value, (Mapping, KazooRetry)):
        raise TypeError("must be a dict of KazooRetry's arguments, or a KazooRetry")
    if isinstance(value, KazooRetry):
        return value
    try:
        KazooRetry(**value)
    except TypeError as error:
        raise ValueError(f"must be a dict of KazooRetry's arguments: {error}") from None
    for name, each in value.items():
        if not (each is None or isinstance(each, (int, float)) or callable(each)):
            raise ValueError(f"{name} must be a number")
    return dict(value)


def _pairs(value: Any) -> list[tuple[str, str]]:
    try:
        return [(text(scheme), text(credential)) for scheme, credential in value]
    except (TypeError, ValueError):
        raise ValueError("must be a list of (scheme, credential)") from None


def _acls(value: Any) -> list[Any]:
    """Parse ACLs of kazoo's, or mappings of arguments of make_acl (with a ``password``: of make_digest_acl)."""
    acls = []
    for each in value:
        if isinstance(each, ACL):
            acls.append(each)
        elif isinstance(each, Mapping):
            acls.append((make_digest_acl if "password" in each else make_acl)(**each))
        else:
            raise TypeError("must be a list of kazoo ACLs, or of dicts of make_acl's arguments")
    if not acls:
        raise ValueError("must hold one ACL at least; without the option anybody may do anything")
    return acls


def _handler(value: Any) -> Any:
    if hasattr(value, "async_result"):
        _check_green(type(value))
        return lambda: value
    if value not in _HANDLERS:
        raise ValueError(f"must be one of {', '.join(_HANDLERS)}, or a handler of kazoo's")
    try:
        kind = getattr(import_module(f"kazoo.handlers.{value}"), _HANDLERS[value])
    except ImportError:
        raise ValueError(f"{value} is not installed") from None
    _check_green(kind)
    return functools.partial(_impatient, kind)


def _check_green(handler: type) -> None:
    """Check that a program with a green handler is green throughout.

    The board's own threads would wait for green threads for ever.

    :raises ValueError: the handler is green, and the program is not.
    """
    kind = handler.__module__.removeprefix("kazoo.handlers.")
    if kind == "gevent":
        from gevent import monkey

        patched, way_out = monkey.is_module_patched("threading"), "gevent.monkey.patch_all()"
    elif kind == "eventlet":
        from eventlet import patcher

        patched, way_out = patcher.is_monkey_patched("thread"), "eventlet.monkey_patch()"
    else:
        return
    if not patched:
        raise ValueError(f"{kind} needs {way_out} before anything else is imported")


class _Impatient:
    """The first base of a handler of kazoo that gives up a silent server within seconds.

    kazoo waits for the answer to a new connection as long as a session lasts. A starting server (3.8, for a few tenths
    of a second) and a frozen server accept connections and never answer. The session would be over before kazoo tries
    another server."""

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        kwargs["timeout"] = min(PATIENCE, kwargs.get("timeout") or PATIENCE)
        return super().create_connection(*args, **kwargs)  # type: ignore[misc]

    def select(self, rlist: Any, wlist: Any, xlist: Any, timeout: float | None = None) -> Any:
        # An idle connection waits for two sockets: the server, and a request to send.
        if len(rlist) + len(wlist) == 1:
            timeout = min(PATIENCE, timeout or PATIENCE)
        return super().select(rlist, wlist, xlist, timeout)  # type: ignore[misc]


def _impatient(kind: type) -> Any:
    return type(kind.__name__, (_Impatient, kind), {"__module__": kind.__module__})()


OPTIONS: Mapping[str, Option] = {
    "hosts": Option(_hosts, None, "the servers: 'a:2181,b:2181', a list of such, or a dict of hosts and ports"),
    "port": Option(port, None, "the port of the hosts that come without one"),
    "chroot": Option(_chroot, "", "the path under which everything lies"),
    "namespace": Option(path, "jobboard", "the path below the chroot under which boards lie"),
    "timeout": Option(
        seconds(0.1, 3600), None, "the seconds that connect() waits for a server; else retry_for, and at least 5"
    ),
    "handler": Option(_handler, None, "threading (the default), gevent, eventlet, or a handler of kazoo's"),
    "connection_retry": Option(_retry, {"max_tries": -1, "max_delay": 2.0}, "kazoo's arguments for reconnecting"),
    "command_retry": Option(_retry, {"max_tries": 3}, "kazoo's arguments for repeating what connect() sets up"),
    "randomize_hosts": Option(flag, True, "begin with a random host, not with the first"),
    **TLS,
    "check_hostname": Option(flag, False, "TLS: whether the certificate must name the host"),
    "user": Option(text, None, "digest authentication: the user"),
    "password": Option(text, None, "digest authentication: the user's password", secret=True),
    "auth_data": Option(_pairs, (), "further (scheme, credential) pairs", secret=True),
    "sasl_options": Option(mapping, None, "kazoo's SASL options: mechanism, username, password …", secret=True),
    "default_acl": Option(_acls, None, "ACLs of new znodes; the default lets anybody do anything", secret=True),
}

_PORT = re.compile(r":\d+$")

_CLIENTS_OWN = frozenset(OPTIONS) - {"namespace", "timeout", "default_acl", "connection_retry", "command_retry"}


def check_client(client: Any, conf: Settings) -> None:
    """Check a client of the caller's.

    :raises TypeError, ValueError: the object is no client, or options repeat its settings.
    """
    if not isinstance(client, KazooClient):
        raise TypeError(f"client must be a kazoo.client.KazooClient, not {type(client).__name__}")
    try:
        _check_green(type(client.handler))
    except ValueError as error:
        raise ValueError(f"client: its handler can't be used: {error}") from None
    given = sorted(name for name in _CLIENTS_OWN if conf[name] != OPTIONS[name].default)
    if given:
        raise ValueError(f"client= has its own settings: leave out {', '.join(given)}")


def check(conf: Settings) -> None:
    """Check that options fit together.

    :raises ValueError: an option misses the option that it needs.
    """
    conf.check_no_driver()
    needs = (("password", "user"), ("keyfile", "certfile"), ("keyfile_password", "keyfile"))
    check_together(conf, OPTIONS, conf["use_ssl"], *needs)


def _with_port(conf: Settings) -> str:
    hosts = conf["hosts"] or "127.0.0.1"
    number = conf["port"] or 2181
    return ",".join(each if _PORT.search(each) else f"{each}:{number}" for each in hosts.split(","))


def make_client(conf: Settings, client: KazooClient | None) -> KazooClient:
    """Return a client of the board's own, not started.

    :param client: the caller's client, which has the settings for connecting and logging in.
    :raises ConnectionFailure: a file is missing.
    """
    settings = _settings(conf) if client is None else _settings_of(client)
    check_files(settings, "ca", "certfile", "keyfile")
    handler = settings["handler"]
    for name in ("connection_retry", "command_retry"):
        given = conf[name]
        settings[name] = {"sleep_func": handler.sleep_func, **given} if isinstance(given, dict) else given
    settings["default_acl"] = conf["default_acl"] or settings["default_acl"]
    return KazooClient(timeout=conf["claim_ttl"], read_only=conf["read_only"], logger=KAZOO_LOG, **settings)


def _settings(conf: Settings) -> dict[str, Any]:
    pairs = list(conf["auth_data"])
    if conf["user"] is not None:
        pairs.append(("digest", f"{conf['user']}:{conf['password'] or ''}"))
    sasl = conf["sasl_options"]
    return {
        # Without the chroot, which may have to be created: it is part of the board's own paths.
        "hosts": _with_port(conf),
        "handler": conf["handler"]() if conf["handler"] else _impatient(SequentialThreadingHandler),
        "default_acl": None,
        "auth_data": pairs,
        "sasl_options": None if sasl is None else dict(sasl),
        "randomize_hosts": conf["randomize_hosts"],
        **{name: conf[name] for name in TLS},
    }


def _settings_of(client: KazooClient) -> dict[str, Any]:
    sasl = client._connection.sasl_options
    return {
        "hosts": ",".join(f"{bracketed(host)}:{number}" for host, number in client.hosts),
        "handler": _impatient(type(client.handler)),
        "sasl_options": None if sasl is None else dict(sasl),
        **{name: getattr(client, name) for name in ("default_acl", "auth_data", "randomize_hosts", *TLS)},
    }
