"""``jobboard work`` as who starts it sees it: what it says, and how it begins and ends."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobboard.states import LAPSED
from jobboard.testing import eventually
from jobboard.testing.conformance.support import until_free

pytestmark = pytest.mark.backends("sqlite")

HANDLERS = """
import os, signal, sys, threading

def resize(job):
    open(f"begun-{job.name}", "w").close()
    if job.name == "poison":
        print(f"ran {job.attempts}", file=sys.stderr)
        os.kill(os.getpid(), signal.SIGKILL)
    if job.name == "hang":
        threading.Event().wait()
    if job.name == "bad":
        raise ValueError("no \\x1b[31m good")

HANDLERS = dict.fromkeys(("resize", "hang", "bad"), resize)
"""


class Work:
    def __init__(self, folder: Path, args: tuple[str, ...], env: dict[str, str]) -> None:
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jobboard.cli", "work", *args],
                stdout=subprocess.DEVNULL,
                stderr=log,
                cwd=folder,
                env={**os.environ, **env},
            )

    @property
    def said(self) -> str:
        return self.log.read_text()

    def says(self, pattern: str) -> Any:
        return eventually(lambda: re.search(pattern, self.said))

    def ends(self) -> int:
        return self.process.wait(30)


@pytest.fixture
def work(tmp_path: Path, board_conf: dict[str, Any]) -> Iterator[Callable[..., Work]]:
    (tmp_path / "handlers.py").write_text(HANDLERS)
    made: list[Work] = []

    def start(*args: str, uri: str = board_conf["board"], ttl: float | None = None) -> Work:
        uri = uri if ttl is None else f"{uri}?claim_ttl={ttl}"
        made.append(Work(tmp_path, args, {"JOBBOARD_URL": uri, "JOBBOARD_NAME": "board"}))
        return made[-1]

    yield start
    for each in made:
        each.process.kill()
        each.process.wait()


Start = Callable[..., Work]


def test_what_it_says_at_the_start(make_board: Any, work: Start, board_conf: dict[str, Any]) -> None:
    make_board().post("resize")
    running = work("handlers:HANDLERS", "--jobs", "3", "--who", "me", "--max-jobs", "1")
    assert running.ends() == 0
    [line] = running.said.splitlines()
    assert line.endswith(
        f"INFO me works on the board 'board' at {board_conf['board']}: resize, hang, bad; 3 at once, in threads"
    )


def test_a_line_for_each_job(make_board: Any, work: Start) -> None:
    good, bad = make_board().post_many([{"name": "resize"}, {"name": "bad", "max_attempts": 1}])
    running = work("handlers:resize", "-v", "--max-jobs", "2", "--jobs", "1")
    assert running.ends() == 0
    lines = running.said.splitlines()
    assert "jobs of any name" in lines[0]
    [done] = [line for line in lines if good.uuid in line]
    assert re.search(r"INFO Job 'resize' .*: done in \S+ s$", done)
    assert len([line for line in lines if "WARNING" in line and bad.uuid in line]) == 1


def test_the_first_interrupt_finishes_and_the_second_ends_at_once(make_board: Any, work: Start, tmp_path: Path) -> None:
    make_board().post("hang")
    running = work("handlers:resize")
    eventually((tmp_path / "begun-hang").exists)
    running.process.send_signal(signal.SIGINT)
    running.says("finishing 1 job; again to end now")

    def ended() -> bool:
        # Those that come too soon after the first are taken for the same Ctrl-C.
        running.process.send_signal(signal.SIGINT)
        return running.process.poll() is not None

    eventually(ended)
    assert running.process.returncode == -signal.SIGINT
    assert running.said.count("finishing") == 1
    assert "Traceback" not in running.said


def test_sigterm_finishes_too(make_board: Any, work: Start) -> None:
    board = make_board()
    running = work("handlers:resize")
    eventually(lambda: board.entities("conductor"))
    running.process.send_signal(signal.SIGTERM)
    assert running.ends() == 0
    assert running.said.rstrip().endswith("SIGTERM, finishing 0 jobs")


def test_a_signal_that_does_not_wake_the_main_thread(make_board: Any, work: Start, tmp_path: Path) -> None:
    """As one that comes while it is about to sleep."""
    (tmp_path / "handlers.py").write_text(
        "import os, signal, threading, time\n"
        "def end():\n"
        "    while not os.path.exists('end'):\n"
        "        time.sleep(0.01)\n"
        "    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)\n"
        "threading.Thread(target=end, daemon=True).start()\n"
        "def resize(job): pass\n"
    )
    board = make_board()
    running = work("handlers:resize")
    eventually(lambda: board.entities("conductor"))
    (tmp_path / "end").touch()
    assert running.ends() == 0


@pytest.mark.backends("redis")
def test_a_backend_that_is_down_at_the_start_is_waited_for(private_server: Any, work: Start, tmp_path: Path) -> None:
    import jobboard

    server = private_server("redis")
    server.kill()
    running = work("handlers:resize", "--max-jobs", "1", uri=server.uri)
    running.says("works on the board 'board' at redis://.*")
    running.says("waiting for the backend, trying again in .* s: .*127.0.0.1")
    server.start()
    with jobboard.backend("board", server.uri) as board:
        board.post("resize")
        assert running.ends() == 0
        assert board.job_count == 0


@pytest.mark.backends("redis")
def test_a_backend_that_refuses_is_not_waited_for(server_uris: dict[str, str], work: Start) -> None:
    running = work("handlers:resize", uri=server_uris["redis"].replace("//", "//mallory:sesame@"))
    assert running.ends() == 1
    assert "sesame" not in running.said


def test_a_board_for_looking_only_is_refused(work: Start) -> None:
    running = work("handlers:resize", uri="redis://127.0.0.1:1?read_only=true")
    assert running.ends() == 2
    assert "leave out read_only" in running.said


def test_an_interrupt_while_waiting(work: Start) -> None:
    running = work("handlers:resize", uri="postgresql://127.0.0.1:1/x")
    running.says("waiting for the backend")
    running.process.send_signal(signal.SIGINT)
    assert running.ends() == 130
    assert running.said.splitlines()[-1] == "jobboard: interrupted"


def test_logs_as_json(make_board: Any, work: Start) -> None:
    good, bad = make_board().post_many([{"name": "resize"}, {"name": "bad", "max_attempts": 1}])
    running = work("handlers:HANDLERS", "-v", "--log-format", "json", "--max-jobs", "2", "--who", "me")
    assert running.ends() == 0
    records = [json.loads(line) for line in running.said.splitlines()]
    assert running.said.isascii()
    assert all({"time", "level", "logger", "text"} <= set(record) for record in records)
    assert "works on the board" in records[0]["text"]
    [done] = [record for record in records if record.get("job") == good.uuid]
    assert (done["level"], done["job_name"], done["who"]) == ("INFO", "resize", "me")
    assert done["token"] > 0
    about_bad = [record for record in records if record.get("job") == bad.uuid]
    assert {"INFO", "WARNING"} == {record["level"] for record in about_bad}
    assert any("ValueError: no \x1b[31m good" in record.get("traceback", "") for record in about_bad)


def test_metrics(make_board: Any, work: Start) -> None:
    board = make_board()
    board.post("resize")
    board.post("later", delay=3600)
    running = work("handlers:resize", "--metrics-port", "0")
    address = running.says(r"metrics are at (http://127\.0\.0\.1:\d+/metrics)")[1]

    def scraped() -> str:
        with urllib.request.urlopen(address) as answer:
            return str(answer.read().decode())

    eventually(lambda: 'jobboard_job_events_total{board="board",event="consumed",job_name="resize"} 1.0' in scraped())
    assert 'jobboard_up{board="board"} 1.0' in scraped()
    assert 'jobboard_jobs{board="board",state="scheduled"}' in scraped()
    assert "process_open_fds" in scraped()
    port = address.split(":")[2].partition("/")[0]
    other = work("handlers:resize", "--metrics-port", port)
    assert other.ends() == 1
    assert f"can't listen on 127.0.0.1:{port}" in other.said
    assert "Traceback" not in other.said
    running.process.send_signal(signal.SIGTERM)
    assert running.ends() == 0


def test_workers_of_one_host_and_pid_have_names_of_their_own(
    board_of_commands: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """As in containers, where each may be process 1 of a host of one name."""
    from jobboard.cli import main

    board_of_commands.post_many([{"name": "a"}] * 2)
    assert [main(["work", "os:getpid", "--max-jobs", "1"]) for _ in range(2)] == [0, 0]
    first, second = re.findall(r"(\S+) works on the board", caplog.text)
    assert first != second
    assert all(name.startswith(f"{socket.gethostname()}-{os.getpid()}-") for name in (first, second))


def test_metrics_without_their_package(
    make_board: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, board_of_commands: Any, capsys: Any
) -> None:
    from jobboard.cli import main

    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "jobboard.contrib.prometheus", raising=False)
    assert main(["work", "os:getpid", "--metrics-port", "0"]) == 1
    assert "pip install '.[prometheus]'" in capsys.readouterr().err


@pytest.mark.parametrize(("before", "limits"), [(0, ("--max-attempts", "3")), (22, ())], ids=["said", "default"])
def test_a_job_that_kills_its_worker(make_board: Any, work: Start, before: int, limits: tuple[str, ...]) -> None:
    board = make_board()
    job = board.post("poison")
    for _ in range(before):
        board.abandon(board.claim_next("anna"), "anna")
    for number in range(1, 5):
        running = work("handlers:resize", "--who", "me", "--jobs", "1", "--max-jobs", "1", *limits, ttl=1)
        assert running.ends() == (0 if number == 4 else -signal.SIGKILL)
        assert (f"ran {before + number}" in running.said) == (number < 4)
        until_free(board, job)
        if number > 1:
            assert f"job {job.uuid}: the claim of 'me', attempt {before + number - 1}, has lapsed" in running.said
    assert f"is in the trash: not run again: its {before + 3} attempts are used up" in running.said
    [trashed] = board.trashed()
    assert [failure[1:] for failure in trashed.errors[:3]] == [("me", before + n, LAPSED) for n in (1, 2, 3)]


def test_work_without_a_limit_of_attempts(make_board: Any, work: Start) -> None:
    board = make_board()
    job = board.post("resize")
    for _ in range(25):
        board.abandon(board.claim_next("anna"), "anna")
    assert work("handlers:resize", "--max-attempts", "0", "--max-jobs", "1").ends() == 0
    assert job.state == "COMPLETE"
