"""Visits: one request to a page, and the site that it belongs to."""

from __future__ import annotations

import re
import zlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlencode

import jinja2
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from jobboard.backends import fetch
from jobboard.board import JobBoard
from jobboard.reading import BoardLook, BoardReader
from jobboard.web import guard, text

Conf = str | Mapping[str, Any]
Authorize = Callable[[Request], guard.Answer | Awaitable[guard.Answer]]

HERE = Path(__file__).parent
STATIC = {"web.css": "text/css", "web.js": "text/javascript", "icon.svg": "image/svg+xml"}
"""The static files, and their types."""

PATIENCE = 2.0
"""The ``retry_for`` of boards that are given as configurations: an outage shows soon."""

SAID = "jobboard_said"
"""The cookie of the sentence that the next page shows."""


class Site:
    """The boards of an application, each under a part of its addresses, and the rules for all of them."""

    def __init__(
        self,
        boards: Iterable[JobBoard | tuple[str, Conf]],
        authorize: Authorize,
        details: Callable[[Any, Any], Any],
        origins: Iterable[str],
    ) -> None:
        self.authorize, self.details, self.origins = authorize, details, frozenset(origins)
        self.readers = dict(_named(map(_opened, boards)))
        self.busy = 0
        if not self.readers:
            raise ValueError("boards is empty: the page needs one")
        self.templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.templates.filters |= {
            name: getattr(text, name) for name in ("inert", "listed", "number", "plain", "took", "words")
        }
        self.templates.globals |= {"plural": text.plural, "longest": text.LONGEST}
        # An address of static files is kept for ever, and a new version has a new one.
        self.version = f"{zlib.crc32(b''.join((HERE / 'static' / name).read_bytes() for name in STATIC)):x}"


def _opened(board: JobBoard | tuple[str, Conf]) -> BoardReader:
    if isinstance(board, JobBoard):
        return BoardReader(board, connects=board.closed)
    match board:
        case (str() as name, str() | Mapping() as conf):
            pass
        case _:
            raise TypeError(f"boards: must be boards, or pairs of a name and a configuration, not {board!r}")
    options = {"board": conf} if isinstance(conf, str) else conf
    return BoardReader(fetch(name, {"retry_for": PATIENCE, **options}), connects=True)


def _named(readers: Iterable[BoardReader]) -> Iterator[tuple[str, BoardReader]]:
    """Yield readers with names that fit into an address."""
    taken = {"static", ""}
    for reader in readers:
        slug = re.sub(r"[^A-Za-z0-9._-]+", "-", reader.board.name).strip(".-") or "board"
        while slug in taken:
            slug += "-2"
        taken.add(slug)
        yield slug, reader


class Visit:
    """One request: its board and the look at it, its visitor's rights, and the addresses and forms of its page."""

    def __init__(self, site: Site, request: Request, form: Mapping[str, list[str]]) -> None:
        self.site, self.request, self.form = site, request, form
        self.slug: str = request.path_params.get("board", "")
        self.may_act, self.who = False, "a visitor of the page"
        self.seed = guard.seed_of(request)
        self.root = request.scope.get("root_path", "").rstrip("/")
        self.said = unquote(request.cookies.get(SAID, ""))
        self.look = BoardLook()

    @property
    def reader(self) -> BoardReader:
        return self.site.readers[self.slug]

    @property
    def board(self) -> JobBoard:
        self.reader.connect()
        return self.reader.board

    @property
    def here(self) -> str:
        """The address of this page."""
        query = self.request.url.query
        return quote(self.request.url.path) + (f"?{query}" if query else "")

    @property
    def trouble(self) -> str:
        """The reason why the board can't be read, with the age of the figures; empty if it can."""
        if self.look.trouble is None:
            return ""
        age = self.look.age()
        seen = "" if age is None else f" These are the figures of {text.words(age)} ago."
        return f"{str(self.look.trouble).removesuffix('.')}.{seen}"

    def url(self, page: str = "", /, **query: Any) -> str:
        """Return the address of a page of the board."""
        given = {name: value for name, value in query.items() if value is not None}
        return f"{self.root}/{quote(self.slug)}/{quote(page)}" + (f"?{urlencode(given)}" if given else "")

    def field(self, name: str) -> str:
        """Return a field of the form."""
        return (self.form.get(name) or [""])[0]

    def fields(self, name: str) -> list[str]:
        """Return all values of a field of the form."""
        return self.form.get(name, [])

    def details(self, job: Any, value: Any) -> str:
        """Return a value of a job as its text on the page."""
        return text.pretty(self.site.details(job, value))

    def render(self, template: str, status: int = 200, **context: Any) -> Response:
        """Return a page."""
        look = self.look
        # Of a board that is away nothing is known since.
        now = look.now if look.trouble is not None else look.now + (look.age() or 0.0)
        page = self.site.templates.get_template(template).render(
            visit=self,
            look=look,
            url=self.url,
            here=self.here,
            ago=lambda when, **how: text.ago(when, now, **how),
            since=lambda when: now - when.timestamp(),
            token=guard.token_of(self.seed),
            theme={"dark": "dark", "light": "light"}.get(self.request.cookies.get("jobboard_theme", ""), ""),
            static=f"{self.root}/static/{self.site.version}",
            **context,
        )
        return HTMLResponse(page, status)

    @property
    def origin(self) -> str:
        """The address of the page that had the form; the overview's instead of an address elsewhere."""
        to = self.field("back")
        return to if to.startswith(self.url()) and "\\" not in to else self.url()

    def back(self, said: str) -> Response:
        """Return to the page that had the form, with a sentence."""
        answer = RedirectResponse(self.origin, 303)
        # A browser keeps 4 KB of a cookie, and an escaped character takes up to twelve.
        answer.set_cookie(SAID, quote(said)[:3000], max_age=30, path=self.root or "/", httponly=True, samesite="strict")
        return answer


View = Callable[[Visit], Response]
