"""The programs of examples/, run as their users run them."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet

import jobboard
from jobboard.testing import eventually
from tests.support.programs import gunicorn, running
from tests.web.browser import Browser

EXAMPLES = Path(__file__).parents[1] / "examples"
RED, BLUE = b"\xff\x00\x00", b"\x00\x00\xff"


def picture(columns: int, rows: int) -> bytes:
    """Red on the left, blue on the right."""
    return b"P6 %d %d 255\n" % (columns, rows) + (RED * (columns // 2) + BLUE * (columns // 2)) * rows


@pytest.fixture
def uri(board_conf: dict[str, Any]) -> str:
    """The board as a single string, as it stands in an environment variable."""
    board: str = board_conf["board"]
    return board + (f"?namespace={board_conf['namespace']}" if "namespace" in board_conf else "")


class Service:
    """A client of a service's."""

    def __init__(self, address: str) -> None:
        self._address = address

    def ask(self, path: str, data: bytes | None = None, method: str | None = None) -> bytes:
        request = urllib.request.Request(self._address + path, data, method=method)
        if data is not None and method is not None:
            request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=30) as reply:
            answer: bytes = reply.read()
        return answer

    def told(self, path: str, data: bytes | None = None, method: str | None = None) -> dict[str, str]:
        answer: dict[str, str] = json.loads(self.ask(path, data, method))
        return answer


@pytest.fixture
def service(uri: str, tmp_path: Path) -> Iterator[Service]:
    env = {"JOBBOARD_URL": uri, "IMAGES": str(tmp_path / "images")}
    with gunicorn("service:app", EXAMPLES / "thumbnails", tmp_path / "service.log", **env) as address:
        yield Service(address)


@pytest.mark.backends("sqlite", "redis")
def test_a_service_and_its_workers_make_thumbnails(service: Service, uri: str, tmp_path: Path) -> None:
    """The service and its workers share nothing but a URI and a folder."""
    posted = service.told("/images", picture(128, 64))
    assert service.told("/images", picture(128, 64)) == posted, "the same image is posted once"
    assert service.told(f"/jobs/{posted['job']}")["state"] == "UNCLAIMED"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        service.ask(f"/thumbnails/{posted['image']}")
    broken = service.told("/images", b"no picture")
    env = {"JOBBOARD_URL": uri, "IMAGES": str(tmp_path / "images")}
    with running(EXAMPLES / "thumbnails", tmp_path / "worker.log", "worker.py", **env):
        eventually(lambda: service.told(f"/jobs/{posted['job']}")["state"] == "COMPLETE", 60)
        eventually(lambda: service.told(f"/jobs/{broken['job']}")["state"] == "TRASHED", 60)
    assert service.ask(f"/thumbnails/{posted['image']}") == picture(64, 32)
    with jobboard.backend("thumbnails", uri) as board:
        assert "binary PPM" in board.get(broken["job"]).error
        assert board.job_count == 0


@contextlib.contextmanager
def uvicorn(application: str, cwd: Path, log: Path, **env: str) -> Iterator[str]:
    """Give the address of a server of ``application``."""
    served = ("-m", "uvicorn", "--host", "127.0.0.1", "--port", "0", application)
    # Once all is in order, it sends the signal to itself again.
    with running(cwd, log, *served, ends=-signal.SIGTERM, **env):
        yield eventually(lambda: re.search(r"running on (http://\S+) \(", log.read_text()), 60).group(1)


@contextlib.contextmanager
def reports(tmp_path: Path, **env: str) -> Iterator[Service]:
    with uvicorn("service:app", EXAMPLES / "fastapi", tmp_path / "service.log", **env) as address:
        yield Service(address)


@pytest.mark.rule("The page works under any path, and its addresses stay under it.")
@pytest.mark.backends("sqlite")
def test_a_service_has_the_page_under_a_path(uri: str, tmp_path: Path) -> None:
    with jobboard.backend("jobboard", uri) as board:
        job = board.post("resize", details={"password": "sesame"})
        board.cancel(job)
        with uvicorn("fastapi_mount:service", EXAMPLES / "web", tmp_path / "log", JOBBOARD_URL=uri) as address:
            assert Browser(address).get("/ops/jobs/").status == 401
            word = base64.b64encode(b"admin:only for trying it out").decode()
            browser = Browser(address, authorization=f"Basic {word}")
            browser.get("/ops/jobs")
            assert browser.at == "/ops/jobs/jobboard/"
            assert "***" in browser.get(f"/ops/jobs/jobboard/jobs/{job.uuid}").text
            assert "sesame" not in browser.answer.body
            assert "1 job restored." in browser.press("Restore").text
            assert job.state == "UNCLAIMED"
            assert board.get(job.uuid).errors[-1].text == "restored by admin"
            guest = Browser(
                address, authorization=f"Basic {base64.b64encode(b'guest:only for trying it out').decode()}"
            )
            assert "look only" in guest.get("/ops/jobs/").text


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("works", ["here", "elsewhere"])
def test_a_service_posts_and_work_is_done_here_or_elsewhere(uri: str, works: str, tmp_path: Path) -> None:
    """The service posts, and the work is done beside it or by another process; SIGTERM ends both in order."""
    env = {"JOBBOARD_URL": uri, "REPORTS": str(tmp_path / "reports"), "WORKS": works}
    with contextlib.ExitStack() as stack:
        service = stack.enter_context(reports(tmp_path, **env))

        def order(**wanted: object) -> str:
            return service.told("/reports", json.dumps(wanted).encode(), "POST")["job"]

        def state(job: str) -> str:
            return service.told(f"/reports/{job}")["state"]

        if works == "elsewhere":
            idle = order(customer="idle")
            assert state(idle) == "UNCLAIMED"
            assert service.told(f"/reports/{idle}", method="DELETE") == {"state": "TRASHED"}
            stack.enter_context(running(EXAMPLES / "fastapi", tmp_path / "worker.log", "worker.py", **env))
        written, refused = order(customer="anna", pages=3), order(customer="nobody")
        eventually(lambda: state(written) == "COMPLETE" and state(refused) == "TRASHED", 60)
        assert (tmp_path / "reports" / "anna.txt").read_text() == "3 pages about anna\n"
        assert "no such customer" in service.told(f"/reports/{refused}")["error"]
        last = order(customer="bert", pages=10)
        eventually(lambda: state(last) == "CLAIMED", 60)
    # Work that has begun is finished when the service is told to end. A job whose work has not begun is given back.
    with jobboard.backend("reports", uri) as board:
        finished = (tmp_path / "reports" / "bert.txt").exists()
        assert finished or (board.get(last).state, board.get(last).attempts) == ("UNCLAIMED", 0)


@pytest.mark.backends("sqlite")
def test_the_conductor_runs_until_sigterm(backend: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with running(tmp_path, log, str(EXAMPLES / "resize.py")):
        eventually(lambda: log.read_text().count("resizing") == 30 and "names no picture" in log.read_text(), 60)
    assert "dispatched=11, consumed=10, abandoned=0, trashed=1, lost=0" in log.read_text()


@pytest.mark.backends("sqlite")
def test_the_conductor_on_a_loop_runs(backend: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with running(tmp_path, log, str(EXAMPLES / "asyncio_resize.py")):
        eventually(lambda: log.read_text().count("attempt 1: ") == 10, 60)
    assert "Tally(dispatched=20, consumed=20" in log.read_text()


@pytest.mark.backends("sqlite")
def test_the_conductor_with_processes_reports_failures(backend: str, tmp_path: Path) -> None:
    lines = run("processes.py", tmp_path).stdout.splitlines()
    assert lines[-1] == "Tally(dispatched=4, consumed=1, abandoned=1, trashed=2, lost=0)"
    assert lines.count("resize has failed: b.jpg is gone") == 2
    assert {"resize is in the trash", "transcode is in the trash"} < set(lines)
    assert any(re.fullmatch(r"resize took [\d.]+ s", line) for line in lines)
    assert any(line.startswith("transcode has failed") and "after 0.5 s" in line for line in lines)


def run(example: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLES / example)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True)


@pytest.mark.backends("sqlite")
def test_the_transaction_commits(backend: str, tmp_path: Path) -> None:
    assert run("transaction.py", tmp_path).stdout == "shipped order 1 and 0 jobs are left\n"


@pytest.mark.backends("memory")
def test_the_logs_are_json(backend: str, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in run("observability/logs.py", tmp_path).stderr.splitlines()]
    assert [line["level"] for line in lines] == ["INFO", "WARNING"]
    [(name, who)] = {(line["job_name"], line["who"]) for line in lines}
    assert name == "resize"
    assert who.startswith(socket.gethostname())
    assert "Reject: it names no picture" in lines[0]["traceback"]


@pytest.mark.backends("memory")
def test_the_metrics_are_served(backend: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with running(tmp_path, log, str(EXAMPLES / "observability/metrics.py"), PORT="0"):
        address = eventually(lambda: re.search(r"(http://\S+)\s", log.read_text()), 60)[1]

        def scraped() -> str:
            with urllib.request.urlopen(address, timeout=30) as reply:
                text: str = reply.read().decode()
            return text

        consumed = 'jobboard_job_events_total{board="pictures",event="consumed",job_name="resize"} 1.0'
        eventually(lambda: consumed in scraped(), 60)
        assert 'jobboard_jobs{board="pictures",state="scheduled"} 1.0' in scraped()


@pytest.mark.backends("memory")
def test_the_traces_are_one(backend: str, tmp_path: Path) -> None:
    spans = [json.loads(line) for line in run("observability/traces.py", tmp_path).stdout.splitlines()]
    assert [span["name"] for span in spans] == ["post resize", "GET /order", "claim resize", "scale down", "run resize"]
    assert len({span["context"]["trace_id"] for span in spans}) == 1


def is_ready(address: str) -> bool:
    try:
        return Service(address).ask("/readyz") == b"ok\n"
    except urllib.error.HTTPError as error:
        if error.code == 503:
            return False
        raise


@pytest.mark.backends("sqlite")
def test_an_encrypted_shop_has_tests_health_and_metrics(uri: str, tmp_path: Path) -> None:
    """The worker is the command, and the store has no byte of an order."""
    shop, log = EXAMPLES / "orders", tmp_path / "log"
    apart = ("-c", os.devnull, "--rootdir", str(shop), "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", "-q", *apart]
    tested = subprocess.run(command, cwd=shop, capture_output=True, text=True, check=False)
    assert "5 passed" in tested.stdout, tested.stdout

    key = Fernet.generate_key().decode()
    env = {"ORDER_KEYS": json.dumps({"1": key}), "JOBBOARD_URL": f"{uri}?keep_done=60"}
    command = [sys.executable, "place.py", "customer-17", "anna@example.com", "12.50"]
    subprocess.run(command, cwd=shop, env={**os.environ, **env}, check=True)
    work = ("-m", "jobboard.cli", "work", "shop:conductor", "--health-port", "0", "--metrics-port", "0")
    with jobboard.backend("orders", env["JOBBOARD_URL"]) as keyless:
        with running(shop, log, *work, **env):
            address = eventually(lambda: re.search(r"health is at (\S+)", log.read_text()), 60)[1]
            eventually(lambda: is_ready(address), 60)
            metrics = Service(re.search(r"metrics are at (\S+)", log.read_text())[1])
            consumed = b'jobboard_job_events_total{board="orders",event="consumed",job_name="ship"} 1.0'
            eventually(lambda: consumed in metrics.ask(""), 60)
        done = list(keyless.find(states=["COMPLETE"], group="customer-17"))
        assert sorted(job.name for job in done) == ["charge", "ship"]
        assert all(job.is_encrypted for job in done)
        assert not any(b"anna" in file.read_bytes() for file in tmp_path.iterdir() if file.is_file())
