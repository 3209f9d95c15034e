"""The options of a board on etcd."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from typing import Any

from jobboard.conf import Option, Settings, bracketed, path, port, seconds, text
from jobboard.exceptions import ConnectionFailure
from jobboard.kv.options import TLS, check_together

_HOST = re.compile(r"(\[[^\[\]]+\]|[^:\[\]\s]+)(?::(\d{1,5}))?")


def _hosts(value: Any) -> list[tuple[str, int | None]]:
    """Parse ``'a:2379,b'``, or a list of such."""
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"must be a str or a list, not {type(value).__name__}")
    schemes = [scheme for each in value if (scheme := text(each).strip().partition("://")[0]) in ("http", "https")]
    if schemes:
        # In etcd://https://one the host is "https", and the rest is a path.
        ssl = "?use_ssl=true" if "https" in schemes else ""
        raise ValueError(f"leave out {schemes[0]}://, as in etcd://one:2379,two:2379{ssl}")
    matches = [_HOST.fullmatch(bracketed(text(each).strip())) for each in value]
    if not matches or None in matches:
        # The value is not shown: a password in front of a host ends up here.
        raise ValueError("must name hosts, as in 'one:2379,two:2379'")
    return [(match[1].strip("[]"), port(match[2]) if match[2] else None) for match in matches if match is not None]


OPTIONS: Mapping[str, Option] = {
    "hosts": Option(_hosts, None, "the members: 'a:2379,b:2379', or a list of such"),
    "port": Option(port, None, "the port of the hosts that come without one"),
    "namespace": Option(path, "jobboard", "the beginning of the keys of all boards"),
    "timeout": Option(seconds(0.1, 3600), 5.0, "the seconds that a connection, or an answer, may take"),
    "user": Option(text, None, "the user"),
    "password": Option(text, None, "the user's password", secret=True),
    **TLS,
}


def check(conf: Settings) -> None:
    """Check that options fit together.

    :raises ValueError: two options exclude each other, or one misses the option that it needs.
    """
    conf.check_no_driver()
    pairs = (("password", "user"), ("user", "password"), ("keyfile_password", "keyfile"))
    both = (("certfile", "keyfile"), ("keyfile", "certfile"))
    check_together(conf, OPTIONS, conf["use_ssl"], *pairs, *both)


def members(conf: Settings) -> list[tuple[str, int]]:
    return [(host, number or conf["port"] or 2379) for host, number in conf["hosts"] or [("127.0.0.1", None)]]


def tls(conf: Settings) -> ssl.SSLContext | None:
    """Return the settings of TLS connections; None without TLS.

    :raises ConnectionFailure: a file is missing, or is of another kind.
    """
    if not conf["use_ssl"]:
        return None
    try:
        context = ssl.create_default_context(cafile=conf["ca"])
        if conf["certfile"] is not None:
            # Without a password OpenSSL would ask for one at the terminal.
            context.load_cert_chain(conf["certfile"], conf["keyfile"], conf["keyfile_password"] or "")
    except (OSError, ValueError) as error:
        files = ", ".join(str(conf[each]) for each in ("ca", "certfile", "keyfile") if conf[each])
        raise ConnectionFailure(f"TLS: one of {files} can't be used: {error}", error, refused=True) from error
    context.check_hostname = conf["verify_certs"] and conf["check_hostname"]
    if not conf["verify_certs"]:
        context.verify_mode = ssl.CERT_NONE
    return context
