"""A browser with a screen: headless Chromium at a page that a thread serves."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import axe_core_python
import uvicorn
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from jobboard.testing import eventually

AXE = (Path(axe_core_python.__file__).parent / "axe.min.js").read_text()

NAMES = "--host-resolver-rules=MAP *.example 127.0.0.1"
"""Names of other sites that lead to this machine."""

LISTEN = """

document.addEventListener("securitypolicyviolation", (event) => window.reported(`${event.violatedDirective} ${event.blockedURI}`));
"""  # noqa: E501 - a line of script

RUN_AXE = """async () => (await axe.run(document, {resultTypes: ["violations"]})).violations.map(
    (each) => `${each.id}: ${each.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ")}`)"""


@contextlib.contextmanager
def served(application: Any, port: int = 0) -> Iterator[str]:
    """Serve an application on a thread, and yield its address."""
    server = uvicorn.Server(uvicorn.Config(application, log_level="critical", timeout_graceful_shutdown=1))
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", port))
        sock.listen()
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{sock.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()


class Window:
    """A window without a history. ``faults`` has what no page of the application may cause.

    These are violations of its policy, dialogs, errors of scripts, answers of 500, and requests to other servers.
    """

    def __init__(self, context: BrowserContext, address: str) -> None:
        self.context, self.address, self.faults = context, address, list[str]()
        context.expose_function("reported", lambda said: self.faults.append(f"policy: {said}"))
        context.add_init_script(LISTEN)
        context.on("request", self._request)
        context.on("response", self._response)
        context.on("weberror", lambda error: self.faults.append(f"script: {error.error}"))
        self.page: Page = context.new_page()
        self.page.on("dialog", self._dialog)

    def _request(self, request: Any) -> None:
        if not request.url.startswith(self.address):
            self.faults.append(f"request: {request.url}")

    def _response(self, response: Any) -> None:
        if response.status == 500:
            self.faults.append(f"failed: {response.url}")

    def _dialog(self, dialog: Any) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def open(self, path: str) -> str:
        """Open a page, and return its text."""
        self.page.goto(self.address + path)
        return self.text

    @property
    def text(self) -> str:
        """The text of the page in one line."""
        return " ".join(self.page.inner_text("body").replace("\u202f", " ").split())

    def press(self, label: str, within: str = "main", number: int = 0) -> str:
        """Press a button or a link, and return the text of the page that follows."""
        exactly = re.compile(rf"^\s*{re.escape(label)}\s*$")
        with self.page.expect_navigation():
            self.page.locator(f"{within} :is(button, a)").filter(has_text=exactly).nth(number).click()
        return self.text

    def see(self, words: str) -> None:
        """Wait for words on the page."""
        self.page.get_by_text(words).first.wait_for(timeout=20_000)

    def beat(self) -> None:
        """Let the scripts of the page take one look more."""
        self.page.clock.run_for(5_000)

    def until(self, is_so: Callable[[], Any]) -> None:
        """Let the page look until something is so."""

        def seen() -> Any:
            self.beat()
            return is_so()

        eventually(seen, 20)

    def axe(self) -> list[str]:
        """Return the violations that axe finds on the page."""
        self.page.evaluate(AXE)
        found: list[str] = self.page.evaluate(RUN_AXE)
        return found


@contextlib.contextmanager
def launched() -> Iterator[Browser]:
    """Run Chromium. Its event loop is on this thread until the block ends."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    assert path is not None, "tests of the page need Chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", NAMES])
        yield browser
        browser.close()
