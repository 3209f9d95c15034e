"""Options that the boards on key-value servers share: the parts of a URI, and TLS."""

from __future__ import annotations

from collections.abc import Mapping

from jobboard.conf import Option, Settings, flag, text

TLS: Mapping[str, Option] = {
    "use_ssl": Option(flag, False, "connect with TLS"),
    "ca": Option(text, None, "TLS: the authority's certificate"),
    "certfile": Option(text, None, "TLS: the client's certificate"),
    "keyfile": Option(text, None, "TLS: the client's key"),
    "keyfile_password": Option(text, None, "TLS: the key's password", secret=True),
    "verify_certs": Option(flag, True, "TLS: verify the server's certificate"),
    "check_hostname": Option(flag, True, "TLS: require the host's name in the certificate"),
}

TLS_DETAILS = tuple(TLS)[1:]
"""The options that need TLS."""


def uri_parts(path: str) -> Mapping[str, str]:
    """Return the option that each part of a URI sets.

    :param path: the option that the path sets.
    """
    return {"user": "user", "password": "password", "host": "hosts", "port": "port", "path": path}


def check_together(conf: Settings, options: Mapping[str, Option], is_tls: bool, *needs: tuple[str, str]) -> None:
    """Check options that depend on each other.

    :param needs: pairs of an option and another one that it needs.
    :raises ValueError: an option is set without TLS, or without the option that it needs.
    """
    for option in () if is_tls else TLS_DETAILS:
        if conf[option] != options[option].default:
            raise ValueError(f"option {option}: set use_ssl=true, too")
    for option, needed in needs:
        if conf[option] is not None and conf[needed] is None:
            raise ValueError(f"option {option}: set {needed}, too")
