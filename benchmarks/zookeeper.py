"""How fast the ZooKeeper board is: against *raw*, kazoo's LockingQueue, and TaskFlow's ZooKeeper board.

    python benchmarks/zookeeper.py                # everything, on a durable server of its own
    python benchmarks/zookeeper.py raw
    python benchmarks/zookeeper.py crowd          # eight processes on a thousand jobs
    python benchmarks/zookeeper.py wake           # from a post to a waiting claimer
    python benchmarks/zookeeper.py taskflow       # the crowd's thousand jobs against TaskFlow, which pip fetches

Raw is the same multis (the job written and its claim made; both deleted; the answer kept with either), with paths as
long as the board's and the very bytes that it writes, on the bare kazoo client, on jobs whose names and contents it
knows already, and nothing else. Pipelined raw has 100 of them under way at once. All run in turn in one process, in
short rounds; the figure is the median of the rounds' ratios, so that a machine whose speed drifts does not tell.
Requests are those that the server has counted (``srvr``).

TaskFlow's workers do what its documentation shows: each goes through ``iterjobs(only_unclaimed=True)``, claims the
first that it gets, consumes it, and looks again. They have a virtual environment of their own, which is kept.
"""

from __future__ import annotations

import argparse
import functools
import json
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
import venv
from typing import Any

from kazoo.client import KazooClient
from kazoo.recipe.queue import LockingQueue

import jobboard
from jobboard.testing.servers import ZooKeeper

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


class Raw:
    """A board's multis, driven by hand. ``root`` is as long as that of the board "ours"."""

    root = "/kazooraw/peer"

    def __init__(self, uri: str) -> None:
        self.client = KazooClient(uri.removeprefix("zookeeper://"))
        self.client.start()
        for path in ("jobs/2", "claims"):
            self.client.ensure_path(f"{self.root}/{path}")
        self.jobs: list[tuple[str, str]] = []
        self.posted = self.claimed = json.dumps([DETAILS, "x" * 60]).encode()
        self.token, self.answers = b"x" * 34, (b"x" * 60,) * 2
        self.slot = f"{self.root}/answers/{uuid.uuid4().hex}.1"
        self.client.ensure_path(self.slot)

    def imitate(self, board: Any) -> None:
        """Take over the bytes that the board "ours" writes."""

        def read(folder: str, part: str = "") -> bytes:
            names = self.client.get_children(f"/jobboard/ours/{folder}")
            return bytes(self.client.get(f"/jobboard/ours/{folder}/{next(n for n in names if part in n)}")[0])

        self.posted = read("jobs/2")
        job = board.claim_next("me")
        self.claimed, self.token, answer = read("jobs/2", job.uuid), read("claims", job.uuid), read("answers")
        board.consume(job, "me")
        self.answers = answer, read("answers")

    def fill(self, jobs: int) -> None:
        uuids = [str(uuid.uuid4()) for _ in range(jobs)]
        places = [f"{self.root}/jobs/2/1.{each}.resize." for each in uuids]
        made = [self.client.create_async(place, self.posted, sequence=True) for place in places]
        self.jobs += [(each.get(), f"{self.root}/claims/{name}") for each, name in zip(made, uuids, strict=True)]

    def claim(self, job: str, claim: str) -> Any:
        multi = self.client.transaction()
        multi.set_data(job, self.claimed, 0)
        multi.create(claim, self.token, ephemeral=True)
        multi.set_data(self.slot, self.answers[0])
        return multi.commit_async()

    def consume(self, job: str, claim: str) -> Any:
        multi = self.client.transaction()
        multi.delete(job, 1)
        multi.delete(claim, 0)
        multi.set_data(self.slot, self.answers[1])
        return multi.commit_async()

    def drain(self, jobs: int, batch: int) -> float:
        start = time.perf_counter()
        for _ in range(0, jobs, batch):
            chunk, self.jobs = self.jobs[:batch], self.jobs[batch:]
            for verb in (self.claim, self.consume):
                for result in [verb(*job) for job in chunk]:
                    assert not any(isinstance(each, Exception) for each in result.get())
        return time.perf_counter() - start


def locking_queue(client: KazooClient, jobs: int) -> float:
    queue = LockingQueue(client, "/queue")
    queue.put_all([json.dumps(DETAILS).encode()] * jobs)
    start = time.perf_counter()
    for _ in range(jobs):
        queue.get()
        queue.consume()
    return time.perf_counter() - start


def drain(board: Any, jobs: int, batch: int) -> float:
    start = time.perf_counter()
    for _ in range(0, jobs, batch):
        if batch == 1:
            board.consume(board.claim_next("me"), "me")
        else:
            board.consume_many(board.claim_many("me", batch), "me")
    return time.perf_counter() - start


def against_raw(server: ZooKeeper) -> None:
    with jobboard.backend("ours", server.uri) as board:
        raw = Raw(server.uri)
        fill(board, 1)
        raw.imitate(board)
        for batch, jobs, rounds in ((1, 100, 40), (100, 1000, 15)):
            ratios, queued, counts = [], [], []
            rates: dict[int, list[float]] = {0: [], 1: []}
            order = [functools.partial(drain, board, jobs, batch), functools.partial(raw.drain, jobs, batch)]
            for number in range(rounds):
                if number % 5 == 0:
                    fill(board, 5 * jobs)
                    raw.fill(5 * jobs)
                spent = {}
                for which in (0, 1) if number % 2 else (1, 0):
                    before = received(server)
                    spent[which] = order[which]()
                    if which == 0:
                        counts.append((received(server) - before) / jobs)
                if number:
                    ratios.append(spent[1] / spent[0])
                    for which, seconds in spent.items():
                        rates[which].append(jobs / seconds)
                    if batch == 1 and number % 2 == 0:
                        queued.append(locking_queue(raw.client, 100) / 100 * jobs / spent[0])
            what = "pipelined raw" if batch > 1 else "raw"
            low, _, high = statistics.quantiles(ratios, n=4)
            print(
                f"claim + consume, batches of {batch}: {statistics.median(ratios):.2f} of {what} "
                f"(half of the rounds from {low:.2f} to {high:.2f}), {statistics.mean(counts):.2f} requests a job; "
                f"{statistics.median(rates[0]):.0f} against {statistics.median(rates[1]):.0f} jobs/s"
            )
            if queued:
                print(f"  {statistics.median(queued):.1f} times kazoo's LockingQueue")
        raw.client.stop()


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
    """A raw waiter: it is told by a watch on the folder, lists it, and claims what is there with a multi."""
    raw, poster = Raw(server.uri), KazooClient(server.uri.removeprefix("zookeeper://"))
    poster.start()
    folder = f"{raw.root}/jobs/2"
    times: dict[str, list[float]] = {"raw": [], "ours": []}
    for _ in range(100):
        came, told = threading.Event(), threading.Event()

        def wait(came: threading.Event = came, told: threading.Event = told) -> None:
            raw.client.get_children(folder, watch=lambda event: came.set())
            told.set()
            came.wait(10)
            [name] = raw.client.get_children(folder)
            raw.client.get(f"{folder}/{name}")
            raw.claim(f"{folder}/{name}", f"{raw.root}/claims/{name}").get()
            times["raw"].append(time.perf_counter())
            raw.consume(f"{folder}/{name}", f"{raw.root}/claims/{name}").get()

        thread = threading.Thread(target=wait)
        thread.start()
        told.wait(10)
        time.sleep(0.03)
        start = time.perf_counter()
        poster.create(f"{folder}/resize-", raw.posted, sequence=True)
        thread.join()
        times["raw"][-1] -= start
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
    parser.add_argument("what", nargs="?", choices=("raw", "crowd", "wake", "taskflow", "all"), default="all")
    given = parser.parse_args()
    with ZooKeeper(durable=True) as server:
        for name, measure in (("raw", against_raw), ("crowd", crowd), ("wake", wake), ("taskflow", taskflow)):
            if given.what in (name, "all"):
                measure(server)
    return 0


if __name__ == "__main__":
    sys.exit(main())
