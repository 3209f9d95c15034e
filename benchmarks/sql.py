"""How fast the SQL boards are: against *raw*, and as the table grows.

    python benchmarks/sql.py                      # everything, on durable servers of its own
    python benchmarks/sql.py raw --only sqlite
    python benchmarks/sql.py growth --only mariadb

Raw is the same statements (claim, answer kept for a lost reply, fenced delete, the same commits) on the bare driver,
with the postings decoded, and nothing else. Both run in turn in one process, a round each, on tables of their own; the
figure is the median of the rounds' ratios, so that a machine whose speed drifts does not tell. Growth claims and
abandons one job at a time in tables of 200 and of 200,000 jobs (ready, claimed and delayed, a third each), in turn.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jobboard
from jobboard.backends.sql.tables import RECORD
from jobboard.testing.servers import MariaDB, PostgreSQL

DETAILS = {"path": "/srv/images/" + "x" * 150, "width": 640}
DATABASES = ("sqlite", "postgresql", "mariadb")
HANDLE = "f" * 32
ANY = {"p_readable": 1, "p_gate": 0}
"""What any job meets that is ready, while nothing is paused."""


@contextmanager
def uri_of(database: str) -> Iterator[str]:
    if database == "sqlite":
        # On the disk on which the work is done: a folder in memory would make durability free.
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
            yield f"sqlite:///{folder}/bench.db"
        return
    with (PostgreSQL if database == "postgresql" else MariaDB)(durable=True) as server:
        yield server.uri


def fill(board: Any, jobs: int, **more: Any) -> None:
    board.post_many({"name": "resize", "details": DETAILS, **more} for _ in range(jobs))


class Raw:
    """A board's statements, driven by hand on a connection of the same driver."""

    def __init__(self, board: Any) -> None:
        self.board = board
        board.claim_next("raw")  # the board's own connection is then made and set up
        links = board.engine.store.links
        link = links.run(lambda link: link)
        self.dialect, self.cursor, self.raw, self.product = link.dialect, link.cursor, link.raw, link.product
        self.statements = board.engine.store.statements
        self._single = getattr(board.engine._shortcuts, "single", None)
        self.call = 0
        self.base = {"p_board": board.name, "p_handle": HANDLE, "p_slot": 1}
        self.lease = {"p_who": "raw", "p_keeper": HANDLE, "p_ttl": 30_000_000}

    def execute(self, statement: Any, params: dict[str, Any]) -> None:
        text, values = statement.compiled(self.dialect, params)
        self.cursor.execute(text, values)

    def prepared(self, statement: Any, params: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
        """The statement as a hand would have written it: its text is fixed, and so is the order of its parameters."""
        text, _ = statement.compiled(self.dialect, params)
        form = statement._texts[next(iter(statement._texts))] if not statement._lists else None
        order = form.order if form is not None else None
        fixed = form.fixed if form is not None else {}
        execute = self.cursor.execute
        if form is None:
            return lambda values: self.execute(statement, values)
        if order is None:
            return lambda values: execute(text, {**fixed, **values})
        return lambda values: execute(text, [fixed[n] if n in fixed else values[n] for n in order])

    def keep(self, answer: str) -> None:
        self.call += 1
        params = {**self.base, "p_call": self.call, "p_answer": answer}
        self.execute(self.statements.answer, params)
        if not self.cursor.rowcount:
            self.execute(self.statements.answer_first, params)

    def claim(self, limit: int) -> list[tuple[str, int, Any]]:
        if self._single is not None:
            self.call += 1
            self.take({**self.base, **self.lease, "p_call": self.call, **ANY, "p_swept": False})
            return [(row[0], row[10], json.loads(row[6])) for row in self.cursor.fetchall() if row[0]]
        self.product.begin(self.cursor)
        self.take({**self.base, "p_limit": limit, **ANY})
        rows = self.cursor.fetchall()
        now = rows[0][RECORD] if rows else 0
        if rows:
            self.execute(self.statements.claim.batch, {**self.lease, "p_ids": [row[3] for row in rows], "p_now": now})
            self.keep(f"{'+'.join([str(row[3]) for row in rows])} {now}")
        self.product.commit(self.raw, self.cursor)
        return [(row[0], max(row[10] + 1, now), json.loads(row[6])) for row in rows]

    def consume(self, jobs: list[tuple[str, int, Any]]) -> None:
        uuids = [uuid for uuid, _, _ in jobs]
        if self._single is not None:
            self.call += 1
            tokens = ",".join([str(token) for _, token, _ in jobs])
            self.finish({**self.base, "p_call": self.call, "p_uuids": ",".join(uuids), "p_tokens": tokens})
            self.cursor.fetchall()
            return
        self.product.begin(self.cursor)
        self.execute(self.statements.consume, {**self.base, "p_uuids": uuids, "p_token": jobs[0][1]})
        self.keep(f"* {len(uuids)}")
        self.product.commit(self.raw, self.cursor)

    def ready(self, batch: int) -> None:
        single = self._single
        every = {**self.base, **self.lease, "p_call": 0, "p_limit": 1, **ANY, "p_swept": False}
        self.take = self.prepared(single.take("any", batch) if single else self.statements.ready, every)
        if single:
            ends = {**self.base, "p_call": 0, "p_uuids": "", "p_tokens": ""}
            self.finish = self.prepared(single.end(True, "nothing"), ends)

    def drain(self, jobs: int, batch: int) -> float:
        start = time.perf_counter()
        for _ in range(0, jobs, batch):
            self.consume(self.claim(batch))
        return time.perf_counter() - start


def drain(board: Any, jobs: int, batch: int) -> float:
    start = time.perf_counter()
    for _ in range(0, jobs, batch):
        if batch == 1:
            job = board.claim_next("me")
            board.consume(job, "me")
        else:
            board.consume_many(board.claim_many("me", batch), "me")
    return time.perf_counter() - start


def against_raw(database: str, uri: str) -> None:
    with (
        jobboard.backend("ours", {"board": uri, "table": "ours"}) as ours,
        jobboard.backend("raw", {"board": uri, "table": "raw"}) as theirs,
    ):
        fill(theirs, 1)
        raw = Raw(theirs)
        for batch, jobs, rounds in ((1, 200, 15), (100, 5000, 9)):
            raw.ready(batch)
            ratios, ours_rates, raw_rates = [], [], []
            for number in range(rounds + 1):
                fill(ours, jobs)
                fill(theirs, jobs)
                # Who goes first changes, so that neither always meets the other's dirty pages.
                if number % 2:
                    mine, bare = drain(ours, jobs, batch), raw.drain(jobs, batch)
                else:
                    bare, mine = raw.drain(jobs, batch), drain(ours, jobs, batch)
                if number:
                    ratios.append(bare / mine)
                    ours_rates.append(jobs / mine)
                    raw_rates.append(jobs / bare)
            print(
                f"{database}, claim + consume, batches of {batch}: {statistics.median(ratios):.2f} of raw "
                f"(from {min(ratios):.2f} to {max(ratios):.2f}; {statistics.median(ours_rates):.0f} against "
                f"{statistics.median(raw_rates):.0f} jobs/s)"
            )


def populate(board: Any, jobs: int) -> None:
    third = jobs // 3
    fill(board, third)
    for start in range(0, third, 1000):
        board.claim_many("elsewhere", min(1000, third - start), expiry=86400)
    fill(board, third)
    fill(board, third, delay=86400)


def growth(database: str, uri: str) -> None:
    with (
        jobboard.backend("small", {"board": uri, "table": "small"}) as small,
        jobboard.backend("large", {"board": uri, "table": "large"}) as large,
    ):
        populate(small, 200)
        populate(large, 200_000)
        vacuum(large)
        spent: dict[str, list[float]] = {"small": [], "large": []}
        for number in range(600):
            for board in (small, large) if number % 2 else (large, small):
                start = time.perf_counter()
                job = board.claim_next("me")
                taken = time.perf_counter() - start
                assert job is not None
                board.abandon(job, "me")
                if number >= 100:
                    spent[board.name].append(taken)
        medians = {name: statistics.median(times) for name, times in spent.items()}
        print(
            f"{database}, claim one of 200,000 against one of 200: {medians['large'] / medians['small']:.2f} times "
            f"({medians['large'] * 1e6:.0f} against {medians['small'] * 1e6:.0f} µs)"
        )


def vacuum(board: Any) -> None:
    """What a server does by itself soon after a bulk load."""
    links = board.engine.store.links
    if links.engine.dialect.name == "postgresql":
        with links.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM ANALYZE")
            connection.exec_driver_sql("CHECKPOINT")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("raw", "growth", "all"), default="all")
    parser.add_argument("--only", action="append", choices=DATABASES)
    given = parser.parse_args()
    for database in given.only or DATABASES:
        with uri_of(database) as uri:
            if given.what in ("raw", "all"):
                against_raw(database, uri)
            if given.what in ("growth", "all"):
                growth(database, uri)
    return 0


if __name__ == "__main__":
    sys.exit(main())
