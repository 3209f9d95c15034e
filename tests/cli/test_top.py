"""``jobboard top``: the knowledge of its sampler, its cost, and its screen."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

import jobboard
from jobboard import Conductor, Entity
from jobboard.cli import sampler as sampling
from jobboard.cli.sampler import Conductors, Pace, Sampler
from jobboard.cli.top import as_json, as_line
from jobboard.testing import eventually
from tests.support.commands import Commands, busy, screen_of, seen_by

LONG = "thumbnails-of-pictures-that-were-uploaded-by-partners"
HOST = "worker-for-pictures.production.svc.cluster.local"
MEMORY = pytest.mark.backends("memory")

# Cost


@pytest.mark.backends("sqlite", "redis")
def test_top_asks_twice_a_second_at_most(
    board: Any, backend: str, private_server: Any, run: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The requests are counted at the server, on a board with more jobs than a page."""
    server = None
    if backend != "sqlite":
        server = private_server(backend)
        monkeypatch.setenv("JOBBOARD_URL", server.uri)
        board = jobboard.fetch(board.name, server.uri)
        board.connect()
    board.post_many([{"name": "a", "priority": "VERY_LOW"}] * 600)
    claimed = [board.claim_next("me", expiry=600) for _ in range(3)]
    count = {"sqlite": statements, "redis": requests}[backend]
    run("top", "--once")  # a script that Redis does not know yet is sent twice
    with count(server) as asked:
        start = asked()
        run("setup")
        # To connect costs some requests, too; after that, a setup asks for nothing.
        connecting, began = asked() - start, time.monotonic()
        out = run.until(lambda out: True, "top", "--interval", "0.1", "--json")
        spent, sent = time.monotonic() - began, asked() - start - 2 * connecting
    board.close()
    first = json.loads(out)
    assert first["of"] == {"waiting": 597, "running": 3}
    assert {each["uuid"] for each in first["running"]} == {job.uuid for job in claimed}
    assert 0 < first["seen"]["waiting"] <= 500
    assert spent >= 1
    # To begin listening to events are two requests.
    assert 5 <= sent <= 2 * spent + 2


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
    """Count requests to Redis. A script is one request, whatever it calls."""
    import redis

    host, port = server.address
    with redis.Redis(host=host, port=port) as client:
        names = ("evalsha", "eval", "hset", "ping", "ssubscribe", "subscribe")

        def asked() -> int:
            stats = client.info("commandstats")
            return sum(stats[f"cmdstat_{name}"]["calls"] for name in names if f"cmdstat_{name}" in stats)

        yield asked


@MEMORY
def test_a_server_that_answers_slowly_is_left_alone_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(sampling, "time", SimpleNamespace(monotonic=lambda: now[0]))
    pace = Pace()

    def look(seconds: float, error: Exception | None = None) -> float:
        def take() -> None:
            now[0] += seconds
            if error is not None:
                raise error

        with nullcontext() if error is None else pytest.raises(type(error)):
            pace.ask(take)
        return pace.pause()

    assert look(0.0) == pytest.approx(1 / 1.8)
    assert look(0.5) == pytest.approx(5.0)
    assert look(60.0) == 30.0
    # A server that was away has not worked for as long as it took to find out.
    assert look(10.0, jobboard.ConnectionFailure("away")) == pytest.approx(1 / 1.8)


@pytest.mark.backends("redis")
def test_top_goes_on_when_the_board_has_been_away(
    private_server: Any, run: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobboard.cli.sampler.LOOKS", 50)  # another test is about the pace
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

    run.until(enough, "top", "--interval", "0.1")
    assert "unclaimed 0" in lines[0]
    assert "away: " in lines[1]


# Knowledge


@pytest.mark.backends("memory", "sqlite")
def test_jobs_that_nobody_has_swept_hide_no_claim(board: Any) -> None:
    """Due jobs that no claim has swept yet stand beside the claims in the store."""
    first, second = board.post_many([{"name": "a", "delay": 0.01}, {"name": "b"}])
    board.claim(second, "anna")
    eventually(lambda: first.state == "UNCLAIMED")
    assert [record.uuid for record in seen_by(board).running] == [second.uuid]


@MEMORY
@pytest.mark.parametrize("page", [500, 2])
def test_failed_jobs_that_will_be_tried_again_are_shown(board: Any, page: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "PAGE", page)
    board.post_many([{"name": "waits"}] * 3)
    job = board.post("fails")
    board.claim(job, "me")
    board.abandon(job, "me", delay=600, error="disk full")
    shown = as_json(seen_by(board), None)
    assert {"name": "fails", "waiting": 0, "scheduled": 1, "running": 0} in shown["by_name"]
    assert [(each["name"], each["error"]) for each in shown["errors"]] == [("fails", "disk full")]


@MEMORY
def test_top_looks_at_the_first_of_very_many_priorities(board: Any) -> None:
    board.post_many([{"name": "first", "priority": 100}] * 500)
    board.post_many([{"name": "later", "priority": 99 - n} for n in range(30)])
    assert [record.priority for record in seen_by(board).heads] == list(range(1, 11))


@pytest.mark.backends("memory", "sqlite", "redis", "etcd", "zookeeper")
def test_knowledge_of_the_first_jobs_alone_is_shown_as_such(board: Any) -> None:
    """A job of a low priority, behind more than top looks at, is the oldest all the same."""
    starved = board.post("starved", priority="VERY_LOW")
    board.post_many([{"name": f"name{n % 9}", "priority": "HIGH"} for n in range(600)])
    board.post("late", priority="LOW")
    claims = board.claim_many("me", 3)
    calls: list[int] = []
    page = type(board.engine.raw).page

    def spying(self: Any, after: Any, limit: int, *args: Any) -> Any:
        calls.append(limit)
        return page(self, after, limit, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(board.engine.raw), "page", spying)
        sampler = seen_by(board)
    assert sampler.oldest_waiting is not None
    assert sampler.oldest_waiting.uuid == starved.uuid
    assert {record.uuid for record in sampler.running} == {job.uuid for job in claims}
    # The claims, the first page, and the head of each priority behind it, however many jobs there are.
    assert calls == [3, 500, 1, 1]
    screen = screen_of(sampler)
    assert "of the first 500 of 599 that wait" in screen
    assert f"{starved.uuid[:8]} starved" in screen
    assert "running, the longest first\n" in screen


# Rates


NOTHING: dict[str, int] = {"dispatched": 0, "consumed": 0, "abandoned": 0, "trashed": 0}


def one(name: str, seconds: float, consumed: int, **more: Any) -> Entity:
    return Entity("conductor", name, {**NOTHING, "pid": 1, "seconds": seconds, "consumed": consumed, **more})


@MEMORY
def test_a_rate_is_taken_over_the_conductors_own_time() -> None:
    conductors = Conductors()
    conductors.hear([one("a", 100, 5, trashed=5)])
    assert conductors.rates == {}
    for seconds, consumed in ((110, 25), (120, 85), (130, 86)):
        conductors.hear([one("a", seconds, consumed, trashed=consumed)])
        conductors.hear([one("a", seconds, consumed, trashed=consumed)])
    assert conductors.rates["consumed"] == conductors.rates["trashed"] == (86 - 5) / 30
    assert conductors.rates["started"] == 0
    for seconds in range(140, 170, 10):
        conductors.hear([one("a", seconds, 86)])
    assert conductors.rates["consumed"] == 0


@MEMORY
def test_the_rates_of_live_conductors_are_summed() -> None:
    conductors = Conductors()
    conductors.hear([one("a", 10, 0), one("b", 1000, 300), one("c", 5, 0)])
    conductors.hear([one("a", 20, 40), one("b", 1010, 310), one("c", 5, 0)])
    assert conductors.rates["consumed"] == 5
    assert conductors.rates_of(one("b", 1010, 310))["consumed"] == 1
    assert conductors.rates_of(one("c", 5, 0)) == conductors.rates_of(one("d", 5, 0)) == {}
    conductors.hear([one("b", 1020, 320)])
    assert conductors.rates["consumed"] == 1


@MEMORY
def test_a_conductor_that_was_started_again_counts_from_0() -> None:
    conductors = Conductors()
    conductors.hear([one("a", 10, 5000)])
    conductors.hear([one("a", 20, 5040)])
    conductors.hear([one("a", 11, 0, pid=2)])
    assert conductors.rates == {}
    conductors.hear([one("a", 21, 30, pid=2)])
    assert conductors.rates["consumed"] == 3


@MEMORY
def test_an_entity_that_does_not_count_has_no_rate() -> None:
    for metadata in ({}, {"seconds": 1}, {**NOTHING, "seconds": "long"}, {**NOTHING, "seconds": None}):
        conductors = Conductors()
        for kind in ("conductor", "monitor"):
            conductors.hear([Entity(kind, "a", metadata)])
            assert conductors.rates == {}


@pytest.mark.backends("sqlite")
def test_conductors_report_rates_where_the_board_does_not(make_board: Any, start: Any) -> None:
    board = make_board(claim_ttl=1.5)
    running, over = threading.Event(), threading.Event()

    def hold(job: Any) -> None:
        running.set()
        over.wait(60)

    start(Conductor("busy", board, {"quick": lambda job: None, "long": hold}, max_simultaneous_jobs=3))
    board.post("long")
    assert running.wait(30)
    sampler = Sampler(make_board())
    shown: dict[str, Any] = {}

    def rated() -> bool:
        board.post_many([{"name": "quick"}] * 5)
        sampler.count()
        sampler.ask_entities()
        shown.update(as_json(sampler, None))
        # The entity lapses for a moment where its heartbeat comes late.
        entities = shown["entities"]
        return len(entities) == 1 and (entities[0]["consumed_per_second"] or 0) > 0

    try:
        eventually(rated, 30)
    finally:
        over.set()
    assert shown["rate_per_second"]["posted"] is None
    assert shown["rate_per_second"]["consumed"] == shown["entities"][0]["consumed_per_second"]
    assert "consumed " in as_line(sampler, None)
    assert "posted " not in as_line(sampler, None)
    assert " of 3 " in screen_of(sampler)
    assert "report of themselves" in screen_of(sampler)


@pytest.mark.backends("redis")
def test_rates_are_known_where_the_board_reports_events(board: Any, make_board: Any) -> None:
    sampler = Sampler(make_board())
    sampler.look()

    def rated() -> bool:
        sampler.count()
        rates = sampler.rates
        return bool(rates) and all(rates[name] > 0 for name in ("posted", "consumed"))

    with busy(board):
        eventually(rated)
    assert "report of themselves" not in screen_of(sampler)


@pytest.mark.backends("redis")
def test_a_trashed_job_is_not_counted_twice(make_board: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The count of the trash changes, and events report the same: two figures, and not their sum."""
    monkeypatch.setattr(sampling, "SHORTEST", 1e-9)
    board = make_board()
    sampler = Sampler(board)
    sampler.count()
    began = sampler.counted_at
    for _ in range(3):
        board.cancel(board.post("a"))

    def total() -> float:
        sampler.count()
        return sampler.rates["trashed"] * (sampler.counted_at - began)

    assert eventually(lambda: total() > 2.9)
    assert total() == pytest.approx(3)
    assert sampler.changes["trashed"] * (sampler.counted_at - began) == pytest.approx(3)


# The screen


@MEMORY
def test_a_screen_obeys_no_text(board: Any) -> None:
    evil = "[/] [red]x\u202e :smile:"
    board.register_entity(Entity("conductor", evil, {"host": "\x1b]0;owned\x07", "pid": 1, "more": "\x9b31m"}))
    board.post(evil)
    board.claim_next("[bold]who[/]")
    board.post("[/other]")
    board.cancel(board.post("failed"), reason="first\n\x1b[31m\x07[/]")
    sampler = seen_by(board)
    for text in (screen_of(sampler), as_line(sampler, None), as_line(sampler, "\x1b[31m\nfar away")):
        assert not set(text) & set("\x07\x9b\r\u202e")
        assert "\x1b]" not in text
        assert "\x1b[31m" not in text
    for word in ("[/] [red]x\\u202e :smile:", "[bold]who[/]", "[/other]", "\\x1b[31m\\x07[/]", "more=\\x9b31m"):
        assert word in screen_of(sampler)
    assert json.dumps(as_json(sampler, None)).isascii()


@pytest.fixture
def crowded(make_board: Any) -> Sampler:
    """Everything on this board has a long name."""
    board = make_board(f"board-{LONG}")
    board.post_many([{"name": f"{LONG}-{n}", "max_attempts": 5} for n in range(12)])
    told = {"host": HOST, "pid": 1234567, "names": [LONG, f"{LONG}-2"], "running": 16, "slots": 16, "lost": 3}
    for n in range(4):
        board.claim_next(f"{HOST}-{10000 + n}", expiry=300)
        board.register_entity(Entity("conductor", f"{HOST}-{10000 + n}", {**told, "consumed": 123456789}))
    for job in list(board.iterjobs(only_unclaimed=True))[:3]:
        board.cancel(job, reason="no space left on the device that the pictures are to be written to")
    return seen_by(board)


@MEMORY
@pytest.mark.parametrize("width", [60, 80, 100])
@pytest.mark.parametrize("height", [24, 40])
def test_a_screen_fits_and_its_numbers_are_whole(crowded: Sampler, width: int, height: int) -> None:
    lines = screen_of(crowded, height, width).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) <= height
    text = "\n".join(lines)
    assert re.search(r"\d…|…\d|\d\.…", text) is None
    assert "for  uuid" in text
    titles = next(at for at, line in enumerate(lines) if line.split()[:2] == ["for", "uuid"])
    assert lines[titles].split() == ["for", "uuid", "name", "owner", "lease", "attempt"]
    claim = lines[titles + 1]
    assert re.fullmatch(r" *[\d.]+s +[0-9a-f]{8} +th\S*… +wo\S*… +fixed, \dm\d\ds +1 of 5", claim)
    conductor = lines[lines.index(next(line for line in lines if line.startswith("name  "))) + 1]
    assert re.search(r"^wo\S*… .*1234567 .*16 of 16 +123456789", conductor)
    assert re.search(r"ago +[0-9a-f]{8} +th\S*… +(TRASHED +)?no space", text)
    assert re.search(r"^oldest waiting: posted [\d.]+s ago, [0-9a-f]{8} thumbn", text, re.MULTILINE)
    assert re.search(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  board-thumbn", text)
    assert re.search(r"^unclaimed +5 ", text, re.MULTILINE)
    assert "change/s" in text
    assert re.search(r"by name.* running$", text, re.MULTILINE)


@MEMORY
def test_a_wide_screen_cuts_nothing(crowded: Sampler) -> None:
    text = screen_of(crowded, 40, 600)
    assert "…" not in text
    assert crowded.running[0].uuid[:8] in text
    assert "lost=3" in text


@MEMORY
@pytest.mark.parametrize("height", [10, 24, 40])
def test_a_low_screen_shows_a_part_of_long_lists(board: Any, height: int) -> None:
    board.post_many([{"name": f"name{n}"} for n in range(40)])
    for n in range(20):
        board.claim_next(f"me{n}")
        board.register_entity(Entity("conductor", f"me{n}", {}))
    for job in list(board.iterjobs(only_unclaimed=True)):
        board.cancel(job, reason="no")
    lines = screen_of(seen_by(board), height, 80).splitlines()
    assert len(lines) <= max(height, 24)
    assert all(len(line) <= 80 for line in lines)


@MEMORY
def test_names_get_the_lines_that_no_list_needs(board: Any) -> None:
    board.post_many([{"name": f"name{n:02}"} for n in range(20)])
    board.claim_next("anna")
    lines = screen_of(seen_by(board), 24, 80).splitlines()
    assert len(lines) == 24
    assert sum("name" in line for line in lines if "by name" not in line and "oldest" not in line) >= 10
    assert any(re.search(r"\(\d+ more\)", line) for line in lines)
    assert len(screen_of(seen_by(board), 60, 80).splitlines()) < 40, "no more lines than there are names"


@pytest.mark.backends("sqlite")
def test_once_into_a_pipe_is_a_line(board: Any, run: Commands) -> None:
    board.post("resize")
    [line] = run("top", "--once").out.splitlines()
    assert re.fullmatch(
        r"\S+ \S+ unclaimed 1, scheduled 0, claimed 0, trashed 0.*, oldest waiting [\d.]+s resize", line
    )
