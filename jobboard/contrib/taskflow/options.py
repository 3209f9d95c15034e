"""TaskFlow's configuration of a board, as ours.

A board takes the options of TaskFlow's own board of that backend, under TaskFlow's names, and those of ours. An unknown
option is an error; TaskFlow ignores it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from oslo_utils import strutils
from taskflow.utils import misc

from jobboard import conf as configuration

NAME = "taskflow"
"""The name of these boards on their backends: path or namespace tells them apart, as in TaskFlow."""

MAX_DETAILS = 768 * 1024
"""TaskFlow sets no limit of its own. This much fits on every backend: ZooKeeper has a limit of a MiB for a request."""

_seconds = configuration.seconds(0.001)

Options = dict[str, Any]


class Location(NamedTuple):
    """The arguments of :func:`jobboard.fetch`, and the default expiry of claims; None: the board keeps them."""

    name: str
    conf: Options
    expiry: float | None


def locate(conf: Mapping[str, Any], scheme: str | None, client: Any) -> Location:
    """Return the place and the options of a board.

    :param scheme: the backend of the entry point; None: the URI in the option ``url`` names the backend.
    :raises ValueError, TypeError: an option does not fit.
    """
    options = {name: value for name, value in conf.items() if value is not None}
    uri, _, query = _uri(options, scheme).partition("?")
    options = {**dict(parse_qsl(query, keep_blank_values=True)), **options}
    backend = configuration.target(uri).scheme
    dialect = _DIALECTS.get(backend, _ANY)
    expiry = options.pop("ttl", None)
    if expiry is not None:
        try:
            expiry = _seconds(expiry)
        except ValueError as error:
            raise ValueError(f"option ttl={expiry!r}: {error}") from None
    where = {options.pop(option) for option in ("path", "namespace") if option in options} or {dialect.place}
    if len(where) > 1:
        raise ValueError("options path and namespace: each of them tells boards apart; leave one out")
    for option in dialect.needless if client is None else dialect.needless + dialect.connecting:
        options.pop(option, None)
    dialect.adapt(options, backend)
    [found] = where
    name, namespace = (NAME, {"namespace": found}) if dialect.spaces else (found, {})
    # With a client, as in TaskFlow, the address of the server counts for nothing.
    board = uri if client is None else backend
    return Location(
        configuration.text(name),
        {"max_details": MAX_DETAILS, **options, **namespace, "board": board},
        expiry,
    )


def _uri(options: Options, scheme: str | None) -> str:
    """Take the address of the board out of the options: ``url``, the URI that TaskFlow has found the board by, or only
    the name of the backend."""
    board, url = options.pop("board", ""), options.pop("url", None)
    if url is None and scheme is None:
        raise ValueError("option url is missing, as in {'board': 'jobboard', 'url': 'postgresql://app@db/prod'}")
    if url is not None:
        return configuration.text(url)
    if "://" not in board:
        return str(scheme)
    # TaskFlow has put parts of the URI into the options, too: user and password percent-encoded.
    parts = misc.parse_uri(board)
    for name, value in (("username", parts.username), ("password", parts.password), ("port", parts.port)):
        if options.get(name) == value:
            options.pop(name, None)
    options.pop("hostname", None)
    return f"{scheme}://{board.partition('://')[2]}"


class _Dialect(NamedTuple):
    """TaskFlow's configuration of a board on one backend.

    place: the default of path or namespace. spaces: whether our board there has a namespace; otherwise its name tells
    boards apart. needless: options without a meaning here. connecting: options that a client makes needless.
    """

    place: str
    spaces: bool = True
    needless: tuple[str, ...] = ()
    connecting: tuple[str, ...] = ()
    adapt: Callable[[Options, str], object] = lambda options, backend: None


def _redis(options: Options, backend: str) -> None:
    if backend != "rediss":
        _without_tls(options, "ssl", "ssl_")
    if options.get("unix_socket_path"):
        # redis-py does without them, too. TaskFlow's users name all three.
        options.pop("host", None)
        options.pop("port", None)
    if not options.get("sentinel"):
        for option in ("sentinel", "sentinel_fallbacks", "sentinel_kwargs"):
            options.pop(option, None)
    elif "sentinel_kwargs" in options:
        options["sentinel_kwargs"] = dict(options["sentinel_kwargs"])
        _without_tls(options["sentinel_kwargs"], "ssl", "ssl_")


def _zookeeper(options: Options, backend: str) -> None:
    _without_tls(options, "use_ssl", "ca", "certfile", "keyfile", "verify_certs")
    if "timeout" in options:
        # kazoo's timeout: the timeout of the session.
        options.setdefault("claim_ttl", options.pop("timeout"))
    hosts = options.get("hosts")
    if isinstance(hosts, (set, frozenset)):
        options["hosts"] = sorted(hosts)
    elif isinstance(hosts, str) and "/" in hosts:
        options["hosts"], _, options["chroot"] = hosts.partition("/")


def _etcd(options: Options, backend: str) -> None:
    if options.pop("protocol", "http") == "https":
        options["use_ssl"] = True
    for theirs, ours in (("host", "hosts"), ("ca_cert", "ca"), ("cert_cert", "certfile"), ("cert_key", "keyfile")):
        if theirs in options:
            options[ours] = options.pop(theirs)
    _without_tls(options, "use_ssl", "ca", "certfile", "keyfile", "verify_certs")


def _without_tls(options: Options, switch: str, *begins: str) -> None:
    """Drop the options of TLS where it is off, as TaskFlow does."""
    if not strutils.bool_from_string(options.get(switch, False)):
        for option in [option for option in options if option.startswith(begins)]:
            del options[option]


_ANY = _Dialect(NAME, spaces=False)

_REDIS = _Dialect(
    "taskflow",
    needless=("encoding", "encoding_errors", "retry_on_timeout", "health_check_interval"),
    connecting=(
        *("host", "port", "username", "password", "db", "unix_socket_path", "socket_timeout", "socket_connect_timeout"),
        *("sentinel", "sentinel_fallbacks", "sentinel_kwargs"),
        *("ssl", "ssl_keyfile", "ssl_certfile", "ssl_cert_reqs", "ssl_ca_certs"),
    ),
    adapt=_redis,
)

_ZOOKEEPER = _Dialect(
    "/taskflow/jobs",
    # kazoo's read_only lets it connect to servers that take no writes: no board can work on these.
    needless=("check_compatible", "read_only"),
    connecting=(
        *("hosts", "timeout", "handler", "connection_retry", "command_retry", "randomize_hosts", "auth_data"),
        *("use_ssl", "ca", "certfile", "keyfile", "keyfile_password", "verify_certs"),
    ),
    adapt=_zookeeper,
)

_ETCD = _Dialect(
    "taskflow",
    # The configuration of a board does not choose the version of the gateway.
    needless=("api_path",),
    connecting=("host", "port", "protocol", "ca_cert", "cert_key", "cert_cert", "timeout"),
    adapt=_etcd,
)

_DIALECTS = {
    **dict.fromkeys(("redis", "rediss", "valkey", "unix"), _REDIS),
    **dict.fromkeys(("zookeeper", "zk"), _ZOOKEEPER),
    "etcd": _ETCD,
}
