"""The guard of the page: who may look and act, and from where."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from starlette.responses import RedirectResponse

from jobboard.web import app
from jobboard.web.guard import (
    ALL_SECONDS,
    ALL_TRIES,
    KNOWN,
    TRIES,
    TRY_SECONDS,
    PasswordCheck,
    is_loopback,
    standalone,
    token_of,
)
from tests.support.clock import Clock, set_clock
from tests.web.browser import Answer, Browser
from tests.web.conftest import Open

pytestmark = pytest.mark.backends("memory")


def trashed(board: Any) -> Any:
    job = board.post("resize")
    board.cancel(job)
    return job


@pytest.mark.rule("The page refuses a form that no page of its own has sent.")
@pytest.mark.parametrize(
    "headers",
    [
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"sec_fetch_site": "none"},
        {"sec_fetch_site": "", "origin": "null"},
        {"sec_fetch_site": "", "origin": "http://evil.example"},
        {"sec_fetch_site": "", "origin": "http://127.0.0.1:8080.evil.example"},
        {"sec_fetch_site": "", "origin": "http://[evil"},
        {"sec_fetch_site": ""},
        {"cookie": ""},
        {"cookie": "jobboard_form="},
        {"cookie": f"jobboard_form={'x' * 43}"},
    ],
)
def test_a_forged_form_changes_nothing(board: Any, browse: Open, home: str, headers: dict[str, str]) -> None:
    job, browser = trashed(board), browse()
    [form, *_] = [form for form in browser.get(f"{home}/jobs/{job.uuid}").forms if "Restore" in form.buttons]
    answer = browser.send(form.action, [*form.fields, form.buttons["Restore"]], **headers)
    assert answer.status == 403
    assert "Nothing was changed" in answer.body
    assert job.state == "TRASHED"


@pytest.mark.rule("The page refuses a form that no page of its own has sent.")
def test_a_form_with_another_token_changes_nothing(board: Any, browse: Open, home: str) -> None:
    job, browser, other = trashed(board), browse(), browse()
    browser.get(f"{home}/jobs/{job.uuid}")
    other.get(f"{home}/")
    [form, *_] = [form for form in other.get(f"{home}/jobs/{job.uuid}").forms if "Restore" in form.buttons]
    assert browser.send(form.action, [*form.fields, form.buttons["Restore"]]).status == 403
    assert job.state == "TRASHED"


@pytest.mark.rule("The page refuses a form that no page of its own has sent.")
@pytest.mark.parametrize("seed", ["", "short", "x" * 44])
def test_a_token_of_a_cookie_that_the_page_never_set_changes_nothing(
    board: Any, browse: Open, home: str, seed: str
) -> None:
    job, browser = trashed(board), browse()
    fields = [("act", "restore"), ("job", f"{job.uuid}:{job.token}"), ("token", token_of(seed))]
    assert browser.send(f"{home}/act", fields, cookie=f"jobboard_form={seed}").status == 403
    assert job.state == "TRASHED"


@pytest.mark.parametrize(
    ("headers", "origins"),
    [
        ({"sec_fetch_site": "", "origin": "http://127.0.0.1:8080"}, []),
        ({"sec_fetch_site": "", "origin": "https://jobs.example"}, ["https://jobs.example"]),
        ({"sec_fetch_site": "cross-site", "origin": "https://jobs.example"}, ["https://jobs.example"]),
    ],
)
def test_a_form_of_the_page_itself_acts(
    board: Any, browse: Open, home: str, headers: dict[str, str], origins: list[str]
) -> None:
    job, browser = trashed(board), browse(origins=origins)
    [form, *_] = [form for form in browser.get(f"{home}/jobs/{job.uuid}").forms if "Restore" in form.buttons]
    assert browser.send(form.action, [*form.fields, form.buttons["Restore"]], **headers).status == 200
    assert job.state == "UNCLAIMED"


@pytest.mark.rule("An open form of the page stays good after a restart of its server, and at any of its processes.")
def test_a_form_is_good_at_another_process(board: Any, browse: Open, home: str) -> None:
    job, browser = trashed(board), browse()
    browser.get(f"{home}/jobs/{job.uuid}")
    browser.app = app(board, authorize=lambda request: "act")
    assert "1 job restored" in browser.press("Restore").text
    assert job.state == "UNCLAIMED"


@pytest.mark.rule("No GET of the page changes anything.")
@pytest.mark.parametrize("page", ["act", "rule", "schedule"])
def test_no_get_changes_anything(board: Any, browse: Open, home: str, page: str) -> None:
    job, browser = trashed(board), browse()
    answer = browser.get(f"{home}/{page}?act=restore&job={job.uuid}:{job.token}&verb=pause")
    assert answer.status in (404, 405)
    assert job.state == "TRASHED"
    assert not board.paused()


@pytest.mark.rule("authorize decides who looks and acts on the page.")
def test_a_visitor_who_may_only_look_cannot_act(board: Any, browse: Open, home: str) -> None:
    job, browser, looking = trashed(board), browse(), browse(lambda request: "look")
    page = looking.get(f"{home}/jobs/{job.uuid}")
    assert "look only" in page.text
    assert [form for form in page.forms if form.method == "post"] == []
    [form, *_] = [form for form in browser.get(f"{home}/jobs/{job.uuid}").forms if "Restore" in form.buttons]
    browser.app = looking.app
    answer = browser.send(form.action, [*form.fields, form.buttons["Restore"]])
    assert (answer.status, job.state) == (403, "TRASHED")
    for page_name in ("jobs", "trash", "done", "schedules", "limits"):
        assert [
            form for form in looking.get(f"{home}/{page_name}").forms if form.buttons and form.method == "post"
        ] == []


@pytest.mark.rule("authorize decides who looks and acts on the page.")
def test_authorize_refuses_and_leads_elsewhere(board: Any, browse: Open, home: str) -> None:
    async def login(request: Any) -> Any:
        return RedirectResponse("/login")

    assert browse(lambda request: None).get(f"{home}/").status == 403
    assert browse(lambda request: "everything").get(f"{home}/").status == 403
    answer = browse(login).request("GET", f"{home}/")
    assert (answer.status, answer.header("location")) == (307, "/login")
    with pytest.raises(TypeError, match="authorize"):
        app(board)  # type: ignore[call-arg]


@pytest.mark.rule("The visitor of the page stands in the reason of an act.")
def test_the_visitor_and_the_reason_are_kept(board: Any, browse: Open, home: str) -> None:
    browser = browse()
    board.post("resize")
    browser.get(f"{home}/jobs")
    assert "Cancel this job?" in browser.press("Cancel", job=1).text
    assert "1 job cancelled" in browser.press("Cancel this job", why="wrong size").text
    [job] = board.trashed()
    assert job.error == "cancelled by maria: wrong size"


@pytest.mark.rule("Each answer of the page has a policy that lets nothing foreign run.")
def test_each_answer_has_the_policy(browse: Open, home: str) -> None:
    browser, refused = browse(), browse(lambda request: None)
    pages = ("/", "/state", "/jobs/nothing", "/jobs?after=x", "/nothing", "/act")
    paths = (*(home + page for page in pages), "/other/", "/static/1/web.css", "/static/1/other.css")
    for answer in [*map(browser.get, paths), refused.get(f"{home}/"), browser.send(f"{home}/act", [])]:
        assert answer.header("content-security-policy").startswith("default-src 'none'; script-src 'self';")
        assert answer.header("x-content-type-options") == "nosniff"
        assert answer.header("referrer-policy") == "same-origin"


def test_the_cookie_of_forms_is_out_of_reach(browse: Open, home: str) -> None:
    set_cookie = browse().get(f"{home}/").header("set-cookie")
    assert "HttpOnly" in set_cookie
    assert "SameSite=lax" in set_cookie


def test_a_large_body_and_a_foreign_one_are_refused(browse: Open, home: str) -> None:
    browser = browse()
    assert browser.request("POST", f"{home}/act", "x" * 300_000).status == 413
    assert browser.request("POST", f"{home}/act", "&".join("a=1" for _ in range(3000))).status == 400


@pytest.mark.rule("The standalone page answers under names of this machine alone, or asks for a password.")
def test_a_standalone_page_answers_under_its_own_names(board: Any, home: str) -> None:
    page = app(board, authorize=standalone("act", None))
    for host in ("127.0.0.1:8080", "localhost", "[::1]:8080", "127.0.0.1"):
        assert Browser(page, host).get(f"{home}/").status == 200
    for host in ("evil.example", "evil.example:8080", "127.0.0.1.evil.example", "[", ""):
        assert Browser(page, host).get(f"{home}/").status == 421


@pytest.mark.rule("The standalone page answers under names of this machine alone, or asks for a password.")
def test_a_password_is_asked_for(board: Any, home: str) -> None:
    page = app(board, authorize=standalone("look", "sésame"))
    answer = Browser(page, "jobs.example").get(f"{home}/")
    assert (answer.status, answer.header("www-authenticate")[:5]) == (401, "Basic")
    for given in ("maria:wrong", "maria:", ""):
        word = base64.b64encode(given.encode()).decode()
        assert Browser(page, authorization=f"Basic {word}").get(f"{home}/").status == 401
    for header in ("Basic ???", "Bearer sésame".encode().decode("latin-1"), "Basic"):
        assert Browser(page, authorization=header).get(f"{home}/").status == 401
    word = base64.b64encode("maria:sésame".encode()).decode()
    assert "look only" in Browser(page, "jobs.example", authorization=f"Basic {word}").get(f"{home}/").text


@pytest.fixture
def guess(board: Any, home: str) -> Callable[..., Answer]:
    """``guess(client, password)``: the answer to a visitor at this address."""
    page = app(board, authorize=standalone("look", "sesame"))

    def guess(client: str, password: str) -> Answer:
        browser = Browser(page, authorization=f"Basic {base64.b64encode(f'maria:{password}'.encode()).decode()}")
        browser.client = client
        return browser.get(f"{home}/")

    return guess


@pytest.fixture
def clock() -> Iterator[Clock]:
    with set_clock() as clock:
        yield clock


@pytest.mark.rule("Wrong passwords of the page make their address wait, and no other one.")
def test_wrong_passwords_make_their_address_wait(guess: Callable[..., Answer], clock: Clock) -> None:
    assert [guess("10.0.0.1", f"word{n}").status for n in range(TRIES)] == [401] * TRIES
    for password in ("more", "sesame"):
        answer = guess("10.0.0.1", password)
        assert (answer.status, answer.header("retry-after")) == (429, f"{TRY_SECONDS:.0f}")
    assert guess("10.0.0.2", "sesame").status == 200
    clock.now += TRY_SECONDS / 2
    assert guess("10.0.0.1", "sesame").header("retry-after") == f"{TRY_SECONDS / 2:.0f}"
    clock.now += TRY_SECONDS / 2 + 0.1
    assert guess("10.0.0.1", "more").status == 401
    assert guess("10.0.0.1", "sesame").status == 429
    clock.now += TRY_SECONDS + 0.1
    assert guess("10.0.0.1", "sesame").status == 200


@pytest.mark.rule("Wrong passwords of the page make their address wait, and no other one.")
def test_the_addresses_of_one_computer_wait_together(guess: Callable[..., Answer], clock: Clock) -> None:
    assert [guess(f"2001:db8::{n:x}", f"word{n}").status for n in range(TRIES)] == [401] * TRIES
    assert guess("2001:db8::1:2:3:4", "sesame").status == 429
    assert guess("2001:db8:0:1::1", "sesame").status == 200
    assert [guess("::ffff:10.0.0.1", f"word{n}").status for n in range(TRIES)] == [401] * TRIES
    assert [guess(f"{ip}10.0.0.1", "sesame").status for ip in ("", "::ffff:")] == [429, 429]
    assert guess("::ffff:10.0.0.2", "sesame").status == 200


@pytest.mark.rule("Wrong passwords of the page make their address wait, and no other one.")
def test_an_open_page_with_an_old_password_does_not_guess(guess: Callable[..., Answer], clock: Clock) -> None:
    assert {guess("10.0.0.1", "old").status for _ in range(3 * TRIES)} == {401}
    assert guess("10.0.0.1", "sesame").status == 200


@pytest.mark.rule("Guesses of the page's password from many addresses are bounded, and lock no known visitor out.")
def test_guesses_from_many_addresses_are_bounded(guess: Callable[..., Answer], clock: Clock) -> None:
    assert guess("10.0.0.1", "sesame").status == 200
    answers = [guess(f"10.1.{n}.1", f"word{n}").status for n in range(ALL_TRIES + 20)]
    assert answers == [401] * ALL_TRIES + [429] * 20
    assert guess("10.0.0.1", "sesame").status == 200
    assert guess("10.0.0.2", "sesame").status == 429
    clock.now += ALL_SECONDS + 0.1
    assert guess("10.0.0.2", "sesame").status == 200


def test_guesses_are_forgotten(clock: Clock) -> None:
    check = PasswordCheck("sesame")
    for n in range(3000):
        clock.now += ALL_SECONDS
        check.wait(f"10.0.{n // 256}.{n % 256}", f"word{n}")
        check.wait(f"10.1.{n // 256}.{n % 256}", "sesame")
    assert len(check._failed) < 200
    assert len(check._known) == KNOWN


def test_addresses_of_this_machine() -> None:
    assert [host for host in ("127.0.0.1", "::1", "localhost", "127.8.0.1") if not is_loopback(host)] == []
    assert [host for host in ("0.0.0.0", "::", "10.0.0.1", "localhost.evil", "") if is_loopback(host)] == []
