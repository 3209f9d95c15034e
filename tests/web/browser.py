"""A browser without a screen: cookies, forms, redirects."""

from __future__ import annotations

import asyncio
import contextlib
import html.parser
import http.client
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode, urlsplit


@dataclass
class Form:
    action: str
    method: str
    fields: list[tuple[str, str]] = field(default_factory=list)
    boxes: list[tuple[str, str]] = field(default_factory=list)
    buttons: dict[str, tuple[str, str]] = field(default_factory=dict)


class _Forms(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[Form] = []
        self._button: tuple[str, str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.found.append(Form(given.get("action", ""), given.get("method", "get")))
        elif tag == "input" and self.found and "name" in given:
            pairs = self.found[-1].boxes if given.get("type") == "checkbox" else self.found[-1].fields
            pairs.append((given["name"], given.get("value", "")))
        elif tag == "button":
            self._button = given.get("name", ""), given.get("value", "")

    def handle_data(self, data: str) -> None:
        if self._button is not None and self.found and data.strip():
            self.found[-1].buttons.setdefault(data.strip(), self._button)

    def handle_endtag(self, tag: str) -> None:
        if tag == "button":
            self._button = None


@dataclass
class Answer:
    status: int
    headers: list[tuple[str, str]]
    body: str

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key == name.lower()), "")

    @property
    def text(self) -> str:
        """The text of the page, without tags, in one line."""
        main = self.body[self.body.find("<body") :]
        text = re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", main))).strip()
        return re.sub(r" ([.,:;?])", r"\1", text)

    @property
    def forms(self) -> list[Form]:
        parser = _Forms()
        parser.feed(self.body)
        return parser.found


class Browser:
    """``browser.get("/board/trash")``, then ``browser.press("Restore", job=1)`` for the first box.

    :param app: an ASGI application, or the address of a server.
    """

    def __init__(self, app: Any, host: str = "127.0.0.1:8080", **headers: str) -> None:
        if isinstance(app, str):
            host = urlsplit(app).netloc
        self.app, self.host, self.headers, self.cookies = app, host, headers, dict[str, str]()
        self.client = "127.0.0.1"
        self.at, self.answer = "/", Answer(0, [], "")

    def request(self, method: str, path: str, body: str = "", **headers: str) -> Answer:
        """Send a request, and return the answer. A header of "" is left out."""
        given = {"host": self.host, "cookie": "; ".join(f"{k}={v}" for k, v in self.cookies.items())}
        if method == "POST":
            given |= {"content-type": "application/x-www-form-urlencoded", "sec-fetch-site": "same-origin"}
        given |= {name.replace("_", "-"): value for name, value in {**self.headers, **headers}.items()}
        answer = (self._over_http if isinstance(self.app, str) else self._in_process)(method, path, body, given)
        for name, value in answer.headers:
            if name == "set-cookie":
                key, _, rest = value.partition("=")
                self.cookies[key] = rest.partition(";")[0].strip('"')
        return answer

    def _in_process(self, method: str, path: str, body: str, given: dict[str, str]) -> Answer:
        url = urlsplit(path)
        scope = {
            "type": "http", "method": method, "path": url.path, "raw_path": quote(url.path).encode(),
            "query_string": url.query.encode(), "root_path": "", "scheme": "http", "server": ("127.0.0.1", 8080),
            "client": (self.client, 5000),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in given.items() if value],
        }  # fmt: skip
        sent: list[Any] = []
        parts = [{"type": "http.request", "body": body.encode(), "more_body": False}]

        async def receive() -> Any:
            return parts.pop() if parts else await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)

        asyncio.run(self.app(scope, receive, send))
        told = [(name.decode(), value.decode()) for name, value in sent[0]["headers"]]
        return Answer(sent[0]["status"], told, b"".join(each.get("body", b"") for each in sent[1:]).decode())

    def _over_http(self, method: str, path: str, body: str, given: dict[str, str]) -> Answer:
        with contextlib.closing(http.client.HTTPConnection(urlsplit(self.app).netloc, timeout=30)) as connection:
            connection.request(method, path, body or None, {name: value for name, value in given.items() if value})
            reply = connection.getresponse()
            told = [(name.lower(), value) for name, value in reply.getheaders()]
            return Answer(reply.status, told, reply.read().decode())

    def get(self, path: str, **headers: str) -> Answer:
        """Open a page, along redirects."""
        self.at, self.answer = path, self.request("GET", path, **headers)
        while self.answer.status in (302, 303, 307):
            self.at = self.answer.header("location").removeprefix(f"http://{self.host}")
            self.answer = self.request("GET", self.at, **headers)
        return self.answer

    def press(self, label: str, job: int | None = None, number: int = 0, **fields: str) -> Answer:
        """Press a button of the page, along redirects.

        :param job: choose the first jobs, so many of them.
        :param number: the number of the form among those with such a button.
        """
        form = [each for each in self.answer.forms if label in each.buttons][number]
        sent = [*form.fields, form.buttons[label], *[box for box in form.boxes if box[0] == "job"][: job or 0]]
        sent = [pair for pair in sent if pair[0] and pair[0] not in fields] + list(fields.items())
        return self.send(form.action, sent)

    def submit(self, **fields: str) -> Answer:
        """Send the first form of the page to its own address, as Enter does in a field."""
        form = self.answer.forms[0]
        kept = [pair for pair in form.fields if pair[0] not in fields]
        return self.send(form.action or self.at, kept + list(fields.items()))

    def send(self, action: str, fields: list[tuple[str, str]], **headers: str) -> Answer:
        """Send a form, along redirects."""
        answer = self.request("POST", action, urlencode(fields), **headers)
        if answer.status in (302, 303):
            return self.get(answer.header("location"))
        self.at, self.answer = action, answer
        return answer
