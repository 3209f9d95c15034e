"""How the SQL boards age: what each verb costs after many jobs, with an old snapshot held open and without.

    python benchmarks/ageing.py                                       # a drain of 300,000, each database, each pin
    python benchmarks/ageing.py drain --jobs 60000 --only postgresql --pin none --pin read
    python benchmarks/ageing.py steady --minutes 30 --workers 4 --only mariadb --json m.json --chart m.svg

*drain* posts all the jobs, then claims and consumes them. *steady* posts ``--rate`` jobs a second and works on them as
they come: of a hundred, five are given back with a delay (retries) and one is kept for seconds and extended (as a
heartbeat does). The workers are processes. ``--pin read`` holds a snapshot open that began before the first job;
``--pin write`` a transaction that has posted one, which SQLite can't have beside other writers.

A line stands for 10,000 finished jobs (``--every``): the median and the 99th percentile of each verb in milliseconds,
then what the server did for each job: pages read (from memory or disk), bytes of log, and how many dead rows (on
MariaDB: the length of its history), table and index bytes there are. The servers are started for the run, durable, with
default settings, in ``--folder``: name one on a disk, as memory makes durability free.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import queue
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa

import jobboard
from jobboard.testing.servers import MariaDB, PostgreSQL

DATABASES = ("postgresql", "mariadb", "sqlite")
PINS = ("none", "read", "write")
DETAILS = {"path": "/srv/images/" + "x" * 165, "width": 640}
TABLES = ("jobboard", "jobboard_answers")
VERBS = ("post", "claim", "consume", "abandon", "extend")
TICK = 0.05
"""How often a poster posts, in seconds."""
RETRIED, KEPT = 0.05, 0.01
KEPT_FOR = 10.0
SHORT_LEASE = 6
"""A heartbeat then comes every two seconds."""
PATIENCE = 120
"""After so many seconds without a finished job the run ends."""


@contextmanager
def uri_of(database: str) -> Iterator[str]:
    if database == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{folder}/ageing.db"
        return
    with (PostgreSQL if database == "postgresql" else MariaDB)(durable=True) as server:
        yield server.uri


def engine_of(uri: str) -> sa.Engine:
    driver = {"postgresql:": "postgresql+psycopg:", "mariadb:": "mariadb+pymysql:"}
    scheme, rest = uri.split("//", 1)
    return sa.create_engine(driver.get(scheme, scheme) + "//" + rest, poolclass=sa.NullPool)


@contextmanager
def pinned(board: Any, engine: sa.Engine, pin: str) -> Iterator[None]:
    """Hold a snapshot, or a transaction that has posted, for as long as the body runs."""
    if pin == "none":
        yield
        return
    isolation = {} if engine.dialect.name == "sqlite" else {"isolation_level": "REPEATABLE READ"}
    with engine.connect().execution_options(**isolation) as connection, connection.begin() as transaction:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN")
        connection.execute(sa.select(sa.func.count()).select_from(board.table))
        if pin == "write":
            board.post("late", details=DETAILS, connection=connection)
        yield
        transaction.rollback()


class Gauge:
    """What the server tells of its work and of its size."""

    def __init__(self, database: str, uri: str) -> None:
        self._read: Callable[[], dict[str, float]] = getattr(self, f"_{database}")
        self._path = uri.removeprefix("sqlite:///")
        self._connection = engine_of(uri).connect().execution_options(isolation_level="AUTOCOMMIT")
        self._last = self._read()

    def close(self) -> None:
        self._connection.close()

    def lap(self, jobs: int) -> dict[str, float]:
        """Pages and log for each job since the last lap; dead rows and sizes as they are."""
        now, last = self._read(), self._last
        self._last = now
        each = {name: round((now[name] - last[name]) / max(1, jobs), 1) for name in ("pages", "log") if name in now}
        return {**{name: value for name, value in now.items() if name not in each}, **each}

    def _rows(self, text: str) -> Any:
        names = sa.bindparam("tables", TABLES, expanding=True)
        return self._connection.execute(sa.text(text).bindparams(names) if ":tables" in text else sa.text(text))

    def _postgresql(self) -> dict[str, float]:
        [(log,)] = self._rows("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')")
        [figures] = self._rows(
            """SELECT sum(coalesce(heap_blks_read, 0) + coalesce(heap_blks_hit, 0)
                          + coalesce(idx_blks_read, 0) + coalesce(idx_blks_hit, 0)) AS pages,
                      sum(n_dead_tup) AS dead, sum(pg_table_size(relid)) AS "table",
                      sum(pg_indexes_size(relid)) AS "index"
               FROM pg_statio_user_tables JOIN pg_stat_user_tables USING (relid, relname) WHERE relname IN :tables"""
        )
        return {"log": float(log), **{name: float(value) for name, value in figures._mapping.items()}}

    def _mariadb(self) -> dict[str, float]:
        wanted = {
            "Innodb_buffer_pool_read_requests": "pages",
            "Innodb_os_log_written": "log",
            "Innodb_history_list_length": "dead",
        }
        status = dict(tuple(row) for row in self._rows("SHOW GLOBAL STATUS LIKE 'Innodb%'"))
        [(table, index)] = self._rows(
            """SELECT sum(data_length), sum(index_length) FROM information_schema.tables
               WHERE table_schema = database() AND table_name IN :tables"""
        )
        sizes = {"table": float(table), "index": float(index)}
        return {**{wanted[name]: float(status[name]) for name in wanted}, **sizes}

    def _sqlite(self) -> dict[str, float]:
        wal = Path(self._path + "-wal")
        return {
            "table": float(Path(self._path).stat().st_size),
            "wal": float(wal.stat().st_size) if wal.exists() else 0.0,
        }


# The processes: each sends [(verb, seconds), …] and how many jobs it has finished, about once a second.


class Reporter:
    def __init__(self, told: Any) -> None:
        self._told = told
        self._times: list[tuple[str, float]] = []
        self._done = 0
        self._sent = time.monotonic()

    @contextmanager
    def timed(self, verb: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self._times.append((verb, time.perf_counter() - start))

    def forget(self) -> None:
        """The latest time is not to count: nothing was there to be claimed."""
        self._times.pop()

    def finished(self, jobs: int) -> None:
        self._done += jobs
        if time.monotonic() - self._sent > 0.5:
            self.send()

    def send(self) -> None:
        self._told.put((self._times, self._done))
        self._times, self._done, self._sent = [], 0, time.monotonic()


@dataclass(frozen=True)
class Work:
    """What the processes are to do. ``rate`` 0: drain what is there."""

    uri: str
    batch: int
    rate: int


def post_steadily(work: Work, told: Any, stop: Any) -> None:
    reporter = Reporter(told)
    owed, last = 0.0, time.monotonic()
    with jobboard.backend("ageing", {"board": work.uri}) as board:
        while not stop.wait(TICK):
            now = time.monotonic()
            owed, last = owed + (now - last) * work.rate, now
            some, owed = int(owed), owed % 1
            if some:
                with reporter.timed("post"):
                    board.post_many([{"name": "resize", "details": DETAILS}] * some)
            reporter.finished(0)


def work_on(work: Work, who: str, told: Any, stop: Any) -> None:
    reporter, dice, kept = Reporter(told), random.Random(who), []
    with jobboard.backend("ageing", {"board": work.uri, "claim_ttl": SHORT_LEASE}) as board:
        while not stop.is_set():
            with reporter.timed("claim"):
                jobs = board.claim_many(who, work.batch)
            if not jobs:
                reporter.forget()
                if not work.rate:
                    break
                # Not a synchronisation: an idle worker would look again after about as long.
                stop.wait(TICK)
            done = []
            for job in jobs:
                fate = dice.random() if work.rate else 1.0
                if fate < RETRIED and job.attempts == 1:
                    with reporter.timed("abandon"):
                        board.abandon(job, who, delay=dice.random() * 2)
                elif RETRIED <= fate < RETRIED + KEPT:
                    kept.append((time.monotonic() + KEPT_FOR, job))
                    with reporter.timed("extend"):
                        job.claim.extend()
                else:
                    done.append(job)
            while kept and kept[0][0] < time.monotonic():
                done.append(kept.pop(0)[1])
            if done:
                with reporter.timed("consume"):
                    board.consume_many(done, who)
            reporter.finished(len(done))
        reporter.send()


# The run


@dataclass
class Run:
    """One curve: a database under one pin."""

    database: str
    pin: str
    laps: list[dict[str, Any]] = field(default_factory=list)
    rate: float = 0.0

    def lap(self, jobs: int, seconds: float, times: dict[str, list[float]], gauges: dict[str, float]) -> None:
        # All may have come in one report.
        rate = jobs / max(seconds, 0.001)
        verbs = {verb: _percentiles(times[verb]) for verb in VERBS if times[verb]}
        done = jobs + (self.laps[-1]["done"] if self.laps else 0)
        self.laps.append({"done": done, "rate": round(rate, 1), "verbs": verbs, **gauges})
        cells = [f"{verb} {median:.2f}/{p99:.2f}" for verb, (median, p99) in verbs.items()]
        sizes = [f"{name} {_short(value)}" for name, value in gauges.items()]
        print(f"{self.database:10} {self.pin:5} {done:>8}  {rate:6.0f}/s", *cells, *sizes, sep="  ", flush=True)


def _percentiles(seconds: Sequence[float]) -> tuple[float, float]:
    """Median and 99th percentile, in ms."""
    ordered = sorted(seconds)
    return (
        round(statistics.median(ordered) * 1e3, 3),
        round(ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] * 1e3, 3),
    )


def _short(value: float) -> str:
    for unit in ("", "k", "M"):
        if value < 1000:
            return f"{value:.3g}{unit}"
        value /= 1000
    return f"{value:.3g}G"


def measure(database: str, pin: str, given: argparse.Namespace) -> Run:
    run = Run(database, pin)
    steady = given.what == "steady"
    with uri_of(database) as uri, jobboard.backend("ageing", {"board": uri}) as board:
        engine = engine_of(uri)
        if not steady:
            _post_all(board, given.jobs)
        gauge = Gauge(database, uri)
        try:
            with pinned(board, engine, pin):
                # What it cost to fill the table is not counted.
                gauge.lap(1)
                _work(run, gauge, Work(uri, given.batch, given.rate if steady else 0), given)
        finally:
            gauge.close()
    return run


def _post_all(board: Any, jobs: int) -> None:
    for start in range(0, jobs, 10_000):
        board.post_many([{"name": "resize", "details": DETAILS}] * min(10_000, jobs - start))
        _progress(f"posted {min(jobs, start + 10_000)} of {jobs}")


def _work(run: Run, gauge: Gauge, work: Work, given: argparse.Namespace) -> None:
    context = multiprocessing.get_context("spawn")
    told, stop = context.Queue(), context.Event()
    processes = [context.Process(target=work_on, args=(work, f"worker{n}", told, stop)) for n in range(given.workers)]
    if work.rate:
        processes.append(context.Process(target=post_steadily, args=(work, told, stop)))
    for process in processes:
        process.start()
    try:
        _listen(run, gauge, told, processes, work, given)
    finally:
        stop.set()
        for process in processes:
            # They may wait until their reports are read.
            _drained(told, process)
            process.join()


def _listen(run: Run, gauge: Gauge, told: Any, processes: list[Any], work: Work, given: argparse.Namespace) -> None:
    """Gather what the processes tell, a lap for each ``--every`` jobs, until they are done or the time is up."""
    times: dict[str, list[float]] = defaultdict(list)
    done = in_lap = 0
    begun = lap_begun = heard = time.monotonic()
    ends = float("inf")
    while True:
        now = time.monotonic()
        alive = any(process.is_alive() for process in processes)
        try:
            some, jobs = told.get(timeout=0.2)
        except queue.Empty:
            some, jobs = [], 0
            if not alive:
                break
        for verb, seconds in some:
            times[verb].append(seconds)
        if some and not done:
            # The workers have started: what that took is not counted.
            begun = lap_begun = now
            ends = begun + given.minutes * 60 if work.rate else ends
        done, in_lap = done + jobs, in_lap + jobs
        heard = now if jobs else heard
        _progress(f"{run.database}, pin {run.pin}: {done} jobs done in {now - begun:.0f} s")
        if in_lap >= given.every:
            run.lap(in_lap, now - lap_begun, times, gauge.lap(in_lap))
            times, in_lap, lap_begun = defaultdict(list), 0, now
        if now > ends:
            break
        if now - heard > PATIENCE:
            raise SystemExit(f"{run.database}: no job was finished for {PATIENCE} s; {done} were before")
    if in_lap:
        run.lap(in_lap, time.monotonic() - lap_begun, times, gauge.lap(in_lap))
    run.rate = round(done / max(0.001, heard - begun), 1)


def _drained(told: Any, process: Any) -> None:
    while process.is_alive():
        try:
            told.get(timeout=0.1)
        except queue.Empty:
            process.join(0.1)


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="\r", file=sys.stderr, flush=True)


# What is shown at the end


def summary(runs: Sequence[Run]) -> Iterator[str]:
    """The last tenth against the first, and each pinned run against the one that was not."""
    free = {run.database: run for run in runs if run.pin == "none"}
    for run in runs:
        if not run.laps:
            continue
        tenth = max(1, len(run.laps) // 10)
        medians = [lap["verbs"]["claim"][0] for lap in run.laps if "claim" in lap["verbs"]]
        first, last = statistics.mean(medians[:tenth]), statistics.mean(medians[-tenth:])
        text = (
            f"{run.database}, pin {run.pin}: {run.rate:.0f} jobs/s; a claim at the end {last / first:.2f} of the first"
        )
        other = free.get(run.database)
        if other is not None and other is not run and other.laps:
            p99 = [max(lap["verbs"]["claim"][1] for lap in each.laps[-tenth:]) for each in (run, other)]
            text += (
                f"; of those not pinned: throughput {run.rate / other.rate:.2f}, p99 of a claim {p99[0] / p99[1]:.1f}"
            )
        yield text


COLOURS = {"none": "#2a7", "read": "#c60", "write": "#a3c"}
WIDTH, HEIGHT, EDGE = 640, 300, 56


def chart(runs: Sequence[Run], verb: str = "claim") -> str:
    """The median of a verb against the jobs done, a panel for each database, as SVG."""
    databases = list(dict.fromkeys(run.database for run in runs))
    size = f'width="{WIDTH}" height="{HEIGHT * len(databases)}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for number, database in enumerate(databases):
        parts += _panel([run for run in runs if run.database == database], verb, number * HEIGHT)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(runs: Sequence[Run], verb: str, top: int) -> Iterator[str]:
    points = {
        run.pin: [(lap["done"], lap["verbs"][verb][0]) for lap in run.laps if verb in lap["verbs"]] for run in runs
    }
    most = max((x for line in points.values() for x, _ in line), default=1)
    highest = max((y for line in points.values() for _, y in line), default=1.0) * 1.1
    bottom, right = top + HEIGHT - EDGE, WIDTH - EDGE
    yield f'<text x="{EDGE}" y="{top + 24}">{runs[0].database}: median of a {verb}, in ms, by jobs done</text>'
    yield f'<path d="M{EDGE} {top + 36}V{bottom}H{right}" fill="none" stroke="black"/>'
    yield f'<text x="{EDGE - 6}" y="{top + 44}" text-anchor="end">{highest:.3g}</text>'
    yield f'<text x="{EDGE - 6}" y="{bottom}" text-anchor="end">0</text>'
    yield f'<text x="{right}" y="{bottom + 18}" text-anchor="end">{most}</text>'
    for number, (pin, line) in enumerate(points.items()):
        places = [
            f"{EDGE + x / most * (right - EDGE):.1f},{bottom - y / highest * (bottom - top - 36):.1f}" for x, y in line
        ]
        yield f'<polyline points="{" ".join(places)}" fill="none" stroke="{COLOURS[pin]}" stroke-width="2"/>'
        yield f'<text x="{EDGE + number * 110}" y="{bottom + 36}" fill="{COLOURS[pin]}">pin {pin}</text>'


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("drain", "steady"), default="drain")
    parser.add_argument("--jobs", type=int, default=300_000, help="how many to drain (default 300,000)")
    parser.add_argument("--rate", type=int, default=800, help="jobs a second of a steady run (default 800)")
    parser.add_argument("--minutes", type=float, default=30, help="how long a steady run lasts (default 30)")
    parser.add_argument("--workers", type=int, default=1, help="processes that claim (default 1)")
    parser.add_argument("--batch", type=int, default=1, help="jobs in a claim (default 1)")
    parser.add_argument("--every", type=int, default=10_000, help="jobs in a line (default 10,000)")
    parser.add_argument("--only", action="append", choices=DATABASES, help="this database; may be repeated")
    parser.add_argument("--pin", action="append", choices=PINS, help="this pin; may be repeated")
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="where the servers keep their files")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--chart", type=Path, help="write the medians of claims to this file, as SVG")
    given = parser.parse_args(arguments)
    wanted = [(database, pin) for database in given.only or DATABASES for pin in given.pin or PINS]
    before, tempfile.tempdir = tempfile.tempdir, str(given.folder)
    try:
        runs = [measure(*each, given) for each in wanted if each != ("sqlite", "write")]
    finally:
        tempfile.tempdir = before
    print(*summary(runs), sep="\n")
    if given.json is not None:
        curves = [{"database": run.database, "pin": run.pin, "rate": run.rate, "laps": run.laps} for run in runs]
        given.json.write_text(json.dumps(curves, indent=1) + "\n")
    if given.chart is not None:
        given.chart.write_text(chart(runs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
