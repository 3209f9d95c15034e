"""Queues on Redis: huey, RQ and BullMQ."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

from contender import BATCH, DETAILS, NAME, WHO, handle
from peer import Asynchronous, Peer


class Huey(Peer):
    library = distribution = "huey"
    keeps = "lost"
    settings = (1, 8, 100)

    def __init__(self, uri: str) -> None:
        from huey import RedisHuey

        logging.getLogger("huey").setLevel(logging.ERROR)
        self.huey = RedisHuey("bench", url=uri, results=False)
        self.left, self.lock, self.done = 0, threading.Lock(), threading.Event()

        @self.huey.task()
        def resize(details: dict[str, Any]) -> None:
            handle(details)
            with self.lock:
                self.left -= 1
                if not self.left:
                    self.done.set()

        self.resize = resize

    def close(self) -> None:
        self.huey.storage.conn.close()

    def post(self, jobs: int) -> None:
        for _ in range(jobs):
            self.resize(DETAILS)

    def finish(self, jobs: int) -> None:
        for _ in range(jobs):
            self.huey.execute(self.huey.dequeue())

    def conduct(self, jobs: int, setting: int) -> None:
        self.left = jobs
        self.done.clear()
        consumer = self.huey.create_consumer(workers=setting, periodic=False, check_worker_health=False)
        consumer.start()
        self.done.wait()
        consumer.stop(graceful=True)


class RQ(Peer):
    library = "RQ"
    distribution = "rq"
    keeps = "among the failed ones some minutes later"
    settings = (1,)
    slow = True

    def __init__(self, uri: str) -> None:
        import redis
        from rq import Queue

        self.connection = redis.Redis.from_url(uri)
        self.queue = Queue("bench", connection=self.connection)

    def close(self) -> None:
        self.connection.close()

    def post(self, jobs: int) -> None:
        for _ in range(jobs):
            self.queue.enqueue("contender.handle", DETAILS, result_ttl=0)

    def post_many(self, jobs: int) -> None:
        for _ in range(0, jobs, BATCH):
            self.queue.enqueue_many(
                [self.queue.prepare_data("contender.handle", (DETAILS,), result_ttl=0) for _ in range(BATCH)]
            )

    def finish(self, jobs: int) -> None:
        self.conduct(jobs, 1)

    def conduct(self, jobs: int, setting: int) -> None:
        from rq import SimpleWorker

        left = self.queue.count - jobs
        SimpleWorker([self.queue], connection=self.connection).work(burst=True, logging_level="ERROR", max_jobs=jobs)
        assert self.queue.count == left


class BullMQ(Asynchronous):
    library = "BullMQ"
    distribution = "bullmq"
    keeps = "back after 30 s"
    settings = (1, 8, 100)

    async def open(self, uri: str) -> None:
        from bullmq import Queue, Worker

        self.options = {"connection": uri}
        self.queue = Queue("bench", self.options)
        # One that takes jobs by hand, and does not run.
        self.worker = Worker("bench", None, {**self.options, "autorun": False})

    async def shut(self) -> None:
        await self.worker.close(force=True)
        await self.queue.close()

    def post(self, jobs: int) -> None:
        async def post() -> None:
            for _ in range(jobs):
                await self.queue.add(NAME, DETAILS, {"removeOnComplete": True})

        self.run(post())

    def post_many(self, jobs: int) -> None:
        async def post() -> None:
            for _ in range(0, jobs, BATCH):
                one = {"name": NAME, "data": DETAILS, "opts": {"removeOnComplete": True}}
                await self.queue.addBulk([dict(one) for _ in range(BATCH)])

        self.run(post())

    def finish(self, jobs: int) -> None:
        async def finish() -> None:
            # To finish one fetches the next, and that is what the worker does at its best.
            job = await self.worker.getNextJob(WHO)
            for left in range(jobs - 1, -1, -1):
                handle(job.data)
                following = await job.moveToCompleted(None, WHO, fetchNext=left > 0)
                if left:
                    job = await self.worker.nextJobFromJobData(*following, WHO)

        self.run(finish())

    def conduct(self, jobs: int, setting: int) -> None:
        async def work() -> None:
            from bullmq import Worker

            left, done = jobs, asyncio.Event()

            async def process(job: Any, token: str) -> None:
                handle(job.data)

            def completed(*args: Any) -> None:
                nonlocal left
                left -= 1
                if not left:
                    done.set()

            options = {**self.options, "autorun": False, "concurrency": setting, "removeOnComplete": True}
            worker = Worker("bench", process, options)
            worker.on("completed", completed)
            running = asyncio.ensure_future(worker.run())
            await done.wait()
            await worker.close()
            await running

        self.run(work())
