"""The board against its own scripts, called by hand."""

from __future__ import annotations

import argparse
import statistics
import time
import uuid
from functools import partial
from typing import Any

import msgpack
import redis
from common import DETAILS, boards_on, client_of, in_turn, placed, postings, server, shown, verdict

from jobboard.backends.redis.keys import keys_of
from jobboard.backends.redis.records import FIELDS
from jobboard.backends.redis.scripts import Script

HANDLE = "f" * 32
LEASE = 30_000_000
TOKEN = FIELDS.index("token")


class Raw:
    """The scripts of a board, with the arguments that the board would give them."""

    def __init__(self, client: redis.Redis, board: str) -> None:
        self.client = client
        keys = keys_of(b"jobboard", board)
        self.keys = keys.all
        flags = int(client.info("server")["redis_version"].split(".")[0]) >= 7
        self.hashes = {
            name: client.script_load(Script(name, keys, flags).source) for name in ("insert", "take", "finish")
        }
        self.number = 0

    def call(self, script: str, *args: Any, postings: tuple[bytes, ...] = ()) -> Any:
        self.number += 1
        packed = msgpack.packb((f"{HANDLE}:1", self.number, 1, *args))
        reply = self.client.evalsha(self.hashes[script], len(self.keys), *self.keys, packed, *postings)
        return msgpack.unpackb(reply, raw=True)

    def post(self, count: int) -> None:
        drafts = [(str(uuid.uuid4()), "resize", 100, None, 1, None, None, None, None) for _ in range(count)]
        bodies = tuple(msgpack.packb({"details": DETAILS}) for _ in range(count))
        self.call("insert", drafts, postings=bodies)

    def claim(self, limit: int) -> list[tuple[str, int, Any]]:
        answer = self.call("take", "raw", limit, LEASE, HANDLE, 1, None)
        return [
            (job.decode(), msgpack.unpackb(record)[TOKEN], msgpack.unpackb(posting)["details"])
            for job, record, posting in answer[5]
        ]

    def consume(self, jobs: list[tuple[str, int, Any]]) -> None:
        self.call("finish", [(job, "consume", False, "raw", token) for job, token, _ in jobs])

    def finish(self, batch: int) -> None:
        self.consume(self.claim(batch))


def post(board: Any, count: int) -> None:
    if count == 1:
        board.post("resize", details=DETAILS)
    else:
        board.post_many(postings(count))


def finish(board: Any, batch: int) -> None:
    if batch == 1:
        board.consume(board.claim_next("me"), "me")
    else:
        board.consume_many(board.claim_many("me", batch), "me")


def timed(times: int, act: Any) -> float:
    start = time.perf_counter()
    for _ in range(times):
        act()
    return time.perf_counter() - start


def compare(what: str, jobs: int, ours: list[float], raws: list[float], target: float | None) -> None:
    ratios = [bare / mine for mine, bare in zip(ours, raws, strict=True)]
    rates = [jobs / statistics.median(times) for times in (ours, raws)]
    goal = "" if target is None else f"; target {target}: {verdict(statistics.median(ratios) >= target)}"
    print(f"  {what}: {shown(ratios)} of raw; {rates[0]:.0f} against {rates[1]:.0f} jobs/s{goal}")


def run(given: argparse.Namespace) -> None:
    with server(given.durable) as running, client_of(running) as client, boards_on(running, "ours", "raw") as boards:
        ours, raw = boards[0], Raw(client, "raw")
        for place in given.place:
            print(f"against raw, client and server on {place}:")
            with placed(client, place):
                for posted, batch, jobs, target in ((1, 1, 500, 0.8), (500, 100, 5000, 0.5)):
                    posts = in_turn(
                        given.rounds,
                        partial(timed, jobs // posted, partial(post, ours, posted)),
                        partial(timed, jobs // posted, partial(raw.post, posted)),
                    )
                    ends = in_turn(
                        given.rounds,
                        partial(timed, jobs // batch, partial(finish, ours, batch)),
                        partial(timed, jobs // batch, partial(raw.finish, batch)),
                    )
                    posting = "post" if posted == 1 else f"post_many({posted})"
                    claiming = "claim_next + consume" if batch == 1 else f"claim_many({batch}) + consume_many"
                    compare(posting, jobs, *posts, None)
                    compare(claiming, jobs, *ends, target)
