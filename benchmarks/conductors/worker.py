"""One worker process of one library: commands and answers are lines of JSON.

    ["fill", 5000]      post so many jobs that do nothing
    ["fill", 200, "a"]  post so many that take 10 ms, and write their numbers to a file
    ["drain", 5000]     work them all off, in this process; answers how many seconds that took, and of CPU time
    ["work"]            work on until this process is killed

The first line that it writes says that it is ready.
Which library, its URI and its settings are the arguments. Each runs as its documentation has it, without results, logs
or a pause between jobs, and ends when the last job has been run and what it needs to be finished has been written.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from asynchronous import DETAILS, SAQ, Arq, JobboardCoroutines, PgQueuer, Procrastinate, Taskiq


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


LIBRARIES: dict[str, Callable[[str, int], Any]] = {
    "threads": Jobboard,
    "coroutines": JobboardCoroutines,
    "huey": Huey,
    "rq": RQ,
    "arq": Arq,
    "saq": SAQ,
    "taskiq": Taskiq,
    "pgqueuer": PgQueuer,
    "procrastinate": Procrastinate,
}


def main() -> None:
    library, uri, setting = sys.argv[1:]
    logging.disable(logging.WARNING)
    peer = LIBRARIES[library](uri, int(setting))
    answers, sys.stdout = sys.stdout, sys.stderr
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        what, *given = json.loads(line)
        began, spent = time.perf_counter(), time.process_time()
        seconds = getattr(peer, what)(*given)
        spent = time.process_time() - spent
        print(json.dumps([seconds or time.perf_counter() - began, spent]), file=answers, flush=True)


if __name__ == "__main__":
    main()
