"""A long run of a board on ZooKeeper whose servers are killed all the time, judged by the history of all that was done.

    python tests/stress/soak.py --minutes 10                 # a standalone server, killed and restarted
    python tests/stress/soak.py --minutes 10 --members 3     # an ensemble, whose leader is killed

Several processes post, claim, extend, give back, trash, restore, cancel, release and consume what they find. In the end
the board is drained. It prints one line of figures, and ends with status 1 where anything is wrong: a fault of the
history, an error that is not one of the library's, or a znode that should not be there, or should.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jobboard
from jobboard.exceptions import ConnectionFailure, JobBoardError
from jobboard.job import Job, Posting
from jobboard.states import Verb
from jobboard.testing import eventually
from jobboard.testing.history import disorder, judge
from jobboard.testing.recording import Recorder, from_files, left_on, to_file
from jobboard.testing.servers import ZooKeeper
from jobboard.testing.zookeeper_servers import ZooKeeperEnsemble

KEYS = 40
FULL = 300
"""From so many jobs on nobody posts, so that all that is posted is worked on."""


class Worker:
    """One process: it does something at random, again and again, until it is told to end."""

    def __init__(self, board: Any, recorder: Recorder, who: str) -> None:
        self.board, self.recorder, self.who = board, recorder, who
        self.chance = random.Random(who)
        self.calls = 0
        self.held: list[Job] = []
        self.failures: Counter[str] = Counter()

    def run(self, over: threading.Event) -> None:
        acts = (self.post, self.claim, self.claim, self.end, self.end, self.end, self.extend, self.look, self.operate)
        while not over.is_set():
            act = self.chance.choice(acts)
            self.calls += 1
            try:
                act()
            except JobBoardError as error:
                self.failures[type(error).__name__] += 1
            time.sleep(0.005)

    def post(self) -> None:
        if self.board.job_count > FULL:
            return
        chance = self.chance
        postings = [
            Posting(
                f"job {chance.randrange(3)}",
                details={"size": chance.randrange(1000)},
                priority=chance.choice(["HIGH", "NORMAL", "LOW"]),
                delay=chance.choice([None, None, 0.2]),
                max_attempts=chance.choice([None, None, 3]),
            )
            for _ in range(chance.choice([1, 1, 5]))
        ]
        self.recorder.post_many(postings)
        # One that is there already was posted by another call: what is written down then names its uuid once more.
        self.recorder.post_many([Posting("keyed", key=f"key {chance.randrange(KEYS)}")])

    def claim(self) -> None:
        if len(self.held) > 10:
            return
        arguments: dict[str, Any] = {"timeout": self.chance.choice([0, 0.2])}
        if self.chance.random() < 0.3:
            arguments["expiry"] = self.chance.choice([0.3, 5.0])
        if self.chance.random() < 0.2:
            arguments["names"] = ["keyed", "job 1"]
        self.held += self.recorder.claim_many(self.who, self.chance.choice([1, 1, 4]), **arguments)

    def extend(self) -> None:
        if self.held:
            self.recorder.extend(self.chance.choice(self.held), self.chance.choice([None, 2.0]))

    def end(self) -> None:
        if not self.held:
            return
        job = self.held.pop(self.chance.randrange(len(self.held)))
        kind = self.chance.random()
        if kind < 0.15:
            self.recorder.abandon(job, delay=self.chance.choice([None, 0.1]), error="not yet")
        elif kind < 0.25:
            self.recorder.trash(job, reason="bad")
        elif kind < 0.4:
            jobs, self.held = [job, *self.held], []
            self.recorder.consume_many(jobs, self.who)
        else:
            self.recorder.consume(job)

    def look(self) -> None:
        kind = self.chance.randrange(3)
        if kind == 0:
            assert all(job.uuid for job in self.board.iterjobs(ensure_fresh=self.chance.random() < 0.5))
        elif kind == 1:
            assert self.board.stats().on_board >= 0
        elif self.held:
            assert self.chance.choice(self.held).state

    def operate(self) -> None:
        """Rarely, so that most jobs are worked on in peace."""
        kind = self.chance.random()
        if kind < 0.1:
            for job in self._some(self.board.trashed()):
                self.recorder._act(Verb.RESTORE, [job], lambda job=job: self.board.restore(job))
        elif kind < 0.15:
            for job in self._some(self.board.iterjobs(states=["CLAIMED"])):
                self.recorder.release(job)
        elif kind < 0.2:
            for job in self._some(self.board.iterjobs(only_unclaimed=True)):
                self.recorder._act(Verb.CANCEL, [job], lambda job=job: self.board.cancel(job))

    def _some(self, jobs: Any) -> list[Job]:
        found = [job for _, job in zip(range(20), jobs, strict=False)]
        return self.chance.sample(found, min(2, len(found)))


def work(given: dict[str, Any]) -> None:
    """What a worker's process does, until its standard input ends; its last line tells what came of it."""
    over = threading.Event()
    board = jobboard.fetch("board", given["conf"])
    while True:
        with contextlib.suppress(ConnectionFailure):
            board.connect()
            break
    recorder = Recorder(board, given["process"], to_file(Path(given["file"])))
    worker = Worker(board, recorder, given["process"])
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    worker.run(over)
    # What close() gives back, nobody would write down.
    recorder.consume_many(worker.held, worker.who)
    board.close()
    worker.failures.update(type(failure).__name__ for failure in recorder.failures)
    print(json.dumps({"calls": worker.calls, "failures": worker.failures}))


class Soak:
    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self.seconds = 60 * arguments.minutes
        self.processes = arguments.processes
        self.every = arguments.every
        self.folder = folder
        # As long as no outage: what the history allows a fixed lease must not depend on it.
        self.servers: Any = ZooKeeperEnsemble(arguments.members) if arguments.members > 1 else ZooKeeper()
        self.kills = 0
        self.faults: list[str] = []

    def run(self) -> int:
        with self.servers:
            conf = {"board": self.servers.uri, "claim_ttl": 4, "retry_for": 60}
            workers = [self._start(f"worker{number}", conf) for number in range(self.processes)]
            try:
                self._kill_servers(workers)
                told = [self._ended(worker) for worker in workers]
            finally:
                for worker in workers:
                    worker.kill()
                    worker.communicate()
            with jobboard.backend("board", conf) as board:
                self.faults += odd(board)
                left = board.job_count
                drainer = Recorder(board, "drainer", to_file(self.folder / "drainer.jsonl"))
                eventually(lambda: self._drained(board, drainer), 120)
                self.faults += odd(board)
                entries = from_files(sorted(self.folder.glob("*.jsonl")))
                self.faults += self._judged(entries, left_on(board))
        done = Counter(f"{entry.verb} {entry.outcome}" for entry in entries)
        failures: Counter[str] = Counter()
        for each in told:
            failures.update(each["failures"])
        for fault in self.faults:
            print("FAULT:", fault)
        print(
            f"{self.seconds / 60:g} minutes, {self.processes} processes, {sum(each['calls'] for each in told)} calls, "
            f"{len(entries)} acts, {self.kills} kills, {left} jobs left to drain, {len(self.faults)} faults; "
            f"{dict(sorted(done.items()))}; refused or failed: {dict(failures)}"
        )
        return 1 if self.faults else 0

    @staticmethod
    def _judged(entries: list[Any], board: Any) -> list[str]:
        """Order is left out: what nobody was answered may have touched any job, and jobs are delayed and given back."""
        unordered = [entry._replace(chosen=False) for entry in entries]
        assert not disorder(unordered)
        return judge(unordered, board)

    def _start(self, name: str, conf: dict[str, Any]) -> subprocess.Popen[str]:
        given = {"process": name, "conf": conf, "file": str(self.folder / f"{name}.jsonl")}
        command = [sys.executable, "-X", "faulthandler", __file__, "--work", json.dumps(given)]
        with (self.folder / f"{name}.log").open("w") as log:
            return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)

    def _ended(self, worker: subprocess.Popen[str]) -> dict[str, Any]:
        out, _ = worker.communicate(timeout=180)
        if worker.returncode != 0:
            self.faults.append(f"a worker has ended with {worker.returncode}")
            return {"calls": 0, "failures": {}}
        told: dict[str, Any] = json.loads(out.splitlines()[-1])
        return told

    def _kill_servers(self, workers: list[subprocess.Popen[str]]) -> None:
        end = time.monotonic() + self.seconds
        chance = random.Random()
        while time.monotonic() < end and all(worker.poll() is None for worker in workers):
            time.sleep(min(self.every * chance.uniform(0.5, 1.5), max(0.0, end - time.monotonic())))
            victim = self.servers if isinstance(self.servers, ZooKeeper) else self.servers.leader
            victim.kill()
            self.kills += 1
            time.sleep(chance.choice([0, 0.5, 3]))
            victim.start()

    @staticmethod
    def _drained(board: Any, drainer: Recorder) -> bool:
        drainer.consume_many(drainer.claim_many("drainer", 100), "drainer")
        return bool(board.job_count == 0)


def odd(board: Any) -> list[str]:
    """Znodes that don't fit together, on a board that nobody works on: what belongs to a job that isn't there, and what
    a job lacks."""
    return [f"{each.place}: {each.reason}" for each in board.engine.examine()]


def logged(folder: Path) -> Iterator[str]:
    for file in sorted(folder.glob("*.log")):
        for line in file.read_text().splitlines():
            yield f"{file.stem}: {line}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--members", type=int, default=1, help="how many servers; one is standalone")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--every", type=float, default=12, help="seconds between two kills, on the average")
    parser.add_argument("--keep", type=Path, help="where to leave what was written down, and the logs")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(json.loads(arguments.work))
        return 0
    with tempfile.TemporaryDirectory() as made:
        folder = arguments.keep or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        status = Soak(arguments, folder).run()
        if status:
            print("\n".join(logged(folder)), file=sys.stderr)
        return status


if __name__ == "__main__":
    sys.exit(main())
