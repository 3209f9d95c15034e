"""Parameters and forms of any kind: no answer of 500, and nothing changes unasked."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import pytest

from jobboard.testing.requests import requests
from jobboard.web import app
from jobboard.web.application import BUSY
from tests.full import SOME
from tests.web.browser import Browser
from tests.web.chromium import served
from tests.web.conftest import Open

pytestmark = pytest.mark.backends(*SOME)

TEXTS = (
    "\0", "a\0b", "\ufeff", "\U0001f4a3", "x" * 5000, "%", "_", "\\", "'", '"', "`", "*", "[a", "(", "..", ".", "/",
    "../..", "{}", "$1", ":x", "?", "#", "\r\nSet-Cookie: a=b", "\u202e", "-1", "1e999", "nan", "inf",
    "999999999999999999999", " ", "\t", "\u0663",
)  # fmt: skip
"""Texts that mean something to a database, a path, a pattern, a number or a header."""

ODD = ("%ff", "%ed%a0%80", "%", "%u0041", "a=b&a=c", "%00%ff")
"""Texts that are no text, as they stand in an address."""

FORMS = {
    "act": "act state sure by job all search place why back done left count reason",
    "rule": "act name per concurrency starts seconds",
    "schedule": "act name",
}


@pytest.mark.rule("No parameter and no form makes the page fail.")
def test_no_parameter_makes_a_page_fail(board: Any, browse: Open, home: str) -> None:
    browser, job = browse(), board.post("resize")
    board.cancel(board.post("resize"), reason="disk 7 is full")
    names = ("name", "error", "group", "key", "owner", "cause", "after", "state")
    asked = []
    for text in (*(quote(each, safe="") for each in TEXTS), *ODD):
        asked += [f"{home}/{page}?{name}={text}" for page in ("jobs", "trash", "done") for name in names]
        asked += [f"{home}/jobs/{text}", f"{home}/jobs/{text}/details.json", f"{home}/jobs/{job.uuid}/{text}.json"]
        asked += [f"{home}/state?job={text}", f"/{text}/"]
    assert {path: status for path in asked if (status := browser.request("GET", path).status) >= 500} == {}


@pytest.mark.rule("No parameter and no form makes the page fail.")
def test_no_form_makes_the_page_fail(board: Any, browse: Open, home: str) -> None:
    browser, job = browse(), board.post("resize")
    board.schedule("nightly", cron="0 3 * * *", name="report")
    browser.get(f"{home}/jobs/{job.uuid}")
    given = {"token": dict(browser.answer.forms[0].fields)["token"], "sure": "1", "state": "waiting", "name": "nothing"}
    # The job has another token.
    given |= {"job": f"{job.uuid}:7", "starts": "1", "seconds": "60"}
    found = {}
    for path, names in FORMS.items():
        act = {"act": "cancel", "rule": "limit", "schedule": "pause"}[path]
        for name, text in ((name, text) for name in names.split() for text in (*TEXTS, "1e308", "1e-9", "0")):
            status = browser.send(f"{home}/{path}", list({**given, "act": act, name: text}.items())).status
            if status >= 500:
                found[path, name, text] = status
    assert found == {}
    assert job.state == "UNCLAIMED"
    assert [each.is_paused for each in board.schedules()] == [False]


@pytest.mark.rule("Pages that wait for a slow board hold up neither live figures nor the service around the page.")
@pytest.mark.backends("memory")
def test_a_slow_board_leaves_threads_to_others(board: Any, home: str) -> None:
    go, waiting = threading.Event(), threading.Semaphore(0)

    def wait() -> None:
        waiting.release()
        assert go.wait(30)

    with served(app(board, authorize=lambda request: "look")) as address, ThreadPoolExecutor(BUSY) as pool:
        with requests(board).before("walk", wait):
            pages = [pool.submit(Browser(address).get, f"{home}/jobs") for _ in range(BUSY)]
            try:
                assert all(waiting.acquire(timeout=30) for _ in pages)
                assert Browser(address).get(f"{home}/state").status == 200
                assert Browser(address).get(f"{home}/trash").status == 503
            finally:
                go.set()
        assert [page.result().status for page in pages] == [200] * BUSY
        assert Browser(address).get(f"{home}/trash").status == 200
