"""The guard: who may look and act, from which page and under which address. Each request passes it before its view."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import re
from collections.abc import Callable, Collection, Mapping
from typing import Literal
from urllib.parse import urlsplit

from markupsafe import escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from jobboard import runtime

Level = Literal["look", "act"]
Answer = Level | tuple[Level, str] | Response | None
"""The answer of ``authorize``: see :func:`jobboard.web.app`."""

HEADERS = {
    # No inline script, no inline style, nothing of another origin: text that got through as markup would do nothing.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # With no-referrer, browsers send "Origin: null" with forms of this page.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

PLAIN = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>jobboard</title></head><body><main><h1>{}</h1></main></body></html>
"""
"""A page without a board and without an address, for visitors whose rights are not known."""

COOKIE = "jobboard_form"

TRIES, TRY_SECONDS = 10, 60
"""The number of wrong passwords that an address may give, and the seconds after which it may give one more."""

ALL_TRIES, ALL_SECONDS = 100, 6
"""The same of all addresses together. Each address that has given the right password is exempt."""

KNOWN = 1_000
"""The number of addresses that are exempt."""

_SEED = re.compile(r"[\w-]{43}", re.ASCII)


def plain(said: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
    """Return a page of one sentence."""
    return HTMLResponse(PLAIN.format(escape(said)), status, {**HEADERS, **(headers or {})})


def seed_of(request: Request) -> str:
    """Return the random text of a browser, from its cookie, or a new one."""
    seed = request.cookies.get(COOKIE, "")
    return seed if _SEED.fullmatch(seed) else runtime.secrets.token_urlsafe(32)


def token_of(seed: str) -> str:
    """Return the token of a browser's forms. No secret of the server is in it: any process accepts the token."""
    return hashlib.sha256(b"jobboard form " + seed.encode()).hexdigest()


def refusal(request: Request, form: Mapping[str, list[str]], origins: Collection[str]) -> str | None:
    """Return the reason why a form is refused; None if a page of this site has sent it."""
    if not _is_own(request, origins):
        return (
            "the form was sent from another site; behind a proxy that changes Host, name the page's address as origin"
        )
    given, seed = (form.get("token") or [""])[0], request.cookies.get(COOKIE, "")
    if not _SEED.fullmatch(seed) or not hmac.compare_digest(given.encode(), token_of(seed).encode()):
        return "the form is out of date, or cookies are off: go back, reload the page and try again"
    return None


def _is_own(request: Request, origins: Collection[str]) -> bool:
    """Return whether a page of this site has sent the form. A client that says nothing about it is no browser."""
    origin = request.headers.get("origin", "")
    if origin in origins:
        return True
    # Browsers send it to loopback and over https alone.
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    return bool(origin) and _split(origin)[1] == request.headers.get("host", "")


def is_loopback(host: str) -> bool:
    """Return whether a name or an address stands for this machine alone."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class PasswordCheck:
    """A password, and the addresses that have given wrong ones: in memory, until they may give as many again.

    An address that has once given the right password is known. No guesses from other addresses make it wait.
    """

    def __init__(self, password: str) -> None:
        self._password = password.encode()
        self._lock = runtime.Lock()
        # The second at which an address has all its tries again, and its last wrong password. None: all addresses.
        self._failed: dict[str | None, tuple[int, bytes]] = {}
        self._known: dict[str, None] = {}

    def wait(self, host: str, given: str) -> int | None:
        """Return None for the right password, else the seconds until the address of a host may give one.

        A wrong password that is given again, as by an open page after a change of the password, counts once.
        """
        now, address, digest = int(runtime.monotonic()), _network(host), hashlib.sha256(given.encode()).digest()
        limits = {address: (TRIES, TRY_SECONDS), None: (ALL_TRIES, ALL_SECONDS)}
        with self._lock:
            self._failed = {each: failed for each, failed in self._failed.items() if failed[0] > now}
            full = {each: self._failed.get(each, (now, b""))[0] for each in limits}
            waits = {each: full[each] - (tries - 1) * seconds - now for each, (tries, seconds) in limits.items()}
            wait = waits[address] if address in self._known else max(waits.values())
            if wait > 0:
                return wait
            if hmac.compare_digest(given.encode(), self._password):
                self._known[address] = None
                if len(self._known) > KNOWN:
                    del self._known[next(iter(self._known))]
                return None
            if self._failed.get(address, (0, b""))[1] != digest:
                self._failed |= {each: (full[each] + seconds, digest) for each, (_, seconds) in limits.items()}
            return 0


def _network(host: str) -> str:
    """Return the network of a client: one computer has all addresses of an IPv6 network of 64 bits."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return ""
    address = getattr(address, "ipv4_mapped", None) or address
    return str(ipaddress.ip_network((int(address), 64), strict=False) if address.version == 6 else address)


def standalone(level: Level, password: str | None) -> Callable[[Request], Answer]:
    """Return the ``authorize`` of ``jobboard web``.

    :param password: None for a page on loopback, which is then shown under names of loopback alone. A page of another
        site may let its own name lead to 127.0.0.1, and the browser would take this page for a part of that site.
    """

    check = PasswordCheck(password or "")

    def authorize(request: Request) -> Answer:
        if password is None:
            host = _split(f"//{request.headers.get('host', '')}")[0]
            if not is_loopback(host):
                return plain("Open this page by its own address, such as http://127.0.0.1.", 421)
            return level
        user, given = _credentials(request)
        # A browser asks without a password first.
        wait = check.wait("" if request.client is None else request.client.host, given) if given else 0
        if wait:
            return plain("Too many wrong passwords: try again later.", 429, {"Retry-After": f"{wait}"})
        if wait is not None:
            asks = {"WWW-Authenticate": 'Basic realm="jobboard", charset="UTF-8"'}
            return plain("A password is needed.", 401, asks)
        return (level, user) if user else level

    return authorize


def _split(address: str) -> tuple[str, str]:
    """Return the name of the host, and the name with the port; empty for an address that is none."""
    try:
        parts = urlsplit(address)
        return parts.hostname or "", parts.netloc
    except ValueError:
        return "", ""


def _credentials(request: Request) -> tuple[str, str]:
    kind, _, given = request.headers.get("authorization", "").partition(" ")
    try:
        user, _, password = base64.b64decode(given, validate=True).decode().partition(":")
    except ValueError:
        return "", ""
    return (user[:100], password) if kind.lower() == "basic" else ("", "")
