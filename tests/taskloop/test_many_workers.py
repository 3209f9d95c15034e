"""Many processes on one loop at once."""

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard.taskloop import TaskLoop

pytestmark = [pytest.mark.backends("sqlite", "postgresql", "mariadb"), pytest.mark.xdist_group("processes")]

PROCESSES = 10
IDS = 600
BATCH = 10


def _work(url: str, table: str, on_connection: bool, reports: Connection) -> None:
    """Take and finish all there is; tells what it got, or the error."""
    engine = sa.create_engine(url)
    try:
        with engine.connect() as connection:
            got: list[list[int]] = []
            with TaskLoop(connection if on_connection else engine, table) as loop:
                while ids := loop.get(BATCH, who="anybody"):
                    loop.add([min(ids), max(ids)])
                    loop.bump([ids[0]], lock_for=7200)
                    got.append(list(ids))
                    assert loop.did(ids, strict=True) == len(ids)
        reports.send(got)
    except BaseException as error:  # noqa: BLE001 - told to the test
        reports.send(repr(error))


def test_ten_processes_take_each_id_once(make_loop: Callable[..., Any], engine: sa.Engine, backend: str) -> None:
    loop = make_loop(*range(IDS))
    loop.bump(range(0, IDS, 7))
    with engine.connect() as connection:
        if backend == "mariadb":
            assert connection.get_isolation_level() == "REPEATABLE READ"
    url = engine.url.render_as_string(hide_password=False)
    context = multiprocessing.get_context("fork")
    ends = []
    for number in range(PROCESSES):
        mine, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(url, loop.table, number % 2 == 1, theirs))
        process.start()
        theirs.close()
        ends.append((process, mine))
    reports = [mine.recv() for _, mine in ends]
    for process, mine in ends:
        process.join()
        mine.close()
    assert [report for report in reports if isinstance(report, str)] == []
    taken = [id_ for report in reports for batch in report for id_ in batch]
    assert sorted(taken) == list(range(IDS))
    assert all(until is None and updated is not None for updated, until in loop.rows().values())
