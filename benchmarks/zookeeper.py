"""How the ZooKeeper board does with many processes and with waiters, and beside TaskFlow's ZooKeeper board.

    PYTHONPATH=. python benchmarks/zookeeper.py           # everything, on a durable server of its own
    PYTHONPATH=. python benchmarks/zookeeper.py crowd     # eight processes on a thousand jobs
    PYTHONPATH=. python benchmarks/zookeeper.py wake      # from a post to a waiting claimer
    PYTHONPATH=. python benchmarks/zookeeper.py taskflow  # the crowd's thousand jobs against TaskFlow, by pip

A raw waiter is told by a watch on a folder, lists it, and claims what is there with one multi. Requests are those that
the server has counted (``srvr``). What a job costs beside the shortest code that does the same: benchmarks/ideal.

TaskFlow's workers do what its documentation shows: each goes through ``iterjobs(only_unclaimed=True)``, claims the
first that it gets, consumes it, and looks again. They have a virtual environment of their own, which is kept.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import venv
from typing import Any

from kazoo.client import KazooClient

import jobboard
from tests.support.servers import ZooKeeper

DETAILS = {"path": "/srv/images/" + "x" * 150, "width": 640}

WORKER = """
import json, sys, jobboard
with jobboard.backend("crowd", json.loads(sys.argv[1])) as board:
    print("ready", flush=True)
    sys.stdin.readline()
    done = 0
    while (job := board.claim_next("me")) is not None:
        board.consume(job, "me")
        done += 1
    print(done, flush=True)
"""

TASKFLOW = """
import json, sys
from taskflow import exceptions
from taskflow.jobs import backends

hosts, fill, details = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
board = backends.fetch("crowd", {"board": "zookeeper", "hosts": hosts, "path": "/taskflow"})
board.connect()

def claim():
    for fresh in (False, True):
        for job in board.iterjobs(only_unclaimed=True, ensure_fresh=fresh):
            try:
                board.claim(job, "me")
            except (exceptions.UnclaimableJob, exceptions.NotFound):
                continue
            return job

for _ in range(fill):
    board.post("resize", details=details)
print("ready", flush=True)
sys.stdin.readline()
done = 0
while not fill and (job := claim()) is not None:
    board.consume(job, "me")
    done += 1
print(done, flush=True)
board.close()
"""


def fill(board: Any, jobs: int) -> None:
    board.post_many({"name": "resize", "details": DETAILS} for _ in range(jobs))


def received(server: ZooKeeper) -> int:
    """How many requests the server has had."""
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(b"srvr")
        text = b"".join(iter(lambda: connection.recv(4096), b"")).decode()
    return int(text.partition("Received: ")[2].split()[0])


def workers(command: list[str], number: int = 8) -> tuple[float, int]:
    """Start these, let them go all at once: how long they took for how many jobs."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    started: list[Any] = [subprocess.Popen(command, **pipes) for _ in range(number)]  # type: ignore[call-overload]
    for worker in started:
        worker.stdout.readline()
    start = time.perf_counter()
    for worker in started:
        worker.stdin.write("\n")
        worker.stdin.flush()
    done = [int(worker.stdout.readline()) for worker in started]
    spent = time.perf_counter() - start
    for worker in started:
        worker.communicate()
    return spent, sum(done)


def ours_crowded(server: ZooKeeper, board: Any, jobs: int) -> tuple[float, float]:
    """Jobs a second, and requests a job."""
    fill(board, jobs)
    before = received(server)
    spent, done = workers([sys.executable, "-c", WORKER, json.dumps({"board": server.uri})])
    assert done == jobs, done
    return jobs / spent, (received(server) - before) / jobs


def crowd(server: ZooKeeper) -> None:
    with jobboard.backend("crowd", server.uri) as board:
        rates, counts = zip(*(ours_crowded(server, board, 1000) for _ in range(5)), strict=True)
    print(
        f"8 processes on 1,000 jobs: {statistics.median(rates):.0f} jobs/s "
        f"(from {min(rates):.0f} to {max(rates):.0f}), "
        f"{statistics.median(counts):.1f} requests a job, those of the start among them"
    )


def taskflow(server: ZooKeeper) -> None:
    folder = pathlib.Path(tempfile.gettempdir()) / "jobboard-benchmark-taskflow"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        venv.create(folder, clear=True, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "taskflow[zookeeper]"], check=True)
        (folder / "ready").touch()
    common = [str(python), "-c", TASKFLOW, server.uri.removeprefix("zookeeper://")]
    ours, theirs = [], []
    with jobboard.backend("crowd", server.uri) as board:
        for _ in range(3):
            workers([*common, "1000", json.dumps(DETAILS)], 1)
            spent, done = workers([*common, "0", "{}"])
            assert done == 1000, done
            theirs.append(1000 / spent)
            ours.append(ours_crowded(server, board, 1000)[0])
    ratios = [each / other for each, other in zip(ours, theirs, strict=True)]
    print(
        f"8 processes on 1,000 jobs: {statistics.median(ratios):.1f} times TaskFlow's ZooKeeper board "
        f"(from {min(ratios):.1f} to {max(ratios):.1f}); "
        f"{statistics.median(ours):.0f} against {statistics.median(theirs):.0f} jobs/s"
    )


def wake(server: ZooKeeper) -> None:
    hosts = server.uri.removeprefix("zookeeper://")
    waiter, poster = KazooClient(hosts), KazooClient(hosts)
    waiter.start()
    poster.start()
    for path in ("/raw/jobs", "/raw/claims"):
        waiter.ensure_path(path)
    times: dict[str, list[float]] = {"raw": [], "ours": []}
    for _ in range(100):
        came, told = threading.Event(), threading.Event()

        def wait(came: threading.Event = came, told: threading.Event = told) -> None:
            waiter.get_children("/raw/jobs", watch=lambda event: came.set())
            told.set()
            came.wait(10)
            [name] = waiter.get_children("/raw/jobs")
            data, stat = waiter.get(f"/raw/jobs/{name}")
            claim = waiter.transaction()
            claim.set_data(f"/raw/jobs/{name}", data, stat.version)
            claim.create(f"/raw/claims/{name}", ephemeral=True)
            claim.commit()
            times["raw"].append(time.perf_counter())
            waiter.delete(f"/raw/jobs/{name}")
            waiter.delete(f"/raw/claims/{name}")

        thread = threading.Thread(target=wait)
        thread.start()
        told.wait(10)
        time.sleep(0.03)
        start = time.perf_counter()
        poster.create("/raw/jobs/resize-", json.dumps(DETAILS).encode(), sequence=True)
        thread.join()
        times["raw"][-1] -= start
    for client in (waiter, poster):
        client.stop()
        client.close()
    with jobboard.backend("wake", server.uri) as board, jobboard.backend("wake", server.uri) as other:
        for _ in range(100):
            ended: list[float] = []

            def claim(ended: list[float] = ended) -> None:
                job = board.claim_next("me", timeout=10)
                ended.append(time.perf_counter())
                board.consume(job, "me")

            thread = threading.Thread(target=claim)
            thread.start()
            time.sleep(0.05)
            start = time.perf_counter()
            other.post("resize", details=DETAILS)
            thread.join()
            times["ours"].append(ended[0] - start)
    medians = {name: statistics.median(each) * 1000 for name, each in times.items()}
    print(
        f"from post to a waiting claimer: {medians['ours'] / medians['raw']:.2f} times a raw watch's "
        f"({medians['ours']:.1f} against {medians['raw']:.1f} ms)"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("crowd", "wake", "taskflow", "all"), default="all")
    given = parser.parse_args()
    with ZooKeeper(durable=True) as server:
        for name, measure in (("crowd", crowd), ("wake", wake), ("taskflow", taskflow)):
            if given.what in (name, "all"):
                measure(server)
    return 0


if __name__ == "__main__":
    sys.exit(main())
