"""Queues in databases: pgqueuer and procrastinate, litequeue and persist-queue, a loop by hand and doloop."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, ClassVar

from contender import BATCH, DETAILS, NAME, WHO, handle
from ideals import connect_mariadb
from peer import Asynchronous, Peer


class PgQueuer(Asynchronous):
    library = distribution = "pgqueuer"
    keeps = "back after 30 s without a heartbeat"
    settings = (10, 100, 1000)

    async def open(self, uri: str) -> None:
        import asyncpg
        from pgqueuer.db import AsyncpgDriver
        from pgqueuer.queries import Queries

        logging.getLogger("pgqueuer").setLevel(logging.ERROR)
        self.uri = uri
        self.connection = await asyncpg.connect(uri)
        self.queries = Queries(AsyncpgDriver(self.connection))
        if await self.connection.fetchval("SELECT to_regclass('pgqueuer') IS NULL"):
            await self.queries.install()

    async def shut(self) -> None:
        await self.connection.close()

    def post(self, jobs: int) -> None:
        async def post() -> None:
            for _ in range(jobs):
                await self.queries.enqueue(NAME, json.dumps(DETAILS).encode())

        self.run(post())

    def post_many(self, jobs: int) -> None:
        async def post() -> None:
            for _ in range(0, jobs, BATCH):
                payloads = [json.dumps(DETAILS).encode() for _ in range(BATCH)]
                await self.queries.enqueue([NAME] * BATCH, payloads, [0] * BATCH)

        self.run(post())

    def finish(self, jobs: int) -> None:
        self.run(self.take(jobs, 1))

    def finish_many(self, jobs: int) -> None:
        self.run(self.take(jobs, BATCH))

    async def take(self, jobs: int, batch: int) -> None:
        import uuid

        from pgqueuer.ports.repository import EntrypointExecutionParameter

        wanted, manager = {NAME: EntrypointExecutionParameter(0)}, uuid.uuid4()
        for _ in range(0, jobs, batch):
            taken = await self.queries.dequeue(batch, wanted, manager, None, timedelta(seconds=30))
            assert len(taken) == batch
            for job in taken:
                handle(json.loads(job.payload))
            await self.queries.log_jobs([(job, "successful", None) for job in taken])

    def conduct(self, jobs: int, setting: int) -> None:
        async def work() -> None:
            import asyncpg
            from pgqueuer import PgQueuer as Library
            from pgqueuer.db import AsyncpgDriver
            from pgqueuer.types import QueueExecutionMode

            connection = await asyncpg.connect(self.uri)
            library, seen = Library(AsyncpgDriver(connection)), 0

            @library.entrypoint(NAME)
            async def resize(job: Any) -> None:
                nonlocal seen
                handle(json.loads(job.payload))
                seen += 1

            await library.qm.run(batch_size=setting, mode=QueueExecutionMode.drain)
            await connection.close()
            assert seen == jobs, seen

        self.run(work())


class Procrastinate(Asynchronous):
    library = distribution = "procrastinate"
    keeps = "held until somebody asks for stalled ones"
    settings = (1, 10, 100)
    slow = True

    async def open(self, uri: str) -> None:
        import procrastinate

        logging.getLogger("procrastinate").setLevel(logging.ERROR)
        self.app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=uri))

        @self.app.task(name=NAME)
        async def resize(**details: Any) -> None:
            handle(details)

        self.resize = resize
        await self.app.open_async()
        there = "SELECT to_regclass('procrastinate_jobs') IS NOT NULL AS there"
        if not (await self.app.connector.execute_query_one_async(there))["there"]:
            await self.app.schema_manager.apply_schema_async()

    async def shut(self) -> None:
        await self.app.close_async()

    def post(self, jobs: int) -> None:
        async def post() -> None:
            for _ in range(jobs):
                await self.resize.defer_async(**DETAILS)

        self.run(post())

    def post_many(self, jobs: int) -> None:
        async def post() -> None:
            for _ in range(0, jobs, BATCH):
                await self.resize.batch_defer_async(*[DETAILS] * BATCH)

        self.run(post())

    def finish(self, jobs: int) -> None:
        from procrastinate.jobs import Status

        async def finish() -> None:
            # Workers forget one that has had no heartbeat for a while.
            worker = await self.app.job_manager.register_worker()
            for _ in range(jobs):
                job = await self.app.job_manager.fetch_job(None, worker)
                handle(job.task_kwargs)
                await self.app.job_manager.finish_job(job, Status.SUCCEEDED, delete_job=True)

        self.run(finish())

    def conduct(self, jobs: int, setting: int) -> None:
        self.run(
            self.app.run_worker_async(
                wait=False, concurrency=setting, delete_jobs="always", install_signal_handlers=False
            )
        )


class Litequeue(Peer):
    library = distribution = "litequeue"
    keeps = "held until somebody asks for locked ones"

    def __init__(self, uri: str) -> None:
        from litequeue import LiteQueue

        self.queue = LiteQueue(f"{uri.removeprefix('sqlite:///')}-litequeue")
        # As durable as the others; by itself it may lose the latest jobs at power loss.
        self.queue.conn.execute("PRAGMA synchronous = FULL")

    def close(self) -> None:
        self.queue.close()

    def post(self, jobs: int) -> None:
        for _ in range(jobs):
            self.queue.put(json.dumps(DETAILS))

    def finish(self, jobs: int) -> None:
        for _ in range(jobs):
            message = self.queue.pop()
            handle(json.loads(message.data))
            self.queue.done(message.message_id)
        # It keeps what is done until it is told not to, and slows down meanwhile.
        self.queue.prune()


class PersistQueue(Peer):
    library = distribution = "persist-queue"
    keeps = "back when the queue is opened anew; it is for one process alone"

    def __init__(self, uri: str) -> None:
        from persistqueue import SQLiteAckQueue

        self.queue = SQLiteAckQueue(f"{uri.removeprefix('sqlite:///')}-persistqueue", auto_commit=True)

    def close(self) -> None:
        self.queue.close()

    def post(self, jobs: int) -> None:
        for _ in range(jobs):
            self.queue.put(DETAILS)

    def finish(self, jobs: int) -> None:
        for _ in range(jobs):
            item = self.queue.get(raw=True)
            handle(item["data"])
            self.queue.ack(id=item["pqid"])
        self.queue.clear_acked_data(max_delete=jobs, keep_latest=0)


class HandWritten(Peer):
    """The loop of ``docs/coming-from/mysql-queue.rst``, with details: candidates, SELECT … FOR UPDATE SKIP LOCKED,
    UPDATE, COMMIT, DELETE."""

    library = "loop by hand"
    distribution = ""
    keeps = "held for ever"

    def __init__(self, uri: str) -> None:
        self.connection = connect_mariadb(uri, autocommit=True)
        self.cursor = self.connection.cursor()
        self.cursor.execute(
            "CREATE TABLE IF NOT EXISTS by_hand (id BIGINT PRIMARY KEY AUTO_INCREMENT, kind VARCHAR(20) NOT NULL, "
            "details TEXT NOT NULL, owner VARCHAR(255))"
        )

    def close(self) -> None:
        self.connection.close()

    def rows(self, jobs: int) -> list[tuple[str, str]]:
        return [(NAME, json.dumps(DETAILS)) for _ in range(jobs)]

    def post(self, jobs: int) -> None:
        for _ in range(jobs):
            self.cursor.execute("INSERT INTO by_hand (kind, details) VALUES (%s, %s)", self.rows(1)[0])

    def post_many(self, jobs: int) -> None:
        for _ in range(0, jobs, BATCH):
            self.cursor.executemany("INSERT INTO by_hand (kind, details) VALUES (%s, %s)", self.rows(BATCH))

    def finish(self, jobs: int) -> None:
        self.loop(jobs, 1)

    def finish_many(self, jobs: int) -> None:
        self.loop(jobs, BATCH)

    def loop(self, jobs: int, batch: int) -> None:
        execute = self.cursor.execute
        for _ in range(0, jobs, batch):
            execute("SELECT id FROM by_hand WHERE owner IS NULL AND kind IN (%s) LIMIT %s", (NAME, batch))
            candidates = [row[0] for row in self.cursor.fetchall()]
            self.connection.begin()
            execute(
                "SELECT id, details FROM by_hand WHERE id IN %s AND owner IS NULL FOR UPDATE SKIP LOCKED", (candidates,)
            )
            taken = self.cursor.fetchall()
            assert len(taken) == batch
            ids = [row[0] for row in taken]
            execute("UPDATE by_hand SET owner = %s WHERE id IN %s", (WHO, ids))
            self.connection.commit()
            for _, details in taken:
                handle(json.loads(details))
            execute("DELETE FROM by_hand WHERE id IN %s", (ids,))


class Doloop(Peer):
    library = distribution = "doloop"
    keeps = "back after an hour; it is an id without details, which comes again and again"

    _ids: ClassVar[Iterator[int]] = itertools.count(1)

    def __init__(self, uri: str) -> None:
        import doloop

        self.connection = connect_mariadb(uri, autocommit=False)
        with self.connection.cursor() as cursor:
            cursor.execute("SHOW TABLES LIKE 'bench_loop'")
            if not cursor.fetchall():
                doloop.create(self.connection, "bench_loop", "bigint")
        self.loop = doloop.DoLoop(self.connection, "bench_loop")

    def close(self) -> None:
        self.connection.close()

    def post(self, jobs: int) -> None:
        for _ in range(jobs):
            self.loop.add(next(self._ids))

    def post_many(self, jobs: int) -> None:
        for _ in range(0, jobs, BATCH):
            self.loop.add(list(itertools.islice(self._ids, BATCH)))

    def finish(self, jobs: int) -> None:
        for _ in range(jobs):
            self.loop.did(self.loop.get(1))

    def finish_many(self, jobs: int) -> None:
        for _ in range(0, jobs, BATCH):
            self.loop.did(self.loop.get(BATCH))
