"""How fast a task loop is beside doloop 1.0 itself, on MariaDB.

    pip install doloop==1.0.0 && PYTHONPATH=. python benchmarks/taskloop.py
    PYTHONPATH=. python benchmarks/taskloop.py --doloop doloop-1.0.0-py2.py3-none-any.whl

Worker processes take and finish 10,000 ids in batches of 100 (``get`` and ``did``), each round on a table as new, on a
durable server of the benchmark's own. Ours and theirs run in turn, and who goes first changes; the figure is the median
of the rounds' ratios, so that a machine whose speed drifts does not tell.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import pymysql
import sqlalchemy as sa

from jobboard.taskloop import TaskLoop
from tests.support.servers import MariaDB

IDS = 10_000
BATCH = 100
OURS, THEIRS = "ours_loop", "doloops_loop"


def ours(url: sa.URL) -> Any:
    return TaskLoop(sa.create_engine(url), OURS)


def theirs(url: sa.URL) -> Any:
    connection = pymysql.connect(host=url.host, port=url.port or 0, user=url.username, database=url.database)
    return importlib.import_module("doloop").DoLoop(connection, THEIRS)


def work(make: Callable[[sa.URL], Any], url: sa.URL, ready: Any, finished: Any) -> None:
    loop = make(url)
    # Whatever is done once is done before the clock runs.
    loop.did(loop.get(BATCH, test=True), test=True)
    ready.wait()
    done = 0
    while ids := loop.get(BATCH):
        loop.did(ids)
        done += len(ids)
    finished.put((done, time.monotonic()))


def fill(engine: sa.Engine, table: str) -> None:
    name = sa.table(table, sa.column("id"))
    with engine.begin() as connection:
        connection.execute(sa.delete(name))
        connection.execute(sa.insert(name), [{"id": id_} for id_ in range(IDS)])


def measure(make: Callable[[sa.URL], Any], url: sa.URL, workers: int) -> float:
    context = multiprocessing.get_context("fork")
    ready, finished = context.Barrier(workers + 1), context.Queue()
    processes = [context.Process(target=work, args=(make, url, ready, finished)) for _ in range(workers)]
    for process in processes:
        process.start()
    ready.wait()
    start = time.monotonic()
    reports = [finished.get() for _ in processes]
    for process in processes:
        process.join()
    assert sum(done for done, _ in reports) == IDS
    return max(end for _, end in reports) - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--doloop", help="where doloop is, if it is not installed: a folder or a wheel")
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    if given.doloop:
        sys.path.insert(0, given.doloop)
    with MariaDB(durable=True) as server:
        url = sa.make_url(server.uri).set(drivername="mariadb+pymysql")
        engine = sa.create_engine(url, poolclass=sa.NullPool)
        with ours(url) as loop:
            loop.create()
        with engine.begin() as connection:
            connection.exec_driver_sql(importlib.import_module("doloop").sql_for_create(THEIRS))
        for workers in (1, 4):
            times: dict[Any, list[float]] = {ours: [], theirs: []}
            for number in range(given.rounds + 1):
                fill(engine, OURS)
                fill(engine, THEIRS)
                for make in (ours, theirs) if number % 2 else (theirs, ours):
                    spent = measure(make, url, workers)
                    if number:
                        times[make].append(spent)
            ratios = [slow / fast for slow, fast in zip(times[theirs], times[ours], strict=True)]
            rates = [IDS / statistics.median(times[make]) for make in (ours, theirs)]
            print(
                f"{workers} workers: {statistics.median(ratios):.2f} times as fast as doloop (from {min(ratios):.2f} "
                f"to {max(ratios):.2f}; {rates[0]:.0f} against {rates[1]:.0f} ids/s)"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
