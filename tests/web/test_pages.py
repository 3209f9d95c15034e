"""The pages of a board: what they show, of a board that is empty, full, hostile or away."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

import jobboard
from jobboard import Entity
from jobboard.exceptions import ConnectionFailure
from jobboard.testing import eventually
from jobboard.testing.requests import requests
from jobboard.web import app, text
from tests.support.ciphers import OLD
from tests.support.clock import set_clock
from tests.web.browser import Browser
from tests.web.conftest import Open

MEMORY = pytest.mark.backends("memory")
PAGES = (
    "/",
    "/jobs",
    "/jobs?state=running",
    "/jobs?state=delayed",
    "/trash",
    "/done",
    "/schedules",
    "/limits",
    "/conductors",
)
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{7*7}}"


def fill(browser: Browser, home: str) -> None:
    """Open the page until its figures are all there."""
    eventually(lambda: json.loads(browser.get(f"{home}/state").body)["complete"])


def test_each_page_of_an_empty_board(browse: Open, home: str) -> None:
    browser = browse()
    fill(browser, home)
    for page, words in zip(
        PAGES,
        (
            "Nothing waits. No conductor runs. Post a first job",
            "No job waits.", "No job runs.", "No job is delayed.", "The trash is empty.", "No outcome is kept.",
            "There are no schedules.", "There are no limits.", "No conductor runs.",
        ),
        strict=True,
    ):  # fmt: skip
        answer = browser.get(home + page)
        assert answer.status == 200
        assert words in answer.text, answer.text


@pytest.mark.rule("All views and acts of the page work on every stored backend, with scripts and without.")
def test_each_page_of_a_board_at_work(board: Any, browse: Open, home: str) -> None:
    failed = board.post("resize", max_attempts=1)
    claim = board.claim(failed, "anna")
    claim.trash(reason="Traceback (most recent call last):\n  File x\nOSError: disk 7 is full")
    done = board.claim_next("anna") if board.post("thumbnail") else None
    board.consume(done, "anna", result={"width": 300})
    board.post("mail", delay=600, group="customer-1")
    running = board.post("index", details={"secret": "sesame"})
    board.claim(running, "bert", expiry=600)
    running.note("step 2 of 4", percent=50, checkpoint={"page": 7}, flush=True)
    board.post("unhandled")
    board.pause(["mail"])
    board.set_limit("index", concurrency=3, rate=(100, 60))
    board.schedule("nightly", cron="0 3 * * *", name="report", tz="Europe/Berlin")
    hanging = [{"uuid": failed.uuid, "name": "resize", "since": 1.0}]
    told = {"names": ["index"], "running": 1, "slots": 4, "hung": 1, "hanging": hanging, "consumed": 12}
    board.register_entity(Entity("conductor", "bert", told))
    browser = browse()
    fill(browser, home)
    overview = browser.get(f"{home}/").text
    for words in (
        "1 job waits, the oldest for", "1 conductor runs 1 job", "bert has 1 handler that hangs.",
        "No conductor handles unhandled", "mail is paused.",
        "1 job lies in the trash. Most often: OSError: disk 7 is full",
    ):  # fmt: skip
        assert words in overview
    assert "index" in browser.get(f"{home}/jobs?state=running").text
    assert "50 % step 2 of 4" in browser.answer.text
    assert "customer-1" in browser.get(f"{home}/jobs?state=delayed").text
    assert "By cause of the newest 1" in browser.get(f"{home}/trash").text
    assert "thumbnail" in browser.get(f"{home}/done").text
    assert "nightly posts report" in browser.get(f"{home}/schedules").text
    assert "3 at once, 100 in 60" in browser.get(f"{home}/limits").text
    assert "1 of 4, 1 hung" in browser.get(f"{home}/conductors").text
    page = browser.get(f"{home}/jobs/{failed.uuid}").text
    for words in ("in the trash", "Attempt 1 gave the job up on anna", "Traceback", "Went to the trash", "1 of 1"):
        assert words in page
    page = browser.get(f"{home}/jobs/{running.uuid}").text
    for words in ("Attempt 1 is running on bert", "50 % step 2 of 4", '"page": 7', "sesame", "fixed, 10 min left"):
        assert words in page
    assert '"width": 300' in browser.get(f"{home}/jobs/{done.uuid}").text
    assert json.loads(browser.get(f"{home}/jobs/{done.uuid}/result.json").body) == {"width": 300}
    assert "attachment" in browser.answer.header("content-disposition")
    mail = next(board.find(names=["mail"]))
    assert "Why it waits" in browser.get(f"{home}/jobs/{mail.uuid}").text


@MEMORY
def test_a_hook_hides_details(board: Any, browse: Open, home: str) -> None:
    job = board.post("login", details={"password": "sesame"})
    browser = browse(details=lambda job, value: {**value, "password": "***"})
    for page in (f"{home}/jobs/{job.uuid}", f"{home}/jobs/{job.uuid}/details.json"):
        assert "***" in browser.get(page).body
        assert "sesame" not in browser.answer.body


@MEMORY
def test_a_page_without_the_cipher_shows_the_rest(make_board: Callable[..., Any], browse: Open) -> None:
    sealed = make_board(cipher=OLD, keep_done=1000)
    job = sealed.post("login", details={"password": "sesame"})
    sealed.claim(job, "anna")
    job.note("halfway", checkpoint={"password": "sesame"}, flush=True)
    bare, able = (Browser(app(make_board(cipher=each), authorize=lambda request: "act")) for each in (None, OLD))
    for page in (f"/{sealed.name}/jobs?state=running", f"/{sealed.name}/jobs/{job.uuid}"):
        assert "encrypted" in bare.get(page).text
        assert "sesame" not in bare.answer.body
    assert "this board can't read it" in bare.answer.text
    assert "sesame" in able.get(page).text
    sealed.consume(job, "anna", result={"password": "sesame"})
    assert "sesame" in able.get(page).text
    assert bare.get(page).status == 200
    assert "sesame" not in bare.answer.body
    assert bare.get(f"{page}/result.json").status == 409


@pytest.mark.rule("No text of a job is markup of the page, and no character of it acts unseen.")
@MEMORY
def test_hostile_texts_are_shown_as_texts(board: Any, browse: Open, home: str) -> None:
    board.register_entity(
        Entity("conductor", HOSTILE, {"host": HOSTILE, "names": [HOSTILE], "hung": 1, "pid": HOSTILE})
    )
    board.post_many([{"name": HOSTILE, "group": HOSTILE, "details": {HOSTILE: HOSTILE + "\u202e\x1b[31m"}}] * 2)
    job = board.claim_next(HOSTILE)
    board.trash(job, HOSTILE, reason=HOSTILE + "\u202e\x00")
    board.claim_next(HOSTILE, expiry=600)
    board.pause([HOSTILE])
    board.set_limit(HOSTILE, concurrency=1)
    board.schedule(HOSTILE, every=60, name=HOSTILE, details={"a": HOSTILE}, key=HOSTILE)
    board.post(HOSTILE, key=HOSTILE, delay=60)
    browser = browse(lambda request: ("act", HOSTILE))
    fill(browser, home)
    pages = [*PAGES, f"/jobs/{job.uuid}", f"/jobs?name={HOSTILE}", f"/trash?cause={HOSTILE}", f"/jobs/{HOSTILE}"]
    for page in (*pages, f"/jobs?state={HOSTILE}", f"/jobs?after={HOSTILE}", f"/trash?error={HOSTILE}%00&group=%00"):
        # The value of a field stays as it is, and shows within its field.
        body = re.sub(r'value="[^"]*"', "", browser.get(home + page.replace(" ", "%20")).body)
        assert "<script>alert" not in body
        assert "<img" not in body
        assert "49" not in re.sub(r"49 |\w{49,}|[\w-]*49[\w-]*", "", body)
        assert not set(body) & set("\u202e\x1b\x00")
    assert '<span class="ctl">U+202E</span>' in browser.get(f"{home}/jobs/{job.uuid}").body
    browser.get(f"{home}/trash")
    said = browser.press("Restore", job=1)
    assert "<script>alert" not in said.body


@MEMORY
def test_long_values_are_cut() -> None:
    shown = text.inert("x" * 100_000)
    assert len(shown) < 66_000
    assert "34\u202f464 more characters" in shown
    assert text.inert("a\x1b[31mred\x1b[0m\nb", lines=True) == "<bdi>ared\nb</bdi>"


@pytest.mark.rule("A board that is away keeps its last look.")
@MEMORY
def test_a_board_that_is_away(board: Any, browse: Open, home: str) -> None:
    board.post_many([{"name": "resize"}] * 3)
    browser = browse()
    fill(browser, home)

    def fail() -> None:
        raise ConnectionFailure("the server has gone")

    hooks = [requests(board).before(request, fail) for request in ("counts", "read", "now", "walk", "sides", "page")]
    with set_clock() as clock:
        clock.now += 60
        eventually(lambda: json.loads(browser.get(f"{home}/state").body)["trouble"])
    page = browser.get(f"{home}/")
    assert page.status == 200
    assert "The board is away. the server has gone. These are the figures of" in page.text, page.text
    assert "3 jobs wait" in page.text
    for words in ("The trash is empty", "No job", "No conductor runs"):
        assert words not in page.text
    assert browser.get(f"{home}/trash").status == 503
    assert "The board is away." in browser.answer.text
    for hook in hooks:
        hook.remove()
    eventually(lambda: browser.get(f"{home}/trash").status == 200)


@pytest.mark.rule("A board that is away keeps its last look.")
@MEMORY
def test_a_board_that_was_never_there(browse: Open) -> None:
    browser = Browser(app([("far", "redis://127.0.0.1:1/0"), ("near", "memory")], authorize=lambda request: "act"))
    assert browser.get("/far/").status == 200
    eventually(lambda: "away" in browser.get("/far/").text)
    page = browser.get("/far/").text
    for words in ("No conductor", "Nothing waits", "The trash is empty", "No job"):
        assert words not in page
    assert "Not known while the board is away." in page
    assert "near" in browser.get("/").text
    assert "reading" in browser.answer.text or "0 waiting" in browser.answer.text
    assert browser.get("/near/jobs").status == 200


@MEMORY
def test_the_first_page_comes_at_once(board: Any, browse: Open, home: str) -> None:
    go = threading.Event()
    with requests(board).before("counts", lambda: go.wait(30)):
        page = browse().get(f"{home}/")
        assert (page.status, "Reading the board" in page.text) == (200, True)
        go.set()


@MEMORY
def test_a_page_finds_by_its_address(board: Any, browse: Open, home: str) -> None:
    board.post_many([{"name": "resize", "group": f"customer-{n}"} for n in range(60)])
    board.post("mail", key="welcome")
    browser = browse()
    assert "mail" not in re.findall(r'class="job"[^>]*><bdi>(\w+)', browser.get(f"{home}/jobs?name=resize").body)
    [after] = re.findall(r'rel="next" href="[^"]*[?&;]after=([^"&]+)', browser.answer.body)
    assert len(re.findall(r'name="job"', browser.get(f"{home}/jobs?name=resize&after={after}").body)) == 10
    assert "customer-7" in browser.get(f"{home}/jobs?group=customer-7").text
    assert "mail" in browser.get(f"{home}/jobs?key=welcome").text
    assert "No job matches." in browser.get(f"{home}/jobs?name=nothing").text
    assert browser.get(f"{home}/jobs?after=damaged").status == 400
    assert browser.get(f"{home}/jobs?state=nothing").status == 404
    assert browser.get(f"{home}/jobs/nothing").status == 404
    assert browser.get("/nothing/").status == 404


@MEMORY
def test_a_job_that_somebody_watches_has_a_version(board: Any, browse: Open, home: str) -> None:
    job, browser = board.post("resize"), browse()
    [version] = re.findall('data-version="([^"]*)"', browser.get(f"{home}/jobs/{job.uuid}").body)

    def told() -> Any:
        return json.loads(browser.get(f"{home}/state?job={job.uuid}").body)["version"]

    eventually(lambda: told() == version)
    board.cancel(job)
    with set_clock() as clock:
        clock.now += 60
        eventually(lambda: told() not in (None, version))


@pytest.mark.rule("The page works under any path, and its addresses stay under it.")
@MEMORY
def test_the_page_works_under_a_path(board: Any, home: str) -> None:
    board.cancel(board.post("resize"))
    page = app(board, authorize=lambda request: "act")
    browser = Browser(Starlette(routes=[Mount("/ops/jobs", app=page)]))
    assert browser.get("/ops/jobs").status == 200
    assert browser.at == f"/ops/jobs{home}/"
    for name in PAGES:
        body = browser.get(f"/ops/jobs{home}{name}").body
        for address in re.findall(r'(?:href|src|action|data-state)="([^"#]*)"', body):
            assert address.startswith("/ops/jobs/")
    assert (
        browser.get(re.findall(r'href="([^"]*css)"', browser.answer.body)[0]).header("content-type")
        == "text/css; charset=utf-8"
    )
    browser.get(f"/ops/jobs{home}/trash")
    assert "1 job restored." in browser.press("Restore", job=1).text
    assert browser.at == f"/ops/jobs{home}/trash"


@MEMORY
def test_boards_of_one_name_have_addresses_of_their_own(make_board: Callable[..., Any]) -> None:
    boards = [jobboard.fetch(name, "memory") for name in ("a/b", "a b", "static")]
    browser = Browser(app(boards, authorize=lambda request: "look"))
    browser.get("/")
    assert re.findall(r'class="job" href="([^"]*)"', browser.answer.body) == ["/a-b/", "/a-b-2/", "/static-2/"]
    with pytest.raises(ValueError, match="boards is empty"):
        app([], authorize=lambda request: "look")
    for wrong in (("a", 1), [object()], ["memory"]):
        with pytest.raises(TypeError, match="pairs of a name and a configuration"):
            app(wrong, authorize=lambda request: "look")  # type: ignore[arg-type]
