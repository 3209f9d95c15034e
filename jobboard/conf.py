"""The settings of a board: a URI, a plain name or a dict, parsed and checked.

A board class declares what it understands as a mapping of names to :class:`Option`; :func:`parse` turns what a user
wrote into :class:`Settings` or says what is wrong with it. Nothing here knows any backend, and no message or repr
here ever holds a secret.
"""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote

from jobboard.ciphers import Seal
from jobboard.exceptions import ConnectionFailure

ESCAPE = (
    "percent-encode '/', '?', '#', '@', '&' and '%' in its user, password and path, as "
    "urllib.parse.quote(text, safe='') does"
)

_SCHEME = re.compile(r"[a-z][a-z0-9_.-]*(\+[a-z0-9_.-]+)?")
_SHOWN = 100
_SECRET = re.compile("pass|secret|token|key")
_URI = re.compile(r"([^/?#]*)([^?]*)\??(.*)", re.DOTALL)
_HOST = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::(-?[0-9]*))?")


@dataclass(frozen=True)
class Option:
    """A setting. ``parse`` takes the user's value (a str from a URI) and raises ValueError or TypeError."""

    parse: Callable[[Any], Any]
    default: Any = None
    help: str = ""
    secret: bool = False


class Settings(dict[str, Any]):
    """The checked settings of one board: every declared option, given or defaulted.

    location: the configuration as a URI without passwords, and without options, which may hold secrets too, except
    options that stand for a part of a URI.
    """

    def __init__(
        self, scheme: str, driver: str | None, values: Mapping[str, Any], secrets: frozenset[str], location: str
    ) -> None:
        super().__init__(values)
        self.scheme = scheme
        self.driver = driver
        self.location = location
        self._secrets = secrets

    def public(self) -> dict[str, Any]:
        """Return the settings that are no secrets."""
        return {name: value for name, value in self.items() if name not in self._secrets}

    def check_no_driver(self) -> None:
        """:raises ValueError: the scheme names a driver, which only some boards take."""
        if self.driver is not None:
            raise ValueError(f"a {self.scheme} board takes no driver, as in {self.scheme}+{self.driver}")

    def __repr__(self) -> str:
        shown = {k: "***" if k in self._secrets and v is not None else v for k, v in self.items()}
        return f"<Settings {self.scheme}: {shown}>"


class Target(NamedTuple):
    """The target of a configuration, before its options are checked."""

    scheme: str
    driver: str | None
    given: dict[str, Any]
    """The options of the URI's query, replaced by the options beside the URI."""
    parts: dict[str, str]
    query: list[tuple[str, str]]


def shortened(value: Any) -> str:
    """Return the repr of a value for an error, cut if it is long."""
    shown = repr(value)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"must be a str, not {type(value).__name__}")
    return value


def integer(low: int, high: int) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, (int, str)):
            raise TypeError(f"must be an int, not {type(value).__name__}")
        with contextlib.suppress(ValueError):
            if low <= int(value) <= high:
                return int(value)
        raise ValueError(f"must be from {low} to {high}")

    return parse


port = integer(1, 65535)


def seconds(low: float = 0.0, high: float = 1e9) -> Callable[[Any], float]:
    def parse(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise TypeError(f"must be a number of seconds, not {type(value).__name__}")
        with contextlib.suppress(ValueError, OverflowError):
            # NaN lies in no range.
            if low <= float(value) <= high:
                return float(value)
        raise ValueError(f"must be from {low:g} to {high:g} seconds")

    return parse


def path(value: Any) -> str:
    """Return a path in a tree, without the slashes around it."""
    parts = text(value).strip("/").split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise ValueError("must be a path of plain names, as in 'services/jobs'")
    return "/".join(parts)


def flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        # Not above: its import takes a fifth of the time in which a command starts.
        from oslo_utils import strutils

        with contextlib.suppress(ValueError):
            return bool(strutils.bool_from_string(value, strict=True))
    raise ValueError("must be true or false")


def choice(*names: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if not isinstance(value, str) or value.lower() not in names:
            raise ValueError(f"must be one of {', '.join(names)}")
        return value.lower()

    return parse


def mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"must be a dict, not {type(value).__name__}")
    return dict(value)


def target(conf: str | Mapping[str, Any]) -> Target:
    """Read the scheme, the parts and the given options of a plain name, a URI, or a dict whose ``board`` is either."""
    if isinstance(conf, str):
        board, extra = conf, {}
    elif isinstance(conf, Mapping):
        extra = dict(conf)
        board = extra.pop("board", None)
        if not isinstance(board, str):
            raise ValueError(
                "the configuration has no 'board': give the name of a backend or a URI, as in {'board': 'sqlite'}"
            )
        for name in extra:
            if not isinstance(name, str):
                raise TypeError(f"option names must be str, not {type(name).__name__}")
    else:
        raise TypeError(f"a board's configuration is a name, a URI or a dict, not {type(conf).__name__}")
    scheme, separator, rest = board.strip().partition("://")
    if not separator:
        # Options may follow a plain name, too, as in memory?keep_done=60.
        scheme, separator, rest = scheme.partition("?")
        rest = separator + rest
    scheme = scheme.strip().lower()
    if not _SCHEME.fullmatch(scheme):
        raise ValueError(
            "the board's configuration, not shown as it may hold a password, is neither the name of a backend, as in "
            "'sqlite', nor a URI with '://' behind that, as in 'postgresql://app@db/prod'"
        )
    parts, options = _uri_parts(rest) if separator else ({}, [])
    scheme, _, driver = scheme.partition("+")
    given = {name: value for name, value in extra.items() if value is not None}
    return Target(scheme, driver or None, {**dict.fromkeys(extra), **dict(options), **given}, parts, options)


def _uri_parts(uri: str) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Return the parts of a URI behind ``://``, and the options of its query."""
    split = _URI.fullmatch(uri)
    assert split is not None
    authority, path, query = split.groups()
    # An unescaped '/' in a password ends the authority early, and a '/' too many begins the path: what looks like a
    # path, a host or an option may be secret.
    early = "@" in query or ("@" in path if authority else re.search(":.*@", path, re.DOTALL))
    if early or re.search("%(?![0-9A-Fa-f]{2})", uri):
        raise ValueError(f"the URI can't be read: {ESCAPE}; at most its host has a '@' before it")
    userinfo, at, hosts = authority.rpartition("@")
    parts: dict[str, str] = {}
    if at:
        user, colon, password = userinfo.partition(":")
        parts["user"] = unquote(user)
        if colon:
            parts["password"] = unquote(password)
    found = [_HOST.fullmatch(each) for each in hosts.split(",")]
    if None in found:
        # Of a URI whose '@' was forgotten, the port is the password, or the host holds the password.
        raise ValueError(
            "the URI's host and port can't be read, and are not shown, as they may be a password: '@' stands behind a "
            f"password, an IPv6 address in brackets, as in [::1]:5432, and a port is a whole number; {ESCAPE}"
        )
    if len(found) > 1:
        # Several hosts (h1:2181,h2:2181) stay one text, for the backend to take apart.
        parts["host"] = hosts
    elif found[0] is not None:
        parts["host"], parts["port"] = unquote(found[0][1].strip("[]")), found[0][2] or ""
    parts["path"] = unquote(path[1:])
    # Some drivers write ssl-mode, others ssl_mode.
    options = [(name.replace("-", "_"), value) for name, value in parse_qsl(query, keep_blank_values=True)]
    return {name: value for name, value in parts.items() if value}, options


def parse(conf: str | Mapping[str, Any], options: Mapping[str, Option], parts: Mapping[str, str]) -> Settings:
    """Check ``conf`` against the declared ``options``.

    :param parts: which option a part of the URI (user, password, host, port, path) sets; a part that is not listed is
        refused, so that nothing which a user wrote is silently ignored.
    :raises ValueError: an unknown option, a value that does not fit, or a URI that contradicts itself; names the option
        and the way out.
    :raises TypeError: a value of a wrong type.
    """
    where = target(conf)
    given, query, asked = dict(where.given), dict(where.query), [name for name, _ in where.query]
    for part, value in where.parts.items():
        if part not in parts:
            raise ValueError(f"a {where.scheme} board takes no {part} in its URI")
        name = parts[part]
        other = query.get(name, value)
        if other != value:
            shown = "" if options[name].secret else _shown(": {} and {}", value, other)
            raise ValueError(
                f"the URI's {part} and the option {name} in its query differ{shown}; leave one of them out"
            )
        if given.get(name) is None:
            given[name] = value
    values = {name: option.default for name, option in options.items()}
    for name, value in given.items():
        option = options.get(name)
        if option is None:
            raise ValueError(_unknown(where, name, options))
        if asked.count(name) > 1:
            raise ValueError(f"the option {name!r} is given twice")
        if value is None:
            continue
        if name == parts.get("host") and "@" in str(value):
            raise ValueError(f"option {name}: a user and a password stand in options of their own, not before the host")
        try:
            values[name] = option.parse(value)
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            shown = "" if option.secret else _shown("={}", value)
            raise kind(f"option {name}{shown}: {error}") from None
    secrets = frozenset(name for name, option in options.items() if option.secret)
    return Settings(where.scheme, where.driver, values, secrets, _redacted(where, values, parts))


def _unknown(where: Target, name: str, options: Mapping[str, Option]) -> str:
    asked = [other for other, _ in where.query]
    # Beside a password that is in the query, it may be a piece of that, with an unescaped '&'.
    piece = name in asked and any(map(_SECRET.search, asked))
    shown = f" like one in the URI ({ESCAPE})" if piece else _shown(" {}", name)
    return f"a {where.scheme} board has no option{shown}; {meant(name, options)}"


def meant(name: str, known: Iterable[str], otherwise: str = "see the page 'Options' of the documentation") -> str:
    """Return a hint at the known names that an unknown one may mean, three at most."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3)
    # Of a short name a longer one has all, as claim_ttl has ttl.
    near += [each for each in names if len(name) > 2 and name in each and each not in near]
    return f"did you mean {' or '.join(map(repr, near[:3]))}?" if near else otherwise


def _shown(text: str, *values: Any) -> str:
    """Return ``text`` with the words of a user; nothing if these may hold a URI with a password."""
    shown = [shortened(value) for value in values]
    return "" if any(set(":@/") & set(each) for each in shown) else text.format(*shown)


def check_files(settings: Mapping[str, Any], *options: str) -> None:
    """Check that the files which options name exist. Drivers name no missing file, or say that no server answers.

    :raises ConnectionFailure: a file is missing, or this user may not enter its folder.
    """
    for option in options:
        path = settings[option]
        if path is None:
            continue
        try:
            if Path(path).exists():
                continue
        except PermissionError as error:
            text = f"option {option}: this user may not enter the folder of {path!r}"
            raise ConnectionFailure(text, error, refused=True) from error
        raise ConnectionFailure(f"option {option}: there is no file {path!r}", refused=True)


def bracketed(host: str) -> str:
    """Return a host as a URI has it: an IPv6 address in brackets."""
    return f"[{host}]" if host.count(":") > 1 and "[" not in host else host


def _redacted(where: Target, values: Mapping[str, Any], parts: Mapping[str, str]) -> str:
    shown = dict(where.parts)
    for part, option in parts.items():
        value = where.given.get(option)
        if value is not None and part != "password":
            shown[part] = value if isinstance(value, str) else str(values[option])
    if not shown:
        return where.scheme
    user = f"{quote(shown['user'])}@" if "user" in shown else ""
    number = f":{shown['port']}" if "port" in shown else ""
    host = shown.get("host", "")
    host = host if "," in host else bracketed(host)
    return f"{where.scheme}://{user}{host}{number}/{quote(shown.get('path', ''))}"


COMMON: Mapping[str, Option] = {
    "claim_ttl": Option(seconds(0.1, 86400), 30.0, "lease of a kept claim, renewed every third of it"),
    "retry_for": Option(seconds(0, 3600), 10.0, "how long to repeat a call on a lost connection"),
    "max_details": Option(integer(2, 2**30), 64 * 1024, "largest details, in bytes of JSON"),
    "keep_done": Option(seconds(), 0.0, "how long the outcome of a job is kept that is consumed here; 0: not at all"),
    "auto_setup": Option(flag, True, "create what is missing at connect()"),
    "read_only": Option(flag, False, "open the board for looking only"),
    "cipher": Option(Seal, None, "encrypts details and results: an object, see :doc:`/howto/secrets`", secret=True),
}
"""The options that every board has."""
