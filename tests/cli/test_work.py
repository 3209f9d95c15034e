"""``jobboard work``: how it begins and ends, its log, its metrics and its limits."""

import contextlib
import json
import logging
import os
import re
import select
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import jobboard
from jobboard.cli.common import DONE, FAILED, USAGE
from jobboard.cli.output import SafeFormatter, StderrHandler
from jobboard.testing import eventually
from tests.support.commands import Commands
from tests.support.probes import status

pytestmark = pytest.mark.backends("sqlite")

HANDLERS = """
import logging, os, signal, sys, threading
import jobboard

def work(job):
    with open("notes", "a") as out:
        out.write(f"{job.name} {os.getpid()}\\n")
    if job.name == "poison":
        print(f"ran {job.attempts}", file=sys.stderr)
        os.kill(os.getpid(), signal.SIGKILL)
    if job.name == "hang":
        threading.Event().wait()
    if job.name == "later":
        raise jobboard.Retry("not now", delay=0.01)
    if job.name == "bad":
        logging.getLogger("app").warning("not good")
        raise ValueError("no \\x1b[31m good")

HANDLERS = dict.fromkeys(("resize", "hang", "bad"), work)
"""


class Work:
    """A process of ``jobboard work``, with its log in a file."""

    def __init__(self, folder: Path, args: tuple[str, ...], env: dict[str, str]) -> None:
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jobboard.cli", "work", "--json", *args],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=folder,
                env={**os.environ, **env},
            )

    @property
    def said(self) -> str:
        return self.log.read_text()

    def says(self, pattern: str) -> Any:
        return eventually(lambda: re.search(pattern, self.said), 30)

    def ends(self) -> int:
        return self.process.wait(60)

    def health(self) -> tuple[int, int]:
        """Return the status of /livez and of /readyz."""
        address = self.says(r"health is at (http://127\.0\.0\.1:\d+)\n")[1]
        return status(address, "livez"), status(address, "readyz")

    def tally(self) -> tuple[int, ...]:
        """Return the numbers of dispatched, consumed, abandoned and trashed jobs."""
        out, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == DONE, self.said
        told = json.loads(out)
        assert told["lost"] == 0
        return tuple(told[each] for each in ("dispatched", "consumed", "abandoned", "trashed"))


Start = Callable[..., Work]


@pytest.fixture
def work(tmp_path: Path, board_conf: dict[str, Any]) -> Iterator[Start]:
    (tmp_path / "handlers.py").write_text(HANDLERS)
    made: list[Work] = []

    def start(*args: str, uri: str = board_conf["board"], ttl: float | None = None) -> Work:
        uri = uri if ttl is None else f"{uri}?claim_ttl={ttl}"
        made.append(Work(tmp_path, args, {"JOBBOARD_URL": uri, "JOBBOARD_NAME": "board"}))
        return made[-1]

    yield start
    for each in made:
        each.process.kill()
        each.process.communicate()


# The log


TASKS = """
import os
import jobboard, jobboard.aio

board = jobboard.fetch("board", os.environ["JOBBOARD_URL"])
conductor = jobboard.Conductor("configured", board, max_simultaneous_jobs=3, schedules=False)

@conductor.handles("resize", retry=jobboard.RetryPolicy(max_attempts=1))
def resize(job):
    raise ValueError("no good")

coroutines = jobboard.aio.AsyncConductor("loops", jobboard.aio.fetch("board", os.environ["JOBBOARD_URL"]))

@coroutines.handles("resize")
async def later(job):
    raise jobboard.Reject("not here")

HANDLERS = {"resize": resize}
"""


@pytest.mark.rule("jobboard work takes a conductor with its options, and registered handlers with theirs.")
@pytest.mark.parametrize("name", ["conductor", "coroutines", "resize", "HANDLERS"])
def test_registered_handlers_keep_their_names_and_options(
    make_board: Any, work: Start, tmp_path: Path, name: str
) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    board = make_board()
    others, mine = board.post("other", priority="HIGH"), board.post("resize")
    running = work(f"tasks:{name}", "--until-empty")
    assert running.tally() == (1, 0, 0, 1)
    assert (others.state, mine.state) == ("UNCLAIMED", "TRASHED")
    first = {
        "conductor": "configured works on the board 'board' .*: resize; 3 at once, in threads",
        "coroutines": "loops works on the board 'board' .*: resize; 100 at once, in coroutines",
    }
    assert re.search(first.get(name, "works on the board 'board' .*: resize; 8 at once, in threads"), running.said)


@pytest.mark.rule("jobboard work takes a conductor with its options, and registered handlers with theirs.")
def test_configured_conductor_takes_no_options_of_a_conductor(work: Start, tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    running = work("tasks:conductor", "--jobs", "2", "--name", "other")
    assert running.ends() == 2
    assert "tasks:conductor is a conductor with options of its own: leave out --jobs, --name" in running.said


@pytest.mark.rule("jobboard work goes on to log though the module of its handlers sets up logging.")
@pytest.mark.parametrize("way", ["dictConfig({'version': 1})", "fileConfig('log.ini')"])
def test_log_goes_on_though_the_module_of_the_handlers_sets_up_logging(
    make_board: Any, work: Start, tmp_path: Path, way: str
) -> None:
    sections = "[loggers]\nkeys=root\n[handlers]\nkeys=\n[formatters]\nkeys=\n[logger_root]\nhandlers=\n"
    (tmp_path / "log.ini").write_text(sections)
    text = f"import logging.config\nlogging.config.{way}\nfrom handlers import work\n"
    (tmp_path / "with_logs.py").write_text(text)
    make_board().post("bad")
    running = work("with_logs:work", "--max-jobs", "1", "--who", "me")
    assert running.ends() == DONE
    assert "me works on the board 'board'" in running.said
    assert "is to be tried again: ValueError" in running.said


def test_one_line_describes_the_worker(make_board: Any, work: Start, board_conf: dict[str, Any]) -> None:
    board = make_board()
    board.post("other", priority="HIGH")
    board.post("resize")
    running = work("handlers:HANDLERS", "--jobs", "3", "--who", "me", "--max-jobs", "1")
    assert running.tally() == (1, 1, 0, 0)
    [line] = running.said.splitlines()
    assert line.endswith(
        f"INFO me works on the board 'board' at {board_conf['board']}: resize, hang, bad; 3 at once, in threads"
    )
    assert [job.name for job in board.iterjobs()] == ["other"]


def test_verbose_logs_a_line_for_each_job(make_board: Any, work: Start) -> None:
    good, bad = make_board().post_many([{"name": "resize\u202e"}, {"name": "bad", "max_attempts": 1}])
    running = work("handlers:work", "-v", "--max-jobs", "2", "--jobs", "1")
    assert running.tally() == (2, 1, 0, 1)
    lines = running.said.splitlines()
    assert "jobs of any name" in lines[0]
    [done] = [line for line in lines if good.uuid in line]
    assert re.search(r"INFO Job 'resize\\u202e' .*: done in \S+ s$", done)
    assert len([line for line in lines if "WARNING" in line and bad.uuid in line]) == 1
    assert "ValueError: no \\x1b[31m good" in running.said
    assert "\x1b" not in running.said


def test_logs_may_be_json(make_board: Any, work: Start) -> None:
    good, bad = make_board().post_many([{"name": "resize"}, {"name": "bad", "max_attempts": 1}])
    running = work("handlers:HANDLERS", "-v", "--log-format", "json", "--max-jobs", "2", "--who", "me")
    assert running.ends() == DONE
    records = [json.loads(line) for line in running.said.splitlines()]
    assert running.said.isascii()
    assert all({"time", "level", "logger", "text"} <= set(record) for record in records)
    assert "works on the board" in records[0]["text"]
    [done] = [record for record in records if record.get("job") == good.uuid]
    assert (done["level"], done["job_name"], done["who"]) == ("INFO", "resize", "me")
    assert done["token"] > 0
    assert {record["conductor"] for record in records} == {"me"}
    [logged] = [record for record in records if record["logger"] == "app"]
    assert (logged["text"], logged["job"], logged["job_name"]) == ("not good", bad.uuid, "bad")
    about_bad = [record for record in records if record.get("job") == bad.uuid]
    assert {"INFO", "WARNING"} == {record["level"] for record in about_bad}
    assert any("ValueError: no \x1b[31m good" in record.get("traceback", "") for record in about_bad)


def fill(pipe: int) -> None:
    os.set_blocking(pipe, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(pipe, b"." * select.PIPE_BUF)
    os.set_blocking(pipe, True)


def test_log_that_nobody_reads_holds_up_no_work(make_board: Any, board_conf: dict[str, Any], tmp_path: Path) -> None:
    bad = make_board().post("bad")
    (tmp_path / "handlers.py").write_text(HANDLERS)
    read, write = os.pipe()
    fill(write)
    words = [sys.executable, "-m", "jobboard.cli", "work", "handlers:HANDLERS", "-v", "--retry-base", "600"]
    env = {**os.environ, "JOBBOARD_URL": board_conf["board"], "JOBBOARD_NAME": "board"}
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=write, cwd=tmp_path, env=env) as process:
        try:
            eventually(lambda: bad.state == "SCHEDULED", 30)
            process.terminate()
            out, _ = process.communicate(timeout=30)
        finally:
            process.kill()
            os.close(write)
            os.close(read)
    assert process.returncode == DONE
    assert b"dispatched 1, consumed 0, abandoned 1" in out


def test_lost_log_lines_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobboard.cli.output.PATIENCE", 0.01)
    read, write = os.pipe()
    with os.fdopen(write, "w") as stream, os.fdopen(read, "rb") as reader:
        handler = StderrHandler(stream)
        handler.setFormatter(SafeFormatter("%(levelname)s %(message)s"))

        def log(text: str) -> None:
            handler.emit(logging.makeLogRecord({"levelname": "INFO", "msg": text}))

        log("first")
        assert reader.readline() == b"INFO first\n"
        os.set_blocking(read, False)
        # The pipe takes the beginning of this line.
        for text in ("x" * 10_000_000, "second", "third"):
            log(text)
        begun = reader.read()
        assert begun.startswith(b"INFO xxx")
        assert not begun.endswith(b"\n")
        log("fourth")
        assert reader.read() == b"\nWARNING 3 log lines were lost: nobody read standard error\nINFO fourth\n"


# Signals


@pytest.mark.rule("The first interrupt finishes the work, and the second ends it.")
def test_the_first_interrupt_finishes_and_the_second_ends_at_once(make_board: Any, work: Start, tmp_path: Path) -> None:
    make_board().post("hang")
    running = work("handlers:work")
    eventually((tmp_path / "notes").exists, 30)
    running.process.send_signal(signal.SIGINT)
    running.says("finishing 1 job; again to end now")

    def ended() -> bool:
        # Those that come too soon after the first are taken for the same Ctrl-C.
        running.process.send_signal(signal.SIGINT)
        return running.process.poll() is not None

    eventually(ended, 30)
    assert running.process.returncode == -signal.SIGINT
    assert running.said.count("finishing") == 1
    assert "Traceback" not in running.said


def test_sigterm_finishes(make_board: Any, work: Start) -> None:
    board = make_board()
    bad = board.post("bad")
    running = work("handlers:work", "--retry-base", "600")
    eventually(lambda: bad.state == "SCHEDULED", 30)
    running.process.send_signal(signal.SIGTERM)
    assert running.tally() == (1, 0, 1, 0)
    assert running.said.rstrip().endswith("SIGTERM, finishing 0 jobs")
    assert "Traceback" in bad.error


@pytest.mark.rule("run() notices a signal that comes before it sleeps.")
def test_a_signal_to_another_thread_ends_a_sleeping_main_thread(make_board: Any, work: Start, tmp_path: Path) -> None:
    (tmp_path / "handlers.py").write_text(
        "import os, signal, threading, time\n"
        "def end():\n"
        "    while not os.path.exists('end'):\n"
        "        time.sleep(0.01)\n"
        "    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)\n"
        "threading.Thread(target=end, daemon=True).start()\n"
        "def work(job): pass\n"
    )
    board = make_board()
    running = work("handlers:work")
    eventually(lambda: board.entities("conductor"), 30)
    (tmp_path / "end").touch()
    assert running.ends() == DONE


# A backend that is away


@pytest.mark.rule("work waits for a backend that is down, and not for one that refuses.")
@pytest.mark.backends("redis")
def test_a_backend_that_is_down_at_the_start_is_waited_for(private_server: Any, work: Start) -> None:
    server = private_server("redis")
    server.kill()
    running = work("handlers:work", "--max-jobs", "1", "--health-port", "0", uri=server.uri)
    running.says("works on the board 'board' at redis://.*")
    running.says("waiting for the backend, trying again in .* s: .*127.0.0.1")
    assert running.health() == (200, 503)
    server.start()
    with jobboard.backend("board", server.uri) as board:
        board.post("resize")
        assert running.ends() == DONE
        assert board.job_count == 0


@pytest.mark.rule("work waits for a backend that is down, and not for one that refuses.")
@pytest.mark.backends("redis")
def test_a_backend_that_refuses_is_not_waited_for(server_uris: dict[str, str], work: Start) -> None:
    running = work("handlers:work", uri=server_uris["redis"].replace("//", "//mallory:sesame@"))
    assert running.ends() == FAILED
    assert "sesame" not in running.said


def test_a_wait_for_the_backend_can_be_interrupted(work: Start) -> None:
    running = work("handlers:work", uri="postgresql://127.0.0.1:1/x")
    running.says("waiting for the backend")
    running.process.send_signal(signal.SIGINT)
    assert running.ends() == 130
    assert running.said.splitlines()[-1] == "jobboard: interrupted"


# Health, metrics and names


@pytest.mark.rule("/livez tells whether the thread of run() looks, and /readyz whether a conductor takes jobs.")
def test_a_worker_that_drains_is_alive_and_not_ready(make_board: Any, work: Start, tmp_path: Path) -> None:
    make_board().post("hang")
    running = work("handlers:work", "--health-port", "0")
    eventually((tmp_path / "notes").exists, 30)
    assert running.health() == (200, 200)
    running.process.send_signal(signal.SIGTERM)
    assert eventually(lambda: running.health()[1] == 503)
    assert running.health() == (200, 503)
    assert running.process.poll() is None


def test_metrics_are_served(make_board: Any, work: Start) -> None:
    board = make_board()
    board.post("resize")
    board.post("later", delay=3600)
    running = work("handlers:work", "--metrics-port", "0")
    address = running.says(r"metrics are at (http://127\.0\.0\.1:\d+/metrics)\n")[1]

    def scraped() -> str:
        with urllib.request.urlopen(address, timeout=30) as answer:
            return str(answer.read().decode())

    line = 'jobboard_job_events_total{board="board",event="consumed",job_name="resize"} 1.0'
    eventually(lambda: line in scraped(), 30)
    assert 'jobboard_up{board="board"} 1.0' in scraped()
    assert 'jobboard_jobs{board="board",state="scheduled"}' in scraped()
    assert "process_open_fds" in scraped()


def test_metrics_that_cannot_be_served_are_a_failure(
    board: Any, run: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = run("work", "os:getpid", "--metrics-port", str(port), status=FAILED)
    assert f"can't listen on 127.0.0.1:{port}" in ran.err
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "jobboard.contrib.prometheus", raising=False)
    assert "pip install '.[prometheus]'" in run("work", "os:getpid", "--metrics-port", "0", status=FAILED).err


@pytest.mark.rule("Workers of one host and pid have different names.")
def test_workers_of_one_host_and_pid_have_names_of_their_own(
    board: Any, run: Commands, caplog: pytest.LogCaptureFixture
) -> None:
    """In containers, each worker may be process 1 of a host of one name."""
    board.post_many([{"name": "a"}] * 2)
    for _ in range(2):
        run("work", "os:getpid", "--max-jobs", "1")
    first, second = re.findall(r"(\S+) works on the board", caplog.text)
    assert first != second
    assert all(name.startswith(f"{socket.gethostname()}-{os.getpid()}-") for name in (first, second))


# Limits


@pytest.mark.parametrize(("limit", "state"), [((), "TRASHED"), (("--max-attempts", "0"), "SCHEDULED")])
def test_a_job_has_25_attempts_unless_they_are_unlimited(
    board: Any, run: Commands, limit: tuple[str, ...], state: str
) -> None:
    job = board.post("resize")
    for _ in range(25):
        board.abandon(board.claim_next("anna"), "anna")
    run("work", "os:fspath", *limit, "--max-jobs", "1", "--retry-base", "600")
    assert (job.state, board.get(job.uuid).attempts) == (state, 26)


@pytest.mark.rule("work ends in time, and kills jobs in processes that take too long.")
def test_a_job_that_takes_too_long_is_killed_in_its_process(make_board: Any, work: Start, tmp_path: Path) -> None:
    board = make_board()
    hanging = board.post("hang")
    board.post("quick")
    running = work("handlers:work", "--processes", "--job-timeout", "3", "--max-jobs", "2")
    assert running.tally() == (2, 1, 1, 0)
    pids = [int(line.split()[1]) for line in (tmp_path / "notes").read_text().splitlines()]
    assert len({*pids, running.process.pid}) == 3
    hanging = board.get(hanging.uuid)
    assert hanging.attempts == 1
    assert "its timeout" in hanging.error


def test_the_conductor_gets_the_grace_of_stopped_processes(
    board: Any, run: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}

    class Noting(jobboard.Conductor):
        def __init__(self, *args: Any, **options: Any) -> None:
            given.update(options)
            super().__init__(*args, **options)

    monkeypatch.setattr("jobboard.conductor.Conductor", Noting)
    board.post("resize")
    run("work", "os:fspath", "--cancel-grace", "2s", "--max-jobs", "1")
    assert given["cancel_grace"] == 2


@pytest.mark.rule("work trashes jobs that have failed, or retried, too often.")
def test_a_job_that_fails_or_retries_too_often_goes_to_the_trash(make_board: Any, work: Start) -> None:
    board = make_board()
    board.post("bad")
    pauses = ("--retry-base", "0.01", "--retry-cap", "0.01")
    assert work("handlers:work", "--max-attempts", "2", "--max-jobs", "2", *pauses).tally() == (2, 0, 1, 1)
    board.post("later")
    assert work("handlers:work", "--max-retries", "2", "--max-jobs", "3").tally() == (3, 0, 2, 1)
    assert [(job.attempts, job.retries) for job in board.trashed()] == [(1, 2), (2, 0)]


@pytest.mark.rule("work ends in time, and kills jobs in processes that take too long.")
@pytest.mark.rule("A process is replaced after max_jobs_per_process, between two jobs.")
def test_processes_are_replaced_until_nothing_can_be_done(
    make_board: Any, work: Start, run: Commands, tmp_path: Path
) -> None:
    assert (
        "needs --processes" in run("--board=memory", "work", "os:getpid", "--max-jobs-per-process=1", status=USAGE).err
    )
    make_board().post_many([{"name": "resize"}, {"name": "resize"}, {"name": "resize", "delay": 3600}])
    running = work("handlers:HANDLERS", "--processes", "--jobs=1", "--max-jobs-per-process=1", "--until-empty")
    assert running.tally() == (2, 2, 0, 0)
    assert len(set((tmp_path / "notes").read_text().splitlines())) == 2


def test_a_drain_has_a_limit(make_board: Any, work: Start, tmp_path: Path) -> None:
    board = make_board()
    hanging = board.post("hang")
    running = work("handlers:work", "--drain-timeout", "4")
    eventually((tmp_path / "notes").exists, 30)
    running.process.send_signal(signal.SIGTERM)
    assert running.ends() == DONE
    assert (hanging.state, hanging.attempts) == ("UNCLAIMED", 0)
