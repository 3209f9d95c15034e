"""What a page of each search costs on a board with a million jobs, with the plans of its statements.

    PYTHONPATH=. python benchmarks/finding.py  # SQLite and PostgreSQL
    PYTHONPATH=. python benchmarks/finding.py --backend mariadb --jobs 100000 --folder /dev/shm
    PYTHONPATH=. python benchmarks/finding.py --plans

Of the jobs, a tenth each is in the trash, delayed and claimed. The trash has the highest priority, so that it would lie
ahead of all live jobs. They have 40 names and ten groups, and one job in 100,000 has the rare group. Then come
100,000 outcomes. A figure is the median and the 95th percentile of the milliseconds of ``--rounds`` calls, and the jobs
that the call has looked at. Writes are not durable here, as nothing but reads is measured.
"""

from __future__ import annotations

import argparse
import datetime
import re
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# The servers are those of the other benchmarks.
sys.path.insert(0, str(Path(__file__).parent / "ideal"))

import sqlalchemy as sa
from scene import on

import jobboard
from jobboard.units import SECOND

BACKENDS = ("sqlite", "postgresql", "mariadb")
BATCH = 2000
OUTCOMES = 100_000
HOUR = datetime.timedelta(hours=1)

PREPARE = {"sqlite": "ANALYZE", "postgresql": "VACUUM ANALYZE", "mariadb": "ANALYZE TABLE found"}
EXPLAIN = {
    "sqlite": "EXPLAIN QUERY PLAN ",
    "postgresql": "EXPLAIN (ANALYZE, BUFFERS, COSTS OFF) ",
    "mariadb": "EXPLAIN ",
}

ERRORS = '[{"on": 1, "who": "w7", "attempt": 1, "text": "ValueError: no file", "kind": null}]'

CHANGES = (
    """UPDATE found SET state = 'TRASHED', gone_on = :now - id, modified_on = :now - id, live_key = NULL, who = 'w8',
    errors = :errors WHERE id % 10 = 2""",
    """UPDATE found SET state = 'CLAIMED', attempts = 1, token = 1, who = CASE WHEN id % 20 = 4 THEN 'w7' ELSE 'w8' END,
    lock_until = :later, wake_at = :later WHERE state = 'UNCLAIMED' AND id % 10 = 4""",
    """INSERT INTO found_outcomes (uuid, board, {kept}, begun, until)
    SELECT uuid, board, {kept}, modified_on, :later FROM found WHERE id <= :most""",
    "UPDATE found_outcomes SET modified_on = :now - id * :step",
)
"""The changes of the posted jobs to their states."""


def searches(board: Any) -> dict[str, Callable[[], Any]]:
    """Return the measured calls, by their names."""
    page = board.find_page
    then = datetime.datetime.now(datetime.UTC) - HOUR
    after = page(50).after
    return {
        "any": page,
        "any, second page": lambda: page(after=after),
        "UNCLAIMED": lambda: page(states=["UNCLAIMED"]),
        "SCHEDULED": lambda: page(states=["SCHEDULED"]),
        "CLAIMED": lambda: page(states=["CLAIMED"]),
        "TRASHED": lambda: page(states=["TRASHED"]),
        "COMPLETE": lambda: page(states=["COMPLETE"]),
        "one name": lambda: page(names=["n3"]),
        "a common group": lambda: page(group="g7"),
        "a rare group": lambda: page(group="rare"),
        "no such group": lambda: page(group="none"),
        "a group in the trash": lambda: page(group="g7", states=["TRASHED"]),
        "owner": lambda: page(owner="w7"),
        "owner in the trash": lambda: page(owner="w7", states=["TRASHED"]),
        "key": lambda: page(key="k1000"),
        "no such key": lambda: page(key="none"),
        "error": lambda: page(error="no file", states=["TRASHED"]),
        "no such error": lambda: page(error="none", states=["TRASHED"]),
        "cause": lambda: page(cause="none", states=["TRASHED"]),
        "posted_after": lambda: page(posted_after=then),
        "posted_before": lambda: page(posted_before=then),
        "where": lambda: page(where=board.table.c.attempts > 5),
        "error_groups": board.error_groups,
        "names": board.names,
        "names, at most 20,000": lambda: board.names(at_most=20_000),
        "finished": board.finished,
        "finished, at most 200,000": lambda: board.finished(at_most=200_000),
        "stats, cap 10,000": lambda: board.stats(cap=10_000),
    }


def fill(board: Any, jobs: int) -> None:
    """Fill a board: posts by its own calls, and states by SQL."""
    for start in range(0, jobs, BATCH):
        board.post_many(
            [
                {
                    "name": f"n{i % 40}",
                    "group": "rare" if i % 100_000 == 7 else f"g{i // 10 % 10}",
                    "priority": 9 if i % 10 == 1 else (-5, 0, 0, 5, 7)[i // 10 % 5],
                    "key": f"k{i}" if i % 1000 == 0 else None,
                    "delay": 36_000 + i % 3600 if i % 10 == 2 else None,
                    "details": {"path": f"/srv/images/{i:08}.jpg", "width": 640},
                }
                for i in range(start, start + BATCH)
            ]
        )
    now = time.time_ns() // 1000
    given = {"now": now, "later": now + 36_000 * SECOND, "step": SECOND // 25, "most": OUTCOMES, "errors": ERRORS}
    with board.engine.store.links.engine.begin() as connection:
        for text in CHANGES:
            connection.execute(sa.text(text.format(kept=kept(board))), given)
    with board.engine.store.links.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(PREPARE[board.engine.store.links.engine.dialect.name])


def kept(board: Any) -> str:
    names = [column.name for column in board.engine.store.tables.outcomes.c]
    quote = board.engine.store.links.engine.dialect.identifier_preparer.quote
    return ", ".join(
        quote(name) for name in names if name not in ("uuid", "board", "begun", "until", "result", "refused")
    )


def show_plans(board: Any, call: Callable[[], Any]) -> None:
    """Print the plans of the statements of a call."""
    store = board.engine.store
    link = store.links.run(lambda link: link)
    execute, seen = link.cursor.execute, []

    class Cursor:
        def __getattr__(self, name: str) -> Any:
            return getattr(cursor, name)

        def execute(self, text: str, *params: Any) -> Any:
            seen.append((text, params))
            return execute(text, *params)

    cursor, link.cursor = link.cursor, Cursor()
    call()
    link.cursor = cursor
    for text, params in seen:
        if "found" in text:
            execute(EXPLAIN[link.dialect.name] + text, *params)
            for row in cursor.fetchall():
                print("   ", re.sub(r"\s+$", "", str(row[-1] if len(row) < 5 else row)))


def measure(backend: str, args: argparse.Namespace) -> None:
    with on(backend, args.folder, volatile=True) as scene:
        conf = {"board": scene.uri, "table": "found", "keep_done": 86_400}
        with jobboard.backend("found", conf) as board:
            begun = time.perf_counter()
            fill(board, args.jobs)
            print(f"{scene.version()}, {args.jobs:,} jobs, filled in {time.perf_counter() - begun:.0f} s")
            print(f"{'search':28}{'median':>9}{'p95':>9}{'jobs':>7}{'looked':>9}  complete")
            for name, call in searches(board).items():
                took = []
                for _ in range(args.rounds):
                    begun = time.perf_counter()
                    found = call()
                    took.append(1000 * (time.perf_counter() - begun))
                p95 = sorted(took)[-max(1, len(took) // 20)]
                told = ""
                if hasattr(found, "complete"):
                    told = f"{len(found.jobs):7}{found.looked:9}  {found.complete}"
                print(f"{name:28}{statistics.median(took):9.2f}{p95:9.2f}{told}", flush=True)
                if args.plans:
                    show_plans(board, call)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", action="append", choices=BACKENDS)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="where the servers keep their data")
    parser.add_argument("--plans", action="store_true", help="show the plans, too")
    args = parser.parse_args()
    for backend in args.backend or BACKENDS[:2]:
        measure(backend, args)


if __name__ == "__main__":
    main()
