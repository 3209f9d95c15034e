"""The commands that look at a board and go on looking: top, watch, list by pages; on every backend; and their cost."""

import io
import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import jobboard
from jobboard.cli import main
from jobboard.cli import sampler as sampling
from jobboard.cli.root import COMMANDS
from jobboard.cli.sampler import Pace, Sampler
from jobboard.cli.top import as_json, as_line, render
from jobboard.testing import eventually

DONE, FAILED, USAGE, UNREACHABLE = range(4)
HANDLERS = "def anything(job):\n    pass\n"


class Out(io.StringIO):
    """A standard output that is a pipe to one who interrupts when they have seen enough."""

    def __init__(self, enough: Callable[[str], object]) -> None:
        super().__init__()
        self._enough = enough

    def write(self, text: str) -> int:
        written = super().write(text)
        if text.strip() and self._enough(self.getvalue()):
            raise KeyboardInterrupt
        return written


@pytest.fixture
def run_until(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Run a command until ``enough(all that it has printed)``, and end it as Ctrl-C does."""

    def call(enough: Callable[[str], object], *args: str) -> str:
        out = Out(enough)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", out)
            assert main(args) == DONE
        return out.getvalue()

    return call


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def call(*args: str, status: int = DONE) -> str:
        capsys.readouterr()
        assert main(args) == status
        return capsys.readouterr().out

    return call


@pytest.fixture
def board(board_of_commands: Any) -> Any:
    return board_of_commands


def lines_of(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def test_every_command(
    board: Any, run: Any, run_until: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    """Each of them, on every backend; what each does in detail is tested elsewhere."""
    (tmp_path / f"handlers_{backend}.py").write_text(HANDLERS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    ran = {"demo", "completion", "loop"}  # no board of ours

    def command(*args: str, status: int = DONE) -> str:
        ran.add(args[0])
        return run(*args, status=status)

    command("setup")
    refused = backend == "memory"
    posted = command("post", "one", status=USAGE if refused else DONE).strip()
    uuids = [board.post("one").uuid if refused else posted, *(board.post(name).uuid for name in ("two", "three"))]
    board.register_entity(jobboard.Entity("conductor", "me", {"host": "here", "pid": 7, "names": ["one"]}))
    claimed = board.claim_next("somebody")
    assert [each["owner"] for each in lines_of(command("list", "--json"))] == ["somebody", None, None]
    assert [each["uuid"] for each in lines_of(run("list", "--after", uuids[0], "--newer", "1h", "--json"))] == uuids[1:]
    assert run("list", "--older", "1h", "--json") == ""
    assert json.loads(command("show", uuids[0], "--json"))["owner"] == "somebody"
    assert json.loads(command("stats", "--json"))["claimed"] == 1
    assert "me" in command("entities")
    assert "'two'" in command("pause", "two")
    board.set_limit("two", concurrency=9)
    assert "9" in command("limit", "list")
    odd = {each["place"].split()[0] for each in lines_of(command("doctor", "--json", status=odd_status(board)))}
    assert odd <= {"characteristic"}, "a server of the tests may be set up to be fast"
    seen = json.loads(command("top", "--once", "--json"))
    assert seen["counts"] == {"unclaimed": 2, "scheduled": 0, "claimed": 1, "trashed": 0, "on_board": 3}
    assert seen["by_name"] == [
        {"name": n, "waiting": n != "one", "scheduled": 0, "running": n == "one"} for n in ("one", "three", "two")
    ]
    assert seen["oldest_waiting"]["uuid"] == uuids[1]
    assert [(each["uuid"], each["owner"]) for each in seen["running"]] == [(uuids[0], "somebody")]
    assert [each["name"] for each in seen["entities"]] == ["me"]
    assert set(seen["rate_per_second"]) == {"posted", "started", "consumed", "abandoned", "trashed"}
    assert seen["paused"] == {"everything": False, "names": ["two"]}
    assert [(each["name"], each["concurrency"]) for each in seen["limits"]] == [("two", 9)]
    command("resume")
    ran.add("watch")
    with posting(board):
        run_until(lambda out: "POSTED" in out and "posted[/]" in out, "watch")
    assert "was taken from 'somebody'" in command("release", uuids[0])
    assert claimed.state == "UNCLAIMED"
    command("cancel", *uuids[:2], "--reason", "why not")
    assert [each["uuid"] for each in lines_of(command("trash", "list", "--json"))] == uuids[1::-1]
    run("trash", "restore", uuids[0])
    run("trash", "purge", "--all")
    command("work", f"handlers_{backend}:anything", "--max-jobs", "2")
    assert board.job_count == 0
    assert command("done", "list", "--json") == command("schedule", "list", "--json") == ""
    assert set(COMMANDS) - ran <= {"move"}


def odd_status(board: Any) -> int:
    return FAILED if list(board.examine()) else DONE


@contextmanager
def again_and_again(step: Callable[[], object], pause: float) -> Iterator[None]:
    over = threading.Event()

    def run() -> None:
        while not over.wait(pause):
            step()

    runner = threading.Thread(target=run)
    runner.start()
    try:
        yield
    finally:
        over.set()
        runner.join()


@contextmanager
def busy(board: Any) -> Iterator[None]:
    """Jobs named 'busy' come and go meanwhile."""

    def work() -> None:
        job = board.post("busy", priority="VERY_HIGH")
        board.claim(job, "worker[/]")
        board.abandon(job, "worker[/]")
        board.claim(job, "worker[/]")
        board.consume(job, "worker[/]")

    with again_and_again(work, 0.01):
        yield


@contextmanager
def posting(board: Any) -> Iterator[None]:
    """One job after the other is posted meanwhile."""
    posted: list[Any] = []
    try:
        with again_and_again(lambda: posted.append(board.post("posted[/]", priority="VERY_HIGH")), 0.05):
            yield
    finally:
        for job in posted:
            board.claim(job, "worker")
            board.consume(job, "worker")


# What top costs


@pytest.mark.backends("sqlite", "redis")
def test_top_asks_twice_a_second_at_most(
    board: Any, backend: str, private_server: Any, run: Any, run_until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted at the server, on a board with more jobs than top looks at, and whatever interval is asked for."""
    server = None
    if backend != "sqlite":
        server = private_server(backend)
        monkeypatch.setenv("JOBBOARD_URL", server.uri)
        board = jobboard.fetch(board.name, server.uri)
        board.connect()
    board.post_many([{"name": "a", "priority": "VERY_LOW"}] * 600)
    claimed = [board.claim_next("me", expiry=60) for _ in range(3)]
    count = {"sqlite": statements, "redis": commands}[backend]
    run("top", "--once")  # a script that Redis does not know yet is sent twice
    with count(server) as asked:
        start = asked()
        run("setup")
        # To connect costs some requests, too; after that, a setup asks for nothing.
        connecting, began = asked() - start, time.monotonic()
        out = run_until(lambda out: True, "top", "--interval", "0.1", "--json")
        spent, sent = time.monotonic() - began, asked() - start - 2 * connecting
    board.close()
    [first] = lines_of(out)
    assert first["of"] == {"waiting": 597, "running": 3}
    assert {each["uuid"] for each in first["running"]} == {job.uuid for job in claimed}
    assert 0 < first["seen"]["waiting"] <= 500
    assert spent >= 1
    # To begin listening to events are two requests.
    assert 5 <= sent <= 2 * spent + 2


@contextmanager
def statements(server: None) -> Iterator[Callable[[], int]]:
    """The statements that all boards read by; in SQLite, nothing is sent to a server."""
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
def commands(server: Any) -> Iterator[Callable[[], int]]:
    """Without those that scripts call: a script is one request."""
    import redis

    host, port = server.address
    with redis.Redis(host=host, port=port) as client:
        names = ("evalsha", "eval", "hset", "ping", "ssubscribe", "subscribe")

        def asked() -> int:
            stats = client.info("commandstats")
            return sum(stats[f"cmdstat_{name}"]["calls"] for name in names if f"cmdstat_{name}" in stats)

        yield asked


@pytest.mark.backends("memory")
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


# What top knows


def seen_by(board: Any) -> Sampler:
    """All that top can know, without its pauses."""
    sampler = Sampler(board)
    while not sampler.complete:
        sampler.look()
    return sampler


def screen_of(sampler: Sampler, height: int = 100, width: int = 160) -> str:
    from rich.console import Console

    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=True, color_system=None)
    console.print(render(sampler, None, height, console))
    return out.getvalue()


@pytest.mark.backends("sqlite")
def test_priorities_groups_and_errors(board: Any, run: Any, tmp_path: Path) -> None:
    [uuid] = run("post", "one", "--priority", "-20", "--group", "customer-7").split()
    file = tmp_path / "jobs"
    file.write_text('{"name": "two", "priority": 7, "group": "b"}\n{"name": "three", "priority": "low"}\n')
    run("post", "--from", str(file))
    told = [(each["name"], each["priority"], each["group"]) for each in lines_of(run("list", "--json"))]
    assert told == [("two", 7, "b"), ("one", -20, "customer-7"), ("three", -50, None)]
    table = [line.split()[1:] for line in run("list").splitlines()[3:]]
    assert [row[:-1] for row in table] == [
        ["two", "UNCLAIMED", "7", "b"],
        ["one", "UNCLAIMED", "-20", "customer-7"],
        ["three", "UNCLAIMED", "LOW"],
    ]
    job = board.get(uuid)
    for who, text in (("anna", "first\nof two lines"), ("[bert]", "disk \x1b[31m full")):
        board.claim(job, who)
        board.abandon(job, who, error=text)
    board.cancel(job, reason="no use")
    shown = json.loads(run("show", uuid, "--json"))
    assert [(each["who"], each["attempt"], each["text"]) for each in shown["errors"]] == [
        *(("anna", 1, "first\nof two lines"), ("[bert]", 2, "disk \x1b[31m full"), (None, 2, "no use"))
    ]
    assert (shown["error"], shown["errors"][-1]["when"]) == ("no use", shown["last_modified"])
    out = run("show", uuid)
    assert "\npriority: -20\n" in out
    assert "\ngroup: customer-7\n" in out
    assert re.findall(r"error \d{4}-\d\d-\d\d \d\d:\d\d:\d\d, (.*)\n(.*)", out) == [
        *(("attempt 1 by anna:", "first"), ("attempt 2 by [bert]:", "disk \\x1b[31m full"), ("attempt 2:", "no use"))
    ]


@pytest.mark.backends("memory")
def test_of_very_many_priorities_top_looks_at_some(board: Any) -> None:
    board.post_many([{"name": "first", "priority": 100}] * 500)
    board.post_many([{"name": "later", "priority": 99 - n} for n in range(30)])
    sampler = seen_by(board)
    assert [record.priority for record in sampler.heads] == list(range(1, 11))


@pytest.mark.backends("memory", "sqlite", "redis", "etcd", "zookeeper")
def test_what_is_known_of_the_first_jobs_alone_is_shown_as_such(board: Any) -> None:
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
    # The claims, the first page, and the head of each priority behind it: however many jobs there are.
    assert calls == [3, 500, 1, 1]
    screen = screen_of(sampler)
    assert "of the first 500 of 599 that wait" in screen
    assert f"{starved.uuid[:8]} starved" in screen
    assert "(4 more)" in screen
    assert [line.strip() for line in screen.splitlines() if line.startswith("running")] == [
        "running, the longest first"
    ]


@pytest.mark.backends("memory")
def test_a_screen_shows_text_and_obeys_none(board: Any) -> None:
    evil = "[/] [red]x\u202e :smile:"
    board.register_entity(jobboard.Entity("conductor", evil, {"host": "\x1b]0;owned\x07", "pid": 1, "more": "\x9b31m"}))
    board.post(evil)
    board.claim_next("[bold]who[/]")
    board.post("[/other]")
    board.post("failed")
    board.cancel(next(job for job in board.iterjobs() if job.name == "failed"), reason="first\n\x1b[31m\x07[/]")
    sampler = seen_by(board)
    for text in (screen_of(sampler), as_line(sampler, None), as_line(sampler, "\x1b[31m\nfar away")):
        assert not set(text) & set("\x07\x9b\r\u202e")
        assert "\x1b]" not in text
        assert "\x1b[31m" not in text
    for word in ("[/] [red]x\\u202e :smile:", "[bold]who[/]", "[/other]", "\\x1b[31m\\x07[/]", "more=\\x9b31m"):
        assert word in screen_of(sampler)
    assert json.dumps(as_json(sampler, None)).isascii()


@pytest.mark.backends("memory")
@pytest.mark.parametrize("height", [10, 24, 40])
def test_a_screen_fits(board: Any, height: int) -> None:
    board.post_many([{"name": f"name{n}"} for n in range(40)])
    for n in range(20):
        board.claim_next(f"me{n}")
        board.register_entity(jobboard.Entity("conductor", f"me{n}", {}))
    for job in list(board.iterjobs(only_unclaimed=True)):
        board.cancel(job, reason="no")
    screen = screen_of(seen_by(board), height, 80)
    assert len(screen.splitlines()) <= max(height, 24)
    assert all(len(line) <= 80 for line in screen.splitlines())


@pytest.mark.backends("redis")
def test_rates_are_known_where_there_are_events(board: Any, make_board: Any) -> None:
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
def test_top_goes_on_when_the_board_has_been_away(
    private_server: Any, run_until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobboard.cli.sampler.LOOKS", 50)  # how it is paced is another test's business
    server = private_server("redis", durable=True)
    monkeypatch.setenv("JOBBOARD_URL", server.uri)
    assert main(["setup"]) == DONE
    lines = []

    def enough(out: str) -> bool:
        lines.append(out.splitlines()[-1])
        if len(lines) == 1:
            server.kill()
        elif len(lines) == 2:
            server.restart()
        return len(lines) > 2 and "unclaimed" in lines[-1]

    run_until(enough, "top", "--interval", "0.1")
    assert "unclaimed 0" in lines[0]
    assert "away: " in lines[1]


@pytest.mark.backends("memory", "sqlite")
@pytest.mark.parametrize("page", [500, 2])
def test_what_has_failed_and_will_be_tried_again_shows(board: Any, page: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "PAGE", page)
    board.post_many([{"name": "waits"}] * 3)
    job = board.post("fails")
    board.claim(job, "me")
    board.abandon(job, "me", delay=600, error="disk full")
    sampler = Sampler(board)
    while not sampler.complete:
        sampler.look()
    shown = as_json(sampler, None)
    assert {"name": "fails", "waiting": 0, "scheduled": 1, "running": 0} in shown["by_name"]
    assert [(each["name"], each["error"]) for each in shown["errors"]] == [("fails", "disk full")]


@pytest.mark.backends("redis")
def test_watch_tells_what_happens(board: Any, run_until: Any) -> None:
    with busy(board):
        out = run_until(lambda out: out.count("CONSUMED") > 1 and "CLAIMED" in out, "watch")
        options = ("--event", "abandoned", "--job", "busy", "--json")
        told = run_until(lambda out: out.count("\n") > 3, "watch", *options)
    assert "busy  worker[/]" in out
    assert "REMOVAL" not in out  # it says no more than CONSUMED
    last = lines_of(told)[-1]
    assert (last["event"], last["name"], last["who"]) == ("ABANDONED", "busy", "worker[/]")


@pytest.mark.backends("etcd", "zookeeper")
def test_watch_looks_for_itself_where_it_is_not_told_of_all(
    board: Any, run_until: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    job = board.post("busy")

    def work() -> None:
        board.claim(job, "worker[/]")
        board.abandon(job, "worker[/]")

    with again_and_again(work, 0.05):
        line, *_ = lines_of(run_until(bool, "watch", "--json", "--event", "claimed", "--job", "busy"))
        assert (line["event"], line["name"], line["who"]) == ("CLAIMED", "busy", "worker[/]")
        assert "does not report all" in capsys.readouterr().err
        run_until(lambda out: "worker[/]" in out, "watch")
    with posting(board):
        capsys.readouterr()
        assert "posted[/]" in run_until(bool, "watch", "--event", "posted")
        assert capsys.readouterr().err == ""
    assert main(["watch", "--event", "extended"]) == USAGE


@pytest.mark.backends("sqlite", "postgresql")
def test_watch_looks_for_itself_where_nobody_tells(
    board: Any, run_until: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with posting(board):
        line, *_ = lines_of(run_until(bool, "watch", "--json", "--job", "posted[/]", "--event", "posted"))
    assert (line["event"], line["name"], line["who"]) == ("POSTED", "posted[/]", None)
    assert "does not report all" in capsys.readouterr().err
    assert main(["watch", "--event", "lost"]) == USAGE
    assert "'LOST' is not one of 'POSTED'" in capsys.readouterr().err
    assert main(["watch", "--event", "extended"]) == USAGE
    assert "EXTENDED does not show" in capsys.readouterr().err
