"""Acts on the page: on one job, on chosen ones, on all that match; on limits, pauses and schedules."""

from __future__ import annotations

import json
import logging
import re
from typing import Any
from urllib.parse import urlencode

import pytest

from jobboard.testing import eventually
from jobboard.web import acts
from tests.web.conftest import Open

MEMORY = pytest.mark.backends("memory")


def errors_of(board: Any, uuid: str) -> list[str]:
    return [failure.text for failure in board.get(uuid).errors]


@pytest.mark.rule("All views and acts of the page work on every stored backend, with scripts and without.")
def test_each_act_on_one_job(board: Any, browse: Open, home: str) -> None:
    browser = browse()
    job = board.post("resize", details={"width": 300})
    at = f"{home}/jobs/{job.uuid}"
    browser.get(at)
    assert "Change nothing" in browser.press("Cancel…").text
    assert "1 job cancelled." in browser.press("Cancel this job").text
    assert "1 job restored." in browser.press("Restore").text
    assert errors_of(board, job.uuid) == ["cancelled by maria", "restored by maria"]
    claim = board.claim(job, "anna")
    browser.get(at)
    browser.press("Release…")
    assert "1 job released." in browser.press("Release this job", why="it hangs").text
    assert job.state == "UNCLAIMED"
    assert errors_of(board, job.uuid)[-1] == "released by maria: it hangs"
    claim = board.claim(job, "anna")
    browser.get(at)
    browser.press("Stop…")
    assert "1 job stopped." in browser.press("Stop this job").text
    assert job.state == "TRASHED"
    assert claim.lost or claim.refused or job.state == "TRASHED"
    browser.press("Post again…")
    assert "1 job posted again." in browser.press("Post this job again").text
    assert [(each.name, each.details) for each in board.find()] == [("resize", {"width": 300})]
    browser.get(at)
    browser.press("Purge…")
    browser.press("Purge this job")
    assert browser.answer.status == 404
    assert "1 job purged." in browser.answer.text


def test_outcomes_are_posted_again_and_purged(board: Any, browse: Open, home: str) -> None:
    board.post("resize")
    done = board.claim_next("anna")
    board.consume(done, "anna")
    browser = browse()
    browser.get(f"{home}/done")
    browser.press("Post again", job=1)
    assert "1 job posted again." in browser.press("Post this job again").text
    browser.press("Purge", job=1)
    assert "1 job purged." in browser.press("Purge this job").text
    assert list(board.outcomes()) == []
    assert board.job_count == 1


@pytest.mark.rule("An act of the page leaves jobs that have changed since they were shown, and names them.")
def test_chosen_jobs_that_have_changed_are_left_and_named(board: Any, browse: Open, home: str) -> None:
    jobs = board.post_many([{"name": f"name{n}"} for n in range(4)])
    for job in jobs:
        board.cancel(job)
    browser = browse()
    browser.get(f"{home}/trash")
    confirmation = browser.press("Restore", job=4)
    assert "Restore 4 jobs?" in confirmation.text
    board.purge(jobs[0])
    board.restore(jobs[1])
    board.restore(jobs[2])
    board.cancel(jobs[2])
    said = browser.press("Restore 4 jobs").text
    assert "1 job restored. 3 were left:" in said
    assert f"job {jobs[0].uuid} is gone" in said
    assert f"{jobs[1]} has changed since it was shown" in said
    assert f"{jobs[2]} has changed since it was shown" in said
    assert [job.state for job in jobs[1:]] == ["UNCLAIMED", "TRASHED", "UNCLAIMED"]


@pytest.mark.rule("An act of the page on all that match takes the jobs of its confirmation, in steps that are seen.")
def test_all_that_match_go_in_steps(
    board: Any, browse: Open, home: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "jobboard")
    jobs = board.post_many([{"name": "resize"}] * 250 + [{"name": "mail"}])
    board.act("cancel", jobs[:250], reason="disk 7 is full")
    board.act("cancel", jobs[250:], reason="no such address")
    browser = browse()
    browser.get(f"{home}/trash")
    monkeypatch.setattr(acts, "SECONDS", 0.0)
    browser.get(f"{home}/trash?cause=disk+%E2%80%A6+is+full")
    page = browser.press("Restore", all="1")
    assert "Restore 250 jobs?" in page.text
    assert "all jobs in the trash with cause disk … is full" in page.text
    assert "and 245 more" in page.text
    assert page.body.count('class="job"') == 5
    late = board.post_many([{"name": "resize"}] * 120)
    board.act("cancel", late, reason="disk 8 is full")
    step = browser.press("Restore 250 jobs", why="the disk was emptied")
    assert re.search(r"\d+ jobs restored so far\.", step.text)
    assert '<progress max="250"' in step.body
    steps = 1
    while "so far" in browser.answer.text and steps < 20:
        browser.press("Go on")
        steps += 1
    assert "250 jobs restored." in browser.answer.text
    assert steps > 2
    assert (late[0].state, jobs[250].state, board.job_count) == ("TRASHED", "TRASHED", 250)
    assert errors_of(board, jobs[0].uuid)[-1] == "restored by maria: the disk was emptied"
    assert "restored by maria: the disk was emptied" in caplog.text


@MEMORY
def test_nothing_chosen_changes_nothing(board: Any, browse: Open, home: str) -> None:
    board.cancel(board.post("resize"))
    browser = browse()
    browser.get(f"{home}/trash")
    assert "no job was chosen" in browser.press("Purge").text
    for name, value in (("act", "destroy"), ("job", "x:y"), ("state", "everywhere")):
        [form] = [each for each in browser.answer.forms if "Purge" in each.buttons]
        sent = [*form.fields, *form.boxes[:1], ("act", "purge"), ("sure", "1")]
        assert browser.send(form.action, [(name, value), *(pair for pair in sent if pair[0] != name)]).status == 400
        browser.get(f"{home}/trash")
    assert len(list(board.trashed())) == 1


@MEMORY
def test_a_form_returns_to_its_own_page_alone(board: Any, browse: Open, home: str) -> None:
    browser = browse()
    for back in ("https://evil.example/", "//evil.example/", f"{home}/\\evil", "/other/", f"{home}@evil.example/"):
        browser.get(f"{home}/limits")
        browser.press("Pause", back=back, name="mail")
        assert browser.at == f"{home}/"


@pytest.mark.rule("Links and forms of the page keep the spaces around a name, group, key, holder or error.")
@MEMORY
def test_spaces_around_texts_are_kept(board: Any, browse: Open, home: str) -> None:
    job, other = board.post(" a ", group=" g ", key=" k "), board.post("a", group="g", key="k")
    board.claim(job, " w ")
    board.abandon(job, " w ", error=" full ", delay=600)
    board.claim(other, "w")
    board.abandon(other, "w", error="full", delay=600)
    browser = browse()
    for field, text in (("name", " a "), ("group", " g "), ("key", " k "), ("error", " full ")):
        page = browser.get(f"{home}/jobs?{urlencode({'state': 'delayed', field: text})}")
        assert re.findall(r"jobs/([\w-]{36})", page.body) == [job.uuid]
        [form, *_] = [each for each in page.forms if each.method == "get"]
        page = browser.get(f"{form.action}?{urlencode(form.fields)}")
        assert re.findall(r"jobs/([\w-]{36})", page.body) == [job.uuid]
    eventually(lambda: " a " in browser.get(f"{home}/limits").body)
    for name in (" a ", "a"):
        board.set_limit(name, concurrency=1)
        browser.get(f"{home}/limits")
        browser.press("Pause", name=name)
        assert board.paused().names == (name,)
        browser.press("Resume")
        assert not board.paused()
        browser.press("Remove")
        assert board.limits() == []
    browser.press("Pause", name=" mail ")
    assert board.paused().names == ("mail",), "no job has the typed name"
    browser.get(f"{home}/jobs?{urlencode({'state': 'delayed', 'name': ' a '})}")
    browser.press("Cancel", all="1")
    assert "1 job cancelled" in browser.press("Cancel this job").text
    assert (job.state, other.state) == ("TRASHED", "SCHEDULED")
    board.schedule(" s ", cron="0 3 * * *", name="report")
    browser.get(f"{home}/schedules")
    browser.press("Remove")
    assert board.schedules() == []


def test_limits_and_pauses(board: Any, browse: Open, home: str) -> None:
    browser = browse()
    eventually(lambda: "Limits 0" in browser.get(f"{home}/limits").text)
    assert "mail is paused." in browser.press("Pause", name="mail").text
    assert "Limits 1" in browser.answer.text, "the next page knows of the act"
    assert "Everything is paused." in browser.press("Pause").text
    assert (board.paused().everything, board.paused().names) == (True, ("mail",))
    assert "mail is resumed." in browser.press("Resume", number=1).text
    assert "Everything is resumed." in browser.press("Resume").text
    assert not board.paused()
    said = browser.press("Set the limit", name="mail", concurrency="3", starts="10", seconds="60", per="group").text
    assert "The limit of mail is set." in said
    [limit] = board.limits()
    assert (limit.name, limit.per, limit.concurrency, limit.rate) == ("mail", "group", 3, (10, 60.0))
    assert "The limit of mail is removed." in browser.press("Remove").text
    assert board.limits() == []
    for fields in ({"concurrency": "many"}, {"concurrency": "0"}, {"starts": "3"}, {}):
        assert "Nothing was changed:" in browser.press("Set the limit", name="mail", **fields).text
    assert "Nothing was changed:" in browser.press("Set the limit", name="", concurrency="1").text


def test_schedules(board: Any, browse: Open, home: str) -> None:
    board.schedule("nightly", cron="0 3 * * *", name="report", key="report")
    browser = browse()
    browser.get(f"{home}/schedules")
    assert "Posted Job 'report'" in browser.press("Post now").text
    assert "has the key of the schedule nightly" in browser.press("Post now").text
    assert "The schedule nightly is paused." in browser.press("Pause").text
    assert [each.is_paused for each in board.schedules()] == [True]
    assert "The schedule nightly is resumed." in browser.press("Resume").text
    assert [each.is_paused for each in board.schedules()] == [False]
    board.unschedule("nightly")
    assert "Nothing was changed:" in browser.press("Remove").text
    board.schedule("nightly", cron="0 3 * * *", name="report")
    browser.get(f"{home}/schedules")
    assert "The schedule nightly is removed." in browser.press("Remove").text
    assert board.schedules() == []


@pytest.mark.rule("An act of the page on the jobs of one cause takes no other job.")
def test_a_cause_is_acted_on_alone(board: Any, browse: Open, home: str) -> None:
    """Of jobs without a reason, and of a cause that is cut off at a space."""
    without, other, long = board.post_many([{"name": name} for name in ("without", "other", "long")])
    for job, reason in ((without, None), (other, "disk 7 is full"), (long, "x" * 199 + " y")):
        board.cancel(job, reason=reason)
    browser = browse()
    eventually(lambda: json.loads(browser.get(f"{home}/state").body)["complete"])
    for job, others in ((without, [other, long]), (long, [other])):
        body = browser.get(f"{home}/trash").body
        links = re.findall(r'class="why" href="([^"]*)"', body)
        shown = {each: browser.get(each.replace("&amp;", "&")).text for each in links}
        [link] = [each for each, text in shown.items() if f" {job.name} {job.uuid[:8]}" in text]
        browser.get(link.replace("&amp;", "&"))
        assert [each for each in others if each.uuid[:8] in browser.answer.text] == []
        assert "One cause:" in browser.answer.text
        browser.press("Restore", all="1")
        assert "Restore this job?" in browser.answer.text
        browser.get(f"{home}/trash")
        number = links.index(link)
        assert "Restore this job?" in browser.press("Restore all…", number=number).text
        assert "1 job restored." in browser.press("Restore this job").text
        # The page that says so no longer offers the cause.
        assert link not in re.findall(r'class="why" href="([^"]*)"', browser.answer.body)
        assert (job.state, *(each.state for each in others)) == ("UNCLAIMED", *("TRASHED" for _ in others))
