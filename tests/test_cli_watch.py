"""What watch makes of two looks at a board, where the backend tells nobody what happens."""

import threading
from typing import Any

import pytest

import jobboard
from jobboard.cli.watch import Comparison, compared
from jobboard.testing import eventually
from jobboard.testing.conformance.support import let_lapse


@pytest.mark.backends("sqlite", "zookeeper")
def test_what_shows_from_one_look_to_the_next(board: Any) -> None:
    comparison = Comparison(board)

    def shown() -> list[tuple[str, str, str | None]]:
        return [(each.event, each.name, each.who) for each in comparison.look()]

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


@pytest.mark.backends("sqlite", "etcd", "zookeeper")
def test_a_post_that_replaces(board: Any) -> None:
    comparison = Comparison(board)

    def shown() -> list[tuple[str, str | None]]:
        return [(each.event, each.who) for each in comparison.look()]

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
def test_what_only_moves_into_the_first_page_or_out_of_it_did_not_happen(
    board: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobboard.primitives.PAGE", 2)
    comparison = Comparison(board)
    first, *_ = [board.post("a") for _ in range(3)]
    assert comparison.look() == []
    board.claim(first, "anna")
    board.consume(first, "anna")
    assert {each.event for each in comparison.look()} == {"CONSUMED", "REMOVAL"}
    board.post("urgent", priority="VERY_HIGH")
    assert [(each.event, each.name) for each in comparison.look()] == [("POSTED", "urgent")]


@pytest.mark.backends("postgresql", "zookeeper")
def test_what_happens_in_an_outage_shows_after_it(
    backend: str, private_server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = private_server(backend)
    heard: list[tuple[str, str]] = []

    def watch(board: Any) -> None:
        with pytest.raises(jobboard.ConnectionFailure):
            heard.extend((each.event, each.name) for each in compared(board, ()))

    with jobboard.backend("board", server.uri) as other:
        watched = jobboard.fetch("board", {"board": server.uri, "retry_for": 0})
        watched.connect()
        watcher = threading.Thread(target=watch, args=(watched,))
        watcher.start()
        eventually(lambda: other.post("before") and heard)
        server.kill()
        eventually(lambda: "can't look at the board" in caplog.text)
        server.start()
        job = other.post("after")
        eventually(lambda: ("POSTED", "after") in heard)
        other.claim(job, "anna")
        other.consume(job, "anna")
        eventually(lambda: ("CONSUMED", "after") in heard)
        watched.close()
        watcher.join(30)
        assert not watcher.is_alive()
