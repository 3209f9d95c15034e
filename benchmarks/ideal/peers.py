"""Other libraries, used as their documentation shows, and at their best: in bulk where they can, without results.

A peer that is not installed is left out, and named. None gives a fencing token to a job.
"""

from __future__ import annotations

import json
from urllib.parse import urlsplit

from contender import BATCH, DETAILS, handle
from peer import Peer
from redis_peers import RQ, BullMQ, Huey
from sql_peers import Doloop, HandWritten, Litequeue, PersistQueue, PgQueuer, Procrastinate


class LockingQueue(Peer):
    library = "LockingQueue"
    distribution = "kazoo"
    keeps = "back at once"
    slow = True

    def __init__(self, uri: str) -> None:
        from kazoo.client import KazooClient
        from kazoo.recipe.queue import LockingQueue as Queue

        self.client = KazooClient(urlsplit(uri).netloc)
        self.client.start()
        self.queue = Queue(self.client, "/bench-queue")

    def close(self) -> None:
        self.client.stop()
        self.client.close()

    def post(self, jobs: int) -> None:
        for _ in range(jobs):
            self.queue.put(json.dumps(DETAILS).encode())

    def post_many(self, jobs: int) -> None:
        for _ in range(0, jobs, BATCH):
            self.queue.put_all([json.dumps(DETAILS).encode()] * BATCH)

    def finish(self, jobs: int) -> None:
        for _ in range(jobs):
            handle(json.loads(self.queue.get()))
            self.queue.consume()


PEERS: dict[str, tuple[type[Peer], ...]] = {
    "sqlite": (Litequeue, PersistQueue),
    "postgresql": (PgQueuer, Procrastinate),
    "mariadb": (HandWritten, Doloop),
    "redis": (Huey, RQ, BullMQ),
    "zookeeper": (LockingQueue,),
}
