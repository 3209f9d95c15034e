"""What the benchmarks share: a server of their own, where things run, and how a result is shown."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import redis

import jobboard
from tests.support.servers import Redis

# 200 bytes of JSON.
DETAILS = {"path": "/srv/images/" + "x" * 165, "width": 640}

PLACES = ("one core", "two cores", "anywhere")


@contextmanager
def server(durable: bool = False, **config: str | int) -> Iterator[Redis]:
    """A server that rewrites no file in between, as that would fall on whoever is being measured."""
    with Redis(durable=durable, config={"auto-aof-rewrite-percentage": 0, **config}) as running:
        yield running


@contextmanager
def client_of(running: Redis) -> Iterator[redis.Redis]:
    with redis.Redis(host=running.address[0], port=running.address[1]) as client:
        yield client


@contextmanager
def boards_on(running: Redis, *names: str, **options: Any) -> Iterator[list[Any]]:
    with ExitStack() as stack:
        yield [stack.enter_context(jobboard.backend(name, {"board": running.uri, **options})) for name in names]


@contextmanager
def placed(client: redis.Redis, place: str) -> Iterator[None]:
    """Client and server share a core, or have one each: what a round trip costs depends on little else. Or they run
    where the system puts them."""
    if place == "anywhere":
        yield
        return
    cores = sorted(os.sched_getaffinity(0))
    if place == "two cores" and len(cores) < 2:
        raise SystemExit("there is only one core; leave two cores out with --place 'one core'")
    # What interrupts the machine falls on its first core most of the time.
    own, servers = (cores[-1], cores[-1]) if place == "one core" else (cores[-1], cores[-2])
    pid = client.info("server")["process_id"]
    pin(os.getpid(), {own})
    pin(pid, {servers})
    try:
        yield
    finally:
        pin(os.getpid(), set(cores))
        pin(pid, set(cores))


def pin(pid: int, cores: set[int]) -> None:
    """Each thread has a place of its own; those to come are born where the one that starts them is."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), cores)


def postings(jobs: int, **more: Any) -> Iterator[dict[str, Any]]:
    for _ in range(jobs):
        yield {"name": "resize", "details": DETAILS, **more}


def in_turn(rounds: int, ours: Callable[[], float], theirs: Callable[[], float]) -> tuple[list[float], list[float]]:
    """Both in each round, of which the first does not count."""
    mine, others = [], []
    for number in range(rounds + 1):
        # Who goes first changes, so that neither always meets what the other has left.
        if number % 2:
            one, other = ours(), theirs()
        else:
            other, one = theirs(), ours()
        if number:
            mine.append(one)
            others.append(other)
    return mine, others


def shown(values: Sequence[float], digits: int = 2) -> str:
    return f"{statistics.median(values):.{digits}f} (from {min(values):.{digits}f} to {max(values):.{digits}f})"


def verdict(reached: bool) -> str:
    return "reached" if reached else "MISSED"


class Watch:
    """The commands that clients send while this is open: those of scripts are not among them.

    INFO can't tell the two apart.
    """

    def __init__(self, client: redis.Redis, known: Iterable[Any] = ()) -> None:
        """:param known: scripts of the boards watched, as their ``source``; counted by their name."""
        self._client = client
        self._names = {client.script_load(script.source): name for name, script in known}
        self.counts: dict[str, int] = {}

    def __enter__(self) -> Watch:
        self._monitor = self._client.monitor()
        self._monitor.__enter__()
        # It has taken the client's connection, so that the next call greets the server on another.
        self.read()
        self.counts.clear()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._monitor.__exit__(*exc_info)

    def read(self) -> dict[str, int]:
        """What has come until now."""
        mark = f"end {os.urandom(8).hex()}"
        self._client.echo(mark)
        for seen in self._monitor.listen():
            words = seen["command"].split(" ", 2)
            if mark in seen["command"]:
                return self.counts
            if seen["client_type"] == "lua":
                continue
            name = words[0].upper()
            if name == "EVALSHA":
                name = self._names.get(words[1], name)
            self.counts[name] = self.counts.get(name, 0) + 1
        raise AssertionError("the server has hung up")
