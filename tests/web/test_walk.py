"""Every view and act in Chromium, with scripts and without; ``test_acts.py`` has the acts on every backend."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from jobboard import Entity
from jobboard.testing import eventually
from jobboard.web import acts, app
from tests.full import FULL, SOME
from tests.web.browser import Browser
from tests.web.chromium import Window, served
from tests.web.conftest import OpenWindow

pytestmark = pytest.mark.xdist_group("chromium")

SCRIPTED, UNSCRIPTED = (("sqlite", *SOME), SOME) if FULL else (("sqlite", "postgresql"), ("redis",))
"""The backends of walks with scripts and without: Chromium's part is the same on each."""

MANY = 230
"""More jobs than one step acts on, once its time is over."""


def walk(board: Any, window: Window, home: str, *, scripts: bool) -> None:
    """Go through all views and acts as a visitor does, by links and buttons."""
    page = window.page
    many = board.post_many([{"name": "thumbnail", "group": "customer-1"}] * MANY)
    board.act("cancel", many, reason="OSError: disk 7 is full")
    failing = board.post_many([{"name": f"mail{n}"} for n in range(3)])
    board.act("cancel", failing, reason="no such address")
    board.post("done")
    board.consume(board.claim_next("anna"), "anna", result={"width": 300})
    job = board.post("resize", details={"width": 300})
    held = [board.post(name) for name in ("stopped", "released")]
    claims = [board.claim(each, "anna", expiry=600) for each in held]
    board.post("later", delay=3600)
    board.schedule("nightly", cron="0 3 * * *", name="report", key="report")
    board.register_entity(Entity("conductor", "anna", {"names": ["resize"], "running": 2, "slots": 4}))
    looking = Browser(window.address)
    eventually(lambda: json.loads(looking.get(f"{home}/state").body)["complete"])

    # The views, by their links.
    assert "1 job waits" in window.open("/")
    assert "1 conductor runs 2 jobs" in window.text
    assert "thumbnail" in window.press("OSError: disk 7 is full", "#p-errors")
    assert "One cause: OSError: disk … is full" in window.text
    for label, words in (
        ("Jobs", "resize"), ("Done", "anna"), ("Schedules", "nightly posts report"), ("Limits", "There are no limits."),
        ("Conductors", "2 of 4"),
    ):  # fmt: skip
        page.locator("nav.pages a", has_text=label).click()
        page.wait_for_load_state()
        assert words in window.text
    window.open(f"{home}/jobs?state=running")
    assert "stopped" in window.text
    page.locator("nav.tabs a", has_text="Delayed").click()
    window.see("later")

    # One job.
    window.open(f"{home}/jobs?name=resize")
    assert '"width": 300' in window.press("resize")
    window.press("Cancel…")
    assert "1 job cancelled." in window.press("Cancel this job")
    window.press("Post again…")
    assert "1 job posted again." in window.press("Post this job again")
    assert "1 job restored." in window.press("Restore")
    window.press("Cancel…")
    # Somebody else is faster.
    board.cancel(job)
    assert "0 jobs cancelled. 1 was left:" in window.press("Cancel this job")
    assert f"{job} has changed since it was shown" in window.text
    window.press("Purge…")
    assert "Not there." in window.press("Purge this job")
    for each, label, state in zip(held, ("Stop", "Release"), ("TRASHED", "UNCLAIMED"), strict=True):
        window.open(f"{home}/jobs/{each.uuid}")
        window.press(f"{label}…")
        page.fill("[name=why]", "it hangs")
        window.press(f"{label} this job")
        assert each.state == state
        assert board.get(each.uuid).errors[-1].text.endswith("by maria: it hangs")
    assert all(claim.lost or board.get(claim.job.uuid).owner is None for claim in claims)

    # Chosen jobs, of which some change.
    window.open(f"{home}/trash?error=no+such")
    for box in page.locator("[name=job]").all():
        box.check()
    if scripts:
        assert "With 3 chosen" in window.text
    assert "Restore 3 jobs?" in window.press("Restore")
    board.restore(failing[0])
    board.purge(failing[1])
    assert "1 job restored. 2 were left:" in window.press("Restore 3 jobs")
    assert f"{failing[0]} has changed since it was shown" in window.text
    assert f"job {failing[1].uuid} is gone" in window.text

    # All that match, in steps, of which some change.
    window.open(f"{home}/trash")
    page.locator("ol.causes li", has_text="disk 7").get_by_role("button", name="Restore all…").click()
    window.see(f"Restore {MANY} jobs?")
    changed = board.restore(many[0])
    board.restore(many[-1])
    page.fill("[name=why]", "the disk was emptied")
    said = window.press(f"Restore {MANY} jobs")
    assert "jobs restored so far." in said
    if scripts:
        window.see(f"{MANY - 2} jobs restored.")
    else:
        while "so far" in window.text:
            window.press("Go on")
        assert f"{MANY - 2} jobs restored." in window.text
    assert changed is None or not list(board.find(names=["thumbnail"], states=["TRASHED"]))
    window.open(f"{home}/done")
    page.locator("[name=job]").first.check()
    window.press("Post again")
    assert "1 job posted again." in window.press("Post this job again")
    page.locator("[name=job]").first.check()
    window.press("Purge")
    assert "1 job purged." in window.press("Purge this job")

    # Rules and schedules.
    window.open(f"{home}/limits")
    page.locator("form", has_text="Pause").locator("[name=name]").last.fill("mail0")
    assert "mail0 is paused." in window.press("Pause")
    assert "mail0 is resumed." in window.press("Resume")
    form = page.locator("form", has_text="Set the limit")
    form.locator("[name=name]").fill("mail0")
    form.locator("[name=concurrency]").fill("2")
    assert "2 at once" in window.press("Set the limit")
    assert "There are no limits." in window.press("Remove")
    window.open(f"{home}/schedules")
    assert "Posted Job 'report'" in window.press("Post now")
    assert "has the key of the schedule nightly" in window.press("Post now")
    assert "paused" in window.press("Pause")
    assert "The schedule nightly is resumed." in window.press("Resume")
    assert "There are no schedules." in window.press("Remove")
    assert window.faults == []


@pytest.fixture
def walked(
    board: Any,
    home: str,
    window: OpenWindow,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[bool], None]:
    monkeypatch.setattr(acts, "SECONDS", 0.0)

    def walked(scripts: bool) -> None:
        with served(app(board, authorize=lambda request: ("act", "maria"))) as address:
            walk(board, window(address, java_script_enabled=scripts), home, scripts=scripts)

    return walked


@pytest.mark.rule("All views and acts of the page work on every stored backend, with scripts and without.")
@pytest.mark.backends(*SCRIPTED)
def test_each_view_and_act(walked: Callable[[bool], None]) -> None:
    walked(True)


@pytest.mark.rule("All views and acts of the page work on every stored backend, with scripts and without.")
@pytest.mark.backends(*UNSCRIPTED)
def test_each_view_and_act_without_scripts(walked: Callable[[bool], None]) -> None:
    walked(False)
