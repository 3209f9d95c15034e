"""``jobboard top``: its cost, its knowledge, and its screen."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import jobboard
from jobboard import Entity
from jobboard.cli import top
from jobboard.cli.top import PARTS, as_json, as_line, look
from jobboard.reading import BoardReader, rest
from jobboard.testing import eventually
from tests.support.commands import Commands, screen_of

LONG = "thumbnails-of-pictures-that-were-uploaded-by-partners"
HOST = "worker-for-pictures.production.svc.cluster.local"
MEMORY = pytest.mark.backends("memory")

# Cost


@pytest.mark.rule(
    "top asks for the same few things however large the board is, and leaves a slow server alone for longer."
)
@pytest.mark.backends("sqlite", "redis")
def test_a_look_takes_a_few_requests_however_large_the_board_is(board: Any, backend: str, private_server: Any) -> None:
    server = None if backend == "sqlite" else private_server(backend)
    if server is not None:
        board = jobboard.fetch(board.name, server.uri)
        board.connect()
    board.post_many([{"name": "a", "priority": "VERY_LOW"}] * 3)
    claimed = board.claim_next("me", expiry=600)
    reader = BoardReader(board)
    reader.read(PARTS)  # a script that Redis does not know yet is sent twice
    with {"sqlite": statements, "redis": requests}[backend](server) as asked:
        began = asked()
        reader.read(PARTS)
        few = asked() - began
        board.post_many([{"name": "a"}] * 1500)
        began = asked()
        seen = reader.read(PARTS)
        assert asked() - began == few <= 12
    assert [job.uuid for job in seen.claims] == [claimed.uuid]
    assert len(seen.jobs) == 500
    board.close()


@contextmanager
def statements(server: None) -> Iterator[Callable[[], int]]:
    """Count the statements by which boards read: SQLite has no server to ask."""
    from jobboard.sql.connections import Link

    seen: list[str] = []
    rows = Link.rows

    def spying(link: Any, statement: Any, params: Any) -> Any:
        seen.append(str(statement))
        return rows(link, statement, params)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Link, "rows", spying)
        yield lambda: len(seen)


@contextmanager
def requests(server: Any) -> Iterator[Callable[[], int]]:
    """Count the scripts that Redis runs."""
    import redis

    with redis.Redis.from_url(server.uri) as client:
        yield lambda: client.info("commandstats")["cmdstat_evalsha"]["calls"]


@pytest.mark.rule(
    "top asks for the same few things however large the board is, and leaves a slow server alone for longer."
)
def test_a_server_that_answers_slowly_is_left_alone_for_longer() -> None:
    assert [rest(took, 4.0) for took in (0.0, 0.3, 0.5, 60.0)] == [4.0, 4.0, 5.0, 30.0]


@pytest.mark.rule("top and watch go on after an outage.")
@pytest.mark.backends("redis")
def test_top_goes_on_when_the_board_has_been_away(
    private_server: Any, run: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = private_server("redis", durable=True)
    monkeypatch.setenv("JOBBOARD_URL", server.uri)
    run("setup")
    lines: list[str] = []

    def enough(out: str) -> bool:
        lines.append(out.splitlines()[-1])
        if len(lines) == 1:
            server.kill()
        elif len(lines) == 2:
            server.restart()
        return len(lines) > 2 and "unclaimed" in lines[-1]

    run.until(enough, "top", "--interval", "1")
    assert "unclaimed 0" in lines[0]
    assert "away: " in lines[1]


@pytest.mark.rule("Whoever looks at a board that hangs learns within seconds how old the figures are.")
@pytest.mark.backends("redis")
def test_top_tells_that_a_board_hangs(private_server: Any, run: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    server = private_server("redis")
    monkeypatch.setenv("JOBBOARD_URL", f"{server.uri}?socket_timeout=60")
    for module in ("jobboard.reading", "jobboard.cli.top"):
        monkeypatch.setattr(f"{module}.SILENT", 0.5)
    run("setup")
    lines: list[str] = []

    def enough(out: str) -> bool:
        lines.append(out.splitlines()[-1])
        if len(lines) == 1:
            server.pause()
        elif len(lines) == 2:
            server.resume()
        return len(lines) > 2 and "unclaimed" in lines[-1]

    run.until(enough, "top", "--interval", "1")
    assert "unclaimed 0" in lines[0]
    assert "away: the board 'jobboard' has not answered for" in lines[1]


# Knowledge


@pytest.mark.backends("memory", "sqlite")
def test_jobs_that_nobody_has_swept_hide_no_claim(board: Any) -> None:
    """Due jobs that no claim has swept yet stand beside the claims in the store."""
    first, second = board.post_many([{"name": "a", "delay": 0.01}, {"name": "b"}])
    board.claim(second, "anna")
    eventually(lambda: first.state == "UNCLAIMED")
    assert [job.uuid for job in look(board).claims] == [second.uuid]


@MEMORY
def test_failed_jobs_that_will_be_tried_again_are_shown(board: Any) -> None:
    board.post_many([{"name": "waits"}] * 3)
    job = board.post("fails")
    board.claim(job, "me")
    board.abandon(job, "me", delay=600, error="disk full")
    shown = as_json(look(board))
    assert {"label": "fails", "name": "fails", "waiting": 0, "scheduled": 1, "running": 0} in shown["by_name"]
    assert [(each["name"], each["error"]) for each in shown["errors"]] == [("fails", "disk full")]


@MEMORY
def test_counts_show_how_fast_they_change(board: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = look(board)
    board.post_many([{"name": "a"}] * 5)
    after = look(board, before)
    assert after.change["unclaimed"] == pytest.approx(5 / (after.now - before.now))
    assert as_json(after)["change_per_second"]["trashed"] == 0
    assert as_json(before)["change_per_second"]["trashed"] is None


@pytest.mark.backends("memory", "sqlite", "redis", "etcd", "zookeeper")
def test_knowledge_of_the_first_jobs_alone_is_shown_as_such(board: Any) -> None:
    board.post_many([{"name": f"name{n % 9}", "priority": "HIGH"} for n in range(600)])
    behind = board.post("behind")
    board.claim(behind, "me")
    seen = look(board)
    assert [job.uuid for job in seen.claims] == [behind.uuid], "claims are found wherever they are"
    assert as_json(seen)["seen"] == {"waiting": 500, "running": 1}
    assert as_json(seen)["of"] == {"waiting": 600, "running": 1}
    assert "of the first 500 of 601 jobs" in screen_of(board)
    assert "running, the longest first\n" in screen_of(board)


# The screen


@pytest.mark.rule("No text of a job is an instruction to a terminal.")
@MEMORY
def test_a_screen_obeys_no_text(board: Any) -> None:
    evil = "[/] [red]x\u202e :smile:"
    board.register_entity(Entity("conductor", evil, {"host": "\x1b]0;owned\x07", "pid": 1, "more": "\x9b31m"}))
    board.post(evil)
    board.claim_next("[bold]who[/]")
    board.post("[/other]")
    board.cancel(board.post("failed"), reason="\x1b[31m\x07[/]\nlast")
    seen = look(board)
    away = top.replace(seen, trouble="\x1b[31m\nfar away")
    for text in (screen_of(board), as_line(seen), as_line(away)):
        assert not set(text) & set("\x07\x9b\r\u202e")
        assert "\x1b]" not in text
        assert "\x1b[31m" not in text
    for word in ("[/] [red]x\\u202e :smile:", "[bold]who[/]", "[/other]", "\\x1b[31m\\x07[/]", "more=\\x9b31m"):
        assert word in screen_of(board)
    assert json.dumps(as_json(seen)).isascii()


@pytest.fixture
def crowded(make_board: Any) -> Any:
    """Everything on this board has a long name."""
    board = make_board(f"board-{LONG}")
    board.post_many([{"name": f"{LONG}-{n}", "max_attempts": 5} for n in range(12)])
    told = {"host": HOST, "pid": 1234567, "names": [LONG, f"{LONG}-2"], "running": 16, "slots": 16, "lost": 3}
    for n in range(4):
        board.claim_next(f"{HOST}-{10000 + n}", expiry=300)
        board.register_entity(Entity("conductor", f"{HOST}-{10000 + n}", {**told, "consumed": 123456789}))
    for job in list(board.iterjobs(only_unclaimed=True))[:3]:
        board.cancel(job, reason="no space left on the device that the pictures are to be written to")
    return board


@pytest.mark.rule("top fits its width without cutting a number.")
@MEMORY
@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("height", [24, 40])
def test_a_screen_fits_and_its_numbers_are_whole(crowded: Any, width: int, height: int) -> None:
    lines = screen_of(crowded, height, width).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) <= height
    text = "\n".join(lines)
    assert re.search(r"\d…|…\d|\d\.…", text) is None
    titles = next(at for at, line in enumerate(lines) if line.split()[:2] == ["for", "uuid"])
    assert lines[titles].split() == ["for", "uuid", "name", "owner", "lease", "attempt"]
    assert re.fullmatch(r" *[\d.]+s +[0-9a-f]{8} +th\S*…\S+ +wo\S*…\S+ +fixed, \dm\d\ds +1 of 5", lines[titles + 1])
    assert re.search(r"^conductor +wo\S*…\S+ .*1234567 .*16 of 16 +123456789", text, re.MULTILINE)
    assert re.search(r"ago +[0-9a-f]{8} +th\S*…\S+ +(TRASHED +)?no space", text)
    assert re.search(r"^oldest waiting: posted [\d.]+s ago, [0-9a-f]{8} thumbn", text, re.MULTILINE)
    assert re.search(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ  board 'board-thumbn", text)
    assert re.search(r"^unclaimed +5 ", text, re.MULTILINE)
    assert re.search(r"by name.* running$", text, re.MULTILINE)


@MEMORY
def test_a_wide_screen_cuts_nothing(crowded: Any) -> None:
    text = screen_of(crowded, 40, 600)
    assert "…" not in text
    assert "lost=3" in text


@MEMORY
@pytest.mark.parametrize("height", [24, 40])
def test_a_low_screen_shows_a_part_of_long_lists(board: Any, height: int) -> None:
    board.post_many([{"name": f"name{n}"} for n in range(60)])
    for n in range(20):
        board.claim_next(f"me{n}")
        board.register_entity(Entity("conductor", f"me{n}", {}))
    for job in list(board.iterjobs(only_unclaimed=True))[:30]:
        board.cancel(job, reason="no")
    lines = screen_of(board, height, 80).splitlines()
    assert len(lines) <= height
    assert any(re.fullmatch(r"running, the longest first: \d+ of 20", line) for line in lines)
    assert any("more)" in line for line in lines)


@pytest.mark.backends("sqlite")
def test_once_into_a_pipe_is_a_line(board: Any, run: Commands) -> None:
    board.post("resize")
    [line] = run("top", "--once").out.splitlines()
    assert re.fullmatch(
        r"\S+ [\d:]+Z unclaimed 1, scheduled 0, claimed 0, trashed 0, "
        r"oldest waiting: posted [\d.]+s ago, [0-9a-f]{8} resize, jobs named 'resize': no conductor handles them .*",
        line,
    )
