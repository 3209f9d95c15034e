"""``jobboard watch``: reported events, and events that it finds by comparing two looks."""

import threading
from typing import Any

import pytest

import jobboard
from jobboard.cli.common import USAGE
from jobboard.cli.watch import Watcher
from jobboard.testing import eventually
from jobboard.testing.conformance.support import let_lapse
from tests.support.commands import Commands, Ran, busy, posting


@pytest.mark.rule("watch looks for itself where no backend reports events.")
@pytest.mark.backends("sqlite", "zookeeper")
def test_changes_between_two_looks_are_events(board: Any) -> None:
    watcher = Watcher(board)

    def shown() -> list[tuple[str, str, str | None]]:
        return [(each.event, each.name, each.who) for each in watcher.look()]

    old = board.post("old")
    assert shown() == []
    job = board.post("new")
    assert shown() == [("POSTED", "new", None)]
    board.claim(job, "anna")
    assert shown() == [("CLAIMED", "new", "anna")]
    board.extend(job, "anna", 60)
    assert shown() == []
    board.abandon(job, "anna")
    assert shown() == [("ABANDONED", "new", "anna")]
    board.claim(job, "anna")
    board.abandon(job, "anna")
    assert shown() == [("ABANDONED", "new", None)]
    board.claim(job, "bert")
    shown()
    board.release(job)
    assert shown() == [("RELEASED", "new", "bert")]
    board.claim(old, "anna")
    assert shown() == [("CLAIMED", "old", "anna")]
    board.consume(old, "anna")
    board.cancel(job)
    board.claim(board.post("third"), "carl")
    assert sorted(shown()) == sorted(
        [
            ("POSTED", "third", None),
            ("CLAIMED", "third", "carl"),
            ("CONSUMED", "old", "anna"),
            ("REMOVAL", "old", "anna"),
            ("TRASHED", "new", None),
            ("REMOVAL", "new", None),
        ]
    )


@pytest.mark.rule("A post that replaces a job is shown as posted.")
@pytest.mark.backends("sqlite", "zookeeper")
def test_a_post_that_replaces_is_an_event(board: Any) -> None:
    watcher = Watcher(board)

    def shown() -> list[tuple[str, str | None]]:
        return [(each.event, each.who) for each in watcher.look()]

    job = board.post("resize", key="k")
    assert shown() == []
    board.post("resize", key="k", on_key="replace")
    assert shown() == [("POSTED", None)]
    board.post("resize", key="k", on_key="replace", delay=600)
    assert shown() == [("POSTED", None)]
    board.post("resize", key="k", on_key="replace")
    shown()
    let_lapse(board, job)
    assert shown() == []
    board.post("resize", key="k", on_key="replace")
    assert shown() == [("POSTED", None)]
    board.claim(job := board.get(job.uuid), "anna")
    board.abandon(job, "anna")
    assert shown() == [("ABANDONED", None)]


@pytest.mark.backends("sqlite")
def test_jobs_that_move_across_the_end_of_the_first_page_are_no_events(
    board: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobboard.cli.watch.PAGE", 2)
    watcher = Watcher(board)
    first, *_ = [board.post("a") for _ in range(3)]
    assert watcher.look() == []
    board.claim(first, "anna")
    board.consume(first, "anna")
    assert {each.event for each in watcher.look()} == {"CONSUMED", "REMOVAL"}
    board.post("urgent", priority="VERY_HIGH")
    assert [(each.event, each.name) for each in watcher.look()] == [("POSTED", "urgent")]


@pytest.mark.rule("watch shows reasons and durations.")
@pytest.mark.backends("sqlite", "redis")
def test_reasons_and_durations_are_shown(board: Any) -> None:
    watcher = Watcher(board)
    board.post("resize")
    watcher.look()
    job = board.claim_next("anna")
    claimed_on = job.last_modified
    [claimed] = watcher.look()
    assert (claimed.event, claimed.who, claimed.seconds, claimed.reason) == ("CLAIMED", "anna", None, None)
    board.abandon(job, "anna", error="Traceback\nValueError: no picture", delay=600)
    [given_back] = watcher.look()
    lasted = board.get(job.uuid).last_modified - claimed_on
    assert given_back.seconds == pytest.approx(lasted.total_seconds(), abs=0.001)
    assert given_back.reason.endswith("ValueError: no picture")
    assert given_back.due is not None


@pytest.mark.rule("top and watch go on after an outage.")
@pytest.mark.backends("postgresql", "zookeeper")
def test_events_of_an_outage_are_shown_after_it(
    backend: str, private_server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = private_server(backend)
    heard: list[tuple[str, str]] = []

    def watch(board: Any) -> None:
        with pytest.raises(jobboard.ConnectionFailure):
            heard.extend((each.event, each.name) for each in Watcher(board).compared())

    with jobboard.backend("board", server.uri) as other:
        watched = jobboard.fetch("board", {"board": server.uri, "retry_for": 0})
        watched.connect()
        watcher = threading.Thread(target=watch, args=(watched,))
        watcher.start()
        eventually(lambda: other.post("before") and heard, 30)
        server.kill()
        eventually(lambda: "can't look at the board" in caplog.text, 30)
        server.start()
        job = other.post("after")
        eventually(lambda: ("POSTED", "after") in heard, 30)
        other.claim(job, "anna")
        other.consume(job, "anna")
        eventually(lambda: ("CONSUMED", "after") in heard, 30)
        watched.close()
        watcher.join(30)
        assert not watcher.is_alive()


@pytest.mark.backends("redis")
def test_reported_events_are_shown(board: Any, run: Commands) -> None:
    with busy(board):
        out = run.until(lambda out: out.count("CONSUMED") > 1 and "CLAIMED" in out, "watch")
        options = ("--event", "abandoned", "--job", "busy", "--json")
        told = run.until(lambda out: out.count("\n") > 3, "watch", *options)
    assert "busy  worker[/]" in out
    assert "REMOVAL" not in out  # it says no more than CONSUMED
    last = Ran(0, told, "").lines[-1]
    assert (last["event"], last["name"], last["who"]) == ("ABANDONED", "busy", "worker[/]")


@pytest.mark.rule("watch looks for itself where no backend reports events.")
@pytest.mark.backends("sqlite", "etcd", "zookeeper")
def test_events_are_looked_for_where_no_backend_reports_them(
    board: Any, run: Commands, capsys: pytest.CaptureFixture[str]
) -> None:
    with posting(board):
        options = ("--json", "--job", "posted[/]", "--event", "posted")
        line, *_ = Ran(0, run.until(bool, "watch", *options), "").lines
    assert (line["event"], line["name"], line["who"]) == ("POSTED", "posted[/]", None)
    assert "reports no events" in capsys.readouterr().err
    assert "EXTENDED does not show" in run("watch", "--event", "extended", status=USAGE).err
