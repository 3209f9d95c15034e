"""One worker process of one library: commands and answers are lines of JSON.

    ["fill", 5000]      post so many jobs that do nothing
    ["drain", 5000]     work them all off, in this process; answers how many seconds that took

The first line that it writes says that it is ready.
Which library, its URI and its settings are the arguments. Each runs as its documentation has it, without results, logs
or a pause between jobs, and ends when the last job has been run and what it needs to be finished has been written.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

DETAILS = {"path": "/srv/images/" + "x" * 165, "width": 640}


class Jobboard:
    def __init__(self, uri: str, jobs: int) -> None:
        import jobboard

        self._board = jobboard.fetch("bench", uri)
        self._board.connect()
        self._conductor = lambda: jobboard.Conductor(
            "bench", self._board, {"resize": lambda job: None}, max_simultaneous_jobs=jobs
        )

    def fill(self, jobs: int) -> None:
        self._board.post_many({"name": "resize", "details": DETAILS} for _ in range(jobs))

    def drain(self, jobs: int) -> None:
        conductor = self._conductor()
        conductor.run(jobs)
        assert conductor.tally.consumed == jobs, conductor.tally


class Huey:
    def __init__(self, uri: str, workers: int) -> None:
        from huey import RedisHuey

        self._huey = RedisHuey("bench", url=uri, results=False)
        self._workers = workers
        self._left = 0
        self._done = threading.Event()
        self._lock = threading.Lock()

        @self._huey.task()
        def resize(details: dict[str, Any]) -> None:
            with self._lock:
                self._left -= 1
                if not self._left:
                    self._done.set()

        self._resize = resize

    def fill(self, jobs: int) -> None:
        for _ in range(jobs):
            self._resize(DETAILS)

    def drain(self, jobs: int) -> None:
        self._left = jobs
        self._done.clear()
        consumer = self._huey.create_consumer(workers=self._workers, periodic=False, check_worker_health=False)
        consumer.start()
        self._done.wait()
        consumer.stop(graceful=True)


def resize(details: dict[str, Any]) -> None:
    """RQ finds it by its name."""


class RQ:
    def __init__(self, uri: str, workers: int) -> None:
        import redis
        from rq import Queue, SimpleWorker

        connection = redis.Redis.from_url(uri)
        self._queue = Queue("bench", connection=connection)
        self._worker = lambda: SimpleWorker([self._queue], connection=connection)

    def fill(self, jobs: int) -> None:
        # By its name: what is __main__ here is not for RQ.
        wanted = [self._queue.prepare_data("worker.resize", (DETAILS,), result_ttl=0) for _ in range(jobs)]
        self._queue.enqueue_many(wanted)

    def drain(self, jobs: int) -> None:
        self._worker().work(burst=True, logging_level="ERROR")
        assert not self._queue.count


class PgQueuer:
    def __init__(self, uri: str, batch: int) -> None:
        self._uri = uri
        self._batch = batch
        asyncio.run(self._install())

    async def _install(self) -> None:
        import asyncpg
        from pgqueuer.db import AsyncpgDriver
        from pgqueuer.queries import Queries

        connection = await asyncpg.connect(self._uri)
        queries = Queries(AsyncpgDriver(connection))
        if await connection.fetchval("SELECT to_regclass('pgqueuer') IS NULL"):
            await queries.install()
        await connection.close()

    def fill(self, jobs: int) -> None:
        async def post() -> None:
            import asyncpg
            from pgqueuer.db import AsyncpgDriver
            from pgqueuer.queries import Queries

            connection = await asyncpg.connect(self._uri)
            payload = json.dumps(DETAILS).encode()
            await Queries(AsyncpgDriver(connection)).enqueue(["resize"] * jobs, [payload] * jobs, [0] * jobs)
            await connection.close()

        asyncio.run(post())

    def drain(self, jobs: int) -> None:
        async def work() -> None:
            import asyncpg
            from pgqueuer import PgQueuer as Library
            from pgqueuer.db import AsyncpgDriver
            from pgqueuer.models import Job
            from pgqueuer.types import QueueExecutionMode

            connection = await asyncpg.connect(self._uri)
            library = Library(AsyncpgDriver(connection))
            seen = 0

            @library.entrypoint("resize")
            async def resize(job: Job) -> None:
                nonlocal seen
                seen += 1

            await library.qm.run(batch_size=self._batch, mode=QueueExecutionMode.drain)
            assert seen == jobs, seen

        asyncio.run(work())


class Procrastinate:
    def __init__(self, uri: str, concurrency: int) -> None:
        import procrastinate

        self._app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=uri))
        self._concurrency = concurrency

        @self._app.task(name="resize")
        async def resize(**details: Any) -> None:
            pass

        self._resize = resize
        asyncio.run(self._opened(self._install))

    async def _opened(self, what: Callable[[], Any]) -> None:
        async with self._app.open_async():
            await what()

    async def _install(self) -> None:
        found = await self._app.connector.execute_query_one_async(
            "SELECT to_regclass('procrastinate_jobs') IS NOT NULL AS there"
        )
        if not found["there"]:
            await self._app.schema_manager.apply_schema_async()

    def fill(self, jobs: int) -> None:
        asyncio.run(self._opened(lambda: self._resize.batch_defer_async(*[DETAILS] * jobs)))

    def drain(self, jobs: int) -> None:
        async def work() -> None:
            await self._app.run_worker_async(
                wait=False, concurrency=self._concurrency, delete_jobs="always", install_signal_handlers=False
            )

        asyncio.run(self._opened(work))


LIBRARIES: dict[str, Callable[[str, int], Any]] = {
    "jobboard": Jobboard,
    "huey": Huey,
    "rq": RQ,
    "pgqueuer": PgQueuer,
    "procrastinate": Procrastinate,
}


def main() -> None:
    library, uri, setting = sys.argv[1:]
    peer = LIBRARIES[library](uri, int(setting))
    answers, sys.stdout = sys.stdout, sys.stderr
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        what, jobs = json.loads(line)
        start = time.perf_counter()
        getattr(peer, what)(jobs)
        print(json.dumps(time.perf_counter() - start), file=answers, flush=True)


if __name__ == "__main__":
    main()
