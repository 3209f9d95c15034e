"""Workers whose handlers are coroutines: each library as its documentation has it, without results, logs or pauses.

``fill(jobs, file)`` posts jobs that do nothing; with a ``file``, ones that take 10 ms and then write their number into
it. ``drain(jobs)`` works so many off in this process, ``work()`` goes on until it is killed, with the shortest times
that the library allows after which it gives the job of a dead worker to another.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

DETAILS = {"path": "/srv/images/" + "x" * 165, "width": 640}
LEASE = 3
"""Seconds after which a dead worker's job may be another's, where a library lets one choose."""
AT_ONCE = 100


def details_of(jobs: int, file: str | None) -> Iterator[dict[str, Any]]:
    for number in range(jobs):
        yield DETAILS if file is None else {"file": file, "number": number}


async def handle(details: dict[str, Any]) -> None:
    if (file := details.get("file")) is not None:
        await asyncio.sleep(0.01)
        with Path(file).open("ab", buffering=0) as done:
            done.write(b"%d\n" % details["number"])


class Coroutines:
    """Runs on one loop for its life."""

    def __init__(self, uri: str, setting: int) -> None:
        self.uri, self.setting = uri, setting
        self.runner = asyncio.Runner()
        self.left = 0
        self.done = asyncio.Event()

    def run(self, what: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(what)

    def ended(self) -> None:
        """One job more."""
        self.left -= 1
        if self.left <= 0:
            self.done.set()

    def fill(self, jobs: int, file: str | None = None) -> None:
        self.run(self.post(jobs, file))

    async def post(self, jobs: int, file: str | None) -> None:
        given = list(details_of(jobs, file))
        for start in range(0, jobs, AT_ONCE):
            await asyncio.gather(*map(self.enqueue, given[start : start + AT_ONCE]))

    async def enqueue(self, details: dict[str, Any]) -> None:
        raise NotImplementedError

    def drain(self, jobs: int) -> float | None:
        self.left = jobs
        self.done.clear()
        return self.run(self.work_off(jobs))

    async def work_off(self, jobs: int) -> float | None:
        """How many seconds it took, if less than all of this."""
        raise NotImplementedError

    def work(self) -> None:
        self.run(self.go_on())

    async def go_on(self) -> None:
        raise NotImplementedError


class JobboardCoroutines(Coroutines):
    def __init__(self, uri: str, setting: int) -> None:
        from jobboard import aio

        super().__init__(uri, setting)
        self.board = aio.fetch("bench", uri)
        self.run(self.board.connect())

    async def post(self, jobs: int, file: str | None) -> None:
        await self.board.post_many({"name": "resize", "details": each} for each in details_of(jobs, file))

    def conductor(self) -> Any:
        from jobboard import aio

        async def resize(job: Any) -> None:
            await handle(job.details)

        return aio.AsyncConductor("bench", self.board, {"resize": resize}, max_simultaneous_jobs=self.setting)

    async def work_off(self, jobs: int) -> None:
        conductor = self.conductor()
        await conductor.run(jobs)
        assert conductor.tally.consumed == jobs, conductor.tally

    async def go_on(self) -> None:
        from jobboard import aio

        self.board = aio.fetch("bench", {"board": self.uri, "claim_ttl": LEASE})
        await self.conductor().run()


class Arq(Coroutines):
    def __init__(self, uri: str, setting: int) -> None:
        from arq import create_pool
        from arq.connections import RedisSettings

        super().__init__(uri, setting)
        self.pool = self.run(create_pool(RedisSettings.from_dsn(uri)))

    async def enqueue(self, details: dict[str, Any]) -> None:
        await self.pool.enqueue_job("resize", details)

    def worker(self, **options: Any) -> Any:
        from arq.worker import Worker, func

        async def resize(context: Any, details: dict[str, Any]) -> None:
            await handle(details)

        work = func(resize, name="resize", keep_result=0)
        options = {"poll_delay": 0.01, "handle_signals": False, "log_results": False, **options}
        return Worker([work], redis_pool=self.pool, max_jobs=self.setting, **options)

    async def work_off(self, jobs: int) -> None:
        worker = self.worker(burst=True)
        await worker.main()
        assert worker.jobs_complete == jobs, worker.jobs_complete

    async def go_on(self) -> None:
        # It adds 10 s to that by itself.
        await self.worker(job_timeout=LEASE).main()


class SAQ(Coroutines):
    def __init__(self, uri: str, setting: int) -> None:
        from saq import Queue

        super().__init__(uri, setting)
        self.queue = Queue.from_url(uri)

    async def enqueue(self, details: dict[str, Any]) -> None:
        # With the one try that is its default, a dead worker's job is given up. Its timeout is what it is swept by.
        options = {"retries": 3, "timeout": LEASE} if "file" in details else {}
        await self.queue.enqueue("resize", details=details, ttl=-1, **options)

    def worker(self, **options: Any) -> Any:
        from saq import Worker

        async def resize(context: Any, *, details: dict[str, Any]) -> None:
            await handle(details)

        async def ended(context: Any) -> None:
            self.ended()

        return Worker(self.queue, [("resize", resize)], concurrency=self.setting, after_process=ended, **options)

    async def work_off(self, jobs: int) -> float:
        began = time.perf_counter()
        worker = self.worker()
        running = asyncio.create_task(worker.start())
        await self.done.wait()
        seconds = time.perf_counter() - began
        await worker.stop()
        await running
        return seconds

    async def go_on(self) -> None:
        await self.worker(timers={"sweep": 1}).start()


class Taskiq(Coroutines):
    """On a stream: its lists and channels give nothing back."""

    def __init__(self, uri: str, setting: int) -> None:
        from taskiq.receiver import Receiver
        from taskiq_redis import RedisStreamBroker

        super().__init__(uri, setting)
        self.broker = RedisStreamBroker(uri, consumer_id="0")

        @self.broker.task(task_name="resize")
        async def resize(details: dict[str, Any]) -> None:
            await handle(details)

        self.resize = resize
        acknowledge = self.broker._ack_generator

        def counting(**message: Any) -> Any:
            ack = acknowledge(**message)

            async def told() -> None:
                await ack()
                self.ended()

            return told

        self.broker._ack_generator = counting
        self.run(self.broker.startup())
        self.receiver = lambda: Receiver(self.broker, max_async_tasks=self.setting, run_startup=False)

    async def enqueue(self, details: dict[str, Any]) -> None:
        await self.resize.kiq(details)

    async def work_off(self, jobs: int) -> float:
        began = time.perf_counter()
        over = asyncio.Event()
        running = asyncio.create_task(self.receiver().listen(over))
        await self.done.wait()
        seconds = time.perf_counter() - began
        over.set()
        await running
        return seconds

    async def go_on(self) -> None:
        # Ten minutes unless said; and what is at work for longer is given to others, too.
        self.broker.idle_timeout = LEASE * 1000
        await self.receiver().listen(asyncio.Event())


class PgQueuer(Coroutines):
    def __init__(self, uri: str, setting: int) -> None:
        super().__init__(uri, setting)
        self.run(self.install())

    async def install(self) -> None:
        import asyncpg
        from pgqueuer.db import AsyncpgDriver
        from pgqueuer.queries import Queries

        self.connection = await asyncpg.connect(self.uri)
        self.queries = Queries(AsyncpgDriver(self.connection))
        if await self.connection.fetchval("SELECT to_regclass('pgqueuer') IS NULL"):
            await self.queries.install()

    async def post(self, jobs: int, file: str | None) -> None:
        import json

        payloads = [json.dumps(each).encode() for each in details_of(jobs, file)]
        await self.queries.enqueue(["resize"] * jobs, payloads, [0] * jobs)

    async def work_off(self, jobs: int) -> None:
        from pgqueuer.types import QueueExecutionMode

        await self.library().qm.run(batch_size=self.setting, mode=QueueExecutionMode.drain)
        assert not self.left, self.left

    def library(self) -> Any:
        import json

        from pgqueuer import PgQueuer as Library
        from pgqueuer.db import AsyncpgDriver

        library = Library(AsyncpgDriver(self.connection))

        @library.entrypoint("resize")
        async def resize(job: Any) -> None:
            await handle(json.loads(job.payload))
            self.left -= 1

        return library

    async def go_on(self) -> None:
        import datetime

        lease = datetime.timedelta(seconds=LEASE)
        await self.library().qm.run(batch_size=10, heartbeat_timeout=lease)


class Procrastinate(Coroutines):
    def __init__(self, uri: str, setting: int) -> None:
        import procrastinate

        super().__init__(uri, setting)
        self.app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=uri))

        @self.app.task(name="resize")
        async def resize(**details: Any) -> None:
            await handle(details)

        self.resize = resize
        self.run(self.install())

    async def install(self) -> None:
        await self.app.open_async()
        found = await self.app.connector.execute_query_one_async(
            "SELECT to_regclass('procrastinate_jobs') IS NOT NULL AS there"
        )
        if not found["there"]:
            await self.app.schema_manager.apply_schema_async()

    async def post(self, jobs: int, file: str | None) -> None:
        await self.resize.batch_defer_async(*details_of(jobs, file))

    async def work_off(self, jobs: int) -> None:
        await self.app.run_worker_async(
            wait=False, concurrency=self.setting, delete_jobs="always", install_signal_handlers=False
        )

    async def go_on(self) -> None:
        # It gives nothing back by itself: a periodic task of one's own asks for stalled jobs.
        await self.app.run_worker_async(concurrency=self.setting, install_signal_handlers=False)
