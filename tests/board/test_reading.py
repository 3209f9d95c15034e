"""Readings that all who look at a board share: their cost, and what they show of a board that is slow or away."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jobboard
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.reading import COUNTED, PARTS, SILENT, BoardReader
from jobboard.sql.connections import Link
from jobboard.testing import eventually
from jobboard.testing.requests import requests
from tests.support.clock import Clock, set_clock

ALL = [part for part in PARTS if part not in ("jobs", "trashed")]
MEMORY = pytest.mark.backends("memory")


@pytest.fixture
def clock() -> Iterator[Clock]:
    with set_clock() as clock:
        yield clock


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    seen: list[str] = []
    rows = Link.rows

    def spying(link: Any, statement: Any, params: Any) -> Any:
        if threading.current_thread().name.endswith("-reader"):
            seen.append(str(statement))
        return rows(link, statement, params)

    monkeypatch.setattr(Link, "rows", spying)
    return seen


def settle(reader: BoardReader) -> None:
    eventually(lambda: not reader._wanted)


@pytest.mark.rule("All who look at a board share its readings: two statements a second at most, and none without them.")
@pytest.mark.backends("sqlite")
def test_readings_cost_the_same_however_many_look(
    make_board: Callable[..., Any], clock: Clock, statements: list[str]
) -> None:
    board = make_board()
    board.post_many([{"name": f"name{n % 20}", "priority": n % 3} for n in range(200)])
    reader = BoardReader(board)
    reader.look(ALL)
    settle(reader)
    assert len(statements) > 5
    statements.clear()
    for _ in range(240):
        clock.now += 0.5
        for _ in range(20):
            reader.look(ALL)
        settle(reader)
    assert 24 < len(statements) <= 2 * 120
    statements.clear()
    clock.now += 1000
    assert statements == []


@pytest.mark.rule("A reader connects its board once: a board that its owner closes stays closed.")
@MEMORY
def test_a_reader_never_opens_a_board_again(make_board: Callable[..., Any]) -> None:
    board = make_board()
    board.close()
    reader = BoardReader(board, connects=True)
    assert reader.read(["stats"]).stats is not None
    board.close()
    with pytest.raises(JobFailure, match="not connected"):
        reader.read(["stats"])
    assert board.closed


@MEMORY
def test_the_first_look_returns_at_once_and_fills(make_board: Callable[..., Any]) -> None:
    board = make_board()
    board.post_many([{"name": "resize"}] * 3)
    reader, go = BoardReader(board), threading.Event()
    with requests(board).before("counts", lambda: go.wait(30)):
        assert reader.look(ALL).stats is None
        assert reader.look(ALL).age() is None
        go.set()
        eventually(lambda: reader.look(ALL).causes is not None)
    look = reader.look(ALL)
    assert look.stats is not None
    assert look.stats.unclaimed == 3
    assert look.names is not None
    assert [(each.name, each.waiting) for each in look.names] == [("resize", 3)]
    assert look.unhandled() == ["resize"]


@pytest.mark.rule("A board that is away keeps its last look.")
@MEMORY
def test_a_board_that_is_away_keeps_its_last_look(make_board: Callable[..., Any], clock: Clock) -> None:
    board = make_board(retry_for=1)
    board.post("resize")
    reader = BoardReader(board)
    before = reader.read(ALL)
    assert before.trouble is None

    def fail() -> None:
        raise ConnectionFailure("the server has gone")

    hooks = [requests(board).before(request, fail) for request in ("counts", "read", "now", "walk")]
    clock.now += 60
    with pytest.raises(ConnectionFailure, match="has gone"):
        reader.read(ALL)
    away = reader.look(ALL)
    assert str(away.trouble) == "the server has gone"
    assert (away.stats, away.names, away.now) == (before.stats, before.names, before.now)
    assert away.age() == pytest.approx(60)
    for hook in hooks:
        hook.remove()
    board.post("resize")
    clock.now += 60
    eventually(lambda: reader.look(ALL).trouble is None)
    assert reader.read(ALL).stats.unclaimed == 2


@pytest.mark.rule("Whoever looks at a board that hangs learns within seconds how old the figures are.")
@pytest.mark.backends("redis")
def test_a_board_that_hangs_does_not_answer(private_server: Callable[..., Any], clock: Clock) -> None:
    """The page, ``top`` and the metrics look through the reader, whose driver would wait for a minute."""
    server = private_server("redis")
    with jobboard.backend("board", {"board": server.uri, "socket_timeout": 60}) as board:
        reader = BoardReader(board)
        before = reader.read(ALL)
        settle(reader)
        server.pause()
        clock.now += 60
        assert reader.look(ALL).trouble is None
        eventually(lambda: reader._began == clock.now)
        clock.now += SILENT + 2
        silent = reader.look(ALL)
        assert str(silent.trouble) == f"the board 'board' has not answered for {SILENT + 2:.0f} s"
        assert silent.stats == before.stats
        assert silent.age() == pytest.approx(60 + SILENT + 2)
        server.resume()
        eventually(lambda: reader.look(ALL).trouble is None)
        assert reader.read(ALL).age() == 0


@pytest.mark.rule("A count that takes too long is no outage.")
@MEMORY
def test_a_count_that_takes_too_long_is_no_outage(make_board: Callable[..., Any]) -> None:
    board = make_board()
    board.post("resize")

    def count(original: Callable[..., Any], states: Any, cap: int | None = None) -> Any:
        if cap is None and len(states) > 1:
            raise JobFailure("the count takes too long")
        return original(states, cap)

    with requests(board).around("counts", count):
        look = BoardReader(board).read(ALL)
    assert look.stats is not None
    assert (look.stats.unclaimed, look.cap, look.trouble) == (1, COUNTED, None)


@MEMORY
def test_a_part_that_fails_hides_no_other(make_board: Callable[..., Any]) -> None:
    board = make_board()
    reader = BoardReader(board)

    def fail() -> None:
        raise JobFailure("too many")

    with requests(board).before("walk", fail):
        with pytest.raises(JobFailure, match="too many"):
            reader.read(["names", "stats"])
        assert reader.read(["stats"]).stats is not None
    assert reader.read(["names", "stats"]).failed == {}


@MEMORY
def test_a_reading_in_time_is_waited_for_and_shared(make_board: Callable[..., Any]) -> None:
    board = make_board()
    reader, go, asked = BoardReader(board), threading.Event(), []

    def wait() -> None:
        asked.append(1)
        go.wait(30)

    with requests(board).before("counts", wait):
        with pytest.raises(TimeoutError, match="did not answer in time"):
            reader.read(["stats"], timeout=0)
        go.set()
        reader.read(["stats"], max_age=1000)
        reader.read(["stats"], max_age=1000)
    assert len(asked) == 1


@MEMORY
def test_a_reader_connects_its_board(make_board: Callable[..., Any]) -> None:
    board = make_board()
    board.close()
    with pytest.raises(ConnectionFailure):
        BoardReader(board).read(["stats"])
    assert BoardReader(board, connects=True).read(["stats"]).stats is not None
