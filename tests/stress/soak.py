"""A long run of a board whose workers, servers and connections are harmed all the time.

    python tests/stress/soak.py redis --minutes 10                   # also: sentinel, zookeeper, etcd
    python tests/stress/soak.py postgresql --limits                  # also: mariadb, sqlite
    python tests/stress/soak.py zookeeper --members 3 --limits       # an ensemble, under limits that change
    python tests/stress/soak.py redis --clock-steps --seed 7         # the server's clock jumps; the harms of seed 7
    python tests/stress/soak.py mariadb --limits --calm              # harm nothing, and judge the order of claims, too

Several processes post, claim, extend, abandon, trash, restore, cancel, stop, release and consume, and write down each
act. Meanwhile workers are killed, or stopped for longer than their leases. Servers are killed, stopped and restarted,
leaders change, connections break and requests come late. On databases, the workers also end claims and post in
transactions of their own, and hold these open; snapshots are pinned, and other processes hold SQLite's file. The seed
draws all of it, so that the same harms can be done again in the same order. The machine decides what they meet.

For half of the time the board always has free jobs, of which some have neither a limit nor a pause. A claim without a
job is a fault then. Short answers to claims of many jobs are allowed; the figures show their number.

In the end the workers drain the board, waiting for jobs as they come. Its trash is purged, two days pass on the
server's clock, and the board is tidied. One line of figures follows. The status is 1 if anything is wrong:

- a fault that the history of all acts proves (:mod:`jobboard.testing.history`), such as an exceeded limit, an empty
  answer beside free jobs, or a lost result;
- an error of a worker that is not one of the library's, or one that no server was found for;
- a worker that stands still after the harms;
- jobs that nobody takes, and waiters that are not woken;
- damage that ``examine()`` shows, or entries that are left in the server.

Every server is told the time by ``clock.c``, which needs a C compiler. etcd and SQLite use the time of their clients,
so that no step can be forced on their server.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import logging
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from targets import IDLE, TARGETS, TTL, DatabaseTarget
from transactions import LEDGER, Caller, engine_of, settled

import jobboard
from jobboard.exceptions import ConnectionFailure, JobBoardError
from jobboard.job import Act, Job, Posting
from jobboard.runtime import boottime
from jobboard.states import Verb
from jobboard.testing import eventually
from jobboard.testing.conformance.harness import Harness
from jobboard.testing.history import HistoryEntry, Limiting, Unseen, empty_answers, judge
from jobboard.testing.puppet import set_clock
from jobboard.testing.recording import Recorder, from_files, left_on, to_file
from tests.support.server import ServerError

PATIENCE = 60
"""Seconds for which a call is repeated: longer than any outage, so that it fails only where something is wrong."""

KEYS = 40
FULL = 300
"""From so many jobs on nobody posts, so that all that is posted is worked on."""

STOCK = 150
"""The number of jobs below which workers post more at once, in every second period of :data:`PERIOD` seconds."""

PERIOD = 10

UNSEEN = Unseen(spare=5, settles=60, lingers=1.5 * IDLE, beats=0.05)
"""The free jobs that others may hold unseen. Nothing is left of a killed worker's last call after 60 seconds, which is
longer than a harm and a lease together. A database ends an idle transaction after :data:`IDLE`. On PostgreSQL a renewal
that meets the abandon of its claim locks the job until its own commit."""

CHURNS = 50
"""The number of attempts from which a job is given back no more. The judge's time grows with its square."""

PLAIN, PAUSABLE = "plain", "pausable"
"""Names without a limit. Jobs of the first are never paused by their name."""

LIMITS: list[tuple[str, list[dict[str, Any]]]] = [
    ("job 0", [{"concurrency": 2}, {"concurrency": 5}]),
    ("job 1", [{"rate": (5, 0.5)}, {"rate": (20, 3.0)}]),
    ("job 2", [{"concurrency": 1, "per": "group"}, {"concurrency": 2, "per": "group"}]),
    ("job 2", [{"concurrency": 3}, {"concurrency": 6}]),
    ("keyed", [{"concurrency": 4, "rate": (10, 1.0)}, {"concurrency": 8, "rate": (30, 2.0)}]),
]
"""With ``--limits``: the limits of names, one of each list at a time. All of a list are of one kind, as claims from
before the first limit of that kind need not count."""

WAKES = 10
"""How many jobs are posted one by one in the end, while all workers wait for one."""

SLEPT = 3
"""In how many seconds each of these jobs must be done: before any waiter looks again by itself."""

SLACK = 30
"""How many entries a board that was drained and tidied may have that a new one has not: gates, counters."""

SKEWS = (0, 3600, -3600, 0)
"""By how many seconds the clocks of the workers are wrong where the server has one."""

HOLDS = (0, 0.3, 1, 2.5, 1.5 * TTL)
"""For how many seconds a worker may hold a transaction open."""

HOLDS_OF_A_FILE = (*[0] * 20, *[0.05] * 20, *[0.3] * 10, 2.5)
"""The same on SQLite, where nobody else writes meanwhile."""

TWO_DAYS = 2 * 86400


class Worker:
    """One process: it does something at random, again and again, until it is told to end."""

    def __init__(self, recorder: Recorder, caller: Caller | None, who: str, dice: random.Random) -> None:
        self.board: Any = recorder.board
        self.recorder, self.caller, self.who, self.dice = recorder, caller, who, dice
        self.held: list[Job] = []
        self.failures: Counter[str] = Counter()
        self.consumes = 0

    def run(self, drains: threading.Event, over: threading.Event) -> None:
        acts = [self.post, self.claim, self.claim, self.end, self.end, self.end, self.extend, self.look, self.operate]
        acts += [self.churn, self.churn, self.be_late]
        if self.caller is not None:
            acts.append(self.transact)
        while not drains.is_set():
            try:
                self.dice.choice(acts)()
            except JobBoardError as error:
                self.failures[type(error).__name__] += 1
            time.sleep(0.005)
        if self.caller is not None:
            self.held += self.caller.ended(wait=True)
        # Nobody would write down what close() gives back.
        self.recorder.consume_many(self.held, self.who)
        while not over.is_set():
            jobs = self.recorder.claim_many(self.who, 1, timeout=PATIENCE, unless=over.is_set)
            self.recorder.consume_many(jobs, self.who)

    def post(self) -> None:
        if (count := self.board.job_count) > FULL:
            return
        dice = self.dice
        floods = count < STOCK and boottime() % (2 * PERIOD) < PERIOD
        postings = [
            Posting(
                dice.choice(["job 0", "job 1", "job 2", PLAIN, PLAIN, PAUSABLE]),
                details={"size": dice.randrange(1000)},
                priority=dice.choice(["HIGH", "NORMAL", "LOW"]),
                delay=dice.choice([None, None, 0.2]),
                max_attempts=dice.choice([None, None, 3]),
                group=f"group {dice.randrange(4)}",
            )
            for _ in range(30 if floods else dice.choice([1, 1, 5]))
        ]
        self.recorder.post_many(postings)
        # A job that has the key already gets another entry with its uuid.
        keyed = Posting(
            "keyed",
            key=f"key {dice.randrange(KEYS)}",
            key_for=dice.choice([None, None, 1.0]),
            on_key=dice.choice(["keep", "keep", "replace"]),
        )
        self.recorder.post_many([keyed])

    def claim(self) -> None:
        if len(self.held) > 10:
            return
        arguments: dict[str, Any] = {"timeout": self.dice.choice([0, 0, 0, 0.2])}
        if self.dice.random() < 0.3:
            arguments["expiry"] = self.dice.choice([0.3, 5.0])
        if self.dice.random() < 0.2:
            arguments["names"] = self.dice.choice([["keyed", "job 1"], [PLAIN], [PLAIN, "job 2"]])
        if self.caller is not None and self.dice.random() < 0.1:
            arguments["where"] = self.board.table.c.name != "job 0"
        self.held += self.recorder.claim_many(self.who, self.dice.choice([1, 1, 4]), **arguments)

    def churn(self) -> None:
        """Claim jobs one by one, and give each back: lapses, due times and claims of others meet many claims."""
        for _ in range(20):
            jobs = self.recorder.claim_many(self.who, 1)
            if not jobs:
                return
            if jobs[0].attempts > CHURNS:
                self.recorder.consume(jobs[0], self.result())
            else:
                self.recorder.abandon(jobs[0], delay=self.dice.choice([None, None, 0.05, 0.1]))

    def be_late(self) -> None:
        """Consume a job at about the moment at which its claim lapses, while others write the lapse down."""
        jobs = self.recorder.claim_many(self.who, 1, expiry=0.05)
        time.sleep(self.dice.uniform(0.03, 0.07))
        self.recorder.consume_with(jobs, self.who, [self.result() for _ in jobs])

    def extend(self) -> None:
        if self.held:
            self.recorder.extend(self.dice.choice(self.held), self.dice.choice([None, 2.0]))

    def end(self) -> None:
        if not self.held:
            return
        job = self.held.pop(self.dice.randrange(len(self.held)))
        kind = self.dice.random()
        if kind < 0.05:
            act = Act(job, Verb.ABANDON, delay=0.1, error="again", retry=True)
            self.recorder._act(Verb.ABANDON, [job], lambda: self.board.finish_many([act], self.who))
        elif kind < 0.15:
            self.recorder.abandon(job, delay=self.dice.choice([None, 0.1]), error="not yet")
        elif kind < 0.25:
            self.recorder.trash(job, reason="bad")
        elif kind < 0.4:
            jobs, self.held = [job, *self.held], []
            self.recorder.consume_with(jobs, self.who, [self.result() for _ in jobs])
        else:
            self.recorder.consume(job, self.result())

    def result(self) -> str | None:
        """Return a result that no other consume has, or now and then none."""
        self.consumes += 1
        keeps = self.board.options["keep_done"] > 0 and self.dice.random() < 0.8
        return f"{self.who} {self.consumes}" if keeps else None

    def transact(self) -> None:
        assert self.caller is not None
        self.held += self.caller.ended()
        if self.held and not self.caller.busy:
            self.dice.shuffle(self.held)
            jobs, self.held = self.held[:2], self.held[2:]
            self.caller.begin([(job, self.result()) for job in jobs], self.who, self.dice)

    def look(self) -> None:
        kind = self.dice.randrange(3)
        if kind == 0:
            assert all(job.uuid for job in self.board.iterjobs(ensure_fresh=self.dice.random() < 0.5))
        elif kind == 1:
            assert self.board.stats().on_board >= 0
        elif self.held:
            assert self.dice.choice(self.held).state

    def operate(self) -> None:
        """Rarely, so that most jobs are worked on in peace."""
        kind = self.dice.random()
        if kind < 0.1:
            for job in self._some(self.board.trashed()):
                self.recorder._act(Verb.RESTORE, [job], lambda job=job: self.board.restore(job))
        elif kind < 0.15:
            for job in self._some(self.board.iterjobs(states=["CLAIMED"])):
                self.recorder.release(job)
        elif kind < 0.18:
            for job in self._some(self.board.iterjobs(states=["CLAIMED"])):
                self.recorder.stop(job)
        elif kind < 0.23:
            for job in self._some(self.board.iterjobs(only_unclaimed=True)):
                self.recorder._act(Verb.CANCEL, [job], lambda job=job: self.board.cancel(job))

    def _some(self, jobs: Iterable[Job]) -> list[Job]:
        found = [job for _, job in zip(range(20), jobs, strict=False)]
        return self.dice.sample(found, min(2, len(found)))


def work(given: dict[str, Any]) -> None:
    """Run a worker's process. After a first line of its standard input it only waits for jobs and consumes them, and
    after the end of that it ends; its own last line has what it was refused."""
    logging.basicConfig(format="%(asctime)s %(name)s %(message)s")
    faulthandler.register(signal.SIGUSR1)
    set_clock(given["skew"])
    drains, over = threading.Event(), threading.Event()

    def listen() -> None:
        sys.stdin.readline()
        drains.set()
        sys.stdin.read()
        over.set()
        board.wake()

    board = jobboard.fetch("board", given["conf"])
    connect(board)
    recorder = Recorder(board, given["process"], to_file(Path(given["file"])))
    caller = None
    if (database := given["database"]) is not None:
        caller = Caller(recorder, database, HOLDS_OF_A_FILE if database.startswith("sqlite:") else HOLDS)
    worker = Worker(recorder, caller, given["process"], random.Random(given["seed"]))
    threading.Thread(target=listen, daemon=True).start()
    worker.run(drains, over)
    board.close()
    worker.failures.update(type(failure).__name__ for failure in recorder.failures)
    print(json.dumps(worker.failures))


def connect(board: Any) -> None:
    """Connect, however often that takes: the board itself tries it once."""
    while True:
        with contextlib.suppress(ConnectionFailure):
            board.connect()
            return
        time.sleep(0.1)


class Clock:
    """The time of day that all processes are told which are started with its ``environment``: see ``clock.c``."""

    def __init__(self, folder: Path) -> None:
        if (compiler := shutil.which("cc")) is None:
            raise ServerError("the servers' clock needs a C compiler; install it (Debian, Ubuntu: apt-get install gcc)")
        library, self._file = folder / "clock.so", folder / "clock"
        source = Path(__file__).with_name("clock.c")
        subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
        self._file.write_bytes(struct.pack("q", 0))
        self.environment = {"LD_PRELOAD": str(library), "JOBBOARD_CLOCK": str(self._file)}

    def set(self, ahead: int) -> None:
        with self._file.open("r+b") as file:
            file.write(struct.pack("q", ahead))


class Crew:
    """The processes of the workers. One that was killed has a successor with a file of its own."""

    def __init__(self, conf: dict[str, Any], database: str | None, folder: Path, seed: int, skewed: bool) -> None:
        self._conf, self._database, self._folder, self._seed, self._skewed = conf, database, folder, seed, skewed
        self._current: dict[int, tuple[str, subprocess.Popen[str]]] = {}
        self._started = 0
        self.failures: Counter[str] = Counter()
        self.faults: list[str] = []

    def start(self, number: int) -> None:
        self._started += 1
        name = f"worker{number}.{self._started}"
        given = {
            "process": name,
            # One of two leaves outcomes, which are there when the history is judged.
            "conf": {**self._conf, "keep_done": 86400 if number % 2 else 0},
            "database": self._database,
            "file": str(self._folder / f"{name}.jsonl"),
            "seed": f"{self._seed} {name}",
            "skew": SKEWS[number % len(SKEWS)] if self._skewed else 0,
        }
        command = [sys.executable, "-X", "faulthandler", __file__, "--work", json.dumps(given)]
        with (self._folder / f"{name}.log").open("w") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                # Its clock is not the servers'.
                env={word: value for word, value in os.environ.items() if word != "LD_PRELOAD"},
            )
        self._current[number] = name, process

    def harm(self, dice: random.Random) -> str:
        """Kill one and start its successor, or stop one for a while."""
        number = dice.randrange(len(self._current))
        name, process = self._current[number]
        how, seconds = dice.choice(["kill", "kill", "stop"]), dice.choice([0.5, 1.5 * TTL, 2.5 * TTL])
        if process.poll() is not None:
            self.faults.append(f"{name} has ended with {process.returncode}")
            how = "kill"
        if how == "kill":
            process.kill()
            process.communicate()
            self.start(number)
            return f"{name} was killed"
        process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        process.send_signal(signal.SIGCONT)
        return f"{name} was stopped for {seconds:g} s"

    def check_progress(self) -> None:
        """All is well again, and so all of them must be doing something."""
        for name, process in self._current.values():
            if process.poll() is not None:
                self.faults.append(f"{name} has ended with {process.returncode}: {self._last_line(name)}")
        sizes = {name: self._size(name) for name, process in self._current.values() if process.poll() is None}
        for name, size in sizes.items():
            try:
                eventually(lambda name=name, size=size: self._size(name) > size, PATIENCE)  # type: ignore[misc]
            except AssertionError:
                self.faults.append(f"{name} does nothing though all is well")

    def _last_line(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text(errors="replace").rstrip().rpartition("\n")[2]

    def _size(self, name: str) -> int:
        file = self._folder / f"{name}.jsonl"
        return file.stat().st_size if file.exists() else 0

    def drain(self) -> None:
        """From now on they only wait for jobs, and consume them."""
        for _, process in self._current.values():
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write("\n")
                process.stdin.flush()

    def show_stacks(self) -> None:
        """In their logs: what each of their threads does."""
        for _, process in self._current.values():
            process.send_signal(signal.SIGUSR1)

    def join(self) -> None:
        for _, process in self._current.values():
            assert process.stdin is not None
            process.stdin.close()
            process.stdin = None
        for name, process in self._current.values():
            try:
                out, _ = process.communicate(timeout=2 * PATIENCE)
            except subprocess.TimeoutExpired:
                self.faults.append(f"{name} does not end")
                # Its stacks go to its log.
                process.send_signal(signal.SIGABRT)
                process.communicate()
                continue
            if process.returncode:
                self.faults.append(f"{name} has ended with {process.returncode}")
            else:
                self.failures.update(json.loads(out.splitlines()[-1]))

    def end(self) -> None:
        for _, process in self._current.values():
            process.kill()
            process.communicate()

    def stray_errors(self) -> Iterator[str]:
        """Errors that were raised where nobody could catch them."""
        for file in sorted(self._folder.glob("*.log")):
            text = file.read_text(errors="replace")
            for sign in ("Exception in thread", "Exception ignored", "Task exception was never"):
                if sign in text:
                    yield f"{file.stem}: {text[text.index(sign) :][:2000]}"


class Ruler:
    """Sets limits and pauses names, and changes that."""

    def __init__(self, board: Any) -> None:
        self._board = board
        self.recorder = Recorder(board, "ruler", lambda number, entry: None)

    def begin(self, dice: random.Random) -> None:
        for name, limits in LIMITS:
            self._set(name, dice.choice(limits))

    def change(self, dice: random.Random) -> str:
        (name, limits), kind, seconds = dice.choice(LIMITS), dice.random(), dice.choice([0.2, 2])
        if kind < 0.5:
            return self._set(name, dice.choice(limits))
        paused = None if kind < 0.6 else [name] if kind < 0.8 else [name, PAUSABLE]
        self.recorder.pause(paused)
        time.sleep(seconds)
        self._resume(paused)
        return f"{paused or 'everything'} was paused for {seconds} s"

    def _resume(self, names: list[str] | None) -> None:
        while True:
            self.recorder.resume(names)
            if self.recorder.pauses[-1].resumed and self.recorder.pauses[-1].outcome == "ok":
                return

    def _set(self, name: str, limit: dict[str, Any]) -> str:
        self._until_done(name, limit, lambda: self._board.set_limit(name, **limit))
        return f"{name} was limited: {limit}"

    def end(self) -> None:
        self._resume(None)
        for name, (limit, *_) in LIMITS:
            per = limit.get("per", "name")
            self._until_done(name, {"per": per}, lambda name=name, per=per: self._board.remove_limit(name, per))

    def _until_done(self, name: str, limit: dict[str, Any], act: Callable[[], object]) -> None:
        """From its first try on it may have happened."""
        began = boottime()
        while True:
            with contextlib.suppress(ConnectionFailure):
                act()
                self.recorder.limits.append(Limiting(began, boottime(), name, **limit))
                return


class Soak:
    """One run."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self._given, self._folder = arguments, folder
        self._target = TARGETS[arguments.kind](arguments.members)
        self._clock = Clock(folder)
        self._over = threading.Event()
        self._harms: Counter[str] = Counter()
        self._faults: list[str] = []
        self._refused: Counter[str] = Counter()
        self._waits: list[float] = []
        self._left = self._short = 0

    def run(self) -> int:
        if self._target.has_clock:
            # For the servers, which inherit it whenever they start.
            os.environ.update(self._clock.environment)
        with self._target:
            entries = self._soaked()
        for fault in self._faults:
            print("FAULT:", fault)
            for entry in sorted(entry for entry in entries if entry.uuid and entry.uuid in fault)[:50]:
                print("   ", entry)
        done = Counter(f"{entry.verb} {entry.outcome}" for entry in entries)
        print(
            f"{self._given.kind}, seed {self._given.seed}: {self._given.minutes:g} minutes, {len(entries)} acts, "
            f"{sum(self._harms.values())} harms, slowest wake {max(self._waits, default=0):.2f} s, "
            f"{self._left} entries left, {self._short} short answers, {len(self._faults)} faults; "
            f"harms: {dict(sorted(self._harms.items()))}; acts: {dict(sorted(done.items()))}; "
            f"refused or failed: {dict(sorted(self._refused.items()))}"
        )
        return 1 if self._faults else 0

    def _soaked(self) -> list[HistoryEntry]:
        conf = {"claim_ttl": TTL, "retry_for": PATIENCE, **self._target.conf}
        with jobboard.backend("board", conf) as board:
            new = set(self._target.contents())
            if (database := self._target.database) is not None:
                LEDGER.create(engine_of(database))
            crew = Crew(conf, database, self._folder, self._given.seed, self._target.has_clock)
            ruler = Ruler(board)
            try:
                self._harmed(crew, ruler)
                crew.check_progress()
                crew.drain()
                if not self._drained(board):
                    crew.show_stacks()
                crew.join()
            finally:
                crew.end()
            self._faults += [*crew.faults, *crew.stray_errors()]
            self._refused = crew.failures
            if broken := crew.failures["ConnectionFailure"]:
                self._faults.append(f"{broken} calls found no server within {PATIENCE} s, and no outage was as long")
            self._faults += damage(board)
            entries = from_files(sorted(self._folder.glob("*.jsonl")))
            if database is not None:
                entries, faults = settled(entries, database)
                self._faults += faults
            self._faults += self._judged(entries, board, ruler.recorder)
            if self._given.limits:
                ruler.end()
            self._tidy(board, new)
        return entries

    def _harmed(self, crew: Crew, ruler: Ruler) -> None:
        """Several kinds of harm at the same time, each with dice of its own."""
        if self._given.limits:
            ruler.begin(random.Random(self._given.seed))
        for number in range(self._given.processes):
            crew.start(number)
        loops: dict[str, Callable[[random.Random], str]] = {}
        if not self._given.calm:
            loops = {"servers": self._harm_servers, "workers": crew.harm}
        if self._given.limits:
            loops["limits"] = ruler.change
        if self._given.clock_steps:
            loops["clock"] = self._step
        if isinstance(self._target, DatabaseTarget):
            loops["snapshots"] = self._target.pin
        with ThreadPoolExecutor(1 + len(loops)) as pool:
            runs = [pool.submit(self._repeat, name, harm) for name, harm in loops.items()]
            runs.append(pool.submit(self._over.wait, 60 * self._given.minutes))
            wait(runs, 60 * self._given.minutes, FIRST_EXCEPTION)
            self._over.set()
        for run in runs:
            run.result()
        self._clock.set(0)

    def _repeat(self, name: str, harm: Callable[[random.Random], str]) -> None:
        dice = random.Random(f"{self._given.seed} {name}")
        while not self._over.wait(self._given.every * dice.uniform(0.5, 1.5)):
            began = boottime()
            told = harm(dice)
            with (self._folder / "harms.txt").open("a") as file:
                file.write(f"{began:.3f} to {boottime():.3f}: {name}: {told}\n")
            self._harms[told if name == "servers" else name] += 1

    def _harm_servers(self, dice: random.Random) -> str:
        harm = dice.choice(self._target.harms)
        getattr(self._target, harm)(dice)
        return harm

    def _step(self, dice: random.Random) -> str:
        ahead = dice.choice([-10, -3, 0, 3, 10])
        self._clock.set(ahead)
        return f"{ahead} s ahead"

    def _drained(self, board: Any) -> bool:
        """The workers, which all wait for jobs now, leave nothing behind, and wake for each job that comes."""
        poster = Recorder(board, "poster", to_file(self._folder / "poster.jsonl"))
        for turn in range(1 + WAKES):
            began = time.monotonic()
            try:
                eventually(lambda: board.job_count == 0, 2 * PATIENCE)
            except AssertionError:
                left = [f"{job.name} {job.uuid} {job.seen_state}" for job in board.iterjobs(ensure_fresh=True)]
                self._faults.append(f"{len(left)} jobs are not taken: {left[:10]}; {board.stats()}")
                return False
            if turn:
                self._waits.append(time.monotonic() - began)
            # Until they all sleep again.
            time.sleep(0.3)
            if turn < WAKES:
                poster.post_many([Posting("wake")])
        if max(self._waits) > SLEPT:
            self._faults.append(f"who waits is not woken: it took {max(self._waits):.1f} s to have a job done")
        return max(self._waits) <= SLEPT

    def _judged(self, entries: list[HistoryEntry], board: Any, ruler: Recorder) -> list[str]:
        """Order is left out after harms, as a call that was never answered may have touched any job. So is the end of
        leases where the clock that they go by has been set forward."""
        if not self._given.calm:
            # The entries of calls, which have no job, say whether empty answers are judged.
            entries = [entry._replace(chosen=entry.chosen and not entry.uuid) for entry in entries]
        rules: dict[str, Any] = {"pauses": ruler.pauses, "limits": ruler.limits, "unseen": UNSEEN}
        (self._folder / "rules.txt").write_text("\n".join(map(repr, sorted([*ruler.pauses, *ruler.limits]))))
        left = left_on(board)
        faults = judge(entries, left, contended=True, **rules)
        if self._given.clock_steps:
            faults = [fault for fault in faults if not fault.startswith(("taken too early", "empty answer"))]
        self._short = len(empty_answers(entries, left, **rules, short=True))
        return faults

    def _tidy(self, board: Any, new: set[str]) -> None:
        """Two days later there is neither an outcome nor the answer of a call left, nor a mark of a purged job."""
        board.purge_trash(0)
        self._clock.set(TWO_DAYS)
        command = [sys.executable, __file__, "--tidy", json.dumps(self._target.conf)]
        left: list[str] = []

        def tidied() -> bool:
            # In a process of its own, as its clock counts where the server has none.
            subprocess.run(command, check=True, env={**os.environ, **self._clock.environment})
            left[:] = (entry for entry in self._target.contents() if entry not in new)
            self._left = len(left)
            return self._left <= SLACK

        try:
            eventually(tidied, 120)
        except AssertionError:
            kinds = Counter(re.sub(r"[0-9a-f]{6,}|[0-9]+", "#", entry) for entry in left)
            self._faults.append(f"{self._left} entries are left: {kinds.most_common(20)}")


def damage(board: Any) -> list[str]:
    """Entries of the server that don't fit together, on a board that nobody works on. Its settings don't matter."""
    return [f"{odd.place}: {odd.reason}" for odd in board.examine() if not odd.place.startswith("characteristic ")]


def tidy(conf: dict[str, Any]) -> None:
    with jobboard.backend("board", conf) as board:
        Harness(board).tidy()


def main() -> int:
    if sys.argv[1:2] == ["--work"]:
        work(json.loads(sys.argv[2]))
        return 0
    if sys.argv[1:2] == ["--tidy"]:
        tidy(json.loads(sys.argv[2]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=TARGETS)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--members", type=int, default=1, help="how many servers of ZooKeeper or etcd")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--every", type=float, default=6, help="seconds between two harms of a kind, on the average")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--limits", action="store_true", help="set limits and pauses, and change them")
    parser.add_argument("--calm", action="store_true", help="harm neither servers nor workers, and judge order, too")
    parser.add_argument("--clock-steps", action="store_true", help="set the servers' clock, both ways")
    parser.add_argument("--keep", type=Path, help="where to leave the histories and the logs, faults or none")
    given = parser.parse_args()
    if given.members > 1 and given.kind not in ("zookeeper", "etcd"):
        parser.error(f"--members={given.members}: {given.kind} has servers of its own number")
    if given.clock_steps and (given.limits or given.kind in ("etcd", "sqlite")):
        parser.error(
            "--clock-steps: needs a server with a clock, and no limits, which a history judges by its own time"
        )
    print(f"seed {given.seed}", flush=True)
    folder = given.keep or Path(tempfile.mkdtemp(prefix="jobboard-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    # Servers that run as other users read the clock there.
    folder.chmod(0o711)
    logging.basicConfig(filename=folder / "soak.log", format="%(asctime)s %(name)s %(message)s")
    status = Soak(given, folder).run()
    if status:
        print(f"the histories and the logs are in {folder}", file=sys.stderr)
    elif given.keep is None:
        shutil.rmtree(folder)
    return status


if __name__ == "__main__":
    sys.exit(main())
