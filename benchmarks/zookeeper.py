"""How fast the ZooKeeper board is: against *raw*, and against kazoo's LockingQueue.

    python benchmarks/zookeeper.py                # everything, on a durable server of its own
    python benchmarks/zookeeper.py raw
    python benchmarks/zookeeper.py crowd          # eight processes on a thousand jobs
    python benchmarks/zookeeper.py wake           # from a post to a waiting claimer

Raw is the same multis (the job written and its claim made; both deleted; the answer kept with either) on the bare kazoo
client, on jobs whose names and contents it knows already, and nothing else. Pipelined raw has 100 of them under way at
once. All run in turn in one process, a round each; the figure is the median of the rounds' ratios, so that a machine
whose speed drifts does not tell. Requests are those that the server has counted (``srvr``).
"""

from __future__ import annotations

import argparse
import functools
import json
import socket
import statistics
import subprocess
import sys
import threading
import time
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
    print(done)
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
    """A board's multis, driven by hand."""

    def __init__(self, uri: str) -> None:
        self.client = KazooClient(uri.removeprefix("zookeeper://"))
        self.client.start()
        for path in ("jobs", "claims", "answer", "bell"):
            self.client.ensure_path(f"/raw/{path}")
        self.jobs: list[str] = []
        self.data = json.dumps([DETAILS, "x" * 60]).encode()
        self.answer = b"x" * 60

    def fill(self, jobs: int) -> None:
        made = [self.client.create_async("/raw/jobs/resize-", self.data, sequence=True) for _ in range(jobs)]
        self.jobs = [each.get() for each in made]

    def claim(self, path: str) -> Any:
        multi = self.client.transaction()
        multi.set_data(path, self.data, 0)
        multi.create("/raw/claims/" + path.rpartition("/")[2], b"token", ephemeral=True)
        multi.set_data("/raw/answer", self.answer)
        return multi.commit_async()

    def consume(self, path: str) -> Any:
        multi = self.client.transaction()
        multi.delete(path, 1)
        multi.delete("/raw/claims/" + path.rpartition("/")[2], 0)
        multi.set_data("/raw/answer", self.answer)
        return multi.commit_async()

    def drain(self, batch: int) -> float:
        start = time.perf_counter()
        for number in range(0, len(self.jobs), batch):
            chunk = self.jobs[number : number + batch]
            for verb in (self.claim, self.consume):
                for result in [verb(path) for path in chunk]:
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
        for batch, jobs, rounds in ((1, 300, 9), (100, 3000, 7)):
            ratios, queued, counts = [], [], []
            for number in range(rounds + 1):
                fill(board, jobs)
                raw.fill(jobs)
                order = [functools.partial(drain, board, jobs, batch), functools.partial(raw.drain, batch)]
                spent = {}
                for which in (0, 1) if number % 2 else (1, 0):
                    before = received(server)
                    spent[which] = order[which]()
                    if which == 0:
                        counts.append((received(server) - before) / jobs)
                if number:
                    ratios.append(spent[1] / spent[0])
                    if batch == 1:
                        queued.append(locking_queue(raw.client, 100) / 100 * jobs / spent[0])
            what = "pipelined raw" if batch > 1 else "raw"
            print(
                f"claim + consume, batches of {batch}: {statistics.median(ratios):.2f} of {what} "
                f"(from {min(ratios):.2f} to {max(ratios):.2f}), {statistics.median(counts):.2f} requests a job; "
                f"{jobs / spent[0]:.0f} against {jobs / spent[1]:.0f} jobs/s"
            )
            if queued:
                print(f"  {statistics.median(queued):.1f} times kazoo's LockingQueue")
        raw.client.stop()


def crowd(server: ZooKeeper) -> None:
    conf = {"board": server.uri}
    with jobboard.backend("crowd", conf) as board:
        rates, counts = [], []
        for _ in range(3):
            fill(board, 1000)
            command = [sys.executable, "-c", WORKER, json.dumps(conf)]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            workers: list[Any] = [subprocess.Popen(command, **pipes) for _ in range(8)]  # type: ignore[call-overload]
            for worker in workers:
                worker.stdout.readline()
            before, start = received(server), time.perf_counter()
            for worker in workers:
                worker.stdin.write("\n")
                worker.stdin.flush()
            done = [int(worker.stdout.readline()) for worker in workers]
            rates.append(1000 / (time.perf_counter() - start))
            counts.append((received(server) - before) / 1000)
            for worker in workers:
                worker.communicate()
            assert sum(done) == 1000, done
        print(
            f"8 processes on 1,000 jobs: {statistics.median(rates):.0f} jobs/s (from {min(rates):.0f}), "
            f"{statistics.median(counts):.1f} requests a job"
        )


def wake(server: ZooKeeper) -> None:
    """A raw waiter: it is told by a watch on the folder, lists it, and claims what is there with a multi."""
    raw, poster = Raw(server.uri), KazooClient(server.uri.removeprefix("zookeeper://"))
    poster.start()
    times: dict[str, list[float]] = {"raw": [], "ours": []}
    for _ in range(100):
        came, told = threading.Event(), threading.Event()

        def wait(came: threading.Event = came, told: threading.Event = told) -> None:
            raw.client.get_children("/raw/jobs", watch=lambda event: came.set())
            told.set()
            came.wait(10)
            [name] = raw.client.get_children("/raw/jobs")
            raw.client.get("/raw/jobs/" + name)
            raw.claim("/raw/jobs/" + name).get()
            times["raw"].append(time.perf_counter())
            raw.consume("/raw/jobs/" + name).get()

        thread = threading.Thread(target=wait)
        thread.start()
        told.wait(10)
        time.sleep(0.03)
        start = time.perf_counter()
        poster.create("/raw/jobs/resize-", raw.data, sequence=True)
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
    parser.add_argument("what", nargs="?", choices=("raw", "crowd", "wake", "all"), default="all")
    given = parser.parse_args()
    with ZooKeeper(durable=True) as server:
        for name, measure in (("raw", against_raw), ("crowd", crowd), ("wake", wake)):
            if given.what in (name, "all"):
                measure(server)
    return 0


if __name__ == "__main__":
    sys.exit(main())
