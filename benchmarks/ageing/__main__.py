"""How the SQL boards age: what each verb costs after many jobs, with an old snapshot held open and without.

    PYTHONPATH=. python benchmarks/ageing  # a drain of 300,000, each database, each pin
    PYTHONPATH=. python benchmarks/ageing drain --jobs 60000 --only postgresql --pin none --pin read
    PYTHONPATH=. python benchmarks/ageing steady --minutes 30 --workers 4 --only mariadb --json m.json --chart m.svg
    PYTHONPATH=. python benchmarks/ageing steady --minutes 30 --around 3 --batch 10 --only postgresql --pin read

*drain* posts all the jobs, then claims and consumes them. *mixed* is a drain of which a fifth of the jobs are
delayed, by up to ``--spread`` seconds. *steady* posts ``--rate`` jobs a second and works on them as they come. In
*mixed* and *steady*, of a hundred jobs, five are given back with a delay (retries) and one is kept for seconds and
extended (as a heartbeat does). The workers are processes. ``--pin read`` holds a snapshot open that began before the
first claim; ``--pin write`` a transaction that has also written, which SQLite can't have beside other writers.
``--around`` has a steady run go on without its pin for so many minutes before it, and after it: so one run shows how
a board is meanwhile, and how soon it is as before.

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
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from curves import Run, chart, summary
from workers import DETAILS, Work, post_steadily, work_on

import jobboard
from tests.support.servers import MariaDB, PostgreSQL

DATABASES = ("postgresql", "mariadb", "sqlite")
PINS = ("none", "read", "write")
TABLES = ("jobboard", "jobboard_answers")
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
            connection.execute(sa.insert(answers_of(board)).values(handle="pin", slot=0, call=0, answer="", stamp=0))
        yield
        transaction.rollback()


def answers_of(board: Any) -> sa.Table:
    """Return another table of the board's, where the row of a pin is in nobody's way."""
    columns = [sa.Column(name, sa.String) for name in ("handle", "answer")]
    columns += [sa.Column(name, sa.BigInteger) for name in ("slot", "call", "stamp")]
    return sa.Table(f"{board.table.name}_answers", sa.MetaData(), *columns)


class Pin:
    """What is held open: all the time, or from ``around`` seconds on for ``seconds``."""

    def __init__(
        self, name: str, take: Callable[[], AbstractContextManager[None]], around: float, seconds: float
    ) -> None:
        self.name = name
        self.around, self.ends = around, around + seconds
        self._take = take
        self._held = ExitStack()
        self.is_held = False

    def begin(self) -> None:
        if not self.around:
            self._hold()

    def due(self, at: float) -> bool:
        """Whether it is to be taken or let go, so many seconds after the beginning."""
        return bool(self.around) and self.is_held != (self.around <= at < self.ends)

    def turn(self) -> None:
        if self.is_held:
            self.release()
        else:
            self._hold()

    def _hold(self) -> None:
        self._held.enter_context(self._take())
        self.is_held = True

    def release(self) -> None:
        self._held.close()
        self.is_held = False


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


def measure(database: str, pin: str, given: argparse.Namespace) -> Run:
    run = Run(database, pin)
    steady = given.what == "steady"
    around = given.around * 60 if steady and pin != "none" else 0
    with uri_of(database) as uri, jobboard.backend("ageing", {"board": uri}) as board:
        engine = engine_of(uri)
        if not steady:
            _post_all(board, given)
        gauge = Gauge(database, uri)
        held = Pin(pin, lambda: pinned(board, engine, pin), around, given.minutes * 60)
        try:
            held.begin()
            # What it cost to fill the table is not counted.
            gauge.lap(1)
            work = Work(uri, given.batch, given.rate if steady else 0, given.what != "drain", given.lease)
            _work(run, gauge, held, work, given)
        finally:
            held.release()
            gauge.close()
    return run


def _post_all(board: Any, given: argparse.Namespace) -> None:
    dice = random.Random(given.jobs)
    for start in range(0, given.jobs, 10_000):
        postings = [{"name": "resize", "details": DETAILS} for _ in range(min(10_000, given.jobs - start))]
        if given.what == "mixed":
            for posting in dice.sample(postings, len(postings) // 5):
                posting["delay"] = dice.random() * given.spread
        board.post_many(postings)
        _progress(f"posted {start + len(postings)} of {given.jobs}")


def _work(run: Run, gauge: Gauge, pin: Pin, work: Work, given: argparse.Namespace) -> None:
    context = multiprocessing.get_context("spawn")
    told, stop = context.Queue(), context.Event()
    processes = [context.Process(target=work_on, args=(work, f"worker{n}", told, stop)) for n in range(given.workers)]
    if work.rate:
        processes.append(context.Process(target=post_steadily, args=(work, told, stop)))
    for process in processes:
        process.start()
    try:
        _listen(run, gauge, pin, told, processes, work.rate > 0, given.every)
    finally:
        stop.set()
        for process in processes:
            # They may wait until their reports are read.
            _drained(told, process)
            process.join()


def _listen(run: Run, gauge: Gauge, pin: Pin, told: Any, processes: list[Any], steady: bool, every: int) -> None:
    """Gather what the processes tell, a lap for each ``every`` jobs and at each turn of the pin, until they are done or
    the time is up."""
    times: dict[str, list[float]] = defaultdict(list)
    done = in_lap = 0
    begun = lap_begun = heard = time.monotonic()
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
        done, in_lap = done + jobs, in_lap + jobs
        heard = now if jobs else heard
        at = now - begun
        steadily = steady and done > 0
        turns = steadily and pin.due(at)
        _progress(f"{run.database}, pin {run.pin}: {done} jobs done in {at:.0f} s")
        if in_lap >= every or (turns and in_lap):
            run.lap(at, pin.is_held, in_lap, now - lap_begun, times, gauge.lap(in_lap))
            times, in_lap, lap_begun = defaultdict(list), 0, now
        if turns:
            pin.turn()
        if steadily and at > pin.ends + pin.around:
            break
        if now - heard > PATIENCE:
            raise SystemExit(f"{run.database}: no job was finished for {PATIENCE} s; {done} were before")
    if in_lap:
        end = time.monotonic()
        run.lap(end - begun, pin.is_held, in_lap, end - lap_begun, times, gauge.lap(in_lap))
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


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("drain", "mixed", "steady"), default="drain")
    parser.add_argument("--jobs", type=int, default=300_000, help="how many to drain (default 300,000)")
    parser.add_argument("--spread", type=float, default=60, help="longest delay of a mixed drain (default 60 s)")
    parser.add_argument("--lease", type=float, default=30, help="seconds of each claim's lease (default 30)")
    parser.add_argument("--rate", type=int, default=800, help="jobs a second of a steady run (default 800)")
    parser.add_argument("--minutes", type=float, default=30, help="how long a steady run lasts (default 30)")
    parser.add_argument(
        "--around", type=float, default=0, help="minutes not pinned before it, and after it (default 0)"
    )
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
