"""How soon a waiter has a job that is posted, and how many wake for it."""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from typing import Any

import redis
from common import Watch, boards_on, client_of, in_turn, placed, server, shown, verdict

import jobboard
from jobboard.backends.redis.keys import keys_of
from jobboard.backends.redis.scripts import Script
from jobboard.testing import eventually

POSTS = 20
ROUNDS = 21
WAITERS = 8
KEYS = keys_of(b"jobboard", "board")


def claimer(uri: str, times: Any) -> None:
    """Tells when each job was there; the clock is that of the machine."""
    with jobboard.backend("board", uri) as board:
        while True:
            job = board.claim_next("me", timeout=None)
            times.send(time.monotonic())
            board.consume(job, "me")
            if job.name == "end":
                return


def popper(port: int, times: Any) -> None:
    with redis.Redis(port=port, socket_timeout=None) as client:
        while True:
            _, what = client.blpop(["list"])
            times.send(time.monotonic())
            if what == b"end":
                return


class Waiting:
    """A process that waits, and what wakes it."""

    def __init__(self, target: Any, argument: Any, asleep: Any, send: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._times, there = context.Pipe(duplex=False)
        self._process = context.Process(target=target, args=(argument, there))
        self._process.start()
        self._asleep = asleep
        self._send = send

    def wake(self, what: str = "resize") -> float:
        eventually(self._asleep)
        # Who has just been busy is served sooner: all have been idle for as long.
        time.sleep(0.02)
        start = time.monotonic()
        self._send(what)
        return float(self._times.recv()) - start

    def median(self) -> float:
        return statistics.median(self.wake() for _ in range(POSTS))

    def end(self) -> None:
        self.wake("end")
        self._process.join()


def run(given: argparse.Namespace) -> None:
    with server(given.durable) as running, client_of(running) as client, boards_on(running, "board") as [board]:
        for place in given.place:
            # Both waiters are born where this process is.
            with placed(client, place):
                compare(place, running, client, board)
        herd(client, running.uri, board)


def compare(place: str, running: Any, client: redis.Redis, board: Any) -> None:
    ours = Waiting(claimer, running.uri, lambda: client.hlen(KEYS.of("bells")) == 1, board.post)
    raw = Waiting(
        popper,
        running.port,
        lambda: client.info("clients")["blocked_clients"] == 1,
        lambda what: client.rpush("list", what),
    )
    mine, others = in_turn(ROUNDS, ours.median, raw.median)
    ours.end()
    raw.end()
    ratios = [one / other for one, other in zip(mine, others, strict=True)]
    print(
        f"wake, {place}: from a post to its claim takes {shown(ratios)} times as long as from RPUSH to the end of "
        f"BLPOP; {statistics.median(mine) * 1e3:.2f} against {statistics.median(others) * 1e3:.2f} ms; "
        f"target 2: {verdict(statistics.median(ratios) <= 2)}"
    )


def herd(client: redis.Redis, uri: str, board: Any) -> None:
    asleep = lambda: client.hlen(KEYS.of("bells")) == WAITERS  # noqa: E731 - two of one kind
    waiters = [Waiting(claimer, uri, asleep, None) for _ in range(WAITERS)]
    eventually(asleep)
    scripts = ("take", "post", "look", "commit", "wait", "leave", "finish")
    known = [(name, Script(name, KEYS, board.engine.store.server.flags)) for name in scripts]
    with Watch(client, known) as watch:
        for _ in range(POSTS):
            eventually(asleep)
            board.post("resize")
        eventually(lambda: asleep() and board.job_count == 0)
        counts = watch.read()
    # The one that takes the job looks once more before it goes to sleep again.
    looks = counts["take"] / POSTS
    print(f"wake: of {WAITERS} waiters {looks:.2f} wake for a job ({POSTS} jobs: {counts}); target 1")
    board.post_many({"name": "end"} for _ in waiters)
    for waiter in waiters:
        waiter._process.join()
