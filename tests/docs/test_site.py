"""The built manual: no warning, no dead link, no lost name, and no page that is wider than its screen."""

from __future__ import annotations

import contextlib
import functools
import html
import http.server
import importlib
import json
import re
import shutil
import subprocess
import sys
import threading
import urllib.parse
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from sphinx.util.inventory import InventoryFile

import jobboard
from tests.support.members import OF_BOARDS, OF_JOBS

# The site is built once: its tests run in one process, one after the other.
pytestmark = [pytest.mark.backends("sqlite"), pytest.mark.xdist_group("site"), pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
MODULES = (
    "jobboard",
    "jobboard.aio",
    "jobboard.conductor",
    "jobboard.moving",
    "jobboard.orm",
    "jobboard.taskloop",
    "jobboard.web",
)
ALIASES = {"Moment", "DoLoop", "DEFAULT_ID_TYPE", "DEFAULT_STORAGE_ENGINE", "ONE_DAY", "ONE_HOUR", "ONE_WEEK"}
"""Names of ``jobboard.taskloop`` that only programs written for doloop use, and a type."""
WIDTHS = (1280, 390)
PAGES = (
    "index.html",
    "start/tutorial.html",
    "howto/unique.html",
    "howto/limits.html",
    "coming-from/celery.html",
    "production/runbook.html",
    "backends/postgresql.html",
    "reference/cli.html",
    "reference/options.html",
    "reference/python/boards.html",
    "reference/python/claims.html",
    "reference/python/stores.html",
    "proof/promises.html",
    "proof/speed.html",
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of the site, and what Sphinx has complained of."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-n", "-q", "-j", "2", "-b", "html", "-d", folder / "trees"]
    done = subprocess.run(
        [*command, ROOT / "docs", folder / "html"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return folder / "html", done.stderr


@pytest.fixture(scope="module")
def site(built: tuple[Path, str]) -> Path:
    return built[0]


def test_the_build_has_no_warning(built: tuple[Path, str]) -> None:
    """A page in no toctree, a name that no page documents and a name that two pages document are warnings, too."""
    assert built[1] == ""


class Links(HTMLParser):
    """The ids and the links of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            if ((name == "href" and tag == "a") or name == "src") and value:
                self.links.add(value)


def dead(site: Path) -> list[str]:
    """The links within the site that lead nowhere."""
    pages = {path: Links(path.read_text()) for path in site.rglob("*.html")}
    found = []
    for path, page in pages.items():
        for link in sorted(page.links):
            url = urllib.parse.urlsplit(link)
            if url.scheme or url.netloc:
                continue
            target = (path.parent / urllib.parse.unquote(url.path)).resolve() if url.path else path
            anchor = urllib.parse.unquote(url.fragment)
            if not target.exists() or (anchor and target in pages and anchor not in pages[target].ids):
                found.append(f"{path.relative_to(site)}: {link}")
    return found


def test_no_link_is_dead(site: Path) -> None:
    assert dead(site) == []


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<a href="b.html#here"></a><a href="b.html#there"></a><a href="c.html"></a>')
    (tmp_path / "b.html").write_text('<p id="here">')
    assert dead(tmp_path) == ["a.html: b.html#there", "a.html: c.html"]


def titles(path: Path) -> list[str]:
    found = re.findall(r"<h[1-6]>(.*?)<a class=\"headerlink\"", path.read_text(), re.DOTALL)
    return [html.unescape(re.sub(r"<[^>]+>", "", title)).strip().casefold() for title in found]


def test_no_two_pages_share_a_title(site: Path) -> None:
    """And no two sections of a page."""
    pages = {
        path: titles(path) for path in site.rglob("*.html") if path.stem not in ("genindex", "search", "py-modindex")
    }
    first = Counter(found[0] for found in pages.values() if found)
    assert len(first) > 50
    assert [title for title, count in first.items() if count > 1] == []
    twice = [
        f"{path.relative_to(site)}: {title}"
        for path, found in pages.items()
        for title, count in Counter(found).items()
        if count > 1
    ]
    assert twice == []


@pytest.mark.rule("The reference lists every option, verb and attribute.")
def test_every_public_name_is_documented(site: Path) -> None:
    with (site / "objects.inv").open("rb") as file:
        inventory = InventoryFile.load(file, "", lambda base, uri: uri)
    documented = {name for kind, names in inventory.items() if kind.startswith("py:") for name in names}
    short = {name.rpartition(".")[2] for name in documented}
    public = {name for module in MODULES for name in importlib.import_module(module).__all__} - ALIASES
    assert sorted(public - short) == []
    for cls, inner in ((jobboard.JobBoard, OF_BOARDS), (jobboard.Job, OF_JOBS), (jobboard.Claim, OF_JOBS)):
        members = {name for name in dir(cls) if not name.startswith("_")} - inner
        path = f"{cls.__module__}.{cls.__qualname__}"
        # The owner's name and token are read by bridges.
        assert {name for name in members if f"{path}.{name}" not in documented} <= {"who", "token"}, cls


# Looks


def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert found, "there is no chromium: install the package chromium"
    return found


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


HARNESS = """<!doctype html><body><pre id="out"></pre><script>
const cases = %s, out = [];
async function measure([page, width]) {
  const frame = document.createElement("iframe");
  frame.style.cssText = `width:${width}px;height:900px;border:0`;
  const loaded = new Promise(resolve => frame.onload = resolve);
  frame.src = page;
  document.body.append(frame);
  await loaded;
  const root = frame.contentDocument.documentElement;
  const beyond = [];
  for (const each of frame.contentDocument.querySelectorAll("article *")) {
    const box = each.getBoundingClientRect();
    // What scrolls by itself, and what a drawer holds, is no overflow.
    let held = each.parentElement;
    while (held && held.tagName != "ARTICLE" && !["auto", "scroll", "hidden"].includes(
        frame.contentWindow.getComputedStyle(held).overflowX)) held = held.parentElement;
    if (box.width && box.right > root.clientWidth + 1 && held && held.tagName == "ARTICLE")
      beyond.push(each.tagName + ": " + each.textContent.trim().slice(0, 60));
  }
  out.push([page, width, root.scrollWidth, root.clientWidth, beyond.slice(0, 3)]);
  frame.remove();
}
(async () => {
  for (const each of cases) await measure(each);
  document.getElementById("out").textContent = JSON.stringify(out);
  document.title = "done";
})();
</script>"""


def measured(folder: Path, pages: tuple[str, ...], scratch: Path) -> list[tuple[str, int, int, int, list[str]]]:
    """The width of each page, and that of its window, in headless Chromium."""
    cases = [(page, width) for page in pages for width in WIDTHS]
    (folder / "harness.html").write_text(HARNESS % json.dumps(cases))
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={scratch}"]
    with served(folder) as address:
        done = subprocess.run(
            [chromium(), *options, "--virtual-time-budget=120000", "--dump-dom", f"{address}/harness.html"],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    (folder / "harness.html").unlink()
    found = re.search(r'<pre id="out">(.+?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr
    return [tuple(each) for each in json.loads(html.unescape(found[1]))]


def wide(found: list[tuple[str, int, int, int, list[str]]]) -> list[str]:
    return [
        f"{page} at {width} pixels: {inner} in {outer}, {beyond}"
        for page, width, inner, outer, beyond in found
        if inner > outer or beyond
    ]


def test_no_page_is_wider_than_its_screen(site: Path, tmp_path: Path) -> None:
    found = measured(site, PAGES, tmp_path)
    assert len(found) == len(PAGES) * len(WIDTHS)
    assert wide(found) == []


def test_a_wide_page_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "a.html").write_text("<!doctype html><article><p style='width:1000px'>wide</p></article>")
    (folder / "b.html").write_text(
        "<!doctype html><article><div style='overflow-x:auto'><p style='width:2000px'>wide</p></div></article>"
    )
    told = wide(measured(folder, ("a.html", "b.html"), tmp_path / "chromium"))
    assert len(told) == 1
    assert told[0].startswith("a.html at 390 pixels")
