"""What Chromium makes of the page: access for all, hostile texts, outages, and hands that live updates leave alone."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from starlette.responses import HTMLResponse

import jobboard
from jobboard import Entity, reading
from jobboard.testing import eventually
from jobboard.testing.requests import POSTS, requests
from jobboard.web import app
from jobboard.web.guard import standalone
from tests.full import FULL
from tests.web.browser import Browser
from tests.web.chromium import Window, served
from tests.web.conftest import OpenWindow
from tests.web.test_pages import PAGES

pytestmark = [pytest.mark.xdist_group("chromium"), pytest.mark.backends("sqlite")]

HOSTILE = (
    "<script src=https://evil.example/x.js></script><img src=https://evil.example/ onerror=alert(1)>"
    "\"'><a href=javascript:alert(2)>{{7*7}}</a></title></textarea><svg onload=alert(3)>"
)
SHORTER = "<img src=//evil.example onerror=alert(1)>\"'>"


@pytest.fixture
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readings of a board follow each other closely."""
    monkeypatch.setattr(reading, "PARTS", {name: part._replace(interval=0.05) for name, part in reading.PARTS.items()})


def fill(address: str, home: str) -> None:
    looking = Browser(address)
    eventually(lambda: json.loads(looking.get(f"{home}/state").body)["complete"])


def busy(board: Any, text: str = "resize") -> list[Any]:
    """Have something on each page. Return a job of each state."""
    short = text[:200].replace("\n", " ").strip()
    trashed, waiting = board.post_many([{"name": short, "group": short, "details": {text: text}}] * 2)
    board.trash(board.claim(trashed, short).job, short, reason=text)
    running = board.post("running", details={"a": text})
    board.claim(running, short, expiry=600)
    running.note(text[:100], percent=50, checkpoint={"a": text}, flush=True)
    done = board.post("done", details={"a": text})
    board.claim(done, short)
    board.consume(done, short, result={"a": text})
    delayed = board.post(short, key=short, delay=600)
    board.pause([short])
    board.set_limit(short, concurrency=1, rate=(2, 60))
    board.schedule(short, cron="0 3 * * *", name=short, key=short, details={"a": text})
    hanging = [{"uuid": running.uuid, "name": text, "since": 1.0}]
    told = {"host": text, "pid": text, "names": [text], "hung": 1, "running": 1, "slots": 4, "hanging": hanging}
    board.register_entity(Entity("conductor", short, told))
    board.register_entity(Entity("other", short, {}))
    return [trashed, waiting, running, done, delayed]


SCREENS = [(1280, "light"), (390, "dark"), (390, "light"), (1280, "dark")]


@pytest.mark.rule("axe finds nothing on any page of the web page.")
@pytest.mark.usefixtures("_at_once")
@pytest.mark.timeout(300)
def test_axe_finds_nothing(board: Any, home: str, window: OpenWindow) -> None:
    found: dict[str, list[str]] = {}
    turns = itertools.cycle(SCREENS)

    def look(window: Window, what: str) -> None:
        # Each page of a normal run on one screen, and each kind of page on several.
        for width, scheme in SCREENS if FULL else [next(turns)]:
            window.page.set_viewport_size({"width": width, "height": 800})
            window.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            wide = window.page.evaluate("document.documentElement.scrollWidth - innerWidth")
            for each in [*window.axe(), *(["wider than the screen"] if wide > 0 else [])]:
                found.setdefault(f"{what}, {width}, {scheme}", []).append(each)

    with served(app([board, ("far", "redis://127.0.0.1:1/0")], authorize=lambda request: "act")) as address:
        seen = window(address)
        fill(address, home)
        for page in PAGES:
            seen.open(home + page)
            look(seen, f"empty {page}")
        jobs = busy(board, "OSError: [Errno 28] No space left on device: '/srv/images/0001.jpg'\n" * 2)
        many = board.post_many([{"name": "thumbnail"}] * 60)
        board.act("cancel", many, reason="Traceback (most recent call last):\n  File x\nOSError: disk 7 is full")
        eventually(lambda: "Purge all" in seen.open(f"{home}/trash") and "disk 7" in seen.open(f"{home}/"))
        for page in ("/", *(home + page for page in PAGES), *(f"{home}/jobs/{job.uuid}" for job in jobs)):
            seen.open(page)
            look(seen, page)
        for page in ("/jobs?name=none", "/jobs?group=a&key=b", f"/trash?cause={quote('OSError: disk … is full')}", "/x",
                     "/jobs/none", "/jobs?after=x"):  # fmt: skip
            seen.open(home + page)
            look(seen, page)
        seen.open(f"{home}/trash")
        seen.press("Purge all…")
        look(seen, "a confirmation")
        seen.open(f"{home}/jobs/{jobs[0].uuid}")
        seen.press("Restore")
        look(seen, "a sentence")
        seen.page.keyboard.press("?")
        look(seen, "keys")
        seen.open("/far/")
        eventually(lambda: "The board is away." in seen.open("/far/"))
        for page in PAGES:
            seen.open(f"/far{page}")
            look(seen, f"away {page}")
        assert seen.faults == []
    with served(app(board, authorize=lambda request: "look")) as address:
        seen = window(address)
        for page in ("/", "/trash", "/limits", "/schedules"):
            seen.open(home + page)
            look(seen, f"look only {page}")
    assert found == {}


@pytest.mark.rule("No text of a job is markup of the page, and no character of it acts unseen.")
@pytest.mark.usefixtures("_at_once")
def test_hostile_texts_do_nothing(board: Any, home: str, window: OpenWindow) -> None:
    jobs = busy(board, HOSTILE)
    with served(app(board, authorize=lambda request: ("act", HOSTILE))) as address:
        seen = window(address)
        fill(address, home)
        text = quote(HOSTILE)
        names = ("name", "error", "group", "key", "owner", "cause", "state", "after")
        asked = [f"/jobs?{name}={text}" for name in names]
        asked += [f"/trash?cause={text}", f"/done?name={text}", f"/jobs/{text}", f"/{text}", f"/state?job={text}"]
        for page in [*PAGES, *(f"/jobs/{job.uuid}" for job in jobs), *asked]:
            seen.open(home + page)
            assert seen.page.locator("svg[onload], img, a[href^='javascript']").count() == 0
            assert "49" not in seen.page.title()
        seen.open(f"{home}/jobs/{jobs[1].uuid}")
        seen.press("Cancel…")
        seen.page.fill("[name=why]", HOSTILE)
        assert "1 job cancelled." in seen.press("Cancel this job")
        # Forms whose hidden fields somebody has changed.
        for name in ("back", "search", "act", "job", "reason", "by", "place", "count", "why"):
            seen.open(f"{home}/trash")
            seen.page.evaluate(
                """([name, value]) => { const form = document.querySelector("form:has([data-list])");
                form.insertAdjacentHTML("afterbegin", `<input name="${name}"><input name=act value=purge>`);
                form.querySelector("input").value = value; form.querySelector("[name=job]").checked = true; }""",
                [name, "javascript:alert(1)" if name == "back" else HOSTILE],
            )
            with seen.page.expect_navigation():
                seen.page.evaluate("document.querySelector('form:has([data-list])').submit()")
            assert seen.page.locator("a[href^='javascript']").count() == 0
        seen.open(f"{home}/limits")
        seen.page.locator("form", has_text="Pause").locator("[name=name]").last.fill(HOSTILE)
        seen.press("Pause")
        assert seen.faults == []


def watch(window: Window, path: str) -> None:
    """Open a page whose clock the test drives."""
    window.page.clock.install()
    window.open(path)


PLACES = """() => ({scroll: scrollY, open: document.querySelectorAll("details[open]").length,
    at: document.activeElement.outerHTML.slice(0, 80), chosen: String(getSelection()),
    top: document.querySelector("[data-mark]")?.getBoundingClientRect().top,
    left: document.querySelector("[data-mark]")?.getBoundingClientRect().left})"""


@pytest.mark.rule("Live updates never move what a hand is on.")
@pytest.mark.usefixtures("_at_once")
def test_live_updates_leave_hands_alone(board: Any, home: str, window: OpenWindow) -> None:
    job = board.post("resize", max_attempts=9, details={"lines": list(range(300))})
    for _ in range(3):
        claim = board.claim(job, "anna")
        claim.abandon(error="Traceback (most recent call last):\n  File x\nOSError: disk 7 is full")
    with served(app(board, authorize=lambda request: "act")) as address:
        fill(address, home)
        seen = window(address)
        page = seen.page
        watch(seen, f"{home}/")
        # The number of changes makes sure that the page was read anew.
        figure = page.locator(".figure.trash .value")
        count = [0]

        def change() -> None:
            count[0] += 1
            board.act("cancel", board.post_many([{"name": f"name{count[0]}"}] * 7), reason=f"cause {count[0]}")
            board.post_many([{"name": f"other{count[0]}"}] * 50)

        def held(mark: str) -> None:
            """Change the board, and compare the places before and after."""
            page.evaluate("(mark) => document.querySelector(mark).dataset.mark = ''", mark)
            before = page.evaluate(PLACES)
            change()
            seen.until(lambda: page.locator("nav [data-count=trash]").inner_text() == str(7 * count[0]))
            seen.beat()
            assert page.evaluate(PLACES) == before

        # Untouched, the page follows.
        change()
        seen.until(lambda: figure.inner_text() == "7" and "cause 1" in seen.text)
        link = page.locator("#p-names tbody a").first
        link.hover()
        held("#p-names tbody a")
        page.mouse.move(0, 0)
        link.focus()
        held("#p-names tbody a")
        page.locator("body").click(position={"x": 5, "y": 5})
        # Chosen text.
        page.evaluate("getSelection().selectAllChildren(document.querySelector('#p-head h1'))")
        held("#p-head h1")
        page.evaluate("getSelection().removeAllRanges()")
        # A pointer on its way to a page of the head.
        page.locator("nav.pages a", has_text="Done").hover()
        before = page.locator("nav.pages a", has_text="Done").bounding_box()
        board.act("cancel", board.post_many([{"name": "wide"}] * 1000), reason="many")
        seen.beat()
        seen.until(lambda: figure.inner_text().startswith("1"))
        assert page.locator("nav.pages a", has_text="Done").bounding_box() == before

        # A list: chosen jobs and typed words.
        watch(seen, f"{home}/jobs")
        page.locator("[name=job]").nth(2).check()
        page.locator("summary", has_text="More").click()
        page.locator(".filters [name=group]").fill("customer")
        before = page.evaluate(PLACES)
        change()
        for _ in range(3):
            seen.beat()
        assert page.evaluate(PLACES) == before
        assert page.locator("[name=job]").nth(2).is_checked()
        assert page.locator(".filters [name=group]").input_value() == "customer"

        # A job: opened errors, and a scrolled text.
        watch(seen, f"{home}/jobs/{job.uuid}")
        opened = "[...document.querySelectorAll('#p-steps details')].map((each) => each.open)"
        assert page.evaluate(opened) == [False, False, True]
        page.locator("#p-steps summary").last.click()
        page.locator("#p-steps summary").first.click()
        page.mouse.move(0, 0)
        version = page.evaluate("document.body.dataset.version")
        claim = board.claim(job, "bert", expiry=600)
        seen.until(lambda: page.evaluate("document.body.dataset.version") != version)
        assert "running on bert" in seen.text
        assert page.get_by_text("Copy").is_visible()
        assert page.evaluate(opened) == [True, False, False]
        assert page.evaluate("document.activeElement === document.querySelector('#p-steps summary')")
        # Chosen text below a part that would grow.
        page.evaluate("getSelection().selectAllChildren(document.querySelector('#p-details h2'))")
        place = page.locator("#p-details h2").bounding_box()
        claim.abandon(error="OSError: disk 8 is full")
        told = Browser(address)
        eventually(lambda: "UNCLAIMED" in (told.get(f"{home}/state?job={job.uuid}").body))
        for _ in range(3):
            seen.beat()
        assert page.locator("#p-details h2").bounding_box() == place
        page.evaluate("getSelection().removeAllRanges()")
        seen.until(lambda: "disk 8 is full" in seen.text)
        claim = board.claim(job, "bert", expiry=600)
        seen.until(lambda: "Attempt 5 is running on bert" in seen.text)
        page.evaluate("document.querySelector('#p-details pre').scrollTop = 50")
        version = page.evaluate("document.body.dataset.version")
        claim.note("half", percent=50, flush=True)
        seen.until(lambda: page.evaluate("document.body.dataset.version") != version)
        assert "50 %" in seen.text
        assert page.evaluate("document.querySelector('#p-details pre').scrollTop") == 50
        assert seen.faults == []


@pytest.mark.rule("A form of the page acts once, however often its button is clicked before the answer.")
def test_a_double_click_acts_once(board: Any, home: str, window: OpenWindow) -> None:
    job = board.post("resize")
    board.cancel(job, reason="disk 7 is full")
    board.schedule("nightly", cron="0 3 * * *", name="report")
    with served(app(board, authorize=lambda request: "act")) as address:
        seen = window(address)
        page = seen.page

        def click_twice(button: str) -> None:
            posts, go = threading.Event(), threading.Event()

            def wait() -> None:
                posts.set()
                assert go.wait(30)

            box = page.locator("main button", has_text=button).bounding_box()
            assert box is not None
            place = box["x"] + 5, box["y"] + 5
            with requests(board).before(POSTS, wait), page.expect_navigation():
                page.mouse.click(*place)
                assert posts.wait(30)
                page.mouse.click(*place)
                go.set()

        seen.open(f"{home}/jobs/{job.uuid}")
        seen.press("Post again…")
        click_twice("Post this job again")
        seen.see("1 job posted again.")
        seen.open(f"{home}/schedules")
        click_twice("Post now")
        seen.see("Posted Job")
        # A form that comes back with the button for going back is good again.
        page.go_back()
        page.locator("main button", has_text="Pause").click()
        seen.see("is paused.")
    assert sorted(each.name for each in board.find(states=["UNCLAIMED"])) == ["report", "resize"]


@pytest.mark.rule("A board that is away keeps its last look.")
def test_every_page_of_a_board_that_goes_away_and_comes_back(
    home: str,
    window: OpenWindow,
    private_server: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = private_server("redis")
    conf = {"board": server.uri, "namespace": "away", "retry_for": 0.3}
    with jobboard.backend("board", conf) as board, served(app(board, authorize=lambda request: "act")) as address:
        board.post_many([{"name": "resize"}] * 3)
        fill(address, home)
        seen = window(address)
        page, banner = seen.page, seen.page.locator("#banner")
        page.clock.install()
        seen.open(f"{home}/")
        lists = window(address)
        lists.page.clock.install()
        lists.open(f"{home}/jobs")
        lists.page.locator("[name=job]").first.check()
        place = lists.page.locator("[name=job]").first.bounding_box()
        # A slow server is not away.
        server.pause()
        seen.beat()
        assert not banner.is_visible()
        server.resume()
        seen.until(lambda: "3 jobs wait" in seen.text)
        assert not banner.is_visible()
        server.kill()
        seen.until(lambda: banner.is_visible() and "These are the figures of" in banner.inner_text())
        lists.until(lambda: lists.page.locator("#banner").is_visible())
        assert lists.page.locator("[name=job]").first.bounding_box() == place
        seen.until(lambda: "Not known while the board is away." in seen.text)
        for words in ("No conductor runs", "The trash is empty", "Nothing waits"):
            assert words not in seen.text
        gone = window(address)
        gone.page.clock.install()
        for path in ("/", "/conductors", "/trash", "/done", "/schedules", "/limits", "/jobs"):
            text = gone.open(home + path)
            assert "The board is away." in text
            for words in ("conductor runs", "trash is empty", "There are no", "No outcome", "Nothing waits", "No job "):
                assert words not in text
        server.start()
        # An open page comes back by itself.
        gone.until(lambda: "Waiting 3" in gone.text)
        seen.until(lambda: not banner.is_visible())
        lists.until(lambda: not lists.page.locator("#banner").is_visible())
        assert lists.page.locator("[name=job]").first.is_checked()
        board.post("thumbnail")
        seen.until(lambda: "4 jobs wait" in seen.text)
        assert [*seen.faults, *lists.faults, *gone.faults] == []


@pytest.mark.rule("Whoever looks at a board that hangs learns within seconds how old the figures are.")
def test_an_open_page_of_a_board_that_hangs_is_not_live(
    home: str, window: OpenWindow, private_server: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "SILENT", 0.5)
    server = private_server("redis")
    conf = {"board": server.uri, "socket_timeout": 60}
    with jobboard.backend("board", conf) as board, served(app(board, authorize=lambda request: "act")) as address:
        fill(address, home)
        seen = window(address)
        banner, live = seen.page.locator("#banner"), seen.page.locator("[data-live-button]")
        seen.page.clock.install()
        seen.open(f"{home}/")
        assert "off" not in (live.get_attribute("class") or "")
        server.pause()
        seen.until(banner.is_visible)
        assert "has not answered for" in banner.inner_text()
        assert "These are the figures of" in banner.inner_text()
        assert "off" in (live.get_attribute("class") or "")
        server.resume()
        seen.until(lambda: not banner.is_visible())
        assert "off" not in (live.get_attribute("class") or "")


@pytest.mark.rule("An open form of the page stays good after a restart of its server, and at any of its processes.")
def test_a_restarted_page_keeps_open_forms(
    board: Any,
    home: str,
    window: OpenWindow,
) -> None:
    job = board.post("resize")
    board.cancel(job, reason="disk 7 is full")
    with served(app(board, authorize=lambda request: "act")) as address:
        seen = window(address)
        seen.page.clock.install()
        seen.open(f"{home}/jobs/{job.uuid}")
    seen.until(lambda: "The server of this page does not answer." in seen.text)
    with served(app(board, authorize=lambda request: "act"), int(address.rpartition(":")[2])):
        seen.until(lambda: "does not answer" not in seen.text)
        assert "1 job restored." in seen.press("Restore")
    assert job.state == "UNCLAIMED"


EVIL = """<form method=post action="{0}/act"><input name=act value=restore><input name=job value="{1}:{2}">
<input name=state value=trash><input name=token value=""></form><img src="{0}/act?act=restore&job={1}:{2}&sure=1">
<iframe src="{0}/trash"></iframe>"""

EVIL_SCRIPT = """async (address) => {
    const said = [];
    for (const mode of ["cors", "no-cors"]) for (const credentials of ["include", "omit"]) {
        const body = new URLSearchParams(new FormData(document.querySelector("form")));
        said.push(await fetch(address, {method: "POST", mode, credentials, body}).then((r) => r.type, () => "refused"));
    }
    return said;
}"""


@pytest.mark.rule("The page refuses a form that no page of its own has sent.")
def test_a_page_of_another_site_changes_nothing(board: Any, home: str, window: OpenWindow) -> None:
    """Of another name, and of another port of this machine, whose pages get the cookie of the form."""
    job = board.post("resize")
    board.cancel(job, reason="disk 7 is full")
    with served(app(board, authorize=standalone("act", None))) as address:
        seen = window(address)
        page = seen.page
        seen.open(f"{home}/trash")
        evil = HTMLResponse(EVIL.format(address + home, job.uuid, job.token))
        with served(evil) as elsewhere:
            port = elsewhere.rpartition(":")[2]
            for other in (elsewhere, f"http://localhost:{port}", f"http://evil.example:{port}"):
                page.goto(other)
                assert page.evaluate(EVIL_SCRIPT, f"{address}{home}/act") == ["refused"] * 4
                [frame] = [each for each in page.frames if each is not page.main_frame]
                assert "Restore" not in frame.content()
                with page.expect_navigation():
                    page.evaluate("document.querySelector('form').submit()")
                assert "Nothing was changed: the form was sent from another site" in seen.text
        # A name of another site that leads to this machine.
        page.goto(f"http://evil.example:{address.rpartition(':')[2]}{home}/trash")
        assert "Open this page by its own address" in seen.text
        assert job.state == "TRASHED"
        assert "1 job restored." in (seen.open(f"{home}/jobs/{job.uuid}") and seen.press("Restore"))
