"""A thousand coroutines that wait, post, or await results: threads here, connections and requests as the server counts.

``pytest -rP tests/aio/test_thousands.py`` shows the figures; those in ``docs/howto/asyncio.rst`` are of ``--full``.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest

import jobboard
from jobboard import Act
from jobboard.aio import AsyncJobBoard
from jobboard.testing.conformance.support import replaced
from tests.aio.conftest import Run, waiting
from tests.full import FULL
from tests.support.servers import KINDS, PostgreSQL, Redis

pytestmark = pytest.mark.backends("memory", "sqlite", "postgresql", "redis")

THREADS = 4

AROUND = 4
"""Threads of a board's own: its heartbeat, its listener, what its driver watches connections with; one for a line."""

LARGE = ("memory",)
"""Backends with a thousand in each run. On the others a post takes milliseconds, and 200 show the same."""


class Meter(Protocol):
    """Counts of a server, without those of the meter itself."""

    def connections(self) -> int: ...
    def requests(self) -> int | None:
        """Return the number of requests so far; None where nothing counts them."""


class NoServer:
    """The connections to a file are the descriptors that this process has open for it."""

    def __init__(self, file: Path | None) -> None:
        self._file = file

    def connections(self) -> int:
        links = Path("/proc/self/fd").iterdir() if self._file else ()
        return sum(os.path.realpath(link) == str(self._file) for link in links)

    def requests(self) -> None: ...


class OfRedis:
    def __init__(self, server: Redis) -> None:
        import redis

        self._client = redis.Redis.from_url(server.uri)
        self._own = itertools.count(1)

    def connections(self) -> int:
        return self._told("connected_clients") - 1

    def requests(self) -> int:
        # The commands of a script are not counted here.
        return self._told("total_reads_processed") - self._asked

    def _told(self, what: str) -> int:
        self._asked = next(self._own)
        told: dict[str, int] = self._client.info()
        return told[what]


class OfPostgreSQL:
    def __init__(self, server: PostgreSQL) -> None:
        import psycopg

        self._log = server.folder / "log"
        self._connection = psycopg.connect(server.uri, autocommit=True)
        self._connection.execute("ALTER SYSTEM SET log_statement = 'all'")
        self._connection.execute("SELECT pg_reload_conf()")

    def connections(self) -> int:
        found = self._connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        ).fetchone()
        assert found is not None
        return int(found[0])

    def requests(self) -> int:
        lines = re.findall(r"LOG:  (?:execute|statement).*", self._log.read_text())
        return sum("pg_backend_pid" not in line for line in lines)


METERS: dict[str, Callable[[Any], Meter]] = {
    "postgresql": OfPostgreSQL,
    "redis": OfRedis,
}


class Figures(NamedTuple):
    threads: int
    connections: int
    requests: int | None

    def since(self, before: Figures) -> Figures:
        requests = None if self.requests is None or before.requests is None else self.requests - before.requests
        return Figures(self.threads - before.threads, self.connections - before.connections, requests)

    def within(self, threads: int, connections: int, requests: int) -> bool:
        return self.threads <= threads and self.connections <= connections and (self.requests or 0) <= requests


class Scene(NamedTuple):
    """A board on a server that nobody else uses, and the meter of the server."""

    board: jobboard.JobBoard
    meter: Meter

    def now(self) -> Figures:
        return Figures(threading.active_count(), self.meter.connections(), self.meter.requests())


@pytest.fixture(scope="module")
def metered(backend: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Meter]]:
    """The URI and the meter of a server that only this module uses."""
    if backend in METERS:
        with KINDS[backend]() as server:
            yield server.uri, METERS[backend](server)
    elif backend == "sqlite":
        file = tmp_path_factory.mktemp("metered") / "board.db"
        yield f"sqlite:///{file}", NoServer(file)
    else:
        yield "memory", NoServer(None)


@pytest.fixture
def scene(metered: tuple[str, Meter], tmp_path: Path) -> Iterator[Scene]:
    uri, meter = metered
    # No heartbeat comes while requests are counted. Its thread would have a connection, too.
    with jobboard.backend(f"thousands{tmp_path.name}", {"board": uri, "keep_done": 60, "claim_ttl": 600}) as board:
        # Open the board's connections before they are counted.
        board.post("first")
        assert board.consume_many([board.claim_next("anna")], "anna") is None
        yield Scene(board, meter)


@pytest.fixture
def many(backend: str) -> int:
    return 1000 if FULL or backend in LARGE else 200


def test_waits_and_posts_need_few_connections(scene: Scene, many: int, run: Run, backend: str) -> None:
    async def main() -> None:
        board = AsyncJobBoard(scene.board, threads=THREADS)
        start = scene.now()
        order: list[int] = []

        async def wait(number: int) -> jobboard.Job | None:
            job = await board.claim_next(f"worker {number % 2}", timeout=None)
            order.append(number)
            return job

        tasks = await waiting(board, *(wait(number) for number in range(many)))
        waits = scene.now().since(start)
        jobs = await asyncio.gather(*(board.post("resize") for _ in range(many)))
        got = await asyncio.gather(*tasks)
        posts = scene.now().since(start)
        assert set(got) == set(jobs)
        assert order == list(range(many))
        shown(backend, many, waiting=waits, posting=posts)
        assert waits.within(AROUND, 2, 20)
        # A post and a claim take no more than three statements together.
        assert posts.within(AROUND + THREADS, THREADS + 2, 4 * many)

    run(main())


@pytest.mark.parametrize("workers", [1, 2] if FULL else [2])
def test_waits_for_many_names_need_few_connections(scene: Scene, run: Run, backend: str, workers: int) -> None:
    async def main() -> None:
        board = AsyncJobBoard(scene.board, threads=THREADS)
        names = [f"resize {number}" for number in range(1000 if FULL or backend in LARGE else 200)]
        start = scene.now()
        tasks = await waiting(
            board,
            *(board.claim_next(f"worker {n % workers}", names=[name], timeout=None) for n, name in enumerate(names)),
        )
        waits = scene.now().since(start)
        jobs = await board.post_many({"name": name} for name in names)
        got = await asyncio.gather(*tasks)
        gets = scene.now().since(start)
        assert got == jobs
        assert [job.claim.who for job in got] == [f"worker {n % workers}" for n in range(len(names))]
        shown(backend, len(names), waiting_for_names=waits, getting=gets)
        assert waits.within(AROUND, 2, 40)
        assert gets.within(AROUND + 1, 3, 2 * len(names))

    run(main())


def test_awaited_results_need_few_connections(scene: Scene, many: int, run: Run, backend: str) -> None:
    async def main() -> None:
        board = AsyncJobBoard(scene.board, threads=THREADS)
        jobs = await board.post_many({"name": "resize"} for _ in range(many))
        start = scene.now()
        looks: list[int] = []

        def counted(original: Any, uuids: list[str]) -> Any:
            looks.append(len(uuids))
            return original(uuids)

        with replaced(scene.board, "read", counted):
            tasks = [asyncio.create_task(board.result(job)) for job in jobs]
            while sum(looks) < 2 * many:
                await asyncio.sleep(0.001)
        shown(backend, many, awaiting=(awaits := scene.now().since(start)))
        assert looks[: many // 100] == [100] * (many // 100)
        assert awaits.within(AROUND, 2, many // 2)
        for _ in range(0, many, 100):
            some = await board.claim_many("anna", 100)
            await board.finish_many([Act(job, "consume", result=job.uuid) for job in some], "anna")
        assert await asyncio.gather(*tasks) == [job.uuid for job in jobs]

    run(main())


def shown(backend: str, many: int, **figures: Figures) -> None:
    for what, (threads, connections, requests) in figures.items():
        print(f"{backend}: {many:,} {what}: {threads} threads, {connections} connections, {requests} requests more")
