"""A thousand coroutines that wait, post, or await results: threads here, connections and requests as the server counts.

``pytest -rP tests/aio/test_thousands.py`` shows the figures; those in ``docs/howto/asyncio.rst`` are of ``--full``.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
from redis import Redis

import jobboard
from jobboard import Act
from jobboard.aio import AsyncJobBoard
from jobboard.testing import requests as store_requests
from tests.aio.conftest import Run, waiting
from tests.full import FULL
from tests.support.servers import KINDS

pytestmark = pytest.mark.backends("memory", "sqlite", "postgresql", "redis")

THREADS = 4

AROUND = 4
"""Threads of a board's own: its heartbeat, its listener, what its driver watches connections with; one for a line."""

LARGE = ("memory",)
"""Backends with a thousand in each run. On the others a post takes milliseconds, and 200 show the same."""


class Figures(NamedTuple):
    threads: int
    connections: int
    requests: int

    def since(self, before: Figures) -> Figures:
        return Figures(*(now - then for now, then in zip(self, before, strict=True)))

    def within(self, *most: int) -> bool:
        return all(figure <= bound for figure, bound in zip(self, most, strict=True))


class Scene(NamedTuple):
    """A board on a server that nobody else uses.

    :param count: returns the connections and requests of the server, without those of the meter itself.
    """

    board: jobboard.JobBoard
    count: Callable[[], tuple[int, int]]

    def now(self) -> Figures:
        return Figures(threading.active_count(), *self.count())


@contextlib.contextmanager
def memory(folder: Path) -> Iterator[tuple[str, Callable[[], tuple[int, int]]]]:
    yield "memory", lambda: (0, 0)


@contextlib.contextmanager
def sqlite(folder: Path) -> Iterator[tuple[str, Callable[[], tuple[int, int]]]]:
    """The connections are the descriptors that this process has open for the file. Nothing counts requests."""
    file = folder / "board.db"
    links = Path("/proc/self/fd")
    yield f"sqlite:///{file}", lambda: (sum(os.path.realpath(link) == str(file) for link in links.iterdir()), 0)


@contextlib.contextmanager
def redis(folder: Path) -> Iterator[tuple[str, Callable[[], tuple[int, int]]]]:
    """The commands of a script are not counted."""
    with KINDS["redis"]() as server, Redis.from_url(server.uri) as client:
        own = itertools.count(1)

        def count() -> tuple[int, int]:
            told: dict[str, int] = client.info()
            return told["connected_clients"] - 1, told["total_reads_processed"] - next(own)

        yield server.uri, count


@contextlib.contextmanager
def postgresql(folder: Path) -> Iterator[tuple[str, Callable[[], tuple[int, int]]]]:
    with KINDS["postgresql"]() as server, psycopg.connect(server.uri, autocommit=True) as meter:
        meter.execute("ALTER SYSTEM SET log_statement = 'all'")
        meter.execute("SELECT pg_reload_conf()")

        def count() -> tuple[int, int]:
            [[connections]] = meter.execute(
                "SELECT count(*) FROM pg_stat_activity "
                "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )
            lines = re.findall(r"LOG:  (?:execute|statement).*", (server.folder / "log").read_text())
            return connections, sum("pg_backend_pid" not in line for line in lines)

        yield server.uri, count


SERVERS = {"memory": memory, "sqlite": sqlite, "redis": redis, "postgresql": postgresql}


@pytest.fixture(scope="module")
def metered(backend: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Any]]:
    """The URI and the meter of a server that only this module uses."""
    with SERVERS[backend](tmp_path_factory.mktemp("metered")) as found:
        yield found


@pytest.fixture
def scene(metered: tuple[str, Any], tmp_path: Path) -> Iterator[Scene]:
    uri, count = metered
    # No heartbeat comes while requests are counted. Its thread would have a connection, too.
    with jobboard.backend(f"thousands{tmp_path.name}", {"board": uri, "keep_done": 60, "claim_ttl": 600}) as board:
        # Open the board's connections before they are counted.
        board.post("first")
        assert board.consume_many([board.claim_next("anna")], "anna") is None
        yield Scene(board, count)


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

        def counted(original: Any, uuids: list[str], *sides: Any) -> Any:
            looks.append(len(uuids))
            return original(uuids, *sides)

        with store_requests.requests(scene.board).around(store_requests.JOB_READS, counted):
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
